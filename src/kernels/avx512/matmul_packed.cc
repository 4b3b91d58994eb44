// Packed products without VNNI: byte products in 16-bit pairs, widened by a second multiplication.

#include "kernels/avx512/avx512.h"
#include "kernels/avx512/packed.h"
#include "kernels/avx512/pair_dot.h"

namespace cellm::avx512 {
namespace {

// The chunk's codes as 512 bytes, [column / 4][row][column % 4].
template <int kCode>
void StoreChunk(const PackedTiles& w, const uint8_t* codes, uint8_t* bytes) {
  __m512i operands[8];
  LoadChunk<kCode>(codes, LoadBook(w), operands);
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) _mm512_store_si512(bytes + 64 * v, operands[v]);
}

void StoreChunk(const PackedTiles& w, const uint8_t* codes, uint8_t* bytes) {
  switch (w.bits + (w.book == nullptr ? 0 : kBook)) {
    case kBook + 4:
      return StoreChunk<kBook + 4>(w, codes, bytes);
    case kBook + 3:
      return StoreChunk<kBook + 3>(w, codes, bytes);
    case 8:
      return StoreChunk<8>(w, codes, bytes);
    case 6:
      return StoreChunk<6>(w, codes, bytes);
    case 5:
      return StoreChunk<5>(w, codes, bytes);
    case 4:
      return StoreChunk<4>(w, codes, bytes);
    case 3:
      return StoreChunk<3>(w, codes, bytes);
    case 2:
      return StoreChunk<2>(w, codes, bytes);
    default:
      return StoreChunk<1>(w, codes, bytes);
  }
}

// 16 values of one row: (2 code - zero2) * half_scale, then + min.
CELLM_INLINE __m512 Decode(__m512i code, __m512i zero2, float half_scale, float min, bool has_min) {
  const __m512i level = _mm512_sub_epi32(_mm512_add_epi32(code, code), zero2);
  const __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(level), _mm512_set1_ps(half_scale));
  return has_min ? _mm512_add_ps(value, _mm512_set1_ps(min)) : value;
}

}  // namespace

void matmul_packed_a8(const PackedTiles* w, const QuantRows* x, int32_t tile_begin,
                      int32_t tile_end, float* out, int64_t out_stride) {
  MatmulPacked<PairDot>(w, x, tile_begin, tile_end, out, out_stride);
}

void unpack_tile_f32(const PackedTiles* w, int32_t tile, float* out) {
  alignas(64) uint8_t bytes[512];
  alignas(64) float scales[2][16];
  alignas(64) float mins[2][16] = {};
  const uint8_t* data = w->data + static_cast<size_t>(tile) * w->tile_bytes;
  const uint8_t* codes = data + w->codes_offset;
  const bool has_min = w->has_min != 0;
  const __m512i zero2 = _mm512_set1_epi32(w->zero2);
  const __m256i columns = _mm256_setr_epi32(0, 16, 32, 48, 64, 80, 96, 112);
  for (int32_t chunk = 0; chunk < w->chunks; ++chunk) {
    StoreChunk(*w, codes + static_cast<size_t>(chunk) * 64u * static_cast<size_t>(w->bits), bytes);
    for (int half = 0; half < 2; ++half) {
      const int32_t group = ClampGroup(*w, (chunk * 32 + 16 * half) / w->group);
      _mm512_store_ps(scales[half],
                      _mm512_mul_ps(LoadScales(*w, data, group), _mm512_set1_ps(0.5f)));
      if (has_min) _mm512_store_ps(mins[half], LoadMins(*w, data, group));
    }
    const int32_t left = w->cols - chunk * 32;
    for (int32_t row = 0; row < 16; ++row) {
      const __m256i row_codes =
          _mm256_i32gather_epi32(reinterpret_cast<const int*>(bytes + 4 * row), columns, 4);
      float* to = out + static_cast<int64_t>(row) * w->cols + chunk * 32;
      for (int half = 0; half < 2 && left > 16 * half; ++half) {
        const __m128i part =
            half == 0 ? _mm256_castsi256_si128(row_codes) : _mm256_extracti128_si256(row_codes, 1);
        _mm512_mask_storeu_ps(
            to + 16 * half, LaneMask(left - 16 * half),
            Decode(_mm512_cvtepu8_epi32(part), zero2, scales[half][row], mins[half][row], has_min));
      }
    }
  }
}

}  // namespace cellm::avx512
