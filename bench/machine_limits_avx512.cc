// Loops that do nothing but what is measured. Called only where the CPU has AVX-512 VNNI.

#include <immintrin.h>

#include "machine_limits.h"

namespace cellm::bench {

uint64_t SumBytesAvx512(const uint8_t* data, size_t bytes) {
  __m512i a = _mm512_setzero_si512();
  __m512i b = a;
  __m512i c = a;
  __m512i d = a;
  for (size_t i = 0; i + 256 <= bytes; i += 256) {
    _mm_prefetch(reinterpret_cast<const char*>(data) + i + 2048, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(data) + i + 2112, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(data) + i + 2176, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(data) + i + 2240, _MM_HINT_T0);
    a = _mm512_add_epi64(a, _mm512_loadu_si512(data + i));
    b = _mm512_add_epi64(b, _mm512_loadu_si512(data + i + 64));
    c = _mm512_add_epi64(c, _mm512_loadu_si512(data + i + 128));
    d = _mm512_add_epi64(d, _mm512_loadu_si512(data + i + 192));
  }
  a = _mm512_add_epi64(_mm512_add_epi64(a, b), _mm512_add_epi64(c, d));
  return static_cast<uint64_t>(_mm512_reduce_add_epi64(a));
}

double DotLoopAvx512(int64_t rounds) {
  __m512i sums[12];
  for (int i = 0; i < 12; ++i) sums[i] = _mm512_set1_epi32(i);
  __m512i w = _mm512_set1_epi32(static_cast<int>(rounds));
  const __m512i x = _mm512_set1_epi32(0x01010101);
  for (int64_t r = 0; r < rounds; ++r) {
    __asm__ volatile("" : "+v"(w));
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], w, x);
  }
  for (int i = 0; i < 12; ++i) __asm__ volatile("" : "+v"(sums[i]));
  return static_cast<double>(rounds) * 12 * 64 * 2;
}

__attribute__((target("avx512bf16"))) double Bf16LoopAvx512(int64_t rounds) {
  __m512 sums[12];
  for (int i = 0; i < 12; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  __m512i bits = _mm512_set1_epi16(static_cast<short>(0x3F00 + (rounds & 1)));
  const __m512i x = _mm512_set1_epi16(0x3280);
  for (int64_t r = 0; r < rounds; ++r) {
    __asm__ volatile("" : "+v"(bits));
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) {
      sums[i] = _mm512_dpbf16_ps(sums[i], reinterpret_cast<__m512bh>(bits),
                                 reinterpret_cast<__m512bh>(x));
    }
  }
  for (int i = 0; i < 12; ++i) __asm__ volatile("" : "+v"(sums[i]));
  return static_cast<double>(rounds) * 12 * 32 * 2;
}

double FmaLoopAvx512(int64_t rounds) {
  __m512 sums[12];
  for (int i = 0; i < 12; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  __m512 w = _mm512_set1_ps(static_cast<float>(rounds));
  const __m512 x = _mm512_set1_ps(1e-9f);
  for (int64_t r = 0; r < rounds; ++r) {
    __asm__ volatile("" : "+v"(w));
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) sums[i] = _mm512_fmadd_ps(w, x, sums[i]);
  }
  for (int i = 0; i < 12; ++i) __asm__ volatile("" : "+v"(sums[i]));
  return static_cast<double>(rounds) * 12 * 16 * 2;
}

}  // namespace cellm::bench
