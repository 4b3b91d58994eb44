// The C interface from several threads, and from its own callbacks. Threads meet by counters and by
// what the interface answers; nobody sleeps. The thread sanitizer runs these tests, too.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "cellm/cellm.h"
#include "support/paths.h"

namespace cellm {
namespace {

using Ids = std::vector<int32_t>;

constexpr int32_t kPromptIds = 40;
constexpr uint32_t kReplyIds = 12;

Ids PromptOf(uint64_t seed) {
  Rng rng(seed);
  Ids ids;
  for (int32_t i = 0; i < kPromptIds; ++i) ids.push_back(static_cast<int32_t>(rng.NextBelow(2000)));
  return ids;
}

// What another thread did: others wait for it by giving up their turns.
class Signal {
 public:
  void Give() { given_.store(true); }
  void Await() const {
    while (!given_.load()) std::this_thread::yield();
  }

 private:
  std::atomic<bool> given_{false};
};

using TokenHook = std::function<int32_t(const cellm_token&)>;
int32_t CallTokenHook(const cellm_token* token, void* user) {
  return (*static_cast<const TokenHook*>(user))(*token);
}
using ProgressHook = std::function<int32_t(uint64_t done)>;
int32_t CallProgressHook(uint64_t done, uint64_t, void* user) {
  return (*static_cast<const ProgressHook*>(user))(done);
}

// One model and engine; sessions and requests are closed by the tests.
class Threads : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = testing::TestData("zoo/llama");
    cellm_error error = CELLM_ERROR_INIT;
    ASSERT_EQ(cellm_model_open(path.data(), path.size(), nullptr, &model_, &error), CELLM_OK)
        << error.message;
    cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
    options.threads = 2;
    options.chunk_tokens = 8;  // a prompt takes several steps
    options.context_tokens = 256;
    ASSERT_EQ(cellm_engine_open(model_, &options, &engine_, &error), CELLM_OK) << error.message;
  }
  void TearDown() override {
    cellm_engine_close(engine_);
    cellm_model_close(model_);
  }

  cellm_session* Session() {
    cellm_session* session = nullptr;
    EXPECT_EQ(cellm_session_open(engine_, nullptr, &session, nullptr), CELLM_OK);
    return session;
  }
  // A greedy request of kReplyIds tokens; evaluates its whole prompt whatever was evaluated before.
  static cellm_status Submit(cellm_session* session, const Ids& prompt, cellm_request** request,
                             const ProgressHook* progress = nullptr) {
    cellm_sampling sampling = CELLM_SAMPLING_INIT;
    sampling.given = CELLM_SAMPLING_TEMPERATURE;
    cellm_request_options options = CELLM_REQUEST_OPTIONS_INIT;
    options.sampling = &sampling;
    options.max_tokens = kReplyIds;
    options.flags = CELLM_REQUEST_IGNORE_END | CELLM_REQUEST_KEEP_NOTHING;
    if (progress != nullptr) {
      options.progress = &CallProgressHook;
      options.progress_user = const_cast<ProgressHook*>(progress);
    }
    return cellm_session_submit_tokens(session, prompt.data(), prompt.size(), &options, request,
                                       nullptr);
  }
  static cellm_status Run(cellm_request* request, const TokenHook& hook) {
    return cellm_request_run(request, &CallTokenHook, const_cast<TokenHook*>(&hook), nullptr);
  }
  static int32_t Finish(cellm_request* request) {
    cellm_receipt receipt = CELLM_RECEIPT_INIT;
    EXPECT_EQ(cellm_request_get_receipt(request, &receipt, nullptr), CELLM_OK);
    return receipt.finish;
  }
  // The whole reply in a session of its own.
  Ids Alone(const Ids& prompt) {
    cellm_session* const session = Session();
    cellm_request* request = nullptr;
    EXPECT_EQ(Submit(session, prompt, &request), CELLM_OK);
    Ids ids;
    EXPECT_EQ(Run(request,
                  [&](const cellm_token& token) {
                    ids.push_back(token.token_id);
                    return 0;
                  }),
              CELLM_OK);
    cellm_request_close(request);
    cellm_session_close(session);
    EXPECT_EQ(ids.size(), kReplyIds);
    return ids;
  }
  // A session that was cancelled answers like one that was never asked.
  void ExpectUsable(cellm_session* session, const Ids& prompt, const Ids& reply) {
    EXPECT_EQ(cellm_session_clear(session, nullptr), CELLM_OK);
    cellm_request* request = nullptr;
    ASSERT_EQ(Submit(session, prompt, &request), CELLM_OK);
    Ids ids;
    EXPECT_EQ(Run(request,
                  [&](const cellm_token& token) {
                    ids.push_back(token.token_id);
                    return 0;
                  }),
              CELLM_OK);
    EXPECT_EQ(ids, reply);
    cellm_request_close(request);
  }
  // Nothing is computed, so that whoever waits for a token waits.
  void LetNobodyRun(bool nobody) {
    cellm_limits limits = CELLM_LIMITS_INIT;
    limits.stop_background = limits.stop_interactive = nobody ? 1 : 0;
    EXPECT_EQ(cellm_engine_set_limits(engine_, &limits, nullptr), CELLM_OK);
  }
  // Returns when another thread is in a call that waits for the request: only then it is busy.
  static void AwaitWaiter(cellm_request* request) {
    cellm_token token = CELLM_TOKEN_INIT;
    int32_t ready = 0;
    cellm_status status = CELLM_OK;
    while (status != CELLM_BUSY) {
      status = cellm_request_poll(request, &token, &ready, nullptr);
      ASSERT_TRUE(status == CELLM_BUSY || (status == CELLM_OK && ready == 0));
      std::this_thread::yield();
    }
  }

