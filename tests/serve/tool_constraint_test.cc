#include "cellm/serve/tool_constraint.h"

#include <gtest/gtest.h>

namespace cellm::tools::serve {
namespace {

// Ends of conversations as the families' templates render them.
TEST(ToolConstraint, StylesOfTheFamilies) {
  struct Case {
    const char* text;
    CallStyle style;
  };
  constexpr Case kCases[] = {
      {"<tool_call> explained... probe_question<|im_end|>\n<|im_start|>assistant\n<tool_call>\n"
       "{\"name\": \"probe_tool\", \"arguments\": {\"probe_key\": \"probe_value\"}}\n</tool_call>",
       CallStyle::kTagged},
      {"<tool_call> explained... probe_question<|im_end|>\nassistant\n<|im_end|>",
       CallStyle::kBare},
      {"<tool_call>\nprobe_question "
       "assistant\n<tool_call>\n<function=probe_tool>\n<parameter=probe_key>",
       CallStyle::kBare},
      {"probe_question[/INST][TOOL_CALLS][{\"name\": \"probe_tool\", \"arguments\": {}}]</s>",
       CallStyle::kMistralList},
      {"probe_question[/INST][TOOL_CALLS]probe_tool[ARGS]{}</s>", CallStyle::kMistralArgs},
      {"probe_question[/INST][TOOL_CALLS]probe_tool[CALL_ID]call00000[ARGS]{}</s>",
       CallStyle::kMistralId},
      {"\"parameters\": {} probe_question<|eot_id|>{\"name\": \"probe_tool\", \"parameters\": {}}",
       CallStyle::kLlama},
      {"\"parameters\": {} probe_question<turn|>\n<|tool_call>call:probe_tool{}<tool_call|>",
       CallStyle::kBare},
  };
  for (const Case& one : kCases) EXPECT_EQ(ReadCallStyle(one.text), one.style) << one.text;
}

GenerateRequest TwoTools(ToolChoice choice) {
  GenerateRequest request;
  request.tool_list = {{"f", R"({"type":"object","properties":{}})"}, {"g", ""}};
  request.tool_choice = choice;
  request.tool_name = "g";
  return request;
}

TEST(ToolConstraint, Texts) {
  EXPECT_EQ(ToolConstraint(CallStyle::kTagged, TwoTools(ToolChoice::kNone)), "");
  EXPECT_EQ(ToolConstraint(CallStyle::kBare, TwoTools(ToolChoice::kAuto)), "");
  EXPECT_EQ(ToolConstraint(CallStyle::kTagged, GenerateRequest()), "");
  EXPECT_EQ(
      ToolConstraint(CallStyle::kBare, TwoTools(ToolChoice::kNamed)),
      R"({"tags": [{"begin": "{\"name\": \"g\", \"arguments\": ", "schema": {"type": "object"}, )"
      R"("end": "}"}], "at_least_one": true, "stop_after_first": true})");
  EXPECT_EQ(ToolConstraint(CallStyle::kTagged, TwoTools(ToolChoice::kAuto)),
            R"({"triggers": ["<tool_call>"], "tags": [)"
            R"({"begin": "<tool_call>\n{\"name\": \"f\", \"arguments\": ", )"
            R"("schema": {"type":"object","properties":{}}, "end": "}\n</tool_call>"}, )"
            R"({"begin": "<tool_call>\n{\"name\": \"g\", \"arguments\": ", )"
            R"("schema": {"type": "object"}, "end": "}\n</tool_call>"}], )"
            R"("at_least_one": false, "stop_after_first": false})");
  // Several forced calls only where they are asked for.
  GenerateRequest forced = TwoTools(ToolChoice::kRequired);
  const auto stops = [&] {
    return ToolConstraint(CallStyle::kTagged, forced).find(R"("stop_after_first": true)") !=
           std::string::npos;
  };
  EXPECT_TRUE(stops());
  forced.parallel_asked = true;
  EXPECT_FALSE(stops());
  forced.parallel_tool_calls = false;
  EXPECT_TRUE(stops());
}

}  // namespace
}  // namespace cellm::tools::serve
