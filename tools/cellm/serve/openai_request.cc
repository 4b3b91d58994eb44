#include "cellm/serve/openai_request.h"

#include <algorithm>
#include <cinttypes>

#include "cellm/common.h"
#include "cellm/serve/messages.h"

namespace cellm::tools::serve {
namespace {

constexpr int64_t kMaxChoices = 16;
constexpr int64_t kMaxTopLogprobs = 20;
constexpr size_t kMaxStops = 16;
constexpr size_t kMaxBiases = 65536;
constexpr size_t kMaxPrompts = 64;
constexpr size_t kMaxTools = 128;
// What the completions endpoint of the original API takes when max_tokens is not given.
constexpr uint32_t kCompletionTokens = 16;

bool IsName(std::string_view text, size_t most) {
  return !text.empty() && text.size() <= most && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '-' || c == '.';
  });
}

struct NumberField {
  const char* name;
  float cellm_sampling::*field;
  uint32_t bit;
  double least, most;
};

// top_p 0 is what clients send for "greedy": the best token alone, as the smallest share does.
constexpr double kLeastShare = 1e-6;

constexpr NumberField kNumbers[] = {
    {"temperature", &cellm_sampling::temperature, CELLM_SAMPLING_TEMPERATURE, 0, 100},
    {"top_p", &cellm_sampling::top_p, CELLM_SAMPLING_TOP_P, 0, 1},
    {"min_p", &cellm_sampling::min_p, CELLM_SAMPLING_MIN_P, 0, 1},
    {"typical_p", &cellm_sampling::typical_p, CELLM_SAMPLING_TYPICAL_P, 0, 1},
    {"repetition_penalty", &cellm_sampling::repetition_penalty, CELLM_SAMPLING_REPETITION_PENALTY,
     0.01, 100},
    {"repeat_penalty", &cellm_sampling::repetition_penalty, CELLM_SAMPLING_REPETITION_PENALTY, 0.01,
     100},
    {"frequency_penalty", &cellm_sampling::frequency_penalty, CELLM_SAMPLING_FREQUENCY_PENALTY,
     -100, 100},
    {"presence_penalty", &cellm_sampling::presence_penalty, CELLM_SAMPLING_PRESENCE_PENALTY, -100,
     100},
};

void ReadSamplingFields(Fields* fields, cellm_sampling* sampling) {
  for (const NumberField& number : kNumbers) {
    double value = 0;
    if (!fields->Number(number.name, number.least, number.most, &value)) continue;
    const bool share = number.bit == CELLM_SAMPLING_TOP_P || number.bit == CELLM_SAMPLING_TYPICAL_P;
    sampling->*number.field = static_cast<float>(share ? std::max(value, kLeastShare) : value);
    sampling->given |= number.bit;
  }
  int64_t integer = 0;
  if (fields->Integer("top_k", -1, INT32_MAX, &integer)) {
    sampling->top_k = static_cast<int32_t>(std::max<int64_t>(integer, 0));  // -1: off, as vLLM's
    sampling->given |= CELLM_SAMPLING_TOP_K;
  }
  for (const char* name : {"penalty_window", "repeat_last_n"}) {
    if (!fields->Integer(name, -1, INT32_MAX, &integer)) continue;
    sampling->penalty_window = static_cast<int32_t>(integer);
    sampling->given |= CELLM_SAMPLING_PENALTY_WINDOW;
  }
  if (fields->Integer("seed", INT64_MIN, INT64_MAX, &integer)) {
    sampling->seed = static_cast<uint64_t>(integer);
    sampling->given |= CELLM_SAMPLING_SEED;
  }
}

// A bias: a number, or false for "never".
bool ReadBiasValue(json::Value value, float* out) {
  bool flag = true;
  double number = 0;
  if (value.GetBool(&flag) && !flag) {
    *out = -100;
    return true;
  }
  if (!value.GetDouble(&number) || !(number >= -1000 && number <= 1000)) return false;
  *out = static_cast<float>(number);
  return true;
}

