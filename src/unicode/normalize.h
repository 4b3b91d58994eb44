#ifndef CELLM_SRC_UNICODE_NORMALIZE_H_
#define CELLM_SRC_UNICODE_NORMALIZE_H_

// Unicode normalization forms (UAX #15) and grapheme clusters (UAX #29).
//
// The forms are those of Unicode 9.0, which tokenizers were made with: characters that came later
// stay as they are and do not combine.
//
// A text is normalized in chunks that do not influence each other: a chunk starts at a character
// that neither reorders nor composes with what stands before it. Callers that must know where
// output came from walk the chunks themselves. Cost is O(n log n) in the longest run of combining
// marks and linear otherwise.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cellm::unicode {

enum class Form { kNfc, kNfd, kNfkc, kNfkd };

// Normalizes chunk by chunk; reusable, one thread. `text` must be valid UTF-8 everywhere here.
class Normalizer {
 public:
  explicit Normalizer(Form form) : form_(form) {}

  // The end of the chunk that starts at byte `begin` < text.size().
  size_t ChunkEnd(std::string_view text, size_t begin) const;
  // Appends the normalized form of one chunk.
  void AppendChunk(std::string_view chunk, std::string* out);

 private:
  Form form_;
  std::vector<int32_t> code_points_;
};

// Appends the normalized form of `text`.
void AppendNormalized(Form form, std::string_view text, std::string* out);

// Is it a mark (category M) in Unicode 9.0? What StripAccents removes.
bool IsCombiningMark(char32_t code_point);

// The end of the extended grapheme cluster that starts at byte `begin` < text.size().
size_t GraphemeEnd(std::string_view text, size_t begin);

}  // namespace cellm::unicode

#endif  // CELLM_SRC_UNICODE_NORMALIZE_H_
