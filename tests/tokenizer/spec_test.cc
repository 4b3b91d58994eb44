// Tokenizers from GGUF's lists: the same ids as from the tokenizer.json they were made of.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/paths.h"
#include "tokenizer/golden.h"

namespace cellm::tokenizer {
namespace {

using cellm::testing::LoadTokenizer;
using cellm::testing::ReadFile;
using cellm::testing::ReadLines;
using cellm::testing::TestData;
using cellm::testing::Text;

// A spec with the lists of a tokenizer, and what keeps the views alive.
struct Owned {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<json::Document> document;
  std::vector<std::string> merges;
  TokenizerSpec spec;
};

void Fill(const std::string& name, Owned* out) {
  const std::string path = TestData("tokenizers/" + name + ".json");
  out->tokenizer = LoadTokenizer(path);
  ASSERT_NE(out->tokenizer, nullptr);
  auto parsed = json::Document::Parse(ReadFile(path), name);
  ASSERT_TRUE(parsed.ok());
  out->document = std::move(*parsed);
  for (int32_t id = 0; id < out->tokenizer->vocab_size(); ++id) {
    out->spec.tokens.push_back(out->tokenizer->IdToToken(id));
    bool added = false;
    for (const AddedToken& token : out->tokenizer->added_tokens()) added |= token.id == id;
    const TokenType type = out->tokenizer->IsSpecial(id) ? TokenType::kControl
                           : added                       ? TokenType::kUserDefined
                                                         : TokenType::kNormal;
    out->spec.token_types.push_back(static_cast<int32_t>(type));
  }
  const json::Value list = out->document->root().Find("model").Find("merges");
  for (json::Value v = list.First(); v.exists(); v = list.Next(v)) {
    out->merges.push_back(Text(v.At(0)) + " " + Text(v.At(1)));
  }
  out->spec.merges.assign(out->merges.begin(), out->merges.end());
}

void ExpectSameIds(const Tokenizer& expected, const Tokenizer& found) {
  for (const auto& line : ReadLines(TestData("tokenizer-golden/texts.jsonl"))) {
    const std::string text = Text(line->root().Find("text"));
    for (const bool parse : {false, true}) {
      EncodeOptions options;
      options.parse_special = parse;
      options.add_special = parse;
      auto a = expected.Encode(text, options);
      auto b = found.Encode(text, options);
      ASSERT_TRUE(a.ok() && b.ok());
      EXPECT_EQ(*b, *a) << text;
      EXPECT_EQ(*found.Decode(*a, false), *expected.Decode(*a, false)) << text;
    }
  }
}

TEST(Spec, ByteLevel) {
  for (const char* name : {"llama", "nano"}) {
    Owned owned;
    Fill(name, &owned);
    if (::testing::Test::HasFatalFailure()) return;
    owned.spec.model = std::string("gpt2");
    owned.spec.pre = name == std::string("llama") ? "llama-bpe" : "qwen2";
    owned.spec.bos_id = name == std::string("llama") ? 2042 : -1;
    auto built = Tokenizer::FromSpec(owned.spec);
    ASSERT_TRUE(built.ok()) << built.status().message();
    ExpectSameIds(*owned.tokenizer, **built);
  }
}

TEST(Spec, SentencePieceByScores) {
  Owned owned;
  Fill("gemma3", &owned);
  if (::testing::Test::HasFatalFailure()) return;
  // A piece that the k-th merge makes scores -k; the rest 0.
  owned.spec.scores.assign(owned.spec.tokens.size(), 0.0f);
  float rank = 0;
  for (const std::string& merge : owned.merges) {
    const size_t space = merge.find(' ', 1);
    const int32_t id = owned.tokenizer->TokenToId(merge.substr(0, space) + merge.substr(space + 1));
    ASSERT_GE(id, 0);
    float& score = owned.spec.scores[static_cast<size_t>(id)];
    rank += 1;
    if (score == 0) score = -rank;
  }
  owned.spec.model = std::string("llama");
  owned.spec.bos_id = 2;
  owned.spec.unknown_id = 3;
  owned.spec.add_space_prefix = 0;
  auto built = Tokenizer::FromSpec(owned.spec);
  ASSERT_TRUE(built.ok()) << built.status().message();
  ExpectSameIds(*owned.tokenizer, **built);
  // With the prefix, every stretch of text starts with a space that decoding takes away.
  owned.spec.add_space_prefix = 1;
  auto prefixed = Tokenizer::FromSpec(owned.spec);
  ASSERT_TRUE(prefixed.ok());
  EXPECT_EQ(*(*prefixed)->Encode("the fox", {}), *(*built)->Encode(" the fox", {}));
  EXPECT_EQ(*(*prefixed)->Decode(*(*prefixed)->Encode("the fox", {}), false), "the fox");
}

TEST(Spec, Bert) {
  TokenizerSpec spec;
  spec.model = std::string("bert");
  spec.tokens = {"[PAD]",          "[UNK]", "[CLS]",        "[SEP]", "\xE2\x96\x81hello",
                 "\xE2\x96\x81un", "able",  "\xE2\x96\x81!"};
  spec.token_types = {3, 2, 3, 3, 1, 1, 1, 1};
  spec.unknown_id = 1;
  spec.cls_id = 2;
  spec.separator_id = 3;
  auto tokenizer = Tokenizer::FromSpec(spec);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EncodeOptions options;
  options.add_special = true;
  EXPECT_EQ(*(*tokenizer)->Encode("H\u00e9llo unable! zzz", options),
            (std::vector<int32_t>{2, 4, 5, 6, 7, 1, 3}));
}

TEST(Spec, LiesAreNamed) {
  TokenizerSpec spec;
  spec.tokens = {"a", "b", "ab"};
  spec.model = std::string("magic");
  EXPECT_EQ(Tokenizer::FromSpec(spec).status().code(), StatusCode::kUnsupported);
  spec.model = std::string("gpt2");
  spec.pre = std::string("nobody");
  EXPECT_NE(Tokenizer::FromSpec(spec).status().message().find("nobody"), std::string::npos);
  spec.pre = std::string("gpt-2");
  spec.merges = {"a c"};
  EXPECT_EQ(Tokenizer::FromSpec(spec).status().code(), StatusCode::kCorrupt);
  spec.merges = {"ab"};
  EXPECT_EQ(Tokenizer::FromSpec(spec).status().code(), StatusCode::kCorrupt);
  spec.merges = {"a b"};
  EXPECT_TRUE(Tokenizer::FromSpec(spec).ok());
  spec.bos_id = 3;
  EXPECT_EQ(Tokenizer::FromSpec(spec).status().code(), StatusCode::kOutOfRange);
  spec.bos_id = -1;
  spec.token_types = {1};
  EXPECT_EQ(Tokenizer::FromSpec(spec).status().code(), StatusCode::kCorrupt);
  spec.token_types.clear();
  spec.model = std::string("llama");
  EXPECT_EQ(Tokenizer::FromSpec(spec).status().code(), StatusCode::kCorrupt);  // no scores
  spec.tokens[1] = std::string_view("\xFF", 1);
  spec.scores = {0, 0, 0};
  EXPECT_EQ(Tokenizer::FromSpec(spec).status().code(), StatusCode::kCorrupt);
  spec.tokens.clear();
  EXPECT_EQ(Tokenizer::FromSpec(spec).status().code(), StatusCode::kCorrupt);
}

// Every pre-tokenizer name has patterns that this build can run.
TEST(Spec, PreTokenizerNames) {
  TokenizerSpec spec;
  spec.model = std::string("gpt2");
  spec.tokens = {"a", "b"};
  for (const char* name :
       {"",          "default",     "gpt-2",          "smollm",  "starcoder",     "refact",
        "command-r", "falcon",      "llama-bpe",      "lfm2",    "dbrx",          "smaug-bpe",
        "glm4",      "qwen2",       "qwen35",         "hunyuan", "hunyuan-dense", "gpt-4o",
        "tekken",    "deepseek-v3", "deepseek-coder", "olmo"}) {
    spec.pre = std::string(name);
    auto built = Tokenizer::FromSpec(spec);
    EXPECT_TRUE(built.ok()) << name << ": " << built.status().message();
  }
}

}  // namespace
}  // namespace cellm::tokenizer
