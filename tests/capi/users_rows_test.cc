// Cases that users of other engines reported, over the C API and the bundled model: each test names
// its row of the list of reports (users.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "cellm/cellm.h"
#include "support/paths.h"

namespace {

using ::cellm::testing::SharedData;
using ::cellm::testing::TempFolder;
using ::cellm::testing::TestData;

std::string NanoPath() { return TestData("../models/cellm-nano-int8.cellm"); }

#define EXPECT_CELLM_OK(call)                     \
  do {                                            \
    cellm_error error = CELLM_ERROR_INIT;         \
    cellm_error* const e = &error;                \
    EXPECT_EQ((call), CELLM_OK) << error.message; \
  } while (0)

cellm_text Text(const std::string& text) { return {text.data(), text.size()}; }
cellm_text Text(std::string&& text) = delete;  // it would not live long enough

cellm_model* OpenModel(const std::string& path, int32_t weights = CELLM_WEIGHTS_AUTO) {
  cellm_model_options options = CELLM_MODEL_OPTIONS_INIT;
  options.weights = weights;
  cellm_model* model = nullptr;
  EXPECT_CELLM_OK(cellm_model_open(path.data(), path.size(), &options, &model, e));
  return model;
}

cellm_engine_options OneThread() {
  cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
  options.threads = 1;
  return options;
}

cellm_engine* OpenEngine(cellm_model* model, const cellm_engine_options& options) {
  cellm_engine* engine = nullptr;
  EXPECT_CELLM_OK(cellm_engine_open(model, &options, &engine, e));
  return engine;
}

// A model, an engine and what is open on it, closed in the end.
class Nano : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = OpenModel(NanoPath());
    ASSERT_NE(model_, nullptr);
    engine_ = OpenEngine(model_, OneThread());
    ASSERT_NE(engine_, nullptr);
  }
  void TearDown() override {
    cellm_engine_close(engine_);
    cellm_model_close(model_);
  }
  cellm_session* Session(cellm_session_options options = CELLM_SESSION_OPTIONS_INIT) {
    cellm_session* session = nullptr;
    EXPECT_CELLM_OK(cellm_session_open(engine_, &options, &session, e));
    return session;
  }
  uint64_t Steps() {
    cellm_engine_stats stats = CELLM_ENGINE_STATS_INIT;
    EXPECT_CELLM_OK(cellm_engine_get_stats(engine_, &stats, e));
    return stats.steps;
  }
  cellm_model* model_ = nullptr;
  cellm_engine* engine_ = nullptr;
};

struct Reply {
  std::string text;
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  cellm_receipt receipt = CELLM_RECEIPT_INIT;

  static int32_t OnToken(const cellm_token* token, void* user) {
    Reply& reply = *static_cast<Reply*>(user);
    reply.text.append(token->text, token->text_bytes);
    if (token->token_id >= 0) {
      reply.ids.push_back(token->token_id);
      reply.logprobs.push_back(token->logprob);
    }
    return 0;
  }
};

struct How {
  uint32_t max_tokens = 64;
  uint32_t flags = 0;
  float temperature = 0;
  bool seeded = false;
  uint64_t seed = 0;
};

Reply Run(cellm_request* request) {
  Reply reply;
  EXPECT_CELLM_OK(cellm_request_run(request, &Reply::OnToken, &reply, e));
  EXPECT_CELLM_OK(cellm_request_get_receipt(request, &reply.receipt, e));
  cellm_request_close(request);
  return reply;
}

cellm_request_options Options(const How& how, cellm_sampling* sampling) {
  sampling->given = CELLM_SAMPLING_TEMPERATURE;
  sampling->temperature = how.temperature;
  if (how.seeded) {
    sampling->given |= CELLM_SAMPLING_SEED;
    sampling->seed = how.seed;
  }
  cellm_request_options options = CELLM_REQUEST_OPTIONS_INIT;
  options.sampling = sampling;
  options.max_tokens = how.max_tokens;
  options.flags = how.flags;
  return options;
}

