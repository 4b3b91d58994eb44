#include "cellm/serve/value_stream.h"

#include <algorithm>

#include "base/utf8.h"
#include "cellm/serve/tool_syntax.h"
#include "json/json.h"

namespace cellm::tools::serve {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

bool IsSpace(char c) { return kSpace.find(c) != std::string_view::npos; }

// How many bytes of `text` are whole characters. *valid: what follows may become one.
size_t WholeCharacters(std::string_view text, bool* valid) {
  *valid = true;
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Char character = DecodeUtf8(text.substr(at));
    if (!character.valid) {
      *valid = character.truncated && at + character.byte_count == text.size();
      break;
    }
    at += character.byte_count;
  }
  return at;
}

}  // namespace

bool MoveQuoted(std::string* text, size_t keep, std::string* out) {
  bool valid = true;
  const size_t most = text->size() - std::min(keep, text->size());
  const size_t bytes = WholeCharacters(std::string_view(*text).substr(0, most), &valid);
  if (bytes > 0) {
    const std::string quoted = json::Quote(std::string_view(*text).substr(0, bytes));
    out->append(quoted, 1, quoted.size() - 2);
    text->erase(0, bytes);
  }
  return valid;
}

void ValueStream::BeginPythonArguments(std::string* out) {
  notation_ = ValueNotation::kPython;
  pairs_ = true;
  Open(')', out);
}

size_t ValueStream::Read(std::string_view text, std::string* out) {
  size_t at = 0;
  while (at < text.size() && !done() && !failed()) {
    if (Step(text[at], out)) ++at;
  }
  Flush(out);
  return at;
}

bool ValueStream::Step(char c, std::string* out) {
  switch (state_) {
    case State::kString:
      return StepString(c, out);
    case State::kEscape:
      return StepEscape(c);
    case State::kHex:
      return StepHex(c);
    case State::kLowEscape:
      // matched_ 0: the backslash is to come, 1: the u.
      if (c != (matched_ == 0 ? '\\' : 'u')) return Fail();
      if (++matched_ == 2) {
        matched_ = 0;
        code_unit_ = 0;
        state_ = State::kHex;
      }
      return true;
    case State::kMarkOfString:
      if (c != kGemmaQuote[matched_]) return Fail();
      if (++matched_ == kGemmaQuote.size()) BeginString(0, out);
      return true;
    case State::kScalar:
      if (kScalarEnds.find(c) == std::string_view::npos) {
        word_ += c;
        return true;
      }
      return EndScalar(out);
    case State::kName:
      if (IsNameByte(c)) {
        word_ += c;
        return true;
      }
      if (word_.empty()) return Fail();
      *out += json::Quote(word_);
      state_ = State::kColon;
      return false;
    default:
      return StepStructure(c, out);
  }
}

// What stands between values.
bool ValueStream::StepStructure(char c, std::string* out) {
  if (IsSpace(c)) return true;
  const bool in_object = !closers_.empty() && closers_.back() == '}';
  switch (state_) {
    case State::kValue:
      return StepValue(c, out);
    case State::kFirst:
    case State::kNext: {
      if (c == closers_.back()) {
        // Behind a last comma, in notations other than JSON, too.
        if (state_ == State::kNext && notation_ == ValueNotation::kJson) return Fail();
        Close(out);
        return true;
      }
      if (state_ == State::kNext) *out += compact() ? "," : ", ";
      const bool keys = in_object || (pairs_ && closers_.size() == 1);
      state_ = keys ? State::kKey : State::kValue;
      return false;
    }
    case State::kKey:
      is_key_ = true;
      if (OpensString(c)) return StepValue(c, out);
      if (notation_ == ValueNotation::kJson) return Fail();
      word_.clear();
      state_ = State::kName;
      return false;
    case State::kColon:
      if (c != (pairs_ && closers_.size() == 1 ? '=' : ':')) return Fail();
      *out += compact() ? ":" : ": ";
      is_key_ = false;
      state_ = State::kValue;
      return true;
    case State::kAfterValue:
      if (c == ',') {
        state_ = State::kNext;
        return true;
      }
      if (c != closers_.back()) return Fail();
      Close(out);
      return true;
    default:
      return Fail();
  }
}

bool ValueStream::OpensString(char c) const {
  if (notation_ == ValueNotation::kGemma) return c == kGemmaQuote[0];
  return c == '"' || (c == '\'' && notation_ == ValueNotation::kPython);
}

bool ValueStream::StepValue(char c, std::string* out) {
  if (OpensString(c)) {
    matched_ = 1;
    if (notation_ == ValueNotation::kGemma) {
      state_ = State::kMarkOfString;
    } else {
      BeginString(c, out);
    }
  } else if (c == '{' || c == '[') {
    Open(c == '{' ? '}' : ']', out);
  } else if (c == '(' && notation_ != ValueNotation::kJson) {
    Open(')', out);
  } else {
    word_.clear();
    state_ = State::kScalar;
    return false;
  }
  return true;
}

