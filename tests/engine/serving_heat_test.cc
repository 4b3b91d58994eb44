// Heat on a serving engine: levels cap what it does, interactive requests go on at every level, and
// no bit depends on any of it. Time is a clock that the tests move; nothing sleeps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/hash.h"
#include "engine/serving.h"
#include "platform/clock.h"
#include "support/paths.h"
#include "support/tiny_model.h"

namespace cellm {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1000 * kMs;

// Every reading is a millisecond after the one before, so steps take time.
class TickingClock final : public Clock {
 public:
  int64_t NowNs() override { return now_ns_ += kMs; }
  void Advance(int64_t ns) { now_ns_ += ns; }
  int64_t now_ns() const { return now_ns_; }

 private:
  int64_t now_ns_ = kSecond;
};

// A greedy reply: when its tokens came, and the logits that they came from.
struct Reply {
  TickingClock* clock = nullptr;
  std::vector<int64_t> times;
  std::vector<uint64_t> rows;

  static Result<Choice> Choose(void* user, std::span<const float> row) {
    Reply& self = *static_cast<Reply*>(user);
    self.times.push_back(self.clock->now_ns());
    self.rows.push_back(HashXxh3({reinterpret_cast<const uint8_t*>(row.data()), row.size_bytes()}));
    Choice choice;
    choice.token = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
    return choice;
  }
};

struct Device {
  TickingClock clock;
  std::shared_ptr<const Model> model;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Serving> serving;
  Reply interactive, background;

  explicit Device(int32_t context = 2000, const ThermalOptions& thermal = {}) {
    testing::TinyLlama spec;
    spec.max_context = context;
    model = testing::LoadTiny(testing::TinyLlamaFile(spec));
    EngineOptions options;
    options.threads = 2;
    auto created = Engine::Create(model, options);
    EXPECT_TRUE(created.ok()) << created.status().message();
    engine = std::move(created).value();
    ServingOptions serving_options;
    serving_options.clock = &clock;
    serving_options.thermal = thermal;
    serving = std::make_unique<Serving>(*engine, std::move(serving_options));
    interactive.clock = background.clock = &clock;
    Start(&interactive, LatencyClass::kInteractive);
    Start(&background, LatencyClass::kBackground);
  }
  void Start(Reply* reply, LatencyClass latency_class) {
    Serving::Lock lock = serving->Acquire();
    RequestSpec spec;
    spec.tokens = testing::RandomTokens(20, 96, 3);
    spec.planned_tokens = engine->context_tokens();
    spec.latency_class = latency_class;
    spec.keep_past = false;
    spec.hooks = {reply, nullptr, &Reply::Choose, nullptr, nullptr};
    const auto id = serving->Submit(lock, std::move(spec));
    ASSERT_TRUE(id.ok()) << id.status().message();
    serving->AllowTokens(lock, *id, 1 << 20);
  }
  void Report(ThermalLevel level, bool at_once = false) {
    const Serving::Lock lock = serving->Acquire();
    serving->ReportHeat(lock, level, PowerHint::kNormal, at_once);
  }
  ThermalLevel level() {
    const Serving::Lock lock = serving->Acquire();
    return serving->heat(lock).level;
  }
  // Steps until `ns` from now; where nothing may run, time passes.
  void Run(int64_t ns) {
    const int64_t end_ns = clock.now_ns() + ns;
    Serving::Lock lock = serving->Acquire();
    while (clock.now_ns() < end_ns) {
      const Result<bool> ran = serving->DriveOnce(lock);
      ASSERT_TRUE(ran.ok());
      if (ran.value()) continue;
      clock.Advance(std::min(std::max<int64_t>(serving->heat(lock).wait_ns, kMs),
                             std::max<int64_t>(0, end_ns - clock.now_ns())));
    }
  }
};

int64_t CountSince(const std::vector<int64_t>& times, int64_t begin_ns) {
  return std::count_if(times.begin(), times.end(), [=](int64_t t) { return t >= begin_ns; });
}

int64_t LongestGap(const std::vector<int64_t>& times, int64_t begin_ns) {
  int64_t longest = 0;
  int64_t last = begin_ns;
  for (const int64_t time : times) {
    if (time < begin_ns) continue;
    longest = std::max(longest, time - last);
    last = time;
  }
  return longest;
}

TEST(ServingHeat, LevelsCapTokensAndClassesAndStarveNobodyWhoWaits) {
  const struct {
    ThermalLevel level;
    double tokens_per_second;
  } rows[] = {{ThermalLevel::kCritical, 8}, {ThermalLevel::kEmergency, 2}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.tokens_per_second);
    Device device;
    device.Run(kSecond / 2);
    EXPECT_GT(device.interactive.times.size(), 10u);
    EXPECT_GT(device.background.times.size(), 10u);
    device.Report(row.level);
    device.Run(2 * kSecond);  // what was saved up is used
    const int64_t begin_ns = device.clock.now_ns();
    device.Run(20 * kSecond);
    const double count = static_cast<double>(CountSince(device.interactive.times, begin_ns));
    EXPECT_NEAR(count, 20 * row.tokens_per_second, 2);
    EXPECT_EQ(CountSince(device.background.times, begin_ns), 0);
    EXPECT_LE(LongestGap(device.interactive.times, begin_ns),
              static_cast<int64_t>(1.5e9 / row.tokens_per_second));
  }
}

