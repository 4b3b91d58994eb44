#ifndef CELLM_SRC_KERNELS_AVX512_PACKED_H_
#define CELLM_SRC_KERNELS_AVX512_PACKED_H_

// The packed product for 512-bit tiers, apart from the byte dot product itself, which a tier gives
// as `Dot`:
//   template <int kBits> static __m512i Dot::Add(__m512i sums, __m512i codes, __m512i x)
// adds to each 32-bit lane the four products of its unsigned codes (below 2^kBits) and signed x.
//
// A chunk is 16 rows x 32 columns. LoadChunk() turns any number of bits into the eight operands of
// the 8-bit layout: byte 4*row+i of operand v is the code of column 4v+i. Then, for each token,
// eight dot steps with four activations broadcast, started from -zero * sum(x), give the exact
// integer of the chunk; one conversion, one product of scales, one fused multiply-add follow.
//
// One token or few (decode): a tile at a time straight from memory, all tokens against the operands
// in registers. Several sequences together: packed_blocks.h, two tiles at a time. Many tokens:
// blocks of up to 16 chunks of two tiles are widened to bytes in L1 and run against six tokens at a
// time: 12 integer and 12 float sums. All take the steps of each output in the same order, so the
// bits agree.

#include "kernels/avx512/packed_blocks.h"
#include "kernels/avx512/packed_parts.h"
#include "kernels/avx512/simd.h"
#include "kernels/kernel_types.h"

