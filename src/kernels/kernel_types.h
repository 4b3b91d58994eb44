#ifndef CELLM_SRC_KERNELS_KERNEL_TYPES_H_
#define CELLM_SRC_KERNELS_KERNEL_TYPES_H_

// Plain structs that kernels take. No includes beyond the C integer headers: tier files see this.

#include <stddef.h>
#include <stdint.h>

namespace cellm::kernels {

// How the scales of groups are kept; the numbers of SubScale in tensor/packed.h.
enum SubKind : int32_t {
  kSubNone = 0,  // as they are
  kSubI8 = 1,    // int8 times a super-scale
  kSubN4 = 2,    // nibbles (scale low, min high) times a super-scale
};

// A matrix in packed layout (tensor/packed.h) with everything precomputed.
struct PackedTiles {
  const uint8_t* data;     // tile 0, 64-byte aligned when the engine allocated it
  size_t tile_bytes;       // from one tile to the next
  size_t mins_offset;      // in a tile; only with has_min
  size_t codes_offset;     // in a tile
  int32_t rows, cols;      // logical
  int32_t chunks;          // of 32 columns
  int32_t bits;            // 1..6, 8
  int32_t group;           // 16, or a multiple of 32; for one scale a row: chunks * 32
  int32_t groups;          // scales a row
  int32_t zero2;           // value = (2 code - zero2) * scale / 2 + min
  int32_t scales_are_f32;  // else f16
  int32_t has_min;
  SubKind sub;             // with kSubI8 or kSubN4 the floats above are super-scales and -mins
  int32_t super_shift;     // with sub: super-scale of group g is g >> super_shift
  size_t subs_offset;      // in a tile; with sub
  size_t sub_mins_offset;  // in a tile; kSubI8 with has_min
  const uint8_t* book;     // null, or what an index of 3 or 4 bits stands for: 2^bits codes
};

// Activation rows in 8 bits, one scale for every 32 columns. Columns are padded to 32 with zeros.
//   values  [rows][chunks * 32], in -127..127
//   scales  [rows][chunks]
//   sums    [rows][chunks * 2]: sum of values over each half chunk of 16
struct QuantRows {
  const int8_t* values;
  const float* scales;
  const int32_t* sums;
  int32_t rows;
  int32_t chunks;
};

// How the keys or the values of a head lie in its part of a page.
enum KvKind : int32_t { kKvF32, kKvF16, kKvCoded };
struct KvCodes {
  int32_t kind;  // a KvKind
  // Coded only, see tensor/kv_type.h: tiles of 16 tokens by 16 columns, wide ones first, then one
  // f16 scale a token.
  int32_t tiles, wide_tiles;
  int32_t wide_bits, narrow_bits;
  const uint8_t* wide_levels;  // [16], levels + 128; unused at 8 bits
  const uint8_t* narrow_levels;
  size_t group_bytes;    // of 16 tokens
  size_t scales_offset;  // from the head's part to its scales
};

// K/V pages as attention reads them, for one layer and one sequence.
//   floats: K of a page and head: [page_tokens / 16][head_dim][16]  (16 neighbouring tokens in
//   lanes)
//           V of a page and head: [page_tokens][head_dim_v]
//   coded:  see KvCodes
// page_tokens is a multiple of 16.
struct KvPages {
  const uint8_t* const* pages;  // [page index]; null for pages that left a window
  int32_t page_tokens;
  size_t k_offset, v_offset;            // bytes from the page's start to head 0 of this layer
  size_t k_head_stride, v_head_stride;  // bytes from one kv head to the next
  KvCodes k, v;
};

// What is known of one query after some keys, besides the sums of values.
struct AttendState {
  float maximum;  // of its scores, -inf before the first
  float padding[15];
  float lanes[16];  // of the denominator
};

// Attention of some query rows of one sequence over one kv head and one segment of keys.
// Query rows are consecutive tokens; query (r, h) is head h of row r, for the `heads` query heads
// that share the kv head. For each query and its keys j in [key_begin[r], key_end[r]):
//   s_j = (q . k_j) * scale, then softcap * tanh(s_j / softcap) when softcap > 0
//   out = sum_j exp(s_j - m) v_j,  denominator = sum_j exp(s_j - m),  m = max_j s_j
// Results are not normalised: the caller adds up segments.
//
// Order (class O). Keys go in blocks of 64 at absolute multiples of 64. In a block: m' = max(m,
// block maximum over the query's keys); when m' > m, out and the 16 denominator lanes are
// multiplied by exp(m - m'); p_j = exp(s_j - m'); lane j % 16 adds p_j; then the values.
//   float keys    q . k is one running fused sum over the columns in index order, times scale
//   coded keys    the query comes in 8 bits: t = sum of level * q8 over the columns, exact;
//                 s_j = (float(t) * k_scale_j) * (q_scale * scale)
//   float values  out_d = fma(p_j, v_jd, out_d), j ascending
//   coded values  w_j = p_j * v_scale_j; w = max w_j over the block, 0 when below kQuantTiny;
//                 c_j = round_half_even(w_j * (32512 / w)); t_d = sum of level_jd * c_j, exact;
//                 out_d = fma(float(t_d), w / 32512, out_d). With a w_j that is not finite every
//                 out_d becomes NaN.
struct AttendArgs {
  const float* q;  // float keys: query (r, h) at q + r * q_row_stride + h * head_dim
  int64_t q_row_stride;
  const int8_t* q8;       // coded keys: [rows * heads][k.tiles * 16], in -127..127
  const float* q_scales;  // [rows * heads]
  float* out;             // [rows * heads][out_stride]: head_dim_v floats, or v.tiles * 16
  int64_t out_stride;
  AttendState* states;  // [rows * heads], written
  int32_t rows;
  int32_t heads;  // query heads of this kv head
  int32_t head_dim, head_dim_v;
  int32_t kv_head;
  const int32_t* key_begin;  // [rows]
  const int32_t* key_end;    // [rows], > key_begin
  float scale;
  float softcap;  // 0: none
  KvPages kv;
  uint8_t* scratch;  // AttendScratchBytes(), at a multiple of 64
};

// The gated delta rule over some columns of one head's state, token by token in order.
//   state  [k_dim] rows, state_stride floats apart; columns [0, columns) of them are read and
//   written q, k   [tokens][k_dim]      decay, beta  [tokens] v, out [tokens], v_stride and
//   out_stride apart; no overlap with the others
struct DeltaRuleArgs {
  float* state;
  int64_t state_stride;
  int32_t k_dim;
  int32_t columns;
  int32_t tokens;
  const float* q;
  const float* k;
  const float* v;
  int64_t v_stride;
  const float* decay;
  const float* beta;
  float* out;
  int64_t out_stride;
};

}  // namespace cellm::kernels

#endif  // CELLM_SRC_KERNELS_KERNEL_TYPES_H_
