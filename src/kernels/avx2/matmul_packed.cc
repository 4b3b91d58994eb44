// Packed products with 16-bit pairs (maddubs), 8 rows a vector.
//
// Blocks of up to 16 chunks of a tile become bytes in L1 (8-bit weights are read where they are);
// groups of up to 4 tokens run over them, 8 rows at a time. maddubs saturates at 16 bits, so
//   8 bits       codes are moved to -128..127 and used as magnitude and sign; one pair sum is at
//                most 2 * 128 * 127 and is widened at once
//   5, 6 bits    a pair sum is at most 2 * 63 * 127, widened at once
//   4 bits, less eight pair sums fit: 8 * 2 * 15 * 127, widened once a chunk

#include "kernels/avx2/avx2.h"
#include "kernels/avx2/packed.h"

namespace cellm::avx2 {
namespace {

constexpr int32_t kTokens = 4;
constexpr int32_t kBlockChunks = 16;
constexpr size_t kAheadBytes = 8192;
// Scales of a tile up to this size are copied before its codes are read, so that all reads are in
// the order of memory.
constexpr size_t kScaleCopyBytes = 16384;

enum class Width { kByte, kMiddle, kNibble };

struct Block {
  const PackedTiles* w;
  const QuantRows* x;
  const uint8_t* tile;   // its scales (a copy, where they are not too many)
  const uint8_t* bytes;  // codes of the block's chunks, 512 bytes each
  int32_t chunk_begin;
  int32_t chunks;
  bool odd;            // zero2 is odd: products count twice and scales half
  int32_t correction;  // times sum(x), added to the integer sum
  Ahead ahead;
  alignas(32) uint8_t scale_copy[kScaleCopyBytes];
};

CELLM_INLINE __m256i Broadcast4(const int8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, sizeof(four));
  return _mm256_set1_epi32(four);
}

// Adds a piece's products (kVectors operands) for T tokens to sums.
template <Width kWidth, int T, int kVectors>
CELLM_INLINE void Products(const uint8_t* codes, const int8_t* x, int64_t x_stride,
                           __m256i sums[T]) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i pairs[T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) pairs[t] = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    __m256i code = LoadBytes(codes + 64 * v);
    __m256i magnitude = code;
    if constexpr (kWidth == Width::kByte) {
      code = _mm256_xor_si256(code, _mm256_set1_epi8(static_cast<char>(0x80)));
      magnitude = _mm256_abs_epi8(code);
    }
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      __m256i four = Broadcast4(x + t * x_stride + 4 * v);
      if constexpr (kWidth == Width::kByte) four = _mm256_sign_epi8(four, code);
      const __m256i pair = _mm256_maddubs_epi16(magnitude, four);
      if constexpr (kWidth == Width::kNibble) {
        pairs[t] = _mm256_add_epi16(pairs[t], pair);
      } else {
        sums[t] = _mm256_add_epi32(sums[t], _mm256_madd_epi16(pair, ones));
      }
    }
  }
  if constexpr (kWidth == Width::kNibble) {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      sums[t] = _mm256_add_epi32(sums[t], _mm256_madd_epi16(pairs[t], ones));
    }
  }
}