Reply Chat(cellm_session* session, const std::string& messages, const How& how = {}) {
  cellm_sampling sampling = CELLM_SAMPLING_INIT;
  const cellm_request_options options = Options(how, &sampling);
  cellm_chat chat = CELLM_CHAT_INIT;
  chat.messages = Text(messages);
  cellm_request* request = nullptr;
  EXPECT_CELLM_OK(cellm_session_submit_chat(session, &chat, &options, &request, e));
  return request == nullptr ? Reply() : Run(request);
}

Reply Tokens(cellm_session* session, const std::vector<int32_t>& ids, const How& how = {}) {
  cellm_sampling sampling = CELLM_SAMPLING_INIT;
  const cellm_request_options options = Options(how, &sampling);
  cellm_request* request = nullptr;
  EXPECT_CELLM_OK(
      cellm_session_submit_tokens(session, ids.data(), ids.size(), &options, &request, e));
  return request == nullptr ? Reply() : Run(request);
}

std::vector<int32_t> TokensOf(const cellm_session* session) {
  std::vector<int32_t> ids(1 << 14);
  size_t count = 0;
  EXPECT_CELLM_OK(cellm_session_get_tokens(session, ids.data(), ids.size(), &count, e));
  ids.resize(count);
  return ids;
}

std::string Say(const std::string& role, const std::string& content) {
  return R"({"role": ")" + role + R"(", "content": ")" + content + "\"}";
}
const std::string kFrance = "[" + Say("user", "What is the capital of France?") + "]";

// users.md row 4: one request three times, with and without what is kept of earlier ones.
TEST_F(Nano, TheFirstAnswerIsTheThird) {
  std::vector<std::vector<int32_t>> answers;
  for (const uint32_t flags : {0u, uint32_t{CELLM_REQUEST_KEEP_NOTHING}}) {
    for (const uint32_t session_flags : {0u, uint32_t{CELLM_SESSION_PRIVATE}}) {
      cellm_session_options options = CELLM_SESSION_OPTIONS_INIT;
      options.flags = session_flags;
      for (int i = 0; i < 3; ++i) {
        cellm_session* const session = Session(options);
        How how;
        how.flags = flags;
        answers.push_back(Chat(session, kFrance, how).ids);
        cellm_session_close(session);
      }
    }
  }
  for (const std::vector<int32_t>& answer : answers) EXPECT_EQ(answer, answers[0]);
  EXPECT_GT(answers[0].size(), 3u);
}

// users.md row 10: how much of a prompt was reused, exactly, in every turn of five dialogues: the
// ids that the new prompt has in common with what the session evaluated (all that it holds but the
// last token of the reply).
TEST_F(Nano, ReusedTokensAreCountedExactly) {
  const std::vector<std::vector<std::string>> kDialogues = {
      {"What is the capital of France?", "What is 7 plus 5?", "And of Spain?"},
      {"Hello", "Hello", "Hello"},
      {"Who are you?", "Say it again.", "Thank you."},
      {"What is 2 plus 2?", "What is 3 plus 3?", "What is 4 plus 4?"},
      {"Tell me about the sea. It is large and blue and full of fish.", "Go on.", "Stop."}};
  for (size_t d = 0; d < kDialogues.size(); ++d) {
    cellm_session_options options = CELLM_SESSION_OPTIONS_INIT;
    options.flags = CELLM_SESSION_PRIVATE;  // other dialogues begin alike
    cellm_session* const session = Session(options);
    std::string messages;
    for (const std::string& question : kDialogues[d]) {
      messages += (messages.empty() ? "" : ", ") + Say("user", question);
      const std::string all = "[" + messages + "]";
      const std::vector<int32_t> held = TokensOf(session);
      const Reply reply = Chat(session, all, {.max_tokens = 24});
      const std::vector<int32_t> now = TokensOf(session);
      const size_t prompt = reply.receipt.prompt_tokens;
      size_t common = 0;
      while (common < held.size() && common < prompt && held[common] == now[common]) ++common;
      const size_t evaluated = held.empty() ? 0 : held.size() - 1;
      EXPECT_EQ(reply.receipt.reused_tokens, std::min(common, evaluated))
          << "dialogue " << d << ", " << question;
      if (!held.empty()) {
        EXPECT_GT(reply.receipt.reused_tokens, 10u);
      }
      std::string text = reply.text;
      for (size_t at = 0; (at = text.find_first_of("\"\\\n", at)) != std::string::npos; at += 2) {
        text.replace(at, 1, text[at] == '\n' ? "\\n" : std::string("\\") + text[at]);
      }
      messages += ", " + Say("assistant", text);
    }
    cellm_session_close(session);
  }
}

