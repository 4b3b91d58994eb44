#ifndef CELLM_TOOLS_CELLM_BENCH_SYNTHETIC_VOCABULARY_H_
#define CELLM_TOOLS_CELLM_BENCH_SYNTHETIC_VOCABULARY_H_

// A byte-level BPE vocabulary of any size that encodes every text.
//
//   ids 0 .. 255       the bytes, in the usual printable alphabet
//   then               strings of letters, shortest first, with and without a space in front; each
//                      without its last letter is an earlier piece, so one merge makes it
//   the last three     <|begin|>, <|end|>, <|pad|>
// Text is cut into two to four letters a token: less than a trained vocabulary manages, but as
// varied, and tables are as large as the real ones.

#include <cstdint>
#include <string>
#include <vector>

namespace cellm::tools {

inline constexpr int32_t kSpecialPieces = 3;

struct SyntheticVocabulary {
  std::vector<std::string> pieces;  // all but the special ones
  std::vector<std::string> merges;  // "left right", best first
  std::vector<std::string> special;
};
// `count` ids in all; at least 1024.
SyntheticVocabulary MakeVocabulary(int32_t count);
// The same as a tokenizer.json.
std::string TokenizerJson(const SyntheticVocabulary& vocabulary);

}  // namespace cellm::tools

#endif  // CELLM_TOOLS_CELLM_BENCH_SYNTHETIC_VOCABULARY_H_
