#include "format/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "base/limits.h"
#include "base/rng.h"
#include "support/memory_files.h"
#include "support/paths.h"
#include "tensor/half.h"

namespace cellm::format {
namespace {

using ::cellm::testing::FaultyFiles;
using ::cellm::testing::MemoryFiles;

// A file of this header and `payload_bytes` bytes 0, 1, 2, ...
std::string File(const std::string& header, size_t payload_bytes) {
  std::string file(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  file += header;
  for (size_t i = 0; i < payload_bytes; ++i) file.push_back(static_cast<char>(i));
  return file;
}

const char kTwoTensors[] = R"({"__metadata__":{"format":"pt"},)"
                           R"("b.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[4,20]},)"
                           R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})";

Result<std::unique_ptr<ModelFile>> Open(const std::string& bytes) {
  MemoryFiles files;
  files.files["m/model.safetensors"] = bytes;
  return OpenModelFile(files, "m/model.safetensors");
}

TEST(Safetensors, ReadsNamesShapesAndBytes) {
  auto model = Open(File(kTwoTensors, 20));
  ASSERT_TRUE(model.ok()) << model.status().message();
  const ModelFile& file = **model;
  EXPECT_EQ(file.container, "safetensors");
  ASSERT_EQ(file.tensors.size(), 2u);
  EXPECT_EQ(file.tensors[0].name, "a");
  const Tensor* b = file.Find("b.weight");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->format, Format::kF32);
  EXPECT_EQ(b->shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(b->file_offset, 8 + std::strlen(kTwoTensors) + 4);
  ASSERT_EQ(b->data.size(), 16u);
  EXPECT_EQ(b->data[0], 4);
  EXPECT_EQ(b->data[15], 19);
  EXPECT_EQ(file.Find("c"), nullptr);
  EXPECT_TRUE(file.config->root().is_object());
  ASSERT_EQ(file.notes.size(), 1u);
  EXPECT_EQ(file.notes[0], "there is no config.json beside the file");
}

