/* The C API as a stranger would use it: C99, this header and a model file.
 *
 * usage: cellm_capi_c_test MODEL
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cellm/cellm.h"

static int failures = 0;

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      printf("%s:%d: %s is false\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                     \
    }                                                                 \
  } while (0)
#define CHECK_OK(call)                                                                          \
  do {                                                                                          \
    cellm_error check_error = CELLM_ERROR_INIT;                                                 \
    cellm_error* const e = &check_error;                                                        \
    const cellm_status check_status = (call);                                                   \
    if (check_status != CELLM_OK) {                                                             \
      printf("%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, cellm_status_name(check_status), \
             check_error.message);                                                              \
      ++failures;                                                                               \
    }                                                                                           \
  } while (0)

typedef struct Reply {
  char text[4096];
  size_t bytes;
  int32_t ids[1024];
  size_t count;
  int32_t finish;
  size_t stop_after; /* 0: never */
} Reply;

static int32_t OnToken(const cellm_token* token, void* user) {
  Reply* reply = (Reply*)user;
  if (reply->bytes + token->text_bytes < sizeof(reply->text)) {
    memcpy(reply->text + reply->bytes, token->text, token->text_bytes);
    reply->bytes += token->text_bytes;
    reply->text[reply->bytes] = '\0';
  }
  if (token->token_id >= 0 && reply->count < 1024) reply->ids[reply->count++] = token->token_id;
  reply->finish = token->finish;
  return reply->stop_after != 0 && reply->count >= reply->stop_after;
}

static cellm_text Text(const char* text) {
  cellm_text result;
  result.data = text;
  result.bytes = strlen(text);
  return result;
}

/* A greedy reply to `messages` in `session`. */
static cellm_receipt Ask(cellm_session* session, const char* messages, Reply* reply) {
  cellm_chat chat = CELLM_CHAT_INIT;
  cellm_sampling sampling = CELLM_SAMPLING_INIT;
  cellm_request_options options = CELLM_REQUEST_OPTIONS_INIT;
  cellm_request* request = NULL;
  cellm_receipt receipt = CELLM_RECEIPT_INIT;
  const size_t stop_after = reply->stop_after;
  memset(reply, 0, sizeof(*reply));
  reply->stop_after = stop_after;
  chat.messages = Text(messages);
  sampling.given = CELLM_SAMPLING_TEMPERATURE;
  options.sampling = &sampling;
  options.max_tokens = 64;
  CHECK_OK(cellm_session_submit_chat(session, &chat, &options, &request, e));
  if (request == NULL) return receipt;
  CHECK_OK(cellm_request_run(request, OnToken, reply, e));
  CHECK_OK(cellm_request_get_receipt(request, &receipt, e));
  cellm_request_close(request);
  return receipt;
}

static const char* const kFrance =
    "[{\"role\": \"user\", \"content\": \"What is the capital of France?\"}]";

static void TestVersion(void) {
  char text[32];
  sprintf(text, "%d.%d.%d", (int)(cellm_version() / 10000), (int)(cellm_version() / 100 % 100),
          (int)(cellm_version() % 100));
  CHECK(strcmp(text, cellm_version_string()) == 0);
  CHECK(cellm_abi_version() == CELLM_ABI_VERSION);
  CHECK(strcmp(cellm_status_name(CELLM_CORRUPT), "corrupt") == 0);
  CHECK(strcmp(cellm_status_name(12345), "unknown status") == 0);
  CHECK(strcmp(cellm_finish_name(CELLM_FINISH_END), "end") == 0);
}

