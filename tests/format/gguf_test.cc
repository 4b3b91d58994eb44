// GGUF files, right and wrong, made by hand. The zoo's are in gguf_zoo_test.cc.

#include "format/gguf.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "platform/file.h"
#include "support/gguf_writer.h"
#include "support/paths.h"
#include "support/tiny_gguf.h"
#include "tensor/matrix.h"

namespace cellm::format {
namespace {

using testing::GgufWriter;
using testing::TinyGguf;

Status Load(const std::string& bytes, ModelFile* model) {
  const GgufPart part{"test.gguf", {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}};
  return LoadGguf({&part, 1}, model);
}

Status LoadStatus(const std::string& bytes) {
  ModelFile model;
  return Load(bytes, &model);
}

const Tensor* Named(const ModelFile& model, std::string_view name) {
  for (const Tensor& tensor : model.tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

std::vector<float> FloatsOf(const Tensor& tensor) {
  std::vector<float> values;
  for (size_t at = 0; at + 4 <= tensor.data.size(); at += 4) {
    values.push_back(LoadLe<float>(tensor.data.data() + at));
  }
  return values;
}

TEST(Gguf, ATinyLlamaOpens) {
  const std::string bytes = TinyGguf::Whole();
  ModelFile model;
  const Status status = Load(bytes, &model);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(model.container, "gguf");
  EXPECT_EQ(model.tensors.size(), 11u);
  EXPECT_EQ(model.tensors.front().name, "model.embed_tokens.weight");
  EXPECT_EQ(model.generation_config_json, "{\"eos_token_id\": [2]}");
  int64_t head_dim = 0;
  EXPECT_TRUE(model.config->root().Find("head_dim").GetInt64(&head_dim));
  EXPECT_EQ(head_dim, 4);
}

// Rows 0 1 2 3 of a head are stored as 0 2 1 3: halves of the head interleaved.
TEST(Gguf, InterleavedHeadsAreReadInTheCheckpointsOrder) {
  const std::string bytes = TinyGguf::Whole();
  ModelFile model;
  ASSERT_TRUE(Load(bytes, &model).ok());
  const Tensor* query = Named(model, "model.layers.0.self_attn.q_proj.weight");
  ASSERT_NE(query, nullptr);
  const std::vector<int32_t> order(query->row_order.begin(), query->row_order.end());
  EXPECT_EQ(order, (std::vector<int32_t>{0, 2, 1, 3, 4, 6, 5, 7}));
  Matrix matrix;
  matrix.rows = 8;
  matrix.cols = 8;
  matrix.data = query->data;
  matrix.row_order = query->row_order;
  float row[8];
  DecodeRow(matrix, 1, row);
  EXPECT_EQ(row[0], 16.0f);  // the third stored row
}

TEST(Gguf, BiasesOfInterleavedHeadsAreReorderedToo) {
  TinyGguf tiny;
  tiny.AddPairs();
  tiny.AddTensors();
  tiny.AddFloats("blk.0.attn_q.bias", {8});
  const std::string bytes = tiny.writer.Take();
  ModelFile model;
  ASSERT_TRUE(Load(bytes, &model).ok());
  const Tensor* bias = Named(model, "model.layers.0.self_attn.q_proj.bias");
  ASSERT_NE(bias, nullptr);
  EXPECT_EQ(FloatsOf(*bias), (std::vector<float>{0, 2, 1, 3, 4, 6, 5, 7}));
  bool has_bias = false;
  EXPECT_TRUE(model.config->root().Find("attention_bias").GetBool(&has_bias));
  EXPECT_TRUE(has_bias);
}

TEST(Gguf, GemmaNormsLoseTheirOne) {
  const std::string bytes = TinyGguf::Whole("gemma2");
  ModelFile model;
  const Status status = Load(bytes, &model);
  ASSERT_TRUE(status.ok()) << status.message();
  const Tensor* norm = Named(model, "model.layers.0.input_layernorm.weight");
  ASSERT_NE(norm, nullptr);
  EXPECT_EQ(FloatsOf(*norm), (std::vector<float>{-1, 0, 1, 2, 3, 4, 5, 6}));
}

TEST(Gguf, YarnArrivesWithItsNumbers) {
  TinyGguf tiny;
  tiny.arch = "qwen3";
  tiny.AddPairs();
  tiny.writer.Text("qwen3.rope.scaling.type", "yarn");
  tiny.writer.Float("qwen3.rope.scaling.factor", 4.0f);
  tiny.writer.Int("qwen3.rope.scaling.original_context_length", 8);
  tiny.writer.Float("qwen3.rope.scaling.yarn_beta_fast", 16.0f);
  tiny.AddTensors();
  const std::string bytes = tiny.writer.Take();
  ModelFile model;
  ASSERT_TRUE(Load(bytes, &model).ok());
  EXPECT_EQ(json::Serialize(model.config->root().Find("rope_scaling")),
            "{\"rope_type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":8,"
            "\"beta_fast\":16.0}");
  EXPECT_EQ(model.notes.size(), 1u);  // no tokenizer
}

TEST(Gguf, LayersThatPredictFurtherTokensAreLeftOutWithANote) {
  TinyGguf tiny;
  tiny.arch = "qwen3";
  tiny.AddPairs();
  tiny.AddTokenizer();
  tiny.AddTensors();
  tiny.AddFloats("blk.1.nextn.eh_proj.weight", {8, 8});
  const std::string bytes = tiny.writer.Take();
  ModelFile model;
  ASSERT_TRUE(Load(bytes, &model).ok());
  ASSERT_EQ(model.notes.size(), 1u);
  EXPECT_EQ(model.notes[0], "1 tensors of layers that predict further tokens are not used");
  EXPECT_EQ(model.tensors.size(), 11u);
}

// What is wrong with a file, and what is said about it. users.md row 95
struct BadFile {
  const char* name;
  std::function<std::string()> make;
  StatusCode code;
  const char* message;  // must occur
};

std::string WithPair(const std::function<void(GgufWriter&)>& add) {
  TinyGguf tiny;
  tiny.AddPairs();
  add(tiny.writer);
  tiny.AddTensors();
  return tiny.writer.Take();
}

std::string WithTensor(const std::function<void(GgufWriter&)>& add) {
  TinyGguf tiny;
  tiny.AddPairs();
  tiny.AddTensors();
  add(tiny.writer);
  return tiny.writer.Take();
}

// A file of nothing but these pairs.
std::string Pairs(const std::function<void(GgufWriter&)>& add) {
  GgufWriter writer;
  writer.alignment = 1;
  add(writer);
  return writer.Take();
}

std::string Le64(uint64_t value) {
  std::string out;
  GgufWriter::Put(value, &out);
  return out;
}
std::string Le32(uint32_t value) {
  std::string out;
  GgufWriter::Put(value, &out);
  return out;
}

std::vector<BadFile> BadFiles() {
  const auto corrupt = StatusCode::kCorrupt;
  const auto unsupported = StatusCode::kUnsupported;
  constexpr uint64_t kHuge = uint64_t{1} << 63;
  return {
      {"empty", [] { return std::string(); }, corrupt, "magic"},
      {"a web page", [] { return std::string("<!DOCTYPE html><html></html>"); }, corrupt,
       "does not start with \"GGUF\""},
      {"version 1",
       [] {
         GgufWriter w;
         w.version = 1;
         return w.Take();
       },
       unsupported, "GGUF version 1"},
      {"big-endian",
       [] {
         GgufWriter w;
         w.version = 0x03000000;
         return w.Take();
       },
       unsupported, "big-endian"},
      {"37 bytes with an empty key",
       [] {
         return "GGUF" + Le32(3) + Le64(0) + Le64(1) + Le64(0) + Le32(7) + std::string(1, '\1');
       },
       corrupt, "a key of 0 bytes"},
      {"more pairs than bytes",
       [] {
         GgufWriter w;
         w.pair_count = INT64_MAX;
         return w.Take();
       },
       corrupt, "do not fit"},
      {"more tensors than bytes",
       [] {
         GgufWriter w;
         w.tensor_count = INT64_MAX;
         return w.Take();
       },
       corrupt, "do not fit"},
      {"a string longer than the file",
       [] { return Pairs([](GgufWriter& w) { w.Raw("k", Le32(8) + Le64(kHuge)); }); }, corrupt,
       "reaches past the end"},
      {"an array longer than the file",
       [] { return Pairs([](GgufWriter& w) { w.Raw("k", Le32(9) + Le32(4) + Le64(1000)); }); },
       corrupt, "reaches past the end"},
      {"an array whose size overflows",
       [] { return Pairs([](GgufWriter& w) { w.Raw("k", Le32(9) + Le32(10) + Le64(kHuge)); }); },
       corrupt, "overflow"},
      {"an array of more strings than bytes",
       [] { return Pairs([](GgufWriter& w) { w.Raw("k", Le32(9) + Le32(8) + Le64(kHuge)); }); },
       corrupt, "strings in"},
      {"nested arrays",
       [] {
         return Pairs(
             [](GgufWriter& w) { w.Raw("k", Le32(9) + Le32(9) + Le64(1) + Le32(4) + Le64(0)); });
       },
       corrupt, "an array of type 9"},
      {"an unknown value type",
       [] { return Pairs([](GgufWriter& w) { w.Raw("k", Le32(13) + Le64(0)); }); }, corrupt,
       "a value of type 13"},
      {"a key twice",
       [] {
         return Pairs([](GgufWriter& w) {
           w.Int("k", 1);
           w.Int("k", 2);
         });
       },
       corrupt, "occurs twice"},
      {"an alignment of 0",
       [] { return WithPair([](GgufWriter& w) { w.Int("general.alignment", 0); }); }, corrupt,
       "general.alignment"},
      {"an alignment of 48",
       [] { return WithPair([](GgufWriter& w) { w.Int("general.alignment", 48); }); }, corrupt,
       "general.alignment"},
      {"no architecture", [] { return Pairs([](GgufWriter& w) { w.Int("k", 1); }); }, corrupt,
       "general.architecture"},
      {"an unknown architecture", [] { return TinyGguf::Whole("mamba"); }, unsupported,
       "the architecture \"mamba\" is not run here"},
      {"a dimension of 0",
       [] { return WithTensor([](GgufWriter& w) {
              w.Tensor("x.weight", {0, 8}, 0, "");
            }); },
       corrupt, "dimension 0 is 0"},
      {"a dimension of 2^63",
       [] { return WithTensor([](GgufWriter& w) { w.Tensor("x.weight", {kHuge}, 0, ""); }); },
       corrupt, "overflow"},
      {"dimensions whose product overflows",
       [] {
         return WithTensor([](GgufWriter& w) {
           w.Tensor("x.weight", {uint64_t{1} << 32, uint64_t{1} << 32}, 0, "");
         });
       },
       corrupt, "overflow"},
      {"five dimensions",
       [] {
         return WithTensor([](GgufWriter& w) { w.Tensor("x.weight", {1, 1, 1, 1, 1}, 0, ""); });
       },
       corrupt, "5 dimensions"},
      {"a row that is no whole block",
       [] {
         return WithTensor(
             [](GgufWriter& w) { w.Tensor("x.weight", {33}, 2, std::string(36, '\0')); });
       },
       corrupt, "no whole blocks of 32"},
      {"an unknown tensor type",
       [] { return WithTensor([](GgufWriter& w) { w.Tensor("x.weight", {32}, 99, ""); }); },
       unsupported, "number 99"},
      {"a withdrawn tensor type",
       [] { return WithTensor([](GgufWriter& w) { w.Tensor("x.weight", {32}, 31, ""); }); },
       unsupported, "repacked"},
      {"data past the end",
       [] { return WithTensor([](GgufWriter& w) { w.Tensor("x.weight", {8}, 0, "", 1 << 20); }); },
       corrupt, "\"x.weight\""},
      {"an offset that overflows",
       [] {
         return WithTensor([](GgufWriter& w) { w.Tensor("x.weight", {8}, 0, "", INT64_MAX - 31); });
       },
       corrupt, "\"x.weight\""},
      {"an unaligned offset",
       [] { return WithTensor([](GgufWriter& w) { w.Tensor("x.weight", {1}, 0, "abcd", 4); }); },
       corrupt, "\"x.weight\""},
      {"overlapping tensors",
       [] { return WithTensor([](GgufWriter& w) { w.Tensor("x.weight", {1}, 0, "abcd", 0); }); },
       corrupt, "overlap"},
      {"a tensor name twice",
       [] {
         return WithTensor([](GgufWriter& w) { w.Tensor("output_norm.weight", {1}, 0, "abcd"); });
       },
       corrupt, "two tensors are called"},
      {"a tensor that llama does not have",
       [] {
         return WithTensor(
             [](GgufWriter& w) { w.Tensor("blk.0.attn_sinks.weight", {1}, 0, "abcd"); });
       },
       unsupported, "\"blk.0.attn_sinks.weight\""},
      {"two spellings of one layer",
       [] {
         return WithTensor(
             [](GgufWriter& w) { w.Tensor("blk.00.attn_norm.weight", {1}, 0, "abcd"); });
       },
       unsupported, "blk.00"},
      {"an array where a number belongs",
       [] { return WithPair([](GgufWriter& w) {
              w.Ints("llama.rope.dimension_count", {4, 4});
            }); },
       corrupt, "llama.rope.dimension_count"},
      {"tokens that are numbers",
       [] {
         return WithPair([](GgufWriter& w) {
           w.Text("tokenizer.ggml.model", "gpt2");
           w.Ints("tokenizer.ggml.tokens", {1, 2, 3});
         });
       },
       corrupt, "tokenizer.ggml.tokens"},
      {"fewer types than tokens",
       [] {
         return WithPair([](GgufWriter& w) {
           w.Text("tokenizer.ggml.model", "gpt2");
           w.Texts("tokenizer.ggml.tokens", {"a", "b", "c"});
           w.Ints("tokenizer.ggml.token_type", {1, 2});
         });
       },
       corrupt, "tokenizer.ggml.token_type"},
      {"more tokens than embeddings",
       [] {
         return WithPair([](GgufWriter& w) {
           w.Text("tokenizer.ggml.model", "gpt2");
           w.Texts("tokenizer.ggml.tokens", {"a", "b", "c", "d"});
         });
       },
       corrupt, "4 tokens, but the embedding has 3 rows"},
      {"an end id beyond the tokens",
       [] {
         return WithPair([](GgufWriter& w) {
           w.Text("tokenizer.ggml.model", "gpt2");
           w.Texts("tokenizer.ggml.tokens", {"a"});
           w.Int("tokenizer.ggml.eos_token_id", 3);
         });
       },
       corrupt, "beyond the 1 tokens"},
      {"experts in a dense family",
       [] { return WithPair([](GgufWriter& w) { w.Int("llama.expert_count", 8); }); }, unsupported,
       "llama.expert_count"},
      {"an unknown rope scaling",
       [] { return WithPair([](GgufWriter& w) { w.Text("llama.rope.scaling.type", "swirl"); }); },
       unsupported, "\"swirl\""},
      {"part 1 of 2 alone", [] { return WithPair([](GgufWriter& w) { w.Int("split.count", 2); }); },
       corrupt, "part 1 of 2"},
  };
}

TEST(Gguf, WrongFilesAreRefusedByName) {
  for (const BadFile& bad : BadFiles()) {
    SCOPED_TRACE(bad.name);
    const Status status = LoadStatus(bad.make());
    EXPECT_EQ(status.code(), bad.code) << status.message();
    EXPECT_TRUE(status.message().starts_with("test.gguf")) << status.message();
    EXPECT_NE(status.message().find(bad.message), std::string::npos) << status.message();
  }
}

TEST(Gguf, EveryCutIsAnError) {
  const std::string whole = TinyGguf::Whole();
  // The last tensor ends on a boundary of 32, so that no byte of the file is padding at its end.
  for (size_t size = 0; size < whole.size(); ++size) {
    const Status status = LoadStatus(whole.substr(0, size));
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << size << ": " << status.message();
  }
}

// Any single bit: a Status or a model, no harm, and nothing that depends on memory that is not
// there (the sanitizer build watches).
TEST(Gguf, EveryFlippedBitIsHarmless) {
  const std::string whole = TinyGguf::Whole();
  const size_t header = whole.find("output_norm.weight") + 400;
  int refused = 0;
  for (size_t bit = 0; bit < 8 * header; ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    if (!LoadStatus(damaged).ok()) ++refused;
  }
  EXPECT_GT(refused, static_cast<int>(header));  // most bits matter
}

TEST(Gguf, EveryLengthSetToAnExtremeIsHarmless) {
  const std::string whole = TinyGguf::Whole();
  const size_t header = whole.find("output_norm.weight") + 400;
  for (size_t at = 8; at + 8 <= header; ++at) {
    for (const uint64_t value :
         {uint64_t{0}, uint64_t{1}, UINT64_MAX, uint64_t{1} << 63, uint64_t{1} << 32}) {
      std::string damaged = whole;
      std::memcpy(damaged.data() + at, &value, 8);
      const Status status = LoadStatus(damaged);
      EXPECT_TRUE(status.ok() || !status.message().empty());
    }
  }
}

TEST(Gguf, SplitFilesNameTheMissingPart) {
  const std::string folder = testing::TempFolder();
  const std::string first = WithPair([](GgufWriter& w) {
    w.Int("split.no", 0);
    w.Int("split.count", 2);
  });
  const auto write = [](const std::string& path, const std::string& bytes) {
    auto writer = platform::SystemFiles().Create(path);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(
        (*writer)->Write({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}).ok());
    ASSERT_TRUE((*writer)->Commit().ok());
  };
  write(folder + "/m-00001-of-00002.gguf", first);
  Result<std::unique_ptr<ModelFile>> opened =
      OpenModelFile(platform::SystemFiles(), folder + "/m-00001-of-00002.gguf");
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), StatusCode::kNotFound) << opened.status().message();
  EXPECT_NE(opened.status().message().find("m-00002-of-00002.gguf"), std::string::npos);

  write(folder + "/renamed.gguf", first);
  opened = OpenModelFile(platform::SystemFiles(), folder + "/renamed.gguf");
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.status().message().find("does not end in"), std::string::npos);
}

}  // namespace
}  // namespace cellm::format
