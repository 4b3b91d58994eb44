#include "tokenizer/word_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/hash.h"

namespace cellm::tokenizer {
namespace {

constexpr size_t kMinTextBytes = 512;
constexpr size_t kMaxSlots = 1 << 16;

}  // namespace

void WordCache::Prepare(size_t text_bytes) {
  if (text_bytes < kMinTextBytes || !slots_.empty()) return;
  slots_.resize(std::min(kMaxSlots, std::bit_ceil(text_bytes / 8)));
}

bool WordCache::Find(std::string_view word, uint64_t* hash, std::vector<int32_t>* out) const {
  *hash = HashXxh3(word);
  const size_t mask = slots_.size() - 1;
  size_t at = static_cast<size_t>(*hash) & mask;
  for (size_t probe = 0; probe < kMaxProbes; ++probe, at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.text_size == 0) return false;
    if (slot.hash == *hash && slot.text_size == word.size() &&
        std::memcmp(texts_.data() + slot.text_offset, word.data(), word.size()) == 0) {
      const int32_t* ids = ids_.data() + slot.ids_offset;
      if (slot.id_count == 1) {
        out->push_back(*ids);
      } else {
        out->insert(out->end(), ids, ids + slot.id_count);
      }
      return true;
    }
  }
  return false;
}

void WordCache::Insert(std::string_view word, uint64_t hash, const int32_t* ids, size_t count) {
  if (used_ * 4 >= slots_.size() * 3) return;
  const size_t mask = slots_.size() - 1;
  size_t at = static_cast<size_t>(hash) & mask;
  for (size_t probe = 0; probe < kMaxProbes; ++probe, at = (at + 1) & mask) {
    Slot& slot = slots_[at];
    if (slot.text_size != 0) continue;
    slot.hash = hash;
    slot.text_offset = static_cast<uint32_t>(texts_.size());
    slot.text_size = static_cast<uint16_t>(word.size());
    slot.ids_offset = static_cast<uint32_t>(ids_.size());
    slot.id_count = static_cast<uint16_t>(count);
    texts_.append(word);
    ids_.insert(ids_.end(), ids, ids + count);
    ++used_;
    return;
  }
}

}  // namespace cellm::tokenizer