/* Null handles, null outs and null options are errors or allowed, never crashes. */
static void TestNulls(void) {
  cellm_model* model = NULL;
  cellm_engine* engine = NULL;
  cellm_session* session = NULL;
  cellm_request* request = NULL;
  size_t count = 0;
  cellm_model_close(NULL);
  cellm_engine_close(NULL);
  cellm_session_close(NULL);
  cellm_request_close(NULL);
  cellm_request_cancel(NULL);
  CHECK(cellm_model_open(NULL, 0, NULL, &model, NULL) == CELLM_INVALID_ARGUMENT);
  CHECK(cellm_model_open("x", 1, NULL, NULL, NULL) == CELLM_INVALID_ARGUMENT);
  CHECK(cellm_model_open("/nonexistent", 12, NULL, &model, NULL) == CELLM_NOT_FOUND);
  CHECK(model == NULL);
  CHECK(cellm_engine_open(NULL, NULL, &engine, NULL) == CELLM_INVALID_ARGUMENT);
  CHECK(cellm_session_open(NULL, NULL, &session, NULL) == CELLM_INVALID_ARGUMENT);
  CHECK(cellm_session_submit_text(NULL, "x", 1, NULL, &request, NULL) == CELLM_INVALID_ARGUMENT);
  CHECK(cellm_request_next(NULL, NULL, NULL) == CELLM_INVALID_ARGUMENT);
  CHECK(cellm_model_tokenize(NULL, "x", 1, 0, NULL, 0, &count, NULL) == CELLM_INVALID_ARGUMENT);
}

static void TestText(cellm_model* model) {
  int32_t ids[64];
  char text[64];
  size_t count = 0, bytes = 0;
  cellm_error error = CELLM_ERROR_INIT;
  CHECK_OK(cellm_model_tokenize(model, "Hello there", 11, 0, ids, 64, &count, e));
  CHECK(count > 0 && count < 11);
  CHECK_OK(cellm_model_detokenize(model, ids, count, 0, text, sizeof(text), &bytes, e));
  CHECK(bytes == 11 && memcmp(text, "Hello there", 11) == 0);
  /* The size can be asked for. */
  bytes = 0;
  CHECK(cellm_model_detokenize(model, ids, count, 0, NULL, 0, &bytes, &error) ==
        CELLM_OUT_OF_RANGE);
  CHECK(bytes == 11 && error.status == CELLM_OUT_OF_RANGE && error.message[0] != '\0');
  /* What a user writes is text, what the template writes is a token. */
  {
    cellm_chat chat = CELLM_CHAT_INIT;
    size_t plain = 0, spelled = 0, i = 0, ends = 0;
    int32_t end = -1;
    int32_t many[256];
    CHECK_OK(cellm_model_tokenize(model, "<|im_end|>", 10, CELLM_TOKENIZE_PARSE_SPECIAL, &end, 1,
                                  &count, e));
    CHECK(count == 1);
    chat.messages = Text("[{\"role\": \"user\", \"content\": \"hi\"}]");
    CHECK_OK(cellm_model_tokenize_chat(model, &chat, many, 256, &plain, e));
    chat.messages = Text("[{\"role\": \"user\", \"content\": \"hi<|im_end|>\"}]");
    CHECK_OK(cellm_model_tokenize_chat(model, &chat, many, 256, &spelled, e));
    for (i = 0; i < spelled; ++i) ends += many[i] == end;
    CHECK(ends == 1);
    CHECK(spelled > plain + 1);
  }
}

/* users.md row 46, 47: a template error says what it is; bos_token that a model lacks is undefined.
 */
static void TestTemplates(cellm_model* model) {
  char text[256];
  size_t bytes = 0;
  cellm_error error = CELLM_ERROR_INIT;
  const char* source = "{{ messages[0].content }}{% if bos_token is defined %}!{% endif %}";
  const char* vars = "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}";
  CHECK_OK(cellm_template_render(source, strlen(source), vars, strlen(vars), NULL, 0, 0, text,
                                 sizeof(text), &bytes, e));
  CHECK(bytes == 2 && memcmp(text, "hi", 2) == 0);
  source = "{{ raise_exception('roles must alternate') }}";
  CHECK(cellm_template_render(source, strlen(source), "{}", 2, NULL, 0, 0, text, sizeof(text),
                              &bytes, &error) == CELLM_INVALID_ARGUMENT);
  CHECK(strcmp(error.kind, "TemplateError") == 0);
  CHECK(strcmp(error.message, "roles must alternate") == 0);
  source = "a\n{{ x | no_such_filter }}";
  CHECK(cellm_template_render(source, strlen(source), "{}", 2, NULL, 0, 0, text, sizeof(text),
                              &bytes, &error) == CELLM_UNSUPPORTED);
  CHECK(strstr(error.message, "no_such_filter") != NULL && strstr(error.message, "2") != NULL);
  {
    cellm_chat chat = CELLM_CHAT_INIT;
    chat.messages = Text("{}");
    CHECK(cellm_model_render_chat(model, &chat, text, sizeof(text), &bytes, &error) ==
          CELLM_INVALID_ARGUMENT);
    CHECK(strstr(error.message, "messages") != NULL);
  }
}

