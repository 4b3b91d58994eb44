#include "cellm/serve/tool_constraint.h"

#include "cellm/common.h"
#include "cellm/serve/server_state.h"
#include "json/json.h"

namespace cellm::tools::serve {
namespace {

constexpr std::string_view kAnyObject = R"({"type": "object"})";

struct Notation {
  CallStyle style;
  std::string_view trigger;  // "": none
  std::string_view before_name, after_name, end;
  bool several;  // one call may follow another
};

// Mistral's ids have nine letters and digits; ours are made elsewhere and this one is not read.
constexpr Notation kNotations[] = {
    {CallStyle::kTagged, "<tool_call>", "<tool_call>\n{\"name\": \"",
     "\", \"arguments\": ", "}\n</tool_call>", true},
    {CallStyle::kMistralList, "[TOOL_CALLS]", "[TOOL_CALLS][{\"name\": \"",
     "\", \"arguments\": ", "}]", false},
    {CallStyle::kMistralArgs, "[TOOL_CALLS]", "[TOOL_CALLS]", "[ARGS]", "", true},
    {CallStyle::kMistralId, "[TOOL_CALLS]", "[TOOL_CALLS]", "[CALL_ID]call00000[ARGS]", "", true},
    {CallStyle::kLlama, "", "{\"name\": \"", "\", \"parameters\": ", "}", false},
    {CallStyle::kBare, "", "{\"name\": \"", "\", \"arguments\": ", "}", false},
};

const Notation& NotationOf(CallStyle style) {
  for (const Notation& notation : kNotations) {
    if (notation.style == style) return notation;
  }
  return kNotations[0];
}

}  // namespace

const char* const kProbeMessages =
    R"([{"role": "user", "content": "probe_question"}, {"role": "assistant", "content": "", )"
    R"("tool_calls": [{"id": "call00000", "type": "function", "function": {"name": "probe_tool", )"
    R"("arguments": {"probe_key": "probe_value"}}}]}])";
const char* const kProbeTools =
    R"([{"type": "function", "function": {"name": "probe_tool", "description": "probe", )"
    R"("parameters": {"type": "object", "properties": {"probe_key": {"type": "string", )"
    R"("description": "probe"}}, "required": ["probe_key"]}}}])";

CallStyle ReadCallStyle(std::string_view rendered) {
  // What stands before the question explains the notation, often with an example of it.
  const size_t question = rendered.rfind("probe_question");
  if (question != std::string_view::npos) rendered.remove_prefix(question);
  const auto has = [&](std::string_view text) {
    return rendered.find(text) != std::string_view::npos;
  };
  if (has("<tool_call>") && has("\"probe_tool\"")) return CallStyle::kTagged;
  if (has("[TOOL_CALLS]probe_tool[CALL_ID]")) return CallStyle::kMistralId;
  if (has("[TOOL_CALLS]probe_tool[ARGS]")) return CallStyle::kMistralArgs;
  if (has("[TOOL_CALLS]")) return CallStyle::kMistralList;
  return has("\"parameters\":") ? CallStyle::kLlama : CallStyle::kBare;
}

std::string ToolConstraint(CallStyle style, const GenerateRequest& request) {
  if (request.tool_list.empty() || request.tool_choice == ToolChoice::kNone) return {};
  const Notation& notation = NotationOf(style);
  const bool forced = request.tool_choice != ToolChoice::kAuto;
  if (!forced && notation.trigger.empty()) return {};
  std::string tags;
  for (const Tool& tool : request.tool_list) {
    if (request.tool_choice == ToolChoice::kNamed && tool.name != request.tool_name) continue;
    std::string begin(notation.before_name);
    begin.append(tool.name).append(notation.after_name);
    if (!tags.empty()) tags += ", ";
    tags += JsonObject()
                .Add("begin", begin)
                .AddRaw("schema", tool.parameters.empty() ? kAnyObject : tool.parameters)
                .Add("end", notation.end)
                .Finish();
  }
  // A model that must call has no word for "enough": it makes one call unless several were asked
  // for by parallel_tool_calls: true.
  const bool several =
      request.parallel_asked && notation.several && request.tool_choice != ToolChoice::kNamed;
  const bool one_call = !request.parallel_tool_calls || (forced && !several);
  JsonObject constraint;
  // Forced calls begin with the first token; there is nothing to wait for.
  if (!forced) constraint.AddRaw("triggers", Bracketed(json::Quote(notation.trigger)));
  constraint.AddRaw("tags", Bracketed(tags))
      .Add("at_least_one", forced)
      .Add("stop_after_first", one_call);
  return constraint.Finish();
}

}  // namespace cellm::tools::serve
