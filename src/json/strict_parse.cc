// A plain JSON parser that fills a Tape: a state machine with an explicit stack, so that depth
// costs no machine stack. See tape.h for when it runs.
#include <charconv>
#include <cstring>
#include <limits>
#include <new>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/numbers.h"
#include "base/utf8.h"
#include "json/tape.h"

namespace cellm::json {
namespace {

// A growing buffer whose refusal is an answer, not the end of the process.
template <typename T>
class Buffer {
 public:
  // Room for `count` more elements; false when memory is refused.
  bool Reserve(size_t count) {
    if (capacity_ - size_ >= count) return true;
    const size_t wanted = std::max(size_ + count, capacity_ + capacity_ / 2 + 64);
    std::unique_ptr<T[]> larger(new (std::nothrow) T[wanted]);
    if (larger == nullptr) return false;
    if (size_ != 0) std::memcpy(larger.get(), data_.get(), size_ * sizeof(T));
    data_ = std::move(larger);
    capacity_ = wanted;
    return true;
  }
  void Push(T value) { data_[size_++] = value; }  // after Reserve()
  T* data() { return data_.get(); }
  size_t size() const { return size_; }
  void Truncate(size_t size) { size_ = size; }
  std::unique_ptr<T[]> Take() { return std::move(data_); }