/* users.md row 10 in small: the second turn costs its new tokens only, counted exactly. */
static void TestChat(cellm_engine* engine) {
  static Reply reply, cold, warm;
  char messages[8192];
  int32_t ids[1024];
  size_t before = 0;
  cellm_session* session = NULL;
  cellm_session* fresh = NULL;
  cellm_session_options private_options = CELLM_SESSION_OPTIONS_INIT;
  cellm_receipt receipt;
  CHECK_OK(cellm_session_open(engine, NULL, &session, e));
  receipt = Ask(session, kFrance, &reply);
  CHECK(strstr(reply.text, "Paris") != NULL);
  CHECK(reply.finish == CELLM_FINISH_END);
  CHECK(receipt.finish == CELLM_FINISH_END && receipt.reused_tokens == 0);
  CHECK(receipt.generated_tokens == reply.count && receipt.prompt_tokens > 0);
  CHECK(receipt.memory.peak >= receipt.memory.used && receipt.memory.cache > 0);
  CHECK_OK(cellm_session_get_tokens(session, ids, 1024, &before, e));
  CHECK(before == receipt.prompt_tokens + receipt.generated_tokens);

  sprintf(messages,
          "[{\"role\": \"user\", \"content\": \"What is the capital of France?\"},"
          "{\"role\": \"assistant\", \"content\": \"%s\"},"
          "{\"role\": \"user\", \"content\": \"What is 7 plus 5?\"}]",
          reply.text);
  receipt = Ask(session, messages, &warm);
  /* All of the first turn but the end id, which was never evaluated. */
  CHECK(receipt.reused_tokens == before - 1);
  private_options.flags = CELLM_SESSION_PRIVATE;
  CHECK_OK(cellm_session_open(engine, &private_options, &fresh, e));
  receipt = Ask(fresh, messages, &cold);
  CHECK(receipt.reused_tokens == 0);
  CHECK(warm.count == cold.count && memcmp(warm.ids, cold.ids, warm.count * sizeof(int32_t)) == 0);

  /* Asking the same again: everything but the last token of the prompt is reused. */
  receipt = Ask(fresh, messages, &warm);
  CHECK(receipt.reused_tokens == receipt.prompt_tokens - 1);
  CHECK(strcmp(warm.text, cold.text) == 0);
  CHECK_OK(cellm_session_clear(session, e));
  receipt = Ask(session, kFrance, &reply);
  /* The session forgot; the engine still knows the beginning, and the answer is the same. */
  CHECK(receipt.reused_tokens == receipt.prompt_tokens - 1);
  CHECK(strstr(reply.text, "Paris") != NULL);
  cellm_session_close(fresh);
  cellm_session_close(session);
}

static void TestCancel(cellm_engine* engine) {
  static Reply reply;
  cellm_session* session = NULL;
  cellm_receipt receipt;
  CHECK_OK(cellm_session_open(engine, NULL, &session, e));
  reply.stop_after = 3;
  receipt = Ask(session, kFrance, &reply);
  CHECK(reply.count == 3 && receipt.finish == CELLM_FINISH_CANCELLED);
  reply.stop_after = 0;
  receipt = Ask(session, kFrance, &reply);
  CHECK(receipt.finish == CELLM_FINISH_END && strstr(reply.text, "Paris") != NULL);
  cellm_session_close(session);
}

