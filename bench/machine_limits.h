#ifndef CELLM_BENCH_MACHINE_LIMITS_H_
#define CELLM_BENCH_MACHINE_LIMITS_H_

// What the machine can do at best, measured in the same run as the figures beside it.

#include <cstddef>
#include <cstdint>

namespace cellm::bench {

// Memory for `bytes`, zeroed, in huge pages where the system gives them. Whoever wants
// to give them back unmaps them.
uint8_t* HugeBytes(size_t bytes);

// kOwn counts the time that the calling thread was on a core, so that busy neighbours do not lower
// the rate; for one thread only.
enum class Timer { kWall, kOwn };

// Bytes a second that `threads` threads read from memory together; median of several rounds.
double ReadRate(int threads, Timer timer = Timer::kWall);

// Multiply-accumulates (2 operations each) a second of `threads` cores together; 0 where not known.
double Int8Rate(int threads = 1, Timer timer = Timer::kWall);
double FloatRate(int threads = 1, Timer timer = Timer::kWall);
double Bf16Rate(int threads = 1,
                Timer timer = Timer::kWall);  // 0 as well where the CPU has no such instruction

// machine_limits_avx512.cc: the loops themselves. Operations done by one call.
uint64_t SumBytesAvx512(const uint8_t* data, size_t bytes);
double DotLoopAvx512(int64_t rounds);
double FmaLoopAvx512(int64_t rounds);
double Bf16LoopAvx512(int64_t rounds);

}  // namespace cellm::bench

#endif  // CELLM_BENCH_MACHINE_LIMITS_H_
