// What opening costs: time, memory, mappings. On Linux, through /proc.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "format/cellm_writer.h"
#include "format/model_file.h"
#include "support/paths.h"

namespace cellm::format {
namespace {

// A file with 100 tensors of `tensor_bytes` each, on disk.
std::string MakeFile(const std::string& folder, const char* name, size_t tensor_bytes) {
  const std::string path = folder + "/" + name;
  auto out = platform::SystemFiles().Create(path);
  EXPECT_TRUE(out.ok());
  std::vector<CellmTensorPlan> plans;
  for (int i = 0; i < 100; ++i) {
    plans.push_back({"tensor." + std::to_string(1000 + i),
                     "u8",
                     {static_cast<int64_t>(tensor_bytes)},
                     tensor_bytes});
  }
  auto writer = CellmWriter::Begin(out->get(), "\"cellm_source_config\":{\"model_type\":\"x\"}",
                                   std::move(plans), false);
  EXPECT_TRUE(writer.ok());
  const std::vector<uint8_t> bytes(tensor_bytes, 7);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE((*writer)->Append(bytes).ok());
  EXPECT_TRUE((*writer)->Finish().ok());
  EXPECT_TRUE((*out)->Commit().ok());
  return path;
}

int64_t PageFaults() {
  rusage usage{};
  EXPECT_EQ(::getrusage(RUSAGE_SELF, &usage), 0);
  return usage.ru_minflt + usage.ru_majflt;
}

int64_t StatusKilobytes(const char* key) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with(key))
      return std::strtoll(line.c_str() + std::strlen(key) + 1, nullptr, 10);
  }
  return -1;
}

TEST(OpenCost, TenTimesLargerOpensAsFast) {
  const std::string folder = ::cellm::testing::TempFolder();
  const std::string small = MakeFile(folder, "small.cellm", 40 << 10);
  const std::string large = MakeFile(folder, "large.cellm", 400 << 10);
  // The fewest of a few rounds: the first warms code and heap, and sanitizers never reuse a block
  // at once.
  int64_t faults[2] = {INT64_MAX, INT64_MAX};
  for (int round = 0; round < 5; ++round) {
    for (int which = 0; which < 2; ++which) {
      const int64_t before = PageFaults();
      auto model = OpenModelFile(platform::SystemFiles(), which == 0 ? small : large);
      ASSERT_TRUE(model.ok()) << model.status().message();
      faults[which] = std::min(faults[which], PageFaults() - before);
    }
  }
  // 4 MB against 40 MB are 1000 against 10000 pages; the header has three.
  EXPECT_LE(faults[1], faults[0] + 100) << faults[0];
  EXPECT_LE(faults[1], 400);
}

// users.md row 79: peak while loading is not a second copy of the weights.
TEST(OpenCost, OpeningCopiesNoWeights) {
#ifdef CELLM_ASAN
  GTEST_SKIP() << "SKIPPED: the sanitizer's own memory is anonymous, too";
#endif
  const std::string folder = ::cellm::testing::TempFolder();
  const std::string path = MakeFile(folder, "model.cellm", 640 << 10);
  const int64_t before = StatusKilobytes("RssAnon:");
  if (before < 0) GTEST_SKIP() << "SKIPPED: no RssAnon in /proc/self/status";
  auto model = OpenModelFile(platform::SystemFiles(), path);
  ASSERT_TRUE(model.ok());
  EXPECT_TRUE(VerifyChecksums(**model).ok());  // reads all of it
  EXPECT_LE(StatusKilobytes("RssAnon:") - before, 1024) << "kB, for a file of 64 MB";
}

// users.md rows 81 and 82: mapped read-only, each file once, no more than the file's size.
TEST(OpenCost, EachFileIsMappedOnceAndReadOnly) {
  const std::string folder = ::cellm::testing::TempFolder();
  const std::string path = MakeFile(folder, "mapped.cellm", 10000);
  auto model = OpenModelFile(platform::SystemFiles(), path);
  ASSERT_TRUE(model.ok());
  std::ifstream maps("/proc/self/maps");
  std::string line;
  int mappings = 0;
  uint64_t bytes = 0;
  while (std::getline(maps, line)) {
    if (!line.ends_with(path)) continue;
    ++mappings;
    unsigned long long begin = 0;
    unsigned long long end = 0;
    char protection[8] = {};
    ASSERT_EQ(sscanf(line.c_str(), "%llx-%llx %7s", &begin, &end, protection), 3);
    EXPECT_STREQ(protection, "r--p");
    bytes += end - begin;
  }
  EXPECT_EQ(mappings, 1);
  EXPECT_EQ(bytes, ((*model)->files[0].bytes().size() + 4095) / 4096 * 4096);
}

}  // namespace
}  // namespace cellm::format
