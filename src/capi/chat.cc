#include "capi/chat.h"

#include <algorithm>
#include <utility>

#include "jinja/chat_template.h"
#include "jinja/value.h"
#include "json/json.h"
#include "platform/clock.h"

namespace cellm::capi {
namespace {

// Days since 1970-01-01 as a date (Hinnant, "chrono-compatible low-level date algorithms").
jinja::CivilTime CivilFromSeconds(int64_t seconds) {
  int64_t days = seconds / 86400;
  int64_t rest = seconds % 86400;
  if (rest < 0) {
    rest += 86400;
    --days;
  }
  days += 719468;
  const int64_t era = (days >= 0 ? days : days - 146096) / 146097;
  const int64_t day_of_era = days - era * 146097;
  const int64_t year_of_era =
      (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const int64_t day_of_year =
      day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t month = (5 * day_of_year + 2) / 153;
  jinja::CivilTime time;
  time.day = static_cast<int>(day_of_year - (153 * month + 2) / 5 + 1);
  time.month = static_cast<int>(month < 10 ? month + 3 : month - 9);
  time.year = static_cast<int>(year_of_era + era * 400 + (time.month <= 2 ? 1 : 0));
  time.hour = static_cast<int>(rest / 3600);
  time.minute = static_cast<int>(rest / 60 % 60);
  time.second = static_cast<int>(rest % 60);
  return time;
}

// "2026-01-15T09:30:00" or "2026-01-15"; nothing: the clock, in UTC.
Result<jinja::CivilTime> ReadTime(std::string_view text) {
  if (text.empty()) return CivilFromSeconds(platform::WallClockSeconds());
  jinja::CivilTime time;
  struct Field {
    size_t offset, digits;
    int least, most;
    int* value;
  };
  const Field fields[] = {{0, 4, 1, 9999, &time.year},  {5, 2, 1, 12, &time.month},
                          {8, 2, 1, 31, &time.day},     {11, 2, 0, 23, &time.hour},
                          {14, 2, 0, 59, &time.minute}, {17, 2, 0, 59, &time.second}};
  constexpr std::string_view kForm = "0000-00-00T00:00:00";
  bool good = text.size() == 19 || text.size() == 10;
  for (size_t i = 0; good && i < text.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    good = kForm[i] == '0' ? digit : text[i] == kForm[i] || (i == 10 && text[i] == ' ');
  }
  for (const Field& field : fields) {
    if (!good || field.offset >= text.size()) break;
    int value = 0;
    for (size_t i = 0; i < field.digits; ++i) value = value * 10 + (text[field.offset + i] - '0');
    good = value >= field.least && value <= field.most;
    *field.value = value;
  }
  if (!good) {
    return InvalidArgument("the time '%.*s' is not like 2026-01-15T09:30:00",
                           static_cast<int>(std::min<size_t>(text.size(), 40)), text.data());
  }
  return time;
}

Status TemplateFailure(ErrorDetails* details, std::string_view kind, std::string message) {
  details->kind = kind;
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

// Adds what the reference always defines in a chat: tools and documents, none when not given.
jinja::Value WithChatDefaults(jinja::Value variables) {
  if (variables.Member("messages").missing()) return variables;
  for (const char* name : {"tools", "documents"}) {
    if (variables.Member(name).missing()) {
      variables = variables.WithMember(name, jinja::Value::None());
    }
  }
  return variables;
}

// A render's outcome in our terms.
Result<MarkedText> Marked(Result<jinja::Rendered> rendered, const jinja::Error& error,
                          ErrorDetails* details) {
  if (!rendered.ok()) {
    if (error.kind == jinja::ErrorKind::kNone) return rendered.status();
    return TemplateFailure(details, jinja::ErrorKindName(error.kind), error.message);
  }
  MarkedText text;
  text.bytes = std::move(rendered->text);
  for (const jinja::Run& run : rendered->runs) {
    text.trusted.resize(run.end, run.trusted ? '\1' : '\0');
  }
  text.trusted.resize(text.bytes.size(), '\0');
  return text;
}

// A JSON text of the given kind as a template value; missing when not given.
Result<jinja::Value> ReadJson(const cellm_text& given, const char* name, json::Kind kind,
                              std::unique_ptr<json::Document>* keep) {
  std::string_view text;
  CELLM_RETURN_IF_ERROR(ReadText(given, name, &text));
  if (text.empty()) return jinja::Value();
  Result<std::unique_ptr<json::Document>> document = json::Document::Parse(text, name);
  if (!document.ok()) {
    return Status(StatusCode::kInvalidArgument, document.status().message());
  }
  *keep = std::move(document).value();
  const json::Value root = (*keep)->root();
  if (root.is_null()) return jinja::Value();
  if (root.kind() != kind) {
    return InvalidArgument("%s is not a JSON %s", name,
                           kind == json::Kind::kArray ? "array" : "object");
  }
  return jinja::Value::FromJson(root, false);
}

// The members of a JSON object, for the template.
Status ReadArguments(const cellm_text& given, const char* name,
                     std::vector<std::pair<std::string, jinja::Value>>* out) {
  std::unique_ptr<json::Document> keep;
  CELLM_ASSIGN_OR_RETURN(const jinja::Value object,
                         ReadJson(given, name, json::Kind::kObject, &keep));
  if (object.missing()) return OkStatus();
  const json::Value root = keep->root();
  for (json::Value member = root.First(); member.exists(); member = root.Next(member)) {
    const std::string key(root.KeyOf(member));
    out->emplace_back(key, object.Member(key));
  }
  return OkStatus();
}

Status NoTokenizer(const ModelState& model) {
  return NotFound("%s has no tokenizer: give one, or use token ids", model.path.c_str());
}

}  // namespace

Result<MarkedText> RenderChat(const ModelState& model, const cellm_chat* given,
                              ErrorDetails* details) {
  if (model.tokenizer == nullptr) return NoTokenizer(model);
  CELLM_RETURN_IF_ERROR(model.template_status);
  cellm_chat chat;
  CELLM_RETURN_IF_ERROR(ReadSized(given, "chat", &chat));
  constexpr uint32_t kKnownFlags = CELLM_CHAT_CONTINUE_FINAL | CELLM_CHAT_NO_PROMPT;
  if ((chat.flags & ~kKnownFlags) != 0) {
    return Unsupported("chat: unknown flags 0x%x", chat.flags & ~kKnownFlags);
  }
  std::unique_ptr<json::Document> keep;
  jinja::ChatInput input;
  input.continue_final_message = (chat.flags & CELLM_CHAT_CONTINUE_FINAL) != 0;
  input.add_generation_prompt =
      !input.continue_final_message && (chat.flags & CELLM_CHAT_NO_PROMPT) == 0;
  CELLM_ASSIGN_OR_RETURN(input.messages,
                         ReadJson(chat.messages, "messages", json::Kind::kArray, &keep));
  CELLM_ASSIGN_OR_RETURN(input.tools, ReadJson(chat.tools, "tools", json::Kind::kArray, &keep));
  CELLM_ASSIGN_OR_RETURN(input.documents,
                         ReadJson(chat.documents, "documents", json::Kind::kArray, &keep));
  if (input.messages.missing()) return InvalidArgument("messages are not given");
  CELLM_RETURN_IF_ERROR(ReadArguments(chat.template_args, "template_args", &input.arguments));
  std::string_view now;
  CELLM_RETURN_IF_ERROR(ReadText(chat.now, "now", &now));
  jinja::RenderOptions options;
  CELLM_ASSIGN_OR_RETURN(options.now, ReadTime(now));
  jinja::Error error;
  return Marked(model.chat_template.parsed->Render(input, options, &error), error, details);
}

Result<MarkedText> RenderFromJson(const jinja::ChatTemplate& parsed, std::string_view variables,
                                  std::string_view now, bool continue_final,
                                  ErrorDetails* details) {
  jinja::RenderOptions options;
  CELLM_ASSIGN_OR_RETURN(options.now, ReadTime(now));
  jinja::Error error;
  const cellm_text text = {variables.data(), variables.size()};
  if (!continue_final) {
    std::unique_ptr<json::Document> keep;
    CELLM_ASSIGN_OR_RETURN(jinja::Value value,
                           ReadJson(text, "variables", json::Kind::kObject, &keep));
    if (value.missing()) value = jinja::Value::Dict({});
    return Marked(parsed.RenderVariables(WithChatDefaults(std::move(value)), options, &error),
                  error, details);
  }
  jinja::ChatInput input;
  input.continue_final_message = true;
  input.add_generation_prompt = false;
  CELLM_RETURN_IF_ERROR(ReadArguments(text, "variables", &input.arguments));
  const auto take = [&](const char* name, jinja::Value* out) {
    for (auto at = input.arguments.begin(); at != input.arguments.end(); ++at) {
      if (at->first != name) continue;
      *out = std::move(at->second);
      input.arguments.erase(at);
      return;
    }
  };
  take("messages", &input.messages);
  take("tools", &input.tools);
  take("documents", &input.documents);
  jinja::Value ignored;
  take("add_generation_prompt", &ignored);
  take("continue_final_message", &ignored);
  return Marked(parsed.Render(input, options, &error), error, details);
}

Result<std::vector<int32_t>> EncodeMarked(const ModelState& model, const MarkedText& rendering,
                                          size_t begin) {
  std::vector<tokenizer::Segment> segments;
  const std::string_view bytes = rendering.bytes;
  for (size_t at = begin; at < bytes.size();) {
    const size_t end =
        std::min(rendering.trusted.find_first_not_of(rendering.trusted[at], at), bytes.size());
    segments.push_back({bytes.substr(at, end - at), rendering.trusted[at] != '\0'});
    at = end;
  }
  // Templates write BOS themselves where the model wants it.
  return model.tokenizer->Encode(segments, tokenizer::EncodeOptions());
}

}  // namespace cellm::capi
