#include "kv/page_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace cellm {

Status PagePool::AddSlab(uint64_t growth_limit) {
  const uint64_t held = static_cast<uint64_t>(used_ + free_);
  uint64_t pages = std::max<uint64_t>(
      1, std::min<uint64_t>(std::max<uint64_t>(held, 1), kMaxSlabBytes / page_bytes_));
  // Near the limit, single pages: what one group holds free, another cannot use.
  pages = std::min(pages, std::max<uint64_t>(1, growth_limit / page_bytes_ / 8));
  if (growth_limit < page_bytes_) pages = 0;
  for (; pages > 0; pages /= 2) {
    Slab slab;
    auto bytes = Array<uint8_t>::Uninitialised(
        *allocator_, static_cast<size_t>(pages) * page_bytes_, MemoryClass::kCache, "K/V pages");
    if (!bytes.ok()) continue;
    slab.bytes = std::move(bytes).value();
    CELLM_ASSIGN_OR_RETURN(slab.references,
                           Array<int32_t>::Zeroed(*allocator_, static_cast<size_t>(pages),
                                                  MemoryClass::kCache, "K/V page counts"));
    CELLM_ASSIGN_OR_RETURN(slab.snapshots,
                           Array<int32_t>::Zeroed(*allocator_, static_cast<size_t>(pages),
                                                  MemoryClass::kCache, "K/V page counts"));
    CELLM_ASSIGN_OR_RETURN(slab.next_free,
                           Array<int32_t>::Zeroed(*allocator_, static_cast<size_t>(pages),
                                                  MemoryClass::kCache, "K/V page list"));
    const int32_t count = static_cast<int32_t>(pages);
    for (int32_t p = 0; p < count; ++p) {
      slab.next_free[static_cast<size_t>(p)] = p + 1 < count ? p + 1 : -1;
    }
    slab.first_free = 0;
    free_ += count;
    for (Slab& place : slabs_) {
      if (place.references.empty()) {
        place = std::move(slab);
        return OkStatus();
      }
    }
    slabs_.push_back(std::move(slab));
    return OkStatus();
  }
  return OutOfMemory("K/V page of %zu bytes", page_bytes_);
}

Result<PageRef> PagePool::Take(uint64_t growth_limit) {
  if (free_ == 0) CELLM_RETURN_IF_ERROR(AddSlab(growth_limit));
  for (uint32_t s = 0; s < slabs_.size(); ++s) {
    Slab& slab = slabs_[s];
    if (slab.first_free < 0) continue;
    const uint32_t page = static_cast<uint32_t>(slab.first_free);
    slab.first_free = slab.next_free[page];
    slab.references[page] = 1;
    ++slab.used;
    ++used_;
    --free_;
    return PageRef{s, page};
  }
  CELLM_CHECK(false, "a page is counted as free and in no list");
}

void PagePool::AddReference(PageRef ref, Holder holder) {
  Slab& slab = slabs_[ref.slab];
  snapshot_only_ -= slab.SnapshotOnly(ref.page) ? 1 : 0;
  ++slab.references[ref.page];
  if (holder == Holder::kSnapshot) ++slab.snapshots[ref.page];
  snapshot_only_ += slab.SnapshotOnly(ref.page) ? 1 : 0;
}

void PagePool::Release(PageRef ref, Holder holder) {
  Slab& slab = slabs_[ref.slab];
  CELLM_DCHECK(slab.references[ref.page] > 0, "a free page is released");
  snapshot_only_ -= slab.SnapshotOnly(ref.page) ? 1 : 0;
  if (holder == Holder::kSnapshot) --slab.snapshots[ref.page];
  --slab.references[ref.page];
  snapshot_only_ += slab.SnapshotOnly(ref.page) ? 1 : 0;
  if (slab.references[ref.page] > 0) return;
  slab.next_free[ref.page] = slab.first_free;
  slab.first_free = static_cast<int32_t>(ref.page);
  --slab.used;
  --used_;
  ++free_;
}

uint8_t* PagePool::Bytes(PageRef ref) const {
  return slabs_[ref.slab].bytes.data() + size_t{ref.page} * page_bytes_;
}

int32_t PagePool::References(PageRef ref) const { return slabs_[ref.slab].references[ref.page]; }

int32_t PagePool::SequenceReferences(PageRef ref) const {
  const Slab& slab = slabs_[ref.slab];
  return slab.references[ref.page] - slab.snapshots[ref.page];
}

void PagePool::Trim() {
  for (Slab& slab : slabs_) {
    if (slab.used > 0 || slab.references.empty()) continue;
    free_ -= static_cast<int64_t>(slab.references.size());
    slab = Slab();
  }
}

uint64_t PagePool::TrimmableBytes() const {
  uint64_t bytes = 0;
  for (const Slab& slab : slabs_) bytes += slab.used == 0 ? slab.bytes.size() : 0;
  return bytes;
}

void PagePool::CheckInvariants() const {
  int64_t used = 0;
  int64_t listed = 0;
  int64_t snapshot_only = 0;
  for (const Slab& slab : slabs_) {
    int32_t in_slab = 0;
    for (const int32_t count : slab.references) in_slab += count > 0 ? 1 : 0;
    for (size_t p = 0; p < slab.references.size(); ++p) {
      CELLM_CHECK(slab.snapshots[p] >= 0 && slab.snapshots[p] <= slab.references[p],
                  "more snapshots hold a page than anybody");
      snapshot_only += slab.SnapshotOnly(static_cast<uint32_t>(p)) ? 1 : 0;
    }
    CELLM_CHECK(in_slab == slab.used, "a slab miscounts its used pages");
    used += in_slab;
    const int64_t limit = static_cast<int64_t>(slab.references.size());
    int64_t steps = 0;
    for (int32_t p = slab.first_free; p >= 0; p = slab.next_free[static_cast<size_t>(p)]) {
      CELLM_CHECK(slab.references[static_cast<size_t>(p)] == 0, "a used page is in a free list");
      CELLM_CHECK(++steps <= limit, "a free list runs in a circle");
    }
    CELLM_CHECK(steps + in_slab == limit, "a page is neither used nor free");
    listed += steps;
  }
  CELLM_CHECK(used == used_ && listed == free_ && snapshot_only == snapshot_only_,
              "the pool miscounts its pages");
}

}  // namespace cellm
