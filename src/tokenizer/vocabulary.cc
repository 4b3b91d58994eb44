#include "tokenizer/vocabulary.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "base/hash.h"
#include "base/limits.h"

namespace cellm::tokenizer {
namespace {

// A file could be made so that its pieces all fall on one slot, and then building would take
// quadratic time. Honest tables need a few steps an entry.
constexpr uint64_t kMaxProbesPerEntry = 64;
constexpr uint64_t kFreeProbes = 100'000;

// Slots for `count` entries: a power of two, at most half of it used.
size_t SlotCount(size_t count) { return std::bit_ceil(std::max<size_t>(count, 4) * 2); }
uint32_t ShiftFor(size_t slots) { return 64u - static_cast<uint32_t>(std::countr_zero(slots)); }

std::string Shown(std::string_view piece) {
  std::string shown(piece.substr(0, 60));
  if (piece.size() > 60) shown += "...";
  return shown;
}

}  // namespace

Result<Vocabulary> Vocabulary::Build(const std::vector<PieceEntry>& entries, const char* field,
                                     Allocator& allocator) {
  Vocabulary built;
  size_t total_bytes = 0;
  for (const PieceEntry& entry : entries) {
    if (entry.id < 0 || entry.id >= limits::kMaxVocabulary) {
      return OutOfRange("%s: piece \"%s\" has id %d; 0 to %d are possible", field,
                        Shown(entry.piece).c_str(), entry.id, limits::kMaxVocabulary - 1);
    }
    built.id_limit_ = std::max(built.id_limit_, entry.id + 1);
    total_bytes += entry.piece.size();
  }
  if (total_bytes > limits::kMaxJsonBytes) {
    return OutOfRange("%s: %zu bytes of pieces", field, total_bytes);
  }
  constexpr MemoryClass kClass = MemoryClass::kTokenizer;
  const size_t limit = static_cast<size_t>(built.id_limit_);
  built.size_ = static_cast<int32_t>(entries.size());
  CELLM_ASSIGN_OR_RETURN(built.bytes_, Array<char>::Zeroed(allocator, total_bytes, kClass, field));
  CELLM_ASSIGN_OR_RETURN(built.offsets_,
                         Array<uint32_t>::Zeroed(allocator, limit + 1, kClass, field));
  CELLM_ASSIGN_OR_RETURN(
      built.slots_, Array<uint32_t>::Zeroed(allocator, SlotCount(entries.size()), kClass, field));
  built.slot_shift_ = ShiftFor(built.slots_.size());

  for (const PieceEntry& entry : entries) {
    uint32_t& length = built.offsets_[static_cast<size_t>(entry.id) + 1];
    if (length != 0) return Corrupt("%s: id %d is given twice", field, entry.id);
    length = static_cast<uint32_t>(entry.piece.size());
  }
  for (size_t i = 1; i <= limit; ++i) built.offsets_[i] += built.offsets_[i - 1];
  const size_t mask = built.slots_.size() - 1;
  uint64_t probes_left = kFreeProbes + kMaxProbesPerEntry * entries.size();
  for (const PieceEntry& entry : entries) {
    std::memcpy(built.bytes_.data() + built.offsets_[static_cast<size_t>(entry.id)],
                entry.piece.data(), entry.piece.size());
  }
  for (const PieceEntry& entry : entries) {
    if (entry.piece.empty()) continue;
    const uint64_t hash = HashXxh3(entry.piece);
    const uint32_t tag = static_cast<uint32_t>(hash) & kTagMask;
    size_t at = static_cast<size_t>(hash >> built.slot_shift_);
    for (; built.slots_[at] != 0; at = (at + 1) & mask) {
      const uint32_t stored = built.slots_[at];
      if ((stored & kTagMask) == tag &&
          built.Piece(static_cast<int32_t>((stored & ~kTagMask) - 1)) == entry.piece) {
        return Corrupt("%s: piece \"%s\" is given twice", field, Shown(entry.piece).c_str());
      }
      if (--probes_left == 0) return Corrupt("%s: pieces made to collide", field);
    }
    built.slots_[at] = tag | (static_cast<uint32_t>(entry.id) + 1);
  }
  return built;
}

int32_t Vocabulary::Find(std::string_view piece) const {
  if (slots_.empty() || piece.empty()) return -1;
  return FindHashed(piece, HashXxh3(piece));
}

void Vocabulary::FindMany(std::span<const std::string_view> pieces, int32_t* ids) const {
  if (slots_.empty()) {
    std::fill_n(ids, pieces.size(), -1);
    return;
  }
  // A lookup touches a slot, then an offset, then the piece's bytes, each somewhere else. In
  // blocks, all of one kind are asked for before the first of them is needed.
  constexpr size_t kBlock = 64;
  uint64_t hashes[kBlock];
  uint32_t found[kBlock];
  for (size_t begin = 0; begin < pieces.size(); begin += kBlock) {
    const std::span<const std::string_view> block =
        pieces.subspan(begin, std::min(kBlock, pieces.size() - begin));
    for (size_t i = 0; i < block.size(); ++i) {
      hashes[i] = HashXxh3(block[i]);
      __builtin_prefetch(&slots_[static_cast<size_t>(hashes[i] >> slot_shift_)]);
    }
    for (size_t i = 0; i < block.size(); ++i) {
      const uint32_t stored = slots_[static_cast<size_t>(hashes[i] >> slot_shift_)];
      found[i] = stored == 0 ? 0 : (stored & ~kTagMask) - 1;
      __builtin_prefetch(&offsets_[found[i]]);
    }
    for (size_t i = 0; i < block.size(); ++i) {
      __builtin_prefetch(bytes_.data() + offsets_[found[i]]);
    }
    for (size_t i = 0; i < block.size(); ++i) {
      ids[begin + i] = block[i].empty() ? -1 : FindHashed(block[i], hashes[i]);
    }
  }
}

int32_t Vocabulary::FindHashed(std::string_view piece, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  const uint32_t tag = static_cast<uint32_t>(hash) & kTagMask;
  size_t at = static_cast<size_t>(hash >> slot_shift_);
  for (; slots_[at] != 0; at = (at + 1) & mask) {
    if ((slots_[at] & kTagMask) != tag) continue;
    const int32_t id = static_cast<int32_t>((slots_[at] & ~kTagMask) - 1);
    if (Piece(id) == piece) return id;
  }
  return -1;
}

Result<MergeTable> MergeTable::Build(const std::vector<Merge>& merges,
                                     const std::vector<uint32_t>& ranks, Allocator& allocator) {
  MergeTable built;
  if (merges.empty()) return built;
  constexpr MemoryClass kClass = MemoryClass::kTokenizer;
  constexpr const char* kField = "model.merges";
  if (merges.size() >= ~kTagMask) return OutOfRange("%s: %zu merges", kField, merges.size());
  CELLM_ASSIGN_OR_RETURN(built.merges_,
                         Array<Merge>::Zeroed(allocator, merges.size(), kClass, kField));
  std::copy(merges.begin(), merges.end(), built.merges_.begin());
  if (!ranks.empty()) {
    CELLM_ASSIGN_OR_RETURN(built.ranks_,
                           Array<uint32_t>::Zeroed(allocator, merges.size(), kClass, kField));
    std::copy(ranks.begin(), ranks.end(), built.ranks_.begin());
  }
  CELLM_ASSIGN_OR_RETURN(
      built.slots_, Array<uint32_t>::Zeroed(allocator, SlotCount(merges.size()), kClass, kField));
  built.slot_shift_ = ShiftFor(built.slots_.size());
  const size_t mask = built.slots_.size() - 1;
  uint64_t probes_left = kFreeProbes + kMaxProbesPerEntry * merges.size();
  for (size_t i = 0; i < merges.size(); ++i) {
    const uint64_t hash = Hash(merges[i].left, merges[i].right);
    const uint32_t tag = static_cast<uint32_t>(hash) & kTagMask;
    size_t at = static_cast<size_t>(hash >> built.slot_shift_);
    for (; built.slots_[at] != 0; at = (at + 1) & mask) {
      if (--probes_left == 0) return Corrupt("%s: pairs made to collide", kField);
      if ((built.slots_[at] & kTagMask) != tag) continue;
      const Merge& other = built.merges_[(built.slots_[at] & ~kTagMask) - 1];
      if (other.left == merges[i].left && other.right == merges[i].right) break;
    }
    built.slots_[at] = tag | (static_cast<uint32_t>(i) + 1);
  }
  return built;
}

}  // namespace cellm::tokenizer