// Rows 8 * half .. + 7 of the tile times T tokens from `token`; running sums wait in out.
template <Width kWidth, int T, bool kHalves>
void HalfTile(Block& block, int half, int32_t token, float* out, int64_t out_stride,
              int32_t rows_left) {
  const PackedTiles& w = *block.w;
  const int64_t chunks = w.chunks;
  constexpr int kPieces = kHalves ? 2 : 1;
  constexpr int kVectors = 8 / kPieces;
  const int64_t x_stride = chunks * 32;
  const int8_t* values = block.x->values + (token * chunks + block.chunk_begin) * 32;
  const float* xscales = block.x->scales + token * chunks + block.chunk_begin;
  const int32_t* xsums = block.x->sums + (token * chunks + block.chunk_begin) * 2;
  const int32_t part_group = kHalves ? 1 : w.group / 32;
  const bool has_min = w.has_min != 0;

  __m256 f[T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    f[t] = block.chunk_begin == 0 ? _mm256_setzero_ps() : LoadPart(out + t * out_stride, rows_left);
  }
  int32_t group = block.chunk_begin * kPieces / part_group;
  int32_t left = part_group - block.chunk_begin * kPieces % part_group;
  __m256 scale = LoadScales(w, block.tile, group, half);
  __m256 min = has_min ? LoadMins(w, block.tile, group, half) : scale;
  for (int32_t chunk = 0; chunk < block.chunks; ++chunk) {
    const uint8_t* codes = block.bytes + chunk * 512 + 32 * half;
    // Narrower codes were read, and the next ones prefetched, when they were widened.
    if (kWidth == Width::kByte && w.bits == 8 && half == 0 && token == 0) {
      PrefetchStep(block.ahead);
    }
#pragma GCC unroll 2
    for (int piece = 0; piece < kPieces; ++piece) {
      if (left == 0) {
        ++group;
        left = part_group;
        scale = LoadScales(w, block.tile, group, half);
        if (has_min) min = LoadMins(w, block.tile, group, half);
      }
      --left;
      const __m256 own = block.odd ? _mm256_mul_ps(scale, _mm256_set1_ps(0.5f)) : scale;
      __m256i sums[T];
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) sums[t] = _mm256_setzero_si256();
      Products<kWidth, T, kVectors>(codes + 64 * kVectors * piece, values + chunk * 32 + 16 * piece,
                                    x_stride, sums);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        const int32_t* s = xsums + (t * chunks + chunk) * 2;
        const int32_t sum = kHalves ? s[piece] : s[0] + s[1];
        const float xscale = xscales[t * chunks + chunk];
        if (block.odd) sums[t] = _mm256_add_epi32(sums[t], sums[t]);
        sums[t] = _mm256_add_epi32(sums[t], _mm256_set1_epi32(block.correction * sum));
        f[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[t]),
                               _mm256_mul_ps(own, _mm256_set1_ps(xscale)), f[t]);
        if (has_min) {
          f[t] = _mm256_fmadd_ps(min, _mm256_set1_ps(xscale * static_cast<float>(sum)), f[t]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) StorePart(out + t * out_stride, rows_left, f[t]);
}

template <Width kWidth, bool kHalves>
void RunBlock(Block& block, int32_t tile, float* out, int64_t out_stride) {
  for (int32_t token = 0; token < block.x->rows; token += kTokens) {
    const int32_t count = block.x->rows - token;
    for (int half = 0; half < 2; ++half) {
      const int32_t row = tile * 16 + half * 8;
      const int32_t rows_left = block.w->rows - row;
      if (rows_left <= 0) break;
      float* to = out + token * out_stride + row;
      switch (count) {
        case 1:
          HalfTile<kWidth, 1, kHalves>(block, half, token, to, out_stride, rows_left);
          break;
        case 2:
          HalfTile<kWidth, 2, kHalves>(block, half, token, to, out_stride, rows_left);
          break;
        case 3:
          HalfTile<kWidth, 3, kHalves>(block, half, token, to, out_stride, rows_left);
          break;
        default:
          HalfTile<kWidth, 4, kHalves>(block, half, token, to, out_stride, rows_left);
          break;
      }
    }
  }
}

template <bool kHalves>
void RunTile(Block& block, int32_t tile, float* out, int64_t out_stride) {
  alignas(32) uint8_t bytes[kBlockChunks * 512];
  const PackedTiles& w = *block.w;
  const uint8_t* data = w.data + static_cast<size_t>(tile) * w.tile_bytes;
  block.ahead = {reinterpret_cast<const char*>(data) + kAheadBytes,
                 w.tile_bytes / static_cast<size_t>(w.chunks)};
  block.tile = data;
  if (w.codes_offset <= kScaleCopyBytes) {
    for (size_t i = 0; i < w.codes_offset; i += 32) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(block.scale_copy + i), LoadBytes(data + i));
    }
    block.tile = block.scale_copy;
  }
  for (int32_t begin = 0; begin < w.chunks; begin += kBlockChunks) {
    block.chunk_begin = begin;
    block.chunks = w.chunks - begin < kBlockChunks ? w.chunks - begin : kBlockChunks;
    const uint8_t* codes =
        data + w.codes_offset + static_cast<size_t>(begin) * 64u * static_cast<size_t>(w.bits);
    block.bytes = codes;
    if (w.bits != 8) {
      WidenCodes(w, codes, block.chunks, bytes, block.ahead);
      block.bytes = bytes;
    }
    if (w.bits == 8 || w.book != nullptr) {
      RunBlock<Width::kByte, kHalves>(block, tile, out, out_stride);
    } else if (w.bits > 4) {
      RunBlock<Width::kMiddle, kHalves>(block, tile, out, out_stride);
    } else {
      RunBlock<Width::kNibble, kHalves>(block, tile, out, out_stride);
    }
  }
}

}  // namespace

