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
  CELLM_COMPARE(mul_add_f32, in.a, in.a + 1, kCount, y)
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

// A kind of keys and values: bits of the wide and the narrow tile, 0 for floats.
struct AttendCase {
  int32_t kind, wide_bits, narrow_bits;
};

KvCodes CodesOf(const AttendCase& c, const uint8_t* levels, int32_t page_tokens) {
  KvCodes codes = {};
  codes.kind = c.kind;
  if (c.kind != kKvCoded) return codes;
  codes.tiles = 2;
  codes.wide_tiles = 1;
  codes.wide_bits = c.wide_bits;
  codes.narrow_bits = c.narrow_bits;
  codes.wide_levels = codes.narrow_levels = levels;
  codes.group_bytes = static_cast<size_t>(32 * (c.wide_bits + c.narrow_bits));
  codes.scales_offset = static_cast<size_t>(page_tokens / 16) * codes.group_bytes;
  return codes;
}

bool AttendAgrees(const KernelTable& t, const Inputs& in) {
  if (t.attend == nullptr) return true;
  constexpr int32_t kKeys = 48;
  constexpr int32_t kQueries = 2 * 3;
  constexpr size_t kPart = 2048;  // bytes of K or V at most, scales included
  alignas(64) uint8_t page[2 * kPart];
  float q[kQueries * 10];
  int8_t q8[kQueries * 32];
  for (int i = 0; i < kQueries * 10; ++i) q[i] = static_cast<float>(i % 7 - 3) * 0.25f;
  for (int i = 0; i < kQueries * 32; ++i) q8[i] = static_cast<int8_t>(i * 37 % 255 - 127);
  const float q_scales[kQueries] = {0.01f, 0.02f, 0.03f, 0.01f, 0.02f, 0.03f};
  uint8_t levels[16];
  for (int i = 0; i < 16; ++i) levels[i] = static_cast<uint8_t>(8 + 16 * i);
  const int32_t begin[2] = {0, 5};
  const int32_t end[2] = {40, 41};
  const uint8_t* const pages[1] = {page};
  for (const AttendCase& c :
       {AttendCase{kKvF32, 0, 0}, AttendCase{kKvF16, 0, 0}, AttendCase{kKvCoded, 8, 8},
        AttendCase{kKvCoded, 4, 3}, AttendCase{kKvCoded, 3, 2}}) {
    AttendState states[2][kQueries] = {};
    float out[2][kQueries * 32] = {};
    alignas(64) uint8_t scratch[64 * 64];
    AttendArgs args = {};
    args.q = q;
    args.q_row_stride = 3 * 10;
    args.q8 = q8;
    args.q_scales = q_scales;
    args.out_stride = 32;
    args.rows = 2;
    args.heads = 3;
    args.head_dim = args.head_dim_v = 10;
    args.key_begin = begin;
    args.key_end = end;
    args.scale = 0.3f;
    args.kv.pages = pages;
    args.kv.page_tokens = kKeys;
    args.kv.v_offset = kPart;
    args.kv.k = args.kv.v = CodesOf(c, levels, kKeys);
    args.scratch = scratch;
    for (size_t part = 0; part < 2; ++part) {
      uint8_t* const bytes = page + part * kPart;
      if (c.kind == kKvCoded) {
        std::memcpy(bytes, in.tiles, args.kv.k.scales_offset);
        // Codes of 8 bits are 128 + [-127, 127]: kernels may negate a level.
        for (size_t i = 0; c.wide_bits == 8 && i < args.kv.k.scales_offset; ++i) {
          bytes[i] = bytes[i] == 0 ? 1 : bytes[i];
        }
        for (int key = 0; key < kKeys; ++key) {
          const uint16_t scale = in.halves[key] & 0x7FFF;
          std::memcpy(bytes + args.kv.k.scales_offset + 2 * key, &scale, sizeof(scale));
        }
      } else if (c.kind == kKvF16) {
        std::memcpy(bytes, in.halves, kKeys * 10 * 2);
      } else {
        std::memcpy(bytes, in.a, kKeys * 10 * 4);
      }
    }
    for (int i = 0; i < 2; ++i) {
      args.out = out[i];
      args.states = states[i];
      (i == 0 ? &scalar::attend : t.attend)(&args);
      for (AttendState& state : states[i]) std::memset(state.padding, 0, sizeof(state.padding));
    }
    if (!SameBits(out[0], out[1], sizeof(out[0])) ||
        !SameBits(states[0], states[1], sizeof(states[0]))) {
      return false;
    }
  }
  return true;
}

bool DeltaRuleAgrees(const KernelTable& t, const Inputs& in) {
  if (t.delta_rule_f32 == nullptr) return true;
  constexpr int32_t kDim = 6;
  constexpr int32_t kColumns = 67;
  float state[2][kDim * kColumns];
  float out[2][kTokens * kColumns];
  const float gates[kTokens] = {0.5f, 0.9f, 0.1f};
  for (int i = 0; i < 2; ++i) {
    std::memcpy(state[i], in.a, sizeof(state[i]));
    const DeltaRuleArgs args = {state[i], kColumns, kDim,  kColumns, kTokens, in.b,    in.b + 100,
                                in.a,     kColumns, gates, gates,    out[i],  kColumns};
    (i == 0 ? scalar::delta_rule_f32 : t.delta_rule_f32)(&args);
  }
  return SameBits(state[0], state[1], sizeof(state[0])) && SameBits(out[0], out[1], sizeof(out[0]));
}

}  // namespace

bool AgreesWithScalar(const KernelTable& candidate) {
  Inputs in;
  Fill(in);
  return MatmulsAgree(candidate, in) && QuantizeAgrees(candidate, in) &&
         PackedAgree(candidate, in) && VectorsAgree(candidate, in) &&
         DeltaRuleAgrees(candidate, in) && AttendAgrees(candidate, in);
}

}  // namespace cellm::kernels
