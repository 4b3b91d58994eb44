#include "json/json.h"

#include <charconv>
#include <cmath>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/numbers.h"
#include "base/utf8.h"
#include "json/tape.h"

namespace cellm::json {

struct Document::Impl {
  Tape tape;
};

Document::Document() : impl_(new Impl) {}
Document::~Document() = default;

Result<std::unique_ptr<Document>> Document::Parse(std::string_view text, std::string_view name) {
  if (text.size() > limits::kMaxJsonBytes) {
    return OutOfRange("%.*s: %zu bytes of JSON, more than the %zu allowed",
                      static_cast<int>(name.size()), name.data(), text.size(),
                      limits::kMaxJsonBytes);
  }
  std::unique_ptr<Document> document(new Document);
  switch (ParseFast(text, &document->impl_->tape)) {
    case FastResult::kParsed:
      break;
    case FastResult::kRefused:
      CELLM_RETURN_IF_ERROR(ParseStrict(text, name, &document->impl_->tape));
      break;
    case FastResult::kOutOfMemory:
      return OutOfMemory("%.*s: memory for %zu bytes of JSON refused",
                         static_cast<int>(name.size()), name.data(), text.size());
  }
  return document;
}

Value Document::root() const { return Value(this, 1, false); }

uint64_t Value::Word() const { return document_->impl_->tape.words[index_]; }
char Value::Type() const {
  return exists() ? static_cast<char>(static_cast<unsigned char>(Word() >> 56)) : 'n';
}
std::string_view Value::StringAt(uint64_t word) const {
  const uint8_t* bytes = document_->impl_->tape.strings.get() + (word & kPayloadMask);
  return {reinterpret_cast<const char*>(bytes) + 4, LoadLe32(bytes)};
}

Kind Value::kind() const {
  switch (Type()) {
    case 't':
    case 'f':
      return Kind::kBool;
    case 'l':
    case 'u':
    case 'd':
    case 'B':
      return Kind::kNumber;
    case '"':
      return Kind::kString;
    case '[':
      return Kind::kArray;
    case '{':
      return Kind::kObject;
    default:
      return Kind::kNull;
  }
}

bool Value::is_integer() const {
  const char type = Type();
  return type == 'l' || type == 'u' || type == 'B';
}

bool Value::GetBool(bool* out) const {
  const char type = Type();
  if (type != 't' && type != 'f') return false;
  *out = type == 't';
  return true;
}

bool Value::GetInt64(int64_t* out) const {
  const char type = Type();
  if (type != 'l' && type != 'u' && type != 'd') return false;
  const uint64_t bits = document_->impl_->tape.words[index_ + 1];
  if (type == 'd') {
    const double value = std::bit_cast<double>(bits);
    // 2^63 itself does not fit; every double below it does once it has no fraction.
    if (!(value >= -0x1.0p63 && value < 0x1.0p63) || value != std::trunc(value)) return false;
    *out = static_cast<int64_t>(value);
    return true;
  }
  if (type == 'u' && bits > static_cast<uint64_t>(INT64_MAX)) return false;
  *out = static_cast<int64_t>(bits);
  return true;
}

bool Value::GetUint64(uint64_t* out) const {
  const char type = Type();
  if (type != 'l' && type != 'u' && type != 'd') return false;
  const uint64_t bits = document_->impl_->tape.words[index_ + 1];
  if (type == 'd') {
    const double value = std::bit_cast<double>(bits);
    if (!(value >= 0 && value < 0x1.0p64) || value != std::trunc(value)) return false;
    *out = static_cast<uint64_t>(value);
    return true;
  }
  if (type == 'l' && static_cast<int64_t>(bits) < 0) return false;
  *out = bits;
  return true;
}

bool Value::GetDouble(double* out) const {
  switch (Type()) {
    case 'l':
      *out = static_cast<double>(static_cast<int64_t>(document_->impl_->tape.words[index_ + 1]));
      return true;
    case 'u':
      *out = static_cast<double>(document_->impl_->tape.words[index_ + 1]);
      return true;
    case 'd':
      *out = std::bit_cast<double>(document_->impl_->tape.words[index_ + 1]);
      return true;
    case 'B':
      return ParseDouble(NumberText(), out);
    default:
      return false;
  }
}

bool Value::GetString(std::string_view* out) const {
  if (Type() != '"') return false;
  *out = StringAt(Word());
  return true;
}

std::string_view Value::NumberText() const {
  return Type() == 'B' ? StringAt(Word()) : std::string_view();
}

size_t Value::size() const {
  if (!is_array() && !is_object()) return 0;
  const uint64_t count = (Word() >> 32) & kCountSaturated;
  if (count < kCountSaturated) return static_cast<size_t>(count);
  size_t exact = 0;
  for (Value member = First(); member.exists(); member = Next(member)) ++exact;
  return exact;
}

Value Value::First() const {
  const char type = Type();
  if (type != '[' && type != '{') return Value();
  const char after =
      static_cast<char>(static_cast<unsigned char>(document_->impl_->tape.words[index_ + 1] >> 56));
  if (after == ']' || after == '}') return Value();
  const bool in_object = type == '{';
  return Value(document_, index_ + (in_object ? 2u : 1u), in_object);
}

Value Value::Next(Value member) const {
  if (!member.exists()) return Value();
  size_t next = member.index_ + 1;
  switch (member.Type()) {
    case '[':
    case '{':
      next = static_cast<size_t>(member.Word() & 0xFFFFFFFF);
      break;
    case 'l':
    case 'u':
    case 'd':
      ++next;
      break;
    default:
      break;
  }
  const char type =
      static_cast<char>(static_cast<unsigned char>(document_->impl_->tape.words[next] >> 56));
  // 'r' ends the document: `member` was the root.
  if (type == ']' || type == '}' || type == 'r') return Value();
  return Value(document_, next + (member.in_object_ ? 1u : 0u), member.in_object_);
}

std::string_view Value::KeyOf(Value member) const {
  if (!member.exists() || !member.in_object_) return {};
  return member.StringAt(document_->impl_->tape.words[member.index_ - 1]);
}

Value Value::Find(std::string_view key) const {
  Value found;
  if (!is_object()) return found;
  for (Value member = First(); member.exists(); member = Next(member)) {
    if (KeyOf(member) == key) found = member;
  }
  return found;
}

Value Value::At(size_t index) const {
  if (!is_array()) return Value();
  Value member = First();
  while (member.exists() && index > 0) {
    member = Next(member);
    --index;
  }
  return member;
}

std::string Quote(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  const std::string fixed = IsValidUtf8(text) ? std::string() : ReplaceInvalidUtf8(text);
  if (!fixed.empty()) text = fixed;
  std::string quoted;
  quoted.reserve(text.size() + 2);
  quoted.push_back('"');
  for (const char c : text) {
    const unsigned char byte = static_cast<unsigned char>(c);
    switch (c) {
      case '"':
        quoted += "\\\"";
        break;
      case '\\':
        quoted += "\\\\";
        break;
      case '\n':
        quoted += "\\n";
        break;
      case '\r':
        quoted += "\\r";
        break;
      case '\t':
        quoted += "\\t";
        break;
      case '\b':
        quoted += "\\b";
        break;
      case '\f':
        quoted += "\\f";
        break;
      default:
        if (byte < 0x20) {
          quoted += "\\u00";
          quoted.push_back(kHex[byte >> 4]);
          quoted.push_back(kHex[byte & 15]);
        } else {
          quoted.push_back(c);
        }
    }
  }
  quoted.push_back('"');
  return quoted;
}

namespace {

void AppendNumber(Value value, std::string* out) {
  int64_t narrow = 0;
  uint64_t wide = 0;
  double real = 0;
  if (!value.NumberText().empty()) {
    out->append(value.NumberText());
  } else if (value.is_integer() && value.GetInt64(&narrow)) {
    out->append(std::to_string(narrow));
  } else if (value.is_integer() && value.GetUint64(&wide)) {
    out->append(std::to_string(wide));
  } else if (value.GetDouble(&real)) {
    if (std::isnan(real)) {
      out->append("NaN");
    } else if (std::isinf(real)) {
      out->append(real < 0 ? "-Infinity" : "Infinity");
    } else {
      AppendDouble(real, out);
    }
  }
}

// Recursion is bounded by limits::kMaxJsonDepth, which Parse() enforced.
void Append(Value value, std::string* out) {
  bool flag = false;
  std::string_view text;
  switch (value.kind()) {
    case Kind::kNull:
      out->append("null");
      return;
    case Kind::kBool:
      (void)value.GetBool(&flag);
      out->append(flag ? "true" : "false");
      return;
    case Kind::kNumber:
      AppendNumber(value, out);
      return;
    case Kind::kString:
      (void)value.GetString(&text);
      out->append(Quote(text));
      return;
    case Kind::kArray:
    case Kind::kObject:
      break;
  }
  const bool is_object = value.is_object();
  out->push_back(is_object ? '{' : '[');
  bool first = true;
  for (Value member = value.First(); member.exists(); member = value.Next(member)) {
    if (!first) out->push_back(',');
    first = false;
    if (is_object) out->append(Quote(value.KeyOf(member))).push_back(':');
    Append(member, out);
  }
  out->push_back(is_object ? '}' : ']');
}

}  // namespace

std::string Serialize(Value value) {
  std::string text;
  Append(value, &text);
  return text;
}

}  // namespace cellm::json
