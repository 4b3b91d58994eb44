#ifndef CELLM_SRC_TOKENIZER_ADDED_TOKENS_H_
#define CELLM_SRC_TOKENIZER_ADDED_TOKENS_H_

// Tokens that are looked for in the text itself, before the model sees it.
//
// Tokens with normalized == false are matched in the raw text, the others in what the normalizer
// made of it (and of them). At each place the longest token wins. A control token (special, or one
// that ends a turn) is matched only where the caller allows it and every character was written by
// a trusted writer; where it is not allowed, it does not exist.

#include <cstdint>
#include <string>
#include <vector>

#include "base/allocator.h"
#include "base/status.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/tracked_text.h"

namespace cellm::tokenizer {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool single_word = false;  // only when no word character touches it
  bool lstrip = false;       // swallows white space on its left
  bool rstrip = false;       // and on its right
  bool normalized = false;
  bool special = false;
  bool control = false;  // special, or declared so by MarkControl()
  // What decoding shows: the content, and for normalized tokens what the normalizer made of it.
  std::string decoded;
  // Left out by skip_special: the reference asks whether `decoded` is the name of a special token.
  bool skipped = false;
};

// A stretch of text: an added token (id >= 0) or ordinary text (id == -1).
struct TextPart {
  size_t begin;
  size_t end;
  int32_t id;
};

class AddedTokens {
 public:
  explicit AddedTokens(Allocator& allocator) : raw_(allocator), normalized_(allocator) {}

  // Takes the tokens (ids filled in) and builds the tries. OutOfRange for contents beyond 1 kB.
  Status Build(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  // Null when no added token has this id.
  const AddedToken* FindId(int32_t id) const;
  const AddedToken* FindContent(std::string_view content) const;
  bool has_normalized() const { return !normalized_.empty(); }
  // False when there is no such added token.
  bool MarkControl(int32_t id);

  // Appends the parts of `text`, in order and without gaps. `normalized` says which of the two
  // kinds to look for.
  void Split(const TrackedText& text, bool normalized, bool allow_control,
             std::vector<TextPart>* out) const;

 private:
  // The longest allowed token that starts at `at`, or null; *end is where it ends.
  const AddedToken* Match(const TrackedText& text, const ByteTrie& trie, size_t at,
                          bool allow_control, size_t* end) const;

  std::vector<AddedToken> tokens_;
  std::vector<uint32_t> by_id_;       // indices of tokens_, sorted by id
  std::vector<uint32_t> by_content_;  // indices of tokens_, sorted by content
  ByteTrie raw_;
  ByteTrie normalized_;
};

}  // namespace cellm::tokenizer

#endif  // CELLM_SRC_TOKENIZER_ADDED_TOKENS_H_