namespace cellm {
namespace {

constexpr int32_t kDirectTokens = 8;  // up to this many: from memory; beyond: panels
constexpr int32_t kPanelTokens = 6;
constexpr int32_t kPanelChunks = 16;
constexpr int32_t kSegmentChunks = 512;
// How far decode reads ahead of itself: 8 KB measured best (30 GB/s of a 30 GB/s limit on a Zen 4
// core, where 2 KB gave 24 and none 18).
constexpr int32_t kAheadBytes = 8192;
// Scales of a tile up to this size are copied before its codes are read.
constexpr size_t kScaleCopyBytes = 16384;

// Scales and mins of `count` pieces from `piece`, halved when odd: rows `stride` floats apart.
template <bool kHalves>
CELLM_INLINE void ExpandScales(const PackedCall& call, const uint8_t* tile, int32_t piece,
                               int32_t count, float* scales, float* mins, int64_t stride) {
  const PackedTiles& w = *call.w;
  int32_t group = piece / call.part_group;
  int32_t left = call.part_group - piece % call.part_group;
  __m512 scale = _mm512_setzero_ps();
  __m512 min = _mm512_setzero_ps();
  for (int32_t i = 0; i < count; ++i) {
    if (i == 0 || left == 0) {
      if (left == 0) {
        ++group;
        left = call.part_group;
      }
      scale = ScaleOf<kHalves>(call, tile, group);
      if (w.has_min != 0) min = LoadMins(w, tile, kHalves ? ClampGroup(w, group) : group);
    }
    --left;
    _mm512_store_ps(scales + i * stride, scale);
    if (w.has_min != 0) _mm512_store_ps(mins + i * stride, min);
  }
}

// For up to kDirectTokens tokens and a segment of a row: what integer sums start from (or, when
// odd, end with), and for mins the scaled sums of activations. [token][piece]
struct DirectTokens {
  // A line more than the power of two, or all tokens would meet in one set of L1.
  static constexpr int32_t kStride = kSegmentChunks * 2 + 16;
  int32_t corrections[kDirectTokens][kStride];
  float scaled_sums[kDirectTokens][kStride];
};

template <bool kHalves>
void PrepareDirect(const PackedCall& call, int32_t chunk_begin, int32_t count,
                   DirectTokens& tokens) {
  const int64_t chunks = call.w->chunks;
  const bool has_min = call.w->has_min != 0;
  for (int32_t t = 0; t < call.x->rows; ++t) {
    const int32_t* sums = call.x->sums + (t * chunks + chunk_begin) * 2;
    const float* xscales = call.x->scales + t * chunks + chunk_begin;
    int32_t* const corrections = tokens.corrections[t];
    float* const scaled = tokens.scaled_sums[t];
    // Plain loops over neighbours, which compilers turn into vectors.
    if constexpr (kHalves) {
      for (int32_t i = 0; i < 2 * count; ++i) corrections[i] = -call.zero * sums[i];
      if (!has_min) continue;
      for (int32_t i = 0; i < 2 * count; ++i) {
        scaled[i] = xscales[i / 2] * static_cast<float>(sums[i]);
      }
    } else {
      for (int32_t i = 0; i < count; ++i) {
        corrections[i] = -call.zero * (sums[2 * i] + sums[2 * i + 1]);
      }
      if (!has_min) continue;
      for (int32_t i = 0; i < count; ++i) {
        scaled[i] = xscales[i] * static_cast<float>(sums[2 * i] + sums[2 * i + 1]);
      }
    }
  }
}

// Part of a row: all of it but for very long ones.
struct Segment {
  int32_t begin, end;  // chunks
  const DirectTokens* tokens;
};

// One tile times T tokens, straight from memory. Running sums wait in `out` between segments.
template <typename Dot, int kCode, int T, bool kHalves>
void DirectTile(const PackedCall& call, const Segment& segment, int32_t tile) {
  const PackedTiles& w = *call.w;
  constexpr int kBits = BitsOf(kCode);
  constexpr int kPieces = kHalves ? 2 : 1;
  constexpr int kWidth = 8 / kPieces;
  const int64_t chunks = w.chunks;
  const uint8_t* data = w.data + static_cast<size_t>(tile) * w.tile_bytes;
  const uint8_t* codes = data + w.codes_offset + static_cast<size_t>(segment.begin) * 64u * kBits;
  const int8_t* values = call.x->values;
  const float* xscales = call.x->scales;
  const bool has_min = w.has_min != 0;
  const bool odd = call.odd;
  const __m512i book = LoadBook(w);
  // The tile's share of the stream is prefetched at an even pace, scales included, so that the
  // prefetches of all tiles together touch every line once.
  const size_t step = w.tile_bytes / static_cast<size_t>(chunks);
  const char* ahead =
      reinterpret_cast<const char*>(data) + kAheadBytes + step * static_cast<size_t>(segment.begin);
  // Reading the scales at once keeps all reads in the order of memory; taken as they are needed, a
  // line for every other chunk, they cost a memory latency a tile (u8 groups of 32, 576 columns:
  // 20 GB/s instead of 28).
  alignas(64) uint8_t copy[kScaleCopyBytes];
  const uint8_t* scales = data;
  if (w.codes_offset <= kScaleCopyBytes) {
    for (size_t i = 0; i < w.codes_offset; i += 64) {
      _mm512_store_si512(copy + i, LoadVector(data + i));
    }
    scales = copy;
  }

  const __mmask16 mask = LaneMask(w.rows - tile * 16);
  float* out = call.out + tile * 16;
  __m512 f[T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    f[t] = segment.begin == 0 ? _mm512_setzero_ps()
                              : _mm512_maskz_loadu_ps(mask, out + t * call.out_stride);
  }
  int32_t group = segment.begin * kPieces / call.part_group;
  int32_t left = call.part_group - segment.begin * kPieces % call.part_group;
  __m512 scale = ScaleOf<kHalves>(call, scales, group);
  __m512 min = has_min ? LoadMins(w, scales, group) : scale;
  for (int32_t chunk = segment.begin; chunk < segment.end; ++chunk) {
    __m512i operands[8];
#pragma GCC unroll 16
    for (int line = 0; line < kBits + 1; ++line) _mm_prefetch(ahead + 64 * line, _MM_HINT_T0);
    ahead += step;
    LoadChunk<kCode>(codes, book, operands);
    codes += 64 * kBits;
#pragma GCC unroll 2
    for (int piece = 0; piece < kPieces; ++piece) {
      if (left == 0) {
        ++group;
        left = call.part_group;
        scale = ScaleOf<kHalves>(call, scales, group);
        if (has_min) min = LoadMins(w, scales, kHalves ? ClampGroup(w, group) : group);
      }
      --left;
      const int32_t at = (chunk - segment.begin) * kPieces + piece;
      __m512i sums[T];
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        const int8_t* x = values + (t * chunks + chunk) * 32 + piece * 16;
        // Two chains hide the latency of the dot product.
        __m512i a =
            odd ? _mm512_setzero_si512() : _mm512_set1_epi32(segment.tokens->corrections[t][at]);
        __m512i b = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int v = 0; v < kWidth; v += 2) {
          const __m512i* const operand = operands + piece * kWidth + v;
          a = Dot::template Add<WidthOf(kCode)>(a, operand[0], Broadcast4(x + 4 * v));
          b = Dot::template Add<WidthOf(kCode)>(b, operand[1], Broadcast4(x + 4 * v + 4));
        }
        sums[t] = _mm512_add_epi32(a, b);
      }
      if (odd) {
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
          sums[t] = _mm512_add_epi32(_mm512_add_epi32(sums[t], sums[t]),
                                     _mm512_set1_epi32(segment.tokens->corrections[t][at]));
        }
      }
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(xscales[t * chunks + chunk]));
        f[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[t]), both, f[t]);
      }
      if (has_min) {
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
          f[t] = _mm512_fmadd_ps(min, _mm512_set1_ps(segment.tokens->scaled_sums[t][at]), f[t]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) _mm512_mask_storeu_ps(out + t * call.out_stride, mask, f[t]);
}

