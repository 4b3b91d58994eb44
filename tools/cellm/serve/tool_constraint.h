#ifndef CELLM_TOOLS_CELLM_SERVE_TOOL_CONSTRAINT_H_
#define CELLM_TOOLS_CELLM_SERVE_TOOL_CONSTRAINT_H_

// Holding a reply to the form of tool calls: which notation a model's template uses, and the
// structural constraint of the C API (CELLM_CONSTRAINT_STRUCTURAL) that follows from it. Pure.

#include <cstdint>
#include <string>
#include <string_view>

#include "cellm/serve/openai_request.h"

namespace cellm::tools::serve {

enum class CallStyle : uint8_t {
  kTagged,       // <tool_call> {"name": "f", "arguments": {...}} </tool_call>
  kMistralList,  // [TOOL_CALLS][{"name": "f", "arguments": {...}}]
  kMistralArgs,  // [TOOL_CALLS]f[ARGS]{...}
  kMistralId,    // [TOOL_CALLS]f[CALL_ID]id[ARGS]{...}
  kLlama,        // {"name": "f", "parameters": {...}}
  kBare,         // {"name": "f", "arguments": {...}}; also what every other notation is held to
};

// A conversation with one call of kProbeTool in it, to be rendered by a model's template.
extern const char* const kProbeMessages;
extern const char* const kProbeTools;
// The notation that the rendered text has the call in.
CallStyle ReadCallStyle(std::string_view rendered);

// The constraint for a request with tools, as JSON; "" where there is nothing to hold: no tools, or
// a free choice in a notation whose beginning is no mark.
std::string ToolConstraint(CallStyle style, const GenerateRequest& request);

}  // namespace cellm::tools::serve

#endif  // CELLM_TOOLS_CELLM_SERVE_TOOL_CONSTRAINT_H_
