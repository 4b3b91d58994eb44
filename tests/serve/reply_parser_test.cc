#include "cellm/serve/reply_parser.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "json/json.h"

namespace cellm::tools::serve {
namespace {

// The pieces in one line: R(reasoning) C(content) T(name {arguments}).
std::string Join(const std::vector<ReplyPiece>& pieces) {
  std::string out;
  ReplyPiece::Kind last = ReplyPiece::Kind::kToolCall;
  for (const ReplyPiece& piece : pieces) {
    if (piece.kind == ReplyPiece::Kind::kToolCall) {
      if (!out.empty() && last != ReplyPiece::Kind::kToolCall) out += ") ";
      out += "T(" + piece.tool_name + " " + piece.text + ") ";
    } else {
      const char letter = piece.kind == ReplyPiece::Kind::kReasoning ? 'R' : 'C';
      if (out.empty() || last != piece.kind) {
        if (!out.empty() && last != ReplyPiece::Kind::kToolCall) out += ") ";
        out += letter;
        out += '(';
      }
      out += piece.text;
    }
    last = piece.kind;
  }
  if (!out.empty() && last != ReplyPiece::Kind::kToolCall) out += ")";
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

ReplyFormat Tools() {
  ReplyFormat format;
  format.tools = {
      {"get_weather", R"({"type": "object", "properties": {"city": {"type": "string"}, )"
                      R"("days": {"type": "integer"}}})"},
      {"add", ""}};
  return format;
}

std::string Parse(const ReplyFormat& format, std::string_view text, size_t step) {
  ReplyParser parser(format);
  std::vector<ReplyPiece> pieces;
  for (size_t at = 0; at < text.size(); at += step) {
    std::vector<ReplyPiece> some;
    parser.Feed(text.substr(at, step), &some);
    pieces.insert(pieces.end(), some.begin(), some.end());
  }
  std::vector<ReplyPiece> some;
  parser.Finish(&some);
  pieces.insert(pieces.end(), some.begin(), some.end());
  return Join(pieces);
}

// However the text is cut: whole, byte by byte, and in every other step.
void ExpectPieces(const ReplyFormat& format, std::string_view text, const std::string& expected) {
  for (size_t step = 1; step <= text.size(); ++step) {
    ASSERT_EQ(Parse(format, text, step), expected) << "in steps of " << step << ": " << text;
  }
}

struct Case {
  const char* name;
  const char* text;
  const char* expected;
};

constexpr Case kFamilies[] = {
    {"hermes",
     "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": [2, 3]}}\n</tool_call>",
     "T(add {\"a\":1,\"b\":[2,3]})"},
    {"hermes_two",
     "Let me see.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
     "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
     "\"K\xC3\xB6ln\"}}\n</tool_call>\n",
     "C(Let me see.) T(add {\"a\":1}) T(get_weather {\"city\":\"K\xC3\xB6ln\"})"},
    {"hermes_close_in_string",
     "<tool_call>{\"name\": \"add\", \"arguments\": {\"s\": \"</tool_call>}\"}}</tool_call>",
     "T(add {\"s\":\"</tool_call>}\"})"},
    {"hermes_without_close", "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}", "T(add {})"},
    {"arguments_as_text",
     "<tool_call>{\"name\": \"add\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
     "T(add {\"a\":1})"},
    {"qwen_xml",
     "<tool_call>\n<function=get_weather>\n<parameter=city>\nZ\xC3\xBCrich\n</parameter>\n"
     "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
     "T(get_weather {\"city\": \"Z\xC3\xBCrich\", \"days\": 3})"},
    {"qwen_xml_text_that_is_a_number",
     "<tool_call>\n<function=get_weather>\n<parameter=city>\n8000\n</parameter>\n</function>\n"
     "</tool_call>",
     "T(get_weather {\"city\": \"8000\"})"},
    {"llama", "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Rome\"}}",
     "T(get_weather {\"city\":\"Rome\"})"},
    {"llama_two",
     "{\"name\": \"add\", \"parameters\": {}}; {\"name\": \"add\", \"parameters\": {\"a\": 2}}",
     "T(add {}) T(add {\"a\":2})"},
    {"llama_tag", "<|python_tag|>{\"name\": \"add\", \"parameters\": {\"a\": 2}}",
     "T(add {\"a\":2})"},
    {"bare_list", "[{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": \"add\"}]",
     "T(add {\"a\":1}) T(add {})"},
    {"bare_tool_key", "{\"tool\": \"add\", \"arguments\": {\"a\": 1}}", "T(add {\"a\":1})"},
    {"bare_nested",
     "{\"type\": \"function\", \"function\": {\"name\": \"add\", \"arguments\": {}}}", "T(add {})"},
    {"mistral", "[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {\"a\": 1}, \"id\": \"x\"}]",
     "T(add {\"a\":1})"},
    {"mistral_args", "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Rome\"}[TOOL_CALLS]add[ARGS]{}",
     "T(get_weather {\"city\":\"Rome\"}) T(add {})"},
    {"mistral_id", "[TOOL_CALLS]add[CALL_ID]call00001[ARGS]{\"a\": 1}", "T(add {\"a\":1})"},
    {"lfm2",
     "<|tool_call_start|>[get_weather(city=\"Z\xC3\xBCrich\", days=3), add(a=1.5, b=True, c=None, "
     "d=['x', \"it's\"], e={\"k\": -2})]<|tool_call_end|>Done.",
     "T(get_weather {\"city\": \"Z\xC3\xBCrich\", \"days\": 3}) "
     "T(add {\"a\": 1.5, \"b\": true, \"c\": null, \"d\": [\"x\", \"it's\"], \"e\": {\"k\": -2}}) "
     "C(Done.)"},
    {"lfm2_json", "<|tool_call_start|>[{\"name\": \"add\", \"arguments\": {}}]<|tool_call_end|>",
     "T(add {})"},
    {"gemma",
     "<|tool_call>call:get_weather{city:<|\"|>Z\xC3\xBCrich, \"old\" town<|\"|>,days:3,"
     "list:[<|\"|>a<|\"|>,true],map:{k:null}}<tool_call|>",
     "T(get_weather {\"city\": \"Z\xC3\xBCrich, \\\"old\\\" town\", \"days\": 3, \"list\": "
     "[\"a\", true], \"map\": {\"k\": null}})"},
    {"granite3", "<|tool_call|>[{\"name\": \"add\", \"arguments\": {\"a\": 1}}]",
     "T(add {\"a\":1})"},
    {"phi4", "<|tool_call|>[{\"name\": \"add\", \"arguments\": {\"a\": 1}}]<|/tool_call|>",
     "T(add {\"a\":1})"},
    {"command_r",
     "<|START_ACTION|>[\n {\"tool_call_id\": \"0\", \"tool_name\": \"add\", \"parameters\": "
     "{\"a\": 1}}\n]<|END_ACTION|>",
     "T(add {\"a\":1})"},
    {"apertus", "<|tools_prefix|>[{\"add\": {\"a\": 1}}]<|tools_suffix|>", "T(add {\"a\":1})"},
    {"functionary", "<function=add>{\"a\": 1}</function>", "T(add {\"a\":1})"},
};

TEST(ReplyParser, CallsOfTheFamilies) {
  for (const Case& one : kFamilies) {
    SCOPED_TRACE(one.name);
    ExpectPieces(Tools(), one.text, one.expected);
  }
}

// users.md row 60: however a reply is cut on its way, the arguments that were handed out are the
// same text, and it is JSON.
TEST(ReplyParser, ArgumentsAreJsonForEveryChunking) {
  for (const Case& one : kFamilies) {
    SCOPED_TRACE(one.name);
    ReplyParser parser(Tools());
    std::vector<ReplyPiece> pieces;
    for (const char c : std::string_view(one.text)) parser.Feed({&c, 1}, &pieces);
    parser.Finish(&pieces);
    int calls = 0;
    for (const ReplyPiece& piece : pieces) {
      if (piece.kind != ReplyPiece::Kind::kToolCall) continue;
      ++calls;
      const auto parsed = json::Document::Parse(piece.text, "arguments");
      ASSERT_TRUE(parsed.ok()) << piece.text;
      EXPECT_TRUE((*parsed)->root().is_object());
    }
    EXPECT_GT(calls, 0);
  }
}

constexpr Case kBroken[] = {
    {"cut_short", "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1",
     "C(<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1)"},
    {"no_json", "<tool_call>\n{'name': 'add'}\n</tool_call> sorry",
     "C(<tool_call>\n{'name': 'add'}\n</tool_call> sorry)"},
    {"prose", "<tool_call> is a mark", "C(<tool_call> is a mark)"},
    {"arguments_no_object", "<tool_call>{\"name\": \"add\", \"arguments\": 3}</tool_call>",
     "C(<tool_call>{\"name\": \"add\", \"arguments\": 3}</tool_call>)"},
    {"not_a_number_of_json",
     "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": NaN}}</tool_call>",
     "C(<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": NaN}}</tool_call>)"},
    {"a_good_one_after_it",
     "<tool_call>{broken</tool_call>\n<tool_call>{\"name\": \"add\"}</tool_call>",
     "C(<tool_call>{broken</tool_call>) T(add {})"},
    {"json_that_is_no_call", "{\"answer\": 42}", "C({\"answer\": 42})"},
    {"unknown_bare_name", "{\"name\": \"Rome\", \"arguments\": {}}",
     "C({\"name\": \"Rome\", \"arguments\": {}})"},
    {"list_of_numbers", "[1, 2, 3] are numbers", "C([1, 2, 3] are numbers)"},
    {"python_unclosed", "<|tool_call_start|>[add(a=", "C(<|tool_call_start|>[add(a=)"},
    {"gemma_broken", "<|tool_call>call:add{a:}<tool_call|>",
     "C(<|tool_call>call:add{a:}<tool_call|>)"},
    {"mistral_prose", "[TOOL_CALLS] are made so: {}", "C([TOOL_CALLS] are made so: {})"},
    {"blanks", "  a  b \n", "C(  a  b \n)"},
    {"only_blanks", " \n ", "C( \n )"},
    {"a_mark_begins", "a < b, <too", "C(a < b, <too)"},
};