// {"15": -100, ...}, or [[15, -100], ...], or [{"id": 15, "bias": -100}, ...].
void ReadLogitBias(Fields* fields, std::vector<cellm_logit_bias>* out) {
  json::Value list;
  if (!fields->Any("logit_bias", &list)) return;
  if (!list.is_object() && !list.is_array()) {
    fields->Fail("logit_bias", "expected an object or an array", "invalid_type");
    return;
  }
  if (list.size() > kMaxBiases) {
    fields->Fail("logit_bias", StrFormat("more than %zu entries", kMaxBiases), "invalid_value");
    return;
  }
  for (json::Value entry = list.First(); entry.exists(); entry = list.Next(entry)) {
    int64_t id = -1;
    json::Value bias = entry;
    if (list.is_object()) {
      if (!ParseInteger(list.KeyOf(entry), &id)) id = -1;
    } else if (entry.is_array() && entry.size() == 2) {
      if (!entry.At(0).GetInt64(&id)) id = -1;
      bias = entry.At(1);
    } else if (entry.is_object()) {
      if (!entry.Find("id").GetInt64(&id) && !entry.Find("token_id").GetInt64(&id)) id = -1;
      bias = entry.Find("bias");
    }
    cellm_logit_bias made = {static_cast<int32_t>(id), 0};
    if (id < 0 || id > INT32_MAX || !ReadBiasValue(bias, &made.bias)) {
      fields->Fail("logit_bias", "each entry is a token id with a number (or false)",
                   "invalid_type");
      return;
    }
    out->push_back(made);
  }
}

void ReadStops(Fields* fields, std::vector<std::string>* out) {
  json::Value stop;
  if (!fields->Any("stop", &stop)) return;
  std::string_view text;
  if (stop.GetString(&text)) {
    out->emplace_back(text);
  } else if (stop.is_array() && stop.size() <= kMaxStops) {
    for (json::Value v = stop.First(); v.exists(); v = stop.Next(v)) {
      if (!v.GetString(&text)) {
        fields->Fail("stop", "expected strings", "invalid_type");
        return;
      }
      out->emplace_back(text);
    }
  } else {
    fields->Fail("stop", StrFormat("expected a string or at most %zu strings", kMaxStops),
                 stop.is_array() ? "invalid_value" : "invalid_type");
    return;
  }
  for (const std::string& one : *out) {
    if (one.empty()) fields->Fail("stop", "an empty string stops nothing", "invalid_value");
  }
}

// response_format, and the fields that other servers use for the same.
void ReadConstraint(Fields* fields, Constraint* out) {
  const auto set = [&](Constraint::Kind kind, const char* name, std::string text) {
    if (out->kind != Constraint::Kind::kNone) {
      fields->Fail(name, out->param + " constrains the reply already", "invalid_value");
      return;
    }
    *out = {kind, std::move(text), name};
  };
  json::Value value;
  if (fields->Object("response_format", &value)) {
    Fields format(value, "response_format.");
    std::string type;
    (void)format.Text("type", &type);
    json::Value schema;
    if (type == "json_object") {
      // A schema beside it, as some servers take it.
      if (format.Object("schema", &schema)) {
        set(Constraint::Kind::kJsonSchema, "response_format", json::Serialize(schema));
      } else {
        set(Constraint::Kind::kJsonObject, "response_format", R"({"type": "object"})");
      }
    } else if (type == "json_schema") {
      json::Value wrapper = value;
      (void)format.Object("json_schema", &wrapper);
      if (!wrapper.Find("schema").is_object()) {
        fields->Fail("response_format.json_schema.schema", "expected a schema object",
                     "invalid_type");
        return;
      }
      set(Constraint::Kind::kJsonSchema, "response_format",
          json::Serialize(wrapper.Find("schema")));
    } else if (type != "text") {
      fields->Fail("response_format.type", "expected text, json_object or json_schema",
                   "invalid_value");
    }
    if (!format.ok()) fields->Fail("response_format", format.error().message, format.error().code);
  }
  std::string text;
  for (const char* name : {"json_schema", "guided_json"}) {
    if (!fields->Any(name, &value)) continue;
    std::string_view written;
    set(Constraint::Kind::kJsonSchema, name,
        value.GetString(&written) ? std::string(written) : json::Serialize(value));
  }
  for (const char* name : {"grammar", "guided_grammar"}) {
    if (fields->Text(name, &text)) set(Constraint::Kind::kGrammar, name, text);
  }
  for (const char* name : {"regex", "guided_regex"}) {
    if (fields->Text(name, &text)) set(Constraint::Kind::kRegex, name, text);
  }
  for (const char* name : {"choices", "guided_choice"}) {
    if (fields->Array(name, &value)) set(Constraint::Kind::kChoices, name, json::Serialize(value));
  }
}

