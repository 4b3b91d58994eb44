/* The Rust system's interface as an app uses it, and each of its mended faults.
 *
 * usage: cellm_compat_test [MODEL]     (default: the bundled model, from the source tree) */
#include <stdio.h>
#include <string.h>

#include "cellm_compat/cellm.h"
#include "reference.h"

static int failures = 0;
#define EXPECT(condition)                                            \
  do {                                                               \
    if (!(condition)) {                                              \
      printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                    \
    }                                                                \
  } while (0)

/* The last message is there, says `word`, and is gone once it was read. */
static void expect_message(int line, const char* word) {
  char text[1024] = "";
  const size_t bytes = cellm_last_error_message(text, sizeof(text));
  if (bytes == 0 || bytes != strlen(text) || strstr(text, word) == NULL) {
    printf("line %d: expected a message with \"%s\", found \"%s\"\n", line, word, text);
    ++failures;
  }
  EXPECT(cellm_last_error_message(text, sizeof(text)) == 0);
}
#define EXPECT_MESSAGE(word) expect_message(__LINE__, word)

enum { kReply = 24, kPrompt = 128 };
static const char* const kTexts[3] = {"The capital of France is", "Once upon a time",
                                      "One, two, three,"};

/* Collects what step hands out for one session until it has `most` tokens or there are no more. */
static size_t collect(cellm_engine_t engine, cellm_session_t only, uint32_t* out, size_t most) {
  size_t count = 0;
  while (count < most) {
    cellm_session_t session = 0;
    uint32_t token = 0;
    if (cellm_step_decode(engine, &session, &token) != 1) break;
    if (session == only) out[count++] = token;
  }
  return count;
}

static void test_handles(const char* path) {
  uint32_t token = 0, used = 0, left = 0;
  cellm_session_t session = 0;
  EXPECT(cellm_engine_create("nowhere.cellm", 16, 64, 40) == 0);
  EXPECT_MESSAGE("nowhere.cellm");
  EXPECT(cellm_engine_create(NULL, 16, 64, 40) == 0);
  EXPECT_MESSAGE("path");
  EXPECT(cellm_engine_create(path, 0, 64, 40) == 0);
  EXPECT_MESSAGE("tokens_per_block");
  EXPECT(cellm_engine_create_v2(path, 16, 64, 40, -1.0f, 1.0f, 64, 1) == 0);
  EXPECT_MESSAGE("temperature");
  EXPECT(cellm_engine_create_v3(path, 16, 64, 40, 0, 1, 64, 1, CELLM_BACKEND_METAL) == 0);
  EXPECT_MESSAGE("Metal");
  EXPECT(cellm_engine_create_v3(path, 16, 64, 40, 0, 1, 64, 1, 77) == 0);
  EXPECT_MESSAGE("77");
  EXPECT(cellm_engine_create_v4(path, 16, 64, 40, 0, 1, 64, 1, 0, CELLM_KV_ENCODING_TURBOQUANT, 1,
                                1) == 0);
  EXPECT_MESSAGE("kv_encoding");
  EXPECT(cellm_metal_smoke_test() == -1);
  EXPECT_MESSAGE("metal");

  const cellm_engine_t engine = cellm_engine_create(path, 16, 64, 40);
  EXPECT(engine != 0);
  char name[8] = "";
  EXPECT(cellm_engine_backend_name(engine, name, sizeof(name)) == 3 && strcmp(name, "cpu") == 0);
  EXPECT(cellm_engine_is_litert_proxy(engine) == 0);
  EXPECT(cellm_engine_set_thermal_level(engine, 4) == -1);
  EXPECT_MESSAGE("thermal");
  EXPECT(cellm_step_decode(engine, &session, &token) == 0); /* nothing to do is no error */
  EXPECT(cellm_session_reset(engine, 1) == -1);
  EXPECT_MESSAGE("session 1");
  EXPECT(cellm_step_decode(engine, NULL, &token) == -1);
  EXPECT_MESSAGE("place");
  cellm_engine_destroy(engine);
  cellm_engine_destroy(engine); /* twice, and none: no crash */
  cellm_engine_destroy(0);
  EXPECT_MESSAGE("engine");

  /* The slot is used again; the old handle still is not the new engine. */
  const cellm_engine_t second = cellm_engine_create(path, 16, 64, 40);
  EXPECT(second != 0 && second != engine);
  EXPECT(cellm_session_create(engine) == 0);
  EXPECT_MESSAGE("destroyed");
  EXPECT(cellm_engine_kv_stats(engine, &used, &left) == -1);
  EXPECT_MESSAGE("destroyed");
  EXPECT(cellm_session_create(0xFFFFFFFFFFFFFFFFu) == 0);
  EXPECT_MESSAGE("engine");
  cellm_engine_destroy(second);
  EXPECT(cellm_tokenizer_create("nowhere.json") == 0);
  EXPECT_MESSAGE("nowhere.json");
  EXPECT(cellm_tokenizer_encode(12345, "x", NULL, 0) == 0);
  EXPECT_MESSAGE("tokenizer");
}

