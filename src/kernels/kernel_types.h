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

// K/V pages as attention reads them, for one layer and one sequence.
//   K of a page and head: [page_tokens / 16][head_dim][16]  (16 neighbouring tokens in lanes)
//   V of a page and head: [page_tokens][head_dim_v]
// Both in the cache's element type. page_tokens is a multiple of 16.
struct KvPages {
  const uint8_t* const* pages;  // [page index]; null for pages that left a window
  int32_t page_tokens;
  size_t k_offset, v_offset;            // bytes from the page's start to head 0 of this layer
  size_t k_head_stride, v_head_stride;  // bytes from one kv head to the next
};

// Attention of some query rows of one sequence over one kv head.
// Query rows are consecutive tokens; for row r and each of `heads` query heads that share the kv
// head, over keys j in [key_begin[r], key_end[r]):
//   s_j = (q . k_j) * scale, then softcap * tanh(s_j / softcap) when softcap > 0
//   out = sum_j softmax(s)_j v_j      (optionally with a sink logit per head in the denominator:
//                                      the sum starts with m = sink and 1 in denominator lane 0)
// Order (class O): q . k is one running fused sum over the dimensions in index order. Keys go in
// blocks of 64 at absolute multiples of 64. In a block: m' = max(m, block maximum over valid keys);
// when m' > m, acc and the 16 denominator lanes are multiplied by exp(m - m'); p_j = exp(s_j - m');
// lane j % 16 of the denominator adds p_j; acc_d = fma(p_j, v_jd, acc_d), j ascending. At the end
// the lanes are folded by FoldLanes and out_d = acc_d / denominator.
struct AttendArgs {
  const float* q;  // row r, head h at q + r * q_row_stride + h * head_dim
  int64_t q_row_stride;
  float* out;  // likewise, with head_dim_v
  int64_t out_row_stride;
  int32_t rows;
  int32_t heads;  // query heads of this kv head
  int32_t head_dim, head_dim_v;
  int32_t kv_head;
  const int32_t* key_begin;  // [rows]
  const int32_t* key_end;    // [rows], > key_begin
  float scale;
  float softcap;       // 0: none
  const float* sinks;  // [heads] or null
  KvPages kv;
  float* scratch;  // AttendScratchFloats() floats
};

}  // namespace cellm::kernels

#endif  // CELLM_SRC_KERNELS_KERNEL_TYPES_H_
