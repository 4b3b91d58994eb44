// Single plans of the scheduler: who gives way, how, and in which order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "support/heap_count.h"
#include "support/paths.h"
#include "support/serving_sim.h"

namespace cellm {
namespace {

constexpr LatencyClass kInteractive = LatencyClass::kInteractive;
constexpr LatencyClass kBackground = LatencyClass::kBackground;
constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1000 * kMs;
constexpr uint64_t kMiB = 1 << 20;

// 1 MiB a token, so that bytes are easy to count; a clock that reads 100 s.
constexpr int64_t kNow = 100 * kSecond;
uint64_t MiBPerToken(const void*, int32_t position, int32_t chunk) {
  return kMiB * static_cast<uint64_t>(position + chunk);
}

SchedulerOptions Options() {
  SchedulerOptions options;
  options.sequence_bytes = MiBPerToken;
  options.min_run_tokens = 4;
  return options;
}

// Decoding at `position`, having run long enough to be preempted.
RequestView Decoding(uint64_t id, int32_t position, LatencyClass c = kInteractive) {
  RequestView v;
  v.id = id;
  v.latency_class = c;
  v.arrival_ns = kNow - kSecond;
  v.last_served_ns = kNow - 50 * kMs;
  v.tokens_left = 1;
  v.decoding = true;
  v.position = position;
  v.residency = Residency::kResident;
  v.bytes_held = kMiB * static_cast<uint64_t>(position);
  v.final_bytes = kMiB * static_cast<uint64_t>(position + 1);
  v.recompute_tokens = position;
  v.served_since_restore = 100;
  return v;
}
RequestView Idle(uint64_t id, int32_t position) {
  RequestView v = Decoding(id, position);
  v.tokens_left = 0;
  v.decoding = false;
  return v;
}
RequestView Prompt(uint64_t id, int32_t tokens, LatencyClass c = kInteractive) {
  RequestView v;
  v.id = id;
  v.latency_class = c;
  v.arrival_ns = kNow - kSecond;
  v.tokens_left = tokens;
  v.final_bytes = kMiB * static_cast<uint64_t>(tokens);
  return v;
}

// The plan in words: "swap 3, drop 4; start 9; 9:16 1:1".
std::string Words(const StepPlan& plan, const std::vector<RequestView>& views) {
  std::ostringstream text;
  for (const uint32_t view : plan.refuse) text << "refuse " << views[view].id << ", ";
  if (plan.reclaim_bytes > 0) text << "reclaim " << plan.reclaim_bytes / kMiB << ", ";
  for (const Preemption& p : plan.preempt) {
    const char* const names[] = {"pause ", "swap ", "drop "};
    text << names[static_cast<int>(p.by)] << views[p.view].id << ", ";
  }
  for (const Restoration& r : plan.restore) {
    const char* const names[] = {"resume ", "read ", "start "};
    text << names[static_cast<int>(r.by)] << views[r.view].id << ", ";
  }
  for (const PlanItem& i : plan.items) text << views[i.view].id << ":" << i.tokens << " ";
  return text.str();
}

struct Case {
  const char* name;
  std::vector<RequestView> views;
  int64_t free_mib;
  uint64_t reclaimable_mib;
  uint64_t swap_mib;
  const char* expected;
};

RequestView With(RequestView v, void (*change)(RequestView&)) {
  change(v);
  return v;
}

TEST(SchedulerChoiceTest, WhoGivesWay) {
  const Case cases[] = {
      {"enough memory: nobody", {Decoding(1, 50), Decoding(2, 50)}, 2, 0, 0, "1:1 2:1 "},
      {"unused prefixes go before anybody's pages",
       {Decoding(1, 50), Decoding(2, 50), Idle(3, 10)},
       0,
       5,
       0,
       "reclaim 2, 1:1 2:1 "},
      {"idle sessions before running ones",
       {Decoding(1, 50), Decoding(2, 50, kBackground), Idle(3, 10)},
       0,
       0,
       0,
       "drop 3, 1:1 2:1 "},
      {"one idle session that is enough, not two",
       {Decoding(1, 50), Idle(3, 1), Idle(4, 30)},
       0,
       0,
       0,
       "drop 3, 1:1 "},
      {"a small one is spared when a larger one must go anyway",
       {With(Prompt(1, 20), [](RequestView& v) { v.arrival_ns = kNow; }), Idle(3, 2), Idle(4, 30)},
       0,
       0,
       0,
       "drop 4, start 1, 1:20 "},
      {"background before interactive",
       {Decoding(1, 50), Decoding(2, 50), Decoding(5, 3, kBackground)},
       0,
       0,
       0,
       "drop 5, 1:1 2:1 "},
      {"who is paused before who runs",
       {Decoding(1, 50), With(Decoding(2, 9, kBackground), [](RequestView& v) { v.paused = true; }),
        Decoding(5, 9, kBackground)},
       0,
       0,
       0,
       "drop 2, 1:1 5:1 "},
      {"the latest deadline of equals: none at all is latest",
       {With(Decoding(1, 50), [](RequestView& v) { v.deadline_ns = kNow + kMs; }),
        With(Decoding(2, 50), [](RequestView& v) { v.deadline_ns = kNow + kSecond; }),
        Decoding(3, 50)},
       0,
       0,
       0,
       "drop 3, 1:1 2:1 "},
      {"never one that was only just restored",
       {Decoding(1, 50),
        With(Decoding(2, 50, kBackground), [](RequestView& v) { v.served_since_restore = 3; }),
        Decoding(3, 50, kBackground)},
       0,
       0,
       0,
       "drop 3, 1:1 2:1 "},
      {"unless nothing else would go on",
       {With(Decoding(1, 50), [](RequestView& v) { v.served_since_restore = 3; }),
        With(Decoding(2, 50), [](RequestView& v) { v.served_since_restore = 3; })},
       0,
       0,
       0,
       "drop 2, 1:1 "},
      {"a waiting prompt of the same class does not push out whoever runs",
       {Decoding(1, 50), Prompt(2, 10)},
       1,
       0,
       0,
       "1:1 "},
      {"an interactive prompt pushes out background",
       {Prompt(1, 20), Decoding(2, 50, kBackground)},
       0,
       0,
       0,
       "drop 2, start 1, 1:20 "},
      {"one that has waited too long pushes out its equals",
       {With(Prompt(1, 20), [](RequestView& v) { v.arrival_ns = kNow - 3 * kSecond; }),
        Decoding(2, 50)},
       0,
       0,
       0,
       "drop 2, start 1, 1:20 "},
      {"but not before they had their turn",
       {With(Prompt(1, 20), [](RequestView& v) { v.arrival_ns = kNow - 3 * kSecond; }),
        With(Decoding(2, 50), [](RequestView& v) { v.run_ns_since_restore = 150e6; })},
       1,
       0,
       0,
       "2:1 "},
      {"nobody is pushed out for one that would not fit even then",
       {With(Prompt(1, 60), [](RequestView& v) { v.arrival_ns = kNow - 3 * kSecond; }),
        Decoding(2, 50)},
       1,
       0,
       0,
       "2:1 "},
      {"a chunk is cut to the memory before anybody gives way",
       {With(Prompt(1, 40), [](RequestView& v) { v.residency = Residency::kResident; }),
        Idle(2, 50)},
       7,
       0,
       0,
       "1:7 "},
      {"a budget that was cut takes effect at once, last come first",
       {Decoding(1, 50), Decoding(2, 50), Decoding(3, 50, kBackground)},
       -60,
       0,
       0,
       "drop 3, drop 2, 1:1 "},
      {"who shares all it holds, and would have to copy it, goes before the first is refused",
       {With(Decoding(1, 50),
             [](RequestView& v) {
               v.bytes_held = 0;
               v.copy_bytes = 8 * kMiB;
             }),
        With(Decoding(2, 50),
             [](RequestView& v) {
               v.bytes_held = 0;
               v.copy_bytes = 8 * kMiB;
             })},
       3,
       0,
       500,
       "drop 2, "},
      {"what can never fit is refused",
       {Decoding(1, 50), Prompt(2, 5000)},
       10,
       0,
       0,
       "refuse 2, 1:1 "},
      {"what is in the swap file is read and runs later",
       {Decoding(1, 50), With(Decoding(2, 20),
                              [](RequestView& v) {
                                v.residency = Residency::kSwapped;
                                v.bytes_held = 0;
                                v.restore_bytes = 20 * kMiB;
                              })},
       40,
       0,
       500,
       "read 2, 1:1 "},
      {"what is on its way is left alone",
       {Decoding(1, 50),
        With(Decoding(2, 20), [](RequestView& v) { v.residency = Residency::kMoving; })},
       40,
       0,
       500,
       "1:1 "},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Scheduler scheduler(Options());
    Resources resources;
    resources.free_bytes = c.free_mib * static_cast<int64_t>(kMiB);
    resources.reclaimable_bytes = c.reclaimable_mib * kMiB;
    resources.swap_free_bytes = c.swap_mib * kMiB;
    resources.budget_bytes = 1000 * kMiB;
    const StepPlan& plan = scheduler.Plan(c.views, resources, CostModel{}, {}, kNow);
    EXPECT_EQ(Words(plan, c.views), c.expected);
  }
}

TEST(SchedulerChoiceTest, TheCheapestWayOut) {
  // 100 MiB in 100 tokens. Evaluating them again takes 10 ms + 100 * prompt_row_ns.
  struct Way {
    const char* name;
    double prompt_row_ns, write_mib, read_mib;
    uint64_t swap_mib;
    const char* expected;
  };
  const Way ways[] = {
      {"a fast disk", 10e6, 1000, 1000, 500, "swap 2, 1:1 "},
      {"a slow disk", 10e6, 50, 1000, 500, "drop 2, 1:1 "},
      {"reading counts as well", 10e6, 1000, 50, 500, "drop 2, 1:1 "},
      {"a fast processor", 1e6, 1000, 1000, 500, "drop 2, 1:1 "},
      {"no swap file", 10e6, 1000, 1000, 0, "drop 2, 1:1 "},
      {"a full one", 10e6, 1000, 1000, 99, "drop 2, 1:1 "},
  };
  for (const Way& way : ways) {
    SCOPED_TRACE(way.name);
    const std::vector<RequestView> views = {Decoding(1, 50), Idle(2, 100)};
    CostModel cost;
    cost.prompt_row_ns = way.prompt_row_ns;
    cost.attended_ns = 0;
    cost.swap_write_bytes_per_second = way.write_mib * static_cast<double>(kMiB);
    cost.swap_read_bytes_per_second = way.read_mib * static_cast<double>(kMiB);
    Resources resources;
    resources.budget_bytes = 1000 * kMiB;
    resources.swap_free_bytes = way.swap_mib * kMiB;
    Scheduler scheduler(Options());
    EXPECT_EQ(Words(scheduler.Plan(views, resources, cost, {}, kNow), views), way.expected);
  }
  // Shared pages cost nothing to bring back: what the prefix tree keeps is not evaluated again.
  std::vector<RequestView> views = {Decoding(1, 50), Idle(2, 100)};
  views[1].recompute_tokens = 0;
  Resources resources;
  resources.budget_bytes = 1000 * kMiB;
  resources.swap_free_bytes = 500 * kMiB;
  CostModel cost;
  cost.swap_write_bytes_per_second = cost.swap_read_bytes_per_second = 1e12;
  Scheduler scheduler(Options());
  EXPECT_EQ(Words(scheduler.Plan(views, resources, cost, {}, kNow), views), "drop 2, 1:1 ");
}

TEST(SchedulerChoiceTest, APlaceCostsAPauseAndNoMemory) {
  SchedulerOptions options = Options();
  options.max_running = 2;
  Scheduler scheduler(options);
  Resources resources;
  resources.free_bytes = 900 * kMiB;
  resources.budget_bytes = 1000 * kMiB;
  std::vector<RequestView> views = {Decoding(1, 5), Decoding(2, 5, kBackground), Prompt(3, 8)};
  EXPECT_EQ(Words(scheduler.Plan(views, resources, CostModel{}, {}, kNow), views),
            "pause 2, start 3, 1:1 3:5 ");
  // It comes back when there is a place; nothing is read or evaluated for it.
  views = {Decoding(1, 5), Decoding(2, 5, kBackground)};
  views[1].paused = true;
  EXPECT_EQ(Words(scheduler.Plan(views, resources, CostModel{}, {}, kNow), views),
            "resume 2, 1:1 2:1 ");
}

TEST(SchedulerChoiceTest, HeatStopsClassesAndTokens) {
  Scheduler scheduler(Options());
  Resources resources;
  resources.free_bytes = 900 * kMiB;
  resources.budget_bytes = 1000 * kMiB;
  resources.class_allowed[1] = false;
  const std::vector<RequestView> views = {Decoding(1, 5), Decoding(2, 5),
                                          Decoding(3, 5, kBackground)};
  EXPECT_EQ(Words(scheduler.Plan(views, resources, CostModel{}, {}, kNow), views), "1:1 2:1 ");
  resources.decode_rows_allowed = 1;
  EXPECT_EQ(Words(scheduler.Plan(views, resources, CostModel{}, {}, kNow), views), "1:1 ");
  resources.decode_rows_allowed = 0;
  resources.rows_again_ns = kNow + 70 * kMs;
  const StepPlan& plan = scheduler.Plan(views, resources, CostModel{}, {}, kNow);
  EXPECT_EQ(Words(plan, views), "");
  EXPECT_EQ(plan.wake_ns, kNow + 70 * kMs);
}

TEST(SchedulerChoiceTest, NothingToDoSleepsUntilSomethingChanges) {
  Scheduler scheduler(Options());
  Resources resources;
  resources.budget_bytes = 1000 * kMiB;
  EXPECT_EQ(scheduler.Plan({}, resources, CostModel{}, {}, kNow).wake_ns, INT64_MAX);
  const std::vector<RequestView> views = {Idle(1, 10)};
  const StepPlan& plan = scheduler.Plan(views, resources, CostModel{}, {}, kNow);
  EXPECT_EQ(Words(plan, views), "");
  EXPECT_EQ(plan.wake_ns, INT64_MAX);
}

TEST(SchedulerChoiceTest, PlansAllocateNothingOnceWarm) {
  Scheduler scheduler(Options());
  Resources resources;
  resources.free_bytes = 10 * static_cast<int64_t>(kMiB);
  resources.budget_bytes = 100'000 * kMiB;
  std::vector<RequestView> views;
  for (uint64_t i = 0; i < 300; ++i) {
    views.push_back(i % 3 == 0   ? Prompt(i, 40)
                    : i % 3 == 1 ? Decoding(i, 20, kBackground)
                                 : Idle(i, 20));
  }
  scheduler.Plan(views, resources, CostModel{}, {}, kNow);
  const int64_t before = testing::HeapAllocations();
  for (int64_t i = 0; i < 10; ++i) {
    scheduler.Plan(views, resources, CostModel{}, {}, kNow + i * kSecond);
  }
  EXPECT_EQ(testing::HeapAllocations() - before, 0);
}

// ---- streams of a file -------------------------------------------------------------------------

// testdata/arrivals/README.md says what the columns are and where they come from.
std::vector<testing::SimTurn> ReadArrivals(const std::string& name) {
  std::ifstream file(testing::TestData("arrivals/" + name));
  EXPECT_TRUE(file.good()) << name;
  std::vector<testing::SimTurn> turns;
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    testing::SimTurn turn;
    double seconds = 0;
    std::string kind;
    words >> seconds >> turn.session >> kind >> turn.prompt_tokens >> turn.output_tokens;
    EXPECT_FALSE(words.fail()) << line;
    turn.arrival_ns = static_cast<int64_t>(seconds * 1e9);
    turn.latency_class = kind == "background" ? kBackground : kInteractive;
    turn.last = false;
    turns.push_back(turn);
  }
  return turns;
}

TEST(SchedulerChoiceTest, ArrivalStreamsReplay) {
  const std::vector<testing::SimTurn> turns = ReadArrivals("day.txt");
  ASSERT_GE(turns.size(), 100u);
  uint64_t hash = 0;
  for (int round = 0; round < 2; ++round) {
    testing::SimOptions options;
    options.cost.step_ns = 20e6;
    options.model.page_bytes = 64 << 10;
    options.budget_bytes = 24 << 20;
    options.swap_bytes = 512 << 20;
    options.learn = true;  // the scheduler knows only what it measures, noise and all
    options.noise = 0.1;
    options.check_time = false;
    testing::ServingSim sim(options, turns);
    sim.Run();
    ASSERT_TRUE(sim.finished());
    for (const std::string& violation : sim.violations()) ADD_FAILURE() << violation;
    EXPECT_LE(sim.peak_bytes(), options.budget_bytes);
    std::vector<int64_t> gaps;
    for (size_t i = 0; i < turns.size(); ++i) {
      EXPECT_EQ(sim.results()[i].tokens, turns[i].output_tokens);
      if (turns[i].latency_class == kInteractive) gaps.push_back(sim.results()[i].worst_gap_ns);
    }
    std::sort(gaps.begin(), gaps.end());
    EXPECT_LE(gaps[gaps.size() * 9 / 10], 150 * kMs);
    // The same stream gives the same plans.
    if (round == 0) hash = sim.plan_hash();
    EXPECT_EQ(sim.plan_hash(), hash);
  }
}

}  // namespace
}  // namespace cellm