/* Several sessions at once, driven by one thread: each says what it says alone. */
static void TestTogether(cellm_engine* engine) {
  static const char* const kQuestions[3] = {
      "[{\"role\": \"user\", \"content\": \"What is the capital of France?\"}]",
      "[{\"role\": \"user\", \"content\": \"What is 7 plus 5?\"}]",
      "[{\"role\": \"user\", \"content\": \"What is the capital of Italy?\"}]"};
  static Reply alone[3];
  static char together[3][4096];
  cellm_session* sessions[3];
  cellm_session* fork = NULL;
  cellm_request* requests[3];
  cellm_engine_stats stats = CELLM_ENGINE_STATS_INIT;
  cellm_sampling greedy = CELLM_SAMPLING_INIT;
  cellm_request_options how = CELLM_REQUEST_OPTIONS_INIT;
  cellm_token token = CELLM_TOKEN_INIT;
  int32_t ids[1024];
  size_t count = 0, forked = 0;
  int open = 3, i;
  greedy.given = CELLM_SAMPLING_TEMPERATURE;
  how.sampling = &greedy;
  for (i = 0; i < 3; ++i) {
    cellm_session_options options = CELLM_SESSION_OPTIONS_INIT;
    options.latency_class = i == 2 ? CELLM_CLASS_BACKGROUND : CELLM_CLASS_INTERACTIVE;
    CHECK_OK(cellm_session_open(engine, &options, &sessions[i], e));
    (void)Ask(sessions[i], kQuestions[i], &alone[i]);
    CHECK_OK(cellm_session_clear(sessions[i], e));
  }
  for (i = 0; i < 3; ++i) {
    cellm_chat chat = CELLM_CHAT_INIT;
    chat.messages = Text(kQuestions[i]);
    together[i][0] = 0;
    CHECK_OK(cellm_session_submit_chat(sessions[i], &chat, &how, &requests[i], e));
  }
  CHECK_OK(cellm_engine_get_stats(engine, &stats, e));
  CHECK(stats.running + stats.waiting == 3);
  while (open > 0) {
    int32_t ran = 0;
    CHECK_OK(cellm_engine_step(engine, &ran, e));
    open = 0;
    for (i = 0; i < 3; ++i) {
      int32_t ready = 1;
      while (ready != 0 && requests[i] != NULL) {
        CHECK_OK(cellm_request_poll(requests[i], &token, &ready, e));
        if (ready == 0) break;
        strncat(together[i], token.text, token.text_bytes);
        if (token.finish != CELLM_FINISH_NONE) {
          CHECK(token.finish == CELLM_FINISH_END);
          cellm_request_close(requests[i]);
          requests[i] = NULL;
        }
      }
      if (requests[i] != NULL) ++open;
    }
  }
  for (i = 0; i < 3; ++i) CHECK(strcmp(together[i], alone[i].text) == 0);

  /* A fork has the same past; rewinding one leaves the other alone. */
  CHECK_OK(cellm_session_fork(sessions[0], &fork, e));
  CHECK_OK(cellm_session_rewind(sessions[0], 2, e));
  CHECK(cellm_session_rewind(sessions[0], 3, NULL) == CELLM_OUT_OF_RANGE);
  CHECK_OK(cellm_session_get_tokens(sessions[0], ids, 1024, &count, e));
  CHECK_OK(cellm_session_get_tokens(fork, ids, 1024, &forked, e));
  CHECK(count == 2 && forked > 10);
  cellm_session_close(fork);
  for (i = 0; i < 3; ++i) cellm_session_close(sessions[i]);
}

