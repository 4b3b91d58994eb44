#include "engine/thermal.h"

#include <algorithm>
#include <cmath>

namespace cellm {
namespace {

// Rows: power hint; columns: level. duty, tokens a second, threads, background.
constexpr ThermalLimits kTable[kPowerHints][kThermalLevels] = {
    // normal
    {{100, 0, 100, true}, {70, 0, 75, true}, {40, 8, 50, false}, {15, 2, 25, false}},
    // saver: as if warm already, and nothing that nobody waits for
    {{70, 20, 50, false}, {50, 12, 50, false}, {30, 6, 50, false}, {15, 2, 25, false}},
    // plugged: charging warms the device too, so only the mild level is milder
    {{100, 0, 100, true}, {85, 0, 100, true}, {40, 8, 50, false}, {15, 2, 25, false}},
};

// Tokens may be saved up for this long, so that a reply starts without delay after a pause.
constexpr double kBurstSeconds = 0.5;

}  // namespace

int32_t ThermalLimits::Threads(int32_t available) const {
  return std::max(1, available * threads_percent / 100);
}

ThermalLimits LimitsFor(ThermalLevel level, PowerHint power) {
  return kTable[static_cast<size_t>(power)][static_cast<size_t>(level)];
}

void ThermalGovernor::ObserveTemperature(double celsius, int64_t now_ns) {
  if (!(celsius >= -60 && celsius <= 200)) return;
  // The highest level whose mark is reached; levels that hold already keep holding until the
  // reading is margin_celsius below their mark.
  int wanted = 0;
  for (int i = 1; i < kThermalLevels; ++i) {
    const bool holds = i <= static_cast<int>(level_);
    const double mark = options_.raise_celsius[i - 1] - (holds ? options_.margin_celsius : 0);
    if (celsius >= mark) wanted = i;
  }
  const auto level = static_cast<ThermalLevel>(wanted);
  Update(level, level == ThermalLevel::kEmergency ? 0 : options_.raise_after_ns, now_ns);
}

void ThermalGovernor::ObserveLevel(ThermalLevel level, int64_t now_ns) { Update(level, 0, now_ns); }

void ThermalGovernor::Update(ThermalLevel wanted, int64_t raise_after_ns, int64_t now_ns) {
  if (now_ns < last_ns_) return;
  last_ns_ = now_ns;
  if (wanted > level_) {
    below_ = false;
    if (!above_) above_since_ns_ = now_ns;
    above_ = true;
    if (now_ns - above_since_ns_ >= raise_after_ns) {
      level_ = wanted;
      above_ = false;
    }
  } else if (wanted < level_) {
    above_ = false;
    if (!below_) below_since_ns_ = now_ns;
    below_ = true;
    if (now_ns - below_since_ns_ >= options_.lower_after_ns) {
      level_ = static_cast<ThermalLevel>(static_cast<int>(level_) - 1);
      below_since_ns_ = now_ns;  // the next step down waits anew
    }
  } else {
    above_ = below_ = false;
  }
}

Pacer::Grant Pacer::Ask(const ThermalLimits& limits, int64_t now_ns) {
  Grant grant;
  grant.start_ns = std::max(now_ns, ready_ns_);
  if (!(limits.tokens_per_second > 0)) {
    grant.tokens = INT32_MAX;
    grant.more_ns = grant.start_ns;
    tokens_ = 1;
    saved_until_ns_ = grant.start_ns;
    return grant;
  }
  const double rate = limits.tokens_per_second;
  const double most = std::max(1.0, rate * kBurstSeconds);
  if (grant.start_ns > saved_until_ns_) {
    const double seconds = saved_until_ns_ == INT64_MIN
                               ? 0
                               : static_cast<double>(grant.start_ns - saved_until_ns_) * 1e-9;
    tokens_ = std::min(most, tokens_ + rate * seconds);
    saved_until_ns_ = grant.start_ns;
  }
  // The time that `more_ns` names must be enough for a whole token in spite of rounding.
  constexpr double kWhole = 1 - 1e-6;
  grant.tokens = static_cast<int32_t>(std::max(0.0, std::floor(tokens_ + (1 - kWhole))));
  const double missing = grant.tokens + 1 - tokens_;
  grant.more_ns = saved_until_ns_ + static_cast<int64_t>(std::ceil(missing / rate * 1e9));
  return grant;
}

void Pacer::Done(const ThermalLimits& limits, int64_t start_ns, int64_t end_ns, int32_t tokens) {
  const int64_t busy_ns = std::max<int64_t>(0, end_ns - start_ns);
  const int32_t duty = std::clamp(limits.duty_percent, 1, 100);
  ready_ns_ = end_ns + busy_ns * (100 - duty) / duty;
  if (limits.tokens_per_second > 0) tokens_ -= tokens;
}

}  // namespace cellm
