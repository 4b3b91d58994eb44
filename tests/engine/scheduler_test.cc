// The scheduler, by simulation: thousands of requests, a clock moved by hand, memory that is only a
// number. ServingSim checks every plan against the promises at the top of engine/scheduler.h; the
// tests here check what comes out over time.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/rng.h"
#include "support/heap_count.h"
#include "support/paths.h"
#include "support/serving_sim.h"

namespace cellm {
namespace {

using ::cellm::testing::ServingSim;
using ::cellm::testing::SimModel;
using ::cellm::testing::SimOptions;
using ::cellm::testing::SimResult;
using ::cellm::testing::SimSequenceBytes;
using ::cellm::testing::SimTurn;

constexpr LatencyClass kInteractive = LatencyClass::kInteractive;
constexpr LatencyClass kBackground = LatencyClass::kBackground;
constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1000 * kMs;

// A step of 20 ms, 1 ms a prompt row, 1 ms a decode row: a small model on a slow machine.
SimOptions Machine() {
  SimOptions options;
  options.cost.step_ns = 20e6;
  options.cost.prompt_row_ns = 1e6;
  options.cost.decode_row_ns = 1e6;
  options.cost.attended_ns = 100;
  options.cost.swap_write_bytes_per_second = 500e6;
  options.cost.swap_read_bytes_per_second = 1000e6;
  options.budget_bytes = uint64_t{1} << 30;
  return options;
}

SimTurn Turn(uint64_t session, int64_t arrival_ns, int32_t prompt, int32_t output,
             LatencyClass c = kInteractive) {
  SimTurn turn;
  turn.session = session;
  turn.arrival_ns = arrival_ns;
  turn.prompt_tokens = prompt;
  turn.output_tokens = output;
  turn.latency_class = c;
  return turn;
}

void ExpectClean(const ServingSim& sim) {
  for (const std::string& violation : sim.violations()) ADD_FAILURE() << violation;
}

// ---- time -----------------------------------------------------------------------------------

// users.md row 67: a long prompt beside a chat: the chat's worst gap is bounded.
TEST(SchedulerTest, LongPromptsDoNotStallConversations) {
  // 16 conversations decode while prompts of 4,000 tokens keep arriving.
  const SimOptions options = Machine();
  std::vector<SimTurn> turns;
  for (uint64_t i = 0; i < 16; ++i) turns.push_back(Turn(i, 0, 8, 400));
  for (uint64_t i = 0; i < 4; ++i) {
    turns.push_back(Turn(100 + i, static_cast<int64_t>(i + 1) * kSecond, 4000, 8));
  }
  ServingSim sim(options, turns);
  sim.Run();
  ExpectClean(sim);
  ASSERT_TRUE(sim.finished());
  // Alone a step of 16 decodes takes 36 ms and some for attention; half as much again is allowed,
  // and one smallest chunk of 4 ms.
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(sim.results()[i].worst_gap_steps, 1) << i;
    EXPECT_LE(sim.results()[i].worst_gap_ns, 64 * kMs) << i;
  }
}

TEST(SchedulerTest, MixingALongPromptCostsNoTime) {
  // The sum of both alone against both together: users.md row 67 asks for at most 10% more.
  const SimOptions options = Machine();
  const SimTurn chat = Turn(1, 0, 8, 300), prompt = Turn(2, 0, 4000, 4);
  int64_t serial = 0;
  for (const SimTurn& turn : {chat, prompt}) {
    ServingSim alone(options, {turn});
    alone.Run();
    serial += alone.now_ns();
  }
  ServingSim both(options, {chat, prompt});
  both.Run();
  ExpectClean(both);
  EXPECT_LE(both.now_ns(), serial * 110 / 100);
  // And its worst gap is at most two of the chunks that a lone prompt is cut into.
  EXPECT_LE(both.results()[0].worst_gap_ns, 2 * options.scheduler.step_budget_ns);
}

// users.md row 68: a short newcomer behind long prompts.
TEST(SchedulerTest, ShortPromptsPassLongOnes) {
  // Ten prompts of 8,000 tokens, then a short one: it must not wait for them (about 90 s).
  const SimOptions options = Machine();
  std::vector<SimTurn> turns;
  for (uint64_t i = 0; i < 10; ++i) turns.push_back(Turn(i, 0, 8000, 4));
  turns.push_back(Turn(99, 3 * kSecond, 20, 4));
  ServingSim sim(options, turns);
  sim.Run();
  ExpectClean(sim);
  EXPECT_LE(sim.results()[10].first_token_ns, 2 * options.scheduler.step_budget_ns);
}

TEST(SchedulerTest, EveryDecodeHasATurnWhenRowsAreFew) {
  // 50 conversations, 8 rows of logits: ceil(50 / 6) steps at most.
  SimOptions options = Machine();
  options.scheduler.logit_rows = 8;
  options.scheduler.max_wait_ns[0] = 1000 * kSecond;
  std::vector<SimTurn> turns;
  for (uint64_t i = 0; i < 50; ++i) turns.push_back(Turn(i, 0, 4, 60));
  for (uint64_t i = 0; i < 50; ++i) {
    turns.push_back(Turn(100 + i, static_cast<int64_t>(i) * kSecond / 2, 100, 1));
  }
  ServingSim sim(options, turns);
  sim.Run();
  ExpectClean(sim);
  ASSERT_TRUE(sim.finished());
  for (size_t i = 0; i < 50; ++i) EXPECT_LE(sim.results()[i].worst_gap_steps, 9) << i;
}

TEST(SchedulerTest, BackgroundGetsItsShareAndNoMore) {
  // Interactive prompts and background prompts without end: time as 8 to 1, within a tenth.
  for (const uint32_t weight : {1u, 4u, 8u, 30u}) {
    SimOptions options = Machine();
    options.scheduler.class_weight[0] = weight;
    std::vector<SimTurn> turns;
    for (uint64_t i = 0; i < 6; ++i) turns.push_back(Turn(i, 0, 1 << 20, 1));
    for (uint64_t i = 0; i < 6; ++i) turns.push_back(Turn(10 + i, 0, 1 << 20, 1, kBackground));
    options.budget_bytes = uint64_t{1} << 40;
    options.cost.attended_ns = 1;
    ServingSim sim(options, turns);
    sim.Run(200 * kSecond);
    ExpectClean(sim);
    const double share =
        static_cast<double>(sim.class_ns(kBackground)) / static_cast<double>(sim.now_ns());
    EXPECT_NEAR(share * (weight + 1), 1.0, 0.1) << weight;
    // Not in lumps: a piece comes as soon as its time was earned.
    EXPECT_LE(sim.worst_class_gap_steps(kBackground), static_cast<int32_t>(weight) + 1) << weight;
  }
}

TEST(SchedulerTest, BackgroundNeverStarvesBesideDecodes) {
  // 30 conversations that decode without end take all of the stretched step; background prompts
  // and decodes still advance.
  SimOptions options = Machine();
  options.scheduler.step_budget_ns = 10 * kMs;  // below one decode step: there is never time left
  options.scheduler.max_wait_ns[1] = 10000 * kSecond;
  options.cost.attended_ns = 0;
  std::vector<SimTurn> turns;
  for (uint64_t i = 0; i < 30; ++i) turns.push_back(Turn(i, 0, 4, 1 << 20));
  turns.push_back(Turn(50, 0, 2000, 100, kBackground));
  turns.push_back(Turn(51, 0, 4, 1000, kBackground));
  options.budget_bytes = uint64_t{1} << 40;
  ServingSim sim(options, turns);
  sim.Run(600 * kSecond);
  ExpectClean(sim);
  EXPECT_LE(sim.worst_class_gap_steps(kBackground), 9);
  EXPECT_GT(sim.results()[30].tokens, 0);
  EXPECT_GT(sim.results()[31].tokens, 100);
}

TEST(SchedulerTest, IdleTimeUsedByBackgroundIsNotHeldAgainstIt) {
  // A minute of background alone; then interactive prompts without end. Background goes on at once.
  SimOptions options = Machine();
  options.budget_bytes = uint64_t{1} << 40;
  options.cost.attended_ns = 1;
  std::vector<SimTurn> turns = {Turn(1, 0, 1 << 20, 1, kBackground)};
  for (uint64_t i = 0; i < 3; ++i) turns.push_back(Turn(10 + i, 60 * kSecond, 1 << 20, 1));
  ServingSim sim(options, turns);
  sim.Run(200 * kSecond);
  ExpectClean(sim);
  EXPECT_LE(sim.worst_class_gap_steps(kBackground), 9);
}

TEST(SchedulerTest, WeightsShareAClass) {
  SimOptions options = Machine();
  options.budget_bytes = uint64_t{1} << 40;
  options.cost.attended_ns = 1;
  options.scheduler.max_wait_ns[0] = 1000 * kSecond;
  const uint32_t weights[] = {1, 2, 4, 8};
  std::vector<SimTurn> turns;
  for (uint64_t i = 0; i < 4; ++i) {
    turns.push_back(Turn(i, 0, 1 << 20, 1));
    turns.back().weight = weights[i];
  }
  ServingSim sim(options, turns);
  sim.Run(300 * kSecond);
  ExpectClean(sim);
  double all = 0;
  for (const SimResult& r : sim.results()) all += static_cast<double>(r.served_ns);
  for (size_t i = 0; i < 4; ++i) {
    const double share = static_cast<double>(sim.results()[i].served_ns) / all;
    EXPECT_NEAR(share, weights[i] / 15.0, 0.05 * weights[i] / 15.0) << i;
  }
}

TEST(SchedulerTest, ANewcomerHasNoClaimOnThePast) {
  // A conversation that comes late starts level with the others, not ahead by what they had.
  SimOptions options = Machine();
  options.budget_bytes = uint64_t{1} << 40;
  options.cost.attended_ns = 1;
  ServingSim sim(options, {Turn(1, 0, 1 << 20, 1), Turn(2, 100 * kSecond, 1 << 20, 1)});
  sim.Run(140 * kSecond);
  ExpectClean(sim);
  const double late = static_cast<double>(sim.results()[1].served_ns);
  EXPECT_NEAR(late, 20e9 * 0.9, 20e9 * 0.1);  // half of 40 s, less the passes over the weights
}

TEST(SchedulerTest, EarliestDeadlineFirst) {
  // Prompts that all arrive at once with deadlines in reverse order; there is time for all if and
  // only if the earliest goes first.
  SimOptions options = Machine();
  options.cost.attended_ns = 0;
  options.scheduler.max_wait_ns[0] = 1000 * kSecond;
  std::vector<SimTurn> turns;
  for (uint64_t i = 0; i < 8; ++i) {
    turns.push_back(Turn(i, 0, 900, 1));
    turns.back().token_period_ns = static_cast<int64_t>(8 - i) * 1050 * kMs + 200 * kMs;
  }
  ServingSim sim(options, turns);
  sim.Run();
  ExpectClean(sim);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(sim.results()[i].late_tokens, 0) << i;
  for (size_t i = 1; i < 8; ++i) {
    EXPECT_LT(sim.results()[i].finish_ns, sim.results()[i - 1].finish_ns) << i;
  }
}

TEST(SchedulerTest, DeadlinesDoNotStarveThoseWithout) {
  // Seven prompts claim that they are always late; the eighth has no deadline.
  SimOptions options = Machine();
  options.budget_bytes = uint64_t{1} << 40;
  options.cost.attended_ns = 1;
  std::vector<SimTurn> turns;
  for (uint64_t i = 0; i < 7; ++i) {
    turns.push_back(Turn(i, 0, 1 << 20, 1));
    turns.back().token_period_ns = 1;
  }
  turns.push_back(Turn(9, 0, 200, 20));
  ServingSim sim(options, turns);
  sim.Run(300 * kSecond);
  ExpectClean(sim);
  EXPECT_EQ(sim.results()[7].tokens, 20);
  EXPECT_LE(sim.results()[7].worst_gap_ns, options.scheduler.max_wait_ns[0] + 8 * 250 * kMs);
}

TEST(SchedulerTest, RoundRobinKnowsNoClasses) {
  // A mixed crowd on one row of logits: everyone's turn comes once a round, in the same order.
  SimOptions options = Machine();
  options.scheduler.policy = SchedulePolicy::kRoundRobin;
  options.scheduler.logit_rows = 1;
  std::vector<SimTurn> turns;
  for (uint64_t i = 0; i < 12; ++i) {
    turns.push_back(Turn(i, 0, 4, 50, i % 2 == 0 ? kInteractive : kBackground));
    turns.back().token_period_ns = i % 3 == 0 ? kMs : 0;
    turns.back().weight = static_cast<uint32_t>(1 + i % 5);
  }
  ServingSim sim(options, turns);
  sim.Run(INT64_MAX, 12 * 20);
  ExpectClean(sim);
  for (const SimResult& r : sim.results()) EXPECT_NEAR(r.tokens, 20, 1);
  sim.Run();
  ASSERT_TRUE(sim.finished());
  for (const SimResult& r : sim.results()) EXPECT_LE(r.worst_gap_steps, 12);
}

// ---- memory ---------------------------------------------------------------------------------

// 64 KiB a page of 16 tokens, so a session of 1,000 tokens holds about 4 MB.
SimOptions SmallMemory() {
  SimOptions options = Machine();
  options.model.page_bytes = 64 << 10;
  options.budget_bytes = 16 << 20;
  return options;
}

TEST(SchedulerTest, EightSessionsTakeTurnsInMemoryForThree) {
  for (const bool swap : {true, false}) {
    for (const SchedulePolicy policy : {SchedulePolicy::kDeadline, SchedulePolicy::kRoundRobin}) {
      SimOptions options = SmallMemory();
      options.scheduler.policy = policy;
      if (swap) options.swap_bytes = 256 << 20;
      std::vector<SimTurn> turns;
      for (uint64_t i = 0; i < 8; ++i) turns.push_back(Turn(i, 0, 1000, 300));
      ServingSim sim(options, turns);
      sim.Run();
      ExpectClean(sim);
      ASSERT_TRUE(sim.finished());
      EXPECT_LE(sim.peak_bytes(), options.budget_bytes);
      const int64_t moves = sim.preemptions(PreemptBy::kSwap) + sim.preemptions(PreemptBy::kDrop);
      // Without a swap file coming back costs as much as the prompt did, so each runs to its end.
      EXPECT_EQ(moves > 0, swap);
      EXPECT_EQ(sim.preemptions(swap ? PreemptBy::kDrop : PreemptBy::kSwap), 0);
      // No thrashing: every restore is followed by min_run_tokens new ones at least, and by twice
      // the time that it took. So no more than half as much time again as one after the other.
      EXPECT_LE(moves, 8 * 1300 / options.scheduler.min_run_tokens);
      ServingSim alone(options, {turns[0]});
      alone.Run();
      EXPECT_LE(sim.now_ns(), 8 * alone.now_ns() * 3 / 2);
      // No starvation: up to 7 are ahead, each of which waits for others to have had their turn,
      // which is its prompt again and as many tokens as take twice as long.
      const int64_t turn = kSecond + (32 * 25 + 2000) * kMs;
      EXPECT_LE(sim.worst_wait_ns(kInteractive), options.scheduler.max_wait_ns[0] + 7 * turn);
    }
  }
}

TEST(SchedulerTest, BackgroundIsNotStarvedOfMemory) {
  // Interactive sessions that fill the memory without end, and one background session.
  SimOptions options = SmallMemory();
  options.swap_bytes = 256 << 20;
  std::vector<SimTurn> turns;
  for (uint64_t i = 0; i < 80; ++i) {
    turns.push_back(Turn(i, static_cast<int64_t>(i) * kSecond, 1500, 200));
  }
  turns.push_back(Turn(999, kSecond, 1500, 40, kBackground));
  ServingSim sim(options, turns);
  sim.Run();
  ExpectClean(sim);
  ASSERT_TRUE(sim.finished());
  EXPECT_LE(sim.worst_wait_ns(kBackground), options.scheduler.max_wait_ns[1] + 60 * kSecond);
  EXPECT_GT(sim.results()[80].finish_ns, 0);
  EXPECT_LT(sim.results()[80].finish_ns, sim.now_ns());
}

TEST(SchedulerTest, SmallOnesDoNotSlipPastALargeOne) {
  // One session that needs nearly all of the memory, among small ones that never stop coming.
  SimOptions options = SmallMemory();
  std::vector<SimTurn> turns;
  for (uint64_t i = 0; i < 300; ++i) {
    turns.push_back(Turn(i, static_cast<int64_t>(i) * 400 * kMs, 200, 40));
  }
  turns.push_back(Turn(999, 2 * kSecond, 3500, 10));
  ServingSim sim(options, turns);
  sim.Run();
  ExpectClean(sim);
  ASSERT_TRUE(sim.finished());
  // Those that run, or waited longer, finish in some seconds, and nobody is let in meanwhile.
  EXPECT_LE(sim.results()[300].first_token_ns, 25 * kSecond);
  EXPECT_LE(sim.worst_wait_ns(kInteractive), 12 * kSecond);
}

TEST(SchedulerTest, IdleSessionsGiveWayFirstAndComeBack) {
  // Eight sessions, three turns each, one after another: switching moves exactly idle contexts.
  SimOptions options = SmallMemory();
  options.swap_bytes = 256 << 20;
  std::vector<SimTurn> turns;
  for (int64_t round = 0; round < 3; ++round) {
    for (uint64_t i = 0; i < 8; ++i) {
      turns.push_back(Turn(i, (round * 8 + static_cast<int64_t>(i)) * 20 * kSecond, 800, 40));
      turns.back().last = round == 2;
    }
  }
  ServingSim sim(options, turns);
  sim.Run();
  ExpectClean(sim);
  ASSERT_TRUE(sim.finished());
  EXPECT_GT(sim.preemptions(PreemptBy::kSwap), 0);
  EXPECT_EQ(sim.preemptions(PreemptBy::kDrop), 0);
  EXPECT_EQ(sim.forced(), 0);
  // A turn's first token comes after its own 800 tokens and a read of what was swapped (at most
  // 13 MB at 1 GB/s, and as much written at half of that): never after recomputation of the rest.
  for (const SimResult& r : sim.results()) EXPECT_LE(r.first_token_ns, 1400 * kMs);
}

// users.md row 68: on random machines nobody who could run waits longer than is promised; users.md
// row 87: no plan takes more memory than there is.
TEST(SchedulerTest, RandomStreamsKeepEveryPromise) {
  // Thousands of sessions over random machines, models and options.
  int64_t steps = 0, sessions = 0;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    SimOptions options = Machine();
    options.seed = seed;
    options.model.page_bytes = uint64_t{4096} << rng.NextBelow(5);
    if (rng.NextBelow(2) == 0) {
      options.model.window_page_bytes = options.model.page_bytes * (1 + rng.NextBelow(5));
      options.model.window_tokens = static_cast<int32_t>(16 + rng.NextBelow(200));
    }
    if (rng.NextBelow(2) == 0) options.model.state_bytes = rng.NextBelow(1 << 18);
    const uint64_t lone = SimSequenceBytes(&options.model, 900, 64);
    options.budget_bytes = lone + lone * rng.NextBelow(20);
    options.prefix_bytes = options.budget_bytes / 2;
    if (rng.NextBelow(3) > 0) options.swap_bytes = options.budget_bytes * 4;
    options.swap_in_steps = static_cast<int32_t>(rng.NextBelow(3));
    options.noise = 0.2;
    options.scheduler.policy =
        rng.NextBelow(4) == 0 ? SchedulePolicy::kRoundRobin : SchedulePolicy::kDeadline;
    options.scheduler.logit_rows = static_cast<int32_t>(1 + rng.NextBelow(40));
    options.scheduler.max_running = static_cast<int32_t>(1 + rng.NextBelow(40));
    options.scheduler.step_budget_ns = static_cast<int64_t>(5 + rng.NextBelow(300)) * kMs;
    options.scheduler.min_run_tokens = static_cast<int32_t>(1 + rng.NextBelow(64));
    options.scheduler.step_rows = static_cast<int32_t>(8 + rng.NextBelow(512));
    options.scheduler.min_chunk = static_cast<int32_t>(1 + rng.NextBelow(8));

    std::vector<SimTurn> turns;
    int64_t at = 0;
    for (uint64_t i = 0; i < 150; ++i) {
      at += static_cast<int64_t>(rng.NextBelow(1500)) * kMs;
      const auto count = 1 + rng.NextBelow(3);
      const LatencyClass c = rng.NextBelow(3) == 0 ? kBackground : kInteractive;
      for (uint64_t turn = 0; turn < count; ++turn) {
        SimTurn t = Turn(i, at + static_cast<int64_t>(turn * rng.NextBelow(30)) * kSecond,
                         static_cast<int32_t>(1 + rng.NextBelow(rng.NextBelow(4) == 0 ? 250 : 30)),
                         static_cast<int32_t>(1 + rng.NextBelow(40)), c);
        t.weight = static_cast<uint32_t>(1 + rng.NextBelow(4));
        t.token_period_ns =
            rng.NextBelow(2) == 0 ? static_cast<int64_t>(rng.NextBelow(500)) * kMs : 0;
        t.last = turn + 1 == count;
        turns.push_back(t);
      }
      ++sessions;
    }
    // Sometimes a session that no budget holds: it is refused, and harms nobody.
    turns.push_back(Turn(5000, 10 * kSecond, 1 << 20, 4));
    ServingSim sim(options, turns);
    steps += sim.Run(INT64_MAX, 100'000);
    ExpectClean(sim);
    EXPECT_TRUE(sim.finished());
    EXPECT_LE(sim.peak_bytes(), options.budget_bytes);
    for (size_t i = 0; i < turns.size(); ++i) {
      EXPECT_EQ(sim.results()[i].refused, i + 1 == turns.size()) << i;
      const int32_t expected = i + 1 == turns.size() ? 0 : turns[i].output_tokens;
      EXPECT_EQ(sim.results()[i].tokens, expected) << i;
    }
    if (HasFailure()) return;
  }
  RecordProperty("steps", std::to_string(steps));
  RecordProperty("sessions", std::to_string(sessions));
}

}  // namespace
}  // namespace cellm