/* A suspended session goes on in another engine as it would have here, without evaluating again. */
static void TestSuspend(cellm_model* model, cellm_engine* engine, const char* folder) {
  static Reply first, here, there;
  static char path[1024], messages[8192], bytes[1 << 20];
  cellm_session* session = NULL;
  cellm_session* resumed = NULL;
  cellm_engine* other = NULL;
  cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
  cellm_error error = CELLM_ERROR_INIT;
  cellm_receipt receipt;
  size_t restored = 0, size = 0, i = 0;
  int32_t ids[1024];
  FILE* file = NULL;
  snprintf(path, sizeof(path), "%s/suspended.session", folder);
  CHECK_OK(cellm_session_open(engine, NULL, &session, e));
  (void)Ask(session, kFrance, &first);
  CHECK_OK(cellm_session_save(session, path, strlen(path), 0, e));
  sprintf(messages,
          "[{\"role\": \"user\", \"content\": \"What is the capital of France?\"},"
          "{\"role\": \"assistant\", \"content\": \"%s\"},"
          "{\"role\": \"user\", \"content\": \"What is 7 plus 5?\"}]",
          first.text);
  (void)Ask(session, messages, &here);

  options.context_tokens = 512;
  CHECK_OK(cellm_engine_open(model, &options, &other, e));
  CHECK_OK(cellm_session_restore(other, path, strlen(path), NULL, &resumed, &restored, e));
  CHECK_OK(cellm_session_get_tokens(resumed, ids, 1024, &size, e));
  /* All but the end id, which only a longer conversation has evaluated. */
  CHECK(restored == size - 1 || restored == size);
  receipt = Ask(resumed, messages, &there);
  CHECK(receipt.reused_tokens == restored);
  CHECK(here.count == there.count && memcmp(here.ids, there.ids, here.count * 4) == 0);
  cellm_session_close(resumed);

  /* Cut or changed anywhere it is refused, and the engine goes on. */
  file = fopen(path, "rb");
  CHECK(file != NULL);
  if (file == NULL) return;
  size = fread(bytes, 1, sizeof(bytes), file);
  fclose(file);
  CHECK(size > 1000 && size < sizeof(bytes));
  for (i = 0; i < size; i += (i < 100 ? 1 : 997)) {
    size_t keep = i % 2 == 0 ? i : size;
    bytes[i] ^= 4;
    file = fopen(path, "wb");
    CHECK(fwrite(bytes, 1, keep, file) == keep);
    fclose(file);
    bytes[i] ^= 4;
    resumed = NULL;
    CHECK(cellm_session_restore(other, path, strlen(path), NULL, &resumed, NULL, &error) !=
          CELLM_OK);
    CHECK(resumed == NULL && strstr(error.message, "suspended.session") != NULL);
  }
  remove(path);
  CHECK(cellm_session_restore(other, path, strlen(path), NULL, &resumed, NULL, &error) ==
        CELLM_NOT_FOUND);
  CHECK_OK(cellm_session_save(session, path, strlen(path), CELLM_SAVE_TOKENS_ONLY, e));
  CHECK_OK(cellm_session_restore(other, path, strlen(path), NULL, &resumed, &restored, e));
  CHECK(restored == 0);
  cellm_session_close(resumed);
  remove(path);
  cellm_session_close(session);
  cellm_engine_close(other);
}

/* A handle that was closed is an error, never a crash; closing twice is nothing. */
static void TestStaleHandles(cellm_engine* engine) {
  cellm_session* session = NULL;
  cellm_session* next = NULL;
  cellm_request* request = NULL;
  cellm_error error = CELLM_ERROR_INIT;
  cellm_token token = CELLM_TOKEN_INIT;
  size_t count = 0;
  int32_t id = 100;
  int i;
  CHECK_OK(cellm_session_open(engine, NULL, &session, e));
  CHECK_OK(cellm_session_submit_tokens(session, &id, 1, NULL, &request, e));
  cellm_request_close(request);
  cellm_request_close(request);
  cellm_request_cancel(request);
  CHECK(cellm_request_next(request, &token, &error) == CELLM_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "request handle is not open") != NULL);
  cellm_session_close(session);
  cellm_session_close(session);
  CHECK(cellm_session_clear(session, &error) == CELLM_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "session handle is not open") != NULL);
  /* Its place is used again, its handle is not. */
  for (i = 0; i < 1000; ++i) {
    CHECK_OK(cellm_session_open(engine, NULL, &next, e));
    CHECK(next != session);
    CHECK(cellm_session_get_tokens(session, NULL, 0, &count, NULL) == CELLM_INVALID_ARGUMENT);
    cellm_session_close(next);
  }
  CHECK(cellm_session_clear((cellm_session*)(uintptr_t)0x1234, NULL) == CELLM_INVALID_ARGUMENT);
  CHECK(cellm_engine_step((cellm_engine*)session, NULL, NULL) == CELLM_INVALID_ARGUMENT ||
        (cellm_engine*)session == engine);
}

