// Control groups: /proc/self/cgroup names the process's group per hierarchy. Version 2 has one line
// "0::/path" and files cpu.max ("quota period" or "max period") and memory.max; version 1 has lines
// "n:cpu,cpuacct:/path" and files cpu.cfs_quota_us, cpu.cfs_period_us, memory.limit_in_bytes. A
// limit of any ancestor binds too. Inside a container the path may not exist below the mount; the
// mount's root then is the group itself, which the walk up reaches in any case.
#include "platform/cores.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace cellm::platform {
namespace {

constexpr uint64_t kMaxSmallFile = 1 << 20;

// Files of /proc and /sys say that they are empty, so their size is no guide. Empty when absent.
std::string ReadSmall(const std::string& path) {
  std::string text;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  char buffer[4096];
  for (;;) {
    const ssize_t count = ::read(fd, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 || text.size() > kMaxSmallFile) break;
    text.append(buffer, static_cast<size_t>(count));
  }
  ::close(fd);
  return text;
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  return text;
}

// The number that `text` starts with; false when it starts with none.
bool ParseNumber(std::string_view text, int64_t* out) {
  text = Trimmed(text);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc();
}

struct Groups {
  std::string v2;      // "/path", empty when there is no such line
  std::string cpu;     // version 1
  std::string memory;  // version 1
};

Groups ReadGroups(const std::string& root) {
  Groups groups;
  const std::string text = ReadSmall(root + "/proc/self/cgroup");
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t newline = rest.find('\n');
    const std::string_view line = rest.substr(0, newline);
    rest = newline == std::string_view::npos ? std::string_view() : rest.substr(newline + 1);
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    std::string controllers(1, ',');
    controllers.append(line.substr(first + 1, second - first - 1)).push_back(',');
    const std::string path(line.substr(second + 1));
    if (line.substr(0, first) == "0" && controllers == ",,") groups.v2 = path;
    if (controllers.find(",cpu,") != std::string::npos) groups.cpu = path;
    if (controllers.find(",memory,") != std::string::npos) groups.memory = path;
  }
  return groups;
}

// Calls `visit(folder)` for mount + path and every ancestor down to mount itself.
template <typename Visit>
void WalkUp(const std::string& mount, std::string path, const Visit& visit) {
  if (path.find("..") != std::string::npos) path.clear();  // outside our namespace: unreadable
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    visit(mount + path);
    if (path.empty()) return;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

void Lower(int64_t quota, int64_t period, int64_t* cpus_times_1000) {
  if (quota <= 0 || period <= 0) return;
  const int64_t value =
      static_cast<int64_t>(static_cast<double>(quota) / static_cast<double>(period) * 1000.0);
  if (*cpus_times_1000 < 0 || value < *cpus_times_1000) *cpus_times_1000 = value;
}

// Lists like "0-3,8,10-11" as the first number in them.
bool FirstOfList(std::string_view text, int64_t* out) { return ParseNumber(text, out); }

std::vector<int32_t> AllowedCpus() {
  std::vector<int32_t> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<size_t>(cpu), &set)) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace

int32_t CpuQuota(const std::string& root) {
  const Groups groups = ReadGroups(root);
  int64_t milli = -1;
  const std::string mount = root + "/sys/fs/cgroup";
  const auto read_v2 = [&](const std::string& folder) {
    const std::string text = ReadSmall(folder + "/cpu.max");
    int64_t quota = 0;
    int64_t period = 0;
    const size_t space = text.find(' ');
    if (space == std::string::npos || !ParseNumber(text, &quota)) return;  // "max": no limit
    if (ParseNumber(std::string_view(text).substr(space + 1), &period)) {
      Lower(quota, period, &milli);
    }
  };
  WalkUp(mount, groups.v2, read_v2);
  WalkUp(mount + "/unified", groups.v2, read_v2);
  const auto read_v1 = [&](const std::string& folder) {
    int64_t quota = 0;
    int64_t period = 0;
    if (ParseNumber(ReadSmall(folder + "/cpu.cfs_quota_us"), &quota) &&
        ParseNumber(ReadSmall(folder + "/cpu.cfs_period_us"), &period)) {
      Lower(quota, period, &milli);
    }
  };
  WalkUp(mount + "/cpu", groups.cpu, read_v1);
  WalkUp(mount + "/cpu,cpuacct", groups.cpu, read_v1);
  if (milli < 0) return 0;
  return static_cast<int32_t>(std::clamp<int64_t>(milli / 1000, 1, kMaxThreads));
}