// users.md row 17: the seed of a request is the one that is used: two differ, the same one repeats,
// and the receipt says which it was, also when it was drawn.
TEST_F(Nano, SeedsAreUsedAndReported) {
  const auto ask = [&](const How& how) {
    cellm_session* const session = Session();
    const Reply reply = Tokens(session, {100, 200, 300}, how);
    cellm_session_close(session);
    return reply;
  };
  How how;
  how.max_tokens = 32;
  how.flags = CELLM_REQUEST_IGNORE_END;
  how.temperature = 1.5f;
  how.seeded = true;
  how.seed = 7;
  const Reply seven = ask(how);
  EXPECT_EQ(ask(how).ids, seven.ids);
  EXPECT_EQ(seven.receipt.seed, 7u);
  how.seed = 8;
  EXPECT_NE(ask(how).ids, seven.ids);
  how.seeded = false;
  const Reply drawn = ask(how);
  how.seeded = true;
  how.seed = drawn.receipt.seed;
  EXPECT_EQ(ask(how).ids, drawn.ids);
}

// users.md row 26: a context of 32 tokens and a model that never ends: a reason, and no more steps
// than there are tokens.
TEST_F(Nano, AFullContextEndsTheReply) {
  cellm_engine_close(engine_);
  cellm_engine_options options = OneThread();
  options.context_tokens = 32;
  engine_ = OpenEngine(model_, options);
  How endless;
  endless.max_tokens = 0;
  endless.flags = CELLM_REQUEST_IGNORE_END;
  cellm_session* const session = Session();
  const Reply reply = Tokens(session, {5, 6, 7, 8}, endless);
  EXPECT_EQ(reply.receipt.finish, CELLM_FINISH_CONTEXT);
  EXPECT_EQ(reply.ids.size(), 28u);
  EXPECT_LE(Steps(), 32u);
  cellm_session_close(session);
  // A session that forgets ends by its own limit.
  cellm_session_options shifting = CELLM_SESSION_OPTIONS_INIT;
  shifting.overflow = CELLM_OVERFLOW_SHIFT;
  cellm_session* const shifts = Session(shifting);
  endless.max_tokens = 200;
  const Reply longer = Tokens(shifts, {5, 6, 7, 8}, endless);
  EXPECT_EQ(longer.receipt.finish, CELLM_FINISH_LENGTH);
  EXPECT_EQ(longer.ids.size(), 200u);
  EXPECT_GT(longer.receipt.forgotten_tokens, 160u);
  cellm_session_close(shifts);
}

