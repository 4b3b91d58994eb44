#ifndef CELLM_SRC_CONSTRAIN_TOKEN_TRIE_H_
#define CELLM_SRC_CONSTRAIN_TOKEN_TRIE_H_

// A vocabulary's token texts as a tree of bytes, in the order in which a walk visits it.
//
//   node    0     1     2     3          texts: "a" "an" "at" "b"
//   byte    a     n     t     b
//   depth   0     1     1     0
//   end     3     2     3     4          first node that is not below this one
//
// A walk that cannot go past a node jumps to its end. Tokens of equal text share a node. Control
// tokens have no text here: they are only ever chosen by name.
//
// Immutable. Any thread.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/allocator.h"
#include "base/status.h"
#include "constrain/automaton.h"

namespace cellm::constrain {

struct TokenText {
  std::string bytes;  // empty: the id is a gap and never chosen
  bool control = false;
};

class TokenTrie {
 public:
  // `tokens` by id; ids at or above `columns` (the width of the logits) are left out.
  // OutOfMemory: refused by `memory`, which must outlive the trie.
  static Result<std::unique_ptr<TokenTrie>> Build(std::span<const TokenText> tokens,
                                                  int32_t columns, Allocator& memory);

  size_t node_count() const { return byte_.size(); }
  uint8_t byte(size_t node) const { return byte_[node]; }
  size_t depth(size_t node) const { return depth_[node]; }
  size_t end(size_t node) const { return end_[node]; }
  // Ids of the tokens whose text ends at the node.
  std::span<const int32_t> tokens(size_t node) const {
    return tokens_.span().subspan(first_token_[node], first_token_[node + 1] - first_token_[node]);
  }
  size_t max_depth() const { return max_depth_; }  // bytes of the longest text

  int32_t columns() const { return columns_; }
  size_t mask_words() const { return (static_cast<size_t>(columns_) + 63) / 64; }
  // The text of a token; empty for gaps and control tokens.
  std::string_view text(int32_t id) const;
  bool is_control(int32_t id) const;
  struct Control {
    int32_t id;
    std::string text;
  };
  const std::vector<Control>& controls() const { return controls_; }
  // Bytes that have a token of their own.
  const ByteSet& bytes() const { return bytes_; }

 private:
  TokenTrie() = default;

  Array<uint8_t> byte_;
  Array<uint16_t> depth_;
  Array<uint32_t> end_;
  Array<uint32_t> first_token_;  // [nodes + 1]
  Array<int32_t> tokens_;        // by text, then by id
  Array<char> text_;
  Array<uint32_t> text_begin_;     // [columns + 1]
  std::vector<Control> controls_;  // ascending ids; a few hundred at most
  size_t max_depth_ = 0;
  int32_t columns_ = 0;
  ByteSet bytes_;
};

}  // namespace cellm::constrain

#endif  // CELLM_SRC_CONSTRAIN_TOKEN_TRIE_H_
