#include "tokenizer/normalizer.h"

#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "unicode/unicode.h"

namespace cellm::tokenizer {
namespace {

// Calls keep(code_point) for every character and copies those for which it says true.
template <typename Keep>
void Filter(const TrackedText& in, TrackedText* out, Keep keep) {
  for (size_t at = 0; at < in.text.size();) {
    const Utf8Char c = DecodeUtf8(std::string_view(in.text).substr(at));
    if (keep(c.code_point)) out->Copy(in, at, at + c.byte_count);
    at += c.byte_count;
  }
}

void ApplyForm(unicode::Form form, const TrackedText& in, TrackedText* out) {
  unicode::Normalizer normalizer(form);
  const std::string_view text = in.text;
  for (size_t at = 0; at < text.size();) {
    size_t ascii_end = at;
    while (ascii_end < text.size() && static_cast<uint8_t>(text[ascii_end]) < 0x80) ++ascii_end;
    // The last of the run may take an accent from what follows.
    const size_t safe_end = ascii_end < text.size() && ascii_end > at ? ascii_end - 1 : ascii_end;
    out->Copy(in, at, safe_end);
    at = safe_end;
    if (at >= text.size()) break;
    const size_t end = normalizer.ChunkEnd(text, at);
    normalizer.AppendChunk(text.substr(at, end - at), &out->text);
    out->Flag(in.Trusted(at, end));
    at = end;
  }
}

void ApplyNmt(const TrackedText& in, TrackedText* out) {
  for (size_t at = 0; at < in.text.size();) {
    const Utf8Char c = DecodeUtf8(std::string_view(in.text).substr(at));
    const char32_t u = c.code_point;
    const size_t end = at + c.byte_count;
    const bool removed = (u >= 0x1 && u <= 0x8) || u == 0xB || (u >= 0xE && u <= 0x1F) ||
                         u == 0x7F || u == 0x8F || u == 0x9F;
    const bool space = u == 0x9 || u == 0xA || u == 0xC || u == 0xD || u == 0x1680 ||
                       (u >= 0x200B && u <= 0x200F) || u == 0x2028 || u == 0x2029 || u == 0x2581 ||
                       u == 0xFEFF || u == 0xFFFD;
    if (space) {
      out->AppendFrom(in, at, end, " ");
    } else if (!removed) {
      out->Copy(in, at, end);
    }
    at = end;
  }
}

void ApplyBertClean(const TrackedText& in, TrackedText* out) {
  for (size_t at = 0; at < in.text.size();) {
    const Utf8Char c = DecodeUtf8(std::string_view(in.text).substr(at));
    const size_t end = at + c.byte_count;
    const char32_t u = c.code_point;
    const bool line = u == '\t' || u == '\n' || u == '\r';
    if (!line && (u == 0 || u == 0xFFFD || unicode::IsControlOfUnicode8(u))) {
      at = end;
      continue;
    }
    if (unicode::IsWhiteSpace(u)) {
      out->AppendFrom(in, at, end, " ");
    } else {
      out->Copy(in, at, end);
    }
    at = end;
  }
}

void ApplyStrip(bool left, bool right, const TrackedText& in, TrackedText* out) {
  const std::string_view text = in.text;
  size_t begin = text.size();
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text.substr(at));
    const size_t next = at + c.byte_count;
    if (!unicode::IsWhiteSpace(c.code_point)) {
      if (begin == text.size()) begin = at;
      end = next;
    }
    at = next;
  }
  if (!left) begin = 0;
  if (!right) end = text.size();
  if (begin < end) out->Copy(in, begin, end);
}

}  // namespace

Status Pattern::FindAll(std::string_view text, std::vector<regex::Span>* out) const {
  if (regex != nullptr) return regex->FindAll(text, out);
  if (literal.empty()) return Status();
  for (size_t at = text.find(literal); at != std::string_view::npos;
       at = text.find(literal, at + literal.size())) {
    out->push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(at + literal.size())});
  }
  return Status();
}

