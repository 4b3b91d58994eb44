// Every family against logits that a plain program computed from its formulas, and the promises
// that hold for all of them: chunking and weight formats change nothing that they should not.
//
// testdata/oracle holds tiny random checkpoints of families and rotary kinds that the zoo lacks
// (scripts/make_oracle_models.py); the shared zoo holds trained ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "format/convert.h"
#include "format/model_file.h"
#include "platform/file.h"
#include "support/checkpoint.h"
#include "support/memory_files.h"
#include "support/paths.h"
#include "support/zoo.h"

namespace cellm {
namespace {

using ::cellm::testing::AllLogits;
using ::cellm::testing::CheckpointTensor;
using ::cellm::testing::FloatPath;
using ::cellm::testing::LogitError;
using ::cellm::testing::MemoryFiles;
using ::cellm::testing::OpenEngine;
using ::cellm::testing::Reference;
using ::cellm::testing::TestData;

template <typename T>
std::vector<T> Numbers(const CheckpointTensor& tensor) {
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor.bytes.data(), values.size() * sizeof(T));
  return values;
}

// reference.safetensors alone: there are no prompts.
Reference ReadLogits(const std::string& path) {
  auto tensors = testing::ReadSafetensors(path);
  Reference reference;
  reference.tokens = Numbers<int32_t>(tensors["tokens"]);
  reference.positions = Numbers<int32_t>(tensors["positions"]);
  reference.logits = tensors["logits"].values;
  EXPECT_FALSE(reference.positions.empty()) << path;
  if (!reference.positions.empty()) {
    reference.vocab = static_cast<int32_t>(reference.logits.size() / reference.positions.size());
  }
  return reference;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && !a.empty() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// -- Logits

struct OracleModel {
  const char* name;
  bool has_short = false;  // a second text, below the length at which the rotary changes
};

// How a failing test shows its parameter.
void PrintTo(const OracleModel& model, std::ostream* out) { *out << model.name; }

constexpr OracleModel kModels[] = {
    {"exaone4"},
    {"exaone4_window"},
    {"gemma2"},
    {"granitemoe"},
    {"granitemoe_fused"},
    {"granitemoe_narrow"},
    {"granitemoehybrid"},
    {"granitemoehybrid_dense"},
    {"granitemoeshared"},
    {"lfm2_moe"},
    {"llama_dynamic", true},
    {"llama_linear"},
    {"llama_longrope", true},
    {"llama_yarn"},
    {"llama_yarn_untruncated"},
    {"minicpm"},
    {"minicpm_longrope", true},
    {"ministral3"},
    {"mistral"},
    {"mistral3_wrapper"},
    {"mobilellm"},
    {"olmo3"},
    {"phi3_longrope", true},
    {"qwen2_window"},
    {"qwen3_5_moe"},
    {"qwen3_window"},
};

class Oracle : public ::testing::TestWithParam<OracleModel> {};

TEST_P(Oracle, LogitsAgree) {
  const std::string folder = TestData(std::string("oracle/") + GetParam().name);
  for (const char* const file : {"/reference.safetensors", "/reference_short.safetensors"}) {
    if (!GetParam().has_short && std::strstr(file, "short") != nullptr) continue;
    const Reference reference = ReadLogits(folder + file);
    EngineOptions options = FloatPath();
    const auto engine = OpenEngine(folder, options);
    ASSERT_NE(engine, nullptr);
    ASSERT_EQ(engine->info().vocab_size, reference.vocab);
    const double error = LogitError(reference, AllLogits(*engine, reference.tokens), 0, 1 << 20);
    EXPECT_LE(error, 1e-4) << file;
    options.kv_type = KvType::kF16;
    const auto half = OpenEngine(folder, options);
    ASSERT_NE(half, nullptr);
    const double half_error = LogitError(reference, AllLogits(*half, reference.tokens), 0, 1 << 20);
    EXPECT_LE(half_error, 2e-3) << file;
    ::testing::Test::RecordProperty("float_error", StrFormat("%.1e", error));
    ::testing::Test::RecordProperty("half_error", StrFormat("%.1e", half_error));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Oracle, ::testing::ValuesIn(kModels),
                         [](const auto& param) { return std::string(param.param.name); });

// The short and the long text must differ in what they say of the same tokens, or the check of the
// crossing would prove nothing.
TEST(OracleLength, ChangesTheAnswerWhereItShould) {
  for (const char* const name : {"llama_dynamic", "llama_longrope", "phi3_longrope"}) {
    const std::string folder = TestData(std::string("oracle/") + name);
    const Reference whole = ReadLogits(folder + "/reference.safetensors");
    const Reference part = ReadLogits(folder + "/reference_short.safetensors");
    std::vector<float> rows(part.tokens.size() * static_cast<size_t>(whole.vocab));
    for (size_t i = 0; i < part.positions.size(); ++i) {
      std::copy_n(whole.logits.data() + i * static_cast<size_t>(whole.vocab), whole.vocab,
                  rows.data() + part.positions[i] * whole.vocab);
    }
    EXPECT_GT(LogitError(part, rows, 0, 1 << 20), 1e-2) << name;
  }
}

// -- Promise 1: chunking changes no bit, in any family and any weight format

struct WeightKind {
  const char* name;
  Format dtype;  // of floats
  int32_t bits;  // of matrices; 0: floats
};
constexpr WeightKind kKinds[] = {{"f32", Format::kF32, 0},
                                 {"bf16", Format::kBF16, 0},
                                 {"f16", Format::kF16, 0},
                                 {"int8", Format::kCount, 8},
                                 {"int4", Format::kCount, 4}};

// The checkpoint in `folder`, converted. Null: the test has failed.
std::shared_ptr<const Model> Converted(const std::string& folder, const WeightKind& kind,
                                       MemoryFiles* memory) {
  auto in = format::OpenModelFile(platform::SystemFiles(), folder);
  if (!in.ok()) {
    ADD_FAILURE() << in.status().message();
    return nullptr;
  }
  format::ConvertOptions options;
  if (kind.bits == 8) options = format::Int8Options();
  if (kind.bits == 4) options = format::Int4Options(32);
  options.dtype = kind.dtype;
  auto out = memory->Create("m.cellm");
  if (!out.ok()) {
    ADD_FAILURE() << out.status().message();
    return nullptr;
  }
  const auto report = format::ConvertModel(**in, options, out->get());
  if (!report.ok()) {
    ADD_FAILURE() << folder << ": " << report.status().message();
    return nullptr;
  }
  const auto engine = Engine::Open(*memory, "m.cellm", FloatPath());
  if (!engine.ok()) {
    ADD_FAILURE() << folder << " as " << kind.name << ": " << engine.status().message();
    return nullptr;
  }
  return (*engine)->shared_model();
}

void CheckChunks(const std::string& folder, const std::vector<int32_t>& tokens) {
  for (const WeightKind& kind : kKinds) {
    MemoryFiles memory;
    const auto model = Converted(folder, kind, &memory);
    ASSERT_NE(model, nullptr);
    for (const ActivationMode mode : {ActivationMode::kFloat32, ActivationMode::kInt8}) {
      EngineOptions options = FloatPath();
      options.kv_type = KvType::kF16;
      options.activations = mode;
      const auto engine = Engine::Create(model, options);
      ASSERT_TRUE(engine.ok()) << engine.status().message();
      const std::vector<float> whole = AllLogits(**engine, tokens);
      for (const int32_t chunk : {1, 7}) {
        EXPECT_TRUE(SameBits(whole, AllLogits(**engine, tokens, chunk)))
            << folder << " " << kind.name << " in chunks of " << chunk << ", activations "
            << static_cast<int>(mode);
      }
    }
  }
}

// users.md row 6: every split of a text gives the logits of the whole.
TEST_P(Oracle, ChunkingChangesNoBit) {
  const std::string folder = TestData(std::string("oracle/") + GetParam().name);
  CheckChunks(folder, ReadLogits(folder + "/reference.safetensors").tokens);
}

class ZooChunks : public ::testing::TestWithParam<const char*> {};

TEST_P(ZooChunks, ChunkingChangesNoBit) {
  CELLM_SKIP_WITHOUT_SHARED(folder, std::string("zoo/") + GetParam());
  std::vector<int32_t> tokens = ReadLogits(folder + "/reference.safetensors").tokens;
  tokens.resize(std::min<size_t>(tokens.size(), 40));
  CheckChunks(folder, tokens);
}

INSTANTIATE_TEST_SUITE_P(Zoo, ZooChunks,
                         ::testing::Values("apertus", "bitnet", "gemma3", "gemma4", "granite",
                                           "hunyuan", "lfm2", "llama", "olmo2", "phi3", "qwen2",
                                           "qwen3", "qwen3_5", "qwen3_moe", "smollm3"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace cellm
