// Single components and tiny whole tokenizers against the reference's outputs.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/utf8.h"
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

// What the reference (tokenizers 0.23.2 through its Node binding) makes of "a" + c + "b" for each
// character c from U+0001 up, surrogates left out: XXH3 of all results. A normalizer's result ends
// in \n; each word of a pre-tokenizer ends in \x1F, the last one also in \n. They differ from plain
// Unicode of any one version, since the library has tables of five.
struct Sweep {
  const char* config;
  bool cuts;
  uint64_t below_3000;
  uint64_t all;
};
constexpr Sweep kSweeps[] = {
    {R"({"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":false,)"
     R"("strip_accents":false,"lowercase":false})",
     false, 0x524644dcc0702fe0, 0xf5e980e0826e46f6},
    {R"({"type":"BertNormalizer","clean_text":false,"handle_chinese_chars":true,)"
     R"("strip_accents":false,"lowercase":false})",
     false, 0x6e3684179138b713, 0xec7e4341ba11de69},
    {R"({"type":"BertNormalizer","clean_text":false,"handle_chinese_chars":false,)"
     R"("strip_accents":true,"lowercase":false})",
     false, 0xf006de8a15924219, 0xdae2c2d694281d16},
    {R"({"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,)"
     R"("strip_accents":null,"lowercase":true})",
     false, 0xe597ba19323f3f04, 0x9cae052efd6a91ab},
    {R"({"type":"Nmt"})", false, 0x711a67f3268e2ff1, 0xe89ce38d31422d6c},
    {R"({"type":"Digits","individual_digits":true})", true, 0xcd9c2b28eccad717, 0x32bc69c569c9ac8e},
    {R"({"type":"BertPreTokenizer"})", true, 0xd0d3268ac3ad2f2a, 0x321370498ca328fe},
    {R"({"type":"Whitespace"})", true, 0xa22771e44f99840f, 0x5ee28044b039fe09},
    {R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true,"trim_offsets":true})", true,
     0x533c88146fe26e11, 0x2fe0d7863d5758dc},
    {R"({"type":"UnicodeScripts"})", true, 0x50ba4142a5c5f665, 0x3c0d5e8626353ae5},
};

TEST(Components, EveryCharacterAsTheReference) {
  const bool every = std::getenv("CELLM_TEST_LONG") != nullptr;
  for (const Sweep& sweep : kSweeps) {
    const auto config = json::Document::Parse(sweep.config, "config");
    ASSERT_TRUE(config.ok());
    auto normalizer = Normalizer::FromJson(sweep.cuts ? json::Value() : (*config)->root());
    auto pre_tokenizer = PreTokenizer::FromJson(sweep.cuts ? (*config)->root() : json::Value());
    ASSERT_TRUE(normalizer.ok() && pre_tokenizer.ok()) << sweep.config;
    std::string results;
    const char32_t end = every ? 0x110000 : 0x3000;
    for (char32_t c = 1; c < end; ++c) {
      if (c >= 0xD800 && c <= 0xDFFF) continue;
      CutText cut;
      cut.text.text = "a";
      AppendUtf8(c, &cut.text.text);
      cut.text.text += "b";
      ASSERT_TRUE(normalizer->Apply(&cut.text).ok());
      ASSERT_TRUE(pre_tokenizer->Apply(&cut, true, false).ok());
      for (const regex::Span& word : cut.words) {
        results.append(cut.text.text, word.begin, word.end - word.begin);
        if (sweep.cuts) results += '\x1F';
      }
      results += '\n';
    }
    EXPECT_EQ(HashXxh3(results), every ? sweep.all : sweep.below_3000) << sweep.config;
  }
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
