#ifndef CELLM_TOOLS_CELLM_SERVE_CALL_PREVIEW_H_
#define CELLM_TOOLS_CELLM_SERVE_CALL_PREVIEW_H_

// Tool calls while they arrive: names, and as much of the arguments as can no longer change. What
// the whole text is read as (tool_syntax.h) decides; as long as that is a call, name and arguments
// here are its name and a beginning of its arguments, byte for byte, in every notation:
//
//   JSON (Hermes, Qwen, Llama 3, Mistral, Granite, gpt-oss, bare, ...)  byte by byte, once the name
//       is known: a text that has the arguments before the name waits for the name
//   f(k=v), call:f{k:v} (LFM2, Gemma 4)   texts byte by byte, numbers and constants when they end:
//       they are written differently in JSON
//   <parameter=k>v</parameter> (Qwen Coder, Qwen 3.5)   parameters whose schema says string byte by
//       byte; others when they are closed: v is taken as JSON if it is JSON, else as a text, and
//       "8000 Zurich" begins like a number
//
// Where a text breaks a rule of its notation, reading stops and what was read stays. Pure; linear
// in the text.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cellm/serve/tool_syntax.h"
#include "cellm/serve/value_stream.h"

namespace cellm::tools::serve {

class CallPreview {
 public:
  // What follows is the body of what `body` names.
  void Begin(CallBody body);
  // What follows is a JSON object, the arguments of this tool.
  void BeginArguments(std::string_view name);
  // Reads on. `tools` are the same in every call.
  void Read(std::string_view text, std::span<const Tool> tools);
  // In the order of the text. A name that is not known yet is empty; it never changes afterwards,
  // and arguments only grow.
  const std::vector<ToolCall>& calls() const { return calls_; }

 private:
  enum class State : uint8_t {
    kStart,
    kStopped,
    kValue,  // see purpose_
    // {"name": "f", "arguments": {...}}
    kElement,
    kFirstKey,
    kNextKey,
    kColon,
    kMember,
    kAfterMember,
    kAfterElement,
    // [f(...), g(...)]
    kPythonList,
    kPythonName,
    kPythonBracket,
    kAfterPythonCall,
    // call:f{...}   f[ARGS]{...}
    kGemmaName,
    kMistralName,
    kMistralValue,
    // <function=f><parameter=k>v</parameter></function>
    kTag,
    kTagName,
    kTagBody,
    kParameterOpen,
    kParameterKey,
    kParameterValue
  };
  enum class Purpose : uint8_t { kKey, kName, kArguments, kArgumentText, kOther };

  // One byte. False: look at it again, in the state that is now.
  bool Step(char c, std::span<const Tool> tools);
  bool StepStart(char c);
  bool StepJson(char c, std::span<const Tool> tools);
  bool StepMember(char c, std::span<const Tool> tools);
  bool StepName(char c);
  bool StepTag(char c, std::span<const Tool> tools);
  size_t ReadValue(std::string_view text, std::span<const Tool> tools);
  void ReadArgumentText();
  void BeginElement();
  void BeginValue(Purpose purpose, State after);
  void BeginParameter(std::span<const Tool> tools);
  void EndParameter(std::span<const Tool> tools);
  bool BeginCall(std::string_view name);
  bool NameIsGood(std::string_view name, std::span<const Tool> tools) const;
  bool Stop() {
    state_ = State::kStopped;
    return true;
  }

  std::vector<ToolCall> calls_;
  State state_ = State::kStopped;
  CallBody body_ = CallBody::kJson;
  bool list_ = false;
  // Of an element.
  bool nested_ = false;         // inside of its "function"
  bool has_arguments_ = false;  // they have begun
  bool first_member_ = false;
  std::string key_;
  // Of the value that is read.
  ValueStream value_;
  Purpose purpose_ = Purpose::kOther;
  State after_value_ = State::kStopped;
  std::string scratch_;
  ValueStream inner_;  // of arguments that are a text with JSON in it
  bool inner_begun_ = false;
  // Of names and tags.
  std::string word_;
  bool parameter_is_text_ = false;
  bool parameter_begun_ = false;
};

}  // namespace cellm::tools::serve

#endif  // CELLM_TOOLS_CELLM_SERVE_CALL_PREVIEW_H_
