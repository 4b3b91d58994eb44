// Constrained replies through the C interface, on a model with random weights.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cellm/cellm.h"
#include "json/json.h"
#include "support/paths.h"

namespace cellm {
namespace {

constexpr char kSchema[] =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":8},)"
    R"("age":{"type":"integer","minimum":0,"maximum":150},"tags":{"type":"array",)"
    R"("items":{"enum":["a","b"]},"maxItems":3}},"required":["name","age","tags"],)"
    R"("additionalProperties":false})";

struct Reply {
  cellm_status status = CELLM_OK;
  std::string message;
  std::string text;
  std::vector<int32_t> ids;
  cellm_receipt receipt = CELLM_RECEIPT_INIT;
};

class ConstrainedReply : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = testing::TestData("zoo/llama");
    cellm_error error = CELLM_ERROR_INIT;
    ASSERT_EQ(cellm_model_open(path.data(), path.size(), nullptr, &model_, &error), CELLM_OK)
        << error.message;
    cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
    options.threads = 1;
    ASSERT_EQ(cellm_engine_open(model_, &options, &engine_, &error), CELLM_OK) << error.message;
    session_ = OpenSession();
  }
  void TearDown() override {
    cellm_session_close(session_);
    cellm_engine_close(engine_);
    cellm_model_close(model_);
  }
  cellm_session* OpenSession() {
    cellm_session* session = nullptr;
    EXPECT_EQ(cellm_session_open(engine_, nullptr, &session, nullptr), CELLM_OK);
    return session;
  }
  Reply Ask(cellm_session* session, int32_t kind, const std::string& constraint, uint64_t seed,
            uint32_t max_tokens = 300, uint32_t flags = 0) {
    cellm_sampling sampling = CELLM_SAMPLING_INIT;
    sampling.given = CELLM_SAMPLING_TEMPERATURE | CELLM_SAMPLING_TOP_K | CELLM_SAMPLING_SEED;
    sampling.temperature = 2.0f;
    sampling.seed = seed;
    return Ask(session, kind, constraint, sampling, max_tokens, flags);
  }
  Reply Ask(cellm_session* session, int32_t kind, const std::string& constraint,
            const cellm_sampling& sampling, uint32_t max_tokens, uint32_t flags) {
    cellm_request_options options = CELLM_REQUEST_OPTIONS_INIT;
    options.sampling = &sampling;
    options.max_tokens = max_tokens;
    options.flags = flags;
    options.constraint = kind;
    options.constraint_text = {constraint.data(), constraint.size()};
    const int32_t prompt[] = {1, 17, 400, 23};
    cellm_error error = CELLM_ERROR_INIT;
    cellm_request* request = nullptr;
    Reply reply;
    reply.status = cellm_session_submit_tokens(session, prompt, 4, &options, &request, &error);
    reply.message = error.message;
    if (reply.status != CELLM_OK) return reply;
    for (int32_t finish = CELLM_FINISH_NONE; finish == CELLM_FINISH_NONE;) {
      cellm_token token = CELLM_TOKEN_INIT;
      reply.status = cellm_request_next(request, &token, &error);
      reply.message = error.message;
      if (reply.status != CELLM_OK) break;
      reply.text.append(token.text, token.text_bytes);
      reply.ids.push_back(token.token_id);
      finish = token.finish;
    }
    EXPECT_EQ(cellm_request_get_receipt(request, &reply.receipt, nullptr), CELLM_OK);
    cellm_request_close(request);
    return reply;
  }

  cellm_model* model_ = nullptr;
  cellm_engine* engine_ = nullptr;
  cellm_session* session_ = nullptr;
};

TEST_F(ConstrainedReply, IsWhatTheSchemaAsksFor) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    cellm_session* const session = OpenSession();
    const Reply reply = Ask(session, CELLM_CONSTRAINT_JSON_SCHEMA, kSchema, seed);
    cellm_session_close(session);
    ASSERT_EQ(reply.status, CELLM_OK) << reply.message;
    ASSERT_EQ(reply.receipt.finish, CELLM_FINISH_END) << reply.text;
    const auto document = json::Document::Parse(reply.text, "the reply");
    ASSERT_TRUE(document.ok()) << reply.text;
    const json::Value root = document.value()->root();
    std::string_view name;
    int64_t age = -1;
    EXPECT_TRUE(root.Find("name").GetString(&name));
    EXPECT_TRUE(root.Find("age").GetInt64(&age));
    EXPECT_TRUE(age >= 0 && age <= 150) << reply.text;
    EXPECT_TRUE(root.Find("tags").is_array() && root.Find("tags").size() <= 3) << reply.text;
    EXPECT_EQ(root.size(), 3u);
  }
}

