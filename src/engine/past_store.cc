#include "engine/past_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace cellm {
namespace {

// Prompts are evaluated again in chunks of about this many rows.
constexpr int64_t kRecomputeChunk = 256;

}  // namespace

Result<SwapExtent> WriteSnapshot(SequenceCache& cache, int32_t snapshot, SwapFile& swap) {
  const std::vector<std::span<uint8_t>> contents = cache.Contents(snapshot);
  return swap.Write(contents);
}

Result<int32_t> ReadSnapshot(SequenceCache& cache, int32_t tokens, const SwapExtent& extent,
                             SwapFile& swap) {
  CELLM_ASSIGN_OR_RETURN(const int32_t snapshot, cache.NewSnapshot(tokens));
  const std::vector<std::span<uint8_t>> contents = cache.Contents(snapshot);
  const Status status = swap.Read(extent, contents);
  if (status.ok()) return snapshot;
  cache.DropSnapshot(snapshot);
  return status;
}

PastStore::~PastStore() { ForgetAll(); }

PastStore::Found PastStore::Find(uint64_t key, std::span<const int32_t> tokens,
                                 int32_t most) const {
  const PrefixTree::Match match = tree_.Find(key, tokens);
  Found found;
  found.common = match.common;
  const int32_t beyond_cut = std::min(match.common, most);
  if (match.beyond != PrefixTree::kNone &&
      engine_.cache().CanCut(match.beyond_position, beyond_cut)) {
    found.entry = match.beyond;
    found.position = beyond_cut;
  }
  const int32_t within_cut = std::min(match.within_position, most);
  if (match.within != PrefixTree::kNone && within_cut > found.position &&
      engine_.cache().CanCut(match.within_position, within_cut)) {
    found.entry = match.within;
    found.position = within_cut;
  }
  // A past that ends exactly at `most + 1` or later may hide a shorter one that can be used.
  if (found.position == 0 && match.within != PrefixTree::kNone && most > 0 &&
      match.within_position > most) {
    Found shorter = Find(key, tokens.first(static_cast<size_t>(most)), most);
    shorter.common = found.common;
    return shorter;
  }
  if (found.position == 0) found.entry = PrefixTree::kNone;
  return found;
}

void PastStore::Touch(Past* past) {
  const uint64_t bytes =
      past->snapshot >= 0 ? engine_.cache().SnapshotOwnBytes(past->snapshot) : past->extent.bytes;
  past->value = floor_ + past->cost_ns / static_cast<double>(std::max<uint64_t>(bytes, 1));
}

Status PastStore::BringIn(int32_t entry) {
  Past& kept = past(entry);
  if (kept.snapshot < 0) {
    Result<int32_t> snapshot = ReadSnapshot(engine_.cache(), kept.tokens, kept.extent, *swap_);
    if (!snapshot.ok()) {
      if (snapshot.status().code() != StatusCode::kOutOfMemory) Drop(entry);
      return snapshot.status();
    }
    swap_->Free(kept.extent);
    kept.extent = SwapExtent();
    kept.snapshot = snapshot.value();
  }
  Touch(&kept);
  return OkStatus();
}

Result<SequenceId> PastStore::Start(const Found& found, int32_t planned_total_tokens) {
  CELLM_RETURN_IF_ERROR(BringIn(found.entry));
  return engine_.CreateSequenceFrom(past(found.entry).snapshot, found.position,
                                    planned_total_tokens);
}

Result<std::vector<std::span<uint8_t>>> PastStore::Contents(int32_t entry) {
  CELLM_RETURN_IF_ERROR(BringIn(entry));
  return engine_.cache().Contents(past(entry).snapshot);
}

bool PastStore::IsKnown(const PrefixTree::Match& match, int32_t tokens) {
  if (match.within != PrefixTree::kNone && match.within_position == tokens) {
    Touch(&past(match.within));
    return true;
  }
  if (match.beyond != PrefixTree::kNone && match.common == tokens &&
      engine_.cache().CanCut(match.beyond_position, tokens)) {
    Touch(&past(match.beyond));
    return true;
  }
  return false;
}

void PastStore::Keep(uint64_t key, std::span<const int32_t> tokens, SequenceId sequence,
                     const CostModel& cost) {
  if (tokens.empty()) return;
  const PrefixTree::Match match = tree_.Find(key, tokens);
  if (IsKnown(match, static_cast<int32_t>(tokens.size()))) return;
  const Result<int32_t> snapshot = engine_.TakeSnapshot(sequence);
  if (snapshot.ok()) Add(key, tokens, snapshot.value(), match, cost);
}

void PastStore::KeepSnapshot(uint64_t key, std::span<const int32_t> tokens, int32_t snapshot,
                             const CostModel& cost) {
  const PrefixTree::Match match = tree_.Find(key, tokens);
  if (IsKnown(match, static_cast<int32_t>(tokens.size()))) {
    engine_.cache().DropSnapshot(snapshot);
  } else {
    Add(key, tokens, snapshot, match, cost);
  }
}

