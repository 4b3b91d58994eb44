#ifndef CELLM_TOOLS_CELLM_SERVE_VALUE_STREAM_H_
#define CELLM_TOOLS_CELLM_SERVE_VALUE_STREAM_H_

// A value of a tool call, rendered as JSON while it arrives: what comes out is at every moment a
// beginning of what the whole value is read as (tool_syntax.h), so that it can be shown at once.
//
//   in    {"city": "Z\u00fc     rich", "days": 1     2}
//   out   {"city":"Zü           rich","days":        12}
//
// What has to wait, and for what:
//   - a number or a constant for the byte behind it: 1 may become 12, and True is written true;
//   - an escape of a string, and a character of several bytes, for their last byte;
//   - in Gemma's strings, what may be the beginning of the closing mark;
//   - a name without quotes (f(city=...), {city:...}) for the sign behind it.
//
// The reading of the whole value decides what is right; this one stops (failed()) at the first byte
// that it cannot place, and what it has given then says nothing about the rest. Memory: a byte for
// each open bracket, and what waits.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cellm::tools::serve {

enum class ValueNotation : uint8_t { kJson, kPython, kGemma };

// Moves the front of `text`, all but its last `keep` bytes and an unfinished character, to *out
// with the escapes that a JSON string needs. False: it is no UTF-8; what stands before that has
// moved.
bool MoveQuoted(std::string* text, size_t keep, std::string* out);

class ValueStream {
 public:
  // `plain_text`: a value that is a string comes out as its characters, without quotes and escapes.
  explicit ValueStream(ValueNotation notation = ValueNotation::kJson, bool plain_text = false)
      : notation_(notation), plain_text_(plain_text) {}
  // What follows is the inside of "f(...)": key=value pairs up to the bracket. Appends to *out.
  void BeginPythonArguments(std::string* out);
  // Reads on, appending to *out. Returns how many bytes it has read: all of them, unless the value
  // has ended or failed.
  size_t Read(std::string_view text, std::string* out);
  bool done() const { return state_ == State::kDone; }
  bool failed() const { return state_ == State::kFailed; }

 private:
  enum class State : uint8_t {
    kValue,
    kMarkOfString,  // Gemma's opening mark
    kString,
    kEscape,
    kHex,        // of \uXXXX
    kLowEscape,  // a second \u must follow
    kScalar,
    kFirst,  // behind an opening bracket
    kNext,   // behind a comma
    kKey,
    kName,  // a key without quotes
    kColon,
    kAfterValue,
    kDone,
    kFailed
  };
  // One byte. False: look at it again, in the state that is now.
  bool Step(char c, std::string* out);
  bool StepStructure(char c, std::string* out);
  bool StepValue(char c, std::string* out);
  bool StepString(char c, std::string* out);
  bool StepEscape(char c);
  bool StepHex(char c);
  bool EndScalar(std::string* out);
  void Open(char close, std::string* out);
  void Close(std::string* out);
  void BeginString(char quote, std::string* out);
  void EndString(std::string* out);
  void Flush(std::string* out);
  bool OpensString(char c) const;
  bool Fail() {
    state_ = State::kFailed;
    return true;
  }
  bool compact() const { return notation_ == ValueNotation::kJson; }

  ValueNotation notation_;
  bool plain_text_;
  State state_ = State::kValue;
  std::string closers_;     // of the brackets that are open
  bool pairs_ = false;      // the outermost ones are those of f(key=value)
  bool is_key_ = false;     // the string or name that is read is one
  char quote_ = 0;          // that ends the string
  std::string text_;        // of the string, not yet shown
  std::string word_;        // a scalar or a name
  size_t matched_ = 0;      // bytes of a mark, or digits of an escape
  uint32_t code_unit_ = 0;  // of the escape
  uint32_t high_ = 0;       // a high surrogate that waits for its other half
};

}  // namespace cellm::tools::serve

#endif  // CELLM_TOOLS_CELLM_SERVE_VALUE_STREAM_H_
