#include "format/cellm_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/limits.h"
#include "format/cellm_writer.h"
#include "format/find_matrix.h"
#include "support/memory_files.h"
#include "support/paths.h"

namespace cellm::format {
namespace {

using ::cellm::testing::MemoryFiles;
using ::cellm::testing::TestData;

std::string ReadTestData(const char* name) {
  auto text = platform::SystemFiles().Read(TestData(name), 1 << 20);
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? *text : std::string();
}

Result<std::unique_ptr<ModelFile>> Open(const std::string& bytes) {
  MemoryFiles files;
  files.files["f.cellm"] = bytes;
  return OpenModelFile(files, "f.cellm");
}

std::vector<float> Rows(const ModelFile& file, const char* base, int32_t rows, int32_t cols) {
  auto matrix = FindMatrix(file, base, rows, cols);
  EXPECT_TRUE(matrix.ok()) << matrix.status().message();
  if (!matrix.ok()) return {};
  std::vector<float> values(static_cast<size_t>(rows * cols));
  for (int32_t row = 0; row < rows; ++row) {
    DecodeRow(*matrix, row, values.data() + row * cols);
  }
  return values;
}

TEST(CellmV1, ReadsThePublishedVectors) {
  auto model = OpenModelFile(platform::SystemFiles(), TestData("format/v1_vectors.cellm"));
  ASSERT_TRUE(model.ok()) << model.status().message();
  const ModelFile& file = **model;
  EXPECT_EQ(file.container, "cellm");
  EXPECT_TRUE(file.identity.empty());
  using Floats = std::vector<float>;
  auto v1 = FindVector(file, "v01", 5);
  ASSERT_TRUE(v1.ok());
  EXPECT_EQ(*v1, (Floats{1.0f, -2.0f, 0.5f, 0x1.0p-24f, 65504.0f}));
  auto v2 = FindVector(file, "v02", 3);
  ASSERT_TRUE(v2.ok());
  EXPECT_EQ(*v2, (Floats{1.0f, -2.5f, 3.140625f}));
  EXPECT_EQ(Rows(file, "v03", 1, 4),
            (Floats{0.50390625f, -0.99993896484375f, 0.251953125f, 0.10235595703125f}));
  EXPECT_EQ(Rows(file, "v04", 2, 2), (Floats{127.0f, -127.0f, 0.5f, -64.0f}));
  EXPECT_EQ(Rows(file, "v05", 1, 5), (Floats{0.6998291015625f, -0.6998291015625f, 0.2999267578125f,
                                             0.0f, -0.0999755859375f}));
  EXPECT_EQ(Rows(file, "v06", 1, 4), (Floats{-16.0f, 14.0f, 0.0f, 2.0f}));
  EXPECT_EQ(Rows(file, "v07", 1, 4), (Floats{7.0f, 1.0f, -3.5f, 3.5f}));
  EXPECT_EQ(Rows(file, "v08", 1, 4), (Floats{-1.5f, -0.5f, 0.5f, 1.5f}));
  EXPECT_EQ(Rows(file, "v09", 1, 6), (Floats{3.0f, 1.0f, -1.0f, -3.0f, -1.0f, -3.0f}));
  Floats v10(128, -0.5f);
  v10[0] = v10[2] = 0.5f;
  EXPECT_EQ(Rows(file, "v10", 1, 128), v10);
  EXPECT_EQ(Rows(file, "v11", 1, 128), Floats(128, 0.25f));
  EXPECT_EQ(Rows(file, "v12", 1, 13), (Floats{0, 0.001953125f, 0.013671875f, 0.015625f, 0.375f,
                                              0.5f, 1, 1.5f, 2, -1, 240, 240, -240}));
  EXPECT_EQ(Rows(file, "v13", 1, 8), (Floats{-1, -0.5f, 0, 0.5f, 1, 1.5f, 2, 2.5f}));
  EXPECT_EQ(Rows(file, "v14", 1, 8), (Floats{3.75f, 3.5f, 3.25f, 3.0f, 2.75f, 2.5f, 2.25f, 2.0f}));
  EXPECT_EQ(Rows(file, "v15", 1, 10), (Floats{0, 1, 2, 3, 4, 5, 6, 7, 5, 1}));
  EXPECT_TRUE(VerifyChecksums(file).ok());
}

int64_t Integer(json::Value value) {
  int64_t number = -1;
  EXPECT_TRUE(value.GetInt64(&number));
  return number;
}

TEST(CellmV1, BearsWhatOldWritersDo) {
  auto model = OpenModelFile(platform::SystemFiles(), TestData("format/v1_tolerances.cellm"));
  ASSERT_TRUE(model.ok()) << model.status().message();
  const ModelFile& file = **model;
  const Tensor* scale = file.Find("odd.weight.qscale");
  ASSERT_NE(scale, nullptr);
  EXPECT_EQ(scale->file_offset % 2, 1u) << "the sample should have scales at an odd byte";
  EXPECT_EQ(scale->shape, (std::vector<int64_t>{1}));
  EXPECT_EQ(Rows(file, "odd", 1, 3), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(Rows(file, "words", 2, 8),
            (std::vector<float>{3.75f, 3.5f, 3.25f, 3.0f, 2.75f, 2.5f, 2.25f, 2.0f, -1, -0.5f, 0,
                                0.5f, 1, 1.5f, 2, 2.5f}));
  const json::Value config = file.config->root();
  ASSERT_EQ(config.Find("eos_token_id").size(), 2u);
  EXPECT_EQ(Integer(config.Find("eos_token_id").At(1)), 1);
  EXPECT_EQ(Integer(config.Find("head_dim")), 3) << "from k_proj's rows and num_kv_heads";
  EXPECT_EQ(Integer(config.Find("hidden_size")), 4);
  EXPECT_EQ(Integer(config.Find("num_hidden_layers")), 1);
  EXPECT_EQ(Integer(config.Find("num_attention_heads")), 2);
  EXPECT_EQ(Integer(config.Find("num_key_value_heads")), 1);
  EXPECT_EQ(Integer(config.Find("rope_theta")), 1000000);
  EXPECT_FALSE(config.Find("max_position_embeddings").exists());
  std::string_view text;
  EXPECT_TRUE(config.Find("rope_scaling").Find("rope_type").GetString(&text));
  EXPECT_EQ(text, "llama3");
  EXPECT_EQ(Integer(config.Find("rope_scaling").Find("original_max_position_embeddings")), 256);
  bool tied = false;
  EXPECT_TRUE(config.Find("tie_word_embeddings").GetBool(&tied));
  EXPECT_TRUE(tied);
}

// A version-1 file with these header members and `payload` bytes from byte `start` on.
std::string V1File(const std::string& members, const std::string& tensors, size_t payload,
                   size_t start = 320) {
  const std::string header = "{" + members + ",\"tensors\":" + tensors + "}";
  std::string file = "CELLM\x01";
  const uint32_t length = static_cast<uint32_t>(header.size());
  file.append(reinterpret_cast<const char*>(&length), 4);
  file += header;
  if (payload != 0) {
    EXPECT_LE(file.size(), start);
    file.resize(start, '\0');
  }
  file.append(payload, '\x01');
  return file;
}

const char kMembers[] =
    R"("model_type":"llama","vocab_size":1,"hidden_dim":1,"intermediate_size":1,"num_layers":1,)"
    R"("num_heads":1,"num_kv_heads":1,"rms_norm_eps":1e-05,"rope_theta":10000.0)";

std::string Entry(const char* offset, const char* bytes, const char* shape = "[4]",
                  const char* dtype = "\"u8\"") {
  return std::string("[{\"name\":\"a\",\"offset_bytes\":") + offset + ",\"nbytes\":" + bytes +
         ",\"shape\":" + shape + ",\"dtype\":" + dtype + "}]";
}

TEST(CellmV1, RefusesWithOneClearLine) {
  const std::string good = V1File(kMembers, Entry("320", "4"), 4);
  ASSERT_TRUE(Open(good).ok()) << Open(good).status().message();
  std::string version = good;
  version[5] = 2;
  std::string long_header = good;
  long_header[8] = 1;
  uint32_t header_bytes = 0;
  std::memcpy(&header_bytes, good.data() + 6, 4);
  const std::string header_end = std::to_string(10 + header_bytes);
  const std::string long_end = std::to_string(10 + header_bytes + 65536);
  const struct {
    std::string bytes;
    StatusCode code;
    std::string message;
  } cases[] = {
      {good.substr(0, 9), StatusCode::kCorrupt, "f.cellm: 9 bytes, expected at least 10"},
      {version, StatusCode::kUnsupported, "f.cellm: version 2 of the .cellm format, expected 1"},
      {long_header, StatusCode::kCorrupt,
       StrFormat("f.cellm: header ends at byte %s, file has 324; the file is cut short",
                 long_end.c_str())},
      {V1File(kMembers, Entry("320", "5", "[5]"), 4), StatusCode::kCorrupt,
       "f.cellm: tensor \"a\": data ends at byte 325, file has 324; the file is cut short"},
      {V1File(kMembers, Entry("18446744073709551615", "4"), 4), StatusCode::kCorrupt,
       "f.cellm: tensor \"a\": offset 18446744073709551615 and length 4 overflow"},
      {V1File(kMembers, Entry("320", "18446744073709551615"), 4), StatusCode::kCorrupt,
       "f.cellm: tensor \"a\": offset 320 and length 18446744073709551615 overflow"},
      {V1File(kMembers, Entry("128", "4"), 4), StatusCode::kCorrupt,
       StrFormat(
           "f.cellm: tensor \"a\": data begins at byte 128, inside the header, which ends at %s",
           header_end.c_str())},
      {V1File(kMembers, Entry("-1", "4"), 4), StatusCode::kCorrupt,
       "f.cellm: tensor \"a\": offset_bytes is not a non-negative integer"},
      {V1File(kMembers, Entry("320", "3"), 4), StatusCode::kCorrupt,
       "f.cellm: tensor \"a\": 3 bytes, expected 4 for u8 [4]"},
      {V1File(kMembers, Entry("320", "4", "[2]", "\"i9\""), 4), StatusCode::kUnsupported,
       "f.cellm: tensor \"a\": element type \"i9\" is not supported"},
      {V1File(kMembers, Entry("320", "4", "[4]", "\"x16.u4.g7.z16.f16\""), 4),
       StatusCode::kUnsupported,
       "f.cellm: tensor \"a\": element type \"x16.u4.g7.z16.f16\" is not supported"},
      {V1File(kMembers, "[{}]", 0), StatusCode::kCorrupt,
       "f.cellm: entry 0 of \"tensors\" has no name"},
      {V1File(kMembers, "7", 0), StatusCode::kCorrupt, "f.cellm: header has no list \"tensors\""},
      {V1File("\"model_type\":\"llama\",\"vocab_size\":0", "[]", 0), StatusCode::kCorrupt,
       "f.cellm: header key \"vocab_size\" is 0, expected an integer from 1 to 1048576"},
      {V1File("\"model_type\":\"llama\",\"vocab_size\":8,\"hidden_dim\":-5", "[]", 0),
       StatusCode::kCorrupt,
       "f.cellm: header key \"hidden_dim\" is -5, expected an integer from 1 to 4194304"},
      {V1File("\"model_type\":\"llama\",\"vocab_size\":8", "[]", 0), StatusCode::kCorrupt,
       "f.cellm: header key \"hidden_dim\" is missing, expected an integer from 1 to 4194304"},
      {V1File("\"model_type\":7", "[]", 0), StatusCode::kCorrupt,
       "f.cellm: header key \"model_type\" is not a string"},
      {V1File("\"cellm_file_hash\":\"0123456789abcdef\",\"cellm_revision\":2", "[]", 0),
       StatusCode::kUnsupported,
       "f.cellm: revision 2 of our additions, this version reads up to 1"},
      {V1File("\"cellm_file_hash\":\"0123456789abcdef\"", "[]", 0), StatusCode::kCorrupt,
       "f.cellm: cellm_revision is not a positive integer"},
      {V1File("\"cellm_file_hash\":\"0123456789ABCDEF\",\"cellm_revision\":1", "[]", 0),
       StatusCode::kCorrupt, "f.cellm: cellm_file_hash is not 16 hexadecimal digits"},
      {V1File("\"a\":1,\"cellm_file_hash\":\"0123456789abcdef\"", "[]", 0), StatusCode::kCorrupt,
       "f.cellm: cellm_file_hash is not the header's first key"},
  };
  for (const auto& c : cases) {
    auto model = Open(c.bytes);
    ASSERT_FALSE(model.ok()) << c.message;
    EXPECT_EQ(model.status().message(), c.message);
    EXPECT_EQ(model.status().code(), c.code) << c.message;
  }
  const std::string two =
      V1File(kMembers,
             R"([{"name":"a","offset_bytes":384,"nbytes":4,"shape":[4],"dtype":"u8"},)"
             R"({"name":"b","offset_bytes":387,"nbytes":4,"shape":[4],"dtype":"u8"}])",
             8, 384);
  EXPECT_EQ(Open(two).status().message(),
            "f.cellm: tensor \"b\" overlaps tensor \"a\" at byte 387");
  const std::string twice =
      V1File(kMembers,
             R"([{"name":"a","offset_bytes":384,"nbytes":4,"shape":[4],"dtype":"u8"},)"
             R"({"name":"a","offset_bytes":388,"nbytes":4,"shape":[4],"dtype":"u8"}])",
             8, 384);
  EXPECT_EQ(Open(twice).status().message(), "f.cellm: tensor \"a\": named twice");
}

TEST(CellmV1, SaysWhatIsWrongWithScales) {
  const auto file = [](const char* scales, size_t payload) {
    return V1File(kMembers,
                  std::string("[{\"name\":\"w.weight\",\"offset_bytes\":448,\"nbytes\":8,"
                              "\"shape\":[2,4],\"dtype\":\"i8\"}") +
                      scales + "]",
                  payload, 448);
  };
  const struct {
    const char* scales;
    const char* message;
  } cases[] = {
      {"", "f.cellm: tensor \"w.weight\": no scales; expected a tensor \"w.weight.qscale\""},
      {R"(,{"name":"w.weight.qscale","offset_bytes":512,"nbytes":6,"shape":[3],"dtype":"f16"})",
       "f.cellm: tensor \"w.weight.qscale\": 3 scales for 2 rows"},
      {R"(,{"name":"w.weight.qscale","offset_bytes":512,"nbytes":12,"shape":[6],"dtype":"f16"})",
       "f.cellm: tensor \"w.weight.qscale\": 3 scales a row, which fits no group size of 4 "
       "columns"},
      {R"(,{"name":"w.weight.qscale","offset_bytes":512,"nbytes":2,"shape":[2],"dtype":"u8"})",
       "f.cellm: tensor \"w.weight.qscale\": scales are f16, bf16 or f32, found \"u8\""},
  };
  for (const auto& c : cases) {
    auto model = Open(file(c.scales, 128));
    ASSERT_TRUE(model.ok()) << model.status().message();
    auto matrix = FindMatrix(**model, "w", 2, 4);
    ASSERT_FALSE(matrix.ok());
    EXPECT_EQ(matrix.status().message(), c.message);
    EXPECT_EQ(matrix.status().code(), StatusCode::kCorrupt);
  }
}

TEST(CellmV1, InfersGroupsAsWritersMeantThem) {
  EXPECT_EQ(FindMatrix(ModelFile{}, "x", 1, 1).status().code(), StatusCode::kNotFound);
  const struct {
    int32_t cols;
    int64_t scales;
    int32_t group;
  } cases[] = {{64, 1, 0},   {64, 2, 32}, {200, 2, 128}, {200, 7, 32},
               {576, 9, 64}, {4, 2, 2},   {100, 4, 32},  {2048, 8, 256},
               {96, 7, -1},  {96, 0, -1}, {96, 200, -1}, {96, -3, -1}};
  for (const auto& c : cases) EXPECT_EQ(InferGroup(c.cols, c.scales), c.group) << c.cols;
}

TEST(CellmV1, TheSourceConfigurationWinsOverLossyKeys) {
  const std::string members = std::string(kMembers) +
                              R"(,"source_text_config":{"model_type":"gemma3_text","rope_theta":)"
                              R"(5e5,"vocab_size":9,"quantization":{"bits":4},"pad":null},)"
                              R"("source_architectures":["G"],"eos_token_id":7)";
  auto model = Open(V1File(members, "[]", 0));
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(json::Serialize((*model)->config->root()),
            R"({"model_type":"gemma3_text","rope_theta":500000.0,"vocab_size":9,)"
            R"("rms_norm_eps":1e-05,"eos_token_id":7,"architectures":["G"],"hidden_size":1,)"
            R"("intermediate_size":1,"num_hidden_layers":1,"num_attention_heads":1,)"
            R"("num_key_value_heads":1,"tie_word_embeddings":true})");
  EXPECT_FALSE((*model)->rope_interleaved);
}

TEST(CellmV1, KnowsInterleavedRotaryOfGgufConversions) {
  // No trace of a source: made from GGUF, and the rows of q and k pair neighbours.
  auto made_from_gguf = Open(V1File(kMembers, "[]", 0));
  ASSERT_TRUE(made_from_gguf.ok());
  EXPECT_TRUE((*made_from_gguf)->rope_interleaved);
  EXPECT_EQ((*made_from_gguf)->notes.size(), 1u);
  auto stated = Open(V1File(std::string(kMembers) + ",\"rope_interleaved\":false", "[]", 0));
  ASSERT_TRUE(stated.ok());
  EXPECT_FALSE((*stated)->rope_interleaved);
  auto from_safetensors =
      Open(V1File(std::string(kMembers) + ",\"source_safetensors_format\":\"pt\"", "[]", 0));
  ASSERT_TRUE(from_safetensors.ok());
  EXPECT_FALSE((*from_safetensors)->rope_interleaved);
}

TEST(CellmV1, FindsTheTokenizerBesideIt) {
  MemoryFiles files;
  files.files["d/f.cellm"] = V1File(kMembers, "[]", 0);
  files.files["d/tokenizer.json"] = "T";
  files.files["d/tokenizer_config.json"] = "{\"chat_template\":\"C\"}";
  auto model = OpenModelFile(files, "d/f.cellm");
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ((*model)->tokenizer_json, "T");
  EXPECT_EQ((*model)->chat_template, "C");
}

// A small file of ours: two tensors, one text.
std::string OwnFile() {
  MemoryFiles files;
  auto out = files.Create("own.cellm");
  EXPECT_TRUE(out.ok());
  auto writer = CellmWriter::Begin(
      out->get(), "\"cellm_source_config\":{\"model_type\":\"llama\"},\"model_type\":\"llama\"",
      {{"w", "f16", {3}, 6},
       {"cellm/tokenizer.json", "u8", {5}, 5},
       {"nothing", "f32", {0}, 0},
       {"b", "u8", {2, 2}, 4}},
      false);
  EXPECT_TRUE(writer.ok()) << writer.status().message();
  const uint8_t bytes[] = {1, 2, 3, 4, 5, 6};
  // Sorted: b, cellm/tokenizer.json, nothing, w.
  EXPECT_TRUE((*writer)->Append({bytes, 3}).ok());
  EXPECT_TRUE((*writer)->Append({bytes + 3, 1}).ok());
  EXPECT_TRUE((*writer)->Append({bytes, 5}).ok());
  EXPECT_TRUE((*writer)->Append({bytes, 6}).ok());
  EXPECT_TRUE((*writer)->Finish().ok());
  EXPECT_TRUE((*out)->Commit().ok());
  return files.files["own.cellm"];
}

TEST(CellmOwn, WhatTheWriterWroteTheReaderReads) {
  const std::string bytes = OwnFile();
  auto model = Open(bytes);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const ModelFile& file = **model;
  ASSERT_EQ(file.tensors.size(), 4u);
  EXPECT_EQ(file.identity.size(), 16u);
  EXPECT_EQ(file.tokenizer_json, std::string_view("\1\2\3\4\5", 5));
  for (const Tensor& tensor : file.tensors) {
    EXPECT_TRUE(tensor.has_checksum);
    EXPECT_EQ(tensor.file_offset % 64, 0u);
  }
  EXPECT_EQ(file.Find("w")->data[5], 6);
  EXPECT_TRUE(VerifyChecksums(file).ok());
  // The same input gives the same bytes, and so the same identity.
  EXPECT_EQ(OwnFile(), bytes);
}

TEST(CellmOwn, EveryCutAndEveryFlippedBitIsFound) {
  const std::string whole = OwnFile();
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    EXPECT_FALSE(Open(whole.substr(0, cut)).ok()) << cut;
  }
  uint32_t header_bytes = 0;
  std::memcpy(&header_bytes, whole.data() + 6, 4);
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string changed = whole;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    auto model = Open(changed);
    if (bit / 8 < 10 + header_bytes) {
      EXPECT_FALSE(model.ok()) << "header byte " << bit / 8;
    } else {
      ASSERT_TRUE(model.ok()) << bit / 8 << ": payloads are not read at opening";
      EXPECT_EQ(VerifyChecksums(**model).code(), StatusCode::kCorrupt) << "byte " << bit / 8;
    }
  }
}

TEST(CellmOwn, VerifyNamesTheTensor) {
  std::string changed = OwnFile();
  changed.back() = static_cast<char>(changed.back() ^ 1);
  auto model = Open(changed);
  ASSERT_TRUE(model.ok());
  const Status status = VerifyChecksums(**model);
  EXPECT_TRUE(status.message().starts_with("f.cellm: tensor \"w\": checksum is "))
      << status.message();
}

TEST(CellmOwn, UnalignedPayloadsAreRefused) {
  // Well hashed, but at byte 321 instead of 320: made by hand, since our writer cannot.
  std::string header =
      std::string(kCellmIdentityStart) +
      "0000000000000000\",\"cellm_revision\":1,\"cellm_source_config\":{},\"tensors\":" +
      Entry("321", "4") + "}";
  header.replace(kCellmIdentityStart.size(), 16, CellmIdentity(header));
  std::string file = "CELLM\x01";
  const uint32_t length = static_cast<uint32_t>(header.size());
  file.append(reinterpret_cast<const char*>(&length), 4);
  file += header;
  file.resize(400, '\0');
  EXPECT_EQ(Open(file).status().message(),
            "f.cellm: tensor \"a\": data begins at byte 321, expected a multiple of 64");
}

// Whatever opens can be asked for anything without harm.
void Exercise(const ModelFile& file) {
  for (const Tensor& tensor : file.tensors) {
    const size_t rank = tensor.shape.size();
    if (rank < 2) {
      (void)FindVector(file, tensor.name, static_cast<int64_t>(tensor.data.size())).ok();
      continue;
    }
    const int32_t rows = static_cast<int32_t>(std::min<int64_t>(tensor.shape[rank - 2], 1 << 20));
    const int32_t cols = static_cast<int32_t>(std::min<int64_t>(tensor.shape[rank - 1], 1 << 20));
    std::string base = tensor.name;
    if (base.ends_with(".weight")) base.resize(base.size() - 7);
    auto matrix = FindMatrix(file, base, rows, cols, rank == 3 ? 0 : -1);
    if (!matrix.ok()) continue;
    std::vector<float> row(static_cast<size_t>(cols));
    DecodeRow(*matrix, rows - 1, row.data());
  }
  (void)VerifyChecksums(file).ok();
}

// users.md row 95: damaged files give typed errors, never a crash.
TEST(CellmV1, EveryCutAndEveryFlippedBitIsSurvived) {
  for (const char* name : {"format/v1_smallest.cellm", "format/v1_tolerances.cellm"}) {
    const std::string whole = ReadTestData(name);
    ASSERT_TRUE(Open(whole).ok()) << Open(whole).status().message();
    for (size_t cut = 0; cut < whole.size(); ++cut) {
      EXPECT_FALSE(Open(whole.substr(0, cut)).ok()) << name << ' ' << cut;
    }
    uint32_t header_bytes = 0;
    std::memcpy(&header_bytes, whole.data() + 6, 4);
    for (size_t bit = 0; bit < (10 + header_bytes) * 8; ++bit) {
      std::string changed = whole;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
      auto model = Open(changed);
      if (model.ok()) Exercise(**model);
    }
    for (const uint32_t length :
         {uint32_t{0}, uint32_t{1}, header_bytes - 1, header_bytes + 1,
          static_cast<uint32_t>(whole.size()) - 10, static_cast<uint32_t>(whole.size()) - 9,
          UINT32_MAX, UINT32_MAX - 9}) {
      std::string changed = whole;
      std::memcpy(changed.data() + 6, &length, 4);
      // One byte more is a zero of the padding, which no JSON may hold.
      EXPECT_FALSE(Open(changed).ok()) << length;
    }
  }
}

TEST(CellmV1, HexDumpInTheSpecificationIsTheSmallestFile) {
  const std::string bytes = ReadTestData("format/v1_smallest.cellm");
  std::string dump;
  for (size_t at = 0; at < bytes.size(); at += 16) {
    char text[80];
    snprintf(text, sizeof(text), "%08zx ", at);
    dump += text;
    std::string shown;
    for (size_t i = at; i < at + 16; ++i) {
      if (i < bytes.size()) {
        const unsigned char byte = static_cast<unsigned char>(bytes[i]);
        snprintf(text, sizeof(text), " %02x", byte);
        dump += text;
        shown.push_back(byte >= 0x20 && byte < 0x7F ? static_cast<char>(byte) : '.');
      } else {
        dump += "   ";
      }
    }
    dump += "  " + shown + "\n";
  }
  auto document = platform::SystemFiles().Read(TestData("../docs/format.md"), uint64_t{1} << 20);
  ASSERT_TRUE(document.ok());
  EXPECT_NE(document->find(dump), std::string::npos) << "docs/format.md should hold:\n" << dump;
}

}  // namespace
}  // namespace cellm::format
