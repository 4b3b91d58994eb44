// Files that lie, and texts that are hard work.

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/allocator.h"
#include "support/paths.h"
#include "tokenizer/golden.h"

namespace cellm::tokenizer {
namespace {

using cellm::testing::LoadTokenizer;
using cellm::testing::ReadFile;
using cellm::testing::TestData;

struct Bad {
  const char* json;
  StatusCode code;
  const char* names;  // what the message must name
};

constexpr const char* kGoodModel =
    R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})";

TEST(Hostile, EveryLieIsNamed) {
  const Bad kCases[] = {
      {"", StatusCode::kCorrupt, "tokenizer.json"},
      {"{\"model\":", StatusCode::kCorrupt, "tokenizer.json"},
      {"[]", StatusCode::kCorrupt, "tokenizer.json"},
      {"{}", StatusCode::kCorrupt, "model"},
      {R"({"model":{"type":"Magic"}})", StatusCode::kUnsupported, "Magic"},
      {R"({"model":{"type":"BPE","merges":[]}})", StatusCode::kCorrupt, "model.vocab"},
      {R"({"model":{"type":"BPE","vocab":{"a":"x"},"merges":[]}})", StatusCode::kCorrupt,
       "model.vocab[\"a\"]"},
      {R"({"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}})", StatusCode::kOutOfRange,
       "model.vocab[\"a\"]"},
      {R"({"model":{"type":"BPE","vocab":{"a":4294967296},"merges":[]}})", StatusCode::kOutOfRange,
       "model.vocab[\"a\"]"},
      {R"({"model":{"type":"BPE","vocab":{"a":0,"b":0},"merges":[]}})", StatusCode::kCorrupt,
       "id 0 is given twice"},
      {R"({"model":{"type":"BPE","vocab":{"a":0,"a":1},"merges":[]}})", StatusCode::kCorrupt,
       "\"a\" is given twice"},
      {R"({"model":{"type":"BPE","vocab":{"a":0,"ab":1},"merges":["a b"]}})", StatusCode::kCorrupt,
       "model.merges[0]: \"b\""},
      {R"({"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[["a","b"]]}})",
       StatusCode::kCorrupt, "model.merges[0]: \"ab\""},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a"]}})", StatusCode::kCorrupt,
       "model.merges[0]"},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[["a","a","a"]]}})", StatusCode::kCorrupt,
       "model.merges[0]"},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":7}})", StatusCode::kCorrupt,
       "model.merges"},
      {R"({"model":{"type":"BPE","dropout":0.1,"vocab":{"a":0},"merges":[]}})",
       StatusCode::kUnsupported, "model.dropout"},
      {R"({"model":{"type":"Unigram","vocab":[["a",0]],"unk_id":7}})", StatusCode::kOutOfRange,
       "model.unk_id"},
      {R"({"model":{"type":"Unigram","vocab":[["a"]]}})", StatusCode::kCorrupt, "model.vocab[0]"},
      {R"({"model":{"type":"Unigram","vocab":[["a",NaN]]}})", StatusCode::kCorrupt,
       "model.vocab[0]"},
      {R"({"model":{"type":"WordPiece","vocab":{"a":0},"max_input_chars_per_word":-5}})",
       StatusCode::kCorrupt, "max_input_chars_per_word"},
      {R"("normalizer":{"type":"Shout"})", StatusCode::kUnsupported, "Shout"},
      {R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"!!!!"})", StatusCode::kCorrupt,
       "precompiled_charsmap"},
      {R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"/////w=="})",
       StatusCode::kCorrupt, "precompiled_charsmap"},
      {R"("normalizer":{"type":"Replace","pattern":5,"content":""})", StatusCode::kCorrupt,
       "normalizer.pattern"},
      {R"("pre_tokenizer":{"type":"Shred"})", StatusCode::kUnsupported, "Shred"},
      {R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"(("},"behavior":"Isolated"})",
       StatusCode::kUnsupported, "(("},
      {R"("pre_tokenizer":{"type":"Split","pattern":{"String":"x"},"behavior":"Burnt"})",
       StatusCode::kUnsupported, "Burnt"},
      {R"("pre_tokenizer":{"type":"Metaspace","add_prefix_space":false,"prepend_scheme":"always"})",
       StatusCode::kCorrupt, "prepend_scheme"},
      {R"("post_processor":{"type":"Stamp"})", StatusCode::kUnsupported, "Stamp"},
      {R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}}]})",
       StatusCode::kCorrupt, "\"x\""},
      {R"("post_processor":{"type":"TemplateProcessing","single":[]})", StatusCode::kUnsupported,
       "post_processor.single"},
      {R"("decoder":{"type":"Guess"})", StatusCode::kUnsupported, "Guess"},
      {R"("decoder":{"type":"Strip","content":" ","start":-1,"stop":0})", StatusCode::kCorrupt,
       "decoder"},
      {R"("added_tokens":[{"id":-3,"content":"x"}])", StatusCode::kOutOfRange, "added_tokens.id"},
      {R"("added_tokens":[{"id":3}])", StatusCode::kCorrupt, "added_tokens"},
      {R"("added_tokens":7)", StatusCode::kCorrupt, "added_tokens"},
      {R"("padding":{"strategy":{"Fixed":99999999999},"pad_id":0})", StatusCode::kOutOfRange,
       "padding"},
      {R"("truncation":{"max_length":-1})", StatusCode::kCorrupt, "truncation.max_length"},
  };
  for (const Bad& bad : kCases) {
    std::string json = bad.json;
    if (!json.empty() && json[0] == '"') json = "{" + json + "," + kGoodModel + "}";
    const auto loaded = Tokenizer::FromJson(json, {});
    ASSERT_FALSE(loaded.ok()) << json;
    EXPECT_EQ(loaded.status().code(), bad.code) << json << "\n" << loaded.status().message();
    EXPECT_NE(loaded.status().message().find(bad.names), std::string::npos)
        << json << "\n"
        << loaded.status().message();
  }
}

