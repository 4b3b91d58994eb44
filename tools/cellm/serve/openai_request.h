#ifndef CELLM_TOOLS_CELLM_SERVE_OPENAI_REQUEST_H_
#define CELLM_TOOLS_CELLM_SERVE_OPENAI_REQUEST_H_

// Request bodies of the OpenAI API, read into plain values. No model is needed for it: what depends
// on one (does the prompt fit, is an id in the vocabulary) is checked when the reply is started.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cellm/cellm.h"
#include "cellm/serve/api_error.h"
#include "cellm/serve/fields.h"
#include "json/json.h"

namespace cellm::tools::serve {

enum class ToolChoice : uint8_t { kAuto, kNone, kRequired, kNamed };

struct Tool {
  std::string name;
  std::string parameters;  // JSON schema; "" when not given
};

// What the reply must look like. The kinds are those of the C API.
struct Constraint {
  enum class Kind : uint8_t { kNone, kJsonObject, kJsonSchema, kGrammar, kRegex, kChoices };
  Kind kind = Kind::kNone;
  std::string text;
  std::string param;  // the field that asked for it, for messages
};

struct GenerateRequest {
  std::string model;  // "": the first
  // A conversation (chat) ...
  std::string messages;       // JSON array, as the template wants it
  std::string tools;          // JSON array, "" for none
  std::string template_args;  // JSON object, "" for none
  // ... or texts or ids to be continued, each a reply of its own.
  std::vector<std::string> prompts;
  std::vector<std::vector<int32_t>> prompt_ids;
  bool echo = false;

  std::vector<Tool> tool_list;
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string tool_name;  // of kNamed
  bool parallel_tool_calls = true;
  bool parallel_asked = false;  // it was given as true

  cellm_sampling sampling = CELLM_SAMPLING_INIT;  // without its bias list
  std::vector<cellm_logit_bias> bias;
  std::vector<std::string> stops;
  uint32_t max_tokens = 0;  // 0: until an end or a full context
  uint32_t choices = 1;
  bool logprobs = false;
  uint32_t top_logprobs = 0;
  Constraint constraint;
  bool split_reasoning = true;

  bool stream = false;
  bool include_usage = false;
  bool background = false;  // service_tier "flex"
  std::string session_id;   // "": the conversation is not kept by name
};

// /v1/chat/completions and /v1/completions. Errors are 400 and name the field. `unknown` gets the
// names of fields that mean nothing here.
ApiError ParseChatRequest(json::Value body, GenerateRequest* out,
                          std::vector<std::string>* unknown);
ApiError ParseCompletionRequest(json::Value body, GenerateRequest* out,
                                std::vector<std::string>* unknown);

// A body as a JSON object. 400: not JSON (message: where), no object, too deep or too large.
ApiError ParseBody(std::string_view body, std::unique_ptr<json::Document>* out);

// 1 to 64 letters, digits, '_', '-' and '.': safe in paths and file names.
bool IsSessionName(std::string_view name);

// The part that every kind of request shares: sampling, limits, streaming, session.
void ReadCommon(Fields* fields, GenerateRequest* out);
// tools, tool_choice, parallel_tool_calls.
void ReadTools(Fields* fields, GenerateRequest* out);

}  // namespace cellm::tools::serve

#endif  // CELLM_TOOLS_CELLM_SERVE_OPENAI_REQUEST_H_