 private:
  std::unique_ptr<T[]> data_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

uint64_t Word(char type, uint64_t payload) {
  return uint64_t{static_cast<unsigned char>(type)} << 56 | payload;
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  Status Run(Tape* out) {
    CELLM_RETURN_IF_ERROR(ParseDocument());
    out->words = words_.Take();
    out->strings = strings_.Take();
    return OkStatus();
  }

 private:
  struct Open {
    size_t word = 0;  // index of the opening word
    uint64_t count = 0;
    bool is_object = false;
  };

  Status Fail(size_t at, const char* expected) const {
    const int name_bytes = static_cast<int>(name_.size());
    if (at >= text_.size()) {
      return Corrupt("%.*s: JSON ends at byte %zu, expected %s", name_bytes, name_.data(), at,
                     expected);
    }
    const unsigned char found = static_cast<unsigned char>(text_[at]);
    if (found >= 0x20 && found < 0x7F) {
      return Corrupt("%.*s: byte %zu: found '%c', expected %s", name_bytes, name_.data(), at, found,
                     expected);
    }
    return Corrupt("%.*s: byte %zu: found byte 0x%02x, expected %s", name_bytes, name_.data(), at,
                   found, expected);
  }
  Status NoMemory() const {
    return OutOfMemory("%.*s: memory for %zu bytes of JSON refused", static_cast<int>(name_.size()),
                       name_.data(), text_.size());
  }

  void SkipSpace() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) {
      ++at_;
    }
  }
  bool Take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool TakeWord(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Status ParseDocument() {
    if (text_.starts_with("\xEF\xBB\xBF")) {
      return Fail(0, "JSON (the text begins with a byte order mark; remove its three bytes)");
    }
    if (!words_.Reserve(1)) return NoMemory();
    words_.Push(0);
    CELLM_RETURN_IF_ERROR(ParseValue());
    while (depth_ > 0) CELLM_RETURN_IF_ERROR(ParseMember());
    SkipSpace();
    if (at_ != text_.size()) return Fail(at_, "the end of the text");
    if (!words_.Reserve(1)) return NoMemory();
    words_.Push(Word('r', 0));
    words_.data()[0] = Word('r', words_.size());
    return OkStatus();
  }

  // The next member of the innermost open container, or its end.
  Status ParseMember() {
    Open& open = stack_[depth_ - 1];
    SkipSpace();
    if (Take(open.is_object ? '}' : ']')) return Close();
    if (open.count > 0) {
      if (!Take(',')) return Fail(at_, open.is_object ? "',' or '}'" : "',' or ']'");
      SkipSpace();
    }
    ++open.count;
    if (open.is_object) {
      if (!Take('"')) {
        return Fail(at_, open.count > 1 ? "a key in quotes" : "a key in quotes or '}'");
      }
      CELLM_RETURN_IF_ERROR(ParseString());
      SkipSpace();
      if (!Take(':')) return Fail(at_, "':'");
    }
    return ParseValue();
  }

  Status Close() {
    if (!words_.Reserve(1)) return NoMemory();
    const Open& open = stack_[--depth_];
    words_.Push(Word(open.is_object ? '}' : ']', open.word));
    const uint64_t count = std::min(open.count, kCountSaturated);
    words_.data()[open.word] = Word(open.is_object ? '{' : '[', count << 32 | words_.size());
    return OkStatus();
  }

  Status ParseValue() {
    SkipSpace();
    if (at_ >= text_.size()) return Fail(at_, "a value");
    if (!words_.Reserve(2)) return NoMemory();
    const char c = text_[at_];
    if (c == '{' || c == '[') {
      if (depth_ == limits::kMaxJsonDepth) {
        return OutOfRange("%.*s: byte %zu: JSON nests deeper than %d",
                          static_cast<int>(name_.size()), name_.data(), at_, limits::kMaxJsonDepth);
      }
      ++at_;
      stack_[depth_++] = {words_.size(), 0, c == '{'};
      words_.Push(0);
      return OkStatus();
    }
    if (c == '"') {
      ++at_;
      return ParseString();
    }
    if (TakeWord("true")) {
      words_.Push(Word('t', 0));
    } else if (TakeWord("false")) {
      words_.Push(Word('f', 0));
    } else if (TakeWord("null")) {
      words_.Push(Word('n', 0));
    } else if (TakeWord("NaN")) {
      PushDouble(std::numeric_limits<double>::quiet_NaN());
    } else if (TakeWord("Infinity")) {
      PushDouble(std::numeric_limits<double>::infinity());
    } else if (TakeWord("-Infinity")) {
      PushDouble(-std::numeric_limits<double>::infinity());
    } else if (c == '-' || (c >= '0' && c <= '9')) {
      return ParseNumber();
    } else {
      return Fail(at_, "a value");
    }
    return OkStatus();
  }

  void PushDouble(double value) {
    words_.Push(Word('d', 0));
    words_.Push(std::bit_cast<uint64_t>(value));
  }

  size_t SkipDigits() {
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ - begin;
  }

  Status ParseNumber() {
    const size_t begin = at_;
    bool is_integer = true;
    Take('-');
    if (Take('0')) {
      if (SkipDigits() != 0) return Fail(begin, "a number without leading zeros");
    } else if (SkipDigits() == 0) {
      return Fail(at_, "a digit");
    }
    if (Take('.')) {
      is_integer = false;
      if (SkipDigits() == 0) return Fail(at_, "a digit after '.'");
    }
    if (Take('e') || Take('E')) {
      is_integer = false;
      if (!Take('+')) Take('-');
      if (SkipDigits() == 0) return Fail(at_, "a digit in the exponent");
    }
    const std::string_view digits = text_.substr(begin, at_ - begin);
    if (!is_integer) {
      double value = 0;
      if (!ParseDouble(digits, &value)) return Fail(begin, "a number");
      PushDouble(value);
      return OkStatus();
    }
    const char* end = digits.data() + digits.size();
    int64_t narrow = 0;
    uint64_t wide = 0;
    if (std::from_chars(digits.data(), end, narrow).ec == std::errc()) {
      words_.Push(Word('l', 0));
      words_.Push(static_cast<uint64_t>(narrow));
    } else if (digits[0] != '-' && std::from_chars(digits.data(), end, wide).ec == std::errc()) {
      words_.Push(Word('u', 0));
      words_.Push(wide);
    } else {
      if (!strings_.Reserve(digits.size() + 5)) return NoMemory();
      const size_t offset = BeginString();
      std::memcpy(strings_.data() + strings_.size(), digits.data(), digits.size());
      strings_.Truncate(strings_.size() + digits.size());
      EndString('B', offset);
    }
    return OkStatus();
  }

  // A string's place in the string buffer: 4 bytes for the length come first.
  size_t BeginString() {
    const size_t offset = strings_.size();
    strings_.Truncate(offset + 4);
    return offset;
  }
  void EndString(char type, size_t offset) {
    const uint32_t byte_count = static_cast<uint32_t>(strings_.size() - offset - 4);
    StoreLe(strings_.data() + offset, byte_count);
    strings_.Push(0);
    words_.Push(Word(type, offset));
  }

  // The text after an opening quote.
  Status ParseString() {
    const size_t begin = at_;
    // Unescaping never lengthens, so the distance to the closing quote bounds the bytes.
    size_t end = at_;
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2u : 1u;
    if (end >= text_.size()) return Fail(text_.size(), "the end of a string");
    if (!words_.Reserve(1) || !strings_.Reserve(end - begin + 5)) return NoMemory();
    const size_t offset = BeginString();
    while (at_ < end) {
      const unsigned char c = static_cast<unsigned char>(text_[at_]);
      if (c == '\\') {
        ++at_;
        CELLM_RETURN_IF_ERROR(ParseEscape());
      } else if (c < 0x20) {
        return Fail(at_, "an escape (a control character stands bare in a string)");
      } else if (c < 0x80) {
        strings_.Push(c);
        ++at_;
      } else {
        const Utf8Char decoded = DecodeUtf8(text_.substr(at_));
        if (!decoded.valid) return Fail(at_, "well-formed UTF-8");
        PushBytes(text_.substr(at_, decoded.byte_count));
        at_ += decoded.byte_count;
      }
    }
    at_ = end + 1;
    EndString('"', offset);
    return OkStatus();
  }

  void PushBytes(std::string_view bytes) {
    for (const char byte : bytes) strings_.Push(static_cast<uint8_t>(byte));
  }

  // What follows a backslash. at_ is below the closing quote, so one character is there.
  Status ParseEscape() {
    static constexpr std::string_view kFrom = "\"\\/bfnrt";
    static constexpr std::string_view kTo = "\"\\/\b\f\n\r\t";
    const size_t plain = kFrom.find(text_[at_]);
    if (plain != std::string_view::npos) {
      strings_.Push(static_cast<uint8_t>(kTo[plain]));
      ++at_;
      return OkStatus();
    }
    if (text_[at_] != 'u') return Fail(at_, "one of \"\\/bfnrtu after a backslash");
    const size_t begin = at_ - 1;
    ++at_;
    uint32_t code_point = 0;
    CELLM_RETURN_IF_ERROR(ParseHex(&code_point));
    if (code_point >= 0xD800 && code_point < 0xDC00) {
      uint32_t low = 0;
      if (!TakeWord("\\u")) return Fail(begin, "a surrogate pair (its second half is missing)");
      CELLM_RETURN_IF_ERROR(ParseHex(&low));
      if (low < 0xDC00 || low > 0xDFFF) return Fail(begin, "a surrogate pair");
      code_point = 0x10000 + ((code_point - 0xD800) << 10) + (low - 0xDC00);
    } else if (code_point >= 0xDC00 && code_point <= 0xDFFF) {
      return Fail(begin, "a surrogate pair (its first half is missing)");
    }
    std::string utf8;
    AppendUtf8(static_cast<char32_t>(code_point), &utf8);
    PushBytes(utf8);
    return OkStatus();
  }

  Status ParseHex(uint32_t* out) {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = at_ < text_.size() ? text_[at_] : '\0';
      uint32_t digit = 0;
      if (c >= '0' && c <= '9') {
        digit = static_cast<uint32_t>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        digit = static_cast<uint32_t>(c - 'a') + 10;
      } else if (c >= 'A' && c <= 'F') {
        digit = static_cast<uint32_t>(c - 'A') + 10;
      } else {
        return Fail(at_, "a hexadecimal digit");
      }
      value = value * 16 + digit;
    }
    *out = value;
    return OkStatus();
  }

  std::string_view text_;
  std::string_view name_;
  size_t at_ = 0;
  Buffer<uint64_t> words_;
  Buffer<uint8_t> strings_;
  Open stack_[limits::kMaxJsonDepth];
  int depth_ = 0;
};

}  // namespace

Status ParseStrict(std::string_view text, std::string_view name, Tape* out) {
  return Parser(text, name).Run(out);
}

}  // namespace cellm::json
