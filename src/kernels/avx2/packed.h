#ifndef CELLM_SRC_KERNELS_AVX2_PACKED_H_
#define CELLM_SRC_KERNELS_AVX2_PACKED_H_

// Chunks of packed weights for 256-bit code: any number of bits to one byte a code, in the order of
// the 8-bit layout (byte 4*row+i of vector v is the code of column 4v+i).

#include <immintrin.h>

#include "kernels/avx2/simd.h"
#include "kernels/kernel_types.h"

namespace cellm {
namespace {

CELLM_INLINE __m256i LoadBytes(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

// (v >> kShift) & kMask of every byte, moved up by kUp.
template <int kShift, int kMask, int kUp>
CELLM_INLINE __m256i Field(__m256i v) {
  if constexpr (kShift > kUp) v = _mm256_srli_epi16(v, kShift - kUp);
  if constexpr (kShift < kUp) v = _mm256_slli_epi16(v, kUp - kShift);
  return _mm256_and_si256(v, _mm256_set1_epi8(static_cast<char>(kMask << kUp)));
}

template <int kUp, bool kFirst>
CELLM_INLINE void AddPlane2(const uint8_t* p, __m256i w[8]) {
  const __m256i a = LoadBytes(p);
  const __m256i b = LoadBytes(p + 64);
  const __m256i fields[8] = {Field<0, 3, kUp>(a), Field<0, 3, kUp>(b), Field<2, 3, kUp>(a),
                             Field<2, 3, kUp>(b), Field<4, 3, kUp>(a), Field<4, 3, kUp>(b),
                             Field<6, 3, kUp>(a), Field<6, 3, kUp>(b)};
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) w[v] = kFirst ? fields[v] : _mm256_or_si256(w[v], fields[v]);
}

template <int kUp, bool kFirst>
CELLM_INLINE void AddPlane1(const uint8_t* p, __m256i w[8]) {
  const __m256i a = LoadBytes(p);
  const __m256i fields[8] = {Field<0, 1, kUp>(a), Field<1, 1, kUp>(a), Field<2, 1, kUp>(a),
                             Field<3, 1, kUp>(a), Field<4, 1, kUp>(a), Field<5, 1, kUp>(a),
                             Field<6, 1, kUp>(a), Field<7, 1, kUp>(a)};
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) w[v] = kFirst ? fields[v] : _mm256_or_si256(w[v], fields[v]);
}

// What a chunk stores: codes of `kCode` bits, or with kBook added indexes into a book of bytes.
constexpr int kBook = 16;
constexpr int BitsOf(int code) { return code & 15; }

// The book in both halves of a vector.
CELLM_INLINE __m256i LoadBook(const kernels::PackedTiles& w) {
  if (w.book == nullptr) return _mm256_setzero_si256();
  const __m128i bytes = w.bits == 3 ? _mm_loadl_epi64(reinterpret_cast<const __m128i*>(w.book))
                                    : _mm_loadu_si128(reinterpret_cast<const __m128i*>(w.book));
  return _mm256_broadcastsi128_si256(bytes);
}

// Half a chunk: 8 rows x 32 columns; the second half of the rows starts 32 bytes further on.
template <int kCode>
CELLM_INLINE void LoadHalfChunk(const uint8_t* p, __m256i book, __m256i w[8]) {
  constexpr int kBits = BitsOf(kCode);
  if constexpr (kBits == 8) {
#pragma GCC unroll 8
    for (int v = 0; v < 8; ++v) w[v] = LoadBytes(p + 64 * v);
  } else {
    if constexpr ((kBits & 4) != 0) {
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        const __m256i nibbles = LoadBytes(p + 64 * v);
        w[v] = Field<0, 15, 0>(nibbles);
        w[v + 4] = Field<4, 15, 0>(nibbles);
      }
      p += 4 * 64;
    }
    if constexpr ((kBits & 2) != 0) {
      AddPlane2<kBits & 4, (kBits & 4) == 0>(p, w);
      p += 2 * 64;
    }
    if constexpr ((kBits & 1) != 0) AddPlane1<kBits & 6, (kBits & 6) == 0>(p, w);
    if constexpr (kCode >= kBook) {
#pragma GCC unroll 8
      for (int v = 0; v < 8; ++v) w[v] = _mm256_shuffle_epi8(book, w[v]);
    }
  }
}

// Where decode reads ahead: a tile's bytes at an even pace a chunk, 8 KB before their use, so that
// the prefetches of all tiles together touch every line once and in the order of memory.
struct Ahead {
  const char* next;
  size_t step;  // bytes a chunk; 0: none
};

