// A short comparison of a tier with the scalar table, done when an engine is made.
//
// It covers each row once with sizes that end inside a vector; the tests (tests/kernels) do the
// real work. Inputs come from a fixed generator, no memory is allocated.

#include <cstring>

#include "base/rng.h"
#include "kernels/kernel_table.h"
#include "kernels/scalar/scalar.h"

namespace cellm::kernels {
namespace {

constexpr int32_t kRows = 20;
constexpr int32_t kCols = 70;
constexpr int32_t kTokens = 3;
constexpr int32_t kChunks = 3;

struct Inputs {
  float a[kRows * kCols];
  float b[kRows * kCols];
  uint16_t halves[kRows * kCols];
  alignas(64) uint8_t tiles[2 * (64 * 2 * kChunks + 64 * 8 * kChunks)];
  int8_t values[kTokens * kChunks * 32];
  float scales[kTokens * kChunks];
  int32_t sums[kTokens * kChunks * 2];
};

void Fill(Inputs& in) {
  Rng rng(20240229);
  for (float& v : in.a) v = (rng.NextFloat() - 0.5f) * 4.0f;
  for (float& v : in.b) v = (rng.NextFloat() - 0.5f) * 4.0f;
  // Halves between 2^-8 and 2 with either sign: no infinities, no NaN.
  for (uint16_t& h : in.halves) {
    h = static_cast<uint16_t>(((rng.NextU64() & 1u) << 15) | (0x1C00u + rng.NextBelow(0x2400u)));
  }
  for (uint8_t& byte : in.tiles) byte = static_cast<uint8_t>(rng.NextU64());
  for (int32_t t = 0; t < kTokens; ++t) {
    scalar::quantize_row_a8(in.a + t * kCols, kCols, in.values + t * kChunks * 32,
                            in.scales + t * kChunks, in.sums + t * kChunks * 2);
  }
}

bool SameBits(const void* x, const void* y, size_t bytes) { return std::memcmp(x, y, bytes) == 0; }

bool MatmulsAgree(const KernelTable& t, const Inputs& in) {
  float want[kTokens * kRows] = {};
  float got[kTokens * kRows] = {};
  const auto same = [&] { return SameBits(want, got, sizeof(want)); };
  if (t.matmul_f32_f32 != nullptr) {
    scalar::matmul_f32_f32(in.a, kCols, in.b, kCols, kRows, kCols, kTokens, want, kRows);
    t.matmul_f32_f32(in.a, kCols, in.b, kCols, kRows, kCols, kTokens, got, kRows);
    if (!same()) return false;
  }
  if (t.matmul_f16_f32 != nullptr) {
    scalar::matmul_f16_f32(in.halves, kCols, in.b, kCols, kRows, kCols, kTokens, want, kRows);
    t.matmul_f16_f32(in.halves, kCols, in.b, kCols, kRows, kCols, kTokens, got, kRows);
    if (!same()) return false;
  }
  if (t.matmul_bf16_f32 != nullptr) {
    scalar::matmul_bf16_f32(in.halves, kCols, in.b, kCols, kRows, kCols, kTokens, want, kRows);
    t.matmul_bf16_f32(in.halves, kCols, in.b, kCols, kRows, kCols, kTokens, got, kRows);
    if (!same()) return false;
  }
  return true;
}

struct PackedCase {
  int32_t bits, group;
  bool has_min;
  SubKind sub;
  bool book;
};

// A packed layout over in.tiles, its float scales replaced by small positive halves.
PackedTiles TilesOf(Inputs& in, const PackedCase& c) {
  // Ascending bytes that no width but eight bits would hold.
  static constexpr uint8_t kBook[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                        129, 141, 153, 166, 181, 197, 217, 241};
  PackedTiles w = {};
  w.rows = kRows;
  w.cols = kCols;
  w.chunks = kChunks;
  w.bits = c.bits;
  w.group = c.group;
  w.groups = (kChunks * 32 + c.group - 1) / c.group;
  w.zero2 = c.bits == 8 || c.book ? 256 : (1 << c.bits) - 1;
  w.has_min = c.has_min ? 1 : 0;
  w.sub = c.sub;
  w.super_shift = c.sub == kSubNone ? 0 : 1;
  w.book = c.book ? kBook : nullptr;
  const size_t floats = static_cast<size_t>((w.groups + w.super_shift) >> w.super_shift) * 32u;
  const size_t subs = c.sub == kSubNone ? 0 : static_cast<size_t>(w.groups) * 16u;
  w.mins_offset = floats;
  w.subs_offset = floats * (c.has_min ? 2u : 1u);
  w.sub_mins_offset = w.subs_offset + subs;
  w.codes_offset = (w.sub_mins_offset + subs + 63u) / 64u * 64u;
  w.tile_bytes = w.codes_offset + static_cast<size_t>(kChunks) * 64u * static_cast<size_t>(c.bits);
  w.data = in.tiles;
  for (size_t tile = 0; tile < 2; ++tile) {
    std::memcpy(in.tiles + tile * w.tile_bytes, in.halves, w.subs_offset);
  }
  return w;
}

bool PackedAgree(const KernelTable& t, Inputs& in) {
  const QuantRows x = {in.values, in.scales, in.sums, kTokens, kChunks};
  constexpr PackedCase kCases[] = {{8, 32, false, kSubNone, false}, {4, 32, true, kSubNone, false},
                                   {6, 16, false, kSubI8, false},   {5, 32, true, kSubI8, false},
                                   {3, 96, false, kSubNone, false}, {2, 16, true, kSubN4, false},
                                   {1, 96, false, kSubNone, false}, {4, 32, false, kSubI8, true},
                                   {3, 16, false, kSubNone, true}};
  for (const PackedCase& c : kCases) {
    const PackedTiles w = TilesOf(in, c);
    if (t.matmul_packed_a8 != nullptr) {
      float want[kTokens * kRows] = {};
      float got[kTokens * kRows] = {};
      scalar::matmul_packed_a8(&w, &x, 0, 2, want, kRows);
      t.matmul_packed_a8(&w, &x, 0, 2, got, kRows);
      if (!SameBits(want, got, sizeof(want))) return false;
    }
    if (t.unpack_tile_f32 != nullptr) {
      float want[16 * kCols] = {};
      float got[16 * kCols] = {};
      scalar::unpack_tile_f32(&w, 1, want);
      t.unpack_tile_f32(&w, 1, got);
      if (!SameBits(want, got, sizeof(want))) return false;
    }
  }
  return true;
}

bool QuantizeAgrees(const KernelTable& t, const Inputs& in) {
  if (t.quantize_row_a8 == nullptr) return true;
  int8_t values[kChunks * 32];
  float scales[kChunks];
  int32_t sums[kChunks * 2];
  t.quantize_row_a8(in.a, kCols, values, scales, sums);
  return SameBits(values, in.values, sizeof(values)) &&
         SameBits(scales, in.scales, sizeof(scales)) && SameBits(sums, in.sums, sizeof(sums));
}

bool VectorsAgree(const KernelTable& t, const Inputs& in) {
  constexpr int32_t kCount = 67;
  float want[kCount + 1];
  float got[kCount + 1];
  const auto reset = [&] {
    std::memcpy(want, in.b, sizeof(want));
    std::memcpy(got, in.b, sizeof(got));
  };
  const auto same = [&] { return SameBits(want, got, sizeof(want)); };
#define CELLM_COMPARE(name, ...) \
  if (t.name != nullptr) {       \
    reset();                     \
    float* y = want;             \
    scalar::name(__VA_ARGS__);   \
    y = got;                     \
    t.name(__VA_ARGS__);         \
    if (!same()) return false;   \
  }
  CELLM_COMPARE(rmsnorm_f32, in.a, in.b, 1.0f, 1e-5f, kCount, y)
  CELLM_COMPARE(rope_f32, y, 2, 32, 24, in.a, 0)
  CELLM_COMPARE(rope_f32, y, 2, 32, 24, in.a, 1)
  CELLM_COMPARE(exp_f32, in.a, kCount, y)
  CELLM_COMPARE(tanh_f32, in.a, kCount, y)
  CELLM_COMPARE(silu_mul_f32, in.a, in.b, kCount, y)
  CELLM_COMPARE(sigmoid_mul_f32, in.a, in.b, kCount, y)
  CELLM_COMPARE(gelu_tanh_mul_f32, in.a, in.b, kCount, y)
  CELLM_COMPARE(axpy_f32, 0.7f, in.a, kCount, y)
  CELLM_COMPARE(f16_to_f32, in.halves, kCount, y)
  CELLM_COMPARE(bf16_to_f32, in.halves, kCount, y)
#undef CELLM_COMPARE
  if (t.dot_f32 != nullptr) {
    want[0] = scalar::dot_f32(in.a, in.b, kCount);
    got[0] = t.dot_f32(in.a, in.b, kCount);
    if (!SameBits(want, got, sizeof(float))) return false;
  }
  if (t.f32_to_f16 != nullptr) {
    uint16_t want_halves[kCount];
    uint16_t got_halves[kCount];
    scalar::f32_to_f16(in.a, kCount, want_halves);
    t.f32_to_f16(in.a, kCount, got_halves);
    if (!SameBits(want_halves, got_halves, sizeof(want_halves))) return false;
  }
  return t.argmax_f32 == nullptr || t.argmax_f32(in.a, kCount) == scalar::argmax_f32(in.a, kCount);
}

using AttendKernel = void (*)(const AttendArgs*);

bool AttendAgrees(AttendKernel kernel, AttendKernel reference, const void* cache, size_t element) {
  if (kernel == nullptr) return true;
  constexpr int32_t kDim = 10;
  constexpr int32_t kKeys = 48;  // cache: 480 K, then 480 V
  float q[2 * 3 * kDim];
  for (int i = 0; i < 2 * 3 * kDim; ++i) q[i] = static_cast<float>(i % 7 - 3) * 0.25f;
  const int32_t begin[2] = {0, 5};
  const int32_t end[2] = {40, 41};
  const uint8_t* const pages[1] = {static_cast<const uint8_t*>(cache)};
  float want[2 * 3 * kDim] = {};
  float got[2 * 3 * kDim] = {};
  float scratch[2 * 3 * 32 + 32];
  AttendArgs args = {};
  args.q = q;
  args.q_row_stride = 3 * kDim;
  args.out_row_stride = 3 * kDim;
  args.rows = 2;
  args.heads = 3;
  args.head_dim = kDim;
  args.head_dim_v = kDim;
  args.key_begin = begin;
  args.key_end = end;
  args.scale = 0.3f;
  args.kv.pages = pages;
  args.kv.page_tokens = kKeys;
  args.kv.v_offset = static_cast<size_t>(kKeys) * kDim * element;
  args.scratch = scratch;
  args.out = want;
  reference(&args);
  args.out = got;
  kernel(&args);
  return SameBits(want, got, sizeof(want));
}

}  // namespace

bool AgreesWithScalar(const KernelTable& candidate) {
  Inputs in;
  Fill(in);
  return MatmulsAgree(candidate, in) && QuantizeAgrees(candidate, in) &&
         PackedAgree(candidate, in) && VectorsAgree(candidate, in) &&
         AttendAgrees(candidate.attend_f32, &scalar::attend_f32, in.a, sizeof(float)) &&
         AttendAgrees(candidate.attend_f16, &scalar::attend_f16, in.halves, sizeof(uint16_t));
}

}  // namespace cellm::kernels
