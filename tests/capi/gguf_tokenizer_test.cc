// A .cellm file made from GGUF stands alone: it has the tokenizer and the template of its source,
// and says the same of every text.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cellm/cellm.h"
#include "format/convert.h"
#include "format/gguf_metadata.h"
#include "format/model_file.h"
#include "platform/file.h"
#include "support/jsonl.h"
#include "support/memory_files.h"
#include "support/paths.h"
#include "support/tiny_gguf.h"

namespace cellm {
namespace {

struct CloseModel {
  void operator()(cellm_model* model) const { cellm_model_close(model); }
};
using Model = std::unique_ptr<cellm_model, CloseModel>;

Model Open(const std::string& path) {
  cellm_error error = CELLM_ERROR_INIT;
  cellm_model_options options = CELLM_MODEL_OPTIONS_INIT;
  options.flags = CELLM_MODEL_TOKENIZER_ONLY;
  cellm_model* model = nullptr;
  EXPECT_EQ(cellm_model_open(path.data(), path.size(), &options, &model, &error), CELLM_OK)
      << error.message;
  return Model(model);
}

std::vector<int32_t> Tokenize(const Model& model, const std::string& text, uint32_t flags) {
  cellm_error error = CELLM_ERROR_INIT;
  std::vector<int32_t> ids(text.size() * 2 + 16);
  size_t count = 0;
  EXPECT_EQ(cellm_model_tokenize(model.get(), text.data(), text.size(), flags, ids.data(),
                                 ids.size(), &count, &error),
            CELLM_OK)
      << error.message;
  ids.resize(count);
  return ids;
}

std::string Detokenize(const Model& model, const std::vector<int32_t>& ids) {
  cellm_error error = CELLM_ERROR_INIT;
  std::string text(ids.size() * 64 + 16, '\0');
  size_t count = 0;
  EXPECT_EQ(cellm_model_detokenize(model.get(), ids.data(), ids.size(), 0, text.data(), text.size(),
                                   &count, &error),
            CELLM_OK)
      << error.message;
  text.resize(count);
  return text;
}

std::string Render(const Model& model) {
  const std::string messages = R"([{"role": "user", "content": "Hello <|eot_id|> there"}])";
  cellm_error error = CELLM_ERROR_INIT;
  cellm_chat chat = CELLM_CHAT_INIT;
  chat.messages = {messages.data(), messages.size()};
  std::string text(4096, '\0');
  size_t count = 0;
  EXPECT_EQ(cellm_model_render_chat(model.get(), &chat, text.data(), text.size(), &count, &error),
            CELLM_OK)
      << error.message;
  text.resize(count);
  return text;
}

// Converts `source` to a file in a folder of its own, where no tokenizer lies beside it.
std::string Converted(const std::string& source, const format::ConvertOptions& options) {
  const std::string path = testing::TempFolder() + "/out.cellm";
  const auto model = format::OpenModelFile(platform::SystemFiles(), source);
  EXPECT_TRUE(model.ok()) << model.status().message();
  auto writer = platform::SystemFiles().Create(path);
  EXPECT_TRUE(model.ok() && writer.ok());
  const auto report = format::ConvertModel(**model, options, writer->get());
  EXPECT_TRUE(report.ok()) << report.status().message();
  return path;
}

class GgufTokenizer : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufTokenizer, SurvivesConversion) {
  CELLM_SKIP_WITHOUT_SHARED(source, std::string("zoo/gguf/") + GetParam() + ".gguf");
  const std::string once = Converted(source, {});
  format::ConvertOptions fewer_bits = format::Int4Options(32);
  fewer_bits.requantize = true;
  const std::string twice = Converted(once, fewer_bits);
  const Model expected = Open(source);
  ASSERT_NE(expected, nullptr);
  for (const std::string& path : {once, twice}) {
    const Model model = Open(path);
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(Render(model), Render(expected));
    size_t texts = 0;
    for (const std::string& line :
         testing::ReadLines(testing::TestData("tokenizer-golden/texts.jsonl"))) {
      const auto document = json::Document::Parse(line, "texts.jsonl");
      ASSERT_TRUE(document.ok());
      const std::string text = testing::StringOf((*document)->root().Find("text"));
      for (const uint32_t flags :
           {uint32_t{0}, uint32_t{CELLM_TOKENIZE_ADD_SPECIAL | CELLM_TOKENIZE_PARSE_SPECIAL}}) {
        const std::vector<int32_t> ids = Tokenize(expected, text, flags);
        EXPECT_EQ(Tokenize(model, text, flags), ids) << text;
        EXPECT_EQ(Detokenize(model, ids), Detokenize(expected, ids)) << text;
      }
      ++texts;
    }
    EXPECT_GT(texts, 100u);
  }
}

INSTANTIATE_TEST_SUITE_P(Zoo, GgufTokenizer, ::testing::Values("qwen3-Q4_0", "gemma3-Q8_0"),
                         [](const auto& param) {
                           return std::string(param.param).substr(0, param.param[0] == 'q' ? 5 : 6);
                         });

TEST(GgufTokenizerText, HoldsTheListsAndNothingElse) {
  testing::MemoryFiles files;
  files.files["m.gguf"] = testing::TinyGguf::Whole();
  const auto source = format::OpenModelFile(files, "m.gguf");
  ASSERT_TRUE(source.ok()) << source.status().message();
  auto writer = files.Create("alone/m.cellm");
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(format::ConvertModel(**source, {}, writer->get()).ok());
  // Another model's tokenizer beside the file is not taken for its own.
  files.files["alone/tokenizer.json"] = "{}";
  const auto file = format::OpenModelFile(files, "alone/m.cellm");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE((*file)->tokenizer_json.empty());
  const auto read = format::ReadGgufTokenizer((*file)->tokenizer_gguf, "m");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ((*read)->model, "gpt2");
  EXPECT_EQ((*read)->pre, "llama-bpe");
  EXPECT_EQ((*read)->tokens, (std::vector<std::string_view>{"a", "b", "<|eot_id|>"}));
  EXPECT_EQ((*read)->types, (std::vector<int32_t>{1, 1, 3}));
  EXPECT_EQ((*read)->merges, std::vector<std::string_view>{"a b"});
  EXPECT_EQ((*read)->eos_id, 2);
  EXPECT_EQ((*read)->bos_id, -1);
  EXPECT_EQ(format::WriteGgufTokenizer(**read), (*file)->tokenizer_gguf);
}

TEST(GgufTokenizerText, EveryCutAndEveryOtherFileIsRefused) {
  testing::MemoryFiles files;
  files.files["m.gguf"] = testing::TinyGguf::Whole();
  const auto source = format::OpenModelFile(files, "m.gguf");
  ASSERT_TRUE(source.ok());
  const std::string text = format::WriteGgufTokenizer(*(*source)->gguf_tokenizer);
  ASSERT_TRUE(format::ReadGgufTokenizer(text, "m").ok());
  for (size_t cut = 0; cut < text.size(); ++cut) {
    EXPECT_FALSE(format::ReadGgufTokenizer(std::string_view(text).substr(0, cut), "m").ok()) << cut;
  }
  const auto whole = format::ReadGgufTokenizer(files.files["m.gguf"], "m");
  EXPECT_EQ(whole.status().message(), "m: expected a tokenizer and no tensors");
}

}  // namespace
}  // namespace cellm
