#ifndef CELLM_SRC_KERNELS_AVX512_PACKED_BLOCKS_H_
#define CELLM_SRC_KERNELS_AVX512_PACKED_BLOCKS_H_

// Packed products of several tokens with weights from memory: sequences that decode together.
//
// Two tiles go at a time against T tokens. An activation that is loaded (and spread over a vector)
// then serves two products, where a single tile is bound by those loads: T x 2 integer sums stay in
// registers through a chunk, the float sums wait in L1. The tokens' activations, corrections and
// scales are copied first, chunk by chunk and side by side: rows of activations lie a multiple of
// 64 bytes apart, and loads of the same column of two rows would meet in one bank of L1.
//
// Two tiles are two streams, which hardware prefetchers follow badly, so the next two tiles are
// asked for in the order of memory while these are worked on.

#include "kernels/avx512/packed_parts.h"
#include "kernels/avx512/simd.h"

namespace cellm {
namespace {

constexpr int32_t kMostBlockTokens = 16;  // beyond, panels are as fast
constexpr int32_t kBlockChunks = 64;      // of a row at a time: what is copied stays in L1

// Operand v of a chunk, as LoadChunk() makes all eight.
template <int kCode, int v>
CELLM_INLINE __m512i Operand(const uint8_t* p, __m512i book) {
  constexpr int kBits = BitsOf(kCode);
  if constexpr (kBits == 8) {
    return LoadVector(p + 64 * v);
  } else {
    __m512i w = _mm512_setzero_si512();
    if constexpr ((kBits & 4) != 0) {
      const __m512i nibbles = LoadVector(p + 64 * (v % 4));
      w = v < 4 ? Field<0, 15, 0>(nibbles) : Field<4, 15, 0>(nibbles);
      p += 4 * 64;
    }
    if constexpr ((kBits & 2) != 0) {
      const __m512i pair = Field<v / 2 * 2, 3, kBits & 4>(LoadVector(p + 64 * (v % 2)));
      w = (kBits & 4) != 0 ? _mm512_or_si512(w, pair) : pair;
      p += 2 * 64;
    }
    if constexpr ((kBits & 1) != 0) {
      const __m512i bit = Field<v, 1, kBits & 6>(LoadVector(p));
      w = (kBits & 6) != 0 ? _mm512_or_si512(w, bit) : bit;
    }
    return kCode >= kBook ? _mm512_shuffle_epi8(book, w) : w;
  }
}

// T tokens over a segment of chunks; pieces are chunks, or half chunks. Rows past the call's own
// tokens are zero. The fields are those of DirectTokens, [piece][token].
template <int T>
struct BlockTokens {
  alignas(64) int8_t values[kBlockChunks * T * 32];  // [chunk][token][32]
  alignas(64) float xscales[kBlockChunks * T];
  alignas(64) int32_t corrections[2 * kBlockChunks * T];
  alignas(64) float scaled_sums[2 * kBlockChunks * T];
};

template <int T, bool kHalves>
void FillTokens(const PackedCall& call, int32_t token, int32_t count, int32_t begin, int32_t end,
                BlockTokens<T>& tokens) {
  constexpr int kPieces = kHalves ? 2 : 1;
  const bool has_min = call.w->has_min != 0;
  const int32_t chunks = end - begin;
  if (count < T) {
    __builtin_memset(tokens.values, 0, static_cast<size_t>(chunks * T * 32));
    __builtin_memset(tokens.xscales, 0, static_cast<size_t>(chunks * T) * 4u);
    __builtin_memset(tokens.corrections, 0, static_cast<size_t>(chunks * kPieces * T) * 4u);
    __builtin_memset(tokens.scaled_sums, 0, static_cast<size_t>(chunks * kPieces * T) * 4u);
  }
  for (int32_t t = 0; t < count; ++t) {
    const int64_t first = int64_t{token + t} * call.w->chunks + begin;
    const int8_t* values = call.x->values + first * 32;
    const float* xscales = call.x->scales + first;
    const int32_t* sums = call.x->sums + first * 2;
    for (int32_t i = 0; i < chunks; ++i) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(tokens.values + (i * T + t) * 32),
                         _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + i * 32)));
      tokens.xscales[i * T + t] = xscales[i];
      for (int32_t piece = 0; piece < kPieces; ++piece) {
        const int32_t sum = kHalves ? sums[2 * i + piece] : sums[2 * i] + sums[2 * i + 1];
        const int32_t at = (i * kPieces + piece) * T + t;
        tokens.corrections[at] = -call.zero * sum;
        if (has_min) tokens.scaled_sums[at] = xscales[i] * static_cast<float>(sum);
      }
    }
  }
}

