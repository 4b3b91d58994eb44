#ifndef CELLM_SRC_KV_PAGE_POOL_H_
#define CELLM_SRC_KV_PAGE_POOL_H_

// Pages of one size, counted by reference, in slabs from an Allocator.
//
// Slabs grow: the first holds one page, each next one twice as many, up to kMaxSlabBytes. So a
// short conversation costs a page, and a long one few allocations. A free page is in the list of
// its slab; a slab without used pages can be given back.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/allocator.h"
#include "base/status.h"

namespace cellm {

// A page of a PagePool. slab == kNoPage: none.
struct PageRef {
  static constexpr uint32_t kNoPage = 0xFFFFFFFF;
  uint32_t slab = kNoPage;
  uint32_t page = 0;
  bool exists() const { return slab != kNoPage; }
};

class PagePool {
 public:
  static constexpr size_t kMaxSlabBytes = size_t{1} << 20;

  PagePool(size_t page_bytes, Allocator& allocator)
      : page_bytes_(page_bytes), allocator_(&allocator) {}

  size_t page_bytes() const { return page_bytes_; }
  int64_t used_pages() const { return used_; }
  int64_t free_pages() const { return free_; }

  // A page with count 1. OutOfMemory when a new slab would take more than `growth_limit` bytes even
  // with a single page, or when the allocator refuses one.
  Result<PageRef> Take(uint64_t growth_limit);
  // Who holds a page: a sequence, which may write it, or a snapshot, which only keeps it.
  enum class Holder { kSequence, kSnapshot };
  void AddReference(PageRef ref, Holder holder = Holder::kSequence);
  // Frees the page when nobody holds it any more.
  void Release(PageRef ref, Holder holder = Holder::kSequence);
  uint8_t* Bytes(PageRef ref) const;
  int32_t References(PageRef ref) const;          // by all
  int32_t SequenceReferences(PageRef ref) const;  // by sequences
  // Pages that only snapshots hold.
  int64_t SnapshotOnlyPages() const { return snapshot_only_; }
  // Gives slabs without used pages back to the allocator.
  void Trim();
  // Bytes that Trim() would give back.
  uint64_t TrimmableBytes() const;
  // Aborts when free lists and counts disagree.
  void CheckInvariants() const;
  template <typename Visit>
  void ForEachPage(const Visit& visit) const {
    for (uint32_t s = 0; s < slabs_.size(); ++s) {
      for (uint32_t p = 0; p < slabs_[s].references.size(); ++p) {
        visit(PageRef{s, p}, slabs_[s].references[p]);
      }
    }
  }

 private:
  struct Slab {
    mutable Array<uint8_t> bytes;
    Array<int32_t> references;  // [pages]
    Array<int32_t> snapshots;   // [pages]: of the references, those by snapshots
    Array<int32_t> next_free;   // [pages]: the next free page, -1: the last
    int32_t first_free = -1;
    int32_t used = 0;
    bool SnapshotOnly(uint32_t page) const {
      return references[page] > 0 && references[page] == snapshots[page];
    }
  };
  Status AddSlab(uint64_t growth_limit);

  size_t page_bytes_;
  Allocator* allocator_;
  std::vector<Slab> slabs_;  // emptied slabs keep their place
  int64_t used_ = 0;
  int64_t free_ = 0;
  int64_t snapshot_only_ = 0;
};

}  // namespace cellm

#endif  // CELLM_SRC_KV_PAGE_POOL_H_