void ReadTemplateArgs(Fields* fields, GenerateRequest* out) {
  JsonObject args;
  bool any = false;
  json::Value given;
  std::string effort;
  if (fields->Text("reasoning_effort", &effort)) {
    args.Add("reasoning_effort", effort);
    // Templates that know no levels know on and off.
    if (effort == "none") args.Add("enable_thinking", false);
    any = true;
  }
  if (fields->Object("chat_template_kwargs", &given)) {
    for (json::Value v = given.First(); v.exists(); v = given.Next(v)) {
      args.AddRaw(given.KeyOf(v), json::Serialize(v));
      any = true;
    }
  }
  if (any) out->template_args = args.Finish();
}

void ReadToolChoice(Fields* fields, GenerateRequest* out) {
  json::Value choice;
  if (!fields->Any("tool_choice", &choice)) return;
  std::string_view text;
  if (choice.GetString(&text)) {
    if (text == "auto") return;
    if (text == "none") {
      out->tool_choice = ToolChoice::kNone;
    } else if (text == "required" || text == "any") {
      out->tool_choice = ToolChoice::kRequired;
    } else {
      fields->Fail("tool_choice", "expected auto, none, required or a function", "invalid_value");
    }
  } else if (choice.is_object()) {
    const json::Value function = choice.Find("function");
    const json::Value name = function.is_object() ? function.Find("name") : choice.Find("name");
    if (!name.GetString(&text)) {
      fields->Fail("tool_choice",
                   "expected {\"type\": \"function\", \"function\": {\"name\": ...}}",
                   "invalid_type");
      return;
    }
    out->tool_choice = ToolChoice::kNamed;
    out->tool_name = text;
  } else {
    fields->Fail("tool_choice", "expected a string or an object", "invalid_type");
    return;
  }
  if (out->tool_choice == ToolChoice::kNone) return;
  bool found = out->tool_choice == ToolChoice::kRequired && !out->tool_list.empty();
  for (const Tool& tool : out->tool_list) found = found || tool.name == out->tool_name;
  if (!found) {
    fields->Fail("tool_choice",
                 out->tool_list.empty() ? std::string("there are no tools to choose from")
                                        : "no tool is named '" + out->tool_name.substr(0, 64) + "'",
                 "invalid_value");
  }
}

bool ReadIds(json::Value list, std::vector<int32_t>* out) {
  for (json::Value v = list.First(); v.exists(); v = list.Next(v)) {
    int64_t id = 0;
    if (!v.GetInt64(&id) || id < 0 || id > INT32_MAX) return false;
    out->push_back(static_cast<int32_t>(id));
  }
  return true;
}

