#ifndef CELLM_SRC_SAMPLE_LOG_PROBS_H_
#define CELLM_SRC_SAMPLE_LOG_PROBS_H_

// Log-probabilities of the raw distribution: softmax of the model's logits as they came, before
// bias, penalties, filters and temperature. exp() of them sums to 1 over the vocabulary.

#include <cstdint>
#include <span>

#include "base/status.h"
#include "sample/candidates.h"

namespace cellm::sample {

// log(sum(exp(row))), in double, in index order. A row that passed CheckLogits(). O(row).
double LogSumExp(std::span<const float> row);

struct TokenLogProb {
  int32_t id = 0;
  float log_prob = 0;
};

// Writes the best out.size() tokens of `row` with their log-probabilities, best first, and returns
// how many there are (fewer only when the row has fewer unbanned entries). `log_sum` is
// LogSumExp(row); `scratch` holds min(2 * out.size(), row.size()) candidates. O(row).
size_t TopLogProbs(std::span<const float> row, double log_sum, std::span<Candidate> scratch,
                   std::span<TokenLogProb> out);

}  // namespace cellm::sample

#endif  // CELLM_SRC_SAMPLE_LOG_PROBS_H_
