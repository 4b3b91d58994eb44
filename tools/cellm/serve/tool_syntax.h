#ifndef CELLM_TOOLS_CELLM_SERVE_TOOL_SYNTAX_H_
#define CELLM_TOOLS_CELLM_SERVE_TOOL_SYNTAX_H_

// How models write tool calls, and what the calls say. Pure functions over whole texts;
// reply_parser.h finds them in a stream, and call_preview.h reads them while they arrive.
//
//   <tool_call>{"name": "f", "arguments": {...}}</tool_call>      Hermes, Qwen, Granite 4
//   <tool_call><function=f><parameter=k>v</parameter></function></tool_call>   Qwen 3.5 and Coder
//   {"name": "f", "parameters": {...}}, <|python_tag|>...         Llama 3, and bare JSON
//   [TOOL_CALLS][{...}, ...]  [TOOL_CALLS]f[ARGS]{...}            Mistral
//   <|tool_call_start|>[f(k="v"), ...]<|tool_call_end|>           LFM2
//   <|tool_call>call:f{k:<|"|>v<|"|>}<tool_call|>                 Gemma 4
//   <|tool_call|>[{...}, ...]                                     Granite 3, Phi 4
//   <|START_ACTION|>[{"tool_name": ...}]<|END_ACTION|>            Command R7B
//   <|tools_prefix|>[{"f": {...}}]<|tools_suffix|>                Apertus
//   <function=f>{...}</function>                                  Functionary
//   <|channel|>commentary to=functions.f ...<|message|>{...}      gpt-oss (in reply_parser.cc)
//
// All of them are looked for in every model's replies to requests with tools: the marks are not
// part of any prose, and models are trained on one another's formats.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cellm/serve/openai_request.h"

namespace cellm::tools::serve {

struct ToolCall {
  std::string name;
  std::string arguments;  // a JSON object
};

enum class CallBody : uint8_t {
  kJson,
  kBareJson,
  kTagged,
  kMistral,
  kPython,
  kGemma,
  kFunctionTag
};

struct CallMarker {
  std::string_view open;
  std::string_view close;  // "": none
  CallBody body;
};
std::span<const CallMarker> CallMarkers();

// Calls in a JSON value: one object, or a list of them. False: it is none. `known_only`: names must
// be those of `tools`.
bool ReadJsonCalls(std::string_view text, std::span<const Tool> tools, bool known_only,
                   std::vector<ToolCall>* out);
// "[f(k="v", n=1), g()]", or JSON in the same place.
bool ReadPythonCalls(std::string_view text, std::span<const Tool> tools,
                     std::vector<ToolCall>* out);
// "call:f{k:<|"|>v<|"|>,n:1}"
bool ReadGemmaCall(std::string_view text, std::vector<ToolCall>* out);
// "<function=f> <parameter=k> v </parameter> </function>" or "<function=f>{...}</function>". Values
// whose schema says string stay text; others are read as JSON where they are JSON.
bool ReadFunctionTag(std::string_view text, std::span<const Tool> tools,
                     std::vector<ToolCall>* out);
// Arguments as a model wrote them, as a JSON object: false when they are none.
bool ReadArguments(std::string_view text, std::string* out);
bool IsFunctionName(std::string_view name);
const Tool* FindTool(std::span<const Tool> tools, std::string_view name);

// ---- what is read byte by byte, too (value_stream.h, call_preview.h) ----

inline constexpr std::string_view kGemmaQuote = "<|\"|>";
inline constexpr std::string_view kScalarEnds = ",)]} \t\r\n";  // behind a number or a constant
inline constexpr std::string_view kFunctionTag = "<function=";
inline constexpr std::string_view kParameterTag = "<parameter=";
inline constexpr std::string_view kParameterEnd = "</parameter>";
// Keys of a call in JSON, what comes first counting first.
inline constexpr std::string_view kNameKeys[] = {"name", "tool_name", "function", "tool"};
inline constexpr std::string_view kArgumentKeys[] = {"arguments", "parameters", "args"};

// A byte of a name without quotes.
bool IsNameByte(char c);
// Appends a number, true, false or null to *out as JSON. `any_notation`: as Python writes them,
// too. False: it is none.
bool ReadScalar(std::string_view word, bool any_notation, std::string* out);
// Whether the schema of a tool says that this parameter is text.
bool IsTextParameter(const Tool* tool, std::string_view key);
// What stands between "<parameter=k>" and "</parameter>", as JSON.
std::string ParameterValue(std::string_view text, const Tool* tool, std::string_view key);
// How many bytes at the end of `text` could be the beginning of `marker` (not all of it).
size_t PartialMarker(std::string_view text, std::string_view marker);

// Finds where a bracketed value ends while it arrives, counting brackets outside of strings.
class ValueExtent {
 public:
  // `quotes`: which characters begin strings.
  explicit ValueExtent(std::string_view quotes = "\"") : quotes_(quotes) {}
  // Looks at text[from..] that it has not seen. True: the value ends before *end.
  bool Find(std::string_view text, size_t from, size_t* end);

 private:
  std::string_view quotes_;
  size_t seen_ = 0;
  int depth_ = 0;
  char quote_ = 0;  // of the string that we are in; 0: none
  bool escaped_ = false;
};

}  // namespace cellm::tools::serve

#endif  // CELLM_TOOLS_CELLM_SERVE_TOOL_SYNTAX_H_