// A text, ids, or a list of either.
void ReadPrompts(Fields* fields, GenerateRequest* out) {
  json::Value prompt;
  if (!fields->Any("prompt", &prompt)) {
    fields->Fail("prompt", "missing", "missing_required_parameter");
    return;
  }
  std::string_view text;
  if (prompt.GetString(&text)) {
    out->prompts.emplace_back(text);
    return;
  }
  std::vector<int32_t> ids;
  const bool is_list = prompt.is_array() && prompt.size() > 0;
  if (is_list && prompt.First().is_number() && ReadIds(prompt, &ids)) {
    out->prompt_ids.push_back(std::move(ids));
    return;
  }
  bool good = is_list;
  for (json::Value v = prompt.First(); good && v.exists(); v = prompt.Next(v)) {
    ids.clear();
    if (v.GetString(&text)) {
      out->prompts.emplace_back(text);
    } else if (v.is_array() && v.size() > 0 && ReadIds(v, &ids)) {
      out->prompt_ids.push_back(ids);
    } else {
      good = false;
    }
  }
  if (!good || (!out->prompts.empty() && !out->prompt_ids.empty())) {
    fields->Fail("prompt", "expected a string, token ids, or a list of one of them",
                 "invalid_type");
  } else if (out->prompts.size() + out->prompt_ids.size() > kMaxPrompts) {
    fields->Fail("prompt", StrFormat("at most %zu prompts are taken", kMaxPrompts),
                 "invalid_value");
  }
}

void AskIgnored(Fields* fields) {
  // Known, without a meaning for a server on the device: no note about them.
  json::Value ignored;
  for (const char* name : {"user", "store", "metadata", "safety_identifier", "prompt_cache_key",
                           "cache_prompt", "modalities", "prediction", "verbosity"}) {
    (void)fields->Any(name, &ignored);
  }
}

}  // namespace

ApiError ParseBody(std::string_view body, std::unique_ptr<json::Document>* out) {
  Result<std::unique_ptr<json::Document>> parsed = json::Document::Parse(body, "the body");
  if (!parsed.ok()) return BadField({}, parsed.status().message(), "invalid_json");
  if (!(*parsed)->root().is_object()) {
    return BadField({}, "the body is no JSON object", "invalid_json");
  }
  *out = std::move(parsed).value();
  return {};
}

bool IsSessionName(std::string_view name) { return IsName(name, 64) && name[0] != '.'; }

void ReadTools(Fields* fields, GenerateRequest* out) {
  json::Value tools;
  out->parallel_asked =
      fields->Bool("parallel_tool_calls", &out->parallel_tool_calls) && out->parallel_tool_calls;
  if (fields->Array("tools", &tools)) {
    if (tools.size() > kMaxTools) {
      fields->Fail("tools", StrFormat("at most %zu tools are taken", kMaxTools), "invalid_value");
      return;
    }
    std::string list = "[";
    size_t index = 0;
    for (json::Value tool = tools.First(); tool.exists(); tool = tools.Next(tool), ++index) {
      // {"type": "function", "function": {...}}, or flat as in the responses API.
      const json::Value function = tool.Find("function").is_object() ? tool.Find("function") : tool;
      std::string_view name;
      std::string_view type = "function";
      (void)tool.Find("type").GetString(&type);
      if (!tool.is_object() || type != "function" || !function.Find("name").GetString(&name) ||
          !IsName(name, 128)) {
        fields->Fail("tools[" + std::to_string(index) + "]",
                     "expected {\"type\": \"function\", \"function\": {\"name\", \"parameters\"}} "
                     "with a name of letters, digits, '_', '-' and '.'",
                     "invalid_value");
        return;
      }
      const json::Value parameters = function.Find("parameters");
      out->tool_list.push_back({std::string(name), parameters.is_object()
                                                       ? json::Serialize(parameters)
                                                       : std::string()});
      if (index > 0) list += ", ";
      list += tool.Find("function").is_object() ? json::Serialize(tool)
                                                : JsonObject()
                                                      .Add("type", "function")
                                                      .AddRaw("function", json::Serialize(tool))
                                                      .Finish();
    }
    if (index > 0) out->tools = list + "]";
  }
  ReadToolChoice(fields, out);
  if (out->tool_choice == ToolChoice::kNone) out->tools.clear();
}