static void test_tokenizer(cellm_tokenizer_t tokenizer) {
  const char* const text = "na\xC3\xAFve caf\xC3\xA9";
  uint32_t ids[kPrompt];
  char back[64];
  const size_t count = cellm_tokenizer_encode(tokenizer, text, NULL, 0);
  EXPECT(count > 2 && count <= kPrompt);
  EXPECT(cellm_tokenizer_encode(tokenizer, text, ids, kPrompt) == count);
  EXPECT(cellm_tokenizer_encode(tokenizer, text, ids, 2) == 2);
  EXPECT(cellm_tokenizer_encode(tokenizer, text, ids, kPrompt) == count);
  EXPECT(cellm_tokenizer_decode(tokenizer, ids, count, NULL, 0) == strlen(text));
  EXPECT(cellm_tokenizer_decode(tokenizer, ids, count, back, sizeof(back)) == strlen(text));
  EXPECT(strcmp(back, text) == 0);
  /* Every smaller buffer holds whole characters and a NUL. */
  for (size_t capacity = 1; capacity <= strlen(text); ++capacity) {
    memset(back, 'x', sizeof(back));
    const size_t written = cellm_tokenizer_decode(tokenizer, ids, count, back, capacity);
    EXPECT(written < capacity && back[written] == '\0' && back[capacity] == 'x');
    EXPECT(memcmp(back, text, written) == 0);
    EXPECT(((unsigned char)text[written] & 0xC0) != 0x80); /* cut between characters */
  }
}

