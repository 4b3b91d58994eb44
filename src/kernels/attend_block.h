#ifndef CELLM_SRC_KERNELS_ATTEND_BLOCK_H_
#define CELLM_SRC_KERNELS_ATTEND_BLOCK_H_

// What the attention kernels of all vector tiers share: where a block of 64 keys and its values
// lie, and what a query is.

#include "kernels/kernel_types.h"

namespace cellm {
namespace {

using kernels::AttendArgs;
using kernels::AttendState;
using kernels::KvCodes;
using kernels::KvPages;

constexpr int32_t kBlock = 64;

// The keys or the values of one block, 16 tokens at a time. Floats: K in lanes, V row by row.
// Coded: the codes as they lie, then (Levels() of the tier) [column tile][4][64] bytes of levels.
struct Side {
  const uint8_t* tokens[4];
  const uint8_t* scales[4];  // f16[16]; coded only
};
struct Block {
  Side k, v;
};

// One query of a tile within one block: keys [low, high) of 64.
struct Query {
  const float* q;
  const int8_t* q8;
  float q_scale;
  float* out;
  AttendState* state;
  int32_t low, high;
};

// Columns of a row of AttendArgs::out.
[[maybe_unused]] inline int32_t OutColumns(const AttendArgs& args) {
  return args.kv.v.kind == kernels::kKvCoded ? args.kv.v.tiles * 16 : args.head_dim_v;
}

// 16 tokens from `slot` on.
[[maybe_unused]] inline void FindTokens(const KvCodes& codes, const uint8_t* head, size_t slot,
                                        size_t columns, int group, Side* side) {
  if (codes.kind == kernels::kKvCoded) {
    side->tokens[group] = head + slot / 16 * codes.group_bytes;
    side->scales[group] = head + codes.scales_offset + slot * 2;
  } else {
    side->tokens[group] = head + slot * columns * (codes.kind == kernels::kKvF16 ? 2 : 4);
    side->scales[group] = nullptr;
  }
}

// Block `index`, of which somebody looks at keys in [begin, end).
[[maybe_unused]] inline Block FindBlock(const AttendArgs& args, int32_t index, int32_t begin,
                                        int32_t end) {
  const KvPages& kv = args.kv;
  const size_t head = static_cast<size_t>(args.kv_head);
  Block found = {};
  int first = -1;
  for (int g = 0; g < 4; ++g) {
    const int32_t key = index * kBlock + g * 16;
    if (key + 16 <= begin || key >= end) continue;
    const uint8_t* page = kv.pages[key / kv.page_tokens];
    const size_t slot = static_cast<size_t>(key % kv.page_tokens);
    FindTokens(kv.k, page + kv.k_offset + kv.k_head_stride * head, slot,
               static_cast<size_t>(args.head_dim), g, &found.k);
    FindTokens(kv.v, page + kv.v_offset + kv.v_head_stride * head, slot,
               static_cast<size_t>(args.head_dim_v), g, &found.v);
    if (first < 0) first = g;
  }
  // Keys that no row looks at may have no page; any readable address does for them.
  for (int g = 0; g < 4; ++g) {
    if (found.k.tokens[g] != nullptr) continue;
    found.k.tokens[g] = found.k.tokens[first];
    found.k.scales[g] = found.k.scales[first];
    found.v.tokens[g] = found.v.tokens[first];
    found.v.scales[g] = found.v.scales[first];
  }
  return found;
}

// Query (row, head) in the block of keys from first_key. low >= kBlock or high <= 0: none of them.
[[maybe_unused]] inline Query QueryOf(const AttendArgs& args, int32_t row, int32_t head,
                                      int32_t first_key) {
  const int64_t query = int64_t{row} * args.heads + head;
  const int32_t low = args.key_begin[row] - first_key;
  const int32_t high = args.key_end[row] - first_key;
  const bool coded = args.kv.k.kind == kernels::kKvCoded;
  return {args.q + row * args.q_row_stride + int64_t{head} * args.head_dim,
          coded ? args.q8 + query * args.kv.k.tiles * 16 : nullptr,
          coded ? args.q_scales[query] : 0.0f,
          args.out + query * args.out_stride,
          args.states + query,
          low < 0 ? 0 : low,
          high > kBlock ? kBlock : high};
}
[[maybe_unused]] inline bool SeesBlock(const AttendArgs& args, int32_t row, int32_t first_key) {
  return args.key_begin[row] < first_key + kBlock && args.key_end[row] > first_key;
}

// All queries with nothing summed.
[[maybe_unused]] inline void ResetQueries(const AttendArgs& args) {
  const int32_t columns = OutColumns(args);
  for (int64_t query = 0; query < int64_t{args.rows} * args.heads; ++query) {
    AttendState& state = args.states[query];
    state.maximum = -__builtin_inff();
    for (float& lane : state.lanes) lane = 0.0f;
    for (int32_t d = 0; d < columns; ++d) args.out[query * args.out_stride + d] = 0.0f;
  }
}

// The keys that any row looks at.
struct KeyRange {
  int32_t begin, end;
};
[[maybe_unused]] inline KeyRange AllKeys(const AttendArgs& args) {
  KeyRange range = {args.key_begin[0], args.key_end[0]};
  for (int32_t row = 1; row < args.rows; ++row) {
    if (args.key_begin[row] < range.begin) range.begin = args.key_begin[row];
    if (args.key_end[row] > range.end) range.end = args.key_end[row];
  }
  return range;
}

}  // namespace
}  // namespace cellm

#endif  // CELLM_SRC_KERNELS_ATTEND_BLOCK_H_
