#ifndef CELLM_SRC_TOKENIZER_PRECOMPILED_H_
#define CELLM_SRC_TOKENIZER_PRECOMPILED_H_

// SentencePiece's "precompiled charsmap": a double-array trie from byte strings to replacements.
//
//   bytes 0..3         size of the trie in bytes, little-endian
//   next that many     the trie: uint32 units (darts-clone layout)
//   the rest           replacement texts, each ended by NUL
// A unit: bit 31 and bits 0..7 label, bit 8 has-leaf, bits 10.. offset (shifted left by 8 when
// bit 9 is set); the value of a leaf is its low 31 bits, the replacement's byte offset.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tokenizer/tracked_text.h"

namespace cellm::tokenizer {

class PrecompiledMap {
 public:
  // `base64` is the field as it stands in the file.
  static Result<PrecompiledMap> FromBase64(std::string_view base64);

  // Appends the mapped text: whole grapheme clusters below 6 bytes first, else char by char, each
  // by the shortest entry that it starts with, as the reference does.
  void Apply(const TrackedText& in, TrackedText* out) const;

 private:
  bool Find(std::string_view chunk, std::string_view* replacement) const;
  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace cellm::tokenizer

#endif  // CELLM_SRC_TOKENIZER_PRECOMPILED_H_
