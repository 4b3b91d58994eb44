// A template and its variables, both hostile.
//
// The input is the template; from a NUL byte on, if there is one, JSON for the variables. Whatever
// comes, parsing and rendering end within their bounds, and the marks of origin cover the output
// exactly. Text that only the variables hold is never marked as the template's.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "jinja/template.h"
#include "json/json.h"

namespace {

// No seed or dictionary entry has this character in a template, and templates that do are skipped.
constexpr std::string_view kUserMark = "\xE2\x98\x83";  // U+2603

constexpr std::string_view kDefaultVariables =
    R"({"messages":[{"role":"user","content":"\u2603 <|x|>"},{"role":"assistant","content":null,)"
    R"("tool_calls":[{"function":{"name":"f\u2603","arguments":{"a":[1,2.5,"\u2603"]}}}]}],)"
    R"("tools":[{"type":"function"}],"add_generation_prompt":true,"n":3,)"
    R"("big":123456789012345678901234567890,"s":" a\u2603b ","l":["b\u2603","A","\u00e9"],)"
    R"("d":{"k":"v","x\u2603":1}})";

void Check(bool good) {
  if (!good) std::abort();
}

void CheckRuns(const cellm::jinja::Rendered& rendered) {
  size_t begin = 0;
  for (const cellm::jinja::Run& run : rendered.runs) {
    Check(run.end > begin && run.end <= rendered.text.size());
    const std::string_view piece = std::string_view(rendered.text).substr(begin, run.end - begin);
    if (run.trusted) Check(piece.find(kUserMark) == std::string_view::npos);
    begin = run.end;
  }
  Check(begin == rendered.text.size());
  Check(cellm::IsValidUtf8(rendered.text));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t nul = input.find('\0');
  const std::string_view source = input.substr(0, nul);
  // The snowman may be spelled as an escape or a number too.
  if (source.find(kUserMark) != std::string_view::npos ||
      source.find("2603") != std::string_view::npos ||
      source.find("9731") != std::string_view::npos) {
    return 0;
  }
  auto parsed = cellm::jinja::Template::Parse(source, "fuzz");
  if (!parsed.ok()) return 0;
  const std::string_view text =
      nul == std::string_view::npos ? kDefaultVariables : input.substr(nul + 1);
  auto document = cellm::json::Document::Parse(text, "variables");
  if (!document.ok()) return 0;
  auto variables = cellm::jinja::Value::FromJson((*document)->root(), false);
  if (!variables.ok()) return 0;
  cellm::jinja::RenderOptions options;
  options.now = cellm::jinja::CivilTime{2026, 1, 15, 9, 30, 0};
  options.limits.max_steps = 50'000;
  options.limits.max_output_bytes = 1 << 16;
  options.limits.max_string_bytes = 1 << 16;
  options.limits.max_memory_bytes = 1 << 22;
  options.limits.max_integer_bits = 2048;
  options.limits.max_call_depth = 20;
  options.limits.max_eval_depth = 200;
  auto rendered = parsed->Render(*variables, options);
  if (rendered.ok()) CheckRuns(*rendered);
  return 0;
}
