// Older tokens in fewer bits, over the C interface: receipts, saved sessions, journals.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "cellm/cellm.h"
#include "support/paths.h"

namespace cellm {
namespace {

using Ids = std::vector<int32_t>;

constexpr uint32_t kAfter = 64;
constexpr size_t kFirst = 512 + kAfter;  // tokens of a sequence that has demoted ones

Ids PromptOf(size_t count) {
  Rng rng(count);
  Ids ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(rng.NextBelow(2000)));
  return ids;
}

class KvDemote : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = testing::TestData("zoo/llama");
    cellm_model_options options = CELLM_MODEL_OPTIONS_INIT;
    options.log = [](int32_t, cellm_text, cellm_text text, void* user) {
      static_cast<std::string*>(user)->append(text.data, text.bytes).append("\n");
    };
    options.log_user = &log_;
    ASSERT_EQ(cellm_model_open(path.data(), path.size(), &options, &model_, nullptr), CELLM_OK);
  }
  void TearDown() override { cellm_model_close(model_); }

  cellm_engine* Open(int32_t demote, const std::string& journals = "") {
    cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
    options.threads = 1;
    options.kv_demote = demote;
    options.kv_demote_after = demote == 0 ? 0 : kAfter;
    options.journal_folder = {journals.data(), journals.size()};
    cellm_engine* engine = nullptr;
    cellm_error error = CELLM_ERROR_INIT;
    EXPECT_EQ(cellm_engine_open(model_, &options, &engine, &error), CELLM_OK) << error.message;
    return engine;
  }
  static cellm_session* Session(cellm_engine* engine) {
    cellm_session* session = nullptr;
    EXPECT_EQ(cellm_session_open(engine, nullptr, &session, nullptr), CELLM_OK);
    return session;
  }
  static cellm_request* Submit(cellm_session* session, const Ids& ids, uint32_t tokens) {
    cellm_sampling sampling = CELLM_SAMPLING_INIT;
    sampling.given = CELLM_SAMPLING_TEMPERATURE;
    cellm_request_options options = CELLM_REQUEST_OPTIONS_INIT;
    options.sampling = &sampling;
    options.max_tokens = tokens;
    options.flags = CELLM_REQUEST_IGNORE_END | CELLM_REQUEST_LOGPROBS;
    cellm_request* request = nullptr;
    cellm_error error = CELLM_ERROR_INIT;
    EXPECT_EQ(
        cellm_session_submit_tokens(session, ids.data(), ids.size(), &options, &request, &error),
        CELLM_OK)
        << error.message;
    return request;
  }
  struct Reply {
    std::vector<std::pair<int32_t, float>> tokens;  // with their log-probabilities
    cellm_receipt receipt = CELLM_RECEIPT_INIT;
  };
  // The rest of a reply; at most `most` tokens of it.
  static Reply Take(cellm_request* request, size_t most = SIZE_MAX) {
    Reply reply;
    cellm_token token = CELLM_TOKEN_INIT;
    while (reply.tokens.size() < most && token.finish == CELLM_FINISH_NONE) {
      EXPECT_EQ(cellm_request_next(request, &token, nullptr), CELLM_OK);
      reply.tokens.emplace_back(token.token_id, token.logprob);
    }
    EXPECT_EQ(cellm_request_get_receipt(request, &reply.receipt, nullptr), CELLM_OK);
    return reply;
  }
  Reply Ask(cellm_session* session, const Ids& ids, uint32_t tokens) {
    cellm_request* const request = Submit(session, ids, tokens);
    Reply reply = Take(request);
    cellm_request_close(request);
    return reply;
  }

  std::string log_;
  cellm_model* model_ = nullptr;
};

TEST_F(KvDemote, TheReceiptSaysWhichTokens) {
  cellm_engine* const demoting = Open(CELLM_KV_Q4);
  cellm_engine* const plain = Open(0);
  cellm_session* const session = Session(demoting);
  cellm_session* const other = Session(plain);
  // A reply that crosses the point at which the first 512 tokens become old.
  const Reply reply = Ask(session, PromptOf(kFirst - 10), 40);
  const Reply expected = Ask(other, PromptOf(kFirst - 10), 40);
  EXPECT_EQ(reply.receipt.demoted_tokens, 512u);
  EXPECT_EQ(expected.receipt.demoted_tokens, 0u);
  ASSERT_EQ(reply.tokens.size(), 40u);
  // The token at position p is chosen by the row of p - 1; rows below kFirst see nothing demoted.
  for (size_t i = 0; i < 11; ++i) EXPECT_EQ(reply.tokens[i], expected.tokens[i]) << i;
  EXPECT_NE(reply.tokens, expected.tokens);
  // A session that never gets so far is not touched.
  cellm_session* const short_session = Session(demoting);
  cellm_session* const short_other = Session(plain);
  const Reply short_reply = Ask(short_session, PromptOf(100), 40);
  EXPECT_EQ(short_reply.receipt.demoted_tokens, 0u);
  EXPECT_EQ(short_reply.tokens, Ask(short_other, PromptOf(100), 40).tokens);
  for (cellm_session* each : {session, other, short_session, short_other}) {
    cellm_session_close(each);
  }
  cellm_engine_close(demoting);
  cellm_engine_close(plain);
}