/* One token at a time, errors on the way, and handles closed in the wrong order. */
static void TestRequests(cellm_model* model) {
  cellm_engine* engine = NULL;
  cellm_session* session = NULL;
  cellm_request* request = NULL;
  cellm_request* second = NULL;
  cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
  cellm_request_options how = CELLM_REQUEST_OPTIONS_INIT;
  cellm_token token = CELLM_TOKEN_INIT;
  cellm_error error = CELLM_ERROR_INIT;
  int32_t ids[40];
  size_t i = 0;
  double sum = 0;
  options.context_tokens = 32;
  options.threads = 1;
  CHECK_OK(cellm_engine_open(model, &options, &engine, e));
  CHECK_OK(cellm_session_open(engine, NULL, &session, e));
  for (i = 0; i < 40; ++i) ids[i] = (int32_t)(100 + i);

  /* users.md rows 28, 29: a prompt that does not fit says needed and available. */
  CHECK(cellm_session_submit_tokens(session, ids, 33, &how, &request, &error) ==
        CELLM_OUT_OF_RANGE);
  CHECK(error.reason == CELLM_REASON_CONTEXT_LENGTH && error.needed == 33 && error.available == 32);
  CHECK(cellm_session_submit_tokens(session, ids, 0, &how, &request, &error) ==
        CELLM_INVALID_ARGUMENT);
  ids[3] = 1 << 30;
  CHECK(cellm_session_submit_tokens(session, ids, 8, &how, &request, &error) ==
        CELLM_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "1073741824") != NULL);
  ids[3] = 103;

  /* users.md row 28: contexts of n - 1, n and n + 1 tokens always end with a reason. */
  for (i = 30; i <= 32; ++i) {
    size_t produced = 0;
    how.flags = CELLM_REQUEST_IGNORE_END;
    CHECK_OK(cellm_session_clear(session, e));
    CHECK_OK(cellm_session_submit_tokens(session, ids, i, &how, &request, e));
    CHECK(cellm_session_submit_tokens(session, ids, i, &how, &second, &error) == CELLM_BUSY);
    do {
      CHECK_OK(cellm_request_next(request, &token, e));
      produced += token.token_id >= 0;
    } while (token.finish == CELLM_FINISH_NONE && produced < 100);
    CHECK(token.finish == CELLM_FINISH_CONTEXT);
    CHECK(produced == 32 - i);
    CHECK(cellm_request_next(request, &token, &error) == CELLM_INVALID_ARGUMENT);
    cellm_request_close(request);
  }

  /* users.md row 51: log-probabilities are of the raw distribution. */
  {
    cellm_sampling sampling = CELLM_SAMPLING_INIT;
    sampling.given = CELLM_SAMPLING_TEMPERATURE | CELLM_SAMPLING_SEED;
    sampling.temperature = 5; /* does not show in the log-probabilities */
    sampling.seed = 11;
    how.flags = CELLM_REQUEST_LOGPROBS;
    how.top_logprobs = 5;
    how.max_tokens = 1;
    how.sampling = &sampling;
    CHECK_OK(cellm_session_clear(session, e));
    CHECK_OK(cellm_session_submit_tokens(session, ids, 8, &how, &request, e));
    CHECK_OK(cellm_request_next(request, &token, e));
    CHECK(token.top_count == 5 && token.finish == CELLM_FINISH_LENGTH);
    for (i = 0; i < token.top_count; ++i) {
      CHECK(token.top[i].logprob <= 0 && token.top[i].logprob >= token.top[4].logprob);
      CHECK(token.top[i].token_id != token.token_id || token.top[i].logprob == token.logprob);
      sum += token.top[i].logprob;
    }
    CHECK(sum < 0);
    cellm_request_close(request);
  }
  /* Bad options are named. */
  {
    cellm_sampling sampling = CELLM_SAMPLING_INIT;
    how.sampling = &sampling;
    sampling.given = CELLM_SAMPLING_TOP_P;
    sampling.top_p = 2;
    CHECK(cellm_session_submit_tokens(session, ids, 8, &how, &request, &error) ==
          CELLM_INVALID_ARGUMENT);
    CHECK(strstr(error.message, "top_p") != NULL);
    how.sampling = NULL;
    how.flags = 0x80000000u;
    CHECK(cellm_session_submit_tokens(session, ids, 8, &how, &request, &error) ==
          CELLM_UNSUPPORTED);
  }
  /* The engine and the session go first; the request still works. */
  how.flags = 0;
  how.top_logprobs = 0;
  how.max_tokens = 2;
  CHECK_OK(cellm_session_submit_tokens(session, ids, 8, &how, &request, e));
  cellm_engine_close(engine);
  cellm_session_close(session);
  CHECK_OK(cellm_request_next(request, &token, e));
  CHECK(token.token_id >= 0);
  cellm_request_close(request);
}

typedef struct Rows {
  float first[8];
  size_t rows[2];
  int in_order;
} Rows;

static int32_t OnLogits(size_t list, size_t position, const float* logits, int32_t vocabulary,
                        void* user) {
  Rows* rows = (Rows*)user;
  if (position != rows->rows[list]) rows->in_order = 0;
  ++rows->rows[list];
  if (list == 0 && position == 4) memcpy(rows->first, logits, sizeof(rows->first));
  return vocabulary < 8;
}

