// A constrained reply after the death of its process: wherever it was cut off, the rest is what it
// would have been, drawn tokens and certain ones alike.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cellm/cellm.h"
#include "support/paths.h"

namespace cellm {
namespace {

struct Case {
  const char* name;
  int32_t kind;
  const char* constraint;
  uint32_t flags;
};

class ConstrainedRecovery : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::string path = testing::TestData("zoo/llama");
    ASSERT_EQ(cellm_model_open(path.data(), path.size(), nullptr, &model_, nullptr), CELLM_OK);
  }
  void TearDown() override { cellm_model_close(model_); }

  cellm_engine* Open(const std::string& journals) {
    cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
    options.threads = 1;
    options.journal_folder = {journals.data(), journals.size()};
    cellm_engine* engine = nullptr;
    cellm_error error = CELLM_ERROR_INIT;
    EXPECT_EQ(cellm_engine_open(model_, &options, &engine, &error), CELLM_OK) << error.message;
    return engine;
  }
  cellm_request* Submit(cellm_session* session, const Case& given) {
    cellm_sampling sampling = CELLM_SAMPLING_INIT;
    sampling.given = CELLM_SAMPLING_TEMPERATURE | CELLM_SAMPLING_TOP_K | CELLM_SAMPLING_SEED;
    sampling.temperature = 2.0f;
    sampling.seed = 11;
    cellm_request_options options = CELLM_REQUEST_OPTIONS_INIT;
    options.sampling = &sampling;
    options.max_tokens = 120;
    options.flags = given.flags;
    options.constraint = given.kind;
    options.constraint_text = {given.constraint, std::string(given.constraint).size()};
    const int32_t prompt[] = {1, 17, 400, 23};
    cellm_request* request = nullptr;
    cellm_error error = CELLM_ERROR_INIT;
    EXPECT_EQ(cellm_session_submit_tokens(session, prompt, 4, &options, &request, &error), CELLM_OK)
        << error.message;
    return request;
  }
  struct Reply {
    std::vector<int32_t> ids;
    std::string text;
    int32_t finish = CELLM_FINISH_NONE;
  };
  // At most `most` tokens more.
  static void Take(cellm_request* request, size_t most, Reply* reply) {
    cellm_token token = CELLM_TOKEN_INIT;
    for (size_t i = 0; i < most && reply->finish == CELLM_FINISH_NONE; ++i) {
      ASSERT_EQ(cellm_request_next(request, &token, nullptr), CELLM_OK);
      reply->ids.push_back(token.token_id);
      reply->text.append(token.text, token.text_bytes);
      reply->finish = token.finish;
    }
  }
  static std::string OnlyJournal(cellm_engine* engine, cellm_journal_info* found) {
    struct Seen {
      std::string name;
      cellm_journal_info* info;
    } seen = {"", found};
    EXPECT_EQ(cellm_engine_list_journals(
                  engine,
                  [](const cellm_journal_info* info, void* user) {
                    Seen& s = *static_cast<Seen*>(user);
                    EXPECT_TRUE(s.name.empty());
                    s.name.assign(info->name.data, info->name.bytes);
                    *s.info = *info;
                    return 0;
                  },
                  &seen, nullptr),
              CELLM_OK);
    return seen.name;
  }

  cellm_model* model_ = nullptr;
};

TEST_P(ConstrainedRecovery, GoesOnWhereverItWasCutOff) {
  const std::string folder = testing::TempFolder();
  cellm_engine* const engine = Open(folder);
  cellm_session* session = nullptr;
  ASSERT_EQ(cellm_session_open(engine, nullptr, &session, nullptr), CELLM_OK);
  cellm_request* const request = Submit(session, GetParam());
  // The journal after each token, as death would leave it.
  const auto copy_to = [&](const std::string& target) {
    std::filesystem::create_directory(target);
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      if (!file.is_regular_file()) continue;
      std::filesystem::copy(file.path(), target + "/" + file.path().filename().string());
    }
  };
  Reply whole;
  size_t cuts = 0;
  for (; whole.finish == CELLM_FINISH_NONE; ++cuts) {
    copy_to(folder + "/" + std::to_string(cuts));
    Take(request, 1, &whole);
  }
  ASSERT_GE(cuts, 5u) << whole.text;
  cellm_request_close(request);
  cellm_session_close(session);
  cellm_engine_close(engine);

  for (size_t cut = 0; cut < cuts; ++cut) {
    SCOPED_TRACE(cut);
    cellm_engine* const next = Open(folder + "/" + std::to_string(cut));
    cellm_journal_info info = CELLM_JOURNAL_INFO_INIT;
    const std::string name = OnlyJournal(next, &info);
    EXPECT_EQ(info.open_request, 1);
    EXPECT_EQ(info.reply_tokens, cut);
    cellm_session* again = nullptr;
    cellm_request* rest = nullptr;
    cellm_error error = CELLM_ERROR_INIT;
    ASSERT_EQ(cellm_session_recover(next, name.data(), name.size(), nullptr, &again, &rest, &error),
              CELLM_OK)
        << error.message;
    ASSERT_NE(rest, nullptr);
    Reply reply;
    reply.ids.assign(whole.ids.begin(), whole.ids.begin() + static_cast<ptrdiff_t>(cut));
    Take(rest, SIZE_MAX, &reply);
    EXPECT_EQ(reply.ids, whole.ids);
    EXPECT_EQ(reply.finish, whole.finish);
    std::string text(4096, '\0');
    size_t bytes = 0;
    EXPECT_EQ(cellm_request_get_text(rest, text.data(), text.size(), &bytes, nullptr), CELLM_OK);
    text.resize(bytes);
    EXPECT_EQ(text, whole.text);
    cellm_request_close(rest);
    cellm_session_close(again);
    cellm_engine_close(next);
  }
}

constexpr char kSchema[] =
    R"({"type":"object","properties":{"first_name":{"type":"string","maxLength":6},)"
    R"("age":{"type":"integer","minimum":0,"maximum":150},"tags":{"type":"array",)"
    R"("items":{"enum":["alpha beta","gamma"]},"maxItems":2}},)"
    R"("required":["first_name","age","tags"],"additionalProperties":false})";

INSTANTIATE_TEST_SUITE_P(
    Kinds, ConstrainedRecovery,
    ::testing::Values(
        Case{"schema", CELLM_CONSTRAINT_JSON_SCHEMA, kSchema, 0},
        Case{"logprobs", CELLM_CONSTRAINT_JSON_SCHEMA, kSchema, CELLM_REQUEST_LOGPROBS},
        Case{"choices", CELLM_CONSTRAINT_CHOICES,
             R"(["one of two long sentences that share their beginning",)"
             R"("one of two long sentences that part late"])",
             0},
        Case{"regex", CELLM_CONSTRAINT_REGEX, "[a-z]{3,6}( and [a-z]{2,4}){3}\\.", 0}),
    [](const auto& which) { return which.param.name; });

}  // namespace
}  // namespace cellm
