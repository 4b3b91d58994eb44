#include "tokenizer/pre_tokenizer.h"

#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "unicode/script.h"
#include "unicode/unicode.h"

namespace cellm::tokenizer {
namespace {

using regex::Span;

constexpr std::string_view kGpt2Pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kMetaspaceDefault = "\xE2\x96\x81";  // U+2581

Span MakeSpan(size_t begin, size_t end) {
  return {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
}

std::string_view View(const CutText& cut, Span word) {
  return std::string_view(cut.text.text).substr(word.begin, word.end - word.begin);
}

// Appends a match for every character for which is_delimiter says true; `joined` makes one match
// of neighbours. Offsets are relative to `text`.
template <typename IsDelimiter>
void FindChars(std::string_view text, bool joined, std::vector<Span>* out, IsDelimiter test) {
  bool previous = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text.substr(at));
    const size_t end = at + c.byte_count;
    const bool match = test(c.code_point);
    if (match && previous && joined) {
      out->back().end = static_cast<uint32_t>(end);
    } else if (match) {
      out->push_back(MakeSpan(at, end));
    }
    previous = match;
    at = end;
  }
}

bool IsPunctuation(char32_t c) {
  return unicode::IsAsciiPunctuation(c) || unicode::IsPunctuationOfUnicode8(c);
}

// The script by which UnicodeScripts cuts: kana count as Han, a space has none.
unicode::Script CuttingScript(char32_t c) {
  if (c == ' ') return unicode::kScriptUnknown;
  if (c == 0x30FC) return unicode::kScriptHan;
  const unicode::Script script = unicode::ScriptOf(c);
  return script == unicode::kScriptHiragana || script == unicode::kScriptKatakana
             ? unicode::kScriptHan
             : script;
}

// Runs of \w and runs of neither \w nor \s.
void CutWhitespace(std::string_view text, uint32_t base, std::vector<Span>* out) {
  int previous = 0;  // 0 space, 1 word, 2 other
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text.substr(at));
    const size_t end = at + c.byte_count;
    const int kind = unicode::IsWordCharacter(c.code_point) ? 1
                     : unicode::IsWhiteSpace(c.code_point)  ? 0
                                                            : 2;
    if (kind != 0 && kind == previous) {
      out->back().end = static_cast<uint32_t>(base + end);
    } else if (kind != 0) {
      out->push_back(MakeSpan(base + at, base + end));
    }
    previous = kind;
    at = end;
  }
}

}  // namespace

void PreTokenizer::CutAround(const std::vector<Span>& matches, Span word, Behavior behavior,
                             bool invert, std::vector<Span>* out) {
  struct Part {
    Span span;
    bool match;
  };
  const uint32_t base = word.begin;
  const uint32_t size = word.end - word.begin;
  const auto push = [&](uint32_t begin, uint32_t end) {
    if (begin < end) out->push_back({base + begin, base + end});
  };
  if (behavior == Behavior::kIsolated || behavior == Behavior::kRemoved) {
    const bool keep_gaps = behavior == Behavior::kIsolated || !invert;
    const bool keep_matches = behavior == Behavior::kIsolated || invert;
    uint32_t at = 0;
    for (const Span& match : matches) {
      if (keep_gaps) push(at, match.begin);
      if (keep_matches) push(match.begin, match.end);
      at = match.end;
    }
    if (keep_gaps) push(at, size);
    return;
  }
  std::vector<Part> parts;
  uint32_t at = 0;
  for (const Span& match : matches) {
    if (at < match.begin) parts.push_back({{at, match.begin}, invert});
    parts.push_back({match, !invert});
    at = match.end;
  }
  if (at < size) parts.push_back({{at, size}, invert});
  std::vector<Span> joined;
  bool previous = false;
  const bool backwards = behavior == Behavior::kMergedWithNext;
  if (backwards) std::reverse(parts.begin(), parts.end());
  for (const Part& part : parts) {
    const bool join =
        behavior == Behavior::kContiguous ? part.match == previous : part.match && !previous;
    if (join && !joined.empty()) {
      if (backwards) {
        joined.back().begin = part.span.begin;
      } else {
        joined.back().end = part.span.end;
      }
    } else {
      joined.push_back(part.span);
    }
    previous = part.match;
  }
  if (backwards) std::reverse(joined.begin(), joined.end());
  for (const Span& span : joined) push(span.begin, span.end);
}

