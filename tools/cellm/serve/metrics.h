#ifndef CELLM_TOOLS_CELLM_SERVE_METRICS_H_
#define CELLM_TOOLS_CELLM_SERVE_METRICS_H_

// Counters of a server and their text form for Prometheus (exposition format 0.0.4).

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cellm/cellm.h"
#include "cellm/serve/models.h"

namespace cellm::tools::serve {

// Counts of times by upper bound, as Prometheus wants them. Any thread.
class Histogram {
 public:
  void Add(double seconds);
  // Lines of NAME_bucket, NAME_sum and NAME_count.
  void Write(std::string_view name, std::string_view help, std::string* out) const;

 private:
  static constexpr std::array<double, 14> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                     0.25,  0.5,    1,     2.5,  5,     10,   60};
  std::array<std::atomic<uint64_t>, kBounds.size() + 1> counts_ = {};
  std::atomic<uint64_t> sum_ns_{0};
};

class Metrics {
 public:
  // A request that was answered: its route and status.
  void CountRequest(std::string_view route, int status);
  // A reply that ended, and how long its client was kept waiting.
  void CountReply(const cellm_receipt& receipt);

  std::atomic<int64_t> generating{0};  // requests that are being answered by a model
  std::atomic<uint64_t> departed{0};   // clients that left before their reply had ended
  std::atomic<uint64_t> refused{0};    // 429
  std::atomic<uint64_t> tool_calls{0};

  // Seconds that a request takes, in the mean over the last ones; for Retry-After.
  double mean_request_seconds() const;
  std::string Text(const Models& models, int connections, size_t live_sessions) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, uint64_t> requests_;  // guarded by mutex_
  double mean_seconds_ = 1;                                   // likewise
  std::atomic<uint64_t> prompt_tokens_{0}, reused_tokens_{0}, generated_tokens_{0}, replies_{0};
  Histogram first_token_, token_, queue_;
};

}  // namespace cellm::tools::serve

#endif  // CELLM_TOOLS_CELLM_SERVE_METRICS_H_
