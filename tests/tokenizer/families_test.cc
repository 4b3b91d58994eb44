// Published tokenizers against the reference: ids of every text, texts of every id list, streams.
// users.md row 38: text right after a special token, in many families, is part of these texts.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "support/paths.h"
#include "tokenizer/golden.h"
#include "tokenizer/stream_decoder.h"

namespace cellm::tokenizer {
namespace {

using cellm::testing::FamilyPath;
using cellm::testing::Ids;
using cellm::testing::LoadTokenizer;
using cellm::testing::ReadLines;
using cellm::testing::TestData;
using cellm::testing::Text;

class Family : public ::testing::TestWithParam<const char*> {};

std::string Optional(json::Value value, const std::string& otherwise) {
  return value.exists() ? Text(value) : otherwise;
}

void CheckTexts(const Tokenizer& tokenizer, const std::string& path) {
  std::map<std::string, std::string> texts;
  for (const auto& line : ReadLines(TestData("tokenizer-golden/texts.jsonl"))) {
    texts[Text(line->root().Find("id"))] = Text(line->root().Find("text"));
  }
  size_t matched = 0;
  const auto lines = ReadLines(path);
  for (const auto& line : lines) {
    const json::Value root = line->root();
    const std::string id = Text(root.Find("id"));
    ASSERT_EQ(texts.count(id), 1u) << id;
    const std::string& text = texts[id];
    EncodeOptions options;
    options.parse_special = true;
    auto ids = tokenizer.Encode(text, options);
    options.add_special = true;
    auto ids_special = tokenizer.Encode(text, options);
    ASSERT_TRUE(ids.ok() && ids_special.ok()) << id << ids.status().message();
    const std::vector<int32_t> expected = Ids(root.Find("ids"));
    const json::Value special = root.Find("ids_special");
    EXPECT_EQ(*ids, expected) << id;
    EXPECT_EQ(*ids_special, special.exists() ? Ids(special) : expected) << id;
    EXPECT_EQ(*tokenizer.Decode(expected, false), Optional(root.Find("dec"), text)) << id;
    EXPECT_EQ(*tokenizer.Decode(expected, true), Optional(root.Find("dec_skip"), text)) << id;
    if (special.exists()) {
      EXPECT_EQ(*tokenizer.Decode(Ids(special), false), Optional(root.Find("dec_special"), text));
      EXPECT_EQ(*tokenizer.Decode(Ids(special), true),
                Optional(root.Find("dec_special_skip"), text));
    }
    if (*ids == expected) ++matched;
  }
  EXPECT_EQ(lines.size(), texts.size());
  ::testing::Test::RecordProperty("texts_matched", static_cast<int>(matched));
}

TEST_P(Family, AgreesWithTheReference) {
  CELLM_SKIP_WITHOUT_SHARED(golden, "golden-text/tokenizers/" + std::string(GetParam()) + ".jsonl");
  const std::string path = FamilyPath(GetParam());
  if (path.empty()) {
    GTEST_SKIP() << "SKIPPED: " << GetParam()
                 << ".json is not here (run scripts/fetch_test_tokenizers.sh)";
  }
  const auto tokenizer = LoadTokenizer(path);
  ASSERT_NE(tokenizer, nullptr);
  CheckTexts(*tokenizer, golden);

  CELLM_SKIP_WITHOUT_SHARED(lists, "golden-text/decode/ids.jsonl");
  for (const auto& line : ReadLines(lists)) {
    if (Text(line->root().Find("family")) != GetParam()) continue;
    const std::vector<int32_t> ids = Ids(line->root().Find("ids"));
    const std::string text = Text(line->root().Find("text"));
    EXPECT_EQ(*tokenizer->Decode(ids, false), text) << json::Serialize(line->root());
    EXPECT_EQ(*tokenizer->Decode(ids, true), Optional(line->root().Find("text_skip"), text));
  }

  CELLM_SKIP_WITHOUT_SHARED(streams, "golden-text/decode/stream.jsonl");
  for (const auto& line : ReadLines(streams)) {
    if (Text(line->root().Find("family")) != GetParam()) continue;
    StreamDecoder stream(*tokenizer, false);
    const std::vector<int32_t> ids = Ids(line->root().Find("ids"));
    const json::Value deltas = line->root().Find("delta");
    json::Value delta = deltas.First();
    for (const int32_t id : ids) {
      ASSERT_TRUE(delta.exists());
      EXPECT_EQ(*stream.Push(id), Text(delta)) << Text(line->root().Find("text"));
      delta = deltas.Next(delta);
    }
    EXPECT_EQ(*stream.Flush(), "");
  }
}

INSTANTIATE_TEST_SUITE_P(All, Family, ::testing::ValuesIn(cellm::testing::kFamilies),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace cellm::tokenizer