TEST(Hostile, GapsAreHoles) {
  auto tokenizer =
      Tokenizer::FromJson(R"({"model":{"type":"BPE","vocab":{"a":0,"b":1000},"merges":[]}})", {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->vocab_size(), 1001);
  EXPECT_EQ((*tokenizer)->IdToToken(500), "");
  const int32_t ids[] = {0, 500, 1000, 4000, -7};
  EXPECT_EQ(*(*tokenizer)->Decode(ids, false), "a b");
}

TEST(Hostile, EveryCutOfAFileIsRefused) {
  const std::string json = ReadFile(TestData("tokenizer-golden/tokenizers.jsonl"));
  const size_t begin = json.find("{\"version\"");
  ASSERT_NE(begin, std::string::npos);
  const std::string whole = json.substr(begin, json.find("},\"cases\"", begin) + 1 - begin);
  ASSERT_TRUE(Tokenizer::FromJson(whole, {}).ok());
  for (size_t size = 0; size < whole.size(); size += 7) {
    EXPECT_FALSE(Tokenizer::FromJson(std::string_view(whole).substr(0, size), {}).ok()) << size;
  }
}

// An allocator that refuses after n requests: loading fails with OutOfMemory, leaks nothing.
class FailingAllocator final : public Allocator {
 public:
  explicit FailingAllocator(int allowed) : allowed_(allowed) {}
  void* Allocate(size_t bytes, size_t alignment, MemoryClass memory_class) override {
    if (allowed_-- <= 0) return nullptr;
    ++live_;
    return SystemAllocator().Allocate(bytes, alignment, memory_class);
  }
  void Free(void* pointer, size_t bytes, MemoryClass memory_class) override {
    if (pointer != nullptr) --live_;
    SystemAllocator().Free(pointer, bytes, memory_class);
  }
  int live() const { return live_; }

 private:
  int allowed_;
  int live_ = 0;
};

TEST(Hostile, RefusedMemoryIsAStatus) {
  const std::string json = ReadFile(TestData("tokenizers/gemma3.json"));
  int allowed = 0;
  for (bool loaded = false; !loaded; ++allowed) {
    FailingAllocator allocator(allowed);
    {
      const auto tokenizer = Tokenizer::FromJson(json, {}, allocator);
      loaded = tokenizer.ok();
      EXPECT_EQ(tokenizer.status().code(), loaded ? StatusCode::kOk : StatusCode::kOutOfMemory);
    }
    EXPECT_EQ(allocator.live(), 0);
    ASSERT_LT(allowed, 1000);
  }
  EXPECT_GT(allowed, 5);
}

// Long texts of one kind; anything quadratic would take minutes.
TEST(Hostile, LongTextsAreLinear) {
  std::vector<std::string> texts(6);
  texts[0] = std::string(100'000, 'a');
  for (int i = 0; i < 100'000; ++i) texts[1] += static_cast<char>('a' + i * 7919 % 26);
  for (int i = 0; i < 50'000; ++i) texts[2] += "\xCC\x81\xCC\xA3";
  texts[3] = std::string(1 << 20, ' ');
  for (int i = 0; i < 100'000; ++i) texts[4] += "<|im_start|";
  for (int i = 0; i < 100'000; ++i) texts[5] += "\xE4\xBD\xA0";
  for (const char* name : {"nano", "llama", "gemma3"}) {
    const auto tokenizer = LoadTokenizer(TestData("tokenizers/" + std::string(name) + ".json"));
    ASSERT_NE(tokenizer, nullptr);
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto start = std::chrono::steady_clock::now();
      ASSERT_TRUE(tokenizer->Encode(texts[i], {}).ok());
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      EXPECT_LT(seconds.count(), 10.0) << name << " text " << i;
    }
  }
}

}  // namespace
}  // namespace cellm::tokenizer
