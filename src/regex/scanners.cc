// Straight-line scanners for the published split patterns.
//
// Each Match...() answers "what does the pattern match at this byte?" with the end of the match,
// or its own argument for none. They are written from the alternatives of the pattern, in order;
// where a regular expression would try and take back, the comment says why that is not needed.
// Every scanner looks at each character a bounded number of times: a match that gives characters
// back is followed by one that keeps them.

#include "regex/scanners.h"

#include "unicode/unicode.h"

namespace cellm::regex {
namespace {

using unicode::kCrLf;
using unicode::kLetter;
using unicode::kMark;
using unicode::kNumber;
using unicode::kPunctuation;
using unicode::kSpace;
using unicode::kSymbol;
using Contractions = ScannerOptions::Contractions;

// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and [\p{Ll}\p{Lm}\p{Lo}\p{M}] of the o200k patterns.
constexpr uint32_t kUpperSet = unicode::kLu | unicode::kLt | unicode::kLm | unicode::kLo | kMark;
constexpr uint32_t kLowerSet = unicode::kLl | unicode::kLm | unicode::kLo | kMark;

struct Char {
  uint32_t mask;  // 0 at the end of the text
  size_t next;    // where the following character starts
};

// A text with bounds-safe access by character. Ill-formed bytes (callers pass none) read as some
// character of at least one byte and never past the end.
class Text {
 public:
  explicit Text(std::string_view text)
      : data_(reinterpret_cast<const unsigned char*>(text.data())), size_(text.size()) {}

  size_t size() const { return size_; }
  // 0 at the end; NUL characters are not distinguished, which no caller needs.
  unsigned char Byte(size_t at) const { return at < size_ ? data_[at] : 0; }

  char32_t CodePoint(size_t at, size_t* next) const {
    const unsigned char lead = data_[at];
    if (lead < 0x80) {
      *next = at + 1;
      return lead;
    }
    const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (size_ - at < length) {
      *next = size_;
      return 0xFFFD;
    }
    *next = at + length;
    const auto tail = [&](size_t i) { return static_cast<char32_t>(data_[at + i] & 0x3F); };
    if (length == 2) return (static_cast<char32_t>(lead & 0x1F) << 6) | tail(1);
    if (length == 3) {
      return (static_cast<char32_t>(lead & 0x0F) << 12) | (tail(1) << 6) | tail(2);
    }
    return (static_cast<char32_t>(lead & 0x07) << 18) | (tail(1) << 12) | (tail(2) << 6) | tail(3);
  }

  Char At(size_t at) const {
    if (at >= size_) return {0, at};
    if (data_[at] < 0x80) return {unicode::internal::kAscii.masks[data_[at]], at + 1};
    size_t next = 0;
    const char32_t code_point = CodePoint(at, &next);
    return {unicode::CharMask(code_point), next};
  }

  // The end of the longest run of characters that share a bit with `mask`.
  size_t RunEnd(size_t at, uint32_t mask) const {
    for (Char c = At(at); (c.mask & mask) != 0; c = At(at)) at = c.next;
    return at;
  }
  // The same for characters that share none (and exist).
  size_t RunEndOutside(size_t at, uint32_t mask) const {
    for (Char c = At(at); c.mask != 0 && (c.mask & mask) == 0; c = At(at)) at = c.next;
    return at;
  }

