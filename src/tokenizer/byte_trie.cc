#include "tokenizer/byte_trie.h"

#include <algorithm>
#include <bit>

namespace cellm::tokenizer {
namespace {

constexpr int32_t kMaxNodes = 1 << 24;  // (node, byte) must fit 32 bits

}  // namespace

Status ByteTrie::Grow(const char* what) {
  const size_t size = slots_.empty() ? 64 : slots_.size() * 2;
  Array<Edge> old = std::move(slots_);
  CELLM_ASSIGN_OR_RETURN(slots_,
                         Array<Edge>::Zeroed(*allocator_, size, MemoryClass::kTokenizer, what));
  slot_shift_ = 64u - static_cast<uint32_t>(std::countr_zero(size));
  for (const Edge& edge : old) {
    if (edge.child == 0) continue;
    size_t at = Slot(edge.key);
    while (slots_[at].child != 0) at = (at + 1) & (size - 1);
    slots_[at] = edge;
  }
  return Status();
}

Status ByteTrie::GrowValues(const char* what) {
  const size_t size = values_.empty() ? 32 : values_.size() * 2;
  Array<int32_t> old = std::move(values_);
  CELLM_ASSIGN_OR_RETURN(values_,
                         Array<int32_t>::Zeroed(*allocator_, size, MemoryClass::kTokenizer, what));
  std::copy(old.begin(), old.end(), values_.begin());
  std::fill(values_.begin() + old.size(), values_.end(), kNone);
  return Status();
}

Status ByteTrie::Add(std::string_view key, int32_t value, const char* what) {
  if (node_count_ == 0) {
    CELLM_RETURN_IF_ERROR(GrowValues(what));
    node_count_ = 1;
  }
  int32_t node = kRoot;
  for (const char c : key) {
    const uint8_t byte = static_cast<uint8_t>(c);
    int32_t child = Step(node, byte);
    if (child == kNone) {
      if (node_count_ >= kMaxNodes) return OutOfRange("%s: more than 2^24 trie nodes", what);
      if (static_cast<size_t>(node_count_) * 2 >= slots_.size()) CELLM_RETURN_IF_ERROR(Grow(what));
      if (static_cast<size_t>(node_count_) >= values_.size()) {
        CELLM_RETURN_IF_ERROR(GrowValues(what));
      }
      child = node_count_++;
      const uint32_t edge_key = (static_cast<uint32_t>(node) << 8) | byte;
      size_t at = Slot(edge_key);
      while (slots_[at].child != 0) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = {edge_key, child};
    }
    node = child;
  }
  if (!key.empty()) first_[static_cast<uint8_t>(key[0])] = true;
  values_[static_cast<size_t>(node)] = value;
  return Status();
}

int32_t ByteTrie::Walk(std::string_view key) const {
  if (node_count_ == 0) return kNone;
  int32_t node = kRoot;
  for (size_t i = 0; i < key.size() && node != kNone; ++i) {
    node = Step(node, static_cast<uint8_t>(key[i]));
  }
  return node;
}

}  // namespace cellm::tokenizer