// users.md rows 58 and 59: what is no call is passed on as text, to the last byte.
TEST(ReplyParser, BrokenCallsAreText) {
  for (const Case& one : kBroken) {
    SCOPED_TRACE(one.name);
    ExpectPieces(Tools(), one.text, one.expected);
  }
}

TEST(ReplyParser, WithoutToolsEverythingIsContent) {
  for (const Case& one : kFamilies) {
    ExpectPieces(ReplyFormat(), one.text, "C(" + std::string(one.text) + ")");
  }
}

TEST(ReplyParser, OneCallWhenParallelCallsAreOff) {
  ReplyFormat format = Tools();
  format.one_call = true;
  ExpectPieces(
      format,
      "<tool_call>{\"name\": \"add\"}</tool_call><tool_call>{\"name\": \"add\"}</tool_call>",
      "T(add {})");
}

TEST(ReplyParser, Reasoning) {
  ExpectPieces(ReplyFormat(), "<think>\nHm.</think>\n\nYes.", "R(\nHm.) C(Yes.)");
  ExpectPieces(ReplyFormat(), "\n<think>Hm", "R(Hm)");
  ExpectPieces(ReplyFormat(), "Not at the start: <think>a</think>",
               "C(Not at the start: <think>a</think>)");
  ExpectPieces(ReplyFormat(), "<|channel>thought\nHm.<channel|>Yes.", "R(\nHm.) C(Yes.)");
  ExpectPieces(Tools(), "<think>a</think>\n<tool_call>{\"name\": \"add\"}</tool_call>",
               "R(a) T(add {})");
  ReplyFormat whole;
  whole.split_reasoning = false;
  ExpectPieces(whole, "<think>a</think>b", "C(<think>a</think>b)");
  ReplyFormat open;
  ReadPromptEnd("<|im_start|>assistant\n<think>\n", &open);
  ExpectPieces(open, "Hm.\n</think>\n\nYes.", "R(Hm.\n) C(Yes.)");
}