/* Three sessions in one ring give what each gives alone, and what the new interface gives. */
static void test_turns(const char* path, cellm_tokenizer_t tokenizer) {
  uint32_t prompts[3][kPrompt], expected[3][kReply], got[3][kReply];
  size_t counts[3], expected_counts[3], got_counts[3] = {1, 1, 1};
  cellm_session_t sessions[3];
  const cellm_engine_t engine = cellm_engine_create(path, 8, 200, 40); /* 8: below our page unit */
  for (int i = 0; i < 3; ++i) {
    counts[i] = cellm_tokenizer_encode(tokenizer, kTexts[i], prompts[i], kPrompt);
    expected_counts[i] = reference_reply(path, prompts[i], counts[i], expected[i], kReply);
    EXPECT(expected_counts[i] > 2);
    sessions[i] = cellm_session_create(engine);
    EXPECT(sessions[i] == (cellm_session_t)(i + 1));
    EXPECT(cellm_submit_tokens(engine, sessions[i], prompts[i], counts[i], &got[i][0]) == 0);
  }
  cellm_session_t last = 3;
  int strict = 1;
  for (;;) {
    cellm_session_t session = 0;
    uint32_t token = 0;
    if (cellm_step_decode(engine, &session, &token) != 1) break;
    const int i = (int)session - 1;
    strict &= session == last % 3 + 1; /* the ring, while all three go on */
    last = session;
    if (got_counts[i] < kReply) got[i][got_counts[i]] = token;
    if (++got_counts[i] == kReply) {
      EXPECT(strict || got_counts[0] < kReply);
      EXPECT(cellm_session_suspend(engine, session) == 0);
      strict = 0;
    }
  }
  for (int i = 0; i < 3; ++i) {
    const size_t shared = expected_counts[i] < kReply ? expected_counts[i] : kReply;
    EXPECT(got_counts[i] == shared);
    EXPECT(memcmp(got[i], expected[i], shared * sizeof(uint32_t)) == 0);
  }

  /* Reset forgets: the same prompt gives the same reply, from position 0. */
  uint32_t again[kReply];
  EXPECT(cellm_session_reset(engine, 2) == 0);
  EXPECT(cellm_submit_tokens(engine, 2, prompts[0], counts[0], &again[0]) == 0);
  const size_t more = 1 + collect(engine, 2, again + 1, expected_counts[0] - 1);
  EXPECT(more == expected_counts[0]);
  EXPECT(memcmp(again, expected[0], more * sizeof(uint32_t)) == 0);

  /* The cached form: the same prompt once more starts anew, whatever was said since. */
  uint32_t hit = 7;
  EXPECT(cellm_submit_tokens_cached(engine, 2, prompts[0], counts[0], &again[0], &hit) == 0);
  EXPECT(hit <= 1 && again[0] == expected[0][0]);

  /* While it decodes there is no second prompt; after suspend there is, after what was said. */
  uint32_t token = 0;
  EXPECT(cellm_submit_tokens(engine, 2, prompts[1], counts[1], &token) == -1);
  EXPECT_MESSAGE("suspend or reset");
  EXPECT(cellm_session_suspend(engine, 2) == 0);
  cellm_session_t session = 0;
  EXPECT(cellm_step_decode(engine, &session, &token) == 0);
  EXPECT(cellm_session_resume(engine, 2) == 0);
  EXPECT(cellm_step_decode(engine, &session, &token) == 1 && session == 2);
  EXPECT(token == expected[0][1]);
  EXPECT(cellm_session_suspend(engine, 2) == 0);
  EXPECT(cellm_submit_tokens(engine, 2, prompts[1], counts[1], &token) == 0);

  /* Ids that no vocabulary has, and no ids at all. */
  const uint32_t strange[2] = {prompts[0][0], 0xFFFFFFF0u};
  const uint32_t beyond[2] = {prompts[0][0], 0x7FFFFFF0u};
  EXPECT(cellm_session_reset(engine, 3) == 0);
  EXPECT(cellm_submit_tokens(engine, 3, strange, 2, &token) == -1);
  EXPECT_MESSAGE("token 1");
  EXPECT(cellm_submit_tokens(engine, 3, beyond, 2, &token) == -1);
  EXPECT_MESSAGE("vocabulary");
  EXPECT(cellm_submit_tokens(engine, 3, prompts[0], 0, &token) == -1);
  EXPECT_MESSAGE("at least one");

  uint32_t used = 0, left = 0;
  EXPECT(cellm_engine_kv_stats(engine, &used, &left) == 0);
  EXPECT(used > 0 && used + left == 200);
  for (cellm_session_t id = 1; id <= 3; ++id) EXPECT(cellm_session_cancel(engine, id) == 0);
  EXPECT(cellm_session_cancel(engine, 2) == -1);
  EXPECT_MESSAGE("session 2");
  EXPECT(cellm_engine_kv_stats(engine, &used, &left) == 0);
  EXPECT(used == 0 && left == 200);
  EXPECT(cellm_step_decode(engine, &session, &token) == 0);
  EXPECT(cellm_session_create(engine) == 4); /* numbers are not used again */
  cellm_engine_destroy(engine);
}

/* A cache that holds 32 tokens: a prompt beyond it is refused, a reply that fills it ends, and
 * neither keeps others from going on. */
