#include "format/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"
#include "format/cellm_file.h"
#include "support/memory_files.h"
#include "support/paths.h"
#include "tensor/half.h"

namespace cellm::format {
namespace {

using ::cellm::testing::FaultyFiles;
using ::cellm::testing::MemoryFiles;
using ::cellm::testing::TestData;

struct Source {
  std::string name;
  std::vector<int64_t> shape;
};

// A little checkpoint with every role, bf16, values roughly normal, in a folder "m".
const Source kSources[] = {
    {"model.embed_tokens.weight", {40, 64}},
    {"lm_head.weight", {40, 64}},
    {"model.norm.weight", {64}},
    {"model.layers.0.self_attn.q_proj.weight", {48, 64}},
    {"model.layers.0.self_attn.q_proj.bias", {48}},
    {"model.layers.0.mlp.down_proj.weight", {64, 100}},
    {"model.layers.0.mlp.gate.weight", {4, 64}},
    {"model.layers.0.conv.conv.weight", {64, 1, 3}},
    {"model.vision_tower.vision_model.encoder.fc1.weight", {20, 64}},
};

MemoryFiles Checkpoint() {
  MemoryFiles files;
  files.files["m/config.json"] =
      R"({"architectures":["L"],"model_type":"llama","vocab_size":40,"hidden_size":64,)"
      R"("intermediate_size":100,"num_hidden_layers":1,"num_attention_heads":4,"eos_token_id":)"
      R"([3,4],"rope_parameters":{"rope_theta":5e5},"huge":123456789012345678901234567890})";
  files.files["m/tokenizer.json"] = "{\"tokenizer\":true}";
  files.files["m/tokenizer_config.json"] = R"({"chat_template":"{{ hi }}"})";
  files.files["m/generation_config.json"] = "{\"temperature\":0.5}";
  Rng rng(99);
  std::string header = "{";
  std::string payload;
  for (const Source& source : kSources) {
    int64_t count = 1;
    std::string shape;
    for (const int64_t dimension : source.shape) {
      count *= dimension;
      shape += StrFormat("%s%lld", shape.empty() ? "" : ",", static_cast<long long>(dimension));
    }
    const size_t begin = payload.size();
    for (int64_t i = 0; i < count; ++i) {
      const double value =
          rng.NextDouble() + rng.NextDouble() + rng.NextDouble() + rng.NextDouble() - 2;
      const uint16_t bits = FloatToBf16(static_cast<float>(value * 0.1));
      payload.append(reinterpret_cast<const char*>(&bits), 2);
    }
    header += StrFormat("%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                        header.size() > 1 ? "," : "", source.name.c_str(), shape.c_str(), begin,
                        payload.size());
  }
  header += "}";
  std::string file(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  files.files["m/model.safetensors"] = file + header + payload;
  return files;
}

struct Converted {
  MemoryFiles files;
  ConvertReport report;
  std::unique_ptr<ModelFile> source;
  std::unique_ptr<ModelFile> model;
};

void Convert(const ConvertOptions& options, Converted* result) {
  result->files = Checkpoint();
  auto source = OpenModelFile(result->files, "m");
  ASSERT_TRUE(source.ok()) << source.status().message();
  result->source = std::move(source).value();
  auto out = result->files.Create("o/out.cellm");
  ASSERT_TRUE(out.ok());
  auto report = ConvertModel(*result->source, options, out->get());
  ASSERT_TRUE(report.ok()) << report.status().message();
  result->report = *report;
  auto model = OpenModelFile(result->files, "o/out.cellm");
  ASSERT_TRUE(model.ok()) << model.status().message();
  result->model = std::move(model).value();
  EXPECT_TRUE(VerifyChecksums(*result->model).ok());
  EXPECT_EQ(result->report.file_bytes, result->files.files["o/out.cellm"].size());
}

Matrix MustFind(const ModelFile& file, const std::string& name, int64_t rows, int64_t cols) {
  auto matrix = FindMatrix(file, name.substr(0, name.size() - 7), static_cast<int32_t>(rows),
                           static_cast<int32_t>(cols));
  EXPECT_TRUE(matrix.ok()) << matrix.status().message();
  return matrix.ok() ? *matrix : Matrix{};
}

// sqrt(sum (a - b)^2 / sum a^2) over a matrix of both files.
double Distance(const ModelFile& a, const ModelFile& b, const Source& source) {
  const Matrix first = MustFind(a, source.name, source.shape[0], source.shape[1]);
  const Matrix second = MustFind(b, source.name, source.shape[0], source.shape[1]);
  double error = 0;
  double energy = 0;
  std::vector<float> x(static_cast<size_t>(first.cols));
  std::vector<float> y(x.size());
  for (int32_t row = 0; row < first.rows; ++row) {
    DecodeRow(first, row, x.data());
    DecodeRow(second, row, y.data());
    for (size_t c = 0; c < x.size(); ++c) {
      error += (double{x[c]} - double{y[c]}) * (double{x[c]} - double{y[c]});
      energy += double{x[c]} * double{x[c]};
    }
  }
  return std::sqrt(error / energy);
}

TEST(Convert, FloatsKeepEveryBitAndTextsTravelInside) {
  Converted result;
  ASSERT_NO_FATAL_FAILURE(Convert(ConvertOptions{}, &result));
  const ModelFile& model = *result.model;
  for (const Tensor& tensor : result.source->tensors) {
    const Tensor* copy = model.Find(tensor.name);
    ASSERT_NE(copy, nullptr) << tensor.name;
    EXPECT_EQ(copy->format, Format::kBF16);
    EXPECT_EQ(copy->shape, tensor.shape);
    EXPECT_TRUE(
        std::equal(copy->data.begin(), copy->data.end(), tensor.data.begin(), tensor.data.end()));
  }
  EXPECT_EQ(json::Serialize(model.config->root()), json::Serialize(result.source->config->root()));
  EXPECT_EQ(model.tokenizer_json, "{\"tokenizer\":true}");
  EXPECT_EQ(model.tokenizer_config_json, R"({"chat_template":"{{ hi }}"})");
  EXPECT_EQ(model.generation_config_json, "{\"temperature\":0.5}");
  EXPECT_EQ(model.chat_template, "{{ hi }}");
  EXPECT_NE(model.quantization_json.find("\"attention\":null"), std::string_view::npos);
  EXPECT_NEAR(result.report.BitsPerWeight(), 16.0, 1e-9);
}

// Old readers look for these keys and dtypes only: the header as they see it.
TEST(Convert, UnquantisedFilesCarryTheKeysOfVersion1) {
  Converted result;
  ConvertOptions options;
  options.dtype = Format::kF16;
  ASSERT_NO_FATAL_FAILURE(Convert(options, &result));
  const std::string& bytes = result.files.files["o/out.cellm"];
  uint32_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data() + 6, 4);
  auto header = json::Document::Parse(std::string_view(bytes).substr(10, header_bytes), "header");
  ASSERT_TRUE(header.ok());
  const json::Value root = (*header)->root();
  const std::map<std::string, std::string> expected = {
      {"model_type", "\"llama\""},
      {"vocab_size", "40"},
      {"hidden_dim", "64"},
      {"intermediate_size", "100"},
      {"num_layers", "1"},
      {"num_heads", "4"},
      {"num_kv_heads", "4"},
      {"rms_norm_eps", "1e-06"},
      {"rope_theta", "500000.0"},
      {"eos_token_id", "3"},
      {"bos_token_id", "null"},
      {"head_dim", "null"},
      {"text_tensor_prefix", "\"model.\""},
      {"vision_tensor_prefix", "\"model.vision_tower.vision_model.\""}};
  for (const auto& [key, value] : expected) {
    EXPECT_EQ(json::Serialize(root.Find(key)), value) << key;
  }
  EXPECT_TRUE(root.Find("source_text_config").is_object());
  const json::Value tensors = root.Find("tensors");
  std::string last;
  for (json::Value v = tensors.First(); v.exists(); v = tensors.Next(v)) {
    std::string_view name;
    std::string_view dtype;
    uint64_t offset = 1;
    EXPECT_TRUE(v.Find("name").GetString(&name) && v.Find("dtype").GetString(&dtype) &&
                v.Find("offset_bytes").GetUint64(&offset));
    EXPECT_TRUE(dtype == "f16" || (dtype == "u8" && name.starts_with("cellm/")));
    EXPECT_EQ(offset % 64, 0u);
    EXPECT_LT(last, name);
    last = name;
  }
}

TEST(Convert, Int8PacksMatricesAndReportsTheRealError) {
  Converted result;
  ASSERT_NO_FATAL_FAILURE(Convert(Int8Options(), &result));
  const std::map<std::string, TensorRole> quantised = {
      {"model.embed_tokens.weight", TensorRole::kEmbedding},
      {"lm_head.weight", TensorRole::kHead},
      {"model.layers.0.self_attn.q_proj.weight", TensorRole::kAttention},
      {"model.layers.0.mlp.down_proj.weight", TensorRole::kMlp}};
  for (const Source& source : kSources) {
    const Tensor* tensor = result.model->Find(source.name);
    ASSERT_NE(tensor, nullptr);
    const auto role = quantised.find(source.name);
    if (role == quantised.end()) {
      EXPECT_EQ(tensor->format, Format::kBF16) << source.name;
      continue;
    }
    EXPECT_EQ(tensor->format, Format::kPacked) << source.name;
    EXPECT_EQ(PackedName(tensor->packed), "x16.u8.grow.z256.f16");
    const double distance = Distance(*result.source, *result.model, source);
    EXPECT_LT(distance, 0.008) << source.name;
    EXPECT_NEAR(result.report.roles[static_cast<int>(role->second)].RelativeError(), distance,
                1e-9);
  }
}

TEST(Convert, Int4KeepsTheEmbeddingAtEightBits) {
  Converted result;
  ASSERT_NO_FATAL_FAILURE(Convert(Int4Options(32), &result));
  EXPECT_EQ(PackedName(result.model->Find("model.embed_tokens.weight")->packed),
            "x16.u8.grow.z256.f16");
  EXPECT_EQ(PackedName(result.model->Find("lm_head.weight")->packed), "x16.u4.g32.z16.f16");
  // A row of 100 is no multiple of 32: its last group is short.
  for (const Source& source : {kSources[1], kSources[3], kSources[5]}) {
    EXPECT_LT(Distance(*result.source, *result.model, source), 0.09) << source.name;
  }
  // Converting the quantised file again keeps every value.
  auto out = result.files.Create("o/again.cellm");
  ASSERT_TRUE(out.ok());
  auto again = ConvertModel(*result.model, Int8Options(), out->get());
  ASSERT_TRUE(again.ok()) << again.status().message();
  auto model = OpenModelFile(result.files, "o/again.cellm");
  ASSERT_TRUE(model.ok()) << model.status().message();
  for (const Source& source : {kSources[0], kSources[1], kSources[5]}) {
    EXPECT_EQ(Distance(*result.model, **model, source), 0.0) << source.name;
  }
  EXPECT_EQ((*model)->tokenizer_json, "{\"tokenizer\":true}");
}

TEST(Convert, LayoutV1FollowsTheOldRecipe) {
  for (const int32_t bits : {8, 4}) {
    SCOPED_TRACE(bits);
    Converted result;
    ConvertOptions options = bits == 8 ? Int8Options() : Int4Options(32);
    options.layout = ConvertLayout::kV1;
    options.embedding = options.attention;
    ASSERT_NO_FATAL_FAILURE(Convert(options, &result));
    const ModelFile& model = *result.model;
    EXPECT_TRUE(model.identity.empty());
    EXPECT_EQ(model.Find("cellm/tokenizer.json"), nullptr);
    EXPECT_EQ(model.Find("model.norm.weight")->format, Format::kF16);
    const Tensor* weight = model.Find("model.layers.0.self_attn.q_proj.weight");
    ASSERT_NE(weight, nullptr);
    EXPECT_EQ(weight->format, bits == 8 ? Format::kI8V1 : Format::kI4V1);
    EXPECT_EQ(weight->shape, (std::vector<int64_t>{48, 64}));
    const Tensor* scales = model.Find("model.layers.0.self_attn.q_proj.weight.qscale");
    ASSERT_NE(scales, nullptr);
    EXPECT_EQ(scales->shape,
              bits == 8 ? (std::vector<int64_t>{48}) : (std::vector<int64_t>{48, 2}));
    // The recipe once more: scale = max|w| / 127 (or 7), round half away from zero.
    std::vector<float> row(64);
    DecodeRow(MustFind(*result.source, "model.layers.0.self_attn.q_proj.weight", 48, 64), 47,
              row.data());
    const size_t group = bits == 8 ? 64 : 32;
    for (size_t c = 0; c < 64; ++c) {
      float largest = 0;
      for (size_t i = c / group * group; i < (c / group + 1) * group; ++i) {
        largest = std::max(largest, std::fabs(row[i]));
      }
      const int code = static_cast<int>(std::lround(row[c] / (largest / (bits == 8 ? 127 : 7))));
      const uint8_t byte = weight->data[bits == 8 ? 47 * 64 + c : (47 * 64 + c) / 2];
      const int stored =
          bits == 8 ? static_cast<int8_t>(byte) : ((c % 2 == 0 ? byte : byte >> 4) & 15) - 8;
      EXPECT_EQ(stored, code) << c;
    }
    // 100 columns and groups of 32: old readers would divide wrongly, so one scale a row.
    EXPECT_EQ(model.Find("model.layers.0.mlp.down_proj.weight.qscale")->shape,
              (std::vector<int64_t>{64}));
    EXPECT_LT(Distance(*result.source, model, kSources[3]), bits == 8 ? 0.01 : 0.13);
    EXPECT_NEAR(result.report.roles[static_cast<int>(TensorRole::kAttention)].RelativeError(),
                Distance(*result.source, model, kSources[3]), 1e-9);
  }
}

// Old readers know no factor beside a tensor: in layout v1 it is in the values.
TEST(Convert, LayoutV1MultipliesTheFactorOfAnFp8MatrixIn) {
  MemoryFiles files = Checkpoint();
  const std::string header =
      R"({"w.weight":{"dtype":"F8_E4M3","shape":[2,4],"data_offsets":[0,8]},)"
      R"("w.weight_scale":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})";
  std::string payload = "\x38\x40\x44\x48\xB8\xC0\x30";  // 1 2 3 4 -1 -2 0.5 0, as OCP E4M3
  payload.push_back('\0');
  const float factor = 0.25f;
  payload.append(reinterpret_cast<const char*>(&factor), 4);
  std::string length(8, '\0');
  length[0] = static_cast<char>(header.size());
  files.files["m/model.safetensors"] = length + header + payload;
  auto source = OpenModelFile(files, "m");
  ASSERT_TRUE(source.ok()) << source.status().message();
  ConvertOptions options;
  options.layout = ConvertLayout::kV1;
  auto out = files.Create("o.cellm");
  ASSERT_TRUE(out.ok());
  const auto report = ConvertModel(**source, options, out->get());
  ASSERT_TRUE(report.ok()) << report.status().message();
  auto model = OpenModelFile(files, "o.cellm");
  ASSERT_TRUE(model.ok()) << model.status().message();
  const Tensor* weight = (*model)->Find("w.weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->format, Format::kF16);
  EXPECT_EQ((*model)->Find("w.weight_scale"), nullptr);
  const float expected[8] = {0.25f, 0.5f, 0.75f, 1.0f, -0.25f, -0.5f, 0.125f, 0.0f};
  for (size_t i = 0; i < 8; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, weight->data.data() + 2 * i, 2);
    EXPECT_EQ(F16ToFloat(bits), expected[i]) << i;
  }
}

TEST(Convert, RepacksVersion1FilesWithoutLoss) {
  auto source = OpenModelFile(platform::SystemFiles(), TestData("format/v1_vectors.cellm"));
  ASSERT_TRUE(source.ok());
  MemoryFiles files;
  auto out = files.Create("o.cellm");
  ASSERT_TRUE(out.ok());
  auto report = ConvertModel(**source, Int8Options(), out->get());
  ASSERT_TRUE(report.ok()) << report.status().message();
  auto model = OpenModelFile(files, "o.cellm");
  ASSERT_TRUE(model.ok()) << model.status().message();
  const struct {
    const char* name;
    int32_t rows, cols;
    bool packed;
  } cases[] = {{"v03", 1, 4, true},  {"v04", 2, 2, true},   {"v05", 1, 5, true},
               {"v06", 1, 4, true},  {"v07", 1, 4, false},  {"v08", 1, 4, true},
               {"v09", 1, 6, true},  {"v10", 1, 128, true}, {"v11", 1, 128, true},
               {"v13", 1, 8, false}, {"v15", 1, 10, false}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    auto before = FindMatrix(**source, c.name, c.rows, c.cols);
    auto after = FindMatrix(**model, c.name, c.rows, c.cols);
    ASSERT_TRUE(before.ok() && after.ok()) << after.status().message();
    EXPECT_EQ(after->format == Format::kPacked, c.packed);
    for (int32_t row = 0; row < c.rows; ++row) {
      std::vector<float> x(static_cast<size_t>(c.cols));
      std::vector<float> y(x.size());
      DecodeRow(*before, row, x.data());
      DecodeRow(*after, row, y.data());
      EXPECT_EQ(x, y);
    }
  }
  EXPECT_EQ((*model)->Find("v03.weight.qscale"), nullptr) << "scales lie inside the packed tensor";
}

TEST(Convert, TextOnlyDropsTowersAndNothingElse) {
  Converted result;
  ConvertOptions options;
  options.text_only = true;
  ASSERT_NO_FATAL_FAILURE(Convert(options, &result));
  EXPECT_EQ(result.model->Find("model.vision_tower.vision_model.encoder.fc1.weight"), nullptr);
  EXPECT_NE(result.model->Find("model.norm.weight"), nullptr);
  EXPECT_EQ(result.report.notes, std::vector<std::string>{"1 tensors are left out"});
}

TEST(Convert, RefusesWhatCannotBe) {
  MemoryFiles files = Checkpoint();
  auto source = OpenModelFile(files, "m");
  ASSERT_TRUE(source.ok());
  const auto convert = [&](const ConvertOptions& options) {
    auto out = files.Create("o.cellm");
    return ConvertModel(**source, options, out->get()).status();
  };
  ConvertOptions options = Int8Options();
  options.attention = {7, 0};
  EXPECT_EQ(convert(options).message(), "packed matrix: 7 bits, expected 1 to 6 or 8");
  options.attention = {4, 24};
  EXPECT_EQ(convert(options).message(),
            "packed matrix: group of 24, expected 0, 16 or a multiple of 32");
  options.layout = ConvertLayout::kV1;
  options.attention = {8, 32};
  EXPECT_EQ(convert(options).code(), StatusCode::kInvalidArgument);
  options.attention = {4, 48};
  EXPECT_EQ(convert(options).message(), "layout v1 has groups of 32, 64, 128 or 256; asked for 48");
  options = {};
  options.dtype = Format::kF64;
  EXPECT_EQ(convert(options).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(files.files.count("o.cellm"), 0u);
  // A weight that is not finite names its tensor and row.
  std::string& bytes = files.files["m/model.safetensors"];
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  bytes[8 + header_bytes + 2 * 64 + 1] = '\x7F';
  bytes[8 + header_bytes + 2 * 64] = '\xC0';
  source = OpenModelFile(files, "m");
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(convert(Int8Options()).message(),
            "model.embed_tokens.weight: row 1 has a value that is not finite and cannot be "
            "quantised");
}

TEST(Convert, ReportsOverflowToHalf) {
  MemoryFiles files = Checkpoint();
  std::string& bytes = files.files["m/model.safetensors"];
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  bytes[8 + header_bytes + 1] = '\x4F';  // 2^31 or so, as bf16
  auto source = OpenModelFile(files, "m");
  ASSERT_TRUE(source.ok());
  auto out = files.Create("o.cellm");
  ConvertOptions options;
  options.dtype = Format::kF16;
  auto report = ConvertModel(**source, options, out->get());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->losses.overflowed, 1);
  ASSERT_FALSE(report->notes.empty());
  EXPECT_EQ(report->notes[0], "1 values are too large for the float type and became infinite");
}

TEST(Convert, StopsWhenAskedAndLeavesNothing) {
  MemoryFiles files = Checkpoint();
  auto source = OpenModelFile(files, "m");
  ASSERT_TRUE(source.ok());
  struct Watch {
    int calls = 0;
    int stop_at = -1;
    uint64_t last = 0;
    uint64_t total = 0;
  };
  const auto report = [](void* user, uint64_t done, uint64_t total, std::string_view tensor) {
    Watch* watch = static_cast<Watch*>(user);
    EXPECT_GE(done, watch->last);
    EXPECT_LE(done, total);
    EXPECT_FALSE(tensor.empty());
    watch->last = done;
    watch->total = total;
    return watch->calls++ != watch->stop_at;
  };
  Watch all;
  ConvertOptions options = Int4Options(32);
  options.progress = {report, &all};
  {
    auto out = files.Create("o.cellm");
    ASSERT_TRUE(ConvertModel(**source, options, out->get()).ok());
  }
  EXPECT_EQ(all.last, all.total);
  files.files.erase("o.cellm");
  for (int stop = 0; stop < all.calls; ++stop) {
    Watch watch;
    watch.stop_at = stop;
    options.progress.user = &watch;
    auto out = files.Create("o.cellm");
    EXPECT_EQ(ConvertModel(**source, options, out->get()).status().code(), StatusCode::kCancelled);
  }
  EXPECT_EQ(files.files.count("o.cellm"), 0u);
}

TEST(Convert, ACheckThatRefusesLeavesNoFile) {
  MemoryFiles files = Checkpoint();
  auto source = OpenModelFile(files, "m");
  ASSERT_TRUE(source.ok()) << source.status().message();
  struct Calls {
    MemoryFiles* files = nullptr;
    bool refuse = true;
    int count = 0;
  } calls = {&files};
  ConvertOptions options = Int8Options();
  options.check.user = &calls;
  options.check.check = [](void* user, const std::string& draft_path) {
    Calls* seen = static_cast<Calls*>(user);
    ++seen->count;
    EXPECT_NE(draft_path, "o.cellm");
    EXPECT_EQ(seen->files->files.count("o.cellm"), 0u) << "asked before it has its name";
    return seen->refuse ? Unsupported("refused") : OkStatus();
  };
  {
    auto out = files.Create("o.cellm");
    EXPECT_EQ(ConvertModel(**source, options, out->get()).status().message(), "refused");
  }
  EXPECT_EQ(files.files.count("o.cellm"), 0u);
  calls.refuse = false;
  {
    auto out = files.Create("o.cellm");
    EXPECT_TRUE(ConvertModel(**source, options, out->get()).ok());
  }
  EXPECT_EQ(files.files.count("o.cellm"), 1u);
  EXPECT_EQ(calls.count, 2);
}

TEST(Convert, AFullDiskLeavesNoHalfFile) {
  // On the real disk, through the real writer: neither the name nor a temporary file stays.
  const std::string folder = ::cellm::testing::TempFolder();
  MemoryFiles memory = Checkpoint();
  auto source = OpenModelFile(memory, "m");
  ASSERT_TRUE(source.ok());
  const std::string path = folder + "/out.cellm";
  for (const FaultyFiles::Fault fault :
       {FaultyFiles::Fault::kDiskFull, FaultyFiles::Fault::kError}) {
    int runs = 0;
    for (;; ++runs) {
      FaultyFiles files(platform::SystemFiles(), fault, runs);
      Status status;
      {
        auto out = files.Create(path);
        status =
            out.ok() ? ConvertModel(**source, Int4Options(32), out->get()).status() : out.status();
      }
      if (!files.fault_happened()) {
        EXPECT_TRUE(status.ok()) << status.message();
        break;
      }
      ASSERT_FALSE(status.ok()) << "fault " << runs;
      EXPECT_EQ(status.code(), StatusCode::kIo);
      auto left = platform::SystemFiles().List(folder);
      ASSERT_TRUE(left.ok());
      EXPECT_TRUE(left->empty()) << (*left)[0] << " after fault " << runs;
    }
    EXPECT_GT(runs, 20);
    EXPECT_TRUE(platform::SystemFiles().IsFile(path));
    EXPECT_EQ(std::remove(path.c_str()), 0);
  }
}

TEST(Convert, RolesOfPublishedNames) {
  const struct {
    const char* name;
    size_t rank;
    TensorRole role;
  } cases[] = {
      {"model.language_model.embed_tokens_per_layer.weight", 2, TensorRole::kEmbedding},
      {"model.layers.3.linear_attn.in_proj_qkv.weight", 2, TensorRole::kAttention},
      {"model.layers.3.linear_attn.in_proj_a.weight", 2, TensorRole::kKept},
      {"model.layers.3.linear_attn.conv1d.weight", 3, TensorRole::kKept},
      {"model.layers.1.mlp.experts.7.up_proj.weight", 2, TensorRole::kMlp},
      {"model.layers.1.mlp.gate.weight", 2, TensorRole::kKept},
      {"model.layers.1.mlp.gate_proj.weight", 2, TensorRole::kMlp},
      {"model.layers.1.feed_forward.w1.weight", 2, TensorRole::kMlp},
      {"model.layers.1.conv.in_proj.weight", 2, TensorRole::kOtherMatrix},
      {"model.layers.1.shared_mlp.input_linear.weight", 2, TensorRole::kMlp},
      {"model.layers.1.per_layer_input_gate.weight", 2, TensorRole::kOtherMatrix},
      {"model.layers.1.self_attn.q_norm.weight", 1, TensorRole::kKept},
      {"lm_head.weight", 2, TensorRole::kHead},
      {"model.vision_tower.layers.0.self_attn.q_proj.weight", 2, TensorRole::kKept},
  };
  for (const auto& c : cases) EXPECT_EQ(RoleOf(c.name, c.rank), c.role) << c.name;
}

}  // namespace
}  // namespace cellm::format