// users.md row 27: after a shift the model sees a text that was never longer, so no kind of layer
// has to support it: windows, recurrent states and experts give what a fresh session gives.
class ShiftOfFamily : public ::testing::TestWithParam<const char*> {};
TEST_P(ShiftOfFamily, IsAFreshSession) {
  CELLM_SKIP_WITHOUT_SHARED(folder, std::string("zoo/") + GetParam());
  cellm_model* const model = OpenModel(folder);
  ASSERT_NE(model, nullptr);
  cellm_engine_options options = OneThread();
  options.context_tokens = 48;
  cellm_engine* const engine = OpenEngine(model, options);
  cellm_session_options shifting = CELLM_SESSION_OPTIONS_INIT;
  shifting.overflow = CELLM_OVERFLOW_SHIFT;
  shifting.keep_tokens = 4;
  cellm_session* session = nullptr;
  EXPECT_CELLM_OK(cellm_session_open(engine, &shifting, &session, e));
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 40; ++i) prompt.push_back(10 + 3 * i);
  How how;
  how.max_tokens = 12;  // the context is full after eight of them
  how.flags = CELLM_REQUEST_IGNORE_END | CELLM_REQUEST_LOGPROBS;
  const Reply reply = Tokens(session, prompt, how);
  EXPECT_GT(reply.receipt.forgotten_tokens, 0u);
  std::vector<int32_t> seen = TokensOf(session);
  ASSERT_GT(seen.size(), 7u);
  EXPECT_TRUE(std::equal(prompt.begin(), prompt.begin() + 4, seen.begin()));
  seen.resize(seen.size() - 3);
  cellm_session* fresh = nullptr;
  EXPECT_CELLM_OK(cellm_session_open(engine, nullptr, &fresh, e));
  how.max_tokens = 3;
  const Reply again = Tokens(fresh, seen, how);
  EXPECT_EQ(again.ids, std::vector<int32_t>(reply.ids.end() - 3, reply.ids.end()));
  EXPECT_EQ(again.logprobs, std::vector<float>(reply.logprobs.end() - 3, reply.logprobs.end()));
  cellm_session_close(session);
  cellm_session_close(fresh);
  cellm_engine_close(engine);
  cellm_model_close(model);
}
INSTANTIATE_TEST_SUITE_P(Zoo, ShiftOfFamily,
                         ::testing::Values("llama", "gemma3", "qwen3_5", "lfm2", "qwen3_moe"));

// ---- memory ----

// What the hooks of an embedder see.
struct Counted {
  uint64_t bytes = 0;  // held now
  uint64_t large = 0;  // allocations of a megabyte and more, ever
  static void* Allocate(size_t bytes, size_t alignment, void* user) {
    Counted& self = *static_cast<Counted*>(user);
    void* const pointer =
        std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (pointer == nullptr) return nullptr;
    self.bytes += bytes;
    self.large += bytes >= (1 << 20) ? 1 : 0;
    return pointer;
  }
  static void Free(void* pointer, size_t bytes, void* user) {
    static_cast<Counted*>(user)->bytes -= bytes;
    std::free(pointer);
  }
};

cellm_engine_options WithHooks(Counted* counted) {
  cellm_engine_options options = OneThread();
  options.allocate = &Counted::Allocate;
  options.release = &Counted::Free;
  options.allocator_user = counted;
  return options;
}

// users.md row 71: open, answer, close, again and again: everything comes back.
TEST(UsersRows, OpenAnswerCloseLeavesNothing) {
  Counted counted;
  for (int i = 0; i < 5; ++i) {
    cellm_model* const model = OpenModel(NanoPath(), CELLM_WEIGHTS_LOAD);
    cellm_engine* const engine = OpenEngine(model, WithHooks(&counted));
    EXPECT_GT(counted.bytes, 1u << 20);
    cellm_session* session = nullptr;
    EXPECT_CELLM_OK(cellm_session_open(engine, nullptr, &session, e));
    EXPECT_FALSE(Chat(session, kFrance).text.empty());
    // In another order each time: handles keep alive what they need.
    if (i % 2 == 0) cellm_model_close(model);
    if (i % 3 == 0) cellm_engine_close(engine);
    cellm_session_close(session);
    cellm_engine_close(engine);
    cellm_model_close(model);
    EXPECT_EQ(counted.bytes, 0u) << "round " << i;
  }
}

