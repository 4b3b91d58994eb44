#include "jinja/template.h"

#include <algorithm>

#include "jinja/interpreter.h"
#include "jinja/parser.h"

namespace cellm::jinja {

namespace {

// "chat_template, line 3: TypeError: ..."
std::string Describe(const std::string& name, const Error& error) {
  std::string text = name;
  if (error.line > 0) text += StrFormat(", line %d", error.line);
  return text + ": " + std::string(ErrorKindName(error.kind)) + ": " + error.message;
}

}  // namespace

Template::Template(std::unique_ptr<const ParsedTemplate> parsed) : parsed_(std::move(parsed)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Result<Template> Template::Parse(std::string_view source, std::string_view name, Error* error) {
  Error problem;
  std::unique_ptr<ParsedTemplate> parsed = ParseTemplate(source, name, &problem);
  if (parsed == nullptr) {
    if (error != nullptr) *error = problem;
    const bool syntax = problem.kind == ErrorKind::kTemplateSyntaxError;
    return Status(syntax ? StatusCode::kCorrupt : StatusCode::kUnsupported,
                  Describe(std::string(name), problem));
  }
  return Template(std::unique_ptr<const ParsedTemplate>(std::move(parsed)));
}

Result<Rendered> Template::Render(const Value& variables, const RenderOptions& options,
                                  Error* error) const {
  Interpreter interpreter(*parsed_, variables, options);
  const Status status = interpreter.Run();
  if (!status.ok()) {
    if (error != nullptr) *error = interpreter.error();
    return Status(status.code(), Describe(parsed_->name, interpreter.error()));
  }
  Text text = interpreter.TakeOutput();
  Rendered rendered;
  rendered.runs = text.Runs();
  rendered.text = std::move(text).TakeBytes();
  return rendered;
}

bool Template::Mentions(std::string_view name) const {
  const std::vector<std::string>& symbols = parsed_->symbols;
  return std::find(symbols.begin(), symbols.end(), name) != symbols.end();
}

}  // namespace cellm::jinja