// A level falls by one, ten seconds after the system said so, without anybody saying it again.
TEST(ServingHeat, LevelsFallStepByStepByTimeAlone) {
  Device device;
  device.Report(ThermalLevel::kEmergency);
  EXPECT_EQ(device.level(), ThermalLevel::kEmergency);
  device.Report(ThermalLevel::kNominal);
  const ThermalLevel expected[] = {ThermalLevel::kEmergency, ThermalLevel::kCritical,
                                   ThermalLevel::kElevated, ThermalLevel::kNominal};
  for (const ThermalLevel level : expected) {
    EXPECT_EQ(device.level(), level);
    device.Run(10 * kSecond + 100 * kMs);
  }
  device.Report(ThermalLevel::kEmergency);
  device.Report(ThermalLevel::kElevated, true);
  EXPECT_EQ(device.level(), ThermalLevel::kElevated) << "the caller has steadied it";
}

TEST(ServingHeat, NoBitDependsOnIt) {
  Device cool(160);
  Device hot(160);
  cool.Run(2 * kSecond);
  for (int i = 0; hot.interactive.rows.size() < 100 && i < 400; ++i) {
    const auto level = static_cast<ThermalLevel>(i % kThermalLevels);
    const size_t before = hot.interactive.rows.size();
    hot.Report(level, true);
    hot.Run(kSecond / 4);
    if (hot.interactive.rows.size() == before) continue;
    EXPECT_EQ(hot.engine->active_threads(),
              LimitsFor(level, PowerHint::kNormal).Threads(hot.engine->threads()));
  }
  ASSERT_GE(hot.interactive.rows.size(), 100u);
  ASSERT_GE(cool.interactive.rows.size(), 100u);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(hot.interactive.rows[i], cool.interactive.rows[i]);
}

// The traces of thermal_test.cc, read by an engine that works meanwhile: the level follows the
// expectations, which were worked out by hand, the limits follow it, and tokens keep coming.
void Replay(const std::string& name) {
  SCOPED_TRACE(name);
  std::ifstream file(testing::TestData("thermal/" + name));
  ASSERT_TRUE(file.good());
  std::vector<std::string> lines;
  ThermalOptions marks;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first;
    if (!(words >> first) || first[0] == '#') continue;
    if (first == "marks") {
      double* const raise = marks.raise_celsius;
      words >> raise[0] >> raise[1] >> raise[2] >> first >> marks.margin_celsius;
    } else {
      lines.push_back(line);
    }
  }
  Device device(4000, marks);
  Serving::Lock lock = device.serving->Acquire();
  const int64_t start_ns = device.clock.now_ns();
  int expectations = 0;
  for (const std::string& line : lines) {
    std::istringstream words(line);
    std::string first;
    std::string second;
    words >> first >> second;
    if (first == "expect") {
      const ServingHeat heat = device.serving->heat(lock);
      words >> first;
      EXPECT_EQ(std::to_string(static_cast<int>(heat.level)), first) << "at " << second << " s";
      EXPECT_EQ(heat.limits.duty_percent, LimitsFor(heat.level, heat.power).duty_percent);
      ++expectations;
      continue;
    }
    const auto at_ns = start_ns + static_cast<int64_t>(std::strtod(first.c_str(), nullptr) * 1e9);
    device.clock.Advance(std::max<int64_t>(0, at_ns - kMs - device.clock.now_ns()));
    device.serving->ReportTemperature(lock, std::strtod(second.c_str(), nullptr));
    ASSERT_TRUE(device.serving->DriveOnce(lock).ok());
  }
  EXPECT_GE(expectations, 9);
  EXPECT_GE(device.interactive.times.size(), lines.size() / 2) << "tokens keep coming";
}

TEST(ServingHeat, TracesReplay) {
  Replay("accelerator.trace");
  Replay("phone.trace");
}

}  // namespace
}  // namespace cellm