Status PreTokenizer::ApplySplit(const Step& step, CutText* cut) {
  std::vector<Span> words;
  std::vector<Span> matches;
  words.reserve(cut->words.size());
  for (const Span& word : cut->words) {
    matches.clear();
    CELLM_RETURN_IF_ERROR(step.pattern.FindAll(View(*cut, word), &matches));
    CutAround(matches, word, step.behavior, step.invert, &words);
  }
  cut->words = std::move(words);
  return Status();
}

Status PreTokenizer::ApplyByteLevel(const Step& step, bool defer_bytes, CutText* cut) {
  if (step.add_prefix_space) {
    TrackedText text;
    text.Clear(cut->text.tracked);
    for (Span& word : cut->words) {
      const size_t begin = text.text.size();
      if (cut->text.text[word.begin] != ' ') {
        text.AppendFrom(cut->text, word.begin, word.begin + 1, " ");
      }
      text.Copy(cut->text, word.begin, word.end);
      word = MakeSpan(begin, text.text.size());
    }
    cut->text = std::move(text);
  }
  if (step.use_regex) CELLM_RETURN_IF_ERROR(ApplySplit(step, cut));
  if (defer_bytes) {
    cut->raw_bytes = true;
    return Status();
  }
  TrackedText text;
  text.Clear(cut->text.tracked);
  for (Span& word : cut->words) {
    const size_t begin = text.text.size();
    for (size_t at = word.begin; at < word.end; ++at) {
      AppendByteLevel(static_cast<uint8_t>(cut->text.text[at]), &text.text);
      text.Flag(cut->text.Trusted(at, at + 1));
    }
    word = MakeSpan(begin, text.text.size());
  }
  cut->text = std::move(text);
  return Status();
}

Status PreTokenizer::ApplyMetaspace(const Step& step, bool at_start, CutText* cut) {
  const std::string& mark = step.pattern.literal;
  TrackedText text;
  text.Clear(cut->text.tracked);
  text.text.reserve(cut->text.text.size() * 5 / 4);
  for (Span& word : cut->words) {
    const size_t begin = text.text.size();
    const std::string_view view = View(*cut, word);
    const bool marked = view[0] == ' ' || view.substr(0, mark.size()) == mark;
    const bool prepend = step.prepend == Prepend::kAlways ||
                         (step.prepend == Prepend::kFirst && at_start && word.begin == 0);
    if (prepend && !marked) text.AppendFrom(cut->text, word.begin, word.begin + 1, mark);
    for (size_t at = word.begin; at < word.end;) {
      size_t end = at;
      while (end < word.end && cut->text.text[end] != ' ') ++end;
      text.Copy(cut->text, at, end);
      if (end < word.end) text.AppendFrom(cut->text, end, end + 1, mark);
      at = end + 1;
    }
    word = MakeSpan(begin, text.text.size());
  }
  cut->text = std::move(text);
  return step.split ? ApplySplit(step, cut) : Status();
}

// Starts a word where the script changes; characters of no script belong to what came before, and
// at the very start to nothing.
void PreTokenizer::ApplyScripts(CutText* cut) {
  std::vector<Span> words;
  for (const Span& word : cut->words) {
    const std::string_view text = View(*cut, word);
    unicode::Script last = unicode::kScriptUnknown;
    bool open = false;
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = DecodeUtf8(text.substr(at));
      const unicode::Script script = CuttingScript(c.code_point);
      if (script != unicode::kScriptUnknown) {
        if (!open || script != last) {
          if (open) words.back().end = static_cast<uint32_t>(word.begin + at);
          words.push_back(MakeSpan(word.begin + at, word.end));
          open = true;
        }
        last = script;
      }
      at += c.byte_count;
    }
  }
  cut->words = std::move(words);
}