// The reply's text, its tokens and the session's tokens are one and the same.
TEST_F(ConstrainedReply, ShowsTheTextOfItsTokens) {
  const Reply reply = Ask(session_, CELLM_CONSTRAINT_REGEX, " ?[a-z ]{5,40}\\.", 3);
  ASSERT_EQ(reply.status, CELLM_OK) << reply.message;
  std::vector<int32_t> ids(reply.ids.begin(), reply.ids.end() - 1);
  std::vector<char> buffer(1000);
  size_t bytes = 0;
  ASSERT_EQ(cellm_model_detokenize(model_, ids.data(), ids.size(), 0, buffer.data(), buffer.size(),
                                   &bytes, nullptr),
            CELLM_OK);
  EXPECT_EQ(reply.text, std::string(buffer.data(), bytes));
}

// Text that leaves no choice is spelled as the tokenizer spells it and takes no step a token.
TEST_F(ConstrainedReply, AddsForcedTextInTheTokenizersSpelling) {
  const std::string text = "{\"name\": \"something\", \"values\": [1, 2, 3], \"more\": true}";
  std::vector<int32_t> ids(100);
  size_t count = 0;
  ASSERT_EQ(cellm_model_tokenize(model_, text.data(), text.size(), 0, ids.data(), ids.size(),
                                 &count, nullptr),
            CELLM_OK);
  ids.resize(count);
  const auto steps = [&] {
    cellm_engine_stats stats = CELLM_ENGINE_STATS_INIT;
    EXPECT_EQ(cellm_engine_get_stats(engine_, &stats, nullptr), CELLM_OK);
    return stats.steps;
  };
  const uint64_t before = steps();
  const Reply reply = Ask(session_, CELLM_CONSTRAINT_CHOICES, "[" + json::Quote(text) + "]", 1, 300,
                          CELLM_REQUEST_IGNORE_END);
  ASSERT_EQ(reply.status, CELLM_OK) << reply.message;
  EXPECT_EQ(reply.text, text);
  EXPECT_EQ(reply.ids, ids);
  EXPECT_GT(ids.size(), 10u);
  EXPECT_LE(steps() - before, 2u);

  // With log-probabilities each token has a row of its own.
  cellm_session* const session = OpenSession();
  const uint64_t middle = steps();
  const Reply with_logprobs = Ask(session, CELLM_CONSTRAINT_CHOICES, "[" + json::Quote(text) + "]",
                                  1, 300, CELLM_REQUEST_IGNORE_END | CELLM_REQUEST_LOGPROBS);
  cellm_session_close(session);
  EXPECT_EQ(with_logprobs.text, text);
  EXPECT_GE(steps() - middle, with_logprobs.ids.size());
}

// What max_tokens leaves of a forced text is its beginning, and says so.
TEST_F(ConstrainedReply, CutsForcedTextAtMaxTokens) {
  const Reply reply =
      Ask(session_, CELLM_CONSTRAINT_CHOICES, R"(["one two three four five six seven"])", 1, 3);
  ASSERT_EQ(reply.status, CELLM_OK) << reply.message;
  EXPECT_EQ(reply.ids.size(), 3u);
  EXPECT_EQ(reply.receipt.finish, CELLM_FINISH_LENGTH);
  EXPECT_EQ(std::string("one two three four five six seven").rfind(reply.text, 0), 0u);
}

