#include "sample/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/limits.h"

namespace cellm::sample {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// log of the sum of exp over the candidates, in the order given. At least one candidate.
double LogSumExp(std::span<const Candidate> items) {
  double best = static_cast<double>(items[0].logit);
  for (const Candidate& item : items) best = std::max(best, static_cast<double>(item.logit));
  double sum = 0;
  for (const Candidate& item : items) sum += std::exp(static_cast<double>(item.logit) - best);
  return best + std::log(sum);
}

Status CheckRange(const char* name, float value, bool ok, const char* allowed) {
  if (ok) return OkStatus();
  return InvalidArgument("%s is %g; it must be %s", name, static_cast<double>(value), allowed);
}

}  // namespace

Status ValidateSampling(const SamplingOptions& options, int32_t vocabulary) {
  const auto unit = [](float v) { return v > 0 && v <= 1; };  // false for NaN, as the others
  const auto finite = [](float v) { return std::isfinite(v); };
  CELLM_RETURN_IF_ERROR(CheckRange("temperature", options.temperature,
                                   finite(options.temperature) && options.temperature >= 0,
                                   "a finite number, 0 or more"));
  CELLM_RETURN_IF_ERROR(
      CheckRange("top_p", options.top_p, unit(options.top_p), "above 0 and at most 1"));
  CELLM_RETURN_IF_ERROR(
      CheckRange("typical_p", options.typical_p, unit(options.typical_p), "above 0 and at most 1"));
  CELLM_RETURN_IF_ERROR(
      CheckRange("min_p", options.min_p, options.min_p >= 0 && options.min_p <= 1, "from 0 to 1"));
  CELLM_RETURN_IF_ERROR(
      CheckRange("repetition_penalty", options.repetition_penalty,
                 finite(options.repetition_penalty) && options.repetition_penalty > 0,
                 "a finite number above 0"));
  CELLM_RETURN_IF_ERROR(CheckRange("frequency_penalty", options.frequency_penalty,
                                   finite(options.frequency_penalty), "a finite number"));
  CELLM_RETURN_IF_ERROR(CheckRange("presence_penalty", options.presence_penalty,
                                   finite(options.presence_penalty), "a finite number"));
  if (options.top_k < 0) {
    return InvalidArgument("top_k is %d; it must be 0 (all tokens) or more", options.top_k);
  }
  // The window takes memory before there are tokens in it, and no conversation is longer than this.
  if (options.penalty_window < -1 || options.penalty_window > limits::kMaxContext) {
    return InvalidArgument("penalty_window is %d; it must be -1 (everything), 0 (off) or 1 to %d",
                           options.penalty_window, limits::kMaxContext);
  }
  for (const LogitBias& entry : options.logit_bias) {
    if (entry.id < 0 || entry.id >= vocabulary) {
      return InvalidArgument("logit_bias: token %d is outside the vocabulary of %d", entry.id,
                             vocabulary);
    }
    if (entry.bias != entry.bias) {
      return InvalidArgument("logit_bias: token %d has the value NaN", entry.id);
    }
  }
  return OkStatus();
}

Sampler::Sampler(const SamplingOptions& options, int32_t vocabulary, uint64_t seed)
    : options_(options), vocabulary_(vocabulary), seed_(seed), rng_(seed) {
  has_penalty_ = options.penalty_window != 0 &&
                 (options.repetition_penalty != 1.0f || options.frequency_penalty != 0.0f ||
                  options.presence_penalty != 0.0f);
  for (const LogitBias& entry : options.logit_bias) {
    if (entry.bias >= kForceBias) forced_.push_back({entry.id, 0});
  }
}

