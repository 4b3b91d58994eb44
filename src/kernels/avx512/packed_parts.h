#ifndef CELLM_SRC_KERNELS_AVX512_PACKED_PARTS_H_
#define CELLM_SRC_KERNELS_AVX512_PACKED_PARTS_H_

// What the packed products of the 512-bit tiers share: codes to operands, scales, and a call.

#include "kernels/avx512/simd.h"
#include "kernels/kernel_types.h"

namespace cellm {
namespace {

using kernels::PackedTiles;
using kernels::QuantRows;

CELLM_INLINE __m512i LoadVector(const uint8_t* p) { return _mm512_loadu_si512(p); }

// (v >> kShift) & kMask of every byte, moved up by kUp.
template <int kShift, int kMask, int kUp>
CELLM_INLINE __m512i Field(__m512i v) {
  const __m512i mask = _mm512_set1_epi8(static_cast<char>(kMask << kUp));
  if constexpr (kShift > kUp) v = _mm512_srli_epi16(v, kShift - kUp);
  if constexpr (kShift < kUp) v = _mm512_slli_epi16(v, kUp - kShift);
  return _mm512_and_si512(v, mask);
}

// The plane of two bits at p, moved up by kUp, or-ed into or written to w.
template <int kUp, bool kFirst>
CELLM_INLINE void AddPlane2(const uint8_t* p, __m512i w[8]) {
  const __m512i a = LoadVector(p);
  const __m512i b = LoadVector(p + 64);
  const __m512i fields[8] = {Field<0, 3, kUp>(a), Field<0, 3, kUp>(b), Field<2, 3, kUp>(a),
                             Field<2, 3, kUp>(b), Field<4, 3, kUp>(a), Field<4, 3, kUp>(b),
                             Field<6, 3, kUp>(a), Field<6, 3, kUp>(b)};
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) w[v] = kFirst ? fields[v] : _mm512_or_si512(w[v], fields[v]);
}

template <int kUp, bool kFirst>
CELLM_INLINE void AddPlane1(const uint8_t* p, __m512i w[8]) {
  const __m512i a = LoadVector(p);
  const __m512i fields[8] = {Field<0, 1, kUp>(a), Field<1, 1, kUp>(a), Field<2, 1, kUp>(a),
                             Field<3, 1, kUp>(a), Field<4, 1, kUp>(a), Field<5, 1, kUp>(a),
                             Field<6, 1, kUp>(a), Field<7, 1, kUp>(a)};
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) w[v] = kFirst ? fields[v] : _mm512_or_si512(w[v], fields[v]);
}

// What a chunk stores: codes of `kCode` bits, or with kBook added indexes into a book of bytes.
constexpr int kBook = 16;
constexpr int BitsOf(int code) { return code & 15; }
// Bits of the operands that LoadChunk() makes.
constexpr int WidthOf(int code) { return code >= kBook ? 8 : code; }

// The book in every quarter of a vector.
CELLM_INLINE __m512i LoadBook(const PackedTiles& w) {
  if (w.book == nullptr) return _mm512_setzero_si512();
  const __m128i bytes = w.bits == 3 ? _mm_loadl_epi64(reinterpret_cast<const __m128i*>(w.book))
                                    : _mm_loadu_si128(reinterpret_cast<const __m128i*>(w.book));
  return _mm512_broadcast_i32x4(bytes);
}

template <int kCode>
CELLM_INLINE void LoadChunk(const uint8_t* p, __m512i book, __m512i w[8]) {
  constexpr int kBits = BitsOf(kCode);
  if constexpr (kBits == 8) {
#pragma GCC unroll 8
    for (int v = 0; v < 8; ++v) w[v] = LoadVector(p + 64 * v);
  } else {
    if constexpr ((kBits & 4) != 0) {
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        const __m512i nibbles = LoadVector(p + 64 * v);
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
      for (int v = 0; v < 8; ++v) w[v] = _mm512_shuffle_epi8(book, w[v]);
    }
  }
}

CELLM_INLINE __m512i Broadcast4(const int8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, sizeof(four));
  return _mm512_set1_epi32(four);
}

// With an odd number of 16-wide groups the last half chunk is padding and takes the scale before
// it, which multiplies zero.
CELLM_INLINE int32_t ClampGroup(const PackedTiles& w, int32_t group) {
  return group < w.groups ? group : w.groups - 1;
}
CELLM_INLINE __m512 LoadFloats(const uint8_t* scales, int32_t group, bool is_f32) {
  if (is_f32) return _mm512_loadu_ps(scales + static_cast<size_t>(group) * 64u);
  return LoadHalves(reinterpret_cast<const uint16_t*>(scales) + static_cast<size_t>(group) * 16u);
}
CELLM_INLINE __m128i LoadSubs(const uint8_t* subs, int32_t group) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(subs + static_cast<size_t>(group) * 16u));
}
CELLM_INLINE __m512 TimesSubs(__m512 super, __m128i subs) {
  return _mm512_mul_ps(super, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(subs)));
}

// Scales and mins of one group; `scales` is where the tile begins.
CELLM_INLINE __m512 LoadScales(const PackedTiles& w, const uint8_t* scales, int32_t group) {
  const bool is_f32 = w.scales_are_f32 != 0;
  if (w.sub == kernels::kSubNone) return LoadFloats(scales, group, is_f32);
  __m128i subs = LoadSubs(scales + w.subs_offset, group);
  if (w.sub == kernels::kSubN4) subs = _mm_and_si128(subs, _mm_set1_epi8(15));
  return TimesSubs(LoadFloats(scales, group >> w.super_shift, is_f32), subs);
}
CELLM_INLINE __m512 LoadMins(const PackedTiles& w, const uint8_t* scales, int32_t group) {
  const bool is_f32 = w.scales_are_f32 != 0;
  const uint8_t* mins = scales + w.mins_offset;
  if (w.sub == kernels::kSubNone) return LoadFloats(mins, group, is_f32);
  __m128i subs;
  if (w.sub == kernels::kSubN4) {
    subs = LoadSubs(scales + w.subs_offset, group);
    subs = _mm_and_si128(_mm_srli_epi16(subs, 4), _mm_set1_epi8(15));
  } else {
    subs = LoadSubs(scales + w.sub_mins_offset, group);
  }
  return TimesSubs(LoadFloats(mins, group >> w.super_shift, is_f32), subs);
}

// What stays the same over a call.
struct PackedCall {
  const PackedTiles* w;
  const QuantRows* x;
  float* out;
  int64_t out_stride;
  int32_t zero;        // taken from the sum for each activation: zero2 / 2, or zero2 when odd
  bool odd;            // zero2 is odd: products count twice and scales half
  int32_t part_group;  // pieces (chunks, or half chunks) per group
};

// The scale of one group, halved when odd.
template <bool kHalves>
CELLM_INLINE __m512 ScaleOf(const PackedCall& call, const uint8_t* tile, int32_t group) {
  const __m512 scale = LoadScales(*call.w, tile, kHalves ? ClampGroup(*call.w, group) : group);
  return call.odd ? _mm512_mul_ps(scale, _mm512_set1_ps(0.5f)) : scale;
}

}  // namespace
}  // namespace cellm

#endif  // CELLM_SRC_KERNELS_AVX512_PACKED_PARTS_H_
