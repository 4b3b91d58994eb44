// Hostile templates and values: bounds, syntax errors, and names that do not exist.
#include "jinja/template.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <string>
#include <thread>
#include <vector>

#include "json/json.h"

#if defined(CELLM_ASAN) || defined(CELLM_TSAN)
#define CELLM_TEST_SANITIZED 1
#else
#define CELLM_TEST_SANITIZED 0
#endif

namespace cellm::jinja {
namespace {

Value FromText(std::string_view text) {
  auto document = json::Document::Parse(text, "test");
  EXPECT_TRUE(document.ok()) << document.status().message();
  return Value::FromJson((*document)->root(), false).value();
}

Value NoVariables() { return Value::Dict({}); }

struct BoundCase {
  const char* name;
  std::string source;
  const char* limit;  // named in the message
};

std::string Nested(const std::string& open, const std::string& middle, const std::string& close,
                   int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += open;
  out += middle;
  for (int i = 0; i < times; ++i) out += close;
  return out;
}

std::vector<BoundCase> BoundCases() {
  std::string loops;
  std::string ends;
  for (int i = 0; i < 5; ++i) {
    loops += "{% for i" + std::to_string(i) + " in range(99999) %}";
    ends += "{% endfor %}";
  }
  return {
      {"EndlessMacro", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "max_call_depth"},
      {"MutualMacros",
       "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
       "max_call_depth"},
      {"EndlessCaller",
       "{% macro m() %}{{ caller is defined }}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}",
       "max_call_depth"},
      {"EndlessLoop", "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "max_call_depth"},
      {"HugeRange", "{{ range(1000000000) | list }}", "MAX_RANGE"},
      {"NestedLoops", loops + "{% set x = 1 %}" + ends, "max_steps"},
      {"StringBomb", "{{ 'x' * 100000000000 }}", "max_string_bytes"},
      {"DoublingString",
       "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}"
       "{% endfor %}",
       "max_string_bytes"},
      {"ListBomb", "{{ ([1] * 1000000000) | length }}", "max_memory_bytes"},
      {"DoublingList",
       "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
       "{% endfor %}",
       "max_memory_bytes"},
      {"ManyStrings",
       "{% set ns = namespace(s=[]) %}{% for i in range(9999) %}{% set ns.s = ns.s + ['x' * 100000]"
       " %}{% endfor %}",
       "max_memory_bytes"},
      {"OutputBomb", "{% set s = 'x' * 1000000 %}{% for i in range(99999) %}{{ s }}{% endfor %}",
       "max_output_bytes"},
      {"IntegerBomb", "{{ 10 ** 100000000 }}", "max_integer_bits"},
      {"SquaringBomb",
       "{% set ns = namespace(n=3) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor "
       "%}",
       "max_integer_bits"},
      {"ReplaceBomb", "{% set s = 'x' * 10000 %}{{ s.replace('x', s).replace('x', s) | length }}",
       "max_string_bytes"},
      {"JoinBomb", "{{ (['x' * 1000000] * 1000) | join | length }}", "max_string_bytes"},
      {"PadBomb", "{{ 'x'.center(100000000000) }}", "max_string_bytes"},
      {"IndentBomb", "{{ 'x'.rjust(1000) | indent(100000000000) }}", "max_string_bytes"},
      {"BatchBomb", "{{ [1] | batch(100000000000, 0) | list | length }}", "max_memory_bytes"},
      {"JsonBomb",
       "{% set ns = namespace(l=['x']) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
       "{% endfor %}{{ ns.l | tojson }}",
       "max_"},
      {"ReprBomb",
       "{% set ns = namespace(l=['x']) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
       "{% endfor %}{{ ns.l }}",
       "max_"},
      {"CompareBomb",
       "{% set a = namespace(l=['x']) %}{% set b = namespace(l=['x']) %}{% for i in range(60) %}"
       "{% set a.l = [a.l, a.l] %}{% set b.l = [b.l, b.l] %}{% endfor %}{{ a.l == b.l }}",
       "max_steps"},
      {"DeepJson",
       "{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}"
       "{{ ns.l | tojson }}",
       "recursion"},
      {"DeepRepr",
       "{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}"
       "{{ ns.l }}",
       "recursion"},
      {"FormatWidth", "{{ '%1000000000d' % 1 }}", "too big"},
  };
}

TEST(TemplateBounds, NameTheLimit) {
  // A tenth of the defaults, so that the test is quick.
  RenderOptions options;
  options.limits.max_steps /= 10;
  options.limits.max_output_bytes /= 10;
  options.limits.max_string_bytes /= 10;
  options.limits.max_memory_bytes /= 10;
  for (const BoundCase& test : BoundCases()) {
    SCOPED_TRACE(test.name);
    auto parsed = Template::Parse(test.source, "test");
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    Error error;
    auto rendered = parsed->Render(NoVariables(), options, &error);
    ASSERT_FALSE(rendered.ok());
    EXPECT_NE(error.message.find(test.limit), std::string::npos) << error.message;
  }
}

// A value nested without end is freed without recursion, and a namespace that holds itself is freed
// at all (the leak check of the sanitizer build sees to that).
TEST(TemplateBounds, DeepAndCyclicValuesAreFreed) {
  auto parsed = Template::Parse(
      "{% set ns = namespace(l=[]) %}{% for i in range(90000) %}{% set ns.l = [ns.l] %}{% endfor %}"
      "{% set ns.me = [ns] %}{% macro m() %}{{ ns }}{% endmacro %}{% set ns.m = m %}ok",
      "test");
  ASSERT_TRUE(parsed.ok());
  auto rendered = parsed->Render(NoVariables(), RenderOptions());
  ASSERT_TRUE(rendered.ok()) << rendered.status().message();
  EXPECT_EQ(rendered->text, "ok");
}

TEST(TemplateBounds, NestingOfTheSourceIsBounded) {
  const std::string sources[] = {
      "{{ " + Nested("(", "1", ")", 100000) + " }}",
      "{{ " + Nested("[", "1", "]", 100000) + " }}",
      "{{ " + Nested("not ", "1", "", 100000) + " }}",
      "{{ " + Nested("-", "1", "", 100000) + " }}",
      "{{ 1" + Nested("+1", "", "", 100000) + " }}",
      "{{ x" + Nested(".a", "", "", 100000) + " }}",
      "{{ x" + Nested("|e", "", "", 100000) + " }}",
      "{{ x" + Nested("()", "", "", 100000) + " }}",
      "{{ 1" + Nested(" if 1 else 1", "", "", 100000) + " }}",
      Nested("{% if 1 %}", "", "{% endif %}", 100000),
      Nested("{% for i in x %}", "", "{% endfor %}", 100000),
      Nested("{% if 1 %}{% else %}", "", "{% endif %}", 100000),
  };
  for (const std::string& source : sources) {
    SCOPED_TRACE(source.substr(0, 40));
    EXPECT_FALSE(Template::Parse(source, "test").ok());
  }
  // Chains that are no nesting are fine.
  EXPECT_TRUE(Template::Parse("{{ 'a'" + Nested(" ~ 'a'", "", "", 5000) + " }}", "test").ok());
}

// The deepest recursion that the default limits allow, on a thread with a small stack.
TEST(TemplateBounds, DefaultsFitASmallStack) {
#if CELLM_TEST_SANITIZED
  const size_t stack_bytes = size_t{16} << 20;  // sanitizers make frames several times larger
#else
  const size_t stack_bytes = size_t{1} << 20;
#endif
  const std::string body =
      Nested("{% if x %}", "{{ " + Nested("[", "m(x)", "]", 20) + " }}", "{% endif %}", 20);
  auto parsed = Template::Parse("{% macro m(x) %}" + body + "{% endmacro %}{{ m(1) }}", "test");
  ASSERT_TRUE(parsed.ok());
  Error error;
  struct Job {
    const Template* parsed;
    Error* error;
  } job{&parsed.value(), &error};
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, stack_bytes), 0);
  pthread_t thread;
  const auto run = [](void* argument) -> void* {
    const Job& work = *static_cast<Job*>(argument);
    EXPECT_FALSE(work.parsed->Render(NoVariables(), RenderOptions(), work.error).ok());
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &job), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_EQ(ErrorKindName(error.kind), "RecursionError");
}

struct SyntaxCase {
  const char* source;
  int line;
  const char* symbol;  // in the message
  StatusCode code;
};

// users.md row 46: what the engine does not have is refused when the template is loaded, by line
// and name; nothing is skipped and no other template is taken instead.
TEST(TemplateSyntax, IsRefusedAtLoadWithLineAndName) {
  const SyntaxCase cases[] = {
      {"a\n{{ x | nofilter }}", 2, "nofilter", StatusCode::kUnsupported},
      {"{% if x %}\n\n{{ x is notest }}{% endif %}", 3, "notest", StatusCode::kUnsupported},
      {"\n{{ undefined_function('%d') }}", 2, "undefined_function", StatusCode::kUnsupported},
      {"{{ x | urlize }}", 1, "urlize", StatusCode::kUnsupported},
      {"{% include 'x' %}", 1, "include", StatusCode::kCorrupt},
      {"\n\n{% import 'x' as y %}", 3, "import", StatusCode::kCorrupt},
      {"{% do x %}", 1, "do", StatusCode::kCorrupt},
      {"{{ 'open }}", 1, "unexpected char", StatusCode::kCorrupt},
      {"{{ (1 }}", 1, "", StatusCode::kCorrupt},
      {"{% if x %}", 1, "endif", StatusCode::kCorrupt},
      {"{% for x %}{% endfor %}", 1, "in", StatusCode::kCorrupt},
      {"{% break %}", 1, "break", StatusCode::kCorrupt},
      {"{% for x in y %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", 1, "break",
       StatusCode::kCorrupt},
      {"{# open", 1, "comment", StatusCode::kCorrupt},
      {"{% raw %} open", 1, "raw", StatusCode::kCorrupt},
      {"{{ a b }}", 1, "b", StatusCode::kCorrupt},
      {"{{ '\\x4' }}", 1, "escape", StatusCode::kCorrupt},
      {"{% set true = 1 %}", 1, "assign", StatusCode::kCorrupt},
      {"{% macro f(a, a) %}{% endmacro %}", 1, "duplicate", StatusCode::kCorrupt},
      {"\xFF", 0, "UTF-8", StatusCode::kCorrupt},
  };
  for (const SyntaxCase& test : cases) {
    SCOPED_TRACE(test.source);
    Error error;
    auto parsed = Template::Parse(test.source, "model.cellm: chat_template", &error);
    ASSERT_FALSE(parsed.ok());
    EXPECT_EQ(parsed.status().code(), test.code) << parsed.status().message();
    EXPECT_EQ(error.line, test.line);
    EXPECT_NE(error.message.find(test.symbol), std::string::npos) << error.message;
    EXPECT_EQ(parsed.status().message().find("model.cellm: chat_template"), 0u);
  }
}

// A template may ask first; then the name is an error only where it is used.
TEST(TemplateSyntax, NamesBehindAGuardLoad) {
  const char* sources[] = {
      "{% if 'nofilter' is filter %}{{ 1 | nofilter }}{% endif %}ok",
      "{% if helper is defined %}{{ helper() }}{% endif %}ok",
  };
  for (const char* source : sources) {
    auto parsed = Template::Parse(source, "test");
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(parsed->Render(NoVariables(), RenderOptions())->text, "ok");
  }
}

TEST(TemplateErrors, RaiseExceptionCarriesTheExactMessage) {
  auto parsed = Template::Parse("a\n{{ raise_exception('roles: ' ~ x) }}", "test");
  ASSERT_TRUE(parsed.ok());
  Error error;
  const auto rendered = parsed->Render(FromText(R"({"x": "100%s \n"})"), RenderOptions(), &error);
  ASSERT_FALSE(rendered.ok());
  EXPECT_EQ(error.kind, ErrorKind::kTemplateError);
  EXPECT_EQ(error.message, "roles: 100%s \n");
  EXPECT_EQ(error.line, 2);
}

TEST(TemplateErrors, ClockMustBeGiven) {
  auto parsed = Template::Parse("{{ strftime_now('%Y') }}", "test");
  ASSERT_TRUE(parsed.ok());
  EXPECT_FALSE(parsed->Render(NoVariables(), RenderOptions()).ok());
}

struct TimeCase {
  CivilTime time;
  const char* format;
  const char* expected;
};

TEST(TemplateTime, FormatsLikePython) {
  // Expectations from Python 3.11's datetime.strftime on glibc.
  const TimeCase cases[] = {
      {{2024, 2, 29, 0, 5, 9},
       "%F %T %j %U %W %V %G %u %w",
       "2024-02-29 00:05:09 060 08 09 09 2024 4 4"},
      {{2027, 1, 1, 12, 0, 0}, "%a %b %e %I %p %V %G", "Fri Jan  1 12 PM 53 2026"},
      {{2026, 12, 31, 23, 59, 59},
       "%c|%x|%X|%-d|%k|%l|%y|%C",
       "Thu Dec 31 23:59:59 2026|12/31/26|23:59:59|31|23|11|26|20"},
      {{2026, 1, 15, 9, 30, 0}, "%Q %-m %_d %^a %% %", "%Q 1 15 THU % %"},
  };
  for (const TimeCase& test : cases) {
    auto parsed = Template::Parse("{{ strftime_now(f) }}", "test");
    ASSERT_TRUE(parsed.ok());
    RenderOptions options;
    options.now = test.time;
    Value variables = Value::Dict({{"f", Value::String(test.format, false)}});
    EXPECT_EQ(parsed->Render(variables, options)->text, test.expected);
  }
}

// One parsed template, several threads: the tree is shared, everything else is each render's own.
TEST(TemplateThreads, RendersOfOneTemplateRunTogether) {
  auto parsed = Template::Parse(
      "{% macro f(a, b='B') %}[{{ a ~ b ~ 123456789012345678901234567890 }}]{% endmacro %}"
      "{% for i in range(50) %}{{ f(i) | lower }}{% endfor %}",
      "test");
  ASSERT_TRUE(parsed.ok());
  const std::string expected = parsed->Render(NoVariables(), RenderOptions())->text;
  std::vector<std::string> results(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 20; ++k) {
        results[i] = parsed->Render(NoVariables(), RenderOptions())->text;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& result : results) EXPECT_EQ(result, expected);
}

}  // namespace
}  // namespace cellm::jinja
