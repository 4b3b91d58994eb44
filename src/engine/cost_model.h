#ifndef CELLM_SRC_ENGINE_COST_MODEL_H_
#define CELLM_SRC_ENGINE_COST_MODEL_H_

// What a step costs in time, predicted and learnt.
//
// A step is one pass over the weights (a fixed part) plus something for each row, plus attention,
// which grows with the tokens that each row looks back at:
//
//   ns = step + prompt_row * prompt rows + decode_row * decode rows + attended * attended tokens
//
// The four coefficients are learnt from measured steps by least squares in which older steps fade.
// Everything here is arithmetic on its arguments: no clock, no state beyond the object.

#include <cstdint>

namespace cellm {

// The work of one step.
struct StepShape {
  int64_t prompt_rows = 0;
  int64_t decode_rows = 0;
  int64_t attended_tokens = 0;  // sum over rows of the tokens that the row sees

  void AddPrompt(int64_t position, int64_t rows);  // rows at position, position + 1, ...
  void AddDecode(int64_t position);
};

struct CostModel {
  // Nanoseconds. The defaults are for a model of some hundred million weights on two slow cores and
  // hold only until the first steps were measured.
  double step_ns = 10e6;
  double prompt_row_ns = 1e6;
  double decode_row_ns = 1e6;
  double attended_ns = 100;
  // Moving pages between memory and the swap file.
  double swap_write_bytes_per_second = 200e6;
  double swap_read_bytes_per_second = 400e6;

  double StepNs(const StepShape& shape) const;  // with the fixed part
  // Without the fixed part.
  double PromptNs(int64_t position, int64_t rows) const;
  double DecodeNs(int64_t position) const;
  // Evaluating `tokens` tokens from position 0 in chunks of `chunk_rows`, each a step of its own.
  double RecomputeNs(int64_t tokens, int64_t chunk_rows) const;
  double SwapOutNs(uint64_t bytes) const;
  double SwapInNs(uint64_t bytes) const;
  // The most rows, at most `max_rows`, whose PromptNs is within `ns`. May be 0.
  int32_t PromptRowsWithin(double ns, int64_t position, int32_t max_rows) const;
};

// How a swapped context comes back soonest when reading and computing go on side by side: its first
// `recomputed` tokens are evaluated anew while the bytes of the others are read. 0: all are read.
struct RestoreSplit {
  int64_t recomputed = 0;
  double ns = 0;  // until both are done
};
RestoreSplit SplitRestore(const CostModel& cost, int64_t tokens, uint64_t bytes,
                          int64_t chunk_rows);

// Learns a CostModel. Not safe from several threads.
class CostEstimator {
 public:
  // `start` is believed until measurements outweigh it, and keeps deciding in directions that no
  // measurement has told anything about. half_life_steps: after so many further steps a measurement
  // counts half.
  explicit CostEstimator(const CostModel& start, double half_life_steps = 128);

  // Ignores steps without rows and times that are not positive.
  void ObserveStep(const StepShape& shape, int64_t ns);
  // Likewise for no bytes.
  void ObserveSwapOut(uint64_t bytes, int64_t ns);
  void ObserveSwapIn(uint64_t bytes, int64_t ns);

  const CostModel& model() const { return model_; }

 private:
  static constexpr int kTerms = 4;
  void Solve();

  CostModel start_;
  CostModel model_;
  double fade_;
  double gram_[kTerms][kTerms] = {};  // faded sums of products of terms, each step weighed 1 / ns^2
  double target_[kTerms] = {};        // of terms with times
};

}  // namespace cellm

#endif  // CELLM_SRC_ENGINE_COST_MODEL_H_