void matmul_packed_a8(const PackedTiles* w, const QuantRows* x, int32_t tile_begin,
                      int32_t tile_end, float* out, int64_t out_stride) {
  Block block;  // its copy of scales stays uninitialised until a tile fills it
  block.w = w;
  block.x = x;
  block.odd = w->zero2 % 2 != 0;
  // Moving bytes down by 128 leaves 128 * sum(x) to be added back.
  const int32_t moved = w->bits == 8 || w->book != nullptr ? 128 : 0;
  block.correction = block.odd ? 2 * moved - w->zero2 : moved - w->zero2 / 2;
  for (int32_t tile = tile_begin; tile < tile_end; ++tile) {
    if (w->group == 16) {
      RunTile<true>(block, tile, out, out_stride);
    } else {
      RunTile<false>(block, tile, out, out_stride);
    }
  }
}

void unpack_tile_f32(const PackedTiles* w, int32_t tile, float* out) {
  alignas(32) uint8_t bytes[512];
  alignas(32) float scales[2][16];
  alignas(32) float mins[2][16] = {};
  const uint8_t* data = w->data + static_cast<size_t>(tile) * w->tile_bytes;
  const bool has_min = w->has_min != 0;
  const __m256i columns = _mm256_setr_epi32(0, 16, 32, 48, 64, 80, 96, 112);
  const __m256i zero2 = _mm256_set1_epi32(w->zero2);
  Ahead no_ahead = {nullptr, 0};
  for (int32_t chunk = 0; chunk < w->chunks; ++chunk) {
    WidenCodes(
        *w,
        data + w->codes_offset + static_cast<size_t>(chunk) * 64u * static_cast<size_t>(w->bits), 1,
        bytes, no_ahead);
    for (int part = 0; part < 2; ++part) {
      const int32_t group = (chunk * 32 + 16 * part) / w->group;
      for (int half = 0; half < 2; ++half) {
        _mm256_store_ps(scales[part] + 8 * half,
                        _mm256_mul_ps(LoadScales(*w, data, group, half), _mm256_set1_ps(0.5f)));
        if (has_min) {
          _mm256_store_ps(mins[part] + 8 * half, LoadMins(*w, data, group, half));
        }
      }
    }
    const int32_t left = w->cols - chunk * 32;
    for (int32_t row = 0; row < 16; ++row) {
      // Every 16th group of four bytes: the row's 32 codes in order.
      alignas(32) uint8_t codes[32];
      _mm256_store_si256(
          reinterpret_cast<__m256i*>(codes),
          _mm256_i32gather_epi32(reinterpret_cast<const int*>(bytes + 4 * row), columns, 4));
      float* to = out + static_cast<int64_t>(row) * w->cols + chunk * 32;
      for (int i = 0; i < 4 && left > 8 * i; ++i) {
        const __m256i code =
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + 8 * i)));
        const __m256i level = _mm256_sub_epi32(_mm256_add_epi32(code, code), zero2);
        __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(level), _mm256_set1_ps(scales[i / 2][row]));
        if (has_min) value = _mm256_add_ps(value, _mm256_set1_ps(mins[i / 2][row]));
        StorePart(to + 8 * i, left - 8 * i, value);
      }
    }
  }
}

}  // namespace cellm::avx2
