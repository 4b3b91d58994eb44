#ifndef CELLM_SRC_KV_SEQUENCE_CACHE_H_
#define CELLM_SRC_KV_SEQUENCE_CACHE_H_

// What the sequences of an engine remember.
//
// Layers that forget alike (all full, or the same window) form a group. A group has its own pages:
// one page holds page_tokens tokens of every layer of the group, K then V of one layer after the
// other, and its own page table per sequence:
//
//   group "full"       page = [layer 0: K | V][layer 5: K | V]...      table [0] [1] [2]
//   group "window 32"  page = [layer 1: K | V][layer 2: K | V]...      table  -   -  [2]
//
// Pages are taken from the allocator in slabs as sequences grow, counted by reference, and copied
// before a write when shared. Windowed groups give a page back when no later query can see it.
//
// With KvStorage::demotes() a group of full layers has further pages for tokens in fewer bits. They
// are taken by Grow() and filled by Commit(), when the segment has become old enough: the sequence
// lets go of the pages that it had, which stay what they are for whoever else holds them.
//
// A snapshot is a past that no sequence is working on: a table of shared pages and a copy of the
// states. Sequences start from it at no cost but that copy; its contents can be written to a file
// and read back.
//
// Invariants, tested by CheckInvariants(): (1) a page's count is the number of tables holding it;
// (2) a page with count > 1 is never written; (3) a free page is in no table; (4) the table of a
// sequence of t tokens holds exactly the pages that the formula of layer_state.h counts.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/step_context.h"
#include "base/allocator.h"
#include "base/status.h"
#include "kv/layer_state.h"
#include "platform/thread_pool.h"

namespace cellm {

struct CacheOptions {
  KvStorage kv_type;
  int32_t page_tokens = 32;    // a multiple of 16
  int32_t context_tokens = 0;  // longest sequence: sizes page tables
  int32_t max_sequences = 0;
  uint64_t max_bytes = 0;  // pages and states together; 0: no limit but the allocator's
  platform::ThreadPool* pool = nullptr;  // demotes pages; null: the caller does
};

struct CacheStats {
  uint64_t page_bytes_used = 0;  // pages in some table (each once)
  uint64_t page_bytes_free = 0;  // taken from the allocator, in no table
  uint64_t state_bytes = 0;      // fixed-size states, of sequences and snapshots
  uint64_t table_bytes = 0;
  int64_t pages_copied = 0;  // by copy on write, since creation
};

class SequenceCache {
 public:
  // InvalidArgument names the option; OutOfMemory.
  static Result<std::unique_ptr<SequenceCache>> Create(std::span<const LayerStateSpec> layers,
                                                       const CacheOptions& options,
                                                       Allocator& allocator);
  ~SequenceCache();

  // A free slot in [0, max_sequences), with zeroed states. Busy, OutOfMemory.
  Result<int32_t> CreateSequence();
  void FreeSequence(int32_t slot);
  Result<int32_t> Fork(int32_t slot);

  // Tokens stored.
  int32_t tokens(int32_t slot) const;
  // How many tokens the sequence may be given in one step: to where older ones are demoted.
  int32_t MostTokens(int32_t position) const;
  // Makes sure that tokens [tokens(slot), tokens(slot) + count) can be written: takes pages and
  // copies shared ones. count: at most MostTokens(tokens(slot)). OutOfMemory says needed and
  // available and changes nothing that is visible.
  Status Grow(int32_t slot, int32_t count);
  // After the step: the tokens are there. Gives back what left the windows.
  void Commit(int32_t slot, int32_t count);
  // Undoes Grow() of a step that did not run.
  void Cancel(int32_t slot);
  // See Engine::Rewind.
  Status Rewind(int32_t slot, int32_t position);

  // ---- snapshots: small numbers that are used again after DropSnapshot() ----
  // Pages that no other sequence holds, and its states: what freeing the sequence gives back, now
  // or when the snapshots that share its pages are dropped.
  uint64_t SequenceOwnBytes(int32_t slot) const;
  // Bytes that its next Grow() takes beyond the formula, because another sequence shares its last
  // page. (One that only snapshots share is copied too, but goes to them alone then.)
  uint64_t CopyBytes(int32_t slot) const;
  // The past of a sequence between steps. OutOfMemory: its states.
  Result<int32_t> TakeSnapshot(int32_t slot);
  // Room for the contents of a past of `tokens` tokens, to be filled through Contents().
  // OutOfMemory.
  Result<int32_t> NewSnapshot(int32_t tokens);
  void DropSnapshot(int32_t snapshot);
  int32_t snapshot_tokens(int32_t snapshot) const;
  // Bytes that dropping it would free: pages that nobody else holds, and its states.
  uint64_t SnapshotOwnBytes(int32_t snapshot) const;
  // Of pages that no sequence holds, and of all snapshots' states: what dropping all would free.
  uint64_t SnapshotOnlyBytes() const;
  // Whether a sequence can start at `position` of a snapshot of `tokens` tokens: everywhere in
  // [0, tokens] for models without states and windows, else at its end only (a little before it,
  // while windows still reach, and as long as no fewer tokens are demoted there).
  bool CanCut(int32_t tokens, int32_t position) const;
  // The empty sequence `slot` gets the first `position` tokens. Requires CanCut().
  void StartFrom(int32_t slot, int32_t snapshot, int32_t position);
  // Pages and states as spans, in an order that depends on the number of tokens alone; together
  // BytesPerSequence(tokens). For writing to a file, or filling a NewSnapshot(). Valid until the
  // cache changes.
  std::vector<std::span<uint8_t>> Contents(int32_t snapshot);

  // Lowering it below what is held is allowed: nothing is freed, growth is refused. 0: no limit.
  void set_max_bytes(uint64_t bytes);

  // [layers.size()], valid until the sequence is freed. The pages that they show are those of the
  // last Grow().
  const LayerState* layers(int32_t slot) const;

  // Returns free slabs to the allocator.
  void Trim();
  const CacheStats& stats() const;
  void CheckInvariants() const;

 private:
  SequenceCache();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cellm

#endif  // CELLM_SRC_KV_SEQUENCE_CACHE_H_