bool ValueStream::EndScalar(std::string* out) {
  if (!ReadScalar(word_, notation_ != ValueNotation::kJson, out)) return Fail();
  state_ = closers_.empty() ? State::kDone : State::kAfterValue;
  return false;
}

// A list in round brackets is one in square ones; the arguments of f(...) are an object.
void ValueStream::Open(char close, std::string* out) {
  const bool arguments = pairs_ && closers_.empty();
  *out += close == '}' || arguments ? '{' : '[';
  closers_ += close;
  state_ = State::kFirst;
}

void ValueStream::Close(std::string* out) {
  const bool arguments = pairs_ && closers_.size() == 1;
  *out += closers_.back() == '}' || arguments ? '}' : ']';
  closers_.pop_back();
  state_ = closers_.empty() ? State::kDone : State::kAfterValue;
}

void ValueStream::BeginString(char quote, std::string* out) {
  quote_ = quote;
  text_.clear();
  state_ = State::kString;
  if (!plain_text_ || !closers_.empty()) *out += '"';
}

bool ValueStream::StepString(char c, std::string* out) {
  if (notation_ == ValueNotation::kGemma) {
    text_ += c;
    if (!text_.ends_with(kGemmaQuote)) return true;
    text_.resize(text_.size() - kGemmaQuote.size());
    EndString(out);
  } else if (c == quote_) {
    EndString(out);
  } else if (c == '\\') {
    state_ = State::kEscape;
  } else if (notation_ == ValueNotation::kJson && static_cast<unsigned char>(c) < 0x20) {
    return Fail();
  } else {
    text_ += c;
  }
  return true;
}

bool ValueStream::StepEscape(char c) {
  constexpr std::string_view kFrom = "ntrbf0";
  constexpr std::string_view kTo = {"\n\t\r\b\f\0", 6};
  const bool json = notation_ == ValueNotation::kJson;
  state_ = State::kString;
  const size_t known = kFrom.find(c);
  if (c == 'u' && json) {
    matched_ = 0;
    code_unit_ = 0;
    state_ = State::kHex;
  } else if (json ? c == '0' : c == 'u' || c == 'x') {
    return Fail();
  } else if (known != std::string_view::npos) {
    text_ += kTo[known];
  } else if (!json || c == '"' || c == '\\' || c == '/') {
    text_ += c;
  } else {
    return Fail();
  }
  return true;
}

bool ValueStream::StepHex(char c) {
  uint32_t digit = 0;
  if (c >= '0' && c <= '9') {
    digit = static_cast<uint32_t>(c - '0');
  } else if (c >= 'a' && c <= 'f') {
    digit = static_cast<uint32_t>(c - 'a' + 10);
  } else if (c >= 'A' && c <= 'F') {
    digit = static_cast<uint32_t>(c - 'A' + 10);
  } else {
    return Fail();
  }
  code_unit_ = code_unit_ << 4 | digit;
  if (++matched_ < 4) return true;
  const bool is_high = code_unit_ >= 0xD800 && code_unit_ < 0xDC00;
  const bool is_low = code_unit_ >= 0xDC00 && code_unit_ < 0xE000;
  if (is_low != (high_ != 0)) return Fail();
  if (is_high) {
    high_ = code_unit_;
    matched_ = 0;
    state_ = State::kLowEscape;
    return true;
  }
  AppendUtf8(is_low ? 0x10000 + ((high_ - 0xD800) << 10) + (code_unit_ - 0xDC00) : code_unit_,
             &text_);
  high_ = 0;
  state_ = State::kString;
  return true;
}

void ValueStream::EndString(std::string* out) {
  bool valid = true;
  if (WholeCharacters(text_, &valid) != text_.size()) {
    state_ = State::kFailed;  // Read() shows what stands before the bad character
    return;
  }
  if (plain_text_ && closers_.empty()) {
    *out += text_;
    text_.clear();
    state_ = State::kDone;
    return;
  }
  (void)MoveQuoted(&text_, 0, out);
  *out += '"';
  state_ = is_key_ ? State::kColon : closers_.empty() ? State::kDone : State::kAfterValue;
}

// Shows what there is of a string.
void ValueStream::Flush(std::string* out) {
  if (text_.empty()) return;
  const size_t keep =
      notation_ == ValueNotation::kGemma ? PartialMarker(text_, kGemmaQuote) : size_t{0};
  if (plain_text_ && closers_.empty()) {
    bool valid = true;
    const size_t bytes = WholeCharacters(text_, &valid);
    out->append(text_, 0, bytes);
    text_.erase(0, bytes);
    if (!valid) state_ = State::kFailed;
  } else if (!MoveQuoted(&text_, keep, out)) {
    state_ = State::kFailed;
  }
  if (failed()) text_.clear();
}

}  // namespace cellm::tools::serve
