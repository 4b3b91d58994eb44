// Chat templates against the reference: 41 published templates (read from the reference data, they
// are other people's) on 38 conversations of our own.
#include "jinja/chat_template.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "json/json.h"
#include "platform/file.h"
#include "support/jsonl.h"
#include "support/paths.h"

namespace cellm::jinja {
namespace {

using testing::StringOf;

RenderOptions FixedClock() {
  RenderOptions options;
  options.now = CivilTime{2026, 1, 15, 9, 30, 0};
  return options;
}

Value FromText(std::string_view text, bool trusted = false) {
  auto document = json::Document::Parse(text, "test");
  EXPECT_TRUE(document.ok()) << document.status().message();
  auto value = Value::FromJson((*document)->root(), trusted);
  EXPECT_TRUE(value.ok());
  return std::move(value).value();
}

ChatInput InputOf(json::Value row, bool add_generation_prompt) {
  ChatInput input;
  input.messages = Value::FromJson(row.Find("messages"), false).value();
  if (row.Find("tools").exists()) input.tools = Value::FromJson(row.Find("tools"), false).value();
  if (row.Find("documents").exists()) {
    input.documents = Value::FromJson(row.Find("documents"), false).value();
  }
  input.add_generation_prompt = add_generation_prompt;
  row.Find("continue_final_message").GetBool(&input.continue_final_message);
  const json::Value kwargs = row.Find("kwargs");
  for (json::Value v = kwargs.First(); v.exists(); v = kwargs.Next(v)) {
    input.arguments.emplace_back(kwargs.KeyOf(v), Value::FromJson(v, false).value());
  }
  return input;
}

std::optional<std::string> TokenOf(json::Value entry, const char* name) {
  if (!entry.Find(name).has_value()) return std::nullopt;
  return StringOf(entry.Find(name));
}

// users.md row 45
TEST(ChatTemplates, FortyOnePublishedTemplatesRenderLikeTheReference) {
  CELLM_SKIP_WITHOUT_SHARED(folder, "golden-text/templates");
  const std::string listing_text = testing::ReadText(folder + "/templates.json");
  auto listing = json::Document::Parse(listing_text, "templates.json");
  ASSERT_TRUE(listing.ok());
  const std::vector<std::string> case_lines =
      testing::ReadLines(testing::TestData("templates/cases.jsonl"));
  std::vector<std::unique_ptr<json::Document>> cases;
  for (const std::string& line : case_lines) {
    cases.push_back(json::Document::Parse(line, "case").value());
  }
  size_t templates = 0;
  size_t rendered_count = 0;
  const json::Value all = (*listing)->root();
  for (json::Value entry = all.First(); entry.exists(); entry = all.Next(entry)) {
    const std::string name = StringOf(entry.Find("name"));
    SCOPED_TRACE(name);
    SpecialTokens tokens;
    tokens.bos_token = TokenOf(entry, "bos_token");
    tokens.eos_token = TokenOf(entry, "eos_token");
    auto chat = ChatTemplate::FromSource(testing::ReadText(folder + "/" + name + ".jinja"), tokens);
    ASSERT_TRUE(chat.ok()) << chat.status().message();
    ++templates;
    for (const std::string& line : testing::ReadLines(folder + "/expected/" + name + ".jsonl")) {
      auto expected_document = json::Document::Parse(line, "expected");
      ASSERT_TRUE(expected_document.ok());
      const json::Value expected = (*expected_document)->root();
      const std::string case_name = StringOf(expected.Find("case"));
      bool add_generation_prompt = false;
      expected.Find("add_generation_prompt").GetBool(&add_generation_prompt);
      SCOPED_TRACE(case_name + (add_generation_prompt ? " with" : " without") + " prompt");
      json::Value row;
      for (const auto& document : cases) {
        if (StringOf(document->root().Find("case")) == case_name) row = document->root();
      }
      ASSERT_TRUE(row.exists());
      Error error;
      auto result = chat->Render(InputOf(row, add_generation_prompt), FixedClock(), &error);
      ++rendered_count;
      if (expected.Find("result").exists()) {
        ASSERT_TRUE(result.ok()) << result.status().message();
        EXPECT_EQ(result->text, StringOf(expected.Find("result")));
        ASSERT_EQ(result->runs.empty() ? 0 : result->runs.back().end, result->text.size());
      } else {
        EXPECT_FALSE(result.ok()) << "rendered: " << result->text;
        if (StringOf(expected.Find("error_type")) == "TemplateError") {
          EXPECT_EQ(ErrorKindName(error.kind), "TemplateError");
          EXPECT_EQ(error.message, StringOf(expected.Find("error")));
        }
      }
    }
  }
  EXPECT_EQ(templates, 41u);
  EXPECT_EQ(rendered_count, 41u * 74u);
}

// users.md row 47: every name of a special token is there with its exact text, and what the model
// does not have is undefined (not empty).
TEST(ChatTemplates, EnvironmentHasAllSpecialTokenNames) {
  const char* source =
      "{% for t in [bos_token, eos_token, unk_token, sep_token, pad_token, cls_token, mask_token] "
      "%}"
      "{{ t if t is defined else '-' }},{% endfor %}"
      "{{ additional_special_tokens | join('+') if additional_special_tokens is defined else '-' }}"
      "|{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}";
  SpecialTokens tokens;
  ChatInput input;
  input.messages = FromText("[]");
  auto empty = ChatTemplate::FromSource(source, tokens);
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->Render(input, FixedClock())->text, "-,-,-,-,-,-,-,-|TrueTrueTrue");
  tokens = {"<s>", "</s>", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]", {"<a>", "<b>"}};
  auto full = ChatTemplate::FromSource(source, tokens);
  ASSERT_TRUE(full.ok());
  auto rendered = full->Render(input, FixedClock());
  ASSERT_TRUE(rendered.ok());
  EXPECT_EQ(rendered->text, "<s>,</s>,<unk>,[SEP],<pad>,[CLS],[MASK],<a>+<b>|TrueTrueTrue");
  input.arguments.emplace_back("bos_token", Value::String("<other>", false));
  EXPECT_EQ(full->Render(input, FixedClock())->text.substr(0, 8), "<other>,");
}

constexpr char kTalk[] =
    R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hi "},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": [{"type": "text", "text": "A"}, {"type": "image"},
                                     {"type": "text", "text": "B"}]}])";

