#include "capi/constrained_reply.h"

#include <algorithm>
#include <string>
#include <utility>

namespace cellm::capi {
namespace {

// Longer texts are taken in parts.
constexpr size_t kMaxForcedBytes = 256;
// Continuations that are tried.
constexpr size_t kMaxFollowers = 16;

}  // namespace

Result<std::unique_ptr<ConstrainedReply>> ConstrainedReply::Create(
    std::shared_ptr<constrain::Constraint> constraint, const tokenizer::Tokenizer& tokenizer,
    int32_t vocabulary, Allocator& memory) {
  std::unique_ptr<ConstrainedReply> reply(new ConstrainedReply(std::move(constraint), tokenizer));
  CELLM_ASSIGN_OR_RETURN(
      reply->allowed_, Array<uint64_t>::Zeroed(memory, (static_cast<size_t>(vocabulary) + 63) / 64,
                                               MemoryClass::kActivations, "mask of a reply"));
  return reply;
}

Result<int32_t> ConstrainedReply::Sample(sample::Sampler* sampler, std::span<const float> row,
                                         const sample::StopIds& end_ids) {
  CELLM_RETURN_IF_ERROR(matcher_.FillAllowed(allowed_.span()));
  CELLM_ASSIGN_OR_RETURN(const bool may_end, matcher_.MayEnd());
  for (const int32_t end : end_ids.ids()) {
    const size_t id = static_cast<size_t>(end);
    if (id / 64 >= allowed_.size()) continue;
    const uint64_t bit = uint64_t{1} << (id % 64);
    allowed_[id / 64] = may_end ? allowed_[id / 64] | bit : allowed_[id / 64] & ~bit;
  }
  CELLM_ASSIGN_OR_RETURN(const int32_t id, sampler->Sample(row, allowed_.span()));
  if (!end_ids.Contains(id)) CELLM_RETURN_IF_ERROR(matcher_.Accept(id));
  return id;
}

// The tokenizer's ids for a text in the middle of others; empty when they do not spell it.
Status ConstrainedReply::Spell(const std::string& text, std::vector<int32_t>* ids) const {
  // Tokenizers that put a space in front of every text show the middle of one behind a line end.
  for (const std::string_view before : {"", "\n"}) {
    CELLM_ASSIGN_OR_RETURN(const std::vector<int32_t> all,
                           tokenizer_.Encode(std::string(before) + text, {}));
    size_t first = 0;
    std::string spelled;
    const auto spell = [&](size_t begin, size_t end) {
      spelled.clear();
      for (size_t i = begin; i < end; ++i) spelled += tokenizer_.TokenBytes(all[i]);
    };
    while (first < all.size() && !before.empty()) {
      ++first;
      spell(0, first);
      // A tokenizer's own space may stand before the line end.
      if (spelled.size() >= before.size() &&
          spelled.compare(spelled.size() - before.size(), before.size(), before) == 0) {
        break;
      }
    }
    spell(first, all.size());
    if (spelled != text) continue;
    ids->assign(all.begin() + static_cast<std::ptrdiff_t>(first), all.end());
    return OkStatus();
  }
  ids->clear();
  return OkStatus();
}

// certain_: the first tokens of `text` on which all continuations agree, without its last one
// unless nothing can follow.
Status ConstrainedReply::FindCertain(const std::string& text,
                                     const std::vector<uint8_t>& followers) {
  certain_.clear();
  CELLM_RETURN_IF_ERROR(Spell(text, &certain_));
  if (followers.empty()) return OkStatus();
  if (!certain_.empty()) certain_.pop_back();
  std::vector<int32_t> longer;
  for (const uint8_t follower : followers) {
    if (certain_.empty()) return OkStatus();
    CELLM_RETURN_IF_ERROR(Spell(text + static_cast<char>(follower), &longer));
    const auto differs =
        std::mismatch(certain_.begin(), certain_.end(), longer.begin(), longer.end()).first;
    certain_.erase(differs, certain_.end());
  }
  return OkStatus();
}

Result<std::span<const int32_t>> ConstrainedReply::TakeCertain(size_t most,
                                                               const sample::StopIds& end_ids) {
  certain_.clear();
  std::string text;
  std::vector<uint8_t> followers;
  CELLM_RETURN_IF_ERROR(matcher_.ForcedText(kMaxForcedBytes, &text, kMaxFollowers, &followers));
  if (!text.empty()) CELLM_RETURN_IF_ERROR(FindCertain(text, followers));
  if (certain_.size() > most) certain_.resize(most);
  for (size_t i = 0; i < certain_.size(); ++i) {
    // An id that ends replies is never part of one.
    if (!end_ids.Contains(certain_[i])) {
      CELLM_RETURN_IF_ERROR(matcher_.Accept(certain_[i]));
      continue;
    }
    certain_.resize(i);
    break;
  }
  CELLM_ASSIGN_OR_RETURN(const bool complete, matcher_.MustEnd());
  if (complete && end_ids.ids().size() == 1 && certain_.size() < most) {
    certain_.push_back(end_ids.ids()[0]);
  }
  return std::span<const int32_t>(certain_);
}

}  // namespace cellm::capi