TEST_F(KvDemote, SavedSessionsGoOnBitForBit) {
  const std::string folder = testing::TempFolder();
  const std::string path = folder + "/session";
  const Ids more = PromptOf(17);
  cellm_engine* const engine = Open(CELLM_KV_PAIR(CELLM_KV_Q8, CELLM_KV_Q4));
  cellm_session* const session = Session(engine);
  (void)Ask(session, PromptOf(kFirst + 20), 8);
  ASSERT_EQ(cellm_session_save(session, path.data(), path.size(), 0, nullptr), CELLM_OK);
  const Reply expected = Ask(session, more, 20);
  cellm_session_close(session);
  cellm_engine_close(engine);

  const auto restored = [&](int32_t demote, size_t* tokens) {
    cellm_engine* const other = Open(demote);
    cellm_session* again = nullptr;
    cellm_error error = CELLM_ERROR_INIT;
    EXPECT_EQ(
        cellm_session_restore(other, path.data(), path.size(), nullptr, &again, tokens, &error),
        CELLM_OK)
        << error.message;
    const Reply reply = Ask(again, more, 20);
    cellm_session_close(again);
    cellm_engine_close(other);
    return reply;
  };
  size_t tokens = 0;
  EXPECT_EQ(restored(CELLM_KV_PAIR(CELLM_KV_Q8, CELLM_KV_Q4), &tokens).tokens, expected.tokens);
  EXPECT_GT(tokens, kFirst);
  // Another numerics class evaluates the tokens again, and says so.
  log_.clear();
  EXPECT_NE(restored(0, &tokens).tokens, expected.tokens);
  EXPECT_EQ(tokens, 0u);
  EXPECT_NE(log_.find("its tokens are evaluated again"), std::string::npos) << log_;
}

TEST_F(KvDemote, JournalsGoOnBitForBit) {
  const std::string folder = testing::TempFolder();
  cellm_engine* const lone = Open(CELLM_KV_Q4);
  cellm_session* const session = Session(lone);
  const Reply expected = Ask(session, PromptOf(kFirst - 5), 30);
  cellm_session_close(session);
  cellm_engine_close(lone);

  cellm_engine* const engine = Open(CELLM_KV_Q4, folder);
  cellm_session* const dying = Session(engine);
  cellm_request* const request = Submit(dying, PromptOf(kFirst - 5), 30);
  const Reply before = Take(request, 12);
  EXPECT_EQ(cellm_session_keep_journal(dying, 1, nullptr), CELLM_OK);
  // As much as death: what is in the file by now is all that there is.
  cellm_engine* const next = Open(CELLM_KV_Q4, folder);
  std::string name;
  EXPECT_EQ(cellm_engine_list_journals(
                next,
                [](const cellm_journal_info* info, void* user) {
                  static_cast<std::string*>(user)->assign(info->name.data, info->name.bytes);
                  return 0;
                },
                &name, nullptr),
            CELLM_OK);
  const std::string from = folder + "/" + name;
  const std::string copy_folder = folder + "/copy";
  ASSERT_EQ(std::system(("mkdir " + copy_folder + " && cp " + from + " " + copy_folder).c_str()),
            0);
  cellm_engine_close(next);
  cellm_engine* const reborn = Open(CELLM_KV_Q4, copy_folder);
  cellm_session* again = nullptr;
  cellm_request* rest = nullptr;
  cellm_error error = CELLM_ERROR_INIT;
  ASSERT_EQ(cellm_session_recover(reborn, name.data(), name.size(), nullptr, &again, &rest, &error),
            CELLM_OK)
      << error.message;
  ASSERT_NE(rest, nullptr);
  std::vector<std::pair<int32_t, float>> all = before.tokens;
  const Reply after = Take(rest);
  all.insert(all.end(), after.tokens.begin(), after.tokens.end());
  EXPECT_EQ(all, expected.tokens);
  EXPECT_EQ(after.receipt.demoted_tokens, 512u);
  cellm_request_close(rest);
  cellm_session_close(again);
  cellm_engine_close(reborn);
  cellm_request_close(request);
  cellm_session_close(dying);
  cellm_engine_close(engine);
}

TEST_F(KvDemote, OptionsAreChecked) {
  const auto open = [&](int32_t kv, int32_t demote, uint32_t after, uint32_t page_tokens) {
    cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
    options.kv = kv;
    options.kv_demote = demote;
    options.kv_demote_after = after;
    options.page_tokens = page_tokens;
    cellm_engine* engine = nullptr;
    const cellm_status status = cellm_engine_open(model_, &options, &engine, nullptr);
    cellm_engine_close(engine);
    return status;
  };
  EXPECT_EQ(open(0, 99, 0, 0), CELLM_INVALID_ARGUMENT);
  EXPECT_EQ(open(0, CELLM_KV_F16, 0, 0), CELLM_INVALID_ARGUMENT);
  EXPECT_EQ(open(CELLM_KV_Q4, CELLM_KV_Q8, 0, 0), CELLM_INVALID_ARGUMENT);
  EXPECT_EQ(open(0, CELLM_KV_Q4, UINT32_MAX, 0), CELLM_INVALID_ARGUMENT);
  EXPECT_EQ(open(0, 0, 512, 0), CELLM_INVALID_ARGUMENT);
  EXPECT_EQ(open(0, CELLM_KV_Q4, 0, 48), CELLM_UNSUPPORTED);
  EXPECT_EQ(open(0, CELLM_KV_Q4, 0, 0), CELLM_OK);
}

}  // namespace
}  // namespace cellm