template <typename Dot, int kCode, int T, bool kHalves>
void DirectTiles(const PackedCall& call, const Segment& segment, int32_t tile_begin,
                 int32_t tile_end) {
  for (int32_t tile = tile_begin; tile < tile_end; ++tile) {
    DirectTile<Dot, kCode, T, kHalves>(call, segment, tile);
  }
}

template <typename Dot, int kCode, bool kHalves>
void Direct(const PackedCall& call, int32_t tile_begin, int32_t tile_end) {
  DirectTokens tokens;
  for (int32_t begin = 0; begin < call.w->chunks; begin += kSegmentChunks) {
    const int32_t left = call.w->chunks - begin;
    const int32_t count = left < kSegmentChunks ? left : kSegmentChunks;
    PrepareDirect<kHalves>(call, begin, count, tokens);
    const Segment segment = {begin, begin + count, &tokens};
    switch (call.x->rows) {
      case 1:
        DirectTiles<Dot, kCode, 1, kHalves>(call, segment, tile_begin, tile_end);
        break;
      case 2:
        DirectTiles<Dot, kCode, 2, kHalves>(call, segment, tile_begin, tile_end);
        break;
      case 3:
        DirectTiles<Dot, kCode, 3, kHalves>(call, segment, tile_begin, tile_end);
        break;
      case 4:
        DirectTiles<Dot, kCode, 4, kHalves>(call, segment, tile_begin, tile_end);
        break;
      case 5:
        DirectTiles<Dot, kCode, 5, kHalves>(call, segment, tile_begin, tile_end);
        break;
      case 6:
        DirectTiles<Dot, kCode, 6, kHalves>(call, segment, tile_begin, tile_end);
        break;
      case 7:
        DirectTiles<Dot, kCode, 7, kHalves>(call, segment, tile_begin, tile_end);
        break;
      default:
        DirectTiles<Dot, kCode, 8, kHalves>(call, segment, tile_begin, tile_end);
        break;
    }
  }
}

