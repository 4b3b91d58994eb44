// Single components and tiny whole tokenizers against the reference's outputs.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/paths.h"
#include "tokenizer/decoder.h"
#include "tokenizer/golden.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/stream_decoder.h"

namespace cellm::tokenizer {
namespace {

using cellm::testing::Ids;
using cellm::testing::ReadLines;
using cellm::testing::TestData;
using cellm::testing::Text;

TEST(Components, Normalizers) {
  size_t cases = 0;
  for (const auto& line : ReadLines(TestData("tokenizer-golden/normalizers.jsonl"))) {
    const json::Value config = line->root().Find("config");
    auto normalizer = Normalizer::FromJson(config);
    ASSERT_TRUE(normalizer.ok()) << json::Serialize(config) << normalizer.status().message();
    const json::Value list = line->root().Find("cases");
    for (json::Value v = list.First(); v.exists(); v = list.Next(v), ++cases) {
      auto result = normalizer->Apply(std::string_view(Text(v.At(0))));
      ASSERT_TRUE(result.ok());
      EXPECT_EQ(*result, Text(v.At(1))) << json::Serialize(config) << " on " << Text(v.At(0));
      // With provenance the text is the same, and every byte has a flag.
      TrackedText tracked;
      tracked.Clear(true);
      tracked.Append(Text(v.At(0)), true);
      ASSERT_TRUE(normalizer->Apply(&tracked).ok());
      EXPECT_EQ(tracked.text, Text(v.At(1)));
      EXPECT_EQ(tracked.trust.size(), tracked.text.size());
    }
  }
  EXPECT_EQ(cases, 21u * 18u);
}

TEST(Components, PreTokenizers) {
  size_t cases = 0;
  for (const auto& line : ReadLines(TestData("tokenizer-golden/pre_tokenizers.jsonl"))) {
    const json::Value config = line->root().Find("config");
    auto pre_tokenizer = PreTokenizer::FromJson(config);
    ASSERT_TRUE(pre_tokenizer.ok()) << json::Serialize(config);
    const json::Value list = line->root().Find("cases");
    for (json::Value v = list.First(); v.exists(); v = list.Next(v), ++cases) {
      std::vector<std::string> expected;
      const json::Value pieces = v.At(1);
      for (json::Value p = pieces.First(); p.exists(); p = pieces.Next(p)) {
        expected.push_back(Text(p));
      }
      CutText cut;
      cut.text.text = Text(v.At(0));
      ASSERT_TRUE(pre_tokenizer->Apply(&cut, true, false).ok());
      std::vector<std::string> found;
      for (const regex::Span& word : cut.words) {
        found.push_back(cut.text.text.substr(word.begin, word.end - word.begin));
      }
      EXPECT_EQ(found, expected) << json::Serialize(config) << " on " << Text(v.At(0));
    }
  }
  EXPECT_GT(cases, 600u);
}

TEST(Components, Decoders) {
  size_t cases = 0;
  for (const auto& line : ReadLines(TestData("tokenizer-golden/decoders.jsonl"))) {
    const json::Value config = line->root().Find("config");
    auto decoder = Decoder::FromJson(config);
    ASSERT_TRUE(decoder.ok()) << json::Serialize(config);
    const json::Value list = line->root().Find("cases");
    for (json::Value v = list.First(); v.exists(); v = list.Next(v), ++cases) {
      std::vector<std::string> tokens;
      const json::Value pieces = v.At(0);
      for (json::Value p = pieces.First(); p.exists(); p = pieces.Next(p)) {
        tokens.push_back(Text(p));
      }
      auto text = decoder->Decode(tokens);
      ASSERT_TRUE(text.ok());
      EXPECT_EQ(*text, Text(v.At(1))) << json::Serialize(config) << json::Serialize(pieces);
    }
  }
  EXPECT_EQ(cases, 17u * 15u);
}

bool IsAdded(const Tokenizer& tokenizer, int32_t id) {
  for (const AddedToken& token : tokenizer.added_tokens()) {
    if (token.id == id) return true;
  }
  return false;
}

TEST(Components, TinyTokenizers) {
  size_t cases = 0;
  for (const auto& line : ReadLines(TestData("tokenizer-golden/tokenizers.jsonl"))) {
    const std::string name = Text(line->root().Find("name"));
    auto tokenizer = Tokenizer::FromJson(json::Serialize(line->root().Find("tokenizer")), {});
    ASSERT_TRUE(tokenizer.ok()) << name << tokenizer.status().message();
    const json::Value list = line->root().Find("cases");
    for (json::Value v = list.First(); v.exists(); v = list.Next(v), ++cases) {
      const std::string text = Text(v.Find("text"));
      EncodeOptions options;
      options.parse_special = true;
      options.truncate_and_pad = true;
      auto ids = (*tokenizer)->Encode(text, options);
      options.add_special = true;
      auto ids_special = (*tokenizer)->Encode(text, options);
      ASSERT_TRUE(ids.ok() && ids_special.ok()) << name << ids.status().message();
      EXPECT_EQ(*ids, Ids(v.Find("ids"))) << name << " on " << text;
      EXPECT_EQ(*ids_special, Ids(v.Find("ids_special"))) << name << " on " << text;
      const json::Value tokens = v.Find("tokens");
      size_t index = 0;
      for (json::Value t = tokens.First(); t.exists(); t = tokens.Next(t), ++index) {
        ASSERT_LT(index, ids->size());
        // For added and unknown tokens the reference lists the text that they matched.
        const int32_t id = (*ids)[index];
        const bool listed = name != "truncated_padded" && !IsAdded(**tokenizer, id) &&
                            (*tokenizer)->IdToToken(id) != "<unk>";
        if (listed) {
          EXPECT_EQ((*tokenizer)->IdToToken(id), Text(t)) << name;
        }
      }
      for (const bool skip : {false, true}) {
        const std::string expected = Text(v.Find(skip ? "dec_skip" : "dec"));
        EXPECT_EQ(*(*tokenizer)->Decode(*ids_special, skip), expected) << name << " on " << text;
        // The stream ends at the same text, whatever its decoder.
        StreamDecoder stream(**tokenizer, skip);
        std::string streamed;
        for (const int32_t id : *ids_special) streamed += *stream.Push(id);
        streamed += *stream.Flush();
        EXPECT_EQ(streamed, expected) << name << " streamed on " << text;
      }
    }
  }
  EXPECT_EQ(cases, 22u * 19u);
}

// Equal paths whose sums differ by rounding only: the reference's reading of a score of 17 digits,
// one unit from the nearest double, decides. The ids were read off the reference.
TEST(Components, UnigramTiesFallAsTheReferenceReadsScores) {
  auto tokenizer = Tokenizer::FromJson(
      R"({"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["-",-5.129043102264404],)"
      R"(["---",-12.130167007446289],["_",-2.0122928619384766]]}})",
      {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const auto ids = (*tokenizer)->Encode("_-------", EncodeOptions());
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*ids, (std::vector<int32_t>{3, 2, 2, 1}));
}

}  // namespace
}  // namespace cellm::tokenizer