TEST(Safetensors, RefusesWithOneClearLine) {
  const std::string huge = "18446744073709551615";
  const struct {
    std::string bytes;
    StatusCode code;
    const char* message;
  } cases[] = {
      {"", StatusCode::kCorrupt, "m/model.safetensors: the file is empty"},
      {File("{}", 0).substr(0, 9), StatusCode::kCorrupt,
       "m/model.safetensors: header of 2 bytes, file has 9; the file is cut short"},
      {File("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 3),
       StatusCode::kCorrupt,
       "m/model.safetensors: tensor \"a\": data ends at byte 66, file has 65; the file is cut "
       "short"},
      {File("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4),
       StatusCode::kCorrupt, "m/model.safetensors: tensor \"a\": 4 bytes, expected 8 for F32 [2]"},
      {File("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4),
       StatusCode::kCorrupt, "m/model.safetensors: tensor \"a\": data begins at 4 and ends at 0"},
      {File(
           "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" + huge + "," + huge + "]}}",
           4),
       StatusCode::kCorrupt,
       "m/model.safetensors: tensor \"a\": offset 18446744073709551615 overflows"},
      {File("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4294967296],"
            "\"data_offsets\":[0,4]}}",
            4),
       StatusCode::kCorrupt, "m/model.safetensors: tensor \"a\": a shape that overflows"},
      {File("{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775808],\"data_offsets\":[0,4]}}",
            4),
       StatusCode::kCorrupt,
       "m/model.safetensors: tensor \"a\": dimension 0 is not a non-negative integer"},
      {File("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4),
       StatusCode::kCorrupt,
       "m/model.safetensors: tensor \"a\": dimension 0 is not a non-negative integer"},
      {File("{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4),
       StatusCode::kCorrupt, "m/model.safetensors: tensor \"a\": shape is not a list"},
      {File("{\"a\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8),
       StatusCode::kUnsupported,
       "m/model.safetensors: tensor \"a\": element type \"C64\" is not supported"},
      {File("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
            "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
            3),
       StatusCode::kCorrupt, "m/model.safetensors: tensor \"b\" overlaps tensor \"a\" at byte 114"},
      {File("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
            "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
            2),
       StatusCode::kCorrupt, "m/model.safetensors: tensor \"a\": named twice"},
      {File("{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1), StatusCode::kCorrupt,
       "m/model.safetensors: tensor \"a\": no dtype"},
      {File("{\"a\":[]}", 1), StatusCode::kCorrupt, "m/model.safetensors: tensor \"a\": no dtype"},
      {File("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1),
       StatusCode::kCorrupt,
       "m/model.safetensors: tensor \"a\": data_offsets is not a list of two byte offsets"},
      {File("{\"a\":1,}", 1), StatusCode::kCorrupt,
       "m/model.safetensors: header: byte 7: found '}', expected a key in quotes"},
      {"<!DOCTYPE html><html>", StatusCode::kCorrupt,
       "m/model.safetensors: a web page, not a model; the download went wrong"},
      {"version https://git-lfs.github.com/spec/v1\n", StatusCode::kCorrupt,
       "m/model.safetensors: a Git LFS pointer, not the file itself; fetch it with \"git lfs "
       "pull\""},
      {"hello", StatusCode::kUnsupported,
       "m/model.safetensors: not a model file: expected .cellm, safetensors or GGUF"},
  };
  for (const auto& c : cases) {
    auto model = Open(c.bytes);
    ASSERT_FALSE(model.ok()) << c.message;
    EXPECT_EQ(model.status().message(), c.message);
    EXPECT_EQ(model.status().code(), c.code) << c.message;
  }
}

// users.md row 95: tiny, cut and random files give typed errors, never a crash.
TEST(Safetensors, EveryCutIsRefused) {
  const std::string whole = File(kTwoTensors, 20);
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    auto model = Open(whole.substr(0, cut));
    EXPECT_FALSE(model.ok()) << cut;
  }
}

TEST(Safetensors, EveryFlippedHeaderBitIsSurvived) {
  const std::string whole = File(kTwoTensors, 20);
  const size_t header_end = 8 + std::strlen(kTwoTensors);
  int refused = 0;
  for (size_t bit = 0; bit < header_end * 8; ++bit) {
    std::string changed = whole;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    auto model = Open(changed);
    if (!model.ok()) {
      ++refused;
      continue;
    }
    for (const Tensor& tensor : (*model)->tensors) {
      uint64_t sum = 0;
      for (const uint8_t byte : tensor.data) sum += byte;
      EXPECT_LE(sum, 255u * tensor.data.size());
    }
  }
  EXPECT_GT(refused, static_cast<int>(header_end) * 4);
}

TEST(Safetensors, EveryHeaderLengthIsSurvived) {
  const std::string whole = File(kTwoTensors, 20);
  const uint64_t length = std::strlen(kTwoTensors);
  for (const uint64_t stated : {uint64_t{0}, uint64_t{1}, length - 1, length + 1, length + 20,
                                length + 21, uint64_t{whole.size()}, uint64_t{UINT32_MAX},
                                uint64_t{INT64_MAX}, UINT64_MAX, UINT64_MAX - 7}) {
    std::string changed = whole;
    std::memcpy(changed.data(), &stated, 8);
    EXPECT_FALSE(Open(changed).ok()) << stated;
  }
}

// A sharded folder in memory.
MemoryFiles ShardedFolder() {
  MemoryFiles files;
  files.files["m/config.json"] = R"({"model_type":"llama","hidden_size":2})";
  files.files["m/tokenizer.json"] = "{\"version\":\"1.0\"}";
  files.files["m/generation_config.json"] = "{\"eos_token_id\":[1,2]}";
  files.files["m/tokenizer_config.json"] =
      R"({"chat_template":[{"name":"tool_use","template":"T"},{"name":"default","template":"D"}]})";
  files.files["m/one.safetensors"] =
      File(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
  files.files["m/two.safetensors"] =
      File(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
           R"("stray":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
           2);
  files.files["m/model.safetensors.index.json"] =
      R"({"metadata":{},"weight_map":{"b":"two.safetensors","a":"one.safetensors"}})";
  return files;
}

TEST(Safetensors, OpensAFolderOfShardsWithItsTexts) {
  MemoryFiles files = ShardedFolder();
  for (const char* path : {"m", "m/model.safetensors.index.json"}) {
    auto model = OpenModelFile(files, path);
    ASSERT_TRUE(model.ok()) << model.status().message();
    const ModelFile& file = **model;
    ASSERT_EQ(file.tensors.size(), 2u);
    EXPECT_EQ(file.tensors[1].name, "b");
    EXPECT_NE(file.tensors[0].file_index, file.tensors[1].file_index);
    EXPECT_EQ(file.tokenizer_json, "{\"version\":\"1.0\"}");
    EXPECT_EQ(file.generation_config_json, "{\"eos_token_id\":[1,2]}");
    EXPECT_EQ(file.chat_template, "D");
    std::string_view type;
    EXPECT_TRUE(file.config->root().Find("model_type").GetString(&type));
    EXPECT_EQ(type, "llama");
    ASSERT_EQ(file.notes.size(), 1u);
    EXPECT_EQ(file.notes[0], "1 tensors that the index does not list are ignored");
  }
  // A template file of its own comes first.
  files.files["m/chat_template.jinja"] = "J";
  auto model = OpenModelFile(files, "m");
  ASSERT_TRUE(model.ok());
  EXPECT_EQ((*model)->chat_template, "J");
}

TEST(Safetensors, NamesWhatIsWrongWithAnIndex) {
  const struct {
    const char* index;
    const char* message;
  } cases[] = {
      {R"({"weight_map":{"a":"three.safetensors"}})",
       "m/model.safetensors.index.json: names the shard \"three.safetensors\": "
       "m/three.safetensors: no such file or directory"},
      {R"({"weight_map":{"a":"two.safetensors"}})",
       "m/model.safetensors.index.json: tensor \"a\": said to be in \"two.safetensors\", which "
       "does not have it"},
      {R"({"weight_map":{"a":"../one.safetensors"}})",
       "m/model.safetensors.index.json: tensor \"a\": \"weight_map\" does not name a file in the "
       "same folder"},
      {R"({"weight_map":{"a":7}})",
       "m/model.safetensors.index.json: tensor \"a\": \"weight_map\" does not name a file in the "
       "same folder"},
      {R"({"weight_map":{"a":"one.safetensors","a":"two.safetensors"}})",
       "m/model.safetensors.index.json: tensor \"a\": named twice"},
      {R"({})", "m/model.safetensors.index.json: no \"weight_map\""},
      {R"([)", "m/model.safetensors.index.json: JSON ends at byte 1, expected a value"},
  };
  for (const auto& c : cases) {
    MemoryFiles files = ShardedFolder();
    files.files["m/model.safetensors.index.json"] = c.index;
    auto model = OpenModelFile(files, "m");
    ASSERT_FALSE(model.ok()) << c.message;
    EXPECT_EQ(model.status().message(), c.message);
  }
}

TEST(Safetensors, FoldersWithoutAModelSaySo) {
  MemoryFiles files;
  files.files["m/readme.md"] = "x";
  auto model = OpenModelFile(files, "m");
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().message(), "m: no model file in this folder");
  EXPECT_EQ(OpenModelFile(files, "nowhere").status().code(), StatusCode::kNotFound);
  files.files["m/model.safetensors"] = File("{}", 0);
  model = OpenModelFile(files, "m");
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().message(), "m/config.json: no such file or directory");
  files.files["m/config.json"] = "[]";
  EXPECT_EQ(OpenModelFile(files, "m").status().message(), "m/config.json: not a JSON object");
}

TEST(Safetensors, EveryFailureOfTheDiskIsReported) {
  MemoryFiles inner = ShardedFolder();
  for (const FaultyFiles::Fault fault :
       {FaultyFiles::Fault::kError, FaultyFiles::Fault::kShortFile}) {
    int runs = 0;
    for (;; ++runs) {
      FaultyFiles files(inner, fault, runs);
      auto model = OpenModelFile(files, "m");
      if (!files.fault_happened()) {
        ASSERT_TRUE(model.ok()) << model.status().message();
        break;
      }
      // A tokenizer or template that is cut short opens: whoever parses it finds out.
      if (fault == FaultyFiles::Fault::kError) {
        ASSERT_FALSE(model.ok()) << runs;
        EXPECT_EQ(model.status().code(), StatusCode::kIo);
      }
    }
    EXPECT_GE(runs, 7);  // index, two shards, config, three texts
  }
}

TEST(Safetensors, OpensTheZoo) {
  auto llama = OpenModelFile(platform::SystemFiles(), testing::TestData("zoo/llama"));
  ASSERT_TRUE(llama.ok()) << llama.status().message();
  EXPECT_GE((*llama)->files.size(), 4u);
  EXPECT_FALSE((*llama)->tokenizer_json.empty());
  EXPECT_FALSE((*llama)->chat_template.empty());
  // Published naming of a model with towers: "model.language_model.".
  auto qwen = OpenModelFile(platform::SystemFiles(), testing::TestData("zoo/qwen3_5"));
  ASSERT_TRUE(qwen.ok()) << qwen.status().message();
  EXPECT_TRUE(HasMatrix(**qwen, "model.embed_tokens"));
  EXPECT_NE(FindByRole(**qwen, "model.layers.0.linear_attn.A_log"), nullptr);
}

TEST(Safetensors, MatricesAndVectorsAreFoundByNameAndShape) {
  CELLM_SKIP_WITHOUT_SHARED(folder, "zoo/nano");
  auto nano = OpenModelFile(platform::SystemFiles(), folder);
  ASSERT_TRUE(nano.ok());
  auto embedding = FindMatrix(**nano, "model.embed_tokens", 4096, 512);
  ASSERT_TRUE(embedding.ok()) << embedding.status().message();
  std::vector<float> row(512);
  DecodeRow(*embedding, 4095, row.data());
  const Tensor* tensor = (*nano)->Find("model.embed_tokens.weight");
  for (size_t c = 0; c < 512; ++c) {
    uint16_t bits = 0;
    std::memcpy(&bits, tensor->data.data() + (4095 * 512 + c) * 2, 2);
    ASSERT_EQ(row[c], Bf16ToFloat(bits));
  }
  auto norm = FindVector(**nano, "model.norm.weight", 512);
  EXPECT_TRUE(norm.ok());
  auto wrong = FindMatrix(**nano, "model.embed_tokens", 4096, 511);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.status().code(), StatusCode::kCorrupt);
  EXPECT_NE(wrong.status().message().find("shape [4096, 512], expected [4096, 511]"),
            std::string::npos)
      << wrong.status().message();
  EXPECT_EQ(FindMatrix(**nano, "model.none", 1, 1).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(FindVector(**nano, "model.norm.weight", 511).status().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace cellm::format
