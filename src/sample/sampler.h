#ifndef CELLM_SRC_SAMPLE_SAMPLER_H_
#define CELLM_SRC_SAMPLE_SAMPLER_H_

// How the next token is chosen from a row of logits.
//
// Temperature 0 is the argmax (smallest id on a tie) of the row, after bias and penalties where
// any were given, else of the row as it came. Otherwise the stages run in this order:
//
//   logit bias, repetition penalty, frequency and presence penalty     change single logits
//   top-k, typical-p, top-p, min-p                                     each keeps a part
//   temperature                                                        flattens what is left
//   draw
//
// This is the order of the local engines that users come from. The filters look at the model's own
// probabilities, so what counts as plausible does not move with the temperature: a hot setting
// varies the choice among plausible tokens and never lets the tail in. Each filter works on the
// probabilities renormalised over what the stage before kept. Penalties come before top-k, so that
// a penalised token gives its place to another.
//
// Tokens outside of a mask (constrained output) leave before top-k, after bias and penalties. When
// a bias leaves no token of the mask, the bias is not looked at: what a reply must look like comes
// before what is wished for.
//
// Everything is deterministic: sums run in double in a fixed order, ties go to the smaller id, one
// random number is drawn per sampled token, and a seed replays.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/allocator.h"
#include "base/rng.h"
#include "base/status.h"
#include "sample/candidates.h"

namespace cellm::sample {

// Added to a token's logit. A bias of -100 or less bans the token; when any token has +100 or
// more, only such tokens can be chosen. (At any temperature: plain addition would not ensure it.)
struct LogitBias {
  int32_t id = 0;
  float bias = 0;
};
inline constexpr float kBanBias = -100.0f;
inline constexpr float kForceBias = 100.0f;

struct SamplingOptions {
  float temperature = 0.8f;  // 0: argmax; finite, >= 0
  int32_t top_k = 40;        // the k best; 0 (or >= vocabulary): all
  float top_p = 1.0f;        // smallest set with this much probability; (0, 1], 1: all
  float min_p = 0.0f;        // at least this share of the best one's probability; [0, 1]
  float typical_p = 1.0f;    // the mass nearest the row's entropy (Meister et al. 2022); (0, 1]
  // For tokens in the window: positive logits are divided by it, negative ones multiplied (Keskar
  // et al. 2019). > 0; 1: off.
  float repetition_penalty = 1.0f;
  float frequency_penalty = 0.0f;  // subtracted once for each occurrence in the window; finite
  float presence_penalty = 0.0f;   // subtracted once when it occurs in the window; finite
  int32_t penalty_window = 64;     // the last tokens, prompt included; -1: all; 0: penalties off
  std::vector<LogitBias> logit_bias;
};

// InvalidArgument names the option, its value and what is allowed. `vocabulary` bounds bias ids.
Status ValidateSampling(const SamplingOptions& options, int32_t vocabulary);

// One sequence's chooser: options, the recent tokens and the random state. One thread at a time.
class Sampler {
 public:
  // Checks the options and takes all memory that Sample() will need: 8 bytes a candidate, and for
  // penalties, bias or masks 4 to 12 bytes a vocabulary entry.
  //   InvalidArgument  as ValidateSampling()      OutOfMemory  `memory` refused
  // `memory` must outlive the sampler.
  static Result<std::unique_ptr<Sampler>> Create(const SamplingOptions& options, int32_t vocabulary,
                                                 uint64_t seed, Allocator& memory,
                                                 bool takes_masks = false);

  // Tells the sampler that `id` now stands at the end of the sequence, for the penalty window:
  // prompt tokens and chosen tokens alike. Ids outside the vocabulary are ignored (image rows).
  void Accept(int32_t id);

  // Chooses from `row` (vocabulary entries). Does not Accept() the choice. `mask`: empty, or one
  // bit a token (token i is bit i % 64 of word i / 64), 0 for tokens that must not be chosen;
  // requires takes_masks.
  //   Internal         the row has NaN or +infinity, or nothing that may be chosen
  //   InvalidArgument  row.size() is not the vocabulary, mask.size() not that of a mask
  Result<int32_t> Sample(std::span<const float> row, std::span<const uint64_t> mask = {});

  // As if a token had been sampled: takes the random number that it would have taken, so that a
  // sampler can be brought to where another one of the same seed was.
  void SkipDraw() {
    if (options_.temperature > 0) (void)rng_.NextDouble();
  }

  const SamplingOptions& options() const { return options_; }
  uint64_t seed() const { return seed_; }

 private:
  Sampler(const SamplingOptions& options, int32_t vocabulary, uint64_t seed);
  bool changes_row() const { return has_penalty_ || !options_.logit_bias.empty(); }
  std::span<const float> AdjustedRow(std::span<const float> row, bool has_mask);
  void ApplyMask(std::span<const uint64_t> mask);
  void ApplyPenalties();
  std::span<Candidate> InitialCandidates(std::span<const float> row);
  std::span<Candidate> Truncate(std::span<Candidate> kept) const;
  int32_t Draw(std::span<const Candidate> kept);

  SamplingOptions options_;
  int32_t vocabulary_;
  uint64_t seed_;
  Rng rng_;
  bool has_penalty_ = false;
  std::vector<Candidate> forced_;  // ids with a bias of kForceBias or more

  Array<Candidate> candidates_;
  Array<float> adjusted_;  // [vocabulary], only when changes_row()

  // The penalty window: counts_[id] occurrences; distinct_ lists the ids with a count, and
  // slot_[id] says where in it. So a step touches only tokens that occur. recent_ is a ring when
  // the window is bounded, and unused when it is not (nothing ever leaves).
  Array<int32_t> counts_;
  Array<int32_t> slot_;
  Array<int32_t> distinct_;
  size_t distinct_count_ = 0;
  Array<int32_t> recent_;
  size_t recent_count_ = 0;
  size_t recent_next_ = 0;
};

}  // namespace cellm::sample

#endif  // CELLM_SRC_SAMPLE_SAMPLER_H_
