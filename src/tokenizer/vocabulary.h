#ifndef CELLM_SRC_TOKENIZER_VOCABULARY_H_
#define CELLM_SRC_TOKENIZER_VOCABULARY_H_

// Pieces and their ids, in flat tables.
//
//   bytes_    "!" "\"" "#" ... "hello" ...      all pieces, one after the other, in id order
//   offsets_  0 1 2 3 ...                       piece i is bytes_[offsets_[i], offsets_[i + 1])
//   slots_    - 17 - 3 2091 ...                 open addressing by hash of the piece: id + 1 in
//                                               the low 21 bits, 11 bits of the hash above, so
//                                               that a look at another's slot ends there
// An id without a piece (a gap) has length 0; an empty piece makes a gap.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/allocator.h"
#include "base/status.h"

namespace cellm::tokenizer {

struct PieceEntry {
  std::string_view piece;
  int32_t id;
};

// The part of a slot that is a tag; the rest is an index + 1.
inline constexpr uint32_t kTagMask = ~uint32_t{0} << 21;

class Vocabulary {
 public:
  // `entries` in any order; the views are copied. Messages name `field`.
  //   Corrupt      an id given twice, a piece given twice
  //   OutOfRange   an id below 0 or at or above limits::kMaxVocabulary
  static Result<Vocabulary> Build(const std::vector<PieceEntry>& entries, const char* field,
                                  Allocator& allocator);

  // One more than the largest id; 0 when empty.
  int32_t id_limit() const { return id_limit_; }
  // Number of pieces.
  int32_t size() const { return size_; }
  // -1 when there is none.
  int32_t Find(std::string_view piece) const;
  // The same for many: ids[i] of pieces[i]. Several times as fast, since the waits for memory
  // overlap. `ids` is as long as `pieces`.
  void FindMany(std::span<const std::string_view> pieces, int32_t* ids) const;
  // Empty for gaps and for ids outside. Valid as long as the vocabulary lives.
  std::string_view Piece(int32_t id) const {
    if (id < 0 || id >= id_limit_) return {};
    const size_t begin = offsets_[static_cast<size_t>(id)];
    return {bytes_.data() + begin, offsets_[static_cast<size_t>(id) + 1] - begin};
  }

 private:
  int32_t FindHashed(std::string_view piece, uint64_t hash) const;

  int32_t id_limit_ = 0;
  int32_t size_ = 0;
  Array<char> bytes_;
  Array<uint32_t> offsets_;
  Array<uint32_t> slots_;  // power of two, at most half full
  uint32_t slot_shift_ = 0;
};

// (left id, right id) -> (rank, id of the joined piece). Slots as in Vocabulary: index + 1 and a
// tag.
class MergeTable {
 public:
  struct Merge {
    int32_t left;
    int32_t right;
    int32_t result;
  };
  // Rank is the index, or ranks[index] where `ranks` is not empty. A pair given twice takes its
  // later place, as in the reference. OutOfRange beyond two million.
  static Result<MergeTable> Build(const std::vector<Merge>& merges,
                                  const std::vector<uint32_t>& ranks, Allocator& allocator);

  // False when the pair does not merge.
  bool Find(int32_t left, int32_t right, uint32_t* rank, int32_t* result) const {
    if (slots_.empty()) return false;
    const size_t mask = slots_.size() - 1;
    const uint64_t hash = Hash(left, right);
    const uint32_t tag = static_cast<uint32_t>(hash) & kTagMask;
    for (size_t at = static_cast<size_t>(hash >> slot_shift_);; at = (at + 1) & mask) {
      const uint32_t stored = slots_[at];
      if (stored == 0) return false;
      if ((stored & kTagMask) != tag) continue;
      const uint32_t index = (stored & ~kTagMask) - 1;
      const Merge& merge = merges_[index];
      if (merge.left == left && merge.right == right) {
        *rank = ranks_.empty() ? index : ranks_[index];
        *result = merge.result;
        return true;
      }
    }
  }
  size_t size() const { return merges_.size(); }
  const Merge& merge(size_t index) const { return merges_[index]; }

 private:
  static uint64_t Hash(int32_t left, int32_t right) {
    const uint64_t key =
        (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
    const uint64_t product = key * 0x9E3779B97F4A7C15u;
    // Slots take the high bits, tags the low word, which needs the high bits mixed in.
    return product ^ (product >> 29);
  }
  Array<Merge> merges_;
  Array<uint32_t> ranks_;
  Array<uint32_t> slots_;
  uint32_t slot_shift_ = 0;
};

}  // namespace cellm::tokenizer

#endif  // CELLM_SRC_TOKENIZER_VOCABULARY_H_
