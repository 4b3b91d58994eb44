#ifndef CELLM_SRC_BACKEND_CPU_SCRATCH_H_
#define CELLM_SRC_BACKEND_CPU_SCRATCH_H_

// Private to the files of CpuBackend.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "backend/cpu_backend.h"

namespace cellm {

// Keys of one segment of attention, at absolute multiples: each has sums of its own, which are
// added up from left to right. So several threads can share one sequence, or one, with equal bits.
inline constexpr int32_t kAttendSegment = kKvSegment;

// Query rows of one attention tile, and tokens of one product tile: a block of activations that
// stays in the second-level cache beside a block of weights.
inline constexpr int32_t kAttendRows = 16;
inline constexpr int32_t kTokenBlock = 64;
// Outputs of one GatedLinear tile at most, in tiles of 16.
inline constexpr int32_t kMaxTaskTiles = 16;

// 127 / max(max|x|, 1e-5), what RoundToInt8() multiplies a row by; NaN when the row is not finite.
inline float Int8RowFactor(const float* x, int32_t count) {
  float largest = 1e-5f;
  for (int32_t c = 0; c < count; ++c) {
    const float magnitude = std::fabs(x[c]);
    if (!(magnitude <= std::numeric_limits<float>::max())) return __builtin_nanf("");
    largest = std::max(largest, magnitude);
  }
  return 127.0f / largest;
}

struct CpuBackend::Scratch {
  // One product's input in 8 bits.
  Array<int8_t> values;
  Array<float> scales;
  Array<int32_t> sums;
  // Per thread, `*_stride` elements apart.
  Array<float> unpack;  // a tile in float
  Array<float> gated;   // [kTokenBlock][16 * kMaxTaskTiles]: the `up` half of a GatedLinear tile
  Array<int32_t> key_ranges;     // [2][kAttendRows]
  Array<uint8_t> attend_levels;  // AttendArgs::scratch
  Array<float> general;
  Array<uint8_t> codes;      // a row of a packed table
  Array<float> code_scales;  // its scales and mins
  int64_t unpack_stride = 0, gated_stride = 0, general_stride = 0;
  int64_t codes_stride = 0, attend_levels_stride = 0;
  // Of attend_queries queries: those that one thread works on, kAttendRows rows by the heads of a
  // group, times the threads.
  int64_t attend_queries = 0;
  Array<int8_t> attend_q8;       // [queries][columns]
  Array<float> attend_q_scales;  // [queries]
  Array<int8_t> demoted_q8;      // the same for demoted keys
  Array<float> demoted_q_scales;
  Array<float> attend_parts, attend_totals;         // [queries][columns_v]
  Array<float> attend_states;                       // [queries] of AttendState
  Array<float> attend_maxima, attend_denominators;  // [queries]
  // Shared.
  Array<float> frequencies;
  Array<float> expert_floats;
  Array<int32_t> expert_ints;
  ScratchNeeds needs;

  float* General(int32_t worker) { return general.data() + worker * general_stride; }
};

// Rows are handed out in blocks of about this many floats; less than two blocks stay on the caller.
inline constexpr int64_t kRowBlockFloats = 8192;

// Less than this many multiply-adds is not worth waking a thread for: some 10 microseconds.
inline constexpr int64_t kSmallWork = 96 * 1024;

// Calls body(tile, worker) for all tiles; `work` is about how many multiply-adds that is.
template <typename Body>
void CpuBackend::ForTiles(int32_t tiles, int64_t work, const Body& body) {
  if (work < kSmallWork) {
    for (int32_t tile = 0; tile < tiles; ++tile) body(tile, 0);
  } else {
    pool_.For(tiles, body);
  }
}

template <typename Body>
void CpuBackend::ForRows(int32_t rows, int64_t floats_per_row, const Body& body) {
  const int64_t block =
      std::max<int64_t>(1, kRowBlockFloats / std::max<int64_t>(1, floats_per_row));
  if (rows < 2 * block) {
    if (rows > 0) body(0, rows, 0);
    return;
  }
  const int32_t step = static_cast<int32_t>(block);
  pool_.For((rows + step - 1) / step, [&](int32_t tile, int32_t worker) {
    body(tile * step, std::min(rows, (tile + 1) * step), worker);
  });
}

}  // namespace cellm

#endif  // CELLM_SRC_BACKEND_CPU_SCRATCH_H_