TEST(ReplyParser, Channels) {
  ReplyFormat format = Tools();
  ReadPromptEnd("<|start|>user<|message|>Hi<|end|><|start|>assistant", &format);
  ASSERT_TRUE(format.channels);
  ExpectPieces(
      format,
      "<|channel|>analysis<|message|>They want rain.<|end|><|start|>assistant<|channel|>"
      "commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Rome\"}"
      "<|call|>",
      "R(They want rain.) T(get_weather {\"city\":\"Rome\"})");
  ExpectPieces(format,
               "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final"
               "<|message|>It rains.<|return|>",
               "R(Easy.) C(It rains.)");
  ExpectPieces(format,
               "<|start|>assistant to=functions.add<|channel|>commentary json<|message|>{\"a\"",
               "C({\"a\")");
}

TEST(ReplyParser, SpecialTokensThatAreNoMarksAreLeftOut) {
  ReplyParser parser((ReplyFormat()));
  std::vector<ReplyPiece> pieces;
  parser.Feed("Hello ", &pieces);
  parser.Drop("<|im_start|>");
  parser.Feed("<|im_start|>", &pieces);
  parser.Feed("world", &pieces);
  parser.Finish(&pieces);
  EXPECT_EQ(Join(pieces), "C(Hello world)");
}