Status PreTokenizer::ApplyStep(const Step& step, bool at_start, bool defer_bytes, CutText* cut) {
  std::vector<Span> words;
  std::vector<Span> matches;
  const auto cut_chars = [&](bool joined, Behavior behavior, auto test) {
    words.clear();
    for (const Span& word : cut->words) {
      matches.clear();
      FindChars(View(*cut, word), joined, &matches, test);
      CutAround(matches, word, behavior, false, &words);
    }
    cut->words = words;
  };
  switch (step.kind) {
    case Kind::kSplit:
      return ApplySplit(step, cut);
    case Kind::kByteLevel:
      return ApplyByteLevel(step, defer_bytes, cut);
    case Kind::kMetaspace:
      return ApplyMetaspace(step, at_start, cut);
    case Kind::kUnicodeScripts:
      ApplyScripts(cut);
      return Status();
    case Kind::kWhitespace:
      for (const Span& word : cut->words) CutWhitespace(View(*cut, word), word.begin, &words);
      cut->words = std::move(words);
      return Status();
    case Kind::kWhitespaceSplit:
      cut_chars(false, Behavior::kRemoved, unicode::IsWhiteSpace);
      return Status();
    case Kind::kBert:
      cut_chars(false, Behavior::kRemoved, unicode::IsWhiteSpace);
      cut_chars(false, Behavior::kIsolated, IsPunctuation);
      return Status();
    case Kind::kDigits:
      cut_chars(!step.individual, Behavior::kIsolated, unicode::IsNumberOfUnicode17);
      return Status();
    case Kind::kPunctuation:
      cut_chars(false, step.behavior, IsPunctuation);
      return Status();
    case Kind::kFixedLength:
      for (const Span& word : cut->words) {
        uint32_t count = 0;
        size_t begin = word.begin;
        for (size_t at = word.begin; at < word.end;) {
          at += DecodeUtf8(std::string_view(cut->text.text).substr(at)).byte_count;
          if (++count == step.length || at >= word.end) {
            words.push_back(MakeSpan(begin, at));
            begin = at;
            count = 0;
          }
        }
      }
      cut->words = std::move(words);
      return Status();
  }
  return Status();
}

Status PreTokenizer::Apply(CutText* cut, bool at_start, bool defer_bytes) const {
  cut->words.clear();
  cut->raw_bytes = false;
  if (cut->text.text.size() > UINT32_MAX / 8) return OutOfRange("text of more than 500 MB");
  if (cut->text.text.empty()) return Status();
  cut->words.push_back(MakeSpan(0, cut->text.text.size()));
  for (size_t i = 0; i < steps_.size(); ++i) {
    const bool last = i + 1 == steps_.size();
    CELLM_RETURN_IF_ERROR(ApplyStep(steps_[i], at_start, defer_bytes && last, cut));
  }
  return Status();
}

Status PreTokenizer::ReadBehavior(json::Value config, Behavior* out) {
  std::string name;
  CELLM_RETURN_IF_ERROR(ReadString(config, "behavior", &name));
  if (name == "Removed") {
    *out = Behavior::kRemoved;
  } else if (name == "Isolated" || name.empty()) {
    *out = Behavior::kIsolated;
  } else if (name == "MergedWithPrevious") {
    *out = Behavior::kMergedWithPrevious;
  } else if (name == "MergedWithNext") {
    *out = Behavior::kMergedWithNext;
  } else if (name == "Contiguous") {
    *out = Behavior::kContiguous;
  } else {
    return Unsupported("pre_tokenizer.behavior: unknown value \"%s\"", name.c_str());
  }
  return Status();
}

Status PreTokenizer::ReadMetaspace(json::Value config, Step* step) {
  step->kind = Kind::kMetaspace;
  step->behavior = Behavior::kMergedWithNext;
  step->pattern.literal = kMetaspaceDefault;
  CELLM_RETURN_IF_ERROR(ReadString(config, "replacement", &step->pattern.literal));
  const std::string& mark = step->pattern.literal;
  if (mark.empty() || DecodeUtf8(mark).byte_count != mark.size()) {
    return Corrupt("pre_tokenizer.replacement: expected one character");
  }
  CELLM_RETURN_IF_ERROR(ReadBool(config, "split", &step->split));
  // Older files say add_prefix_space; newer ones prepend_scheme. With both, they must agree.
  bool add_prefix_space = true;
  CELLM_RETURN_IF_ERROR(ReadBool(config, "add_prefix_space", &add_prefix_space));
  std::string scheme;
  CELLM_RETURN_IF_ERROR(ReadString(config, "prepend_scheme", &scheme));
  if (scheme.empty()) scheme = add_prefix_space ? "always" : "never";
  if (scheme == "always") {
    step->prepend = Prepend::kAlways;
  } else if (scheme == "first") {
    step->prepend = Prepend::kFirst;
  } else if (scheme == "never") {
    step->prepend = Prepend::kNever;
  } else {
    return Unsupported("pre_tokenizer.prepend_scheme: unknown value \"%s\"", scheme.c_str());
  }
  if (!add_prefix_space && step->prepend != Prepend::kNever) {
    return Corrupt("pre_tokenizer: add_prefix_space is false, prepend_scheme is \"%s\"",
                   scheme.c_str());
  }
  return Status();
}