// users.md row 72: two models, a hundred requests in turns: each is loaded once.
TEST(UsersRows, TwoModelsAreLoadedOnceEach) {
  Counted counted;
  cellm_model* models[2];
  cellm_engine* engines[2];
  for (int i = 0; i < 2; ++i) {
    models[i] = OpenModel(NanoPath(), CELLM_WEIGHTS_LOAD);
    engines[i] = OpenEngine(models[i], WithHooks(&counted));
  }
  const uint64_t loads = counted.large;
  EXPECT_GE(loads, 2u);
  for (int i = 0; i < 100; ++i) {
    cellm_session* session = nullptr;
    EXPECT_CELLM_OK(cellm_session_open(engines[i % 2], nullptr, &session, e));
    How how;
    how.max_tokens = 2;
    EXPECT_GT(Tokens(session, {10, 20, 30 + i}, how).ids.size(), 0u);
    cellm_session_close(session);
  }
  EXPECT_EQ(counted.large, loads);
  for (int i = 0; i < 2; ++i) {
    cellm_engine_close(engines[i]);
    cellm_model_close(models[i]);
  }
}

// Anonymous memory of this process, resident or swapped out, in bytes; 0 where it is not known.
uint64_t AnonymousAndSwapped() {
  std::ifstream status("/proc/self/status");
  uint64_t sum = 0;
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t kilobytes = 0;
    if (words >> name >> kilobytes && (name == "RssAnon:" || name == "VmSwap:")) {
      sum += kilobytes << 10;
    }
  }
  return sum;
}

// users.md row 75: two thousand requests: less than 1 KB of anonymous memory a request, also when
// it is swapped out. users.md row 76: nor does it grow with the tokens of a reply.
TEST_F(Nano, MemoryGrowsNeitherWithRequestsNorWithTokens) {
  if (AnonymousAndSwapped() == 0) GTEST_SKIP() << "SKIPPED: no /proc/self/status on this system";
#if defined(CELLM_ASAN) || defined(CELLM_TSAN)
  GTEST_SKIP() << "SKIPPED: sanitizers keep what is freed";
#endif
  How how;
  how.max_tokens = 2;
  how.flags = CELLM_REQUEST_IGNORE_END | CELLM_REQUEST_KEEP_NOTHING;
  uint64_t after_warm_up = 0;
  for (int i = 0; i < 2200; ++i) {
    cellm_session* const session = Session();
    (void)Tokens(session, {10 + i % 50, 20, 30}, how);
    cellm_session_close(session);
    if (i == 199) after_warm_up = AnonymousAndSwapped();
  }
  EXPECT_LT(AnonymousAndSwapped(), after_warm_up + 2000 * 1024);

  cellm_engine_close(engine_);
  cellm_engine_options small = OneThread();
  small.context_tokens = 256;
  engine_ = OpenEngine(model_, small);
  cellm_session_options sliding = CELLM_SESSION_OPTIONS_INIT;
  sliding.overflow = CELLM_OVERFLOW_SLIDE;
  cellm_session* const session = Session(sliding);
  how.max_tokens = 300;  // past the end of the context
  (void)Tokens(session, {10, 20, 30}, how);
  const uint64_t once_around = AnonymousAndSwapped();
  cellm_memory before = CELLM_MEMORY_INIT, after = CELLM_MEMORY_INIT;
  EXPECT_CELLM_OK(cellm_engine_get_memory(engine_, &before, e));
  how.max_tokens = 2000;
  (void)Tokens(session, {40}, how);
  EXPECT_CELLM_OK(cellm_engine_get_memory(engine_, &after, e));
  EXPECT_LE(after.used, before.used);
  EXPECT_LT(AnonymousAndSwapped(), once_around + 2000 * 1024);
  cellm_session_close(session);
}