  cellm_model* model_ = nullptr;
  cellm_engine* engine_ = nullptr;
};

// Takes a reply in one of the three ways that there are.
Ids TakeReply(cellm_engine* engine, cellm_request* request, uint64_t way) {
  Ids ids;
  cellm_token token = CELLM_TOKEN_INIT;
  while (token.finish == CELLM_FINISH_NONE) {
    cellm_status status = CELLM_OK;
    int32_t ready = 1;
    if (way == 0) {
      status = cellm_request_next(request, &token, nullptr);
    } else {
      status = cellm_request_poll(request, &token, &ready, nullptr);
      if (status == CELLM_OK && ready == 0) {
        EXPECT_EQ(cellm_engine_step(engine, nullptr, nullptr), CELLM_OK);
      }
    }
    EXPECT_EQ(status, CELLM_OK);
    if (status != CELLM_OK) return ids;
    if (ready != 0) ids.push_back(token.token_id);
  }
  return ids;
}

// Replies are the lone ones, whoever drives the steps and whatever others ask meanwhile.
TEST_F(Threads, EachReplyIsTheLoneOne) {
  constexpr int kTalkers = 4;
  constexpr int kTurns = 3;
  std::vector<std::vector<Ids>> alone(kTalkers);
  for (int t = 0; t < kTalkers; ++t) {
    for (int turn = 0; turn < kTurns; ++turn) {
      alone[static_cast<size_t>(t)].push_back(
          Alone(PromptOf(static_cast<uint64_t>(10 * t + turn))));
    }
  }
  std::atomic<int> talking{kTalkers};
  std::vector<std::thread> threads;
  for (int t = 0; t < kTalkers; ++t) {
    threads.emplace_back([&, t] {
      for (int turn = 0; turn < kTurns; ++turn) {
        cellm_session* const session = Session();
        cellm_request* request = nullptr;
        ASSERT_EQ(Submit(session, PromptOf(static_cast<uint64_t>(10 * t + turn)), &request),
                  CELLM_OK);
        cellm_session_close(session);  // the request keeps it
        EXPECT_EQ(TakeReply(engine_, request, static_cast<uint64_t>(t + turn) % 2),
                  alone[static_cast<size_t>(t)][static_cast<size_t>(turn)]);
        cellm_request_close(request);
      }
      talking.fetch_sub(1);
    });
  }
  threads.emplace_back([&] {  // asks, turns knobs, evaluates and embeds beside them
    Rng rng(7);
    const Ids ids = PromptOf(99);
    while (talking.load() > 0) {
      cellm_memory memory = CELLM_MEMORY_INIT;
      cellm_engine_stats stats = CELLM_ENGINE_STATS_INIT;
      cellm_heat heat = CELLM_HEAT_INIT;
      EXPECT_EQ(cellm_engine_get_memory(engine_, &memory, nullptr), CELLM_OK);
      EXPECT_EQ(cellm_engine_get_stats(engine_, &stats, nullptr), CELLM_OK);
      EXPECT_EQ(cellm_engine_get_heat(engine_, &heat, nullptr), CELLM_OK);
      const uint64_t less = memory.used - memory.cache / 2;
      EXPECT_EQ(cellm_engine_set_memory_budget(
                    engine_, rng.NextBelow(2) == 0 ? 0 : less + (1 << 20), nullptr),
                CELLM_OK);
      cellm_token_list list = CELLM_TOKEN_LIST_INIT;
      list.ids = ids.data();
      list.count = ids.size();
      size_t rows = 0;
      EXPECT_EQ(cellm_engine_evaluate(
                    engine_, &list, 1,
                    [](size_t, size_t, const float*, int32_t, void* user) {
                      ++*static_cast<size_t*>(user);
                      return 0;
                    },
                    &rows, nullptr),
                CELLM_OK);
      EXPECT_EQ(rows, ids.size());
      std::vector<float> vector(4096);
      size_t floats = 0;
      EXPECT_EQ(cellm_engine_embed(engine_, &list, 1, nullptr, vector.data(), vector.size(),
                                   &floats, nullptr),
                CELLM_OK);
    }
    EXPECT_EQ(cellm_engine_set_memory_budget(engine_, 0, nullptr), CELLM_OK);
  });
  for (std::thread& thread : threads) thread.join();
}

