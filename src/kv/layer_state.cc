#include "kv/layer_state.h"

#include <algorithm>

#include "base/checked.h"

namespace cellm {
namespace {

// Bytes of pages when tokens [begin, end) must be there, and of the fixed-size parts.
int64_t Bytes(const LayerStateSpec& spec, KvTypes types, int32_t page_tokens, int64_t tokens,
              int64_t end) {
  int64_t bytes = 4 * (spec.recurrent_floats + spec.conv_floats());
  if (!spec.stores_kv()) return bytes;
  const int64_t begin = FirstLiveToken(spec.window, tokens);
  const int64_t pages = CeilDiv<int64_t>(end, page_tokens) - begin / page_tokens;
  return bytes + pages * page_tokens * KvBytesPerToken(spec, types);
}

}  // namespace

int64_t FirstLiveToken(int32_t window, int64_t tokens) {
  return window > 0 ? std::max<int64_t>(0, tokens - window + 1) : 0;
}

int64_t KvBytesPerToken(const LayerStateSpec& spec, KvTypes types) {
  if (!spec.stores_kv()) return 0;
  return int64_t{spec.kv_heads} * static_cast<int64_t>(KvTokenBytes(types.k, spec.head_dim) +
                                                       KvTokenBytes(types.v, spec.head_dim_v));
}

int64_t BytesPerSequence(std::span<const LayerStateSpec> layers, KvTypes types, int32_t page_tokens,
                         int64_t tokens) {
  return PeakBytesPerSequence(layers, types, page_tokens, tokens, 0);
}

int64_t PeakBytesPerSequence(std::span<const LayerStateSpec> layers, KvTypes types,
                             int32_t page_tokens, int64_t tokens, int64_t chunk) {
  int64_t bytes = 0;
  for (const LayerStateSpec& spec : layers) {
    bytes += Bytes(spec, types, page_tokens, tokens, tokens + chunk);
  }
  return bytes;
}

int64_t MostBytesPerSequence(std::span<const LayerStateSpec> layers, KvTypes types,
                             int32_t page_tokens, int64_t tokens) {
  int64_t bytes = 0;
  for (const LayerStateSpec& spec : layers) {
    bytes += 4 * (spec.recurrent_floats + spec.conv_floats());
    if (!spec.stores_kv()) continue;
    int64_t pages = CeilDiv<int64_t>(tokens, page_tokens);
    // A window and the token that is added: w tokens, which begin anywhere in a page.
    if (spec.window > 0) {
      pages =
          std::min(pages, CeilDiv<int64_t>(int64_t{spec.window} + page_tokens - 1, page_tokens));
    }
    bytes += pages * page_tokens * KvBytesPerToken(spec, types);
  }
  return bytes;
}

}  // namespace cellm