// Operand v of both tiles times all tokens; x is the chunk's [T][32].
template <typename Dot, int kCode, int T, int v>
CELLM_INLINE void BlockStep(const uint8_t* codes0, const uint8_t* codes1, __m512i book,
                            const int8_t* x, __m512i sums0[T], __m512i sums1[T]) {
  const __m512i w0 = Operand<kCode, v>(codes0, book);
  const __m512i w1 = Operand<kCode, v>(codes1, book);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    const __m512i four = Broadcast4(x + t * 32 + 4 * v);
    sums0[t] = Dot::template Add<WidthOf(kCode)>(sums0[t], w0, four);
    sums1[t] = Dot::template Add<WidthOf(kCode)>(sums1[t], w1, four);
  }
}

// The piece's integer sums. Operands v and v + 4 come from the same nibbles.
template <typename Dot, int kCode, int T, bool kHalves, int kPiece>
CELLM_INLINE void BlockSums(const uint8_t* codes0, const uint8_t* codes1, __m512i book,
                            const int8_t* x, __m512i sums0[T], __m512i sums1[T]) {
  constexpr int kFirst = 4 * kPiece;
  BlockStep<Dot, kCode, T, kFirst>(codes0, codes1, book, x, sums0, sums1);
  if (!kHalves) BlockStep<Dot, kCode, T, 4>(codes0, codes1, book, x, sums0, sums1);
  BlockStep<Dot, kCode, T, kFirst + 1>(codes0, codes1, book, x, sums0, sums1);
  if (!kHalves) BlockStep<Dot, kCode, T, 5>(codes0, codes1, book, x, sums0, sums1);
  BlockStep<Dot, kCode, T, kFirst + 2>(codes0, codes1, book, x, sums0, sums1);
  if (!kHalves) BlockStep<Dot, kCode, T, 6>(codes0, codes1, book, x, sums0, sums1);
  BlockStep<Dot, kCode, T, kFirst + 3>(codes0, codes1, book, x, sums0, sums1);
  if (!kHalves) BlockStep<Dot, kCode, T, 7>(codes0, codes1, book, x, sums0, sums1);
}

// Two tiles and the float sums of T tokens.
template <int T>
struct BlockTiles {
  const uint8_t* data[2];
  __m512 scales[2];
  int32_t group;
  alignas(64) float f[T * 2 * 16];  // [token][tile][row]
};

// One piece of a chunk. Rows of `corrections` and the like are those of the piece.
template <typename Dot, int kCode, int T, bool kHalves, int kPiece>
CELLM_INLINE void BlockPiece(const PackedCall& call, const uint8_t* codes0, const uint8_t* codes1,
                             __m512i book, const int8_t* x, const int32_t* corrections,
                             const float* xscales, const float* scaled_sums, BlockTiles<T>& tiles) {
  __m512i sums0[T], sums1[T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    sums0[t] = call.odd ? _mm512_setzero_si512() : _mm512_set1_epi32(corrections[t]);
    sums1[t] = sums0[t];
  }
  BlockSums<Dot, kCode, T, kHalves, kPiece>(codes0, codes1, book, x, sums0, sums1);
  if (call.odd) {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const __m512i correction = _mm512_set1_epi32(corrections[t]);
      sums0[t] = _mm512_add_epi32(_mm512_add_epi32(sums0[t], sums0[t]), correction);
      sums1[t] = _mm512_add_epi32(_mm512_add_epi32(sums1[t], sums1[t]), correction);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    const __m512 xscale = _mm512_set1_ps(xscales[t]);
    float* const f = tiles.f + t * 32;
    _mm512_store_ps(f, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums0[t]),
                                       _mm512_mul_ps(tiles.scales[0], xscale), _mm512_load_ps(f)));
    _mm512_store_ps(
        f + 16, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums1[t]),
                                _mm512_mul_ps(tiles.scales[1], xscale), _mm512_load_ps(f + 16)));
  }
  if (call.w->has_min == 0) return;
  const int32_t group = kHalves ? ClampGroup(*call.w, tiles.group) : tiles.group;
  const __m512 min0 = LoadMins(*call.w, tiles.data[0], group);
  const __m512 min1 = LoadMins(*call.w, tiles.data[1], group);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    const __m512 scaled = _mm512_set1_ps(scaled_sums[t]);
    float* const f = tiles.f + t * 32;
    _mm512_store_ps(f, _mm512_fmadd_ps(min0, scaled, _mm512_load_ps(f)));
    _mm512_store_ps(f + 16, _mm512_fmadd_ps(min1, scaled, _mm512_load_ps(f + 16)));
  }
}

