#ifndef CELLM_SRC_JINJA_TEMPLATE_H_
#define CELLM_SRC_JINJA_TEMPLATE_H_

// The template engine's door: parse once, render many times.
//
// The language is Jinja 3.1 as chat templates use it, with the settings of the reference
// (immutable sandbox, trim_blocks, lstrip_blocks, loop controls, a "generation" tag, tojson,
// raise_exception, strftime_now). What it renders is compared with the reference's own output.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "jinja/error.h"
#include "jinja/options.h"
#include "jinja/text.h"
#include "jinja/value.h"

namespace cellm::jinja {

// What a template made: the text, and which of it the template itself wrote. Runs cover the text
// without gaps; only trusted ones may become control tokens.
struct Rendered {
  std::string text;
  std::vector<Run> runs;
};

struct ParsedTemplate;

class Template {
 public:
  // Parses `source`. `name` stands in messages.
  //   Unsupported  a filter, test, function or tag that this engine does not have
  //   Corrupt      not a template (syntax), or not UTF-8
  // The message names line and symbol; `error`, when given, has the parts.
  static Result<Template> Parse(std::string_view source, std::string_view name,
                                Error* error = nullptr);

  // Renders with `variables` (a dict). Deterministic: the same input gives the same output.
  //   InvalidArgument  the template raised, or met values it cannot work with
  //   OutOfRange       a bound of options.limits was reached
  // `error`, when given, has kind and exact message. Any thread; but `variables`, and every value
  // that it shares with others, may be in use by one thread only.
  Result<Rendered> Render(const Value& variables, const RenderOptions& options,
                          Error* error = nullptr) const;

  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  // Whether the source mentions this name as a variable anywhere.
  bool Mentions(std::string_view name) const;

 private:
  explicit Template(std::unique_ptr<const ParsedTemplate> parsed);
  std::unique_ptr<const ParsedTemplate> parsed_;
};

}  // namespace cellm::jinja

#endif  // CELLM_SRC_JINJA_TEMPLATE_H_