Result<std::unique_ptr<Sampler>> Sampler::Create(const SamplingOptions& options, int32_t vocabulary,
                                                 uint64_t seed, Allocator& memory,
                                                 bool takes_masks) {
  if (vocabulary <= 0) return InvalidArgument("the vocabulary has %d entries", vocabulary);
  CELLM_RETURN_IF_ERROR(ValidateSampling(options, vocabulary));
  std::unique_ptr<Sampler> sampler(new Sampler(options, vocabulary, seed));

  const size_t entries = static_cast<size_t>(vocabulary);
  const size_t top_k = static_cast<size_t>(options.top_k);
  if (options.temperature > 0) {
    const size_t count = top_k == 0 ? entries : std::min(2 * top_k, entries);
    CELLM_ASSIGN_OR_RETURN(
        sampler->candidates_,
        Array<Candidate>::Zeroed(memory, count, MemoryClass::kActivations, "sampler candidates"));
  }
  if (sampler->changes_row() || takes_masks) {
    CELLM_ASSIGN_OR_RETURN(
        sampler->adjusted_,
        Array<float>::Zeroed(memory, entries, MemoryClass::kActivations, "sampler logits"));
  }
  if (sampler->has_penalty_) {
    for (Array<int32_t>* array : {&sampler->counts_, &sampler->slot_, &sampler->distinct_}) {
      CELLM_ASSIGN_OR_RETURN(
          *array,
          Array<int32_t>::Zeroed(memory, entries, MemoryClass::kActivations, "penalty window"));
    }
    if (options.penalty_window > 0) {
      CELLM_ASSIGN_OR_RETURN(
          sampler->recent_,
          Array<int32_t>::Zeroed(memory, static_cast<size_t>(options.penalty_window),
                                 MemoryClass::kActivations, "penalty window"));
    }
  }
  return sampler;
}

void Sampler::Accept(int32_t id) {
  if (!has_penalty_ || id < 0 || id >= vocabulary_) return;
  if (!recent_.empty()) {
    if (recent_count_ == recent_.size()) {
      const size_t leaving = static_cast<size_t>(recent_[recent_next_]);
      if (--counts_[leaving] == 0) {
        const size_t hole = static_cast<size_t>(slot_[leaving]);
        distinct_[hole] = distinct_[--distinct_count_];
        slot_[static_cast<size_t>(distinct_[hole])] = static_cast<int32_t>(hole);
      }
    } else {
      ++recent_count_;
    }
    recent_[recent_next_] = id;
    recent_next_ = recent_next_ + 1 == recent_.size() ? 0 : recent_next_ + 1;
  }
  const size_t index = static_cast<size_t>(id);
  if (counts_[index]++ == 0) {
    slot_[index] = static_cast<int32_t>(distinct_count_);
    distinct_[distinct_count_++] = id;
  }
}

void Sampler::ApplyPenalties() {
  const float repetition = options_.repetition_penalty;
  for (size_t i = 0; i < distinct_count_; ++i) {
    const size_t id = static_cast<size_t>(distinct_[i]);
    float logit = adjusted_[id];
    logit = logit > 0 ? logit / repetition : logit * repetition;
    logit -= options_.frequency_penalty * static_cast<float>(counts_[id]);
    logit -= options_.presence_penalty;
    adjusted_[id] = logit;
  }
}

// The row after bias and penalties: the caller's own when there are none and no mask is to come.
std::span<const float> Sampler::AdjustedRow(std::span<const float> row, bool has_mask) {
  if (!changes_row() && !has_mask) return row;
  std::copy(row.begin(), row.end(), adjusted_.begin());
  for (const LogitBias& entry : options_.logit_bias) {
    float& logit = adjusted_[static_cast<size_t>(entry.id)];
    logit = entry.bias <= kBanBias ? -kInfinity : logit + entry.bias;
  }
  if (has_penalty_) ApplyPenalties();
  if (!forced_.empty()) {
    // Forced tokens keep their adjusted logits; everything else is banned.
    for (Candidate& forced : forced_) forced.logit = adjusted_[static_cast<size_t>(forced.id)];
    std::fill(adjusted_.begin(), adjusted_.end(), -kInfinity);
    for (const Candidate& forced : forced_) {
      adjusted_[static_cast<size_t>(forced.id)] = forced.logit;
    }
  }
  return adjusted_.span();
}

// Bans what the mask does not have. Words without a gap, of which masks of free text have many, are
// passed over.
void Sampler::ApplyMask(std::span<const uint64_t> mask) {
  for (size_t word = 0; word < mask.size(); ++word) {
    const size_t begin = word * 64;
    const size_t count = std::min<size_t>(64, adjusted_.size() - begin);
    uint64_t banned = ~mask[word];
    if (banned == 0) continue;
    if (mask[word] == 0) {
      std::fill_n(adjusted_.data() + begin, count, -kInfinity);
      continue;
    }
    if (count < 64) banned &= (uint64_t{1} << count) - 1;
    for (; banned != 0; banned &= banned - 1) {
      adjusted_[begin + static_cast<size_t>(std::countr_zero(banned))] = -kInfinity;
    }
  }
}

