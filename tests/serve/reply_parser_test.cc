#include "cellm/serve/reply_parser.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "json/json.h"

namespace cellm::tools::serve {
namespace {

// What a client that waits for the end has: R(reasoning) C(content) T(name {arguments}).
std::string Join(const std::vector<ReplyPiece>& pieces) {
  std::string out;
  char last = 'T';
  std::map<size_t, std::pair<std::string, std::string>> calls;
  const auto close = [&] { out += out.empty() || last == 'T' ? "" : ") "; };
  for (const ReplyPiece& piece : pieces) {
    switch (piece.kind) {
      case ReplyPiece::Kind::kCallBegin:
        calls[piece.call].first = piece.tool_name;
        break;
      case ReplyPiece::Kind::kCallArguments:
        calls[piece.call].second += piece.text;
        break;
      case ReplyPiece::Kind::kCallBroken:
        break;
      case ReplyPiece::Kind::kCallEnd:
        close();
        out += "T(" + calls[piece.call].first + " " + calls[piece.call].second + ") ";
        last = 'T';
        break;
      case ReplyPiece::Kind::kContent:
      case ReplyPiece::Kind::kReasoning: {
        const char letter = piece.kind == ReplyPiece::Kind::kReasoning ? 'R' : 'C';
        if (out.empty() || last != letter) {
          close();
          out += letter;
          out += '(';
        }
        out += piece.text;
        last = letter;
      }
    }
  }
  if (!out.empty() && last != 'T') out += ")";
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

// What a client sees that looks on, with pieces that go on joined: 0:add( begins a call, 0:{"a":1}
// are arguments, 0:) ends it, 0:! takes it back. The order of things is checked.
std::string Trace(const std::vector<ReplyPiece>& pieces) {
  std::string out;
  std::string last;
  size_t begun = 0;
  std::set<size_t> open;
  for (const ReplyPiece& piece : pieces) {
    std::string head = std::to_string(piece.call) + ":";
    if (piece.kind == ReplyPiece::Kind::kContent) head = "C:";
    if (piece.kind == ReplyPiece::Kind::kReasoning) head = "R:";
    if (piece.kind == ReplyPiece::Kind::kCallBegin) {
      EXPECT_EQ(piece.call, begun++);
      open.insert(piece.call);
    } else if (head != "C:" && head != "R:") {
      EXPECT_TRUE(open.contains(piece.call)) << piece.call;
    }
    const bool goes_on = head == last && (piece.kind == ReplyPiece::Kind::kContent ||
                                          piece.kind == ReplyPiece::Kind::kReasoning ||
                                          piece.kind == ReplyPiece::Kind::kCallArguments);
    if (!goes_on) out += (out.empty() ? "" : " ") + head;
    last = piece.kind == ReplyPiece::Kind::kCallBegin ? "" : head;
    out += piece.text;
    if (piece.kind == ReplyPiece::Kind::kCallBegin) out += piece.tool_name + "(";
    if (piece.kind == ReplyPiece::Kind::kCallEnd) out += ")";
    if (piece.kind == ReplyPiece::Kind::kCallBroken) out += "!";
    if (piece.kind == ReplyPiece::Kind::kCallEnd || piece.kind == ReplyPiece::Kind::kCallBroken) {
      open.erase(piece.call);
      last.clear();
    }
  }
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

// The pieces of a text that arrives in steps of `step` bytes.
std::vector<ReplyPiece> Pieces(const ReplyFormat& format, std::string_view text, size_t step) {
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
  return pieces;
}

std::string Parse(const ReplyFormat& format, std::string_view text, size_t step) {
  return Join(Pieces(format, text, step));
}

// What has been shown when this much of a text is there.
std::string Shown(const ReplyFormat& format, std::string_view text, size_t step = 1) {
  ReplyParser parser(format);
  std::vector<ReplyPiece> pieces;
  for (size_t at = 0; at < text.size(); at += step) parser.Feed(text.substr(at, step), &pieces);
  return Trace(pieces);
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
    {"escapes",
     "<tool_call>{\"name\": \"add\", \"arguments\": {\"s\\n\": "
     "\"a\\u00e9\\ud83d\\ude00\\/\\\"\\u0001\", \"e\": \"\"}}</tool_call>",
     "T(add {\"s\\n\":\"a\xC3\xA9\xF0\x9F\x98\x80/\\\"\\u0001\",\"e\":\"\"})"},
    {"numbers",
     "<tool_call>{\"name\": \"add\", \"arguments\": { \"a\" : [ 1.50e2 , "
     "-0.25,12345678901234567890123, "
     "true ,null ] , \"b\" : { } }}</tool_call>",
     "T(add {\"a\":[150.0,-0.25,12345678901234567890123,true,null],\"b\":{}})"},
    {"arguments_first", "<tool_call>{\"arguments\": {\"a\": \"x\"}, \"name\": \"add\"}</tool_call>",
     "T(add {\"a\":\"x\"})"},
    {"python_escapes", "<|tool_call_start|>[add(s='it\\'s\\n', t=(1, 2,), u={})]<|tool_call_end|>",
     "T(add {\"s\": \"it's\\n\", \"t\": [1, 2], \"u\": {}})"},
    {"gemma_quoted_key", "<|tool_call>call:add{<|\"|>a b<|\"|>:<|\"|>x<|\"y<|\"|>}<tool_call|>",
     "T(add {\"a b\": \"x<|\\\"y\"})"},
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
    std::map<size_t, std::string> arguments;
    int calls = 0;
    for (const ReplyPiece& piece : Pieces(Tools(), one.text, 1)) {
      if (piece.kind == ReplyPiece::Kind::kCallArguments) arguments[piece.call] += piece.text;
      if (piece.kind != ReplyPiece::Kind::kCallEnd) continue;
      ++calls;
      const std::string& text = arguments[piece.call];
      const auto parsed = json::Document::Parse(text, "arguments");
      ASSERT_TRUE(parsed.ok()) << text;
      EXPECT_TRUE((*parsed)->root().is_object());
    }
    EXPECT_GT(calls, 0);
  }
}

// The name as soon as it is known, then what can no longer change: everything but numbers, halves
// of characters, escapes and marks, and what a notation has to wait for.
TEST(ReplyParser, CallsAreShownWhileTheyAreWritten) {
  constexpr Case kBeginnings[] = {
      {"half_a_name", "Hm.<tool_call>\n{\"name\": \"ad", "C:Hm."},
      {"name", "Hm.<tool_call>\n{\"name\": \"add\"", "C:Hm. 0:add("},
      {"text", "<tool_call>{\"name\": \"add\", \"arguments\": { \"s\" : \"Z\xC3\xBCr",
       "0:add( 0:{\"s\":\"Z\xC3\xBCr"},
      {"half_a_character", "<tool_call>{\"name\": \"add\", \"arguments\": {\"s\": \"Z\xC3",
       "0:add( 0:{\"s\":\"Z"},
      {"half_an_escape", "<tool_call>{\"name\": \"add\", \"arguments\": {\"s\": \"Z\\ud83d\\ude",
       "0:add( 0:{\"s\":\"Z"},
      {"number", "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": [12",
       "0:add( 0:{\"a\":1,\"b\":["},
      {"closed", "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}", "0:add( 0:{\"a\":1}"},
      {"arguments_first", "<tool_call>{\"arguments\": {\"a\": \"x\"}, \"na", ""},
      {"arguments_first_then_name", "<tool_call>{\"arguments\": {\"a\": \"x\"}, \"name\": \"add\"",
       "0:add( 0:{\"a\":\"x\"}"},
      {"arguments_as_text", "<tool_call>{\"name\": \"add\", \"arguments\": \" {\\\"a\\\": \\\"x",
       "0:add( 0:{\"a\":\"x"},
      {"nested",
       "{\"type\": \"function\", \"function\": {\"name\": \"add\", \"arguments\": {\"a\": \"",
       "0:add( 0:{\"a\":\""},
      {"bare", "{\"name\": \"add\", \"parameters\": {\"a\": \"x", "0:add( 0:{\"a\":\"x"},
      {"bare_unknown", "{\"name\": \"Rome\", \"parameters\": {\"a\": \"x", ""},
      {"list", "[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {}}, {\"name\": \"add\", \"arg",
       "0:add( 0:{} 1:add("},
      {"mistral_args", "[TOOL_CALLS]add[ARGS]", "0:add("},
      {"mistral_id", "[TOOL_CALLS]add[CALL_ID]call00001[ARGS]{\"a\": \"x", "0:add( 0:{\"a\":\"x"},
      {"llama_tag", "<|python_tag|>{\"name\": \"add\", \"parameters\": {\"a\": \"x",
       "0:add( 0:{\"a\":\"x"},
      {"granite", "<|tool_call|>[{\"name\": \"add\", \"arguments\": {\"a\": \"x",
       "0:add( 0:{\"a\":\"x"},
      {"command_r",
       "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"add\", \"parameters\": {",
       "0:add( 0:{"},
      {"apertus", "<|tools_prefix|>[{\"add\": {\"a\": \"x", "0:add( 0:{\"a\":\"x"},
      {"functionary", "<function=add>{\"a\": \"x", "0:add( 0:{\"a\":\"x"},
      {"lfm2", "<|tool_call_start|>[add(a=1, city='Z\xC3\xBCr",
       "0:add( 0:{\"a\": 1, \"city\": \"Z\xC3\xBCr"},
      {"lfm2_constant", "<|tool_call_start|>[add(a=True", "0:add( 0:{\"a\": "},
      {"lfm2_half_a_key", "<|tool_call_start|>[add(a=1, ci", "0:add( 0:{\"a\": 1, "},
      {"gemma", "<|tool_call>call:add{s:<|\"|>Z\xC3\xBCr<|", "0:add( 0:{\"s\": \"Z\xC3\xBCr"},
      {"gemma_name", "<|tool_call>call:add", ""},
      {"xml_name", "<tool_call>\n<function=get_weather>", "0:get_weather("},
      {"xml_text", "<tool_call>\n<function=get_weather>\n<parameter=city>\nZ\xC3\xBCrich\n</par",
       "0:get_weather( 0:{\"city\": \"Z\xC3\xBCrich"},
      {"xml_other_parameter", "<tool_call>\n<function=get_weather>\n<parameter=days>\n35",
       "0:get_weather( 0:{\"days\": "},
      {"xml_closed",
       "<tool_call><function=get_weather><parameter=days>35</parameter>\n<parameter=city>R",
       "0:get_weather( 0:{\"days\": 35, \"city\": \"R"},
  };
  for (const Case& one : kBeginnings) {
    SCOPED_TRACE(one.name);
    for (size_t step = 1; step <= std::string_view(one.text).size(); ++step) {
      ASSERT_EQ(Shown(Tools(), one.text, step), one.expected) << "in steps of " << step;
    }
  }
  ReplyFormat channels = Tools();
  channels.channels = true;
  EXPECT_EQ(Shown(channels, "<|channel|>commentary to=functions.add <|constrain|>json<|message|>"),
            "0:add(");
  EXPECT_EQ(Shown(channels, "<|channel|>commentary to=functions.add json<|message|>{\"a\": \"x<|e"),
            "0:add( 0:{\"a\":\"x");
}

// What was shown of a call that is none is taken back before its text follows.
TEST(ReplyParser, ShownCallsThatAreNoneAreTakenBack) {
  constexpr Case kTakenBack[] = {
      {"cut_short", "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"x",
       "0:add( 0:{\"a\":\"x 0:! C:<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"x"},
      {"no_object", "<tool_call>{\"name\": \"add\", \"arguments\": 3}</tool_call>",
       "0:add( 0:! C:<tool_call>{\"name\": \"add\", \"arguments\": 3}</tool_call>"},
      {"infinite", "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1e999}}</tool_call>",
       "0:add( 0:{\"a\": 0:! C:<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": "
       "1e999}}</tool_call>"},
      {"last_of_a_list",
       "[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {}}, {\"name\": \"add\", 3}]",
       "0:add( 0:{} 1:add( 0:! 1:! C:[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {}}, "
       "{\"name\": \"add\", 3}]"},
      {"then_a_good_one",
       "<tool_call>{\"name\": \"add\", \"arguments\": [}</tool_call>]}<tool_call>{\"name\": "
       "\"add\", "
       "\"arguments\": {\"a\": 1}}</tool_call>",
       "0:add( 0:! C:<tool_call>{\"name\": \"add\", \"arguments\": [}</tool_call>]} 1:add( "
       "1:{\"a\":1} 1:)"},
      {"named_twice", "<tool_call>{\"name\": \"add\", \"name\": \"get_weather\"}</tool_call>",
       "0:add( 0:! 1:get_weather( 1:{} 1:)"},
      {"arguments_twice",
       "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}, \"arguments\": {\"a\": "
       "2}}</tool_call>",
       "0:add( 0:{\"a\":1} 0:! 1:add( 1:{\"a\":2} 1:)"},
      {"python", "<|tool_call_start|>[add(a='x', b=y)]<|tool_call_end|>",
       "0:add( 0:{\"a\": \"x\", \"b\":  0:! C:<|tool_call_start|>[add(a='x', "
       "b=y)]<|tool_call_end|>"},
  };
  for (const Case& one : kTakenBack) {
    SCOPED_TRACE(one.name);
    for (size_t step = 1; step <= std::string_view(one.text).size(); ++step) {
      ASSERT_EQ(Trace(Pieces(Tools(), one.text, step)), one.expected) << "in steps of " << step;
    }
  }
}

TEST(ReplyParser, CallsKeepTheirNumbers) {
  EXPECT_EQ(Trace(Pieces(Tools(),
                         "[TOOL_CALLS][{\"name\": \"add\"}, {\"name\": \"add\", \"arguments\": "
                         "{\"a\": \"b\"}}]",
                         3)),
            "0:add( 1:add( 1:{\"a\":\"b\"} 0:{} 0:) 1:)");
  ReplyFormat format = Tools();
  format.one_call = true;
  EXPECT_EQ(Trace(Pieces(format, "[TOOL_CALLS][{\"name\": \"add\"}, {\"name\": \"add\"}]", 3)),
            "0:add( 0:{} 0:)");
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
// pieces, also those that are shown before the end.
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
    const std::string whole = Trace(Pieces(format, text, text.size() + 1));
    ASSERT_EQ(Trace(Pieces(format, text, 1 + random() % 7)), whole) << text;
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