enum class CancelAt { kQueued, kWaiting, kInPrompt, kInCallback, kAnywhere };

class CancelFrom : public Threads, public ::testing::WithParamInterface<CancelAt> {};

// Another thread cancels: the reply ends as cancelled, without an error, and harms nothing.
TEST_P(CancelFrom, AnotherThread) {
  const Ids prompt = PromptOf(1);
  const Ids reply = Alone(prompt);
  cellm_session* const session = Session();
  const int rounds = GetParam() == CancelAt::kAnywhere ? 30 : 2;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    EXPECT_EQ(cellm_session_clear(session, nullptr), CELLM_OK);
    Signal cancel_now, cancelled;
    bool shown = false;
    const ProgressHook progress = [&](uint64_t) {
      if (GetParam() == CancelAt::kInPrompt && !shown) {
        shown = true;
        cancel_now.Give();
        cancelled.Await();
      }
      return 0;
    };
    cellm_request* request = nullptr;
    ASSERT_EQ(Submit(session, prompt, &request, &progress), CELLM_OK);
    if (GetParam() == CancelAt::kWaiting) LetNobodyRun(true);
    std::thread canceller([&] {
      if (GetParam() == CancelAt::kWaiting) {
        AwaitWaiter(request);
      } else if (GetParam() == CancelAt::kAnywhere) {
        for (int i = 0; i < 26 * round; ++i) std::this_thread::yield();
      } else if (GetParam() != CancelAt::kQueued) {
        cancel_now.Await();
      }
      cellm_request_cancel(request);
      cancelled.Give();
    });
    if (GetParam() == CancelAt::kQueued) cancelled.Await();
    Ids ids;
    EXPECT_EQ(Run(request,
                  [&](const cellm_token& token) {
                    if (token.token_id >= 0) ids.push_back(token.token_id);
                    if (GetParam() == CancelAt::kInCallback && ids.size() == 5) {
                      cancel_now.Give();
                      cancelled.Await();
                    }
                    return 0;
                  }),
              CELLM_OK);
    canceller.join();
    const int32_t finish = Finish(request);
    if (GetParam() == CancelAt::kAnywhere) {
      EXPECT_TRUE(finish == CELLM_FINISH_CANCELLED || finish == CELLM_FINISH_LENGTH);
    } else {
      EXPECT_EQ(finish, CELLM_FINISH_CANCELLED);
      EXPECT_EQ(ids.size(), GetParam() == CancelAt::kInCallback ? 5u : 0u);
    }
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), reply.begin()));
    // What was said is the session's; what was computed ahead is not.
    size_t held = 0;
    EXPECT_EQ(cellm_session_get_tokens(session, nullptr, 0, &held, nullptr), CELLM_OUT_OF_RANGE);
    EXPECT_EQ(held, prompt.size() + ids.size());
    cellm_request_close(request);
    LetNobodyRun(false);
  }
  ExpectUsable(session, prompt, reply);
  cellm_session_close(session);
}

