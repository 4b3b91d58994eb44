#include "cellm/serve/messages.h"

#include <string_view>

#include "cellm/common.h"

namespace cellm::tools::serve {
namespace {

constexpr std::string_view kRoles[] = {"system",    "developer", "user",
                                       "assistant", "tool",      "function"};

std::string_view TextOf(json::Value value) {
  std::string_view text;
  (void)value.GetString(&text);
  return text;
}

// The arguments of a call in a history: an object where the text is one.
std::string NormalizeArguments(json::Value arguments) {
  std::string_view text;
  if (!arguments.GetString(&text)) return json::Serialize(arguments);
  const Result<std::unique_ptr<json::Document>> parsed = json::Document::Parse(text, "arguments");
  if (!parsed.ok() || !(*parsed)->root().is_object()) return json::Quote(text);
  return json::Serialize((*parsed)->root());
}

// One {"id", "type", "function": {"name", "arguments"}}; anything else passes as it is.
std::string NormalizeCall(json::Value call) {
  const json::Value function = call.Find("function");
  if (!call.is_object() || !function.is_object()) return json::Serialize(call);
  JsonObject out;
  for (json::Value v = call.First(); v.exists(); v = call.Next(v)) {
    if (call.KeyOf(v) != "function") {
      out.AddRaw(call.KeyOf(v), json::Serialize(v));
      continue;
    }
    JsonObject inner;
    for (json::Value w = v.First(); w.exists(); w = v.Next(w)) {
      const bool arguments = v.KeyOf(w) == "arguments";
      inner.AddRaw(v.KeyOf(w), arguments ? NormalizeArguments(w) : json::Serialize(w));
    }
    out.AddRaw("function", inner.Finish());
  }
  return out.Finish();
}

std::string NormalizeCalls(json::Value calls) {
  std::string out = "[";
  for (json::Value call = calls.First(); call.exists(); call = calls.Next(call)) {
    if (out.size() > 1) out += ", ";
    out += NormalizeCall(call);
  }
  return out + "]";
}

ApiError NormalizeMessage(json::Value message, const std::string& param, std::string* out) {
  if (!message.is_object()) return BadField(param, param + ": expected an object", "invalid_type");
  const json::Value role_value = message.Find("role");
  const std::string_view role = TextOf(role_value);
  bool known = false;
  for (const std::string_view name : kRoles) known = known || role == name;
  if (!known) {
    return BadField(param + ".role",
                    param + ".role: expected system, developer, user, assistant or tool",
                    role_value.is_string() ? "invalid_value" : "invalid_type");
  }
  std::string content;
  const json::Value given = message.Find("content");
  if (given.has_value()) {
    const ApiError error = ReadContent(given, param + ".content", &content);
    if (!error.ok()) return error;
  } else if (role == "user" || role == "system" || role == "developer") {
    return BadField(param + ".content", param + ".content: missing", "missing_required_parameter");
  }
  JsonObject object;
  object.Add("role", role == "developer" ? "system" : role).Add("content", content);
  for (json::Value v = message.First(); v.exists(); v = message.Next(v)) {
    const std::string_view key = message.KeyOf(v);
    if (key == "role" || key == "content" || v.is_null()) continue;
    if (key == "tool_calls") {
      if (!v.is_array()) {
        return BadField(param + ".tool_calls", param + ".tool_calls: expected an array",
                        "invalid_type");
      }
      // An empty list would send templates down the road of calls.
      if (v.size() > 0) object.AddRaw(key, NormalizeCalls(v));
      continue;
    }
    object.AddRaw(key, json::Serialize(v));
  }
  *out += object.Finish();
  return {};
}

}  // namespace

ApiError ReadContent(json::Value content, const std::string& param, std::string* out) {
  out->clear();
  if (content.is_string()) {
    *out = TextOf(content);
    return {};
  }
  if (!content.is_array()) {
    return BadField(param, param + ": expected a string or an array of parts", "invalid_type");
  }
  size_t index = 0;
  for (json::Value part = content.First(); part.exists(); part = content.Next(part), ++index) {
    const std::string place = param + "[" + std::to_string(index) + "]";
    const std::string_view type = TextOf(part.Find("type"));
    const bool is_text = type == "text" || type == "input_text" || type == "output_text";
    const json::Value text = part.Find(type == "refusal" ? "refusal" : "text");
    if ((is_text || type == "refusal") && text.is_string()) {
      *out += TextOf(text);
    } else if (part.is_object() && !type.empty() && !is_text && type != "refusal") {
      return BadField(place,
                      place + ": parts of type '" + std::string(type.substr(0, 40)) +
                          "' are not read by this model; send text",
                      "unsupported_content");
    } else {
      return BadField(place, place + ": expected {\"type\": \"text\", \"text\": \"...\"}",
                      "invalid_type");
    }
  }
  return {};
}

ApiError NormalizeMessages(json::Value messages, const std::string& param, std::string* out) {
  *out = "[";
  size_t index = 0;
  for (json::Value message = messages.First(); message.exists();
       message = messages.Next(message), ++index) {
    if (index > 0) *out += ", ";
    const ApiError error =
        NormalizeMessage(message, param + "[" + std::to_string(index) + "]", out);
    if (!error.ok()) return error;
  }
  *out += "]";
  if (index > 0) return {};
  return BadField(param, param + ": at least one message is needed", "invalid_value");
}

}  // namespace cellm::tools::serve
