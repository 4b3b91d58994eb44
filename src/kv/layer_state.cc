#include "kv/layer_state.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/status.h"

namespace cellm {
namespace {

// Of a layer, `newer` pages as they are and `demoted` ones.
int64_t PageBytes(const LayerStateSpec& spec, const KvStorage& storage, int32_t page_tokens,
                  int64_t newer, int64_t demoted) {
  return page_tokens * (newer * KvBytesPerToken(spec, storage.types) +
                        demoted * KvBytesPerToken(spec, storage.demoted));
}

// Bytes of pages when tokens [begin, end) must be there, and of the fixed-size parts.
int64_t Bytes(const LayerStateSpec& spec, const KvStorage& storage, int32_t page_tokens,
              int64_t tokens, int64_t end) {
  int64_t bytes = 4 * (spec.recurrent_floats + spec.conv_floats());
  if (!spec.stores_kv()) return bytes;
  const int64_t begin = FirstLiveToken(spec.window, tokens);
  const int64_t pages = CeilDiv<int64_t>(end, page_tokens) - begin / page_tokens;
  if (spec.window > 0) return bytes + PageBytes(spec, storage, page_tokens, pages, 0);
  // During a step the pages that it demotes are there in both forms.
  return bytes + PageBytes(spec, storage, page_tokens,
                           pages - storage.DemotedTokens(tokens) / page_tokens,
                           storage.DemotedTokens(end) / page_tokens);
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

std::string KvStorageName(const KvStorage& storage) {
  std::string name = KvTypesName(storage.types);
  if (!storage.demotes()) return name;
  return name + StrFormat(", %d tokens back %s", storage.demote_after,
                          KvTypesName(storage.demoted).c_str());
}

Status CheckDemotion(std::span<const LayerStateSpec> layers, const KvStorage& storage,
                     int32_t page_tokens) {
  if (!storage.demotes()) return OkStatus();
  constexpr int32_t kDim = 64;
  for (const auto& [newer, older] : {std::pair(storage.types.k, storage.demoted.k),
                                     std::pair(storage.types.v, storage.demoted.v)}) {
    if (!KvIsCoded(older) || KvTokenBytes(older, kDim) > KvTokenBytes(newer, kDim)) {
      return InvalidArgument(
          "older tokens cannot go from %s to %s: it must be q8 or below, and "
          "not more bits than before",
          std::string(KvTypeName(newer)).c_str(), std::string(KvTypeName(older)).c_str());
    }
  }
  if (kKvSegment % page_tokens != 0) {
    return Unsupported("older tokens in fewer bits: pages of %d tokens do not divide %d",
                       page_tokens, kKvSegment);
  }
  for (const LayerStateSpec& spec : layers) {
    if (!spec.stores_kv() || (spec.head_dim % 16 == 0 && spec.head_dim_v % 16 == 0)) continue;
    return Unsupported(
        "older tokens in fewer bits: heads of %d and %d columns are no multiples "
        "of 16",
        spec.head_dim, spec.head_dim_v);
  }
  return OkStatus();
}

int64_t BytesPerSequence(std::span<const LayerStateSpec> layers, const KvStorage& storage,
                         int32_t page_tokens, int64_t tokens) {
  return PeakBytesPerSequence(layers, storage, page_tokens, tokens, 0);
}

int64_t PeakBytesPerSequence(std::span<const LayerStateSpec> layers, const KvStorage& storage,
                             int32_t page_tokens, int64_t tokens, int64_t chunk) {
  int64_t bytes = 0;
  for (const LayerStateSpec& spec : layers) {
    bytes += Bytes(spec, storage, page_tokens, tokens, tokens + chunk);
  }
  return bytes;
}

int64_t MostBytesPerSequence(std::span<const LayerStateSpec> layers, const KvStorage& storage,
                             int32_t page_tokens, int64_t tokens) {
  int64_t bytes = 0;
  for (const LayerStateSpec& spec : layers) {
    bytes += 4 * (spec.recurrent_floats + spec.conv_floats());
    if (!spec.stores_kv()) continue;
    int64_t pages = CeilDiv<int64_t>(tokens, page_tokens);
    if (spec.window > 0) {
      // A window and the token that is added: w tokens, which begin anywhere in a page.
      pages =
          std::min(pages, CeilDiv<int64_t>(int64_t{spec.window} + page_tokens - 1, page_tokens));
      bytes += PageBytes(spec, storage, page_tokens, pages, 0);
      continue;
    }
    const int64_t demoted = storage.DemotedTokens(tokens) / page_tokens;
    int64_t most = PageBytes(spec, storage, page_tokens, pages - demoted, demoted);
    if (demoted > 0) {
      // The step that demoted the last of them held them in both forms.
      const int64_t newer =
          CeilDiv<int64_t>(storage.demote_after, page_tokens) + kKvSegment / page_tokens;
      most = std::max(most, PageBytes(spec, storage, page_tokens, newer, demoted));
    }
    bytes += most;
  }
  return bytes;
}

}  // namespace cellm