INSTANTIATE_TEST_SUITE_P(States, CancelFrom,
                         ::testing::Values(CancelAt::kQueued, CancelAt::kWaiting,
                                           CancelAt::kInPrompt, CancelAt::kInCallback,
                                           CancelAt::kAnywhere));

// A call that waits for a request has it to itself.
TEST_F(Threads, ARequestIsWaitedForByOneCall) {
  cellm_session* const session = Session();
  cellm_request* request = nullptr;
  ASSERT_EQ(Submit(session, PromptOf(2), &request), CELLM_OK);
  LetNobodyRun(true);
  cellm_token mine = CELLM_TOKEN_INIT;
  std::thread waiter([&] { EXPECT_EQ(cellm_request_next(request, &mine, nullptr), CELLM_OK); });
  AwaitWaiter(request);
  cellm_token token = CELLM_TOKEN_INIT;
  EXPECT_EQ(cellm_request_next(request, &token, nullptr), CELLM_BUSY);
  EXPECT_EQ(Run(request, [](const cellm_token&) { return 0; }), CELLM_BUSY);
  EXPECT_EQ(token.token_id, 0);  // untouched
  LetNobodyRun(false);
  waiter.join();
  EXPECT_EQ(mine.finish, CELLM_FINISH_NONE);
  EXPECT_GE(mine.token_id, 0);
  cellm_request_close(request);
  cellm_session_close(session);
}

// While a callback blocks, others go on; and nobody takes the token that it looks at.
TEST_F(Threads, ACallbackThatBlocksStopsNobodyElse) {
  const Ids prompt = PromptOf(3);
  const Ids reply = Alone(prompt);
  cellm_session* const session = Session();
  cellm_request* request = nullptr;
  ASSERT_EQ(Submit(session, prompt, &request), CELLM_OK);
  Signal blocked, go_on;
  Ids ids;
  std::thread slow([&] {
    EXPECT_EQ(Run(request,
                  [&](const cellm_token& token) {
                    ids.push_back(token.token_id);
                    if (ids.size() == 2) {
                      blocked.Give();
                      go_on.Await();
                    }
                    return 0;
                  }),
              CELLM_OK);
  });
  blocked.Await();
  EXPECT_EQ(Alone(prompt), reply);
  cellm_token token = CELLM_TOKEN_INIT;
  int32_t ready = 0;
  EXPECT_EQ(cellm_request_poll(request, &token, &ready, nullptr), CELLM_BUSY);
  go_on.Give();
  slow.join();
  EXPECT_EQ(ids, reply);
  cellm_request_close(request);
  cellm_session_close(session);
}

// What a token's or progress callback may call, and what it may not.
TEST_F(Threads, CallbacksOfAReplyMayCallAnythingElse) {
  const Ids prompt = PromptOf(4);
  const Ids reply = Alone(prompt);
  cellm_session* const session = Session();
  cellm_request* request = nullptr;
  int calls = 0;
  const auto try_everything = [&] {
    ++calls;
    cellm_token token = CELLM_TOKEN_INIT;
    int32_t ready = 7;
    EXPECT_EQ(cellm_request_next(request, &token, nullptr), CELLM_BUSY);
    EXPECT_EQ(cellm_request_poll(request, &token, &ready, nullptr), CELLM_BUSY);
    EXPECT_EQ(Run(request, [](const cellm_token&) { return 0; }), CELLM_BUSY);
    EXPECT_EQ(ready, 7);
    cellm_request* other = nullptr;
    EXPECT_EQ(Submit(session, prompt, &other), CELLM_BUSY);
    EXPECT_EQ(cellm_session_clear(session, nullptr), CELLM_BUSY);
    cellm_session* copy = nullptr;
    EXPECT_EQ(cellm_session_fork(session, &copy, nullptr), CELLM_BUSY);
    size_t count = 0;
    const cellm_status text = cellm_request_get_text(request, nullptr, 0, &count, nullptr);
    EXPECT_EQ(text, count == 0 ? CELLM_OK : CELLM_OUT_OF_RANGE);
    EXPECT_EQ(Finish(request), CELLM_FINISH_NONE);
    EXPECT_EQ(cellm_engine_step(engine_, nullptr, nullptr), CELLM_OK);
    EXPECT_EQ(cellm_engine_set_memory_budget(engine_, 0, nullptr), CELLM_OK);
    EXPECT_EQ(Alone(prompt), reply);  // a reply within a reply
  };
  const ProgressHook progress = [&](uint64_t done) {
    if (done == static_cast<uint64_t>(kPromptIds)) try_everything();
    return 0;
  };
  ASSERT_EQ(Submit(session, prompt, &request, &progress), CELLM_OK);
  Ids ids;
  EXPECT_EQ(Run(request,
                [&](const cellm_token& token) {
                  ids.push_back(token.token_id);
                  if (ids.size() == 3) try_everything();
                  return 0;
                }),
            CELLM_OK);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(ids, reply);
  cellm_request_close(request);
  cellm_session_close(session);
}

