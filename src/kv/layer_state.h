#ifndef CELLM_SRC_KV_LAYER_STATE_H_
#define CELLM_SRC_KV_LAYER_STATE_H_

// What a layer remembers of a sequence, declared by the model, and what that costs.
//
// A layer may have any mix of: keys and values (of all tokens, of a window, or another layer's), a
// recurrent state of fixed size, the tail of a short convolution.

#include <cstdint>
#include <span>
#include <string>

#include "backend/step_context.h"
#include "base/status.h"

namespace cellm {

struct LayerStateSpec {
  // Keys and values: kv_heads == 0 means none of its own.
  int32_t kv_heads = 0;
  int32_t head_dim = 0;    // of keys
  int32_t head_dim_v = 0;  // of values
  int32_t window = 0;      // 0: all tokens; w: a query sees the last w, itself included
  int32_t kv_from = -1;    // >= 0: reads the keys and values of that earlier layer, stores nothing
  // Fixed-size parts, in floats.
  int64_t recurrent_floats = 0;
  int32_t conv_channels = 0, conv_taps = 0;  // the tail holds conv_taps - 1 columns

  int64_t conv_floats() const {
    return conv_taps > 1 ? int64_t{conv_channels} * (conv_taps - 1) : 0;
  }
  bool stores_kv() const { return kv_heads > 0 && kv_from < 0; }
};

// In what formats a sequence is kept. Keys and values of layers that see all tokens may be demoted:
// of a sequence of t tokens the segments (kKvSegment) that end at least `demote_after` tokens
// before t are kept in `demoted`. A matter of positions alone, so that nobody's schedule can be
// seen in it.
struct KvStorage {
  KvTypes types;
  KvTypes demoted;
  int32_t demote_after = -1;  // < 0: nothing is demoted

  KvStorage() = default;
  KvStorage(KvType both) : types(both), demoted(both) {}
  KvStorage(KvTypes both) : types(both), demoted(both) {}
  KvStorage(KvTypes newer, KvTypes older, int32_t after)
      : types(newer), demoted(after < 0 ? newer : older), demote_after(after) {}
  bool demotes() const { return demote_after >= 0; }
  // Of the first of `tokens` tokens.
  int64_t DemotedTokens(int64_t tokens) const {
    if (!demotes() || tokens < demote_after) return 0;
    return (tokens - demote_after) / kKvSegment * kKvSegment;
  }
};
// "f16", or "f16, the older than 512 tokens q4".
std::string KvStorageName(const KvStorage& storage);
// InvalidArgument: formats that are none for older tokens. Unsupported: pages or heads that do not
// allow it.
Status CheckDemotion(std::span<const LayerStateSpec> layers, const KvStorage& storage,
                     int32_t page_tokens);

// The first of `tokens` stored tokens that a later query can still see.
int64_t FirstLiveToken(int32_t window, int64_t tokens);

// Bytes of K and V of one token in one layer: kv_heads * (KvTokenBytes of K + of V).
int64_t KvBytesPerToken(const LayerStateSpec& spec, KvTypes types);

// Bytes that a sequence of `tokens` tokens holds between steps:
//   sum over layers that store K/V of pages(layer) * page_tokens * KvBytesPerToken
//   + 4 * (recurrent_floats + conv_floats)
// (less for pages that are demoted: KvBytesPerToken of the formats that they are in)
// where pages = ceil(tokens / page_tokens) for full layers, and for a window w the pages that
// overlap [max(0, tokens - w + 1), tokens). Page tables are not counted (docs/memory.md).
int64_t BytesPerSequence(std::span<const LayerStateSpec> layers, const KvStorage& storage,
                         int32_t page_tokens, int64_t tokens);
// The most that a sequence holds at any time while it grows token by token to `tokens`. Never less
// for a longer one, unlike the two others: how many pages overlap a window depends on where it
// ends.
int64_t MostBytesPerSequence(std::span<const LayerStateSpec> layers, const KvStorage& storage,
                             int32_t page_tokens, int64_t tokens);
// The most that a sequence holds during a step that takes it from `tokens` to `tokens + chunk`.
int64_t PeakBytesPerSequence(std::span<const LayerStateSpec> layers, const KvStorage& storage,
                             int32_t page_tokens, int64_t tokens, int64_t chunk);

}  // namespace cellm

#endif  // CELLM_SRC_KV_LAYER_STATE_H_
