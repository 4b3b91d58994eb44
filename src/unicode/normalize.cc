#include "unicode/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "base/utf8.h"

namespace cellm::unicode {
namespace {

// Longest decomposition of one character (U+FDFA: 18), with room.
constexpr int kMaxDecomposition = 32;

constexpr int32_t kHangulVowelBase = 0x1161, kHangulVowelCount = 21;
constexpr int32_t kHangulTrailBase = 0x11A8, kHangulTrailCount = 27;
constexpr int32_t kHangulFirst = 0xAC00, kHangulLast = 0xD7A3;

struct CodePointRange {
  int32_t first;
  int32_t last;
};

#include "unicode/newer_than_9.inc"

// The library that tokenizers are made with normalizes by the tables of Unicode 9.0: to it, later
// characters are starters that neither decompose nor compose.
bool IsNewerThan9(int32_t code_point) {
  if (code_point < kNewerThan9[0].first) return false;
  const CodePointRange* range = std::upper_bound(
      std::begin(kNewerThan9), std::end(kNewerThan9), code_point,
      [](int32_t value, const CodePointRange& candidate) { return value < candidate.first; });
  return code_point <= (range - 1)->last;
}

int32_t CombiningClass(int32_t code_point) {
  return IsNewerThan9(code_point) ? 0 : utf8proc_get_property(code_point)->combining_class;
}

utf8proc_option_t DecomposeOptions(Form form) {
  int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
  if (form == Form::kNfkc || form == Form::kNfkd) options |= UTF8PROC_COMPAT;
  return static_cast<utf8proc_option_t>(options);
}

int Decompose(int32_t code_point, utf8proc_option_t options, int32_t* out) {
  if (IsNewerThan9(code_point)) {
    out[0] = code_point;
    return 1;
  }
  int boundary_class = UTF8PROC_BOUNDCLASS_START;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(code_point, out, kMaxDecomposition, options, &boundary_class);
  if (count < 1 || count > kMaxDecomposition) {
    out[0] = code_point;
    return 1;
  }
  return static_cast<int>(count);
}

// Could this character combine with, or move before, what stands to its left?
bool StartsChunk(int32_t code_point, utf8proc_option_t options) {
  if (code_point < 0x300 || IsNewerThan9(code_point)) return true;
  const utf8proc_property_t* property = utf8proc_get_property(code_point);
  if (property->decomp_seqindex != UINT16_MAX) {
    int32_t parts[kMaxDecomposition];
    Decompose(code_point, options, parts);
    code_point = parts[0];
    property = utf8proc_get_property(code_point);
  }
  if (property->combining_class != 0) return false;
  const bool second_of_pair = property->comb_index != UINT16_MAX && property->comb_index >= 0x8000;
  if (second_of_pair) return false;
  const int32_t vowel = code_point - kHangulVowelBase;
  const int32_t trail = code_point - kHangulTrailBase;
  return !(vowel >= 0 && vowel < kHangulVowelCount) && !(trail >= 0 && trail < kHangulTrailCount);
}

// A character that is its own normal form when it stands alone.
bool IsInert(int32_t code_point, Form form) {
  if (code_point < 0x80) return true;
  if (code_point >= kHangulFirst && code_point <= kHangulLast) {
    return form == Form::kNfc || form == Form::kNfkc;
  }
  return utf8proc_get_property(code_point)->decomp_seqindex == UINT16_MAX ||
         IsNewerThan9(code_point);
}

}  // namespace

size_t Normalizer::ChunkEnd(std::string_view text, size_t begin) const {
  const utf8proc_option_t options = DecomposeOptions(form_);
  size_t at = begin + DecodeUtf8(text.substr(begin)).byte_count;
  while (at < text.size()) {
    const Utf8Char next = DecodeUtf8(text.substr(at));
    if (StartsChunk(static_cast<int32_t>(next.code_point), options)) break;
    at += next.byte_count;
  }
  return at;
}

void Normalizer::AppendChunk(std::string_view chunk, std::string* out) {
  if (chunk.empty()) return;
  const Utf8Char first = DecodeUtf8(chunk);
  if (first.byte_count == chunk.size() && IsInert(static_cast<int32_t>(first.code_point), form_)) {
    out->append(chunk);
    return;
  }
  const utf8proc_option_t options = DecomposeOptions(form_);
  code_points_.clear();
  for (size_t at = 0; at < chunk.size();) {
    const Utf8Char c = DecodeUtf8(chunk.substr(at));
    int32_t parts[kMaxDecomposition];
    const int count = Decompose(static_cast<int32_t>(c.code_point), options, parts);
    code_points_.insert(code_points_.end(), parts, parts + count);
    at += c.byte_count;
  }
  // Canonical ordering: each run of non-starters, stably by combining class. utf8proc's own pass
  // is quadratic in the length of a run, which a text of nothing but accents would find.
  const size_t count = code_points_.size();
  for (size_t i = 0; i < count;) {
    if (CombiningClass(code_points_[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < count && CombiningClass(code_points_[end]) != 0) ++end;
    if (end - i > 1) {
      std::stable_sort(code_points_.begin() + static_cast<std::ptrdiff_t>(i),
                       code_points_.begin() + static_cast<std::ptrdiff_t>(end),
                       [](int32_t a, int32_t b) { return CombiningClass(a) < CombiningClass(b); });
    }
    i = end;
  }
  size_t length = count;
  if (form_ == Form::kNfc || form_ == Form::kNfkc) {
    const utf8proc_ssize_t composed = utf8proc_normalize_utf32(
        code_points_.data(), static_cast<utf8proc_ssize_t>(count),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (composed >= 0) length = static_cast<size_t>(composed);
  }
  for (size_t i = 0; i < length; ++i) AppendUtf8(static_cast<char32_t>(code_points_[i]), out);
}

void AppendNormalized(Form form, std::string_view text, std::string* out) {
  Normalizer normalizer(form);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = normalizer.ChunkEnd(text, begin);
    normalizer.AppendChunk(text.substr(begin, end - begin), out);
    begin = end;
  }
}

bool IsCombiningMark(char32_t code_point) {
  // Categories that later versions changed: two were marks, one was not yet.
  if (code_point == 0x1CF2 || code_point == 0x1CF3) return true;
  if (code_point == 0x111C9 || code_point > 0x10FFFF) return false;
  const int32_t c = static_cast<int32_t>(code_point);
  const int category = utf8proc_get_property(c)->category;
  const bool mark = category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
                    category == UTF8PROC_CATEGORY_ME;
  return mark && !IsNewerThan9(c);
}

size_t GraphemeEnd(std::string_view text, size_t begin) {
  Utf8Char current = DecodeUtf8(text.substr(begin));
  size_t at = begin + current.byte_count;
  utf8proc_int32_t state = 0;
  while (at < text.size()) {
    const Utf8Char next = DecodeUtf8(text.substr(at));
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(current.code_point),
                                         static_cast<utf8proc_int32_t>(next.code_point), &state)) {
      break;
    }
    at += next.byte_count;
    current = next;
  }
  return at;
}

}  // namespace cellm::unicode