// A callback of cellm_engine_evaluate has the engine: what needs a step is refused.
TEST_F(Threads, CallbacksOfAStepMayNotAskForAnother) {
  const Ids prompt = PromptOf(5);
  const Ids reply = Alone(prompt);
  struct Tried {
    Threads* test;
    cellm_engine* engine;
    cellm_session* session;
    cellm_request* request = nullptr;
    Ids prompt;
    int rows = 0;
  } tried = {this, engine_, Session(), nullptr, prompt, 0};
  cellm_token_list list = CELLM_TOKEN_LIST_INIT;
  list.ids = prompt.data();
  list.count = 5;
  const cellm_logits_fn try_everything = [](size_t, size_t position, const float*, int32_t,
                                            void* user) -> int32_t {
    Tried& t = *static_cast<Tried*>(user);
    ++t.rows;
    if (position != 2) return 0;
    EXPECT_EQ(cellm_engine_step(t.engine, nullptr, nullptr), CELLM_BUSY);
    EXPECT_EQ(Submit(t.session, t.prompt, &t.request), CELLM_OK);
    cellm_token token = CELLM_TOKEN_INIT;
    EXPECT_EQ(cellm_request_next(t.request, &token, nullptr), CELLM_BUSY);
    cellm_request_close(t.request);  // never waits for the step that it is in
    EXPECT_EQ(cellm_session_clear(t.session, nullptr), CELLM_OK);
    EXPECT_EQ(Submit(t.session, t.prompt, &t.request), CELLM_OK);
    cellm_engine_stats stats = CELLM_ENGINE_STATS_INIT;
    EXPECT_EQ(cellm_engine_get_stats(t.engine, &stats, nullptr), CELLM_OK);
    cellm_token_list inner = CELLM_TOKEN_LIST_INIT;
    inner.ids = t.prompt.data();
    inner.count = 2;
    EXPECT_EQ(cellm_engine_evaluate(
                  t.engine, &inner, 1,
                  [](size_t, size_t, const float*, int32_t, void*) { return 0; }, nullptr, nullptr),
              CELLM_BUSY);
    std::vector<float> vector(4096);
    size_t floats = 0;
    EXPECT_EQ(cellm_engine_embed(t.engine, &inner, 1, nullptr, vector.data(), vector.size(),
                                 &floats, nullptr),
              CELLM_BUSY);
    return 0;
  };
  EXPECT_EQ(cellm_engine_evaluate(engine_, &list, 1, try_everything, &tried, nullptr), CELLM_OK);
  EXPECT_EQ(tried.rows, 5);
  EXPECT_EQ(TakeReply(engine_, tried.request, 0), reply);
  cellm_request_close(tried.request);
  cellm_session_close(tried.session);
}

