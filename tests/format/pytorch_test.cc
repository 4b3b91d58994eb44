// PyTorch checkpoints: what is read, and what is refused without being executed.

#include "format/pytorch.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "format/pytorch_pickle.h"
#include "platform/file.h"
#include "support/paths.h"
#include "tensor/plain_formats.h"

namespace cellm::format {
namespace {

std::string ReadFile(const std::string& name) {
  Result<std::string> text =
      platform::SystemFiles().Read(testing::TestData("pytorch/" + name), 1 << 20);
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? *text : std::string();
}

std::span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

Status Append(const std::string& bytes, ModelFile* model) {
  return AppendPyTorch(Bytes(bytes), "test.bin", 0, model);
}

std::vector<float> Values(const ModelFile& model, std::string_view name) {
  for (const Tensor& tensor : model.tensors) {
    if (tensor.name != name) continue;
    int64_t count = 1;
    for (const int64_t dim : tensor.shape) count *= dim;
    std::vector<float> values(static_cast<size_t>(count));
    DecodePlain(tensor.format, tensor.data.data(), count, values.data());
    return values;
  }
  ADD_FAILURE() << name << " is missing";
  return {};
}

TEST(PyTorch, TensorsAreViewsOfTheirStorages) {
  for (const char* file : {"plain.bin", "protocol4.bin", "wrapped.pt"}) {
    SCOPED_TRACE(file);
    const std::string bytes = ReadFile(file);
    ModelFile model;
    const Status status = Append(bytes, &model);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(model.tensors.size(), 6u);
    EXPECT_EQ(Values(model, "whole"), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
    EXPECT_EQ(Values(model, "tied"), Values(model, "whole"));
    EXPECT_EQ(Values(model, "last_row"), (std::vector<float>{8, 9, 10, 11}));
    EXPECT_EQ(Values(model, "half"), (std::vector<float>{1, -2, 0.5}));
    EXPECT_EQ(Values(model, "brain"), (std::vector<float>{1, -2}));
    EXPECT_EQ(Values(model, "numbers"), (std::vector<float>{7, -1}));
  }
}

TEST(PyTorch, AFileAndAnIndexOpenAsModels) {
  platform::FileSystem& files = platform::SystemFiles();
  auto plain = OpenModelFile(files, testing::TestData("pytorch/plain.bin"));
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ((*plain)->container, "pytorch");
  EXPECT_NE((*plain)->Find("last_row"), nullptr);
  for (const char* path : {"pytorch/sharded", "pytorch/sharded/pytorch_model.bin.index.json"}) {
    auto sharded = OpenModelFile(files, testing::TestData(path));
    ASSERT_TRUE(sharded.ok()) << path << ": " << sharded.status().message();
    ASSERT_EQ((*sharded)->tensors.size(), 2u);
    EXPECT_EQ((*sharded)->tensors[1].file_index, 1u);
    EXPECT_EQ(Values(**sharded, "b"), (std::vector<float>{1, -2, 0.5}));
    EXPECT_TRUE((*sharded)->config->root().Find("model_type").is_string());
  }
}

TEST(PyTorch, WrongFilesAreRefusedByName) {
  struct Bad {
    const char* file;
    StatusCode code;
    const char* message;
  };
  const Bad kBad[] = {
      {"executes.bin", StatusCode::kUnsupported, ".system\""},
      {"compressed.bin", StatusCode::kUnsupported, "compressed or encrypted"},
      {"transposed.bin", StatusCode::kUnsupported, "not stored row by row"},
      {"past_the_end.bin", StatusCode::kCorrupt, "from element 4"},
      {"no_storage.bin", StatusCode::kCorrupt, "storage \"0\""},
      {"no_tensors.bin", StatusCode::kUnsupported, "no tensors"},
      {"old_form.bin", StatusCode::kUnsupported, "before version 1.6"},
      {"README.md", StatusCode::kCorrupt, "no directory"},
  };
  for (const Bad& bad : kBad) {
    SCOPED_TRACE(bad.file);
    ModelFile model;
    const Status status = Append(ReadFile(bad.file), &model);
    EXPECT_EQ(status.code(), bad.code) << status.message();
    EXPECT_TRUE(status.message().starts_with("test.bin")) << status.message();
    EXPECT_NE(status.message().find(bad.message), std::string::npos) << status.message();
  }
}

TEST(PyTorch, EveryCutIsAnError) {
  const std::string whole = ReadFile("plain.bin");
  for (size_t size = 0; size < whole.size(); ++size) {
    ModelFile model;
    EXPECT_FALSE(Append(whole.substr(0, size), &model).ok()) << size;
  }
}

TEST(PyTorch, EveryFlippedBitIsHarmless) {
  const std::string whole = ReadFile("plain.bin");
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    ModelFile model;
    const Status status = Append(damaged, &model);
    EXPECT_TRUE(status.ok() || !status.message().empty());
  }
}

// Programs for the stack machine that break its rules.
TEST(PyTorch, BrokenPicklesAreRefused) {
  struct Program {
    const char* name;
    std::string code;
  };
  const auto text = [](std::string_view s) { return std::string(s); };
  const std::vector<Program> programs = {
      {"empty", ""},
      {"only a stop", "."},
      {"protocol 9", text("\x80\x09.")},
      {"an unknown opcode", text("\x80\x02\xff.")},
      {"an integer opcode of protocol 0", "I12\n."},
      {"a call of nothing", ")R."},
      {"a call of a number", "K\x01)R."},
      {"items for a number", "K\x01(K\x02K\x03u."},
      {"a key alone", "}(K\x02u."},
      {"an unmatched tuple", "t."},
      {"a pop below a mark", "(\x85."},
      {"a memory that is empty", "h\x07."},
      {"a memory of nothing", text("q\x01.")},
      {"a text past the end", std::string("X\xff\xff\xff\x7f", 5)},
      {"a wide integer", text("\x8a\xff.")},
      {"a storage of the wrong things", "(X\x01" + std::string(3, '\0') + "atQ."},
      {"a list as the result", "]."},
      {"attributes for a number", "K\x01}b."},
      {"a function of the shell", "cposix\nsystem\n."},
      {"a function by stack", text("\x80\x04\x8c\x02os\x8c\x06system\x93.")},
  };
  for (const Program& program : programs) {
    SCOPED_TRACE(program.name);
    int skipped = 0;
    const auto tensors = ReadPickledTensors(Bytes(program.code), "test.pkl", &skipped);
    ASSERT_FALSE(tensors.ok());
    EXPECT_TRUE(tensors.status().message().starts_with("test.pkl")) << tensors.status().message();
  }
}

// A value that is pushed again and again costs nothing to write: memory must stay bounded.
TEST(PyTorch, ARepeatedValueDoesNotFillMemory) {
  std::string program = "}q";
  program.push_back('\0');
  for (int i = 0; i < 3000000; ++i) program += std::string("h\0", 2);
  program += ".";
  int skipped = 0;
  const auto tensors = ReadPickledTensors(Bytes(program), "test.pkl", &skipped);
  ASSERT_FALSE(tensors.ok());
  EXPECT_NE(tensors.status().message().find("more values"), std::string::npos);
}

}  // namespace
}  // namespace cellm::format
