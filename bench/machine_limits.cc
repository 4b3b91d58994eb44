#include "machine_limits.h"

#include <sys/mman.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "platform/cpu.h"

namespace cellm::bench {
namespace {

double Seconds(Timer timer) {
  if (timer == Timer::kOwn) {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }
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

double ReadRate(int threads, Timer timer) {
  constexpr size_t kBytes = size_t{256} << 20;
  uint8_t* const data = HugeBytes(kBytes);
  const size_t share = kBytes / static_cast<size_t>(threads);
  std::vector<double> rates;
  for (int round = 0; round < 9; ++round) {
    std::vector<std::thread> pool;
    const double begin = Seconds(timer);
    const auto read = [share, data](int t) {
      for (int pass = 0; pass < 2; ++pass) {
        g_sink = SumBytes(data + static_cast<size_t>(t) * share, share);
      }
    };
    for (int t = 1; t < threads; ++t) pool.emplace_back(read, t);
    read(0);
    for (std::thread& thread : pool) thread.join();
    rates.push_back(2.0 * kBytes / (Seconds(timer) - begin));
  }
  munmap(data, kBytes);
  return Median(rates);
}

namespace {

using Loop = double (*)(int64_t rounds);

// The median of several rounds in which every thread runs the loop once.
double LoopRate(Loop loop, int threads, Timer timer) {
  if (loop == nullptr) return 0.0;
  constexpr int64_t kRounds = 2'000'000;
  std::vector<double> rates;
  for (int round = 0; round < 9; ++round) {
    const double begin = Seconds(timer);
    std::vector<std::thread> pool;
    std::vector<double> done(static_cast<size_t>(threads));
    for (size_t t = 1; t < done.size(); ++t) {
      pool.emplace_back([&done, loop, t] { done[t] = loop(kRounds); });
    }
    done[0] = loop(kRounds);
    for (std::thread& thread : pool) thread.join();
    double operations = 0;
    for (const double count : done) operations += count;
    rates.push_back(operations / (Seconds(timer) - begin));
  }
  return Median(rates);
}

#if defined(__x86_64__)

// Twelve sums in flight hide the latency.
__attribute__((target("avx2"))) double DotLoopAvx2(int64_t rounds) {
  __m256i sums[12];
  for (int i = 0; i < 12; ++i) sums[i] = _mm256_set1_epi32(i);
  __m256i w = _mm256_set1_epi32(static_cast<int>(rounds));
  const __m256i x = _mm256_set1_epi8(1);
  const __m256i ones = _mm256_set1_epi16(1);
  for (int64_t r = 0; r < rounds; ++r) {
    __asm__ volatile("" : "+x"(w));
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) {
      __asm__ volatile("" : "+x"(w));
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), ones));
    }
  }
  for (int i = 0; i < 12; ++i) __asm__ volatile("" : "+x"(sums[i]));
  return static_cast<double>(rounds) * 12 * 32 * 2;
}

__attribute__((target("avx2,fma"))) double FmaLoopAvx2(int64_t rounds) {
  __m256 sums[12];
  for (int i = 0; i < 12; ++i) sums[i] = _mm256_set1_ps(static_cast<float>(i));
  __m256 w = _mm256_set1_ps(static_cast<float>(rounds));
  const __m256 x = _mm256_set1_ps(1e-9f);
  for (int64_t r = 0; r < rounds; ++r) {
    __asm__ volatile("" : "+x"(w));
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) sums[i] = _mm256_fmadd_ps(w, x, sums[i]);
  }
  for (int i = 0; i < 12; ++i) __asm__ volatile("" : "+x"(sums[i]));
  return static_cast<double>(rounds) * 12 * 8 * 2;
}

Loop DotLoop() {
  const platform::CpuFeatures cpu = platform::DetectCpuFeatures();
  return cpu.avx512_vnni ? DotLoopAvx512 : cpu.avx2 ? DotLoopAvx2 : nullptr;
}
Loop FmaLoop() {
  const platform::CpuFeatures cpu = platform::DetectCpuFeatures();
  return cpu.avx512_vnni ? FmaLoopAvx512 : cpu.avx2 ? FmaLoopAvx2 : nullptr;
}
Loop Bf16Loop() {
  const platform::CpuFeatures cpu = platform::DetectCpuFeatures();
  return cpu.avx512_vnni && cpu.avx512_bf16 ? Bf16LoopAvx512 : nullptr;
}

#elif defined(__aarch64__)

double FmaLoopNeon(int64_t rounds) {
  float32x4_t sums[16];
  for (int i = 0; i < 16; ++i) sums[i] = vdupq_n_f32(static_cast<float>(i));
  float32x4_t w = vdupq_n_f32(static_cast<float>(rounds));
  const float32x4_t x = vdupq_n_f32(1e-9f);
  for (int64_t r = 0; r < rounds; ++r) {
    __asm__ volatile("" : "+w"(w));
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) sums[i] = vfmaq_f32(sums[i], w, x);
  }
  for (int i = 0; i < 16; ++i) __asm__ volatile("" : "+w"(sums[i]));
  return static_cast<double>(rounds) * 16 * 4 * 2;
}

Loop DotLoop() { return nullptr; }
Loop FmaLoop() { return FmaLoopNeon; }
Loop Bf16Loop() { return nullptr; }

#else

Loop DotLoop() { return nullptr; }
Loop FmaLoop() { return nullptr; }
Loop Bf16Loop() { return nullptr; }

#endif

}  // namespace

double Int8Rate(int threads, Timer timer) { return LoopRate(DotLoop(), threads, timer); }
double FloatRate(int threads, Timer timer) { return LoopRate(FmaLoop(), threads, timer); }
double Bf16Rate(int threads, Timer timer) { return LoopRate(Bf16Loop(), threads, timer); }

}  // namespace cellm::bench
