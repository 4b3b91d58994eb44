#ifndef CELLM_SRC_ENGINE_PAST_STORE_H_
#define CELLM_SRC_ENGINE_PAST_STORE_H_

// Pasts kept for reuse: what was evaluated for one request may be the beginning of the next.
//
// A past is a snapshot of the cache under the tokens that led to it, found through a prefix tree.
// Its pages are shared with whoever started from it or goes on from it, so keeping one costs only
// what nobody else holds. Under pressure pasts are written to the swap file or forgotten, those
// first whose recomputation costs least a byte, aged by use (GreedyDual-Size: Cao & Irani 1997):
//
//   H = L + cost / bytes at every use;   victim = least H;   L = H of the victim
//
// One thread at a time.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/cost_model.h"
#include "engine/engine.h"
#include "engine/swap_file.h"
#include "kv/prefix_tree.h"

namespace cellm {

// A snapshot's contents into the swap file, and back into a new snapshot. Errors as for SwapFile
// and SequenceCache::NewSnapshot().
Result<SwapExtent> WriteSnapshot(SequenceCache& cache, int32_t snapshot, SwapFile& swap);
Result<int32_t> ReadSnapshot(SequenceCache& cache, int32_t tokens, const SwapExtent& extent,
                             SwapFile& swap);

class PastStore {
 public:
  // `swap` may be null. Both outlive the store.
  PastStore(Engine& engine, SwapFile* swap) : engine_(engine), swap_(swap) {}
  ~PastStore();

  struct Found {
    int32_t entry = PrefixTree::kNone;
    int32_t position = 0;  // a sequence can start here; 0: nothing is reusable
    int32_t common = 0;    // tokens that some past shares, perhaps where none can start
  };
  // The longest usable beginning of `tokens`, at most `most` long.
  Found Find(uint64_t key, std::span<const int32_t> tokens, int32_t most) const;

  // A sequence that starts from `found`, read back from the swap file when it lies there. A past
  // that cannot be read is forgotten (Corrupt, Io): ask Find() again. OutOfMemory, Busy as
  // Engine::CreateSequence().
  Result<SequenceId> Start(const Found& found, int32_t planned_total_tokens);

  // Keeps the past of `sequence`, which is `tokens`. Nothing happens when it adds nothing to what
  // is kept, or when its states do not fit. A beginning of these tokens that now adds nothing is
  // forgotten.
  void Keep(uint64_t key, std::span<const int32_t> tokens, SequenceId sequence,
            const CostModel& cost);
  // Keeps a snapshot that was filled by hand; takes it over, and drops it when it adds nothing.
  void KeepSnapshot(uint64_t key, std::span<const int32_t> tokens, int32_t snapshot,
                    const CostModel& cost);
  // The contents of a past in memory, read back when it was swapped. Errors as for Start().
  Result<std::vector<std::span<uint8_t>>> Contents(int32_t entry);
  int32_t Length(int32_t entry) const { return past(entry).tokens; }
  void Forget(uint64_t key);
  void ForgetAll();

  // Frees at least `bytes` (more, by whole pasts) or all there is; returns how much. Pasts go to
  // the swap file when reading them back is predicted to be cheaper than evaluating them again.
  uint64_t Reclaim(uint64_t bytes, const CostModel& cost);
  // Forgets least valuable pasts until those in memory take at most `bytes`.
  void Trim(uint64_t bytes, const CostModel& cost);

  // What Reclaim() could free.
  uint64_t memory_bytes() const { return engine_.cache().SnapshotOnlyBytes(); }
  uint64_t swapped_bytes() const;
  size_t size() const { return tree_.size(); }
  // Heap that tree and table take, about.
  uint64_t table_bytes() const;
  void CheckInvariants() const { tree_.CheckInvariants(); }

 private:
  struct Past {
    bool used = false;
    int32_t tokens = 0;
    int32_t snapshot = -1;  // -1: in the swap file
    SwapExtent extent;
    double cost_ns = 0;  // of evaluating it again
    double value = 0;    // H
  };
  Past& past(int32_t entry) { return pasts_[static_cast<size_t>(entry)]; }
  const Past& past(int32_t entry) const { return pasts_[static_cast<size_t>(entry)]; }
  bool CanStart(int32_t entry, int32_t position) const;
  void Touch(Past* past);
  void Drop(int32_t entry);
  // The entry of least value among those in memory, or among all; kNone when there is none.
  int32_t LeastValuable(bool in_memory) const;
  bool SwapOut(Past* past, const CostModel& cost);
  Status BringIn(int32_t entry);
  void Add(uint64_t key, std::span<const int32_t> tokens, int32_t snapshot,
           const PrefixTree::Match& match, const CostModel& cost);
  // Whether a past of `tokens` adds nothing to what the match found; that is then touched.
  bool IsKnown(const PrefixTree::Match& match, int32_t tokens);

  Engine& engine_;
  SwapFile* swap_;
  PrefixTree tree_;
  std::vector<Past> pasts_;  // by entry
  double floor_ = 0;         // L
};

}  // namespace cellm

#endif  // CELLM_SRC_ENGINE_PAST_STORE_H_
