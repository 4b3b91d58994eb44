#include "platform/cores.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "support/paths.h"

namespace cellm::platform {
namespace {

struct FakeFile {
  const char* path;
  const char* text;
};

// A folder that looks like the root of a system.
std::string FakeRoot(const std::vector<FakeFile>& files) {
  const std::string root = cellm::testing::TempFolder();
  for (const FakeFile& file : files) {
    const std::string path = root + file.path;
    for (size_t at = root.size() + 1; (at = path.find('/', at)) != std::string::npos; ++at) {
      mkdir(path.substr(0, at).c_str(), 0700);
    }
    std::ofstream(path) << file.text;
  }
  return root;
}

// users.md row 90: quotas of both control group versions, rounded down, at least one.
TEST(Cores, ReadsCpuQuota) {
  const struct {
    const char* name;
    std::vector<FakeFile> files;
    int32_t expected;
  } cases[] = {
      {"nothing there", {}, 0},
      {"v2 without limit",
       {{"/proc/self/cgroup", "0::/app\n"}, {"/sys/fs/cgroup/app/cpu.max", "max 100000\n"}},
       0},
      {"v2, 7.65 CPUs",
       {{"/proc/self/cgroup", "0::/app\n"}, {"/sys/fs/cgroup/app/cpu.max", "765000 100000\n"}},
       7},
      {"v2, half a CPU",
       {{"/proc/self/cgroup", "0::/app\n"}, {"/sys/fs/cgroup/app/cpu.max", "50000 100000\n"}},
       1},
      {"v2, the parent binds",
       {{"/proc/self/cgroup", "0::/a/b\n"},
        {"/sys/fs/cgroup/a/cpu.max", "200000 100000\n"},
        {"/sys/fs/cgroup/a/b/cpu.max", "900000 100000\n"}},
       2},
      {"v2 inside a container: the mount is the group",
       {{"/proc/self/cgroup", "0::/\n"}, {"/sys/fs/cgroup/cpu.max", "300000 100000\n"}},
       3},
      {"v1",
       {{"/proc/self/cgroup", "4:cpu,cpuacct:/docker/x\n3:memory:/docker/x\n"},
        {"/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "450000\n"},
        {"/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n"}},
       4},
      {"v1 without limit",
       {{"/proc/self/cgroup", "1:cpu:/x\n"},
        {"/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n"},
        {"/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n"}},
       0},
      {"a file that lies",
       {{"/proc/self/cgroup", "0::/app\n"}, {"/sys/fs/cgroup/app/cpu.max", "12x\n"}},
       0},
      {"a path that climbs",
       {{"/proc/self/cgroup", "0::/../..\n"}, {"/sys/fs/cgroup/cpu.max", "100000 100000\n"}},
       1},
  };
  for (const auto& test : cases) {
    const std::string root = FakeRoot(test.files);
    EXPECT_EQ(CpuQuota(root), test.expected) << test.name;
    EXPECT_GE(UsableCores(root), 1) << test.name;
    if (test.expected > 0) {
      EXPECT_LE(UsableCores(root), test.expected) << test.name;
    }
  }
}

TEST(Cores, HyperThreadsAndSlowCoresDoNotCount) {
  // CPU 0 is in every affinity mask that this test can meet on an ordinary machine; give all
  // possible CPUs the same sibling list: they are then one core.
  std::vector<std::string> paths;
  std::vector<FakeFile> one_core;
  for (int cpu = 0; cpu < 64; ++cpu) {
    paths.push_back("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                    "/topology/thread_siblings_list");
  }
  for (const std::string& path : paths) one_core.push_back({path.c_str(), "0-63\n"});
  EXPECT_EQ(UsableCores(FakeRoot(one_core)), 1);
}

TEST(Cores, RealSystemAnswers) {
  EXPECT_GE(UsableCores(), 1);
  const MemoryInfo info = ReadMemoryInfo();
  EXPECT_GT(info.total_bytes, 0u);
  EXPECT_GT(info.available_bytes, 0u);
  EXPECT_GT(AnonymousBytes(), 0u);
}

TEST(Cores, ReadsMemoryLimit) {
  const char* const meminfo = "MemTotal:  8000000 kB\nMemFree: 1 kB\nMemAvailable: 4000000 kB\n";
  EXPECT_EQ(ReadMemoryInfo(FakeRoot({{"/proc/meminfo", meminfo}})).limit_bytes, 0u);
  const MemoryInfo v2 = ReadMemoryInfo(FakeRoot({{"/proc/meminfo", meminfo},
                                                 {"/proc/self/cgroup", "0::/a/b\n"},
                                                 {"/sys/fs/cgroup/a/memory.max", "536870912\n"},
                                                 {"/sys/fs/cgroup/a/b/memory.max", "max\n"}}));
  EXPECT_EQ(v2.limit_bytes, 536870912u);
  EXPECT_EQ(v2.total_bytes, uint64_t{8000000} * 1024u);
  EXPECT_EQ(v2.available_bytes, uint64_t{4000000} * 1024u);
  const MemoryInfo v1 = ReadMemoryInfo(
      FakeRoot({{"/proc/meminfo", meminfo},
                {"/proc/self/cgroup", "4:memory:/x\n"},
                {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
                {"/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1048576\n"}}));
  EXPECT_EQ(v1.limit_bytes, 1048576u);
}

// What a group leaves is its limit less what cannot be dropped; of several groups the least counts.
TEST(Cores, ReadsWhatGroupsLeave) {
  const char* const meminfo = "MemTotal:  8000000 kB\nMemAvailable: 4000000 kB\n";
  const MemoryInfo v2 = ReadMemoryInfo(FakeRoot(
      {{"/proc/meminfo", meminfo},
       {"/proc/self/cgroup", "0::/a/b\n"},
       {"/sys/fs/cgroup/a/memory.max", "500000000\n"},
       {"/sys/fs/cgroup/a/memory.current", "450000000\n"},
       {"/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 100000000\nactive_file 50000000\n"},
       {"/sys/fs/cgroup/a/b/memory.max", "400000000\n"},
       {"/sys/fs/cgroup/a/b/memory.current", "1000000\n"},
       {"/sys/fs/cgroup/a/b/memory.stat", "anon 1000000\n"}}));
  EXPECT_EQ(v2.limit_bytes, 400000000u);
  EXPECT_EQ(v2.limit_left_bytes, 200000000u);
  EXPECT_EQ(v2.left_bytes(), 200000000u);
  const MemoryInfo v1 = ReadMemoryInfo(
      FakeRoot({{"/proc/meminfo", meminfo},
                {"/proc/self/cgroup", "4:memory:/x\n"},
                {"/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1000000000\n"},
                {"/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "2000000000\n"},
                {"/sys/fs/cgroup/memory/x/memory.stat",
                 "inactive_file 7\ntotal_inactive_file 1500000000\ntotal_active_file 0\n"}}));
  EXPECT_EQ(v1.left_bytes(), 500000000u);
  const MemoryInfo none = ReadMemoryInfo(FakeRoot({{"/proc/meminfo", meminfo}}));
  EXPECT_EQ(none.left_bytes(), uint64_t{4000000} * 1024u);
}

}  // namespace
}  // namespace cellm::platform
