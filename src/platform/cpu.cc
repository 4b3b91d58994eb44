#include "platform/cpu.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace cellm::platform {

#if defined(__x86_64__)
namespace {

// XCR0: which register files the system saves on a context switch. Only valid with OSXSAVE.
uint64_t ReadXcr0() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

bool Bit(uint32_t word, int bit) { return ((word >> bit) & 1u) != 0; }

}  // namespace

CpuFeatures DetectCpuFeatures() {
  CpuFeatures features;
  uint32_t a = 0;
  uint32_t b = 0;
  uint32_t c = 0;
  uint32_t d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return features;
  const uint32_t leaf1_c = c;
  const bool osxsave = Bit(leaf1_c, 27);
  if (!osxsave || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return features;
  const uint32_t leaf7_b = b;
  const uint32_t leaf7_c = c;
  uint32_t leaf7_1_a = 0;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) leaf7_1_a = a;

  const uint64_t xcr0 = ReadXcr0();
  const bool ymm_saved = (xcr0 & 0x06u) == 0x06u;  // SSE and AVX state
  const bool zmm_saved = (xcr0 & 0xE6u) == 0xE6u;  // and masks, upper halves, zmm16..31
  const bool fma = Bit(leaf1_c, 12);
  const bool avx = Bit(leaf1_c, 28);
  const bool f16c = Bit(leaf1_c, 29);
  features.avx2 = ymm_saved && avx && fma && f16c && Bit(leaf7_b, 5) && Bit(leaf7_b, 8);
  features.avx512 = features.avx2 && zmm_saved && Bit(leaf7_b, 16) && Bit(leaf7_b, 17) &&
                    Bit(leaf7_b, 30) && Bit(leaf7_b, 31);
  features.avx512_vnni = features.avx512 && Bit(leaf7_c, 11);
  features.avx512_vbmi = features.avx512 && Bit(leaf7_c, 1);
  features.avx512_bf16 = features.avx512 && Bit(leaf7_1_a, 5);
  features.avx_vnni = features.avx2 && Bit(leaf7_1_a, 4);
  return features;
}

#elif defined(__aarch64__)

CpuFeatures DetectCpuFeatures() {
  CpuFeatures features;
  features.neon = true;  // part of the architecture
#if defined(__linux__)
  features.dotprod = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#if defined(HWCAP2_I8MM)
  features.i8mm = (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
#endif
#elif defined(__APPLE__)
  features.dotprod = true;  // every arm64 machine of this system since 2020
#endif
  return features;
}

#else

CpuFeatures DetectCpuFeatures() { return {}; }

#endif

}  // namespace cellm::platform