// A block of chunks of one or two tiles, ready for many tokens.
struct Panel {
  alignas(64) uint8_t widened[2][kPanelChunks][512];
  alignas(64) float scales[kPanelChunks * 2][2][16];  // [piece][tile][row]; halved when odd
  alignas(64) float mins[kPanelChunks * 2][2][16];
  const uint8_t* codes[2];  // into `widened`, or into the weights when they are bytes already
  int32_t chunk_begin;
  int32_t chunks;
};

// Per token and piece of the panel: what the integer sum starts from, the scale of the
// activations, and for mins their scaled sum.
struct PanelTokens {
  int32_t corrections[kPanelTokens][kPanelChunks * 2];
  float xscales[kPanelTokens][kPanelChunks];
  float scaled_sums[kPanelTokens][kPanelChunks * 2];
};

template <int kCode>
void WidenTile(const PackedTiles& w, int32_t tile, int slot, Panel& panel) {
  constexpr int kBits = BitsOf(kCode);
  const uint8_t* codes = w.data + static_cast<size_t>(tile) * w.tile_bytes + w.codes_offset +
                         static_cast<size_t>(panel.chunk_begin) * (64u * kBits);
  if constexpr (kCode == 8) {
    panel.codes[slot] = codes;
  } else {
    const __m512i book = LoadBook(w);
    panel.codes[slot] = panel.widened[slot][0];
    for (int32_t chunk = 0; chunk < panel.chunks; ++chunk) {
      __m512i operands[8];
      LoadChunk<kCode>(codes + chunk * 64 * kBits, book, operands);
#pragma GCC unroll 8
      for (int v = 0; v < 8; ++v) {
        _mm512_store_si512(panel.widened[slot][chunk] + 64 * v, operands[v]);
      }
    }
  }
}

template <bool kHalves>
void PrepareTokens(const PackedCall& call, const Panel& panel, int32_t token, int32_t count,
                   PanelTokens& tokens) {
  const int64_t chunks = call.w->chunks;
  const bool has_min = call.w->has_min != 0;
  const __m512i zero = _mm512_set1_epi32(-call.zero);
  for (int32_t t = 0; t < count; ++t) {
    const int64_t first = (token + t) * chunks + panel.chunk_begin;
    const int32_t* sums = call.x->sums + 2 * first;
    const float* xscales = call.x->scales + first;
    const __mmask16 mask = LaneMask(panel.chunks);
    const __m512 scale = _mm512_maskz_loadu_ps(mask, xscales);
    _mm512_storeu_ps(tokens.xscales[t], scale);
    const __m512i low = _mm512_maskz_loadu_epi32(LaneMask(2 * panel.chunks), sums);
    const __m512i high = panel.chunks > 8
                             ? _mm512_maskz_loadu_epi32(LaneMask(2 * panel.chunks - 16), sums + 16)
                             : _mm512_setzero_si512();
    if constexpr (kHalves) {
      const __m512i twice_low = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
      const __m512i twice_high = _mm512_add_epi32(twice_low, _mm512_set1_epi32(8));
      _mm512_storeu_si512(tokens.corrections[t], _mm512_mullo_epi32(low, zero));
      _mm512_storeu_si512(tokens.corrections[t] + 16, _mm512_mullo_epi32(high, zero));
      if (!has_min) continue;
      _mm512_storeu_ps(tokens.scaled_sums[t], _mm512_mul_ps(_mm512_permutexvar_ps(twice_low, scale),
                                                            _mm512_cvtepi32_ps(low)));
      _mm512_storeu_ps(
          tokens.scaled_sums[t] + 16,
          _mm512_mul_ps(_mm512_permutexvar_ps(twice_high, scale), _mm512_cvtepi32_ps(high)));
    } else {
      const __m512i even =
          _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
      const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
      const __m512i sum = _mm512_add_epi32(_mm512_permutex2var_epi32(low, even, high),
                                           _mm512_permutex2var_epi32(low, odd, high));
      _mm512_storeu_si512(tokens.corrections[t], _mm512_mullo_epi32(sum, zero));
      if (!has_min) continue;
      _mm512_storeu_ps(tokens.scaled_sums[t], _mm512_mul_ps(scale, _mm512_cvtepi32_ps(sum)));
    }
  }
}