void ReadCommon(Fields* fields, GenerateRequest* out) {
  (void)fields->Text("model", &out->model);
  ReadSamplingFields(fields, &out->sampling);
  ReadLogitBias(fields, &out->bias);
  ReadStops(fields, &out->stops);
  int64_t integer = 0;
  for (const char* name : {"max_tokens", "max_completion_tokens", "max_output_tokens"}) {
    if (fields->Integer(name, 1, INT32_MAX, &integer)) {
      out->max_tokens = static_cast<uint32_t>(integer);
    }
  }
  if (fields->Integer("n", 1, kMaxChoices, &integer)) out->choices = static_cast<uint32_t>(integer);
  (void)fields->Bool("stream", &out->stream);
  json::Value options;
  if (fields->Object("stream_options", &options)) {
    Fields inner(options, "stream_options.");
    (void)inner.Bool("include_usage", &out->include_usage);
    if (!inner.ok()) fields->Fail("stream_options", inner.error().message, inner.error().code);
  }
  std::string tier;
  if (fields->Text("service_tier", &tier)) out->background = tier == "flex";
  if (fields->Text("session_id", &out->session_id) && !IsSessionName(out->session_id)) {
    fields->Fail("session_id", "expected 1 to 64 letters, digits, '_', '-' and '.'",
                 "invalid_value");
  }
  ReadConstraint(fields, &out->constraint);
  AskIgnored(fields);
}

ApiError ParseChatRequest(json::Value body, GenerateRequest* out,
                          std::vector<std::string>* unknown) {
  Fields fields(body);
  json::Value messages;
  if (!fields.Array("messages", &messages) && fields.ok()) {
    fields.Fail("messages", "missing", "missing_required_parameter");
  }
  ReadCommon(&fields, out);
  ReadTools(&fields, out);
  ReadTemplateArgs(&fields, out);
  (void)fields.Bool("logprobs", &out->logprobs);
  int64_t top = 0;
  if (fields.Integer("top_logprobs", 0, kMaxTopLogprobs, &top)) {
    out->top_logprobs = static_cast<uint32_t>(top);
    if (!out->logprobs) fields.Fail("top_logprobs", "needs logprobs: true", "invalid_value");
  }
  std::string reasoning;
  if (fields.Text("reasoning_format", &reasoning)) out->split_reasoning = reasoning != "none";
  if (!fields.ok()) return fields.error();
  *unknown = fields.Unknown();
  return NormalizeMessages(messages, "messages", &out->messages);
}

ApiError ParseCompletionRequest(json::Value body, GenerateRequest* out,
                                std::vector<std::string>* unknown) {
  Fields fields(body);
  ReadPrompts(&fields, out);
  ReadCommon(&fields, out);
  if (out->max_tokens == 0) out->max_tokens = kCompletionTokens;
  int64_t top = 0;
  if (fields.Integer("logprobs", 0, kMaxTopLogprobs, &top)) {
    out->logprobs = true;
    out->top_logprobs = static_cast<uint32_t>(top);
  }
  (void)fields.Bool("echo", &out->echo);
  int64_t best_of = 1;
  if (fields.Integer("best_of", 1, kMaxChoices, &best_of) && best_of > out->choices) {
    fields.Fail("best_of", "more than n is not supported; ask for n and choose", "unsupported");
  }
  std::string suffix;
  if (fields.Text("suffix", &suffix) && !suffix.empty()) {
    fields.Fail("suffix", "text after the reply is not supported", "unsupported");
  }
  if (!fields.ok()) return fields.error();
  *unknown = fields.Unknown();
  return {};
}

}  // namespace cellm::tools::serve