 private:
  const unsigned char* data_;
  size_t size_;
};

// 's 't 're 've 'm 'll 'd at `at`, where an apostrophe may stand. In full Unicode folding s also
// matches U+017F.
size_t MatchContraction(const Text& text, size_t at, Contractions kind) {
  if (kind == Contractions::kNone || text.Byte(at) != '\'') return at;
  const auto letter = [&](size_t i) -> unsigned char {
    const unsigned char byte = text.Byte(i);
    return kind != Contractions::kLower && byte >= 'A' && byte <= 'Z'
               ? static_cast<unsigned char>(byte + 32)
               : byte;
  };
  switch (letter(at + 1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return at + 2;
    case 'r':
    case 'v':
      return letter(at + 2) == 'e' ? at + 3 : at;
    case 'l':
      return letter(at + 2) == 'l' ? at + 3 : at;
    case 0xC5:
      return kind == Contractions::kAnyCase && text.Byte(at + 2) == 0xBF ? at + 3 : at;
    default:
      return at;
  }
}

// \s+(?!\S)|\s+ : a run of white space, less its last character when a word follows and the run
// has more than one.
size_t MatchSpaces(const Text& text, size_t at) {
  size_t last = at;  // start of the last character in the run
  size_t end = at;
  for (Char c = text.At(at); (c.mask & kSpace) != 0; c = text.At(end)) {
    last = end;
    end = c.next;
  }
  return end == text.size() || last == at ? end : last;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ : with a line end in the run, up to and including the last one.
size_t MatchLinesOrSpaces(const Text& text, size_t at) {
  size_t last = at;
  size_t end = at;
  size_t line_end = at;
  for (Char c = text.At(at); (c.mask & kSpace) != 0; c = text.At(end)) {
    last = end;
    end = c.next;
    if ((c.mask & kCrLf) != 0) line_end = end;
  }
  if (line_end != at) return line_end;
  return end == text.size() || last == at ? end : last;
}

size_t MatchDigits(const Text& text, size_t at, uint32_t max_count) {
  for (uint32_t i = 0; i < max_count; ++i) {
    const Char c = text.At(at);
    if ((c.mask & kNumber) == 0) break;
    at = c.next;
  }
  return at;
}

//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t MatchGpt2(const Text& text, size_t at, const ScannerOptions& options) {
  const size_t contraction = MatchContraction(text, at, options.contractions);
  if (contraction != at) return contraction;
  const size_t word = text.Byte(at) == ' ' ? at + 1 : at;
  const Char c = text.At(word);
  if ((c.mask & kLetter) != 0) return text.RunEnd(c.next, kLetter);
  if ((c.mask & kNumber) != 0) return text.RunEnd(c.next, kNumber);
  if (c.mask != 0 && (c.mask & kSpace) == 0) {
    return text.RunEndOutside(c.next, kSpace | kLetter | kNumber);
  }
  return MatchSpaces(text, at);
}

//   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
//   |\s*[\r\n]+|\s+(?!\S)|\s+
// With marks_are_letters, \p{L}+ is [\p{L}\p{M}]+ and the third class leaves marks out, too. A
// mark may then also be the optional first character; both readings end at the same place.
size_t MatchCl100k(const Text& text, size_t at, const ScannerOptions& options) {
  const size_t contraction = MatchContraction(text, at, options.contractions);
  if (contraction != at) return contraction;
  const uint32_t letters = options.marks_are_letters ? kLetter | kMark : kLetter;
  const Char c = text.At(at);
  if ((c.mask & letters) != 0) return text.RunEnd(c.next, letters);
  if ((c.mask & kNumber) != 0) return MatchDigits(text, at, options.max_digits);
  if ((c.mask & kCrLf) == 0) {
    const Char second = text.At(c.next);
    if ((second.mask & letters) != 0) return text.RunEnd(second.next, letters);
  }
  const uint32_t others = kSpace | kNumber | letters;
  const size_t word = text.Byte(at) == ' ' ? at + 1 : at;
  const size_t end = text.RunEndOutside(word, others);
  if (end != word) return text.RunEnd(end, kCrLf);
  return MatchLinesOrSpaces(text, at);
}

//   [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ : the first part takes all it can;
// when nothing is left for the second, it gives back down to its last character that is in both.
size_t MatchCapitalised(const Text& text, size_t at) {
  size_t end = at;
  size_t last_shared_end = at;
  for (Char c = text.At(end); (c.mask & kUpperSet) != 0; c = text.At(end)) {
    end = c.next;
    if ((c.mask & kLowerSet) != 0) last_shared_end = end;
  }
  const size_t lower_end = text.RunEnd(end, kLowerSet);
  return lower_end != end ? lower_end : last_shared_end;
}

//   [^\r\n\p{L}\p{N}]?[upper]*[lower]+(?i:'s|...)?|[^\r\n\p{L}\p{N}]?[upper]+[lower]*(?i:'s|...)?
//   |\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
size_t MatchO200k(const Text& text, size_t at, const ScannerOptions& options) {
  const Char c = text.At(at);
  const bool optional_first = (c.mask & (kCrLf | kLetter | kNumber)) == 0;
  const size_t start = optional_first ? c.next : at;
  size_t end = MatchCapitalised(text, start);
  bool found = end != start;
  if (!found && optional_first && (c.mask & kMark) != 0) {
    // The first character may belong to the word itself, being a mark.
    end = MatchCapitalised(text, at);
    found = end != at;
  }
  if (!found) {  // no lower-case part: capitals alone
    end = text.RunEnd(start, kUpperSet);
    found = end != start;
  }
  if (found) return MatchContraction(text, end, options.contractions);
  if ((c.mask & kNumber) != 0) return MatchDigits(text, at, options.max_digits);
  const size_t word = text.Byte(at) == ' ' ? at + 1 : at;
  end = text.RunEndOutside(word, kSpace | kLetter | kNumber);
  if (end != word) {
    while (text.Byte(end) == '\r' || text.Byte(end) == '\n' || text.Byte(end) == '/') ++end;
    return end;
  }
  return MatchLinesOrSpaces(text, at);
}

//   [!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*
//   |\s*[\r\n]+|\s+(?!\S)|\s+
// Digits and unassigned or control characters before no letter match nothing.
size_t MatchDeepSeek(const Text& text, size_t at) {
  const auto is_ascii_letter = [&](size_t i) {
    const unsigned char byte = text.Byte(i);
    return (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z');
  };
  if (unicode::IsAsciiPunctuation(text.Byte(at)) && is_ascii_letter(at + 1)) {
    size_t end = at + 2;
    while (is_ascii_letter(end)) ++end;
    return end;
  }
  constexpr uint32_t kWord = kLetter | kMark;
  constexpr uint32_t kSign = kPunctuation | kSymbol;
  const Char c = text.At(at);
  if ((c.mask & kWord) != 0) return text.RunEnd(c.next, kWord);
  if ((c.mask & (kCrLf | kSign)) == 0) {
    const Char second = text.At(c.next);
    if ((second.mask & kWord) != 0) return text.RunEnd(second.next, kWord);
  }
  const size_t sign = text.Byte(at) == ' ' ? at + 1 : at;
  const size_t end = text.RunEnd(sign, kSign);
  if (end != sign) return text.RunEnd(end, kCrLf);
  return MatchLinesOrSpaces(text, at);
}

// Calls match(at) at every character that no earlier match has taken.
template <typename Match>
void ScanWith(std::string_view view, std::vector<Span>* out, Match match) {
  const Text text(view);
  for (size_t at = 0; at < text.size();) {
    const size_t end = match(text, at);
    if (end == at) {
      at = text.At(at).next;
      continue;
    }
    out->push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(end)});
    at = end;
  }
}

constexpr ScannerOptions Options(Contractions contractions, uint32_t max_digits,
                                 bool marks_are_letters = false) {
  ScannerOptions options;
  options.contractions = contractions;
  options.max_digits = max_digits;
  options.marks_are_letters = marks_are_letters;
  return options;
}

#define CELLM_ANY_CASE "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define CELLM_ANY_CASE_ASCII "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define CELLM_CL100K(contractions, digits)                                  \
  contractions "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                     \
               "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|" \
               "\\s+"
#define CELLM_QWEN35(contractions)                    \
  contractions                                        \
      "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}" \
      "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
// The same in another spelling: a single line end after greedy white space is the last one.
#define CELLM_CL100K_POSSESSIVE(digits)                          \
  "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|" digits \
  "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define CELLM_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define CELLM_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CELLM_O200K(contractions, digits)                                           \
  "[^\\r\\n\\p{L}\\p{N}]?" CELLM_UPPER "*" CELLM_LOWER "+" contractions             \
  "|[^\\r\\n\\p{L}\\p{N}]?" CELLM_UPPER "+" CELLM_LOWER "*" contractions "|" digits \
  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

constexpr KnownPattern kKnownPatterns[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     Scanner::kGpt2, Options(Contractions::kLower, 0)},
    {CELLM_CL100K(CELLM_ANY_CASE, "\\p{N}{1,3}"), Scanner::kCl100k,
     Options(Contractions::kAnyCase, 3)},
    {CELLM_CL100K(CELLM_ANY_CASE, "\\p{N}"), Scanner::kCl100k, Options(Contractions::kAnyCase, 1)},
    {CELLM_CL100K(CELLM_ANY_CASE_ASCII, "\\p{N}{1,3}"), Scanner::kCl100k,
     Options(Contractions::kAnyCaseAscii, 3)},
    {CELLM_CL100K(CELLM_ANY_CASE_ASCII, "\\p{N}"), Scanner::kCl100k,
     Options(Contractions::kAnyCaseAscii, 1)},
    {CELLM_CL100K_POSSESSIVE("\\p{N}{1,3}"), Scanner::kCl100k, Options(Contractions::kAnyCase, 3)},
    {CELLM_CL100K_POSSESSIVE("\\p{N}"), Scanner::kCl100k, Options(Contractions::kAnyCase, 1)},
    {CELLM_QWEN35(CELLM_ANY_CASE), Scanner::kCl100k, Options(Contractions::kAnyCase, 1, true)},
    {CELLM_QWEN35(CELLM_ANY_CASE_ASCII), Scanner::kCl100k,
     Options(Contractions::kAnyCaseAscii, 1, true)},
    {CELLM_O200K(CELLM_ANY_CASE "?", "\\p{N}{1,3}"), Scanner::kO200k,
     Options(Contractions::kAnyCase, 3)},
    {CELLM_O200K(CELLM_ANY_CASE "?", "\\p{N}"), Scanner::kO200k,
     Options(Contractions::kAnyCase, 1)},
    {CELLM_O200K("", "\\p{N}"), Scanner::kO200k, Options(Contractions::kNone, 1)},
    {CELLM_O200K("", "\\p{N}{1,3}"), Scanner::kO200k, Options(Contractions::kNone, 3)},
    {"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"
     "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     Scanner::kDeepSeek, Options(Contractions::kNone, 0)},
};

}  // namespace

const KnownPattern* FindKnownPattern(std::string_view pattern) {
  // Files write line ends raw or escaped; the table has them escaped.
  std::string escaped;
  for (const char c : pattern) {
    if (c == '\r') {
      escaped += "\\r";
    } else if (c == '\n') {
      escaped += "\\n";
    } else {
      escaped += c;
    }
  }
  for (const KnownPattern& known : kKnownPatterns) {
    if (known.text == escaped) return &known;
  }
  return nullptr;
}

void ScanKnown(Scanner scanner, const ScannerOptions& options, std::string_view text,
               std::vector<Span>* out) {
  switch (scanner) {
    case Scanner::kGpt2:
      return ScanWith(text, out,
                      [&](const Text& t, size_t at) { return MatchGpt2(t, at, options); });
    case Scanner::kCl100k:
      return ScanWith(text, out,
                      [&](const Text& t, size_t at) { return MatchCl100k(t, at, options); });
    case Scanner::kO200k:
      return ScanWith(text, out,
                      [&](const Text& t, size_t at) { return MatchO200k(t, at, options); });
    case Scanner::kDeepSeek:
      return ScanWith(text, out, [](const Text& t, size_t at) { return MatchDeepSeek(t, at); });
    case Scanner::kClassRun:
    case Scanner::kPcre2:
      break;
  }
}

void ScanClassRun(const ClassRun& run, std::string_view view, std::vector<Span>* out) {
  const auto count_run = [&](const Text& text, size_t at, size_t* end) {
    uint32_t count = 0;
    while (count < run.max_count && at < text.size()) {
      size_t next = 0;
      if (!run.set.Contains(text.CodePoint(at, &next))) break;
      at = next;
      ++count;
    }
    *end = at;
    return count;
  };
  ScanWith(view, out, [&](const Text& text, size_t at) {
    size_t end = at;
    if (run.has_lead) {
      size_t start = at;
      if (run.lead.Contains(text.CodePoint(at, &start)) &&
          count_run(text, start, &end) >= run.min_count) {
        return end;
      }
    }
    return count_run(text, at, &end) >= run.min_count ? end : at;
  });
}

}  // namespace cellm::regex