// N tiles of the panel times T tokens from `token`; running sums wait in `out` between panels.
template <typename Dot, int T, int N, bool kHalves>
void PanelTile(const PackedCall& call, const Panel& panel, const PanelTokens& tokens, int32_t tile,
               int32_t token) {
  const int64_t chunks = call.w->chunks;
  const int8_t* values = call.x->values + (token * chunks + panel.chunk_begin) * 32;
  const uint8_t* codes0 = panel.codes[0];
  const uint8_t* codes1 = N == 2 ? panel.codes[1] : nullptr;
  const bool has_min = call.w->has_min != 0;
  const bool odd = call.odd;
  constexpr int kPieces = kHalves ? 2 : 1;
  constexpr int kWidth = 8 / kPieces;
  float* out = call.out + token * call.out_stride + tile * 16;
  // Only the last tile of the matrix can be partial, and it is the last of its pair.
  const __mmask16 mask = LaneMask(call.w->rows - (tile + N - 1) * 16);
  const __mmask16 full = N == 2 ? static_cast<__mmask16>(0xFFFF) : mask;

  __m512 f[T][N];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) {
      f[t][n] = panel.chunk_begin == 0 ? _mm512_setzero_ps()
                                       : _mm512_maskz_loadu_ps(n == N - 1 ? mask : full,
                                                               out + t * call.out_stride + 16 * n);
    }
  }
  for (int32_t chunk = 0; chunk < panel.chunks; ++chunk) {
#pragma GCC unroll 2
    for (int piece = 0; piece < kPieces; ++piece) {
      const int32_t index = chunk * kPieces + piece;
      __m512i sums[T][N];
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        const __m512i start =
            odd ? _mm512_setzero_si512() : _mm512_set1_epi32(tokens.corrections[t][index]);
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) sums[t][n] = start;
      }
#pragma GCC unroll 8
      for (int v = 0; v < kWidth; ++v) {
        const int32_t offset = chunk * 512 + (piece * kWidth + v) * 64;
        const __m512i w0 = LoadVector(codes0 + offset);
        const __m512i w1 = N == 2 ? LoadVector(codes1 + offset) : w0;
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
          const __m512i x =
              Broadcast4(values + (t * chunks + chunk) * 32 + (piece * kWidth + v) * 4);
          sums[t][0] = Dot::template Add<8>(sums[t][0], w0, x);
          if (N == 2) sums[t][N - 1] = Dot::template Add<8>(sums[t][N - 1], w1, x);
        }
      }
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        const float xscale = tokens.xscales[t][chunk];
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) {
          if (odd) {
            sums[t][n] = _mm512_add_epi32(_mm512_add_epi32(sums[t][n], sums[t][n]),
                                          _mm512_set1_epi32(tokens.corrections[t][index]));
          }
          f[t][n] = _mm512_fmadd_ps(
              _mm512_cvtepi32_ps(sums[t][n]),
              _mm512_mul_ps(_mm512_load_ps(panel.scales[index][n]), _mm512_set1_ps(xscale)),
              f[t][n]);
          if (has_min) {
            f[t][n] = _mm512_fmadd_ps(_mm512_load_ps(panel.mins[index][n]),
                                      _mm512_set1_ps(tokens.scaled_sums[t][index]), f[t][n]);
          }
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) {
      _mm512_mask_storeu_ps(out + t * call.out_stride + 16 * n, n == N - 1 ? mask : full, f[t][n]);
    }
  }
}

