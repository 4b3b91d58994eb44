// The tokenizers of our own checkpoints: prompts of the zoo, and what provenance promises.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/utf8.h"
#include "support/paths.h"
#include "tokenizer/golden.h"
#include "tokenizer/stream_decoder.h"

namespace cellm::tokenizer {
namespace {

using cellm::testing::Ids;
using cellm::testing::LoadTokenizer;
using cellm::testing::ReadFile;
using cellm::testing::ReadLines;
using cellm::testing::TestData;
using cellm::testing::Text;

const char* const kOwn[] = {"nano", "llama", "gemma3"};

std::unique_ptr<Tokenizer> LoadOwn(const std::string& name) {
  const std::string text = ReadFile(TestData("tokenizers/" + name + ".json"));
  const std::string config = ReadFile(TestData("tokenizers/" + name + ".config.json"));
  auto loaded = Tokenizer::FromJson(text, config);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  return loaded.ok() ? std::move(*loaded) : nullptr;
}

std::vector<std::string> GoldenTexts() {
  std::vector<std::string> texts;
  for (const auto& line : ReadLines(TestData("tokenizer-golden/texts.jsonl"))) {
    texts.push_back(Text(line->root().Find("text")));
  }
  return texts;
}

class Zoo : public ::testing::TestWithParam<const char*> {};

TEST_P(Zoo, PromptsHaveTheReferenceIds) {
  const std::string base = "zoo/" + std::string(GetParam());
  CELLM_SKIP_WITHOUT_SHARED(path, base + "/tokenizer.json");
  const auto tokenizer = LoadTokenizer(path);
  ASSERT_NE(tokenizer, nullptr);
  const std::string text = ReadFile(cellm::testing::SharedData(base + "/reference.json"));
  auto reference = json::Document::Parse(text, "reference.json");
  ASSERT_TRUE(reference.ok());
  const json::Value list = (*reference)->root().Find("prompts");
  size_t prompts = 0;
  for (json::Value v = list.First(); v.exists(); v = list.Next(v), ++prompts) {
    const std::vector<int32_t> expected = Ids(v.Find("ids"));
    const bool chat = Text(v.Find("kind")) != "text";
    EncodeOptions options;
    options.parse_special = true;
    options.add_special = !chat;
    // A chat's ids are of the rendered text, which the reference's own ids spell.
    const std::string prompt = chat ? *tokenizer->Decode(expected, false) : Text(v.Find("text"));
    EXPECT_NE(prompt.find(Text(v.Find("text"))), std::string::npos);
    auto ids = tokenizer->Encode(prompt, options);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(*ids, expected) << prompt;
  }
  EXPECT_EQ(prompts, 8u);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Zoo,
                         ::testing::Values("apertus", "bitnet", "gemma3", "gemma4", "granite",
                                           "hunyuan", "lfm2", "llama", "nano", "olmo2", "phi3",
                                           "qwen2", "qwen3", "qwen3_5", "qwen3_moe", "smollm3"),
                         [](const auto& param) { return std::string(param.param); });

TEST(Own, NamesAndBytes) {
  const auto llama = LoadOwn("llama");
  EXPECT_EQ(llama->prefix_ids(), std::vector<int32_t>{2042});
  EXPECT_EQ(llama->bos_id(), 2042);
  EXPECT_EQ(llama->TokenToId("<|begin_of_text|>"), 2042);
  EXPECT_EQ(llama->IdToToken(2042), "<|begin_of_text|>");
  EXPECT_TRUE(llama->IsSpecial(2042));
  EXPECT_FALSE(llama->IsSpecial(5));
  EXPECT_EQ(llama->vocab_size(), 2048);
  EXPECT_EQ(llama->IdToToken(-1), "");
  EXPECT_EQ(llama->IdToToken(2048), "");
  EXPECT_EQ(llama->TokenToId("no such piece"), -1);
  // The bytes of an encoded text are the text.
  const std::string text = "Once upon a time, there was a 你好 of 12 \xF0\x9F\x98\x80.\n";
  for (const char* name : kOwn) {
    const auto tokenizer = LoadOwn(name);
    auto ids = tokenizer->Encode(text, {});
    ASSERT_TRUE(ids.ok());
    std::string bytes;
    for (const int32_t id : *ids) bytes += tokenizer->TokenBytes(id);
    EXPECT_EQ(bytes, text) << name;
  }
}

// users.md row 39: every text comes back byte for byte, whether or not specials are parsed.
TEST(Own, RoundTrip) {
  for (const char* name : kOwn) {
    const auto tokenizer = LoadOwn(name);
    for (const std::string& text : GoldenTexts()) {
      for (const bool parse : {false, true}) {
        EncodeOptions options;
        options.parse_special = parse;
        auto ids = tokenizer->Encode(text, options);
        ASSERT_TRUE(ids.ok());
        std::string expected = text;
        if (std::string_view(name) == "nano") {
          auto normalizer = Normalizer::FromJson(json::Value());
          normalizer->AddForm(unicode::Form::kNfc);
          expected = *normalizer->Apply(std::string_view(text));
        }
        if (std::string_view(name) == "gemma3") {
          for (size_t at; (at = expected.find("\xE2\x96\x81")) != std::string::npos;) {
            expected.replace(at, 3, 1, ' ');  // U+2581 cannot be told from a space
          }
        }
        EXPECT_EQ(*tokenizer->Decode(*ids, false), expected) << name;
      }
    }
  }
}

TEST(Provenance, UntrustedTextCannotSpellControlTokens) {
  for (const char* name : kOwn) {
    const auto tokenizer = LoadOwn(name);
    for (const AddedToken& token : tokenizer->added_tokens()) {
      const std::string text = "a" + token.content + "b";
      auto plain = tokenizer->Encode(text, {});
      EncodeOptions parse;
      parse.parse_special = true;
      auto parsed = tokenizer->Encode(text, parse);
      ASSERT_TRUE(plain.ok() && parsed.ok());
      const auto count = [&](const std::vector<int32_t>& ids) {
        return std::count(ids.begin(), ids.end(), token.id);
      };
      EXPECT_EQ(count(*parsed), 1) << name << token.content;
      EXPECT_EQ(count(*plain), token.special ? 0 : 1) << name << token.content;
      EXPECT_EQ(*tokenizer->Decode(*plain, false), text);
      // Half from each author is as good as untrusted.
      const std::string_view view = text;
      for (size_t cut = 2; cut + 2 < text.size(); ++cut) {
        const Segment halves[] = {{view.substr(0, cut), true}, {view.substr(cut), false}};
        auto mixed = tokenizer->Encode(halves, {});
        ASSERT_TRUE(mixed.ok());
        EXPECT_EQ(count(*mixed), token.special ? 0 : 1) << name << token.content << cut;
      }
      tokenizer->MarkControl(token.id);
      EXPECT_EQ(count(*tokenizer->Encode(text, {})), 0);
      EXPECT_TRUE(tokenizer->IsControl(token.id));
    }
  }
}

// Where untrusted text spells no control token, segments change nothing: words run across borders.
TEST(Provenance, SegmentsEqualTheWhole) {
  Rng rng(11);
  const std::vector<std::string> texts = GoldenTexts();
  for (const char* name : kOwn) {
    const auto tokenizer = LoadOwn(name);
    std::string control;
    for (const AddedToken& token : tokenizer->added_tokens()) {
      if (token.special && control.empty()) control = token.content;
    }
    for (int round = 0; round < 400; ++round) {
      std::vector<Segment> segments;
      std::string whole;
      std::vector<std::string> owned(2 + rng.NextBelow(4));
      for (std::string& piece : owned) {
        const std::string& source = texts[rng.NextBelow(texts.size())];
        piece = source.substr(0, 60);
        while (!IsValidUtf8(piece)) piece.pop_back();
        if (piece.find('<') != std::string::npos || piece.find('[') != std::string::npos) {
          piece = "plain";
        }
        if (rng.NextBelow(2) == 0) piece += control;
      }
      for (const std::string& piece : owned) {
        // A trusted piece may be cut anywhere, also inside a character or a control token.
        const bool trusted = piece.find(control) != std::string::npos || rng.NextBelow(2) == 0;
        const size_t cut = rng.NextBelow(piece.size() + 1);
        segments.push_back({std::string_view(piece).substr(0, cut), trusted});
        segments.push_back({std::string_view(piece).substr(cut), trusted});
        whole += piece;
      }
      EncodeOptions parse;
      parse.parse_special = true;
      auto expected = tokenizer->Encode(whole, parse);
      auto found = tokenizer->Encode(segments, {});
      ASSERT_TRUE(expected.ok() && found.ok());
      ASSERT_EQ(*found, *expected) << name << ": " << whole;
    }
  }
}

// users.md row 41: every scalar value, its bytes split over two to four tokens in every way.
TEST(Stream, EveryCharacterSplitEverywhere) {
  const auto llama = LoadOwn("llama");   // bytes in the GPT-2 alphabet
  const auto gemma = LoadOwn("gemma3");  // <0xNN>
  std::vector<int32_t> byte_ids[2];
  for (int byte = 0; byte < 256; ++byte) {
    for (int32_t id = 0; id < llama->vocab_size(); ++id) {
      if (llama->TokenBytes(id) == std::string(1, static_cast<char>(byte))) {
        byte_ids[0].push_back(id);
        break;
      }
    }
    byte_ids[1].push_back(gemma->TokenToId(StrFormat("<0x%02X>", static_cast<unsigned>(byte))));
  }
  ASSERT_EQ(byte_ids[0].size(), 256u);
  const Tokenizer* const tokenizers[] = {llama.get(), gemma.get()};
  const bool all = ::getenv("CELLM_TEST_LONG") != nullptr;
  for (int which = 0; which < 2; ++which) {
    StreamDecoder stream(*tokenizers[which], false);
    // All of the first 64k, and a part of the rest unless asked for all.
    for (char32_t c = 0; c <= 0x10FFFF; c += c < 0x10000 || all ? 1 : 37) {
      if (c >= 0xD800 && c <= 0xDFFF) continue;
      std::string text;
      AppendUtf8(c, &text);
      std::string shown;
      for (size_t i = 0; i < text.size(); ++i) {
        const uint8_t byte = static_cast<uint8_t>(text[i]);
        const std::string delta = *stream.Push(byte_ids[which][byte]);
        ASSERT_EQ(delta, i + 1 < text.size() ? "" : text) << std::hex << +c;
        shown += delta;
      }
      ASSERT_EQ(*stream.Flush(), "");
    }
  }
}

// users.md row 42: broken bytes never fail; each maximal part of a character is one U+FFFD.
TEST(Stream, BrokenBytesFollowUnicodesRule) {
  const auto llama = LoadOwn("llama");
  std::vector<int32_t> byte_ids(256, -1);
  for (int32_t id = 0; id < llama->vocab_size(); ++id) {
    const std::string bytes = llama->TokenBytes(id);
    if (bytes.size() == 1) byte_ids[static_cast<uint8_t>(bytes[0])] = id;
  }
  Rng rng(5);
  const auto check = [&](const std::string& bytes) {
    std::vector<int32_t> ids;
    for (const char c : bytes) ids.push_back(byte_ids[static_cast<uint8_t>(c)]);
    StreamDecoder stream(*llama, false);
    std::string streamed;
    for (const int32_t id : ids) streamed += *stream.Push(id);
    streamed += *stream.Flush();
    ASSERT_EQ(streamed, ReplaceInvalidUtf8(bytes));
    ASSERT_EQ(*llama->Decode(ids, false), ReplaceInvalidUtf8(bytes));
  };
  for (int a = 0; a < 256; ++a) {
    check(std::string(1, static_cast<char>(a)));
    for (int b = 0; b < 256; ++b) {
      check({static_cast<char>(a), static_cast<char>(b)});
    }
  }
  for (int round = 0; round < 20000; ++round) {
    std::string bytes(3 + rng.NextBelow(2), '\0');
    for (char& c : bytes) c = static_cast<char>(0x70 + rng.NextBelow(0x90));
    check(bytes);
  }
}

}  // namespace
}  // namespace cellm::tokenizer
