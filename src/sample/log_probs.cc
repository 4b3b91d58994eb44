#include "sample/log_probs.h"

#include <algorithm>
#include <cmath>

namespace cellm::sample {

double LogSumExp(std::span<const float> row) {
  const double best = static_cast<double>(row[static_cast<size_t>(ArgMax(row))]);
  double sum = 0;
  for (const float logit : row) sum += std::exp(static_cast<double>(logit) - best);
  return best + std::log(sum);
}

size_t TopLogProbs(std::span<const float> row, double log_sum, std::span<Candidate> scratch,
                   std::span<TokenLogProb> out) {
  if (out.empty()) return 0;
  const size_t count = SelectTop(row, std::min(out.size(), row.size()), scratch);
  for (size_t i = 0; i < count; ++i) {
    out[i] = {scratch[i].id, static_cast<float>(static_cast<double>(scratch[i].logit) - log_sum)};
  }
  return count;
}

}  // namespace cellm::sample
