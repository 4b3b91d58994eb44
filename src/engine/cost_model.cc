#include "engine/cost_model.h"

#include <algorithm>
#include <cmath>

namespace cellm {
namespace {

// How much the starting model weighs against one measured step of the same shape.
constexpr double kPriorWeight = 1e-2;
// Sweeps of coordinate descent; four terms settle in far fewer.
constexpr int kSweeps = 60;
// A measured transfer moves the known speed by this much.
constexpr double kSwapGain = 0.25;

double Attended(int64_t position, int64_t rows) {
  const double p = static_cast<double>(position), n = static_cast<double>(rows);
  return n * p + n * (n + 1) / 2;
}

}  // namespace

void StepShape::AddPrompt(int64_t position, int64_t rows) {
  prompt_rows += rows;
  attended_tokens += rows * position + rows * (rows + 1) / 2;
}

void StepShape::AddDecode(int64_t position) {
  ++decode_rows;
  attended_tokens += position + 1;
}

double CostModel::StepNs(const StepShape& shape) const {
  return step_ns + prompt_row_ns * static_cast<double>(shape.prompt_rows) +
         decode_row_ns * static_cast<double>(shape.decode_rows) +
         attended_ns * static_cast<double>(shape.attended_tokens);
}

double CostModel::PromptNs(int64_t position, int64_t rows) const {
  return prompt_row_ns * static_cast<double>(rows) + attended_ns * Attended(position, rows);
}

double CostModel::DecodeNs(int64_t position) const {
  return decode_row_ns + attended_ns * Attended(position, 1);
}

double CostModel::RecomputeNs(int64_t tokens, int64_t chunk_rows) const {
  if (tokens <= 0) return 0;
  const int64_t chunk = std::max<int64_t>(1, chunk_rows);
  const int64_t steps = (tokens + chunk - 1) / chunk;
  return step_ns * static_cast<double>(steps) + PromptNs(0, tokens);
}

double CostModel::SwapOutNs(uint64_t bytes) const {
  return static_cast<double>(bytes) * 1e9 / swap_write_bytes_per_second;
}

double CostModel::SwapInNs(uint64_t bytes) const {
  return static_cast<double>(bytes) * 1e9 / swap_read_bytes_per_second;
}

int32_t CostModel::PromptRowsWithin(double ns, int64_t position, int32_t max_rows) const {
  // PromptNs grows with rows: the largest that fits, by halving.
  int32_t fits = 0, beyond = max_rows + 1;
  while (beyond - fits > 1) {
    const int32_t middle = fits + (beyond - fits) / 2;
    (PromptNs(position, middle) <= ns ? fits : beyond) = middle;
  }
  return fits;
}

RestoreSplit SplitRestore(const CostModel& cost, int64_t tokens, uint64_t bytes,
                          int64_t chunk_rows) {
  if (tokens <= 0) return {0, cost.SwapInNs(bytes)};
  const double token_bytes = static_cast<double>(bytes) / static_cast<double>(tokens);
  const auto finish = [&](int64_t recomputed) {
    const auto left = static_cast<uint64_t>(token_bytes * static_cast<double>(tokens - recomputed));
    return std::max(cost.RecomputeNs(recomputed, chunk_rows), cost.SwapInNs(left));
  };
  // Recomputing takes longer with each token and reading shorter: the best is where they cross.
  int64_t low = 0, high = tokens;  // at `low` reading is still what takes longer (or low is 0)
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    const auto left = static_cast<uint64_t>(token_bytes * static_cast<double>(tokens - middle));
    (cost.RecomputeNs(middle, chunk_rows) <= cost.SwapInNs(left) ? low : high) = middle;
  }
  RestoreSplit best{0, finish(0)};
  for (const int64_t candidate : {low, high}) {
    if (finish(candidate) < best.ns) best = {candidate, finish(candidate)};
  }
  return best;
}

CostEstimator::CostEstimator(const CostModel& start, double half_life_steps)
    : start_(start), model_(start), fade_(std::exp2(-1.0 / std::max(1.0, half_life_steps))) {}

void CostEstimator::ObserveStep(const StepShape& shape, int64_t ns) {
  if (ns <= 0 || shape.prompt_rows + shape.decode_rows <= 0) return;
  // Divided by the time, so that the fit minimises relative errors: a decode step of 10 ms matters
  // as much as a prompt step of a second.
  const double scale = 1.0 / static_cast<double>(ns);
  const double terms[kTerms] = {scale, static_cast<double>(shape.prompt_rows) * scale,
                                static_cast<double>(shape.decode_rows) * scale,
                                static_cast<double>(shape.attended_tokens) * scale};
  for (int i = 0; i < kTerms; ++i) {
    for (int j = 0; j < kTerms; ++j) gram_[i][j] = gram_[i][j] * fade_ + terms[i] * terms[j];
    target_[i] = target_[i] * fade_ + terms[i];
  }
  Solve();
}

// Least squares with coefficients that are never negative, pulled to the starting model. The pull
// is relative: kPriorWeight * sum (x / start - 1)^2. Coordinate descent from the last solution, a
// fixed number of sweeps, so equal histories give equal bits.
void CostEstimator::Solve() {
  const double start[kTerms] = {start_.step_ns, start_.prompt_row_ns, start_.decode_row_ns,
                                start_.attended_ns};
  double* const x[kTerms] = {&model_.step_ns, &model_.prompt_row_ns, &model_.decode_row_ns,
                             &model_.attended_ns};
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (int i = 0; i < kTerms; ++i) {
      if (!(start[i] > 0)) continue;  // a term that is switched off stays off
      const double pull = kPriorWeight / (start[i] * start[i]);
      double rest = target_[i] + pull * start[i];
      for (int j = 0; j < kTerms; ++j) {
        if (j != i) rest -= gram_[i][j] * *x[j];
      }
      *x[i] = std::max(0.0, rest / (gram_[i][i] + pull));
    }
  }
}

void CostEstimator::ObserveSwapOut(uint64_t bytes, int64_t ns) {
  if (bytes == 0 || ns <= 0) return;
  const double speed = static_cast<double>(bytes) * 1e9 / static_cast<double>(ns);
  model_.swap_write_bytes_per_second += kSwapGain * (speed - model_.swap_write_bytes_per_second);
}

void CostEstimator::ObserveSwapIn(uint64_t bytes, int64_t ns) {
  if (bytes == 0 || ns <= 0) return;
  const double speed = static_cast<double>(bytes) * 1e9 / static_cast<double>(ns);
  model_.swap_read_bytes_per_second += kSwapGain * (speed - model_.swap_read_bytes_per_second);
}

}  // namespace cellm