struct FormatCase {
  const char* name;
  const char* expected;
};

TEST(ChatTemplates, BuiltInFormats) {
  const FormatCase cases[] = {
      {"chatml",
       "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
       "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nAB<|im_end|>\n"
       "<|im_start|>assistant\n"},
      {"gemma",
       "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello"
       "<end_of_turn>\n<start_of_turn>user\nAB<end_of_turn>\n<start_of_turn>model\n"},
      {"llama3",
       "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
       "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>"
       "<|start_header_id|>user<|end_header_id|>\n\nAB<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\n"},
      {"plain", "<s>Be brief.\n\nUser:  Hi \nAssistant: Hello\nUser: AB\nAssistant:"},
  };
  for (const FormatCase& test : cases) {
    SCOPED_TRACE(test.name);
    ChatFormat format = ChatFormat::kPlain;
    ASSERT_TRUE(ParseChatFormat(test.name, &format));
    SpecialTokens tokens;
    tokens.bos_token = "<s>";
    auto chat = ChatTemplate::FromFormat(format, tokens);
    ASSERT_TRUE(chat.ok()) << chat.status().message();
    ChatInput input;
    input.messages = FromText(kTalk);
    auto rendered = chat->Render(input, FixedClock());
    ASSERT_TRUE(rendered.ok()) << rendered.status().message();
    EXPECT_EQ(rendered->text, test.expected);
  }
  ChatFormat format = ChatFormat::kPlain;
  EXPECT_FALSE(ParseChatFormat("vicuna", &format));
}