static int32_t StopLogits(size_t list, size_t position, const float* logits, int32_t vocabulary,
                          void* user) {
  (void)list, (void)position, (void)logits, (void)vocabulary, (void)user;
  return 1;
}

/* A list's logits do not depend on its neighbours or on chunks, bit for bit. */
static void TestEvaluate(cellm_model* model) {
  int32_t ids[20];
  size_t i = 0;
  uint32_t chunk = 0;
  Rows alone;
  const uint32_t chunks[] = {1, 3, 64};
  cellm_token_list lists[2] = {CELLM_TOKEN_LIST_INIT, CELLM_TOKEN_LIST_INIT};
  for (i = 0; i < 20; ++i) ids[i] = (int32_t)(50 + 7 * i);
  lists[0].ids = ids;
  lists[0].count = 11;
  lists[1].ids = ids + 5;
  lists[1].count = 15;
  memset(&alone, 0, sizeof(alone));
  for (chunk = 0; chunk < 3; ++chunk) {
    cellm_engine* engine = NULL;
    cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
    Rows one, two;
    memset(&one, 0, sizeof(one));
    memset(&two, 0, sizeof(two));
    one.in_order = two.in_order = 1;
    options.chunk_tokens = chunks[chunk];
    options.step_tokens = 2 * chunks[chunk];
    CHECK_OK(cellm_engine_open(model, &options, &engine, e));
    if (engine == NULL) return;
    CHECK_OK(cellm_engine_evaluate(engine, lists, 1, OnLogits, &one, e));
    CHECK_OK(cellm_engine_evaluate(engine, lists, 2, OnLogits, &two, e));
    CHECK(one.rows[0] == 11 && two.rows[0] == 11 && two.rows[1] == 15);
    CHECK(one.in_order && two.in_order);
    CHECK(memcmp(one.first, two.first, sizeof(one.first)) == 0);
    if (chunk == 0) alone = one;
    CHECK(memcmp(one.first, alone.first, sizeof(one.first)) == 0);
    CHECK(cellm_engine_evaluate(engine, lists, 1, StopLogits, NULL, NULL) == CELLM_CANCELLED);
    cellm_engine_close(engine);
  }
}

static size_t hook_bytes = 0;
static void* HookAllocate(size_t bytes, size_t alignment, void* user) {
  void* pointer = NULL;
  (void)user;
  hook_bytes += bytes;
  /* aligned_alloc is C11; over-allocate by hand, as an embedder without it would. */
  pointer = malloc(bytes + alignment + sizeof(void*));
  if (pointer == NULL) return NULL;
  {
    uintptr_t at = ((uintptr_t)pointer + sizeof(void*) + alignment - 1) / alignment * alignment;
    ((void**)at)[-1] = pointer;
    return (void*)at;
  }
}
static void HookFree(void* pointer, size_t bytes, void* user) {
  (void)user;
  hook_bytes -= bytes;
  free(((void**)pointer)[-1]);
}

/* The caller's memory hooks carry everything; a budget too small is refused, not exceeded. */
static void TestMemory(cellm_model* model) {
  static Reply reply;
  cellm_engine* engine = NULL;
  cellm_session* session = NULL;
  cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
  cellm_memory memory = CELLM_MEMORY_INIT;
  cellm_engine_info info = CELLM_ENGINE_INFO_INIT;
  cellm_error error = CELLM_ERROR_INIT;
  uint64_t idle = 0;
  options.kernels = Text("scalar"); /* weights of its own, not those of the other tests */
  options.allocate = HookAllocate;
  options.release = HookFree;
  CHECK_OK(cellm_engine_open(model, &options, &engine, e));
  if (engine == NULL) return;
  CHECK(hook_bytes > 0);
  CHECK_OK(cellm_engine_get_memory(engine, &memory, e));
  idle = memory.used - memory.tokenizer;
  CHECK_OK(cellm_session_open(engine, NULL, &session, e));
  (void)Ask(session, kFrance, &reply);
  CHECK_OK(cellm_engine_get_memory(engine, &memory, e));
  CHECK(memory.used >= hook_bytes);
  cellm_session_close(session);
  cellm_engine_close(engine);

  /* users.md row 32: the default context is what model and memory allow; one that was asked for is
     not cut in silence. */
  options.memory_bytes = idle + 1000000;
  engine = NULL;
  CHECK_OK(cellm_engine_open(model, &options, &engine, e));
  if (engine == NULL) return;
  CHECK_OK(cellm_engine_get_info(engine, &info, e));
  CHECK(info.context_tokens > 64 && info.context_tokens < 1024);
  cellm_engine_close(engine);
  options.context_tokens = 1024;
  engine = NULL;
  CHECK(cellm_engine_open(model, &options, &engine, &error) == CELLM_OUT_OF_MEMORY);
  options.context_tokens = 0;

  options.memory_bytes = 4096;
  options.allocate = NULL;
  options.release = NULL;
  engine = NULL;
  CHECK(cellm_engine_open(model, &options, &engine, &error) == CELLM_OUT_OF_MEMORY);
  CHECK(error.reason == CELLM_REASON_MEMORY && engine == NULL);
}

