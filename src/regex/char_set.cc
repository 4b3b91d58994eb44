#include "regex/char_set.h"

#include "base/utf8.h"
#include "unicode/unicode.h"

namespace cellm::regex {
namespace {

struct NamedMask {
  std::string_view name;
  uint32_t mask;
};

using unicode::Category;
using unicode::MaskOf;

constexpr NamedMask kProperties[] = {
    {"L", unicode::kLetter},       {"Lu", unicode::kLu},          {"Ll", unicode::kLl},
    {"Lt", unicode::kLt},          {"Lm", unicode::kLm},          {"Lo", unicode::kLo},
    {"M", unicode::kMark},         {"Mn", MaskOf(Category::kMn)}, {"Mc", MaskOf(Category::kMc)},
    {"Me", MaskOf(Category::kMe)}, {"N", unicode::kNumber},       {"Nd", MaskOf(Category::kNd)},
    {"Nl", MaskOf(Category::kNl)}, {"No", MaskOf(Category::kNo)}, {"P", unicode::kPunctuation},
    {"S", unicode::kSymbol},       {"Z", unicode::kSeparator},
};

// The pattern's characters, read one by one.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  bool done() const { return at_ >= text_.size(); }
  bool Take(std::string_view literal) {
    if (text_.substr(at_, literal.size()) != literal) return false;
    at_ += literal.size();
    return true;
  }
  // False at the end and on ill-formed UTF-8.
  bool TakeChar(char32_t* out) {
    if (done()) return false;
    const Utf8Char c = DecodeUtf8(text_.substr(at_));
    if (!c.valid) return false;
    at_ += c.byte_count;
    *out = c.code_point;
    return true;
  }
  // A decimal number below 10,000.
  bool TakeNumber(uint32_t* out) {
    const size_t start = at_;
    uint32_t value = 0;
    while (!done() && text_[at_] >= '0' && text_[at_] <= '9' && at_ - start < 4) {
      value = value * 10 + static_cast<uint32_t>(text_[at_++] - '0');
    }
    *out = value;
    return at_ != start;
  }
  std::string_view TakeUntil(char end) {
    const size_t found = text_.find(end, at_);
    if (found == std::string_view::npos) return {};
    const std::string_view taken = text_.substr(at_, found - at_);
    at_ = found + 1;
    return taken;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

// What stands behind a backslash: one character (added to *single) or a class (added to the mask).
bool ParseEscape(Reader& reader, CharSet* set, char32_t* single) {
  *single = 0;
  if (reader.Take("p{")) {
    const std::string_view name = reader.TakeUntil('}');
    for (const NamedMask& property : kProperties) {
      if (property.name == name) {
        set->mask |= property.mask;
        return true;
      }
    }
    return false;
  }
  char32_t c = 0;
  if (!reader.TakeChar(&c)) return false;
  switch (c) {
    case 's':
      set->mask |= unicode::kSpace;
      return true;
    case 'd':
      set->mask |= MaskOf(Category::kNd);
      return true;
    case 'n':
      *single = '\n';
      return true;
    case 'r':
      *single = '\r';
      return true;
    case 't':
      *single = '\t';
      return true;
    default:
      // Punctuation stands for itself; other letters and digits mean things we do not know.
      *single = c;
      return unicode::IsAsciiPunctuation(c);
  }
}

bool ParseBracket(Reader& reader, CharSet* set) {
  set->negated = reader.Take("^");
  bool pending = false;  // a character that may start a range
  char32_t first = 0;
  const auto flush = [&] {
    if (pending) set->ranges.push_back({first, first});
    pending = false;
  };
  while (!reader.Take("]")) {
    char32_t c = 0;
    if (!reader.TakeChar(&c)) return false;
    if (c == '[' || c == '&') return false;  // nested classes and intersections
    const bool range_sign = c == '-';
    if (c == '\\') {
      const uint32_t mask_before = set->mask;
      if (!ParseEscape(reader, set, &c)) return false;
      if (c == 0) {
        flush();
        if (set->mask == mask_before) return false;
        continue;
      }
    }
    if (range_sign && pending) {
      char32_t last = 0;
      if (!reader.TakeChar(&last) || last == ']' || last == '[') return false;
      if (last == '\\') {
        const uint32_t mask_before = set->mask;
        if (!ParseEscape(reader, set, &last) || set->mask != mask_before) return false;
      }
      if (last < first) return false;
      set->ranges.push_back({first, last});
      pending = false;
      continue;
    }
    flush();
    first = c;
    pending = true;
  }
  flush();
  return true;
}

bool ParseAtom(Reader& reader, CharSet* set) {
  *set = CharSet();
  if (reader.Take("[")) return ParseBracket(reader, set);
  char32_t c = 0;
  if (!reader.TakeChar(&c)) return false;
  if (c == '\\') {
    if (!ParseEscape(reader, set, &c)) return false;
    if (c == 0) return true;
  } else if (std::string_view(".^$()|*+?{}]").find(static_cast<char>(c)) !=
                 std::string_view::npos &&
             c < 128) {
    return false;
  }
  set->ranges.push_back({c, c});
  return true;
}

bool ParseCount(Reader& reader, ClassRun* run) {
  run->min_count = 1;
  run->max_count = 1;
  if (reader.Take("+")) {
    run->max_count = UINT32_MAX;
    return true;
  }
  if (!reader.Take("{")) return true;
  if (!reader.TakeNumber(&run->min_count) || run->min_count == 0) return false;
  run->max_count = run->min_count;
  if (reader.Take(",")) {
    if (!reader.TakeNumber(&run->max_count)) run->max_count = UINT32_MAX;
  }
  return run->max_count >= run->min_count && reader.Take("}");
}

}  // namespace

bool CharSet::Contains(char32_t code_point) const {
  bool inside = (unicode::CharMask(code_point) & mask) != 0;
  for (size_t i = 0; !inside && i < ranges.size(); ++i) {
    inside = code_point >= ranges[i].first && code_point <= ranges[i].last;
  }
  return inside != negated;
}

bool ParseClassRun(std::string_view pattern, ClassRun* out) {
  Reader reader(pattern);
  ClassRun run;
  if (!ParseAtom(reader, &run.set)) return false;
  if (reader.Take("?")) {
    run.has_lead = true;
    run.lead = run.set;
    if (!ParseAtom(reader, &run.set)) return false;
  }
  if (!ParseCount(reader, &run) || !reader.done()) return false;
  *out = run;
  return true;
}

}  // namespace cellm::regex
