#ifndef CELLM_SRC_TOKENIZER_BYTE_TRIE_H_
#define CELLM_SRC_TOKENIZER_BYTE_TRIE_H_

// A trie over bytes: which of many strings start at this place of a text?
//
// Nodes are numbers; an edge is a slot of one hash table, keyed by (node, byte). Root is node 0.

#include <cstdint>
#include <string_view>

#include "base/allocator.h"
#include "base/status.h"

namespace cellm::tokenizer {

class ByteTrie {
 public:
  explicit ByteTrie(Allocator& allocator) : allocator_(&allocator) {}

  // Adds a string with a value >= 0; the later value stays when it is added twice. `what` is the
  // field for messages. OutOfRange past 2^24 nodes.
  Status Add(std::string_view key, int32_t value, const char* what);

  static constexpr int32_t kRoot = 0;
  static constexpr int32_t kNone = -1;
  // The node behind `byte`, or kNone.
  int32_t Step(int32_t node, uint8_t byte) const {
    if (slots_.empty()) return kNone;
    const uint32_t key = (static_cast<uint32_t>(node) << 8) | byte;
    const size_t mask = slots_.size() - 1;
    for (size_t at = Slot(key);; at = (at + 1) & mask) {
      const Edge& edge = slots_[at];
      if (edge.child == 0) return kNone;
      if (edge.key == key) return edge.child;
    }
  }
  // The value of the string that ends at this node, or kNone.
  int32_t Value(int32_t node) const { return values_[static_cast<size_t>(node)]; }
  // Node after walking `key` from the root, or kNone.
  int32_t Walk(std::string_view key) const;

  bool empty() const { return node_count_ <= 1; }
  // True when some string starts with this byte.
  bool StartsWith(uint8_t byte) const { return first_[byte]; }

 private:
  struct Edge {
    uint32_t key;
    int32_t child;  // 0: free slot (the root is nobody's child)
  };
  size_t Slot(uint32_t key) const {
    return static_cast<size_t>((key * uint64_t{0x9E3779B97F4A7C15}) >> slot_shift_);
  }
  Status Grow(const char* what);
  Status GrowValues(const char* what);

  Allocator* allocator_;
  Array<Edge> slots_;
  Array<int32_t> values_;
  uint32_t slot_shift_ = 64;
  int32_t node_count_ = 0;
  bool first_[256] = {};
};

}  // namespace cellm::tokenizer

#endif  // CELLM_SRC_TOKENIZER_BYTE_TRIE_H_