// users.md row 84: what cannot fit is refused before anything is computed, with what it needs; a
// request that was refused leaves engine and session as they were.
TEST_F(Nano, ARefusedRequestLeavesTheSessionUsable) {
  cellm_session_options plan = CELLM_SESSION_OPTIONS_INIT;
  plan.flags = CELLM_SESSION_PLAN_FIRST_REQUEST;
  cellm_session* const session = Session(plan);
  cellm_memory memory = CELLM_MEMORY_INIT;
  EXPECT_CELLM_OK(cellm_engine_get_memory(engine_, &memory, e));
  EXPECT_CELLM_OK(cellm_engine_set_memory_budget(engine_, memory.used + 1200000, e));
  std::vector<int32_t> long_prompt(900, 100);
  cellm_request* request = nullptr;
  cellm_error refusal = CELLM_ERROR_INIT;
  EXPECT_EQ(cellm_session_submit_tokens(session, long_prompt.data(), long_prompt.size(), nullptr,
                                        &request, &refusal),
            CELLM_OUT_OF_MEMORY);
  EXPECT_EQ(refusal.reason, CELLM_REASON_MEMORY);
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(Steps(), 0u);
  How how;
  how.max_tokens = 5;
  how.flags = CELLM_REQUEST_IGNORE_END;
  EXPECT_EQ(Tokens(session, {10, 20, 30}, how).ids.size(), 5u);
  EXPECT_CELLM_OK(cellm_engine_set_memory_budget(engine_, 0, e));
  cellm_session_close(session);
}

// users.md row 84: a request is let in when what it may reach fits, though a whole context does
// not; and the tokenizer is held against the budget like everything else.
TEST_F(Nano, ARequestIsPlannedForWhatItMayReach) {
  cellm_session* const session = Session();
  cellm_memory memory = CELLM_MEMORY_INIT;
  EXPECT_CELLM_OK(cellm_engine_get_memory(engine_, &memory, e));
  EXPECT_GT(memory.tokenizer, 0u);
  EXPECT_EQ(memory.used,
            memory.weights + memory.cache + memory.activations + memory.tokenizer + memory.other);
  // A whole context of 1,024 tokens takes 3 MiB.
  EXPECT_CELLM_OK(cellm_engine_set_memory_budget(engine_, memory.used + 1200000, e));
  const int32_t ids[] = {10, 20, 30};
  cellm_request* request = nullptr;
  EXPECT_EQ(cellm_session_submit_tokens(session, ids, 3, nullptr, &request, nullptr),
            CELLM_OUT_OF_MEMORY);
  How how;
  how.max_tokens = 50;
  how.flags = CELLM_REQUEST_IGNORE_END;
  EXPECT_EQ(Tokens(session, {10, 20, 30}, how).ids.size(), 50u);
  EXPECT_CELLM_OK(cellm_engine_get_memory(engine_, &memory, e));
  EXPECT_LE(memory.used, memory.peak);
  cellm_session_close(session);
  // Less than the tokenizer.
  cellm_engine_options options = OneThread();
  options.memory_bytes = memory.tokenizer - 1;
  cellm_engine* engine = nullptr;
  cellm_error refusal = CELLM_ERROR_INIT;
  EXPECT_EQ(cellm_engine_open(model_, &options, &engine, &refusal), CELLM_OUT_OF_MEMORY);
  EXPECT_NE(std::string(refusal.message).find("tokenizer"), std::string::npos) << refusal.message;
}

// users.md row 88: what was asked for is what is used, for every kind of file and every time it is
// opened, and the API says so; an option that is not known is an error.
TEST(UsersRows, OptionsAreTheEffectiveOnes) {
  std::vector<std::string> paths = {NanoPath()};
  for (const char* name : {"zoo/llama", "zoo/gguf/llama-F16.gguf"}) {
    if (!SharedData(name).empty()) paths.push_back(SharedData(name));
  }
  const std::string kernels = "scalar";
  for (const std::string& path : paths) {
    for (const int32_t weights : {CELLM_WEIGHTS_MAP, CELLM_WEIGHTS_LOAD, CELLM_WEIGHTS_MAP}) {
      cellm_model* const model = OpenModel(path, weights);
      cellm_engine_options options = OneThread();
      options.context_tokens = 77;
      options.kernels = Text(kernels);
      cellm_engine* const engine = OpenEngine(model, options);
      cellm_engine_info info = CELLM_ENGINE_INFO_INIT;
      EXPECT_CELLM_OK(cellm_engine_get_info(engine, &info, e));
      EXPECT_EQ(info.weights, weights) << path;
      EXPECT_EQ(info.context_tokens, 77u) << path;
      EXPECT_EQ(info.threads, 1) << path;
      EXPECT_STREQ(info.kernels, "scalar") << path;
      EXPECT_EQ(info.loaded_bytes > 0, weights == CELLM_WEIGHTS_LOAD) << path;
      cellm_engine_close(engine);
      cellm_engine* unknown = nullptr;
      options.flags = 1u << 30;
      EXPECT_EQ(cellm_engine_open(model, &options, &unknown, nullptr), CELLM_UNSUPPORTED);
      cellm_model_close(model);
    }
  }
}