void PastStore::Add(uint64_t key, std::span<const int32_t> tokens, int32_t snapshot,
                    const PrefixTree::Match& match, const CostModel& cost) {
  const int32_t count = static_cast<int32_t>(tokens.size());
  SequenceCache& cache = engine_.cache();
  CELLM_CHECK(cache.snapshot_tokens(snapshot) == count, "a past is not that of its tokens");
  int32_t base = match.within_position;
  if (match.within != PrefixTree::kNone && cache.CanCut(count, match.within_position)) {
    Drop(match.within);
    base = 0;
  }
  int32_t entry = 0;
  while (entry < static_cast<int32_t>(pasts_.size()) && past(entry).used) ++entry;
  if (entry == static_cast<int32_t>(pasts_.size())) pasts_.emplace_back();
  Past& kept = past(entry);
  kept = Past();
  kept.used = true;
  kept.tokens = count;
  kept.snapshot = snapshot;
  kept.cost_ns = cost.RecomputeNs(count, kRecomputeChunk) - cost.RecomputeNs(base, kRecomputeChunk);
  tree_.Insert(key, tokens, entry);
  Touch(&kept);
}

void PastStore::Drop(int32_t entry) {
  Past& kept = past(entry);
  tree_.Remove(entry);
  if (kept.snapshot >= 0) engine_.cache().DropSnapshot(kept.snapshot);
  if (kept.extent.bytes > 0) swap_->Free(kept.extent);
  kept = Past();
}

void PastStore::Forget(uint64_t key) {
  for (const int32_t entry : tree_.Entries(key)) Drop(entry);
}

void PastStore::ForgetAll() {
  for (size_t i = 0; i < pasts_.size(); ++i) {
    if (pasts_[i].used) Drop(static_cast<int32_t>(i));
  }
}

int32_t PastStore::LeastValuable(bool in_memory) const {
  int32_t least = PrefixTree::kNone;
  bool least_frees = false;
  for (int32_t i = 0; i < static_cast<int32_t>(pasts_.size()); ++i) {
    const Past& kept = past(i);
    if (!kept.used || (in_memory && kept.snapshot < 0)) continue;
    // One that frees nothing by itself goes last: others that share its pages may be gone by then.
    const bool frees = kept.snapshot < 0 || engine_.cache().SnapshotOwnBytes(kept.snapshot) > 0;
    const bool better = least == PrefixTree::kNone || (frees && !least_frees) ||
                        (frees == least_frees && kept.value < past(least).value);
    if (!better) continue;
    least = i;
    least_frees = frees;
  }
  return least;
}

bool PastStore::SwapOut(Past* kept, const CostModel& cost) {
  if (swap_ == nullptr) return false;
  uint64_t bytes = 0;
  for (const std::span<uint8_t> piece : engine_.cache().Contents(kept->snapshot)) {
    bytes += piece.size();
  }
  if (bytes == 0 || cost.SwapOutNs(bytes) + cost.SwapInNs(bytes) >= kept->cost_ns) return false;
  // Room in the file goes to the more valuable.
  while (bytes > swap_->free_bytes()) {
    int32_t least = PrefixTree::kNone;
    for (int32_t i = 0; i < static_cast<int32_t>(pasts_.size()); ++i) {
      if (past(i).extent.bytes == 0) continue;
      if (least == PrefixTree::kNone || past(i).value < past(least).value) least = i;
    }
    if (least == PrefixTree::kNone || past(least).value >= kept->value) return false;
    Drop(least);
  }
  Result<SwapExtent> extent = WriteSnapshot(engine_.cache(), kept->snapshot, *swap_);
  if (!extent.ok()) return false;
  engine_.cache().DropSnapshot(kept->snapshot);
  kept->snapshot = -1;
  kept->extent = extent.value();
  return true;
}

uint64_t PastStore::Reclaim(uint64_t bytes, const CostModel& cost) {
  SequenceCache& cache = engine_.cache();
  const auto used = [&cache] { return cache.stats().page_bytes_used + cache.stats().state_bytes; };
  const uint64_t before = used();
  while (before - used() < bytes && cache.SnapshotOnlyBytes() > 0) {
    const int32_t victim = LeastValuable(true);
    if (victim == PrefixTree::kNone) break;
    floor_ = std::max(floor_, past(victim).value);
    if (!SwapOut(&past(victim), cost)) Drop(victim);
  }
  cache.Trim();
  return before - used();
}

void PastStore::Trim(uint64_t bytes, const CostModel& cost) {
  const uint64_t held = memory_bytes();
  if (held > bytes) (void)Reclaim(held - bytes, cost);
}

uint64_t PastStore::swapped_bytes() const {
  uint64_t bytes = 0;
  for (const Past& kept : pasts_) bytes += kept.extent.bytes;
  return bytes;
}

uint64_t PastStore::table_bytes() const {
  return static_cast<uint64_t>(tree_.tokens_held()) * sizeof(int32_t) +
         pasts_.size() * sizeof(Past) + tree_.size() * 160;  // a node and its places in two maps
}

}  // namespace cellm