Status Normalizer::ApplyStep(const Step& step, const TrackedText& in, TrackedText* out) {
  switch (step.kind) {
    case Kind::kForm:
      ApplyForm(step.form, in, out);
      break;
    case Kind::kLowercase:
      for (size_t at = 0; at < in.text.size();) {
        const Utf8Char c = DecodeUtf8(std::string_view(in.text).substr(at));
        unicode::AppendLowercase(c.code_point, &out->text);
        out->Flag(in.Trusted(at, at + c.byte_count));
        at += c.byte_count;
      }
      break;
    case Kind::kStripAccents:
      Filter(in, out, [](char32_t c) { return !unicode::IsCombiningMark(c); });
      break;
    case Kind::kStripNonSpacing:
      Filter(in, out, [](char32_t c) { return !unicode::IsMarkOfUnicode8(c); });
      break;
    case Kind::kNmt:
      ApplyNmt(in, out);
      break;
    case Kind::kStrip:
      ApplyStrip(step.left, step.right, in, out);
      break;
    case Kind::kPrepend:
      if (!in.text.empty()) {
        out->AppendFrom(in, 0, DecodeUtf8(in.text).byte_count, step.content);
        out->Copy(in, 0, in.text.size());
      }
      break;
    case Kind::kReplace: {
      std::vector<regex::Span> matches;
      CELLM_RETURN_IF_ERROR(step.pattern.FindAll(in.text, &matches));
      size_t at = 0;
      for (const regex::Span& match : matches) {
        out->Copy(in, at, match.begin);
        out->AppendFrom(in, match.begin, match.end, step.content);
        at = match.end;
      }
      out->Copy(in, at, in.text.size());
      break;
    }
    case Kind::kPrecompiled:
      step.map.Apply(in, out);
      break;
    case Kind::kByteLevel:
      for (size_t at = 0; at < in.text.size(); ++at) {
        AppendByteLevel(static_cast<uint8_t>(in.text[at]), &out->text);
        out->Flag(in.Trusted(at, at + 1));
      }
      break;
    case Kind::kBertClean:
      ApplyBertClean(in, out);
      break;
    case Kind::kBertIdeographs:
      for (size_t at = 0; at < in.text.size();) {
        const Utf8Char c = DecodeUtf8(std::string_view(in.text).substr(at));
        const size_t end = at + c.byte_count;
        const bool ideograph = unicode::IsCjkIdeograph(c.code_point);
        if (ideograph) out->AppendFrom(in, at, end, " ");
        out->Copy(in, at, end);
        if (ideograph) out->AppendFrom(in, at, end, " ");
        at = end;
      }
      break;
  }
  return Status();
}

Status Normalizer::Apply(TrackedText* text) const {
  TrackedText other;
  for (const Step& step : steps_) {
    other.Clear(text->tracked);
    other.text.reserve(text->text.size() + text->text.size() / 8);
    CELLM_RETURN_IF_ERROR(ApplyStep(step, *text, &other));
    std::swap(*text, other);
  }
  return Status();
}

Result<std::string> Normalizer::Apply(std::string_view text) const {
  TrackedText tracked;
  tracked.text = text;
  CELLM_RETURN_IF_ERROR(Apply(&tracked));
  return std::move(tracked.text);
}

void Normalizer::AddReplace(std::string_view from, std::string_view to) {
  Step step;
  step.kind = Kind::kReplace;
  step.pattern.literal = from;
  step.content = to;
  steps_.push_back(std::move(step));
}

void Normalizer::AddPrepend(std::string_view prefix) {
  Step step;
  step.kind = Kind::kPrepend;
  step.content = prefix;
  steps_.push_back(std::move(step));
}

void Normalizer::AddForm(unicode::Form form) {
  Step step;
  step.form = form;
  steps_.push_back(std::move(step));
}

void Normalizer::AddBert(bool clean_text, bool handle_chinese_chars, bool strip_accents,
                         bool lowercase) {
  const auto add = [&](Kind kind) {
    Step step;
    step.kind = kind;
    steps_.push_back(std::move(step));
  };
  if (clean_text) add(Kind::kBertClean);
  if (handle_chinese_chars) add(Kind::kBertIdeographs);
  if (strip_accents) {
    AddForm(unicode::Form::kNfd);
    add(Kind::kStripNonSpacing);
  }
  if (lowercase) add(Kind::kLowercase);
}

