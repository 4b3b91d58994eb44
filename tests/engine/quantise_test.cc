// Quantised files end to end: every family in the formats that its shapes allow, written, opened
// and run; and rounding with the inputs of a calibration.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "format/convert.h"
#include "format/model_file.h"
#include "support/memory_files.h"
#include "support/paths.h"
#include "support/zoo.h"

namespace cellm {
namespace {

using format::Calibration;
using format::ConvertOptions;
using format::ConvertReport;
using format::ModelFile;
using testing::AllLogits;
using testing::FloatPath;
using testing::MemoryFiles;
using testing::ReadReference;

const char* const kFamilies[] = {"apertus", "bitnet", "gemma3",  "gemma4",  "granite",
                                 "hunyuan", "lfm2",   "llama",   "olmo2",   "phi3",
                                 "qwen2",   "qwen3",  "qwen3_5", "smollm3", "qwen3_moe"};
const char* const kFormats[] = {"i8",     "i8:32", "i8a:64", "i6",      "i6a:64",    "i5",
                                "i5a:32", "i4",    "i4:row", "i4a:64",  "i3:64",     "i3a",
                                "i2:16",  "i2a",   "i1",     "ternary", "ternary:64"};
constexpr size_t kFormatCount = std::size(kFormats);

ConvertOptions OptionsFor(const std::string& recipe) {
  ConvertOptions options;
  const auto parsed = format::ParseQuantRecipe(recipe);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  if (parsed.ok()) options.recipe = *parsed;
  return options;
}

// Converts the model at `path` to "out.cellm" in `files`.
void Convert(const std::string& path, const ConvertOptions& options, MemoryFiles* files,
             ConvertReport* report) {
  const auto model = format::OpenModelFile(platform::SystemFiles(), path);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto writer = files->Create("out.cellm");
  ASSERT_TRUE(writer.ok());
  const auto converted = format::ConvertModel(**model, options, writer->get());
  ASSERT_TRUE(converted.ok()) << converted.status().message();
  *report = *converted;
}

std::vector<float> LogitsOf(platform::FileSystem& files, const std::string& path,
                            const std::vector<int32_t>& tokens) {
  auto engine = Engine::Open(files, path, FloatPath());
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? AllLogits(**engine, tokens) : std::vector<float>();
}

// The mean over positions of KL(a || b).
double Divergence(const std::vector<float>& a, const std::vector<float>& b, size_t vocab) {
  double sum = 0;
  for (size_t begin = 0; begin < a.size(); begin += vocab) {
    double za = 0, zb = 0;
    for (size_t i = begin; i < begin + vocab; ++i) {
      za += std::exp(double{a[i]});
      zb += std::exp(double{b[i]});
    }
    for (size_t i = begin; i < begin + vocab; ++i) {
      const double p = std::exp(double{a[i]}) / za;
      sum += p * (double{a[i]} - std::log(za) - double{b[i]} + std::log(zb));
    }
  }
  return sum / static_cast<double>(a.size() / vocab);
}

// The first families and formats rotate, so that each runs; CELLM_TEST_LONG takes all pairs.
class QuantisedFamily : public ::testing::TestWithParam<size_t> {};

TEST_P(QuantisedFamily, IsWrittenReadAndRun) {
  const size_t family = GetParam();
  std::string folder;
  if (std::string(kFamilies[family]) == "llama") {
    folder = testing::TestData("zoo/llama");
  } else {
    CELLM_SKIP_WITHOUT_SHARED(shared, std::string("zoo/") + kFamilies[family]);
    folder = shared;
  }
  std::vector<int32_t> tokens = ReadReference(folder).tokens;
  tokens.resize(24);
  const std::vector<float> plain = LogitsOf(platform::SystemFiles(), folder, tokens);
  const size_t vocab = plain.size() / tokens.size();
  const bool all = std::getenv("CELLM_TEST_LONG") != nullptr;
  for (size_t i = 0; i < (all ? kFormatCount : 2); ++i) {
    const std::string format = kFormats[all ? i : (2 * family + i * 9) % kFormatCount];
    SCOPED_TRACE(format);
    MemoryFiles files;
    ConvertReport report;
    ASSERT_NO_FATAL_FAILURE(Convert(folder, OptionsFor("* " + format), &files, &report));
    const std::vector<float> logits = LogitsOf(files, "out.cellm", tokens);
    ASSERT_EQ(logits.size(), plain.size());
    const double divergence = Divergence(plain, logits, vocab);
    ASSERT_TRUE(std::isfinite(divergence));
    // Loose: one or two bits leave little of a model that was not trained for them.
    const int bits = format[0] == 't' ? 2 : format[1] - '0';
    const double most = bits == 8 ? 0.02 : bits >= 5 ? 0.1 : bits == 4 ? 0.8 : INFINITY;
    EXPECT_LT(divergence, most);
    EXPECT_LT(report.BitsPerWeight(), 16.0);
  }
}

INSTANTIATE_TEST_SUITE_P(Quantise, QuantisedFamily,
                         ::testing::Range<size_t>(0, std::size(kFamilies)),
                         [](const auto& param) { return std::string(kFamilies[param.param]); });

// Experts whose gate and up projections are one tensor are used as its halves. Where a half ends
// inside a tile of packed rows, that tensor stays as it is: what is written can always be read.
TEST(Quantise, FusedExpertsThatCutATileAreReadableInEveryFormat) {
  const std::string folder = testing::TestData("oracle/granitemoe_narrow");
  std::vector<int32_t> tokens(24);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 7 % 97);
  const std::vector<float> plain = LogitsOf(platform::SystemFiles(), folder, tokens);
  for (const char* const format : kFormats) {
    SCOPED_TRACE(format);
    MemoryFiles files;
    ConvertReport report;
    ASSERT_NO_FATAL_FAILURE(
        Convert(folder, OptionsFor(std::string("* ") + format), &files, &report));
    EXPECT_NE(std::find(report.notes.begin(), report.notes.end(), "1 fused tensors stay as floats"),
              report.notes.end());
    const std::vector<float> logits = LogitsOf(files, "out.cellm", tokens);
    ASSERT_EQ(logits.size(), plain.size());
    EXPECT_LT(Divergence(plain, logits, 97), 5.0);
    EXPECT_GT(Divergence(plain, logits, 97), 0.0);
  }
}

TEST(Quantise, BitnetStaysWhatItIs) {
  CELLM_SKIP_WITHOUT_SHARED(folder, "zoo/bitnet");
  MemoryFiles files;
  ConvertReport report;
  ASSERT_NO_FATAL_FAILURE(
      Convert(folder, OptionsFor("@embedding float\n* ternary"), &files, &report));
  for (const format::TensorRole role : {format::TensorRole::kAttention, format::TensorRole::kMlp}) {
    const format::RoleReport& row = report.roles[static_cast<int>(role)];
    ASSERT_GT(row.weights, 0u);
    EXPECT_LE(8.0 * static_cast<double>(row.bytes) / static_cast<double>(row.weights), 2.2);
  }
  const std::vector<int32_t> tokens = ReadReference(folder).tokens;
  EXPECT_EQ(LogitsOf(files, "out.cellm", tokens),
            LogitsOf(platform::SystemFiles(), folder, tokens));
}

// Makes a checkpoint of `folder` whose layers hold ternary weights in bf16, as unpacked ternary
// models are published.
void MakeTernary(const std::string& folder, MemoryFiles* files) {
  const auto model = format::OpenModelFile(platform::SystemFiles(), folder);
  ASSERT_TRUE(model.ok());
  std::string header = "{";
  std::string payload;
  for (const format::Tensor& tensor : (*model)->tensors) {
    std::string bytes(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
    if (tensor.name.find("proj.weight") != std::string::npos) {
      ASSERT_EQ(tensor.format, Format::kBF16);
      const size_t cols = static_cast<size_t>(tensor.shape[1]);
      for (size_t i = 0; i < bytes.size() / 2; ++i) {
        // -s, 0, s by two bits of the old mantissa; s = 0.03125 or 0.046875 by the row's parity.
        const unsigned pick = static_cast<unsigned char>(bytes[2 * i]) % 3;
        const uint16_t magnitude = (i / cols) % 2 == 0 ? 0x3D00 : 0x3D40;
        const uint16_t value =
            pick == 1 ? 0 : static_cast<uint16_t>(magnitude | (pick == 0 ? 0x8000 : 0));
        bytes[2 * i] = static_cast<char>(value & 0xFF);
        bytes[2 * i + 1] = static_cast<char>(value >> 8);
      }
    }
    std::string shape;
    for (const int64_t d : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(d);
    header += (header.size() > 1 ? "," : "") + ("\"" + tensor.name) +
              "\":{\"dtype\":\"BF16\",\"shape\":[" + shape + "],\"data_offsets\":[" +
              std::to_string(payload.size()) + "," + std::to_string(payload.size() + bytes.size()) +
              "]}";
    payload += bytes;
  }
  header += "}";
  std::string file;
  for (int shift = 0; shift < 64; shift += 8) {
    file.push_back(static_cast<char>((uint64_t{header.size()} >> shift) & 0xFF));
  }
  files->files["m/model.safetensors"] = file + header + payload;
  const auto config = platform::SystemFiles().Read(folder + "/config.json", 1 << 20);
  ASSERT_TRUE(config.ok());
  files->files["m/config.json"] = *config;
}

TEST(Quantise, TernaryWeightsAreFoundAndKeptWithoutLoss) {
  const std::string folder = testing::TestData("zoo/llama");
  MemoryFiles files;
  ASSERT_NO_FATAL_FAILURE(MakeTernary(folder, &files));
  const auto model = format::OpenModelFile(files, "m");
  ASSERT_TRUE(model.ok()) << model.status().message();
  for (const char* asked : {"ternary", "i4:32", "i8"}) {
    SCOPED_TRACE(asked);
    const ConvertOptions options =
        OptionsFor("@embedding float\n@head float\n* " + std::string(asked));
    const auto writer = files.Create("out.cellm");
    ASSERT_TRUE(writer.ok());
    const auto report = format::ConvertModel(**model, options, writer->get());
    ASSERT_TRUE(report.ok()) << report.status().message();
    for (const format::TensorRole role :
         {format::TensorRole::kAttention, format::TensorRole::kMlp}) {
      const format::RoleReport& row = report->roles[static_cast<int>(role)];
      EXPECT_EQ(row.squared_error, 0.0);
      EXPECT_GT(row.squared_weights, 0.0);
      EXPECT_LT(8.0 * static_cast<double>(row.bytes) / static_cast<double>(row.weights), 2.6);
    }
    std::vector<int32_t> tokens = ReadReference(folder).tokens;
    tokens.resize(16);
    const std::vector<float> plain = LogitsOf(files, "m", tokens);
    const std::vector<float> packed = LogitsOf(files, "out.cellm", tokens);
    ASSERT_EQ(plain.size(), packed.size());
    float largest = 0;
    float error = 0;
    for (size_t i = 0; i < plain.size(); ++i) {
      largest = std::max(largest, std::fabs(plain[i]));
      error = std::max(error, std::fabs(plain[i] - packed[i]));
    }
    EXPECT_LE(error, 1e-5f * largest);
  }
}

Calibration InputsOf(const Engine& engine) {
  Calibration calibration;
  for (const InputStatistics::Entry& entry : engine.inputs()->Entries()) {
    calibration.inputs.push_back(
        {std::string(entry.tensor), entry.matrix, entry.cols, entry.moments});
  }
  return calibration;
}

TEST(Calibration, EveryMatrixIsSeenOnceATokenAndSumsAreSymmetric) {
  const std::string folder = testing::TestData("zoo/llama");
  auto engine = Engine::Open(platform::SystemFiles(), folder, FloatPath());
  ASSERT_TRUE(engine.ok());
  EXPECT_EQ((*engine)->inputs(), nullptr);
  (*engine)->CollectInputs(uint64_t{1} << 30);
  std::vector<int32_t> tokens = ReadReference(folder).tokens;
  tokens.resize(64);
  (void)AllLogits(**engine, tokens, 20);
  ASSERT_TRUE((*engine)->inputs()->status().ok());
  const std::vector<InputStatistics::Entry> entries = (*engine)->inputs()->Entries();
  size_t matrices = 0;
  const auto file = format::OpenModelFile(platform::SystemFiles(), folder);
  ASSERT_TRUE(file.ok());
  for (const format::Tensor& tensor : (*file)->tensors) {
    const format::TensorRole role = format::RoleOf(tensor.name, tensor.shape.size());
    if (role == format::TensorRole::kKept || role == format::TensorRole::kEmbedding) continue;
    ++matrices;
    const auto entry = std::find_if(entries.begin(), entries.end(),
                                    [&](const auto& e) { return e.tensor == tensor.name; });
    ASSERT_NE(entry, entries.end()) << tensor.name;
    EXPECT_EQ(entry->cols, tensor.shape[1]);
    EXPECT_EQ(entry->matrix, -1);
    EXPECT_EQ(entry->rows, tokens.size()) << tensor.name;
    const size_t n = static_cast<size_t>(entry->cols);
    ASSERT_EQ(entry->moments.size(), n * n);
    for (size_t i = 0; i < n; ++i) {
      EXPECT_GE(entry->moments[i * n + i], 0.0f);
      for (size_t j = 0; j < i; ++j) {
        ASSERT_EQ(entry->moments[i * n + j], entry->moments[j * n + i]);
      }
    }
  }
  EXPECT_EQ(entries.size(), matrices);
  // With room for nothing, the diagonals: the same numbers up to the order of sums.
  auto narrow = Engine::Open(platform::SystemFiles(), folder, FloatPath());
  ASSERT_TRUE(narrow.ok());
  (*narrow)->CollectInputs(1);
  (void)AllLogits(**narrow, tokens, 20);
  const std::vector<InputStatistics::Entry> diagonals = (*narrow)->inputs()->Entries();
  ASSERT_EQ(diagonals.size(), entries.size());
  for (size_t e = 0; e < entries.size(); ++e) {
    const size_t n = static_cast<size_t>(entries[e].cols);
    ASSERT_EQ(diagonals[e].moments.size(), n);
    for (size_t i = 0; i < n; ++i) {
      const float expected = entries[e].moments[i * n + i];
      ASSERT_NEAR(diagonals[e].moments[i], expected, 1e-4f * expected + 1e-6f);
    }
  }
  (*narrow)->CollectInputs(0);
  EXPECT_EQ((*narrow)->inputs(), nullptr);
}

TEST(Calibration, LogitsStayCloserWithItAndRunsRepeat) {
  const std::string folder = testing::TestData("zoo/llama");
  const std::vector<int32_t> tokens = ReadReference(folder).tokens;
  auto engine = Engine::Open(platform::SystemFiles(), folder, FloatPath());
  ASSERT_TRUE(engine.ok());
  (*engine)->CollectInputs(uint64_t{1} << 30);
  const std::vector<float> plain = AllLogits(**engine, tokens);
  const size_t vocab = plain.size() / tokens.size();
  const Calibration calibration = InputsOf(**engine);
  for (const char* format : {"i3", "i2a", "i4a:64"}) {
    SCOPED_TRACE(format);
    ConvertOptions options = OptionsFor("@embedding float\n* " + std::string(format));
    MemoryFiles files;
    ConvertReport report;
    ASSERT_NO_FATAL_FAILURE(Convert(folder, options, &files, &report));
    const double alone = Divergence(plain, LogitsOf(files, "out.cellm", tokens), vocab);
    options.calibration = &calibration;
    ASSERT_NO_FATAL_FAILURE(Convert(folder, options, &files, &report));
    EXPECT_EQ(report.uncalibrated, 0);
    const std::string first = files.files["out.cellm"];
    const double calibrated = Divergence(plain, LogitsOf(files, "out.cellm", tokens), vocab);
    EXPECT_LT(calibrated, 0.85 * alone);
    ASSERT_NO_FATAL_FAILURE(Convert(folder, options, &files, &report));
    EXPECT_TRUE(files.files["out.cellm"] == first);
  }
}

TEST(Quantise, FewerBitsForQuantisedWeightsMustBeAskedFor) {
  const std::string folder = testing::TestData("zoo/llama");
  MemoryFiles files;
  ConvertReport report;
  ASSERT_NO_FATAL_FAILURE(Convert(folder, OptionsFor("* i4"), &files, &report));
  const auto model = format::OpenModelFile(files, "out.cellm");
  ASSERT_TRUE(model.ok());
  const auto again = [&](const char* format, bool asked) {
    ConvertOptions options = OptionsFor(std::string("* ") + format);
    options.requantize = asked;
    const auto writer = files.Create("again.cellm");
    return format::ConvertModel(**model, options, writer->get());
  };
  const auto refused = again("i3", false);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("--requantize"), std::string::npos);
  // As many bits or more: nothing happens to the weights, so nothing must be asked.
  const auto kept = again("i8", false);
  ASSERT_TRUE(kept.ok()) << kept.status().message();
  EXPECT_NEAR(kept->BitsPerWeight(), report.BitsPerWeight(), 1e-9);
  const auto smaller = again("i3", true);
  ASSERT_TRUE(smaller.ok()) << smaller.status().message();
  EXPECT_LT(smaller->BitsPerWeight(), report.BitsPerWeight() - 0.9);
}

TEST(Quantise, TheLedgerTravelsInTheFile) {
  const std::string folder = testing::TestData("zoo/llama");
  MemoryFiles files;
  ConvertReport report;
  ASSERT_NO_FATAL_FAILURE(Convert(folder, OptionsFor("* i4"), &files, &report));
  const auto draft = format::OpenModelFile(files, "out.cellm");
  ASSERT_TRUE(draft.ok());
  EXPECT_TRUE((*draft)->quality_json.empty());
  const auto writer = files.Create("final.cellm");
  ASSERT_TRUE(
      format::RewriteWithQuality(**draft, "cellm 0", "{\"perplexity\":12.5}", {}, writer->get())
          .ok());
  const auto final = format::OpenModelFile(files, "final.cellm");
  ASSERT_TRUE(final.ok()) << final.status().message();
  EXPECT_EQ((*final)->quality_json, "{\"perplexity\":12.5}");
  EXPECT_EQ((*final)->quantization_json, (*draft)->quantization_json);
  EXPECT_TRUE(format::VerifyChecksums(**final).ok());
  ASSERT_EQ((*final)->tensors.size(), (*draft)->tensors.size());
  for (size_t i = 0; i < (*final)->tensors.size(); ++i) {
    EXPECT_EQ((*final)->tensors[i].checksum, (*draft)->tensors[i].checksum);
  }
  // A source that is no file of ours has no ledger to replace.
  const auto source = format::OpenModelFile(platform::SystemFiles(), folder);
  ASSERT_TRUE(source.ok());
  EXPECT_FALSE(format::RewriteWithQuality(**source, "cellm 0", "{}", {}, writer->get()).ok());
}

}  // namespace
}  // namespace cellm
