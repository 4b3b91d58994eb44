// Heat: levels, limits and pacing, on recorded and invented temperatures and on a simulated device.
#include "engine/thermal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "support/paths.h"
#include "support/serving_sim.h"

namespace cellm {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1000 * kMs;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(ThermalTest, RisesAtTheMarkAndFallsBelowTheMargin) {
  struct Reading {
    double seconds, celsius;
    ThermalLevel level;  // after it
  };
  using enum ThermalLevel;
  const Reading readings[] = {
      {0, 60, kNominal},     {1, 69.9, kNominal},   {2, 70, kNominal},     // not for half a second
      {2.4, 71, kNominal},   {2.5, 71, kElevated},                         // yet; now
      {3, 69, kElevated},    {20, 66.1, kElevated},                        // inside the margin
      {21, 65.9, kElevated}, {30.9, 65, kElevated}, {31, 65, kNominal},    // ten seconds below it
      {40, 75, kNominal},    {40.2, 69, kNominal},  {40.6, 75, kNominal},  // a dip starts it anew
      {41.1, 75, kElevated}, {42, 91, kEmergency},                         // at once, two levels up
      {43, 20, kEmergency},  {53, 20, kCritical},   {62.9, 20, kCritical},  // down by one at a time
      {63, 20, kElevated},   {72, 68, kElevated},   {73, 20, kElevated},    // interrupted
      {82.9, 20, kElevated}, {83, 20, kNominal},
  };
  ThermalGovernor governor;
  for (const Reading& r : readings) {
    governor.ObserveTemperature(r.celsius, static_cast<int64_t>(std::llround(r.seconds * 1e9)));
    EXPECT_EQ(governor.level(), r.level) << r.seconds << " s, " << r.celsius << " C";
  }
}

TEST(ThermalTest, TheSystemsOwnLevelCountsAtOnceAndFallsSlowly) {
  ThermalGovernor governor;
  governor.ObserveLevel(ThermalLevel::kCritical, 0);
  EXPECT_EQ(governor.level(), ThermalLevel::kCritical);
  governor.ObserveLevel(ThermalLevel::kNominal, kSecond);
  EXPECT_EQ(governor.level(), ThermalLevel::kCritical);
  governor.ObserveLevel(ThermalLevel::kNominal, 11 * kSecond);
  EXPECT_EQ(governor.level(), ThermalLevel::kElevated);
  governor.ObserveLevel(ThermalLevel::kNominal, 21 * kSecond);
  EXPECT_EQ(governor.level(), ThermalLevel::kNominal);
}

TEST(ThermalTest, BrokenSensorsChangeNothing) {
  ThermalGovernor governor;
  governor.ObserveTemperature(75, 0);
  governor.ObserveTemperature(75, kSecond);
  ASSERT_EQ(governor.level(), ThermalLevel::kElevated);
  for (const double bad : {kNan, HUGE_VAL, -HUGE_VAL, -273.0, 5000.0}) {
    for (int i = 2; i < 40; ++i) governor.ObserveTemperature(bad, i * kSecond);
    EXPECT_EQ(governor.level(), ThermalLevel::kElevated);
  }
  governor.ObserveTemperature(95, 0);  // from before the last one
  EXPECT_EQ(governor.level(), ThermalLevel::kElevated);
}

TEST(ThermalTest, LimitsTightenWithEachLevelAndNeverStopTheInteractiveClass) {
  for (const PowerHint power : {PowerHint::kNormal, PowerHint::kSaver, PowerHint::kPlugged}) {
    double rate_before = HUGE_VAL;
    ThermalLimits before = LimitsFor(ThermalLevel::kNominal, power);
    for (int level = 0; level < kThermalLevels; ++level) {
      const ThermalLimits limits = LimitsFor(static_cast<ThermalLevel>(level), power);
      const double rate = limits.tokens_per_second > 0 ? limits.tokens_per_second : HUGE_VAL;
      EXPECT_LE(limits.duty_percent, before.duty_percent);
      EXPECT_LE(limits.threads_percent, before.threads_percent);
      EXPECT_LE(limits.background, before.background);
      EXPECT_LE(rate, rate_before);
      EXPECT_GE(limits.duty_percent, 10);
      EXPECT_GE(rate, 1);
      for (const int32_t cores : {1, 2, 3, 8, 128}) {
        EXPECT_GE(limits.Threads(cores), 1);
        EXPECT_LE(limits.Threads(cores), cores);
      }
      before = limits;
      rate_before = rate;
    }
  }
}

TEST(ThermalTest, ThePacerKeepsRateAndDuty) {
  for (const double rate : {0.0, 2.0, 7.3, 30.0}) {
    for (const int32_t duty : {15, 40, 100}) {
      const ThermalLimits limits{duty, rate, 100, true};
      Pacer pacer;
      int64_t now = 0, busy = 0, tokens = 0;
      while (now < 200 * kSecond) {
        const Pacer::Grant grant = pacer.Ask(limits, now);
        ASSERT_GE(grant.start_ns, now);
        if (grant.start_ns > now) {
          now = grant.start_ns;
          continue;
        }
        if (grant.tokens == 0) {
          ASSERT_GT(grant.more_ns, now) << "no time passes";
          now = grant.more_ns;
          ASSERT_GE(pacer.Ask(limits, now).tokens, 1) << "the promised token is not there";
          continue;
        }
        const int32_t made = std::min(grant.tokens, 3);
        pacer.Done(limits, now, now + 30 * kMs, made);
        now += 30 * kMs;
        busy += 30 * kMs;
        tokens += made;
      }
      const double seconds = static_cast<double>(now) * 1e-9;
      EXPECT_LE(static_cast<double>(busy), static_cast<double>(now) * duty / 100 + 30e6);
      const double cap = rate > 0 ? rate * (seconds + 0.5) + 1 : HUGE_VAL;
      EXPECT_LE(static_cast<double>(tokens), cap);
      // And does not waste what it may use.
      const double by_duty = seconds * duty / 100 / 0.030 * 3;
      const double most = rate > 0 ? std::min(rate * seconds, by_duty) : by_duty;
      EXPECT_GE(static_cast<double>(tokens), 0.95 * most) << rate << " " << duty;
    }
  }
}

// ---- a device ---------------------------------------------------------------------------------

struct Device {
  const char* name;
  double ambient_celsius;
  double watts_idle;
  double watts_per_thread;  // while computing
  int32_t threads;
  double joules_per_kelvin;
  double watts_per_kelvin;  // to the ambient
  double sensor_noise;      // Celsius
};
constexpr Device kDevices[] = {
    // Full power would settle at 25 + 6.5 / 0.08 = 106 C.
    {"phone", 25, 0.5, 1.5, 4, 12, 0.08, 0.5},
    // In the sun: 40 + 6.5 / 0.08 = 121 C.
    {"phone in the sun", 40, 0.5, 1.5, 4, 12, 0.08, 0.5},
    // A small board without a fan, light and quick to heat: 25 + 8.4 / 0.1 = 109 C.
    {"board", 25, 2, 1.6, 4, 4, 0.1, 1.0},
    // Well cooled: 25 + 30 / 1 = 55 C. Nothing may be held back.
    {"desktop", 25, 6, 3, 8, 200, 1.0, 1.0},
};

struct Ride {
  double hottest = 0;
  int level_changes = 0;
  int64_t tokens = 0;
  int64_t worst_gap_ns = 0;
  double busy_share = 0;
  ThermalLevel worst_level = ThermalLevel::kNominal;
};

// An hour of uninterrupted decoding. Fewer threads make a step longer in proportion.
Ride DecodeForAnHour(const Device& device, bool governed) {
  Ride ride;
  ThermalGovernor governor;
  Pacer pacer;
  Rng rng(7);
  double celsius = device.ambient_celsius;
  int64_t now = 0, last_token = 0, busy_until = 0, busy = 0;
  int32_t running_threads = 0;
  constexpr int64_t kTick = 10 * kMs;
  ThermalLevel level = ThermalLevel::kNominal;
  while (now < 3600 * kSecond) {
    const ThermalLimits limits = governed ? governor.limits() : ThermalLimits{};
    if (now >= busy_until) {
      running_threads = 0;
      const Pacer::Grant grant = pacer.Ask(limits, now);
      if (grant.start_ns <= now && grant.tokens > 0) {
        running_threads = limits.Threads(device.threads);
        busy_until = now + 40 * kMs * device.threads / running_threads;
        pacer.Done(limits, now, busy_until, 1);
        ++ride.tokens;
        ride.worst_gap_ns = std::max(ride.worst_gap_ns, busy_until - last_token);
        last_token = busy_until;
        busy += busy_until - now;
      }
    }
    const double watts = device.watts_idle + device.watts_per_thread * running_threads;
    celsius += (watts - device.watts_per_kelvin * (celsius - device.ambient_celsius)) *
               (static_cast<double>(kTick) * 1e-9) / device.joules_per_kelvin;
    ride.hottest = std::max(ride.hottest, celsius);
    now += kTick;
    if (now % (200 * kMs) == 0) {
      governor.ObserveTemperature(celsius + device.sensor_noise * (2 * rng.NextDouble() - 1), now);
      if (governor.level() != level) ++ride.level_changes;
      level = governor.level();
      ride.worst_level = std::max(ride.worst_level, level);
    }
  }
  ride.busy_share = static_cast<double>(busy) / 3600e9;
  return ride;
}

TEST(ThermalTest, ADeviceStaysBelowItsMarkAndKeepsTalking) {
  for (const Device& device : kDevices) {
    SCOPED_TRACE(device.name);
    const double full =
        device.ambient_celsius +
        (device.watts_idle + device.watts_per_thread * device.threads) / device.watts_per_kelvin;
    EXPECT_NEAR(DecodeForAnHour(device, false).hottest, full, 1.0);  // the model of the device
    const Ride ride = DecodeForAnHour(device, true);
    if (full < 70) {
      EXPECT_EQ(ride.level_changes, 0);
      EXPECT_NEAR(ride.busy_share, 1.0, 0.01);
      continue;
    }
    // It is held at the critical mark of 80 C: half a second and the sensor's noise may pass until
    // the governor acts, during which the quickest of these devices gains two degrees.
    EXPECT_LE(ride.hottest, 80 + 2 + device.sensor_noise);
    EXPECT_LT(ride.worst_level, ThermalLevel::kEmergency);
    // Levels do not flap: a fall waits ten seconds, and each rise needs a fall before it.
    EXPECT_LE(ride.level_changes, 3600 / 10 * 2);
    // Nobody who waits for a token is left alone: the slowest level that was reached gives 8 a
    // second, in 40% of the time, on half of the threads: 80 ms of work and 120 ms of rest.
    EXPECT_LE(ride.worst_gap_ns, 220 * kMs);
    EXPECT_GE(ride.tokens, 3600 * 4);
  }
}

// Interactive and background requests through scheduler, governor and pacer together.
TEST(ThermalTest, HeatStopsTheBackgroundAndNotTheConversation) {
  testing::SimOptions options;
  options.cost.step_ns = 20e6;
  options.budget_bytes = uint64_t{1} << 30;
  std::vector<testing::SimTurn> turns(2);
  turns[0].session = 1;
  turns[0].prompt_tokens = 100;
  turns[0].output_tokens = 1 << 14;
  turns[1] = turns[0];
  turns[1].session = 2;
  turns[1].latency_class = LatencyClass::kBackground;
  testing::ServingSim sim(options, turns);
  ThermalGovernor governor;
  Pacer pacer;
  int32_t tokens_before = 0;
  const auto run = [&](int64_t seconds) {
    const int64_t end = sim.now_ns() + seconds * kSecond;
    while (sim.now_ns() < end && !sim.finished()) {
      const ThermalLimits limits = governor.limits();
      const Pacer::Grant grant = pacer.Ask(limits, sim.now_ns());
      sim.AdvanceTo(grant.start_ns);
      sim.extra.class_allowed[1] = limits.background;
      sim.extra.decode_rows_allowed = grant.tokens;
      sim.extra.rows_again_ns = grant.more_ns;
      const int64_t start = sim.now_ns();
      sim.Run(end, 1);
      const int32_t made = sim.results()[0].tokens + sim.results()[1].tokens - tokens_before;
      tokens_before += made;
      if (made > 0) pacer.Done(limits, start, sim.now_ns(), made);
    }
  };
  const auto rates = [&](int64_t seconds) {
    const int32_t chat = sim.results()[0].tokens, other = sim.results()[1].tokens;
    run(seconds);
    return std::pair(
        static_cast<double>(sim.results()[0].tokens - chat) / static_cast<double>(seconds),
        static_cast<double>(sim.results()[1].tokens - other) / static_cast<double>(seconds));
  };
  run(5);
  const auto cool = rates(20);
  EXPECT_GT(cool.first, 30);
  EXPECT_GT(cool.second, 30);
  governor.ObserveLevel(ThermalLevel::kCritical, sim.now_ns());
  run(1);
  const auto critical = rates(20);
  EXPECT_NEAR(critical.first, 8, 0.5);
  EXPECT_EQ(critical.second, 0);
  governor.ObserveLevel(ThermalLevel::kEmergency, sim.now_ns());
  run(1);
  const auto emergency = rates(20);
  EXPECT_NEAR(emergency.first, 2, 0.2);
  EXPECT_EQ(emergency.second, 0);
  for (const std::string& violation : sim.violations()) ADD_FAILURE() << violation;
}

// ---- traces -----------------------------------------------------------------------------------

// testdata/thermal/README.md has the form of the lines; expectations there were worked out by hand.
void Replay(const std::string& name) {
  SCOPED_TRACE(name);
  std::ifstream file(testing::TestData("thermal/" + name));
  ASSERT_TRUE(file.good());
  std::string line;
  ThermalOptions options;
  ThermalGovernor governor(options);
  int readings = 0, expectations = 0;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (first == "marks") {
      double* const marks = options.raise_celsius;
      words >> marks[0] >> marks[1] >> marks[2] >> first >> options.margin_celsius;
      ASSERT_EQ(first, "margin");
      governor = ThermalGovernor(options);
    } else if (first == "expect") {
      double seconds = 0;
      int level = -1;
      words >> seconds >> level;
      EXPECT_EQ(static_cast<int>(governor.level()), level) << "at " << seconds << " s";
      ++expectations;
    } else {
      double celsius = kNan;
      words >> celsius;
      governor.ObserveTemperature(
          celsius, static_cast<int64_t>(std::llround(std::strtod(first.c_str(), nullptr) * 1e9)));
      ++readings;
    }
  }
  EXPECT_GE(readings, 100);
  EXPECT_GE(expectations, 9);
}

// users.md row 92: temperatures from real hardware, replayed.
TEST(ThermalTest, TracesReplay) {
  Replay("accelerator.trace");
  Replay("phone.trace");
}

}  // namespace
}  // namespace cellm
