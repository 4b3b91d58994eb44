// How weights are held must not be seen in the logits, only in the report and in who has the bytes.
#include "model/holding.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "backend/cpu_backend.h"
#include "engine/engine.h"
#include "format/convert.h"
#include "kernels/kernel_table.h"
#include "model/model.h"
#include "platform/file.h"
#include "support/paths.h"
#include "support/tiny_model.h"

namespace cellm {
namespace {

using ::cellm::testing::FailingAllocator;
using ::cellm::testing::RandomTokens;
using ::cellm::testing::TempFolder;
using ::cellm::testing::TinyFormat;
using ::cellm::testing::TinyLlama;
using ::cellm::testing::TinyLlamaFile;

// A real .cellm file of a small llama; matrices as `scheme` says.
std::string WriteModel(const std::string& scheme, bool tied) {
  TinyLlama spec;
  spec.tied = tied;
  spec.vocab = 640;
  const std::unique_ptr<format::ModelFile> source = TinyLlamaFile(spec);
  format::ConvertOptions options;
  options.dtype = Format::kF16;
  const auto parsed = format::ParseQuantScheme(scheme);
  EXPECT_TRUE(parsed.ok());
  options.attention = options.mlp = options.embedding = options.head = *parsed;
  const std::string path = TempFolder() + "/model.cellm";
  auto writer = platform::SystemFiles().Create(path);
  EXPECT_TRUE(writer.ok());
  const auto report = format::ConvertModel(*source, options, writer->get());
  EXPECT_TRUE(report.ok()) << report.status().message();
  return path;
}

Result<std::shared_ptr<const Model>> Load(const std::string& path, HoldingOptions options,
                                          int32_t threads,
                                          Allocator& allocator = SystemAllocator()) {
  CELLM_ASSIGN_OR_RETURN(std::unique_ptr<format::ModelFile> file,
                         format::OpenModelFile(platform::SystemFiles(), path));
  CELLM_ASSIGN_OR_RETURN(const kernels::ChosenKernels kernels, kernels::ChooseKernels(""));
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<platform::ThreadPool> pool,
                         platform::ThreadPool::Create(threads));
  options.pool = pool.get();
  CpuBackend backend(kernels.table, *pool, ActivationMode::kInt8);
  return LoadModel(std::move(file), backend, allocator, LogSink(), options);
}

std::vector<float> Logits(const std::shared_ptr<const Model>& model) {
  EngineOptions options;
  options.threads = 1;
  options.logit_rows = 64;
  auto engine = Engine::Create(model, options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  const auto sequence = (*engine)->CreateSequence();
  // More rows than a table on flash keeps: its pages are given back in between.
  std::vector<float> all;
  for (uint64_t part = 0; part < 10; ++part) {
    const std::vector<int32_t> tokens = RandomTokens(48, 640, part);
    const StepItem item{*sequence, tokens, LogitRows::kAll};
    const auto output = (*engine)->Step({&item, 1});
    EXPECT_TRUE(output.ok()) << output.status().message();
    for (int32_t r = 0; r < output->logits.rows; ++r) {
      all.insert(all.end(), output->logits.row(r), output->logits.row(r) + 640);
    }
  }
  return all;
}

TEST(Holding, LogitsDoNotDependOnIt) {
  for (const char* scheme : {"float", "i8", "i4:32", "i3:32", "ternary"}) {
    for (const bool tied : {false, true}) {
      const std::string path = WriteModel(scheme, tied);
      const auto mapped = Load(path, {}, 1);
      ASSERT_TRUE(mapped.ok()) << mapped.status().message();
      const std::vector<float> expected = Logits(*mapped);
      for (const Holding holding : {Holding::kMapped, Holding::kLoaded}) {
        for (const FlashTable flash : {FlashTable::kDefault, FlashTable::kNo}) {
          for (const int32_t threads : {1, 2}) {
            HoldingOptions options;
            options.holding = holding;
            options.embedding_on_flash = flash;
            const auto model = Load(path, options, threads);
            ASSERT_TRUE(model.ok()) << model.status().message();
            const std::vector<float> logits = Logits(*model);
            EXPECT_TRUE(logits.size() == expected.size() &&
                        std::memcmp(logits.data(), expected.data(), 4 * logits.size()) == 0)
                << scheme << " tied " << tied << " holding " << static_cast<int>(holding)
                << " flash " << static_cast<int>(flash);
            const HoldingReport& report = (*model)->info.holding;
            EXPECT_EQ(report.holding, holding);
            EXPECT_EQ(report.packed_bytes, 0u);
            EXPECT_EQ(report.flash_bytes > 0, !tied && flash == FlashTable::kDefault);
            EXPECT_EQ(report.loaded_bytes > 0, holding == Holding::kLoaded);
            EXPECT_EQ(report.mapped_bytes > 0, holding == Holding::kMapped);
          }
        }
      }
    }
  }
}

// What is loaded is counted, byte for byte; what is mapped costs vectors only.
TEST(Holding, LoadedBytesAreTheAllocators) {
  const std::string path = WriteModel("i4:32", true);
  BudgetAllocator mapped_memory(SystemAllocator(), UINT64_MAX);
  BudgetAllocator loaded_memory(SystemAllocator(), UINT64_MAX);
  HoldingOptions options;
  const auto mapped = Load(path, options, 1, mapped_memory);
  options.holding = Holding::kLoaded;
  const auto loaded = Load(path, options, 1, loaded_memory);
  ASSERT_TRUE(mapped.ok() && loaded.ok());
  EXPECT_EQ(loaded_memory.used_bytes(MemoryClass::kWeights) -
                mapped_memory.used_bytes(MemoryClass::kWeights),
            (*loaded)->info.holding.loaded_bytes);
  EXPECT_EQ((*loaded)->info.holding.loaded_bytes, (*mapped)->info.holding.mapped_bytes);
}

TEST(Holding, EveryRefusedAllocationIsOutOfMemory) {
  const std::string path = WriteModel("i4:32", false);
  HoldingOptions options;
  options.holding = Holding::kLoaded;
  for (int64_t fail_at = 1;; ++fail_at) {
    FailingAllocator memory(fail_at);
    {
      const auto model = Load(path, options, 1, memory);
      if (model.ok()) {
        EXPECT_GT(fail_at, 10);
        break;
      }
      EXPECT_EQ(model.status().code(), StatusCode::kOutOfMemory) << model.status().message();
    }
    EXPECT_EQ(memory.live_bytes(), 0) << fail_at;
  }
}

TEST(Holding, AutoLoadsWhenThereIsRoom) {
  const std::string path = WriteModel("float", true);
  const auto file = format::OpenModelFile(platform::SystemFiles(), path);
  ASSERT_TRUE(file.ok());
  uint64_t bytes = 0;
  for (const format::Tensor& tensor : (*file)->tensors) bytes += tensor.data.size();
  ASSERT_EQ(TensorBytesOf(**file), bytes);
  const uint64_t needed = bytes + bytes / 4 + (uint64_t{256} << 20);
  const struct {
    uint64_t available;
    Holding expected;
  } rows[] = {{0, Holding::kMapped},
              {needed - 1, Holding::kMapped},
              {needed, Holding::kLoaded},
              {UINT64_MAX, Holding::kLoaded}};
  for (const auto& row : rows) {
    HoldingOptions options;
    options.holding = Holding::kAuto;
    options.available_bytes = row.available;
    const auto model = Load(path, options, 1);
    ASSERT_TRUE(model.ok());
    EXPECT_EQ((*model)->info.holding.holding, row.expected) << row.available;
  }
}

TEST(Holding, TiedEmbeddingCannotStayOnFlash) {
  HoldingOptions options;
  options.embedding_on_flash = FlashTable::kYes;
  const auto tied = Load(WriteModel("i8", true), options, 1);
  EXPECT_EQ(tied.status().code(), StatusCode::kInvalidArgument);
  const auto untied = Load(WriteModel("i8", false), options, 1);
  EXPECT_TRUE(untied.ok()) << untied.status().message();
}

// A file that shrank between opening and reading is an error and no fault.
TEST(Holding, FileCutShortWhileOpen) {
  const std::string path = WriteModel("i8", true);
  auto file = format::OpenModelFile(platform::SystemFiles(), path);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ((*file)->files.size(), 1u);
  const platform::FileMapping& mapping = (*file)->files[0];
  const uint64_t size = mapping.bytes().size();
  std::vector<uint8_t> expected(mapping.bytes().end() - 64, mapping.bytes().end());
  std::vector<uint8_t> bytes(64);
  EXPECT_TRUE(mapping.Read(size - 64, bytes).ok());
  EXPECT_EQ(bytes, expected);
  EXPECT_EQ(mapping.Read(size - 63, bytes).code(), StatusCode::kIo);
  EXPECT_EQ(mapping.Read(UINT64_MAX, bytes).code(), StatusCode::kIo);
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(size - 32)), 0);
  const Status status = mapping.Read(size - 64, bytes);
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_NE(status.message().find("cut short"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace cellm