int32_t UsableCores(const std::string& root) {
  struct Core {
    int64_t id;        // the lowest CPU of its hyper-threads
    int64_t capacity;  // as the kernel rates it; 1024 where it does not
  };
  std::vector<Core> cores;
  for (const int32_t cpu : AllowedCpus()) {
    const std::string folder = root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
    int64_t id = cpu;
    FirstOfList(ReadSmall(folder + "/topology/thread_siblings_list"), &id);
    int64_t capacity = 1024;
    ParseNumber(ReadSmall(folder + "/cpu_capacity"), &capacity);
    const bool known =
        std::any_of(cores.begin(), cores.end(), [id](const Core& core) { return core.id == id; });
    if (!known) cores.push_back({id, capacity});
  }
  int64_t fastest = 0;
  for (const Core& core : cores) fastest = std::max(fastest, core.capacity);
  int64_t count = 0;
  for (const Core& core : cores) count += core.capacity * 2 >= fastest ? 1 : 0;
  const int32_t quota = CpuQuota(root);
  if (quota > 0) count = std::min<int64_t>(count, quota);
  return static_cast<int32_t>(std::clamp<int64_t>(count, 1, kMaxThreads));
}

MemoryInfo ReadMemoryInfo(const std::string& root) {
  MemoryInfo info;
  const std::string text = ReadSmall(root + "/proc/meminfo");
  const auto field = [&text](std::string_view name) -> uint64_t {
    const size_t at = text.find(name);
    int64_t kilobytes = 0;
    if (at == std::string::npos ||
        !ParseNumber(std::string_view(text).substr(at + name.size()), &kilobytes)) {
      return 0;
    }
    return static_cast<uint64_t>(std::max<int64_t>(kilobytes, 0)) * 1024;
  };
  info.total_bytes = field("MemTotal:");
  info.available_bytes = field("MemAvailable:");

  const Groups groups = ReadGroups(root);
  // The numbers of one group. `cache` names the lines of memory.stat whose pages can be dropped.
  const auto lower = [&info](const std::string& limit_path, const std::string& used_path,
                             const std::string& stat_path,
                             std::initializer_list<std::string_view> cache) {
    int64_t limit = 0;
    if (!ParseNumber(ReadSmall(limit_path), &limit) || limit <= 0) return;  // "max": no limit
    // Version 1 writes an absurdly large number for "no limit".
    const uint64_t bytes = static_cast<uint64_t>(limit);
    if (info.total_bytes != 0 && bytes >= info.total_bytes) return;
    int64_t used = 0;
    int64_t cached = 0;
    ParseNumber(ReadSmall(used_path), &used);
    // Lines "name bytes".
    const std::string stat = ReadSmall(stat_path);
    std::string_view rest = stat;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      const std::string_view line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      const size_t space = std::min(line.find(' '), line.size());
      int64_t pages = 0;
      if (std::find(cache.begin(), cache.end(), line.substr(0, space)) != cache.end() &&
          ParseNumber(line.substr(space), &pages)) {
        cached += std::max<int64_t>(pages, 0);
      }
    }
    used = std::max<int64_t>(used - cached, 0);
    const uint64_t left = bytes - std::min(bytes, static_cast<uint64_t>(used));
    if (info.limit_bytes == 0 || left < info.limit_left_bytes) info.limit_left_bytes = left;
    if (info.limit_bytes == 0 || bytes < info.limit_bytes) info.limit_bytes = bytes;
  };
  const std::string mount = root + "/sys/fs/cgroup";
  const auto read_v2 = [&](const std::string& folder) {
    lower(folder + "/memory.max", folder + "/memory.current", folder + "/memory.stat",
          {"active_file", "inactive_file"});
  };
  WalkUp(mount, groups.v2, read_v2);
  WalkUp(mount + "/unified", groups.v2, read_v2);
  WalkUp(mount + "/memory", groups.memory, [&](const std::string& folder) {
    lower(folder + "/memory.limit_in_bytes", folder + "/memory.usage_in_bytes",
          folder + "/memory.stat", {"total_active_file", "total_inactive_file"});
  });
  return info;
}

uint64_t AnonymousBytes() {
  const std::string text = ReadSmall("/proc/self/status");
  const std::string_view name = "RssAnon:";
  const size_t at = text.find(name);
  int64_t kilobytes = 0;
  if (at == std::string::npos) return 0;
  std::string_view rest = std::string_view(text).substr(at + name.size());
  while (!rest.empty() && (rest.front() == ' ' || rest.front() == '\t')) rest.remove_prefix(1);
  if (!ParseNumber(rest, &kilobytes)) return 0;
  return static_cast<uint64_t>(std::max<int64_t>(kilobytes, 0)) * 1024;
}

}  // namespace cellm::platform
