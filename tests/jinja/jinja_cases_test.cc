// The engine against the reference's own output: testdata/jinja/cases.jsonl, 317 small templates
// with variables and what Jinja2 3.1 makes of them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "jinja/template.h"
#include "json/json.h"
#include "support/jsonl.h"
#include "support/paths.h"

namespace cellm::jinja {
namespace {

RenderOptions FixedClock() {
  RenderOptions options;
  options.now = CivilTime{2026, 1, 15, 9, 30, 0};
  return options;
}

TEST(JinjaCases, RenderLikeTheReference) {
  const std::vector<std::string> lines = testing::ReadLines(testing::TestData("jinja/cases.jsonl"));
  ASSERT_EQ(lines.size(), 317u);
  for (const std::string& line : lines) {
    auto document = json::Document::Parse(line, "case");
    ASSERT_TRUE(document.ok()) << document.status().message();
    const json::Value row = (*document)->root();
    const std::string source = testing::StringOf(row.Find("template"));
    SCOPED_TRACE(source);
    auto variables = Value::FromJson(row.Find("vars"), false);
    ASSERT_TRUE(variables.ok());
    Error error;
    std::string text;
    auto parsed = Template::Parse(source, "case", &error);
    bool good = parsed.ok();
    if (good) {
      auto rendered = parsed->Render(*variables, FixedClock(), &error);
      good = rendered.ok();
      if (good) text = rendered->text;
    }
    const json::Value expected = row.Find("expected");
    if (expected.exists()) {
      EXPECT_TRUE(good) << ErrorKindName(error.kind) << ": " << error.message;
      EXPECT_EQ(text, testing::StringOf(expected));
      continue;
    }
    EXPECT_FALSE(good) << "rendered: " << text;
    if (testing::StringOf(row.Find("error_type")) == "TemplateError") {
      EXPECT_EQ(ErrorKindName(error.kind), "TemplateError");
      EXPECT_EQ(error.message, testing::StringOf(row.Find("error")));
    }
  }
}

// A grid of filters, tests, methods, operators and formats over values of every kind: what the
// reference makes of each (scripts/make_jinja_grid.py).
TEST(JinjaCases, GridOfBuiltInsMatchesTheReference) {
  const std::vector<std::string> lines = testing::ReadLines(testing::TestData("jinja/grid.jsonl"));
  ASSERT_GT(lines.size(), 2500u);
  auto header = json::Document::Parse(lines[0], "header");
  ASSERT_TRUE(header.ok());
  const Value variables = Value::FromJson((*header)->root().Find("vars"), false).value();
  for (size_t i = 1; i < lines.size(); ++i) {
    auto document = json::Document::Parse(lines[i], "case");
    ASSERT_TRUE(document.ok()) << document.status().message();
    const json::Value row = (*document)->root();
    const std::string source = testing::StringOf(row.Find("template"));
    SCOPED_TRACE(source);
    Error error;
    auto parsed = Template::Parse(source, "case", &error);
    auto rendered = parsed.ok() ? parsed->Render(variables, FixedClock(), &error)
                                : Result<Rendered>(parsed.status());
    const json::Value expected = row.Find("expected");
    if (!expected.exists()) {
      EXPECT_FALSE(rendered.ok()) << "rendered: " << rendered->text;
      continue;
    }
    ASSERT_TRUE(rendered.ok()) << ErrorKindName(error.kind) << ": " << error.message;
    EXPECT_EQ(rendered->text, testing::StringOf(expected));
  }
}

}  // namespace
}  // namespace cellm::jinja
