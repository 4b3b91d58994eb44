#include "machine_limits.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "platform/cpu.h"

namespace cellm::bench {
namespace {

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

volatile uint64_t g_sink;

uint64_t SumBytes(const uint8_t* data, size_t bytes) {
#if defined(__x86_64__)
  static const bool wide = platform::DetectCpuFeatures().avx512_vnni;
  if (wide) return SumBytesAvx512(data, bytes);
#endif
  uint64_t sum = 0;
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    uint64_t word;
    std::memcpy(&word, data + i, 8);
    sum += word;
  }
  return sum;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

uint8_t* HugeBytes(size_t bytes) {
  constexpr size_t kHuge = size_t{2} << 20;
  void* base =
      mmap(nullptr, bytes + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) std::abort();
  const uintptr_t aligned = (reinterpret_cast<uintptr_t>(base) + kHuge - 1) / kHuge * kHuge;
  uint8_t* data = reinterpret_cast<uint8_t*>(aligned);
  madvise(data, bytes, MADV_HUGEPAGE);
  std::memset(data, 0, bytes);
  return data;
}

double ReadRate(int threads) {
  constexpr size_t kBytes = size_t{256} << 20;
  static uint8_t* const data = HugeBytes(kBytes);
  const size_t share = kBytes / static_cast<size_t>(threads);
  std::vector<double> rates;
  for (int round = 0; round < 9; ++round) {
    std::vector<std::thread> pool;
    const double begin = Seconds();
    for (int t = 0; t < threads; ++t) {
      pool.emplace_back([t, share] {
        for (int pass = 0; pass < 2; ++pass) {
          g_sink = SumBytes(data + static_cast<size_t>(t) * share, share);
        }
      });
    }
    for (std::thread& thread : pool) thread.join();
    rates.push_back(2.0 * kBytes / (Seconds() - begin));
  }
  return Median(rates);
}

#if defined(__x86_64__)
namespace {

double LoopRate(double (*loop)(int64_t)) {
  if (!platform::DetectCpuFeatures().avx512_vnni) return 0.0;
  std::vector<double> rates;
  for (int round = 0; round < 9; ++round) {
    const double begin = Seconds();
    const double operations = loop(2'000'000);
    rates.push_back(operations / (Seconds() - begin));
  }
  return Median(rates);
}

}  // namespace

double Int8Rate() { return LoopRate(&DotLoopAvx512); }
double FloatRate() { return LoopRate(&FmaLoopAvx512); }
#else
double Int8Rate() { return 0.0; }
double FloatRate() { return 0.0; }
#endif

}  // namespace cellm::bench
