#include "engine/swap_file.h"

#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/hash.h"

namespace cellm {

Result<SwapExtent> SwapFile::Write(std::span<const std::span<uint8_t>> contents) {
  SwapExtent extent;
  for (const std::span<uint8_t> piece : contents) extent.bytes += piece.size();
  if (extent.bytes > free_bytes()) {
    return OutOfMemory("swap file: %llu bytes needed, %llu available",
                       static_cast<unsigned long long>(extent.bytes),
                       static_cast<unsigned long long>(free_bytes()));
  }
  if (extent.bytes == 0) return extent;
  // First fit, else at the end.
  extent.offset = end_;
  auto hole = free_.begin();
  while (hole != free_.end() && hole->second < extent.bytes) ++hole;
  if (hole != free_.end()) extent.offset = hole->first;

  Xxh3Stream hash;
  uint64_t offset = extent.offset;
  for (const std::span<uint8_t> piece : contents) {
    CELLM_RETURN_IF_ERROR(file_->WriteAt(offset, piece));
    hash.Update(piece);
    offset += piece.size();
  }
  extent.hash = hash.Digest();
  if (hole != free_.end()) {
    const uint64_t rest = hole->second - extent.bytes;
    free_.erase(hole);
    if (rest > 0) free_[offset] = rest;
  } else {
    end_ = offset;
  }
  used_ += extent.bytes;
  return extent;
}

Status SwapFile::Read(const SwapExtent& extent, std::span<const std::span<uint8_t>> contents) {
  if (extent.bytes == 0) return OkStatus();
  Xxh3Stream hash;
  uint64_t offset = extent.offset;
  for (const std::span<uint8_t> piece : contents) {
    CELLM_CHECK(piece.size() <= extent.offset + extent.bytes - offset, "an extent is read too far");
    CELLM_RETURN_IF_ERROR(file_->ReadAt(offset, piece));
    hash.Update(piece);
    offset += piece.size();
  }
  CELLM_CHECK(offset == extent.offset + extent.bytes, "an extent is read in part");
  if (hash.Digest() != extent.hash) {
    return Corrupt("swap file: bytes at %llu are not what was written there",
                   static_cast<unsigned long long>(extent.offset));
  }
  return OkStatus();
}

void SwapFile::Free(const SwapExtent& extent) {
  if (extent.bytes == 0) return;
  CELLM_CHECK(extent.bytes <= used_ && extent.offset + extent.bytes <= end_,
              "an extent is unknown");
  used_ -= extent.bytes;
  file_->Discard(extent.offset, extent.bytes);
  auto hole = free_.emplace(extent.offset, extent.bytes).first;
  const auto next = std::next(hole);
  if (next != free_.end() && hole->first + hole->second == next->first) {
    hole->second += next->second;
    free_.erase(next);
  }
  if (hole != free_.begin()) {
    const auto before = std::prev(hole);
    if (before->first + before->second == hole->first) {
      before->second += hole->second;
      free_.erase(hole);
      hole = before;
    }
  }
  if (hole->first + hole->second == end_) {
    end_ = hole->first;
    free_.erase(hole);
  }
}

}  // namespace cellm