// A tokenizer with a space of its own in front of texts.
TEST(ConstrainedReplySentencePiece, ShowsExactlyTheText) {
  CELLM_SKIP_WITHOUT_SHARED(path, "zoo/gemma3");
  cellm_model* model = nullptr;
  cellm_engine* engine = nullptr;
  ASSERT_EQ(cellm_model_open(path.data(), path.size(), nullptr, &model, nullptr), CELLM_OK);
  ASSERT_EQ(cellm_engine_open(model, nullptr, &engine, nullptr), CELLM_OK);
  for (const std::string constraint : {R"([" begins with a space"])", R"(["{\"a\": 1}"])",
                                       "[\"\xE2\x82\xAC \xF0\x9F\x98\x80 \xC3\xA9\"]"}) {
    cellm_session* session = nullptr;
    ASSERT_EQ(cellm_session_open(engine, nullptr, &session, nullptr), CELLM_OK);
    cellm_request_options options = CELLM_REQUEST_OPTIONS_INIT;
    options.constraint = CELLM_CONSTRAINT_CHOICES;
    options.constraint_text = {constraint.data(), constraint.size()};
    options.max_tokens = 60;
    cellm_request* request = nullptr;
    cellm_error error = CELLM_ERROR_INIT;
    ASSERT_EQ(cellm_session_submit_text(session, "x", 1, &options, &request, &error), CELLM_OK)
        << error.message;
    std::string text;
    for (int32_t finish = CELLM_FINISH_NONE; finish == CELLM_FINISH_NONE;) {
      cellm_token token = CELLM_TOKEN_INIT;
      ASSERT_EQ(cellm_request_next(request, &token, &error), CELLM_OK) << error.message;
      text.append(token.text, token.text_bytes);
      finish = token.finish;
    }
    cellm_request_close(request);
    cellm_session_close(session);
    const auto document = json::Document::Parse(constraint, "the choices");
    std::string_view expected;
    ASSERT_TRUE(document.ok() && document.value()->root().First().GetString(&expected));
    EXPECT_EQ(text, expected);
  }
  cellm_engine_close(engine);
  cellm_model_close(model);
}

// A constraint lasts for its request: what follows in the session is what a session would say that
// was given the same tokens and never had one.
TEST_F(ConstrainedReply, LeavesNothingBehind) {
  const Reply first = Ask(session_, CELLM_CONSTRAINT_CHOICES, R"(["yes","no","maybe"])", 5);
  ASSERT_EQ(first.status, CELLM_OK) << first.message;
  EXPECT_TRUE(first.text == "yes" || first.text == "no" || first.text == "maybe") << first.text;
  size_t count = 0;
  std::vector<int32_t> held(100);
  ASSERT_EQ(cellm_session_get_tokens(session_, held.data(), held.size(), &count, nullptr),
            CELLM_OK);
  held.resize(count);
  const Reply free = Ask(session_, CELLM_CONSTRAINT_NONE, "", 9, 30, CELLM_REQUEST_IGNORE_END);

  cellm_session* const fresh = OpenSession();
  cellm_request_options options = CELLM_REQUEST_OPTIONS_INIT;
  options.flags = CELLM_REQUEST_PROMPT_ONLY;
  cellm_request* request = nullptr;
  ASSERT_EQ(
      cellm_session_submit_tokens(fresh, held.data(), held.size(), &options, &request, nullptr),
      CELLM_OK);
  cellm_token token = CELLM_TOKEN_INIT;
  ASSERT_EQ(cellm_request_next(request, &token, nullptr), CELLM_OK);
  cellm_request_close(request);
  const Reply same = Ask(fresh, CELLM_CONSTRAINT_NONE, "", 9, 30, CELLM_REQUEST_IGNORE_END);
  cellm_session_close(fresh);
  EXPECT_EQ(free.ids, same.ids);
  EXPECT_EQ(free.ids.size(), 30u);
}

TEST_F(ConstrainedReply, SaysWhenMaxTokensCutIt) {
  const Reply reply = Ask(session_, CELLM_CONSTRAINT_JSON_SCHEMA, kSchema, 1, 4);
  ASSERT_EQ(reply.status, CELLM_OK) << reply.message;
  EXPECT_EQ(reply.receipt.finish, CELLM_FINISH_LENGTH);
  EXPECT_FALSE(json::Document::Parse(reply.text, "the reply").ok());
}