// Tiles `tile` and `tile` + 1 times `count` of T tokens from `token`, chunks [begin, end). Running
// sums wait in `out` between segments.
template <typename Dot, int kCode, int T, bool kHalves>
void Block(const PackedCall& call, const BlockTokens<T>& tokens, int32_t tile, int32_t token,
           int32_t count, int32_t begin, int32_t end) {
  const PackedTiles& w = *call.w;
  constexpr int kBits = BitsOf(kCode);
  constexpr int kPieces = kHalves ? 2 : 1;
  const __m512i book = LoadBook(w);
  const __mmask16 mask = LaneMask(w.rows - (tile + 1) * 16);
  float* const out = call.out + token * call.out_stride + tile * 16;
  BlockTiles<T> tiles;
  tiles.data[0] = w.data + static_cast<size_t>(tile) * w.tile_bytes;
  tiles.data[1] = tiles.data[0] + w.tile_bytes;
  for (int t = 0; t < T; ++t) {
    const bool some = begin > 0 && t < count;
    const float* const from = out + t * call.out_stride;
    _mm512_store_ps(tiles.f + t * 32, some ? _mm512_loadu_ps(from) : _mm512_setzero_ps());
    _mm512_store_ps(tiles.f + t * 32 + 16,
                    some ? _mm512_maskz_loadu_ps(mask, from + 16) : _mm512_setzero_ps());
  }
  const size_t step = 2 * (w.tile_bytes / static_cast<size_t>(w.chunks));
  const char* ahead = reinterpret_cast<const char*>(tiles.data[0]) + 2 * w.tile_bytes +
                      step * static_cast<size_t>(begin);
  const uint8_t* codes0 =
      tiles.data[0] + w.codes_offset + static_cast<size_t>(begin) * (64u * kBits);
  const uint8_t* codes1 = codes0 + w.tile_bytes;
  tiles.group = begin * kPieces / call.part_group;
  int32_t left = call.part_group - begin * kPieces % call.part_group;
  const auto next_scales = [&] {
    tiles.scales[0] = ScaleOf<kHalves>(call, tiles.data[0], tiles.group);
    tiles.scales[1] = ScaleOf<kHalves>(call, tiles.data[1], tiles.group);
  };
  next_scales();
  for (int32_t i = 0; i < end - begin; ++i) {
#pragma GCC unroll 32
    for (int line = 0; line < 2 * kBits + 1; ++line) _mm_prefetch(ahead + 64 * line, _MM_HINT_T1);
    ahead += step;
    const int8_t* const x = tokens.values + i * T * 32;
    const float* const xscales = tokens.xscales + i * T;
    const int32_t at = i * kPieces * T;
    if (left == 0) {
      ++tiles.group;
      left = call.part_group;
      next_scales();
    }
    --left;
    BlockPiece<Dot, kCode, T, kHalves, 0>(call, codes0, codes1, book, x, tokens.corrections + at,
                                          xscales, tokens.scaled_sums + at, tiles);
    if constexpr (kHalves) {
      // Groups of 16 are half chunks: one group a piece.
      ++tiles.group;
      left = 0;
      next_scales();
      BlockPiece<Dot, kCode, T, kHalves, 1>(call, codes0, codes1, book, x,
                                            tokens.corrections + at + T, xscales,
                                            tokens.scaled_sums + at + T, tiles);
    }
    codes0 += 64 * kBits;
    codes1 += 64 * kBits;
  }
  for (int t = 0; t < count; ++t) {
    _mm512_storeu_ps(out + t * call.out_stride, _mm512_load_ps(tiles.f + t * 32));
    _mm512_mask_storeu_ps(out + t * call.out_stride + 16, mask,
                          _mm512_load_ps(tiles.f + t * 32 + 16));
  }
}

template <typename Dot, int kCode, int T, bool kHalves>
void BlocksOf(const PackedCall& call, int32_t token, int32_t count, int32_t tile_begin,
              int32_t tile_end) {
  BlockTokens<T> tokens;
  const int32_t chunks = call.w->chunks;
  for (int32_t begin = 0; begin < chunks; begin += kBlockChunks) {
    const int32_t end = chunks - begin < kBlockChunks ? chunks : begin + kBlockChunks;
    FillTokens<T, kHalves>(call, token, count, begin, end, tokens);
    for (int32_t tile = tile_begin; tile < tile_end; tile += 2) {
      Block<Dot, kCode, T, kHalves>(call, tokens, tile, token, count, begin, end);
    }
  }
}

// All tokens times an even number of tiles. Half chunks have too many constants for eight tokens in
// registers, so they go by four and six, whole ones by six and eight.
template <typename Dot, int kCode, bool kHalves>
void Blocks(const PackedCall& call, int32_t tile_begin, int32_t tile_end) {
  constexpr int kSmall = kHalves ? 4 : 6;
  constexpr int kLarge = kHalves ? 6 : 8;
  const int32_t rows = call.x->rows;
  for (int32_t token = 0; token < rows;) {
    const int32_t left = rows - token;
    // Few rows of padding: what is left goes by the small size where that wastes no more.
    const bool small =
        (left + kSmall - 1) / kSmall * kSmall <= (left + kLarge - 1) / kLarge * kLarge;
    const int32_t size = small ? kSmall : kLarge;
    const int32_t count = left < size ? left : size;
    if (small) {
      BlocksOf<Dot, kCode, kSmall, kHalves>(call, token, count, tile_begin, tile_end);
    } else {
      BlocksOf<Dot, kCode, kLarge, kHalves>(call, token, count, tile_begin, tile_end);
    }
    token += count;
  }
}

}  // namespace
}  // namespace cellm

#endif  // CELLM_SRC_KERNELS_AVX512_PACKED_BLOCKS_H_