// The built-in formats agree with published templates of their families.
TEST(ChatTemplates, BuiltInFormatsMatchPublishedTemplates) {
  CELLM_SKIP_WITHOUT_SHARED(folder, "golden-text/templates");
  const std::pair<const char*, ChatFormat> pairs[] = {{"qwen2_5", ChatFormat::kChatMl},
                                                      {"gemma3", ChatFormat::kGemma},
                                                      {"llama3", ChatFormat::kLlama3}};
  for (const auto& [name, format] : pairs) {
    SCOPED_TRACE(name);
    SpecialTokens tokens;
    tokens.bos_token = "<bos>";
    auto published =
        ChatTemplate::FromSource(testing::ReadText(folder + "/" + name + ".jinja"), tokens);
    auto ours = ChatTemplate::FromFormat(format, tokens);
    ASSERT_TRUE(published.ok() && ours.ok());
    ChatInput input;
    input.messages = FromText(
        R"([{"role": "system", "content": "S"}, {"role": "user", "content": "U"},
            {"role": "assistant", "content": "A"}, {"role": "user", "content": "V"}])");
    auto expected = published->Render(input, FixedClock());
    ASSERT_TRUE(expected.ok()) << expected.status().message();
    EXPECT_EQ(ours->Render(input, FixedClock())->text, expected->text);
  }
}

// users.md row 48: the template comes from the file; among several the caller's tools decide.
TEST(ChatTemplates, NamedTemplatesAreChosenByTools) {
  auto chat = ChatTemplate::FromNamed({{"rag", "R"}, {"tool_use", "T"}, {"default", "D"}}, {});
  ASSERT_TRUE(chat.ok());
  ChatInput input;
  input.messages = FromText("[]");
  EXPECT_EQ(chat->Render(input, FixedClock())->text, "D");
  input.tools = FromText("[]");
  EXPECT_EQ(chat->Render(input, FixedClock())->text, "D");
  input.tools = FromText(R"([{"type": "function"}])");
  EXPECT_EQ(chat->Render(input, FixedClock())->text, "T");
  EXPECT_NE(chat->SourceHash(true), chat->SourceHash(false));
  EXPECT_FALSE(ChatTemplate::FromNamed({}, {}).ok());
  EXPECT_FALSE(ChatTemplate::FromNamed({{"default", "ok"}, {"tool_use", "{% bad"}}, {}).ok());
}

TEST(ChatTemplates, MentionsSwitches) {
  auto chat = ChatTemplate::FromSource("{% if enable_thinking is defined %}x{% endif %}", {});
  ASSERT_TRUE(chat.ok());
  EXPECT_TRUE(chat->Mentions("enable_thinking"));
  EXPECT_FALSE(chat->Mentions("reasoning_effort"));
}

TEST(ChatTemplates, ContinuingNeedsATextThatTheTemplateKeeps) {
  auto chat =
      ChatTemplate::FromSource("{% for m in messages[:1] %}{{ m.content }}{% endfor %}", {});
  ASSERT_TRUE(chat.ok());
  ChatInput input;
  input.add_generation_prompt = false;
  input.continue_final_message = true;
  const char* refused[] = {
      "[]", R"([{"role": "assistant"}])", R"([{"role": "assistant", "content": ["x"]}])",
      R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])"};
  for (const char* messages : refused) {
    SCOPED_TRACE(messages);
    input.messages = FromText(messages);
    Error error;
    EXPECT_FALSE(chat->Render(input, FixedClock(), &error).ok());
    EXPECT_EQ(ErrorKindName(error.kind), "ValueError");
  }
  input.messages = FromText(R"([{"role": "assistant", "content": "abc "}])");
  auto rendered = chat->Render(input, FixedClock());
  ASSERT_TRUE(rendered.ok());
  EXPECT_EQ(rendered->text, "abc ");
  ASSERT_EQ(rendered->runs.size(), 1u);
  EXPECT_EQ(rendered->runs[0].end, 4u);
  input.add_generation_prompt = true;
  EXPECT_FALSE(chat->Render(input, FixedClock()).ok());
}

}  // namespace
}  // namespace cellm::jinja