Status Normalizer::AddFromJson(json::Value config) {
  CELLM_ASSIGN_OR_RETURN(const std::string type, ReadType(config, "normalizer"));
  if (type == "Sequence") {
    const json::Value list = config.Find("normalizers");
    if (!list.is_array()) return Corrupt("normalizer.normalizers: expected a list");
    for (json::Value v = list.First(); v.exists(); v = list.Next(v)) {
      CELLM_RETURN_IF_ERROR(AddFromJson(v));
    }
    return Status();
  }
  if (type == "BertNormalizer") {
    bool clean = true, chinese = true, lowercase = true;
    CELLM_RETURN_IF_ERROR(ReadBool(config, "clean_text", &clean));
    CELLM_RETURN_IF_ERROR(ReadBool(config, "handle_chinese_chars", &chinese));
    CELLM_RETURN_IF_ERROR(ReadBool(config, "lowercase", &lowercase));
    bool strip = lowercase;  // null means "as lowercase"
    CELLM_RETURN_IF_ERROR(ReadBool(config, "strip_accents", &strip));
    AddBert(clean, chinese, strip, lowercase);
    return Status();
  }
  Step step;
  if (type == "NFC") {
    step.form = unicode::Form::kNfc;
  } else if (type == "NFD") {
    step.form = unicode::Form::kNfd;
  } else if (type == "NFKC") {
    step.form = unicode::Form::kNfkc;
  } else if (type == "NFKD") {
    step.form = unicode::Form::kNfkd;
  } else if (type == "Lowercase") {
    step.kind = Kind::kLowercase;
  } else if (type == "StripAccents") {
    step.kind = Kind::kStripAccents;
  } else if (type == "Nmt") {
    step.kind = Kind::kNmt;
  } else if (type == "ByteLevel") {
    step.kind = Kind::kByteLevel;
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    step.left = step.right = true;
    CELLM_RETURN_IF_ERROR(ReadBool(config, "strip_left", &step.left));
    CELLM_RETURN_IF_ERROR(ReadBool(config, "strip_right", &step.right));
  } else if (type == "Prepend") {
    step.kind = Kind::kPrepend;
    CELLM_RETURN_IF_ERROR(ReadString(config, "prepend", &step.content));
  } else if (type == "Replace") {
    step.kind = Kind::kReplace;
    CELLM_ASSIGN_OR_RETURN(step.pattern,
                           PatternFromJson(config.Find("pattern"), "normalizer.pattern"));
    CELLM_RETURN_IF_ERROR(ReadString(config, "content", &step.content));
  } else if (type == "Precompiled") {
    step.kind = Kind::kPrecompiled;
    std::string_view base64;
    if (config.Find("precompiled_charsmap").has_value() &&
        !config.Find("precompiled_charsmap").GetString(&base64)) {
      return Corrupt("normalizer.precompiled_charsmap: expected a string");
    }
    CELLM_ASSIGN_OR_RETURN(step.map, PrecompiledMap::FromBase64(base64));
  } else {
    return Unsupported("normalizer: unknown type \"%s\"", type.c_str());
  }
  steps_.push_back(std::move(step));
  return Status();
}

Result<Normalizer> Normalizer::FromJson(json::Value config) {
  Normalizer normalizer;
  if (config.has_value()) CELLM_RETURN_IF_ERROR(normalizer.AddFromJson(config));
  return normalizer;
}

Result<Pattern> PatternFromJson(json::Value config, const char* field) {
  Pattern pattern;
  std::string_view text;
  if (config.Find("String").GetString(&text)) {
    pattern.literal = text;
    return pattern;
  }
  if (!config.Find("Regex").GetString(&text)) {
    return Corrupt("%s: expected {\"String\": ...} or {\"Regex\": ...}", field);
  }
  Result<regex::SplitPattern> compiled = regex::SplitPattern::Compile(text);
  if (!compiled.ok()) {
    return Status(compiled.status().code(),
                  std::string(field) + ": " + compiled.status().message());
  }
  pattern.regex = std::make_unique<regex::SplitPattern>(std::move(*compiled));
  return pattern;
}

Status ReadBool(json::Value object, const char* key, bool* out) {
  const json::Value value = object.Find(key);
  if (value.has_value() && !value.GetBool(out)) return Corrupt("%s: expected true or false", key);
  return Status();
}

Status ReadString(json::Value object, const char* key, std::string* out) {
  const json::Value value = object.Find(key);
  std::string_view text;
  if (!value.has_value()) return Status();
  if (!value.GetString(&text)) return Corrupt("%s: expected a string", key);
  *out = text;
  return Status();
}

Result<std::string> ReadType(json::Value config, const char* component) {
  std::string_view type;
  if (!config.is_object() || !config.Find("type").GetString(&type)) {
    return Corrupt("%s: expected an object with a \"type\"", component);
  }
  return std::string(type);
}

}  // namespace cellm::tokenizer