/* users.md row 34: a limit that is not known is said to be so, and is never 0. */
static void TestTokenizerOnly(const char* path) {
  cellm_model* model = NULL;
  cellm_engine* engine = NULL;
  cellm_model_options options = CELLM_MODEL_OPTIONS_INIT;
  cellm_model_info info = CELLM_MODEL_INFO_INIT;
  cellm_error error = CELLM_ERROR_INIT;
  options.flags = CELLM_MODEL_TOKENIZER_ONLY;
  CHECK_OK(cellm_model_open(path, strlen(path), &options, &model, e));
  if (model == NULL) return;
  CHECK_OK(cellm_model_get_info(model, &info, e));
  CHECK(info.max_context == 1024 && info.vocabulary == 4096);
  CHECK(cellm_engine_open(model, NULL, &engine, &error) == CELLM_INVALID_ARGUMENT);
  cellm_model_close(model);
  /* What is not built in is refused by name. */
  model = NULL;
  options.flags = 0;
  options.flags = 1u << 20;
  CHECK(cellm_model_open(path, strlen(path), &options, &model, &error) == CELLM_UNSUPPORTED);
  options.flags = CELLM_MODEL_EMBEDDING_ON_FLASH | CELLM_MODEL_EMBEDDING_RESIDENT;
  CHECK(cellm_model_open(path, strlen(path), &options, &model, &error) == CELLM_INVALID_ARGUMENT);
  options.flags = 0;
  options.weights = 7;
  CHECK(cellm_model_open(path, strlen(path), &options, &model, &error) == CELLM_INVALID_ARGUMENT);
  options.weights = CELLM_WEIGHTS_AUTO;
  options.chat_format = Text("smoke-signals");
  CHECK(cellm_model_open(path, strlen(path), &options, &model, &error) == CELLM_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "smoke-signals") != NULL && model == NULL);
}

int main(int argc, char** argv) {
  cellm_model* model = NULL;
  cellm_engine* engine = NULL;
  cellm_model_info info = CELLM_MODEL_INFO_INIT;
  if (argc != 2) {
    printf("usage: %s MODEL\n", argv[0]);
    return 2;
  }
  TestVersion();
  TestNulls();
  CHECK_OK(cellm_model_open(argv[1], strlen(argv[1]), NULL, &model, e));
  if (model == NULL) return 1;
  CHECK_OK(cellm_model_get_info(model, &info, e));
  CHECK(info.tokenizer_size == 4096 && info.has_chat_template == 1);
  /* users.md row 48: the template comes from the file; its hash says which. */
  CHECK(info.chat_template_hash != 0);
  TestTokenizerOnly(argv[1]);
  TestText(model);
  TestTemplates(model);
  CHECK_OK(cellm_engine_open(model, NULL, &engine, e));
  if (engine == NULL) return 1;
  TestChat(engine);
  TestCancel(engine);
  TestTogether(engine);
  TestSuspend(model, engine, ".");
  TestStaleHandles(engine);
  TestRequests(model);
  TestEvaluate(model);
  TestMemory(model);
  cellm_engine_close(engine);
  cellm_model_close(model);
  CHECK(hook_bytes == 0);
  printf("%d failure(s)\n", failures);
  return failures == 0 ? 0 : 1;
}
