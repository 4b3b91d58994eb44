#ifndef CELLM_SRC_PLATFORM_CPU_H_
#define CELLM_SRC_PLATFORM_CPU_H_

// What this CPU can do and the operating system lets us use.

namespace cellm::platform {

// Each flag is true only when the instructions may be executed here: on x86 the CPUID bit and the
// register state enabled by the system (XGETBV), on arm64 the HWCAP bit.
struct CpuFeatures {
  // x86
  bool avx2 = false;    // with FMA, F16C and BMI2
  bool avx512 = false;  // F, BW, DQ, VL (and the avx2 set)
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool avx512_vbmi = false;
  bool avx_vnni = false;
  // arm64
  bool neon = false;
  bool dotprod = false;
  bool i8mm = false;
};

// Asks the CPU anew at each call (microseconds). Any thread.
CpuFeatures DetectCpuFeatures();

}  // namespace cellm::platform

#endif  // CELLM_SRC_PLATFORM_CPU_H_