// Everything is closed while a thread is in the middle of a reply, by itself or by another.
TEST_F(Threads, ClosingEverythingEndsAReplyUnderWay) {
  for (const bool by_another : {false, true}) {
    SCOPED_TRACE(by_another);
    cellm_session* const session = Session();
    cellm_request* request = nullptr;
    ASSERT_EQ(Submit(session, PromptOf(6), &request), CELLM_OK);
    cellm_engine* const engine = engine_;
    cellm_model* const model = model_;
    const auto close_all = [&] {
      cellm_model_close(model);
      cellm_engine_close(engine);
      cellm_session_close(session);
      cellm_request_close(request);
      cellm_request_close(request);  // stale by now
    };
    size_t tokens = 0;
    EXPECT_EQ(Run(request,
                  [&](const cellm_token& token) {
                    if (token.token_id >= 0) ++tokens;
                    if (tokens == 3 && token.token_id >= 0) {
                      if (by_another) {
                        std::thread(close_all).join();
                      } else {
                        close_all();
                      }
                    }
                    return 0;
                  }),
              CELLM_OK);
    EXPECT_EQ(tokens, 3u);
    cellm_token token = CELLM_TOKEN_INIT;
    EXPECT_EQ(cellm_request_next(request, &token, nullptr), CELLM_INVALID_ARGUMENT);
    EXPECT_EQ(cellm_session_clear(session, nullptr), CELLM_INVALID_ARGUMENT);
    EXPECT_EQ(cellm_engine_step(engine, nullptr, nullptr), CELLM_INVALID_ARGUMENT);
    SetUp();
  }
}

// A thread that waits for a token which cannot come is let go by whoever closes the request.
TEST_F(Threads, ClosingLetsGoOfWhoWaits) {
  LetNobodyRun(true);
  cellm_session* const session = Session();
  cellm_request* request = nullptr;
  ASSERT_EQ(Submit(session, PromptOf(7), &request), CELLM_OK);
  cellm_token token = CELLM_TOKEN_INIT;
  std::thread waiter([&] { EXPECT_EQ(cellm_request_next(request, &token, nullptr), CELLM_OK); });
  AwaitWaiter(request);
  cellm_session_close(session);
  cellm_engine_close(engine_);
  cellm_request_close(request);
  waiter.join();
  EXPECT_EQ(token.token_id, -1);
  EXPECT_EQ(token.finish, CELLM_FINISH_CANCELLED);
}

// Handles that others close at the same time are open or stale, nothing between.
TEST_F(Threads, HandlesAreOpenOrStale) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 80;
  const Ids prompt = PromptOf(8);
  std::atomic<cellm_session*> session{Session()};
  std::atomic<cellm_request*> request{nullptr};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Rng rng(static_cast<uint64_t>(t) + 1);
      const auto expect_known = [](cellm_status status) {
        EXPECT_TRUE(status == CELLM_OK || status == CELLM_INVALID_ARGUMENT ||
                    status == CELLM_BUSY || status == CELLM_OUT_OF_RANGE)
            << cellm_status_name(status);
      };
      for (int round = 0; round < kRounds; ++round) {
        cellm_token token = CELLM_TOKEN_INIT;
        cellm_request* mine = nullptr;
        size_t count = 0;
        switch (rng.NextBelow(8)) {
          case 0:
            cellm_session_close(session.exchange(Session()));
            break;
          case 1:
            expect_known(Submit(session.load(), prompt, &mine));
            if (mine != nullptr) cellm_request_close(request.exchange(mine));
            break;
          case 2:
            cellm_request_close(request.load());
            break;
          case 3:
            cellm_request_cancel(request.load());
            break;
          case 4:
            expect_known(cellm_session_clear(session.load(), nullptr));
            break;
          case 5:
            expect_known(cellm_session_get_tokens(session.load(), nullptr, 0, &count, nullptr));
            break;
          case 6:
            expect_known(Run(request.load(), [](const cellm_token&) { return 0; }));
            break;
          default:
            expect_known(cellm_request_next(request.load(), &token, nullptr));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  cellm_request_close(request.load());
  cellm_session_close(session.load());
  cellm_engine_stats stats = CELLM_ENGINE_STATS_INIT;
  EXPECT_EQ(cellm_engine_get_stats(engine_, &stats, nullptr), CELLM_OK);
  EXPECT_EQ(stats.running + stats.waiting, 0u) << "closed requests are still in the engine";
  EXPECT_EQ(Alone(prompt).size(), kReplyIds);
}

}  // namespace
}  // namespace cellm