Status PreTokenizer::AddFromJson(json::Value config) {
  CELLM_ASSIGN_OR_RETURN(const std::string type, ReadType(config, "pre_tokenizer"));
  if (type == "Sequence") {
    const json::Value list = config.Find("pretokenizers");
    if (!list.is_array()) return Corrupt("pre_tokenizer.pretokenizers: expected a list");
    for (json::Value v = list.First(); v.exists(); v = list.Next(v)) {
      CELLM_RETURN_IF_ERROR(AddFromJson(v));
    }
    return Status();
  }
  Step step;
  if (type == "Split") {
    CELLM_ASSIGN_OR_RETURN(step.pattern,
                           PatternFromJson(config.Find("pattern"), "pre_tokenizer.pattern"));
    CELLM_RETURN_IF_ERROR(ReadBehavior(config, &step.behavior));
    CELLM_RETURN_IF_ERROR(ReadBool(config, "invert", &step.invert));
  } else if (type == "ByteLevel") {
    bool add_prefix_space = true, use_regex = true;
    CELLM_RETURN_IF_ERROR(ReadBool(config, "add_prefix_space", &add_prefix_space));
    CELLM_RETURN_IF_ERROR(ReadBool(config, "use_regex", &use_regex));
    AddByteLevel(add_prefix_space, use_regex);
    return Status();
  } else if (type == "Metaspace") {
    CELLM_RETURN_IF_ERROR(ReadMetaspace(config, &step));
  } else if (type == "Digits") {
    step.kind = Kind::kDigits;
    CELLM_RETURN_IF_ERROR(ReadBool(config, "individual_digits", &step.individual));
  } else if (type == "Punctuation") {
    step.kind = Kind::kPunctuation;
    CELLM_RETURN_IF_ERROR(ReadBehavior(config, &step.behavior));
  } else if (type == "CharDelimiterSplit") {
    step.behavior = Behavior::kRemoved;
    CELLM_RETURN_IF_ERROR(ReadString(config, "delimiter", &step.pattern.literal));
  } else if (type == "FixedLength") {
    step.kind = Kind::kFixedLength;
    int64_t length = step.length;
    if (config.Find("length").has_value() && !config.Find("length").GetInt64(&length)) length = 0;
    if (length < 1 || length > 1'000'000) return Corrupt("pre_tokenizer.length: not 1 or more");
    step.length = static_cast<uint32_t>(length);
  } else if (type == "Whitespace") {
    step.kind = Kind::kWhitespace;
  } else if (type == "WhitespaceSplit") {
    step.kind = Kind::kWhitespaceSplit;
  } else if (type == "BertPreTokenizer") {
    step.kind = Kind::kBert;
  } else if (type == "UnicodeScripts") {
    step.kind = Kind::kUnicodeScripts;
  } else {
    return Unsupported("pre_tokenizer: unknown type \"%s\"", type.c_str());
  }
  steps_.push_back(std::move(step));
  return Status();
}

Result<PreTokenizer> PreTokenizer::FromJson(json::Value config) {
  PreTokenizer pre_tokenizer;
  if (config.has_value()) CELLM_RETURN_IF_ERROR(pre_tokenizer.AddFromJson(config));
  return pre_tokenizer;
}

void PreTokenizer::AddSplit(regex::SplitPattern pattern) {
  Step step;
  step.pattern.regex = std::make_unique<regex::SplitPattern>(std::move(pattern));
  steps_.push_back(std::move(step));
}

void PreTokenizer::AddByteLevel(bool add_prefix_space, bool use_regex) {
  Step step;
  step.kind = Kind::kByteLevel;
  step.add_prefix_space = add_prefix_space;
  step.use_regex = use_regex;
  Result<regex::SplitPattern> gpt2 = regex::SplitPattern::Compile(kGpt2Pattern);
  CELLM_CHECK(gpt2.ok(), "the GPT-2 pattern has a scanner");
  step.pattern.regex = std::make_unique<regex::SplitPattern>(std::move(*gpt2));
  steps_.push_back(std::move(step));
}

void PreTokenizer::AddDigits() {
  Step step;
  step.kind = Kind::kDigits;
  step.individual = true;
  steps_.push_back(std::move(step));
}

void PreTokenizer::AddBert() {
  Step step;
  step.kind = Kind::kBert;
  steps_.push_back(std::move(step));
}

}  // namespace cellm::tokenizer