// Without end ids nobody can say that the text is over; it ends when nothing may follow.
TEST_F(ConstrainedReply, EndsWithoutEndIds) {
  const Reply reply =
      Ask(session_, CELLM_CONSTRAINT_CHOICES, R"(["{}"])", 1, 50, CELLM_REQUEST_IGNORE_END);
  ASSERT_EQ(reply.status, CELLM_OK) << reply.message;
  EXPECT_EQ(reply.text, "{}");
  EXPECT_EQ(reply.receipt.finish, CELLM_FINISH_STOP);
}

// What a reply must look like comes before what is wished for.
TEST_F(ConstrainedReply, ComesBeforeBias) {
  cellm_sampling sampling = CELLM_SAMPLING_INIT;
  sampling.given = CELLM_SAMPLING_TEMPERATURE;
  std::vector<cellm_logit_bias> ban;
  for (int32_t id = 0; id < 2000; ++id) ban.push_back({id, -100.0f});
  sampling.logit_bias = ban.data();
  sampling.logit_bias_count = static_cast<uint32_t>(ban.size());
  const Reply banned = Ask(session_, CELLM_CONSTRAINT_CHOICES, R"(["yes"])", sampling, 20, 0);
  ASSERT_EQ(banned.status, CELLM_OK) << banned.message;
  EXPECT_EQ(banned.text, "yes");
  const cellm_logit_bias force = {700, 100.0f};
  sampling.logit_bias = &force;
  sampling.logit_bias_count = 1;
  const Reply forced = Ask(session_, CELLM_CONSTRAINT_CHOICES, R"(["yes"])", sampling, 20, 0);
  ASSERT_EQ(forced.status, CELLM_OK) << forced.message;
  EXPECT_EQ(forced.text, "yes");
}

TEST_F(ConstrainedReply, IsRefusedByNameBeforeItBegins) {
  const struct {
    int32_t kind;
    const char* text;
    cellm_status status;
    const char* says;
  } cases[] = {
      {CELLM_CONSTRAINT_JSON_SCHEMA, R"({"enum":[]})", CELLM_INVALID_ARGUMENT, "enum"},
      {CELLM_CONSTRAINT_JSON_SCHEMA, R"({"not":{}})", CELLM_UNSUPPORTED, "not"},
      {CELLM_CONSTRAINT_REGEX, "b(?=a)", CELLM_UNSUPPORTED, "lookaround"},
      {CELLM_CONSTRAINT_GRAMMAR, "root ::= a", CELLM_INVALID_ARGUMENT, "\"a\""},
      {CELLM_CONSTRAINT_STRUCTURAL, "{}", CELLM_INVALID_ARGUMENT, "tags"},
      {CELLM_CONSTRAINT_CHOICES, "[]", CELLM_INVALID_ARGUMENT, "empty"},
      {CELLM_CONSTRAINT_NONE, "x", CELLM_INVALID_ARGUMENT, "constraint_text"},
      {99, "x", CELLM_INVALID_ARGUMENT, "99"},
  };
  for (const auto& c : cases) {
    const Reply reply = Ask(session_, c.kind, c.text, 1);
    EXPECT_EQ(reply.status, c.status) << c.text << ": " << reply.message;
    EXPECT_NE(reply.message.find(c.says), std::string::npos) << reply.message;
  }
  // The session is as free as before.
  EXPECT_EQ(Ask(session_, CELLM_CONSTRAINT_NONE, "", 1, 3).status, CELLM_OK);
}

// Same seed, same constraint: the same reply, whether its tables are new or well used.
TEST_F(ConstrainedReply, DoesNotDependOnWhatWasCompiledBefore) {
  cellm_session* const a = OpenSession();
  const Reply cold = Ask(a, CELLM_CONSTRAINT_JSON_SCHEMA, kSchema, 77);
  cellm_session_close(a);
  for (uint64_t seed = 1; seed < 6; ++seed) {
    cellm_session* const other = OpenSession();
    (void)Ask(other, CELLM_CONSTRAINT_JSON_SCHEMA, kSchema, seed);
    cellm_session_close(other);
  }
  cellm_session* const b = OpenSession();
  const Reply warm = Ask(b, CELLM_CONSTRAINT_JSON_SCHEMA, kSchema, 77);
  cellm_session_close(b);
  EXPECT_EQ(cold.ids, warm.ids);
}

}  // namespace
}  // namespace cellm