static void test_small_cache(const char* path, cellm_tokenizer_t tokenizer) {
  uint32_t prompt[kPrompt], token = 0;
  const size_t count = cellm_tokenizer_encode(tokenizer, kTexts[1], prompt, kPrompt);
  const cellm_engine_t engine = cellm_engine_create(path, 16, 2, 40);
  EXPECT(engine != 0);
  const cellm_session_t session = cellm_session_create(engine);
  uint32_t large[64];
  for (size_t i = 0; i < 64; ++i) large[i] = prompt[i % count];
  EXPECT(cellm_submit_tokens(engine, session, large, 64, &token) == -1);
  EXPECT_MESSAGE("64");
  EXPECT(cellm_session_reset(engine, session) == 0);
  EXPECT(cellm_submit_tokens(engine, session, prompt, count, &token) == 0);
  uint32_t reply[64];
  EXPECT(collect(engine, session, reply, 64) + count <= 33);
  cellm_engine_destroy(engine);
}

static void test_text(const char* path) {
  char text[64] = "x";
  const cellm_engine_t engine = cellm_engine_create(path, 16, 64, 40);
  const size_t bytes = cellm_engine_generate_text(engine, kTexts[0], text, sizeof(text));
  EXPECT(bytes > 0 && bytes == strlen(text));
  EXPECT(cellm_engine_generate_text(engine, NULL, text, sizeof(text)) == 0);
  EXPECT_MESSAGE("prompt");
  EXPECT(cellm_engine_generate_multimodal(engine, "x", "y", NULL, text, sizeof(text)) == 0);
  EXPECT_MESSAGE("images");
  EXPECT(cellm_vlm_describe_image(engine, 1, NULL, 0, "x", text, sizeof(text)) == -1);
  EXPECT_MESSAGE("image");
  double ms = 0;
  EXPECT(cellm_vlm_last_timings_ms(&ms, &ms, &ms, &ms) == -1);
  EXPECT_MESSAGE("image");
  EXPECT(cellm_vlm_last_encoder_layer_count() == 0);
  EXPECT(cellm_vlm_last_encoder_layer_time_ms(0, &ms) == -1);
  EXPECT_MESSAGE("layer 0");
  cellm_engine_destroy(engine);
}

/* A hot engine still answers: the second token waits for its half second, and no step gives 0. */
static void test_heat(const char* path, cellm_tokenizer_t tokenizer) {
  uint32_t prompt[kPrompt], token = 0;
  const size_t count = cellm_tokenizer_encode(tokenizer, kTexts[1], prompt, kPrompt);
  const cellm_engine_t engine = cellm_engine_create(path, 16, 64, 40);
  cellm_session_t session = cellm_session_create(engine);
  EXPECT(cellm_submit_tokens(engine, session, prompt, count, &token) == 0);
  EXPECT(cellm_engine_set_thermal_level(engine, 3) == 0);
  EXPECT(cellm_step_decode(engine, &session, &token) == 1);
  EXPECT(cellm_step_decode(engine, &session, &token) == 1);
  EXPECT(cellm_engine_set_thermal_level(engine, 0) == 0);
  EXPECT(cellm_step_decode(engine, &session, &token) == 1);
  cellm_engine_destroy(engine);
}

int main(int argc, char** argv) {
  const char* const path = argc > 1 ? argv[1] : "models/cellm-nano-int8.cellm";
  const cellm_tokenizer_t tokenizer = cellm_tokenizer_create(path);
  EXPECT(tokenizer != 0);
  test_handles(path);
  test_tokenizer(tokenizer);
  test_turns(path, tokenizer);
  test_small_cache(path, tokenizer);
  test_text(path);
  test_heat(path, tokenizer);
  cellm_tokenizer_destroy(tokenizer);
  cellm_tokenizer_destroy(tokenizer);
  printf(failures == 0 ? "compat: ok\n" : "compat: %d failed\n", failures);
  return failures != 0;
}
