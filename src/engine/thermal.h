#ifndef CELLM_SRC_ENGINE_THERMAL_H_
#define CELLM_SRC_ENGINE_THERMAL_H_

// Heat and power: how fast, on how many threads and for whom the engine computes.
//
//   temperature, or the system's own level --> ThermalGovernor --> ThermalLimits --> Pacer
//                        power hint ------------^                                      |
//                                                   when the next step may begin, how many
//                                                   tokens it may produce  <-----------+
//
// The library reads no sensor: an app tells it what the operating system says. Everything here is
// arithmetic on arguments; the clock is the caller's reading.
//
// Heat goes with the share of time in which cores compute, so each level caps that share (duty) and
// the threads; the cap on tokens a second keeps a hot device from being faster than its reader. The
// interactive class is served at every level, if slowly: a caller never waits without an end.

#include <cstdint>

namespace cellm {

enum class ThermalLevel : uint8_t { kNominal = 0, kElevated = 1, kCritical = 2, kEmergency = 3 };
inline constexpr int kThermalLevels = 4;

enum class PowerHint : uint8_t { kNormal = 0, kSaver = 1, kPlugged = 2 };
inline constexpr int kPowerHints = 3;

struct ThermalLimits {
  int32_t duty_percent = 100;     // of time in which a step may be running
  double tokens_per_second = 0;   // of all requests together; 0: no cap
  int32_t threads_percent = 100;  // of the threads that the engine has
  bool background = true;         // the background class is served
  // At least 1.
  int32_t Threads(int32_t available) const;
};

// The table that says everything (docs/serving.md shows it).
ThermalLimits LimitsFor(ThermalLevel level, PowerHint power);

struct ThermalOptions {
  // Degrees Celsius from which a level holds: elevated, critical, emergency. Of the processor, not
  // of the skin.
  double raise_celsius[kThermalLevels - 1] = {70, 80, 90};
  double margin_celsius = 4;                // a level ends this far below where it began
  int64_t raise_after_ns = 500'000'000;     // readings must stay above for this long; emergency: 0
  int64_t lower_after_ns = 10'000'000'000;  // and below for this long, for each level down
};

// Invariants: the level rises by as much as the readings say, and falls by one at a time, at least
// lower_after_ns apart and after the last rise. Not safe from several threads.
class ThermalGovernor {
 public:
  explicit ThermalGovernor(const ThermalOptions& options = {}) : options_(options) {}

  // A reading of a sensor. Readings that are not finite or lie outside -60 to 200 are ignored, and
  // so are times before the last one.
  void ObserveTemperature(double celsius, int64_t now_ns);
  // The operating system's own level. Takes effect at once when it rises; falls as above.
  void ObserveLevel(ThermalLevel level, int64_t now_ns);
  // A level that somebody else has steadied: holds at once, falling too.
  void SetLevel(ThermalLevel level) {
    level_ = level;
    above_ = below_ = false;
  }
  void SetPowerHint(PowerHint power) { power_ = power; }

  ThermalLevel level() const { return level_; }
  PowerHint power() const { return power_; }
  ThermalLimits limits() const { return LimitsFor(level_, power_); }

 private:
  void Update(ThermalLevel wanted, int64_t raise_after_ns, int64_t now_ns);

  ThermalOptions options_;
  PowerHint power_ = PowerHint::kNormal;
  ThermalLevel level_ = ThermalLevel::kNominal;
  bool above_ = false, below_ = false;  // readings ask for a higher, a lower level
  int64_t above_since_ns_ = 0;
  int64_t below_since_ns_ = 0;
  int64_t last_ns_ = INT64_MIN;
};

// When steps may begin and how many tokens they may produce, so that limits hold over time. Not
// safe from several threads.
class Pacer {
 public:
  struct Grant {
    int64_t start_ns = 0;  // the next step begins no earlier
    int32_t tokens = 0;    // that it may produce: Resources::decode_rows_allowed
    int64_t more_ns = 0;   // when one more would be allowed: Resources::rows_again_ns
  };
  Grant Ask(const ThermalLimits& limits, int64_t now_ns);
  // A step has run.
  void Done(const ThermalLimits& limits, int64_t start_ns, int64_t end_ns, int32_t tokens);

 private:
  double tokens_ = 1;  // saved up; below 0 after a step that took more than there was
  int64_t saved_until_ns_ = INT64_MIN;
  int64_t ready_ns_ = INT64_MIN;
};

}  // namespace cellm

#endif  // CELLM_SRC_ENGINE_THERMAL_H_
