// Any text through every scanner: matches lie in order inside the text, and are those that PCRE2
// finds where this build has it. The first byte picks the pattern.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "regex/split.h"
#include "unicode/unicode.h"

namespace {

using cellm::regex::Span;
using cellm::regex::SplitPattern;

#define TAIL "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define ANY "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

constexpr const char* kPatterns[] = {
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    ANY "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" TAIL,
    ANY "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" TAIL,
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" ANY "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER
    "*" ANY "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" TAIL,
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" TAIL,
    "\\s?\\p{L}+",
    "\\p{N}{1,3}",
};
constexpr size_t kCount = sizeof(kPatterns) / sizeof(kPatterns[0]);

std::vector<Span> Matches(const SplitPattern& pattern, std::string_view text) {
  std::vector<Span> spans;
  CELLM_CHECK(pattern.FindAll(text, &spans).ok(), "a short text can be split");
  return spans;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static std::optional<SplitPattern> scanners[kCount];
  static std::optional<SplitPattern> oracles[kCount];
  static std::optional<SplitPattern> unassigned;
  if (size < 1 || size > 4096) return 0;
  const size_t which = data[0] % kCount;
  if (!scanners[which]) {
    scanners[which] = *SplitPattern::Compile(kPatterns[which]);
    if (cellm::regex::HasPcre2()) {
      oracles[which] = *SplitPattern::CompileWithPcre2(kPatterns[which]);
      unassigned = *SplitPattern::CompileWithPcre2("\\p{Cn}");
    }
  }
  const std::string text = cellm::ReplaceInvalidUtf8(
      std::string_view(reinterpret_cast<const char*>(data) + 1, size - 1));
  const std::vector<Span> found = Matches(*scanners[which], text);
  uint32_t at = 0;
  for (const Span& span : found) {
    CELLM_CHECK(span.begin >= at && span.end > span.begin && span.end <= text.size(),
                "matches are in order and inside the text");
    at = span.end;
  }
  if (!oracles[which]) return 0;
  for (const Span& span : Matches(*unassigned, text)) {
    // Characters newer than PCRE2's tables have no common answer.
    const char32_t c = cellm::DecodeUtf8(std::string_view(text).substr(span.begin)).code_point;
    if (cellm::unicode::GeneralCategory(c) != cellm::unicode::Category::kCn) return 0;
  }
  const std::vector<Span> expected = Matches(*oracles[which], text);
  CELLM_CHECK(found.size() == expected.size(), "scanner and PCRE2 find as many matches");
  for (size_t i = 0; i < found.size(); ++i) {
    CELLM_CHECK(found[i].begin == expected[i].begin && found[i].end == expected[i].end,
                "scanner and PCRE2 find the same matches");
  }
  return 0;
}