template <typename Dot, int N, bool kHalves>
void PanelTokensLoop(const PackedCall& call, const Panel& panel, int32_t tile) {
  PanelTokens tokens;
  const int32_t rows = call.x->rows;
  for (int32_t token = 0; token < rows; token += kPanelTokens) {
    const int32_t count = rows - token < kPanelTokens ? rows - token : kPanelTokens;
    PrepareTokens<kHalves>(call, panel, token, count, tokens);
    switch (count) {
      case 1:
        PanelTile<Dot, 1, N, kHalves>(call, panel, tokens, tile, token);
        break;
      case 2:
        PanelTile<Dot, 2, N, kHalves>(call, panel, tokens, tile, token);
        break;
      case 3:
        PanelTile<Dot, 3, N, kHalves>(call, panel, tokens, tile, token);
        break;
      case 4:
        PanelTile<Dot, 4, N, kHalves>(call, panel, tokens, tile, token);
        break;
      case 5:
        PanelTile<Dot, 5, N, kHalves>(call, panel, tokens, tile, token);
        break;
      default:
        PanelTile<Dot, 6, N, kHalves>(call, panel, tokens, tile, token);
        break;
    }
  }
}

// Asks for the codes of the panel that follows, while this one is worked on.
template <int kBits>
void PrefetchNext(const PackedCall& call, int32_t tile, int tiles, const Panel& panel) {
  const PackedTiles& w = *call.w;
  const int32_t next_chunk = panel.chunk_begin + panel.chunks;
  const bool same_tiles = next_chunk < w.chunks;
  for (int slot = 0; slot < tiles; ++slot) {
    const int32_t next_tile = same_tiles ? tile + slot : tile + tiles + slot;
    if (next_tile * 16 >= w.rows) return;
    const char* codes = reinterpret_cast<const char*>(
        w.data + static_cast<size_t>(next_tile) * w.tile_bytes + w.codes_offset +
        static_cast<size_t>(same_tiles ? next_chunk : 0) * (64u * kBits));
    for (int32_t line = 0; line < panel.chunks * kBits; ++line) {
      _mm_prefetch(codes + 64 * line, _MM_HINT_T1);
    }
  }
}

template <int kCode, bool kHalves>
void FillPanel(const PackedCall& call, int32_t tile, int tiles, Panel& panel) {
  constexpr int kPieces = kHalves ? 2 : 1;
  const PackedTiles& w = *call.w;
  for (int slot = 0; slot < tiles; ++slot) {
    WidenTile<kCode>(w, tile + slot, slot, panel);
    ExpandScales<kHalves>(call, w.data + static_cast<size_t>(tile + slot) * w.tile_bytes,
                          panel.chunk_begin * kPieces, panel.chunks * kPieces,
                          panel.scales[0][slot], panel.mins[0][slot], 32);
  }
}

template <typename Dot, int kCode, bool kHalves>
void Panels(const PackedCall& call, int32_t tile_begin, int32_t tile_end) {
  Panel panel;
  for (int32_t tile = tile_begin; tile < tile_end; tile += 2) {
    const int tiles = tile_end - tile < 2 ? 1 : 2;
    for (int32_t begin = 0; begin < call.w->chunks; begin += kPanelChunks) {
      panel.chunk_begin = begin;
      panel.chunks = call.w->chunks - begin < kPanelChunks ? call.w->chunks - begin : kPanelChunks;
      FillPanel<kCode, kHalves>(call, tile, tiles, panel);
      PrefetchNext<BitsOf(kCode)>(call, tile, tiles, panel);
      if (tiles == 2) {
        PanelTokensLoop<Dot, 2, kHalves>(call, panel, tile);
      } else {
        PanelTokensLoop<Dot, 1, kHalves>(call, panel, tile);
      }
    }
  }
}

