// GGUF files that the tests write from checkpoints, for architectures of which no file by another
// hand is at hand: names, row orders and keys as converters write them, logits those of the
// checkpoint's own reference.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "format/convert.h"
#include "support/checkpoint.h"
#include "support/gguf_writer.h"
#include "support/memory_files.h"
#include "support/paths.h"
#include "support/zoo.h"

namespace cellm {
namespace {

using testing::AllLogits;
using testing::CheckpointTensor;
using testing::FloatPath;
using testing::GgufWriter;
using testing::LogitError;
using testing::MemoryFiles;
using testing::Reference;

using Checkpoint = std::map<std::string, CheckpointTensor>;

struct Names {
  std::string_view hf, gguf;
};
constexpr Names kTop[] = {{"model.embed_tokens.weight", "token_embd.weight"},
                          {"model.norm.weight", "output_norm.weight"},
                          {"lm_head.weight", "output.weight"}};
constexpr Names kLayer[] = {{"input_layernorm", "attn_norm"},
                            {"self_attn.q_proj", "attn_q"},
                            {"self_attn.k_proj", "attn_k"},
                            {"self_attn.v_proj", "attn_v"},
                            {"self_attn.o_proj", "attn_output"},
                            {"self_attn.attn_sub_norm", "attn_sub_norm"},
                            {"post_attention_layernorm", "ffn_norm"},
                            {"mlp.gate_proj", "ffn_gate"},
                            {"mlp.up_proj", "ffn_up"},
                            {"mlp.down_proj", "ffn_down"},
                            {"mlp.ffn_sub_norm", "ffn_sub_norm"},
                            {"block_sparse_moe.router.layer", "ffn_gate_inp"},
                            {"block_sparse_moe.output_linear", "ffn_down_exps"},
                            {"shared_mlp.output_linear", "ffn_down_shexp"},
                            {"mamba.in_proj", "ssm_in"},
                            {"mamba.out_proj", "ssm_out"},
                            {"mamba.conv1d", "ssm_conv1d"},
                            {"mamba.norm", "ssm_norm"}};

// "model.layers.2.mlp.up_proj.weight" -> "blk.2.ffn_up.weight"; empty when it has no GGUF name.
std::string GgufName(const std::string& name) {
  for (const Names& names : kTop) {
    if (names.hf == name) return std::string(names.gguf);
  }
  constexpr std::string_view kStart = "model.layers.";
  if (!name.starts_with(kStart)) return {};
  const size_t dot = name.find('.', kStart.size());
  const std::string layer = name.substr(kStart.size(), dot - kStart.size());
  const size_t leaf = name.rfind('.');
  const std::string part = name.substr(dot + 1, leaf - dot - 1);
  for (const Names& names : kLayer) {
    if (names.hf == part) {
      return "blk." + layer + "." + std::string(names.gguf) + name.substr(leaf);
    }
  }
  return {};
}

// Rows of a head as halves (i, i + half) become neighbours (2i, 2i + 1).
std::vector<float> Interleaved(const CheckpointTensor& tensor, int64_t head_dim) {
  const int64_t cols = tensor.shape[1];
  std::vector<float> out(tensor.values.size());
  for (int64_t row = 0; row < tensor.shape[0]; ++row) {
    const int64_t in_head = row % head_dim;
    const int64_t half = head_dim / 2;
    const int64_t to = row - in_head + (in_head % half) * 2 + in_head / half;
    std::memcpy(out.data() + to * cols, tensor.values.data() + row * cols,
                static_cast<size_t>(cols) * sizeof(float));
  }
  return out;
}

struct Sizes {
  std::string arch;
  uint32_t layers, context, hidden, inner, heads, kv_heads, head_dim;
  float eps, theta;
  bool interleave;
};

void AddSizes(const Sizes& s, GgufWriter* writer) {
  const std::string a = s.arch + ".";
  writer->Text("general.architecture", s.arch);
  writer->Int(a + "block_count", s.layers);
  writer->Int(a + "context_length", s.context);
  writer->Int(a + "embedding_length", s.hidden);
  writer->Int(a + "feed_forward_length", s.inner);
  writer->Int(a + "attention.head_count", s.heads);
  if (s.kv_heads > 0) writer->Int(a + "attention.head_count_kv", s.kv_heads);
  writer->Int(a + "attention.key_length", s.head_dim);
  writer->Int(a + "attention.value_length", s.head_dim);
  writer->Int(a + "rope.dimension_count", s.head_dim);
  writer->Float(a + "attention.layer_norm_rms_epsilon", s.eps);
  writer->Float(a + "rope.freq_base", s.theta);
}

// What granite's checkpoints keep fused, and what Mamba layers say in another way. False: neither.
bool AddGranite(const std::string& name, const CheckpointTensor& tensor, GgufWriter* writer) {
  const size_t dot = name.rfind('.', name.rfind('.') - 1);
  const std::string_view part = std::string_view(name).substr(dot + 1);
  const std::string layer = name.substr(0, name.find('.', 13)).substr(13);  // "model.layers."
  const std::string at = "blk." + layer + ".";
  const std::vector<float>& values = tensor.values;
  if (part == "input_linear.weight") {
    // Rows gate, then up, of every expert or of the shared MLP.
    const bool experts = tensor.shape.size() == 3;
    const size_t count = experts ? static_cast<size_t>(tensor.shape[0]) : 1;
    const size_t half = values.size() / count / 2;
    std::vector<float> gate, up;
    for (size_t e = 0; e < count; ++e) {
      const auto begin = values.begin() + static_cast<int64_t>(2 * half * e);
      gate.insert(gate.end(), begin, begin + static_cast<int64_t>(half));
      up.insert(up.end(), begin + static_cast<int64_t>(half),
                begin + static_cast<int64_t>(2 * half));
    }
    const uint64_t cols = static_cast<uint64_t>(tensor.shape.back());
    std::vector<uint64_t> dims = {cols, half / cols};
    if (experts) dims.push_back(count);
    const std::string kind = experts ? "_exps.weight" : "_shexp.weight";
    writer->FloatTensor(at + "ffn_gate" + kind, dims, gate);
    writer->FloatTensor(at + "ffn_up" + kind, dims, up);
    return true;
  }
  if (part == "mamba.A_log" || part == "mamba.D") {
    std::vector<float> out = values;
    for (float& value : out) {
      if (part == "mamba.A_log") value = -std::exp(value);
    }
    writer->FloatTensor(at + (part == "mamba.D" ? "ssm_d" : "ssm_a"), {1, out.size()}, out);
    return true;
  }
  if (part == "mamba.dt_bias") {
    writer->FloatTensor(at + "ssm_dt.bias", {values.size()}, values);
    return true;
  }
  if (part == "norm.weight" && name.find("mamba") != std::string::npos) {
    writer->FloatTensor(at + "ssm_norm.weight", {values.size() / 2, 2}, values);  // two groups
    return true;
  }
  if (part == "conv1d.weight") {
    writer->FloatTensor(
        at + "ssm_conv1d.weight",
        {static_cast<uint64_t>(tensor.shape[2]), static_cast<uint64_t>(tensor.shape[0])}, values);
    return true;
  }
  return false;
}

void AddTensors(const Sizes& s, const Checkpoint& checkpoint, GgufWriter* writer) {
  for (const auto& [name, tensor] : checkpoint) {
    if (s.arch.starts_with("granite") && AddGranite(name, tensor, writer)) continue;
    const std::string gguf = GgufName(name);
    ASSERT_FALSE(gguf.empty()) << name;
    std::vector<uint64_t> dims;
    for (const int64_t dim : tensor.shape) dims.insert(dims.begin(), static_cast<uint64_t>(dim));
    const bool turns =
        gguf.find("attn_q.") != std::string::npos || gguf.find("attn_k.") != std::string::npos;
    writer->FloatTensor(gguf, dims,
                        s.interleave && turns ? Interleaved(tensor, s.head_dim) : tensor.values);
  }
}

// The logits of testdata/oracle/<name> from the file in `writer`.
void CheckOracle(const std::string& folder, const GgufWriter& writer, const std::string& type) {
  MemoryFiles files;
  files.files["m.gguf"] = writer.Take();
  const auto engine = Engine::Open(files, "m.gguf", FloatPath());
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_EQ((*engine)->info().model_type, type);

  auto tensors = testing::ReadSafetensors(folder + "/reference.safetensors");
  Reference reference;
  reference.logits = tensors["logits"].values;
  for (const char* const name : {"tokens", "positions"}) {
    const std::vector<uint8_t>& bytes = tensors[name].bytes;
    std::vector<int32_t>& ids =
        std::string_view(name) == "tokens" ? reference.tokens : reference.positions;
    ids.resize(bytes.size() / 4);
    std::memcpy(ids.data(), bytes.data(), bytes.size());
  }
  reference.vocab = (*engine)->info().vocab_size;
  const double error = LogitError(reference, AllLogits(**engine, reference.tokens), 0, 1 << 20);
  EXPECT_LE(error, 1e-5);
  ::testing::Test::RecordProperty(type + "_error", StrFormat("%.1e", error));
}

// The multipliers of the oracle's granite configurations, and their experts.
void AddGraniteKeys(const std::string& arch, GgufWriter* writer) {
  writer->Float(arch + ".embedding_scale", 6.0f);
  writer->Float(arch + ".residual_scale", 0.4f);
  writer->Float(arch + ".attention.scale", 0.17f);
  writer->Float(arch + ".logit_scale", 3.0f);
  writer->Int(arch + ".expert_count", 4);
  writer->Int(arch + ".expert_used_count", 2);
  writer->Int(arch + ".expert_shared_feed_forward_length", 40);
}

TEST(GgufWritten, GraniteMoeWithSharedExpertsHasTheOraclesLogits) {
  const std::string folder = testing::TestData("oracle/granitemoeshared");
  const Sizes sizes = {"granitemoe", 2, 256, 32, 48, 4, 2, 16, 1e-3f, 10000.0f, true};
  GgufWriter writer;
  AddSizes(sizes, &writer);
  AddGraniteKeys("granitemoe", &writer);
  ASSERT_NO_FATAL_FAILURE(AddTensors(sizes, testing::ReadCheckpoint(folder), &writer));
  CheckOracle(folder, writer, "granitemoeshared");
}

TEST(GgufWritten, GraniteHybridHasTheOraclesLogits) {
  const std::string folder = testing::TestData("oracle/granitemoehybrid");
  Sizes sizes = {"granitehybrid", 3, 256, 32, 48, 4, 2, 16, 1e-3f, 10000.0f, true};
  GgufWriter writer;
  sizes.kv_heads = 0;  // written below, one a layer
  AddSizes(sizes, &writer);
  writer.Ints("granitehybrid.attention.head_count_kv", {0, 2, 0});
  AddGraniteKeys("granitehybrid", &writer);
  writer.Bool("granitehybrid.rope.scaling.finetuned", false);
  writer.Int("granitehybrid.ssm.conv_kernel", 4);
  writer.Int("granitehybrid.ssm.state_size", 8);
  writer.Int("granitehybrid.ssm.group_count", 2);
  writer.Int("granitehybrid.ssm.inner_size", 64);
  writer.Int("granitehybrid.ssm.time_step_rank", 4);
  ASSERT_NO_FATAL_FAILURE(AddTensors(sizes, testing::ReadCheckpoint(folder), &writer));
  CheckOracle(folder, writer, "granitemoehybrid");
}

TEST(GgufWritten, MiniCpmHasTheOraclesLogits) {
  const std::string folder = testing::TestData("oracle/minicpm");
  const Sizes sizes = {"minicpm", 3, 256, 32, 48, 4, 2, 16, 1e-3f, 10000.0f, true};
  GgufWriter writer;
  AddSizes(sizes, &writer);
  // scale_emb 12, scale_depth 1.4, dim_model_base 8.
  writer.Float("minicpm.embedding_scale", 12.0f);
  writer.Float("minicpm.residual_scale", static_cast<float>(1.4 / std::sqrt(3.0)));
  writer.Float("minicpm.logit_scale", 32.0f / 8.0f);
  ASSERT_NO_FATAL_FAILURE(AddTensors(sizes, testing::ReadCheckpoint(folder), &writer));
  CheckOracle(folder, writer, "minicpm");
}

// What old files leave out is not guessed.
TEST(GgufWritten, MiniCpmNeedsItsScales) {
  const std::string folder = testing::TestData("oracle/minicpm");
  const Sizes sizes = {"minicpm", 3, 256, 32, 48, 4, 2, 16, 1e-3f, 10000.0f, true};
  GgufWriter writer;
  AddSizes(sizes, &writer);
  ASSERT_NO_FATAL_FAILURE(AddTensors(sizes, testing::ReadCheckpoint(folder), &writer));
  MemoryFiles files;
  files.files["m.gguf"] = writer.Take();
  const auto engine = Engine::Open(files, "m.gguf", FloatPath());
  EXPECT_NE(engine.status().message().find("minicpm.embedding_scale"), std::string::npos)
      << engine.status().message();
}

// bitnet's packed ternary rows as floats; *scales gets each matrix's factor where the numbers stay
// -1, 0 and 1.
Checkpoint Unpacked(const Checkpoint& packed, bool multiply, std::map<std::string, float>* scales) {
  Checkpoint out;
  for (const auto& [name, tensor] : packed) {
    if (name.ends_with("_scale")) continue;
    CheckpointTensor& plain = out[name] = tensor;
    if (tensor.dtype != "U8") continue;
    const float scale = packed.at(name + "_scale").values[0];
    if (!multiply) (*scales)[name] = scale;
    const size_t quarter = tensor.values.size();
    plain.shape[0] *= 4;
    plain.values.resize(quarter * 4);
    for (size_t i = 0; i < quarter; ++i) {
      for (size_t k = 0; k < 4; ++k) {
        const int code = tensor.bytes[i] >> (2 * k) & 3;
        plain.values[k * quarter + i] = static_cast<float>(code - 1) * (multiply ? scale : 1.0f);
      }
    }
  }
  return out;
}

TEST(GgufWritten, BitnetHasTheReferencesLogits) {
  CELLM_SKIP_WITHOUT_SHARED(folder, "zoo/bitnet");
  const Checkpoint packed = testing::ReadCheckpoint(folder);
  const Reference reference = testing::ReadReference(folder);
  const Sizes sizes = {"bitnet", 4, 1024, 128, 384, 4, 2, 32, 1e-5f, 500000.0f, false};
  for (const bool multiply : {true, false}) {
    SCOPED_TRACE(multiply ? "scales in the weights" : "scales beside the weights");
    GgufWriter writer;
    AddSizes(sizes, &writer);
    writer.Text("bitnet.hidden_activation", "relu2");
    std::map<std::string, float> scales;
    ASSERT_NO_FATAL_FAILURE(AddTensors(sizes, Unpacked(packed, multiply, &scales), &writer));
    for (const auto& [name, scale] : scales) {
      std::string stem = GgufName(name);
      stem.resize(stem.size() - std::string_view("weight").size());
      writer.FloatTensor(stem + "scale", {1}, {scale});
    }
    MemoryFiles files;
    files.files["m.gguf"] = writer.Take();
    const auto engine = Engine::Open(files, "m.gguf", FloatPath());
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    // Beyond position 64 an activation of the reference lies on a rounding boundary.
    const std::vector<float> logits = AllLogits(**engine, reference.tokens);
    EXPECT_LE(LogitError(reference, logits, 0, 64), 1e-4);
    EXPECT_LE(LogitError(reference, logits, 65, 1 << 20), 2e-2);

    // Converted, the layers are found to be ternary and keep their function.
    const auto in = format::OpenModelFile(files, "m.gguf");
    ASSERT_TRUE(in.ok());
    const auto recipe = format::ParseQuantRecipe("@embedding float\n* ternary");
    ASSERT_TRUE(recipe.ok());
    format::ConvertOptions options;
    options.recipe = *recipe;
    auto out = files.Create("m.cellm");
    ASSERT_TRUE(out.ok());
    const auto report = format::ConvertModel(**in, options, out->get());
    ASSERT_TRUE(report.ok()) << report.status().message();
    uint64_t bytes = 0, weights = 0;
    for (const auto role : {format::TensorRole::kAttention, format::TensorRole::kMlp}) {
      const format::RoleReport& row = report->roles[static_cast<int>(role)];
      EXPECT_EQ(row.squared_error, 0.0);
      bytes += row.bytes;
      weights += row.weights;
    }
    const double bits = 8.0 * static_cast<double>(bytes) / static_cast<double>(weights);
    RecordProperty(multiply ? "bits_multiplied" : "bits_beside", StrFormat("%.3f", bits));
    EXPECT_LE(bits, 2.21);  // rows of 128 and 384: scales take 32 / columns bits a weight
    const auto converted = Engine::Open(files, "m.cellm", FloatPath());
    ASSERT_TRUE(converted.ok()) << converted.status().message();
    EXPECT_LE(LogitError(reference, AllLogits(**converted, reference.tokens), 0, 64), 1e-4);
  }
}

}  // namespace
}  // namespace cellm