// After top-k: the best k, sorted. Without it: everything that is not banned, in id order.
std::span<Candidate> Sampler::InitialCandidates(std::span<const float> row) {
  const size_t k = static_cast<size_t>(options_.top_k);
  if (k > 0 && k < row.size()) {
    return candidates_.span().first(SelectTop(row, k, candidates_.span()));
  }
  size_t count = 0;
  for (size_t id = 0; id < row.size(); ++id) {
    if (row[id] > -kInfinity) candidates_[count++] = {static_cast<int32_t>(id), row[id]};
  }
  return candidates_.span().first(count);
}

// typical-p, top-p, min-p. Keeps at least one candidate.
std::span<Candidate> Sampler::Truncate(std::span<Candidate> kept) const {
  if (options_.typical_p < 1) {
    // |surprise - entropy|, with surprise = log_sum - logit; smallest first.
    const double log_sum = LogSumExp(kept);
    double entropy = 0;
    for (const Candidate& item : kept) {
      const double surprise = log_sum - static_cast<double>(item.logit);
      entropy += std::exp(-surprise) * surprise;
    }
    const auto distance = [&](const Candidate& item) {
      return std::abs(log_sum - static_cast<double>(item.logit) - entropy);
    };
    const auto nearer = [&](const Candidate& a, const Candidate& b) {
      const double da = distance(a);
      const double db = distance(b);
      return da < db || (da == db && Better(a, b));
    };
    const auto mass = [&](const Candidate& item) {
      return std::exp(static_cast<double>(item.logit) - log_sum);
    };
    kept = kept.first(SortUntilMass(kept, static_cast<double>(options_.typical_p), nearer, mass));
  }
  if (options_.top_p < 1) {
    const double log_sum = LogSumExp(kept);
    const auto mass = [&](const Candidate& item) {
      return std::exp(static_cast<double>(item.logit) - log_sum);
    };
    kept = kept.first(SortUntilMass(kept, static_cast<double>(options_.top_p), Better, mass));
  }
  if (options_.min_p > 0) {
    float best = kept[0].logit;
    for (const Candidate& item : kept) best = std::max(best, item.logit);
    const double floor = static_cast<double>(best) + std::log(static_cast<double>(options_.min_p));
    const auto end = std::remove_if(kept.begin(), kept.end(), [&](const Candidate& item) {
      return static_cast<double>(item.logit) < floor;
    });
    kept = kept.first(static_cast<size_t>(end - kept.begin()));
  }
  return kept;
}

int32_t Sampler::Draw(std::span<const Candidate> kept) {
  double best = static_cast<double>(kept[0].logit);
  for (const Candidate& item : kept) best = std::max(best, static_cast<double>(item.logit));
  const double temperature = static_cast<double>(options_.temperature);
  const auto weight = [&](const Candidate& item) {
    return std::exp((static_cast<double>(item.logit) - best) / temperature);
  };
  double sum = 0;
  for (const Candidate& item : kept) sum += weight(item);
  const double target = rng_.NextDouble() * sum;
  double reached = 0;
  int32_t last = kept[0].id;
  for (const Candidate& item : kept) {
    const double share = weight(item);
    if (share > 0) last = item.id;
    reached += share;
    if (reached > target) return item.id;
  }
  return last;  // only when rounding left the running sum a hair below the target
}

Result<int32_t> Sampler::Sample(std::span<const float> row, std::span<const uint64_t> mask) {
  if (row.size() != static_cast<size_t>(vocabulary_)) {
    return InvalidArgument("logits: %zu entries, the vocabulary has %d", row.size(), vocabulary_);
  }
  const bool has_mask = !mask.empty();
  if (has_mask && (mask.size() != (row.size() + 63) / 64 || adjusted_.empty())) {
    return InvalidArgument("mask: %zu words for %d tokens, or a sampler made without masks",
                           mask.size(), vocabulary_);
  }
  CELLM_RETURN_IF_ERROR(CheckLogits(row));
  const std::span<const float> adjusted = AdjustedRow(row, has_mask);
  if (has_mask) ApplyMask(mask);
  if (changes_row() || has_mask) {
    Status status = CheckLogits(adjusted);
    if (!status.ok() && has_mask && changes_row()) {
      // Bias and mask leave nothing together: the mask alone.
      std::copy(row.begin(), row.end(), adjusted_.begin());
      ApplyMask(mask);
      status = CheckLogits(adjusted);
    }
    CELLM_RETURN_IF_ERROR(status);
  }
  if (options_.temperature == 0) return ArgMax(adjusted);
  return Draw(Truncate(InitialCandidates(adjusted)));
}

}  // namespace cellm::sample