CELLM_INLINE void PrefetchStep(Ahead& ahead) {
  if (ahead.step == 0) return;
  for (size_t i = 0; i < ahead.step + 63; i += 64) _mm_prefetch(ahead.next + i, _MM_HINT_T0);
  ahead.next += ahead.step;
}

// `chunks` chunks to 512 bytes each.
template <int kCode>
void Widen(const kernels::PackedTiles& tiles, const uint8_t* codes, int32_t chunks, uint8_t* bytes,
           Ahead& ahead) {
  constexpr int kBits = BitsOf(kCode);
  const __m256i book = LoadBook(tiles);
  for (int32_t chunk = 0; chunk < chunks; ++chunk) {
    PrefetchStep(ahead);
    for (int half = 0; half < 2; ++half) {
      __m256i w[8];
      LoadHalfChunk<kCode>(codes + 32 * half, book, w);
#pragma GCC unroll 8
      for (int v = 0; v < 8; ++v) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes + 64 * v + 32 * half), w[v]);
      }
    }
    codes += 64 * kBits;
    bytes += 512;
  }
}

CELLM_INLINE void WidenCodes(const kernels::PackedTiles& w, const uint8_t* codes, int32_t chunks,
                             uint8_t* bytes, Ahead& ahead) {
  switch (w.bits + (w.book == nullptr ? 0 : kBook)) {
    case kBook + 4:
      return Widen<kBook + 4>(w, codes, chunks, bytes, ahead);
    case kBook + 3:
      return Widen<kBook + 3>(w, codes, chunks, bytes, ahead);
    case 8:
      return Widen<8>(w, codes, chunks, bytes, ahead);
    case 6:
      return Widen<6>(w, codes, chunks, bytes, ahead);
    case 5:
      return Widen<5>(w, codes, chunks, bytes, ahead);
    case 4:
      return Widen<4>(w, codes, chunks, bytes, ahead);
    case 3:
      return Widen<3>(w, codes, chunks, bytes, ahead);
    case 2:
      return Widen<2>(w, codes, chunks, bytes, ahead);
    default:
      return Widen<1>(w, codes, chunks, bytes, ahead);
  }
}

// Floats, or int8 sub-scales, of rows 8 * half .. + 7 of one group.
CELLM_INLINE __m256 LoadFloats(const kernels::PackedTiles& w, const uint8_t* scales, int32_t group,
                               int half) {
  const size_t first = static_cast<size_t>(group) * 16u + static_cast<size_t>(half) * 8u;
  if (w.scales_are_f32 != 0) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(scales) + first);
  }
  return _mm256_cvtph_ps(Load16(reinterpret_cast<const uint16_t*>(scales) + first));
}
CELLM_INLINE __m128i LoadSubs(const uint8_t* subs, int32_t group, int half) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(subs + static_cast<size_t>(group) * 16u +
                                                          static_cast<size_t>(half) * 8u));
}
CELLM_INLINE __m256 TimesSubs(__m256 super, __m128i subs) {
  return _mm256_mul_ps(super, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(subs)));
}

// Scales and mins of rows 8 * half .. + 7 of one group; `tile` is where the tile begins. With an
// odd number of 16-wide groups the last half chunk is padding and takes the scale before it, which
// multiplies zero.
CELLM_INLINE __m256 LoadScales(const kernels::PackedTiles& w, const uint8_t* tile, int32_t group,
                               int half) {
  const int32_t own = group < w.groups ? group : w.groups - 1;
  if (w.sub == kernels::kSubNone) return LoadFloats(w, tile, own, half);
  __m128i subs = LoadSubs(tile + w.subs_offset, own, half);
  if (w.sub == kernels::kSubN4) subs = _mm_and_si128(subs, _mm_set1_epi8(15));
  return TimesSubs(LoadFloats(w, tile, own >> w.super_shift, half), subs);
}
CELLM_INLINE __m256 LoadMins(const kernels::PackedTiles& w, const uint8_t* tile, int32_t group,
                             int half) {
  const int32_t own = group < w.groups ? group : w.groups - 1;
  const uint8_t* mins = tile + w.mins_offset;
  if (w.sub == kernels::kSubNone) return LoadFloats(w, mins, own, half);
  __m128i subs;
  if (w.sub == kernels::kSubN4) {
    subs = LoadSubs(tile + w.subs_offset, own, half);
    subs = _mm_and_si128(_mm_srli_epi16(subs, 4), _mm_set1_epi8(15));
  } else {
    subs = LoadSubs(tile + w.sub_mins_offset, own, half);
  }
  return TimesSubs(LoadFloats(w, mins, own >> w.super_shift, half), subs);
}

}  // namespace
}  // namespace cellm

#endif  // CELLM_SRC_KERNELS_AVX2_PACKED_H_
