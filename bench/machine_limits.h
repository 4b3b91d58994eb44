#ifndef CELLM_BENCH_MACHINE_LIMITS_H_
#define CELLM_BENCH_MACHINE_LIMITS_H_

// What the machine can do at best, measured in the same run as the figures beside it.

#include <cstddef>
#include <cstdint>

namespace cellm::bench {

// Memory for `bytes`, zeroed, in huge pages where the system gives them. Never freed.
uint8_t* HugeBytes(size_t bytes);

// Bytes a second that `threads` threads read from memory together; median of several rounds.
double ReadRate(int threads);

// 8-bit multiply-accumulates (2 operations each) a second on one core; 0 where not known.
double Int8Rate();
// f32 fused multiply-adds (2 operations each) a second on one core; 0 where not known.
double FloatRate();

// machine_limits_avx512.cc: the loops themselves. Operations done by one call.
uint64_t SumBytesAvx512(const uint8_t* data, size_t bytes);
double DotLoopAvx512(int64_t rounds);
double FmaLoopAvx512(int64_t rounds);

}  // namespace cellm::bench

#endif  // CELLM_BENCH_MACHINE_LIMITS_H_