// users.md row 58: a million mutated texts in the long run, a slice of them always. Nothing is
// lost: what comes out as content, in order, are bytes of what went in; every cut gives the same
// pieces.
TEST(ReplyParser, MutatedTexts) {
  std::mt19937_64 random(20260115);
  const bool run_long = std::getenv("CELLM_TEST_LONG") != nullptr;
  const int rounds = run_long ? 1'000'000 : 20'000;
  std::vector<std::string> seeds;
  for (const Case& one : kFamilies) seeds.emplace_back(one.text);
  for (const Case& one : kBroken) seeds.emplace_back(one.text);
  const ReplyFormat format = Tools();
  for (int round = 0; round < rounds; ++round) {
    std::string text = seeds[random() % seeds.size()];
    if (random() % 4 == 0) text += seeds[random() % seeds.size()];
    for (uint64_t edits = random() % 4; edits > 0 && !text.empty(); --edits) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text.erase(at, 1 + random() % 5);
          break;
        case 1:
          text.insert(at, 1, "{}[]<>\"'(),:|\\ a"[random() % 16]);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 12));
      }
    }
    const std::string whole = Parse(format, text, text.size() + 1);
    ASSERT_EQ(Parse(format, text, 1 + random() % 7), whole) << text;
  }
}

// Long texts take time in proportion to their length, whatever is in them.
TEST(ReplyParser, LongTextsAreLinear) {
  for (const std::string_view piece :
       {"<tool_call>[", "{\"name\": ", "<tool_call>{\"a\": \"", "[[[[", "<|tool_call_start|>[f(",
        "<|tool_call>call:f{", "<"}) {
    std::string text;
    while (text.size() < (1u << 20)) text += piece;
    std::string out = Parse(Tools(), text, 4096);
    EXPECT_EQ(out, "C(" + text + ")");
  }
}

}  // namespace
}  // namespace cellm::tools::serve