// Few tokens of a call that has more: `count` from `token`.
template <typename Dot, int kCode, bool kHalves>
void DirectSome(const PackedCall& call, int32_t token, int32_t count, int32_t tile_begin,
                int32_t tile_end) {
  const int64_t first = int64_t{token} * call.w->chunks;
  const QuantRows x = {call.x->values + first * 32, call.x->scales + first,
                       call.x->sums + first * 2, count, call.x->chunks};
  PackedCall some = call;
  some.x = &x;
  some.out += token * call.out_stride;
  Direct<Dot, kCode, kHalves>(some, tile_begin, tile_end);
}

// Whether blocks (packed_blocks.h) are faster than tiles from memory, as measured: eight-bit codes
// are bound by memory until there are seven tokens or more, few bits are bound by unpacking sooner.
template <int kCode, bool kHalves>
bool WantsBlocks(int32_t tokens) {
  constexpr int kFrom = BitsOf(kCode) <= 4 ? (kHalves ? 4 : 5) : (kHalves ? 9 : 7);
  return tokens >= kFrom && tokens <= kMostBlockTokens;
}

template <typename Dot, int kCode, bool kHalves>
void MatmulCodes(const PackedCall& call, int32_t tile_begin, int32_t tile_end) {
  const int32_t rows = call.x->rows;
  if (WantsBlocks<kCode, kHalves>(rows)) {
    const int32_t pairs_end = tile_end - (tile_end - tile_begin) % 2;
    Blocks<Dot, kCode, kHalves>(call, tile_begin, pairs_end);
    for (int32_t token = 0; token < rows && pairs_end < tile_end; token += kDirectTokens) {
      const int32_t count = rows - token < kDirectTokens ? rows - token : kDirectTokens;
      DirectSome<Dot, kCode, kHalves>(call, token, count, pairs_end, tile_end);
    }
  } else if (rows > kDirectTokens) {
    Panels<Dot, kCode, kHalves>(call, tile_begin, tile_end);
  } else if (rows > 0) {
    Direct<Dot, kCode, kHalves>(call, tile_begin, tile_end);
  }
}

template <typename Dot, int kCode>
void MatmulCodes(const PackedCall& call, int32_t tile_begin, int32_t tile_end) {
  if (call.w->group == 16) {
    MatmulCodes<Dot, kCode, true>(call, tile_begin, tile_end);
  } else {
    MatmulCodes<Dot, kCode, false>(call, tile_begin, tile_end);
  }
}

template <typename Dot>
void MatmulPacked(const PackedTiles* w, const QuantRows* x, int32_t tile_begin, int32_t tile_end,
                  float* out, int64_t out_stride) {
  PackedCall call = {w, x, out, out_stride, 0, false, 0};
  call.odd = w->zero2 % 2 != 0;
  call.zero = call.odd ? w->zero2 : w->zero2 / 2;
  call.part_group = w->group == 16 ? 1 : w->group / 32;
  switch (w->bits + (w->book == nullptr ? 0 : kBook)) {
    case kBook + 4:
      return MatmulCodes<Dot, kBook + 4>(call, tile_begin, tile_end);
    case kBook + 3:
      return MatmulCodes<Dot, kBook + 3>(call, tile_begin, tile_end);
    case 8:
      return MatmulCodes<Dot, 8>(call, tile_begin, tile_end);
    case 6:
      return MatmulCodes<Dot, 6>(call, tile_begin, tile_end);
    case 5:
      return MatmulCodes<Dot, 5>(call, tile_begin, tile_end);
    case 4:
      return MatmulCodes<Dot, 4>(call, tile_begin, tile_end);
    case 3:
      return MatmulCodes<Dot, 3>(call, tile_begin, tile_end);
    case 2:
      return MatmulCodes<Dot, 2>(call, tile_begin, tile_end);
    default:
      return MatmulCodes<Dot, 1>(call, tile_begin, tile_end);
  }
}

}  // namespace
}  // namespace cellm

#endif  // CELLM_SRC_KERNELS_AVX512_PACKED_H_