// ---- sessions on disk ----

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void WriteAll(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// users.md row 96: a damaged file is refused, and afterwards every answer is a fresh engine's.
TEST_F(Nano, AnswersAfterARefusedFileAreAFreshEngines) {
  const std::string path = TempFolder() + "/session";
  cellm_session* session = Session();
  const Reply expected = Chat(session, kFrance);
  EXPECT_CELLM_OK(cellm_session_save(session, path.data(), path.size(), 0, e));
  cellm_session_close(session);
  const std::string good = ReadAll(path);
  ASSERT_GT(good.size(), 2000u);
  cellm_engine_close(engine_);
  engine_ = OpenEngine(model_, OneThread());
  for (const size_t at : {size_t{9}, size_t{90}, good.size() / 2, good.size() - 1}) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 16);
    WriteAll(path, bad);
    cellm_session* restored = nullptr;
    EXPECT_NE(cellm_session_restore(engine_, path.data(), path.size(), nullptr, &restored, nullptr,
                                    nullptr),
              CELLM_OK);
    EXPECT_EQ(restored, nullptr);
    session = Session();
    const Reply reply = Chat(session, kFrance, {.flags = CELLM_REQUEST_KEEP_NOTHING});
    EXPECT_EQ(reply.ids, expected.ids) << "byte " << at;
    EXPECT_EQ(reply.receipt.reused_tokens, 0u) << "byte " << at;
    cellm_session_close(session);
  }
}

// users.md row 97: empty, one token, many, full: what goes on after coming back is what would have
// gone on, and the receipt proves that what came back was used.
TEST_F(Nano, SessionsOfEveryLengthComeBack) {
  const std::string path = TempFolder() + "/session";
  for (const size_t count :
       {size_t{0}, size_t{1}, size_t{31}, size_t{33}, size_t{400}, size_t{1021}}) {
    std::vector<int32_t> prompt;
    for (size_t i = 0; i < count; ++i) prompt.push_back(static_cast<int32_t>(10 + i % 500));
    How evaluate;
    evaluate.flags = CELLM_REQUEST_PROMPT_ONLY;
    How go_on;
    go_on.max_tokens = 2;
    go_on.flags = CELLM_REQUEST_IGNORE_END | CELLM_REQUEST_LOGPROBS;
    cellm_session* const session = Session();
    if (count > 0) (void)Tokens(session, prompt, evaluate);
    EXPECT_CELLM_OK(cellm_session_save(session, path.data(), path.size(), 0, e));
    const Reply here = Tokens(session, {700}, go_on);
    cellm_session_close(session);

    cellm_engine* const other = OpenEngine(model_, OneThread());
    cellm_session* back = nullptr;
    size_t restored = 99999;
    EXPECT_CELLM_OK(
        cellm_session_restore(other, path.data(), path.size(), nullptr, &back, &restored, e));
    EXPECT_EQ(restored, count);
    EXPECT_EQ(TokensOf(back), prompt);
    const Reply there = Tokens(back, {700}, go_on);
    EXPECT_EQ(there.ids, here.ids) << count << " tokens";
    EXPECT_EQ(there.logprobs, here.logprobs) << count << " tokens";
    EXPECT_EQ(there.receipt.reused_tokens, count);
    cellm_session_close(back);
    cellm_engine_close(other);
  }
}

}  // namespace
