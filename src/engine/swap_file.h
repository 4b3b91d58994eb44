#ifndef CELLM_SRC_ENGINE_SWAP_FILE_H_
#define CELLM_SRC_ENGINE_SWAP_FILE_H_

// Where contents of K/V pages wait on disk: extents of a scratch file, each with its hash.
//
// A file that cannot be trusted any more (cut short, altered, disk full) costs time and nothing
// else: whoever wanted the bytes evaluates the tokens again.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "platform/random_file.h"

namespace cellm {

struct SwapExtent {
  uint64_t offset = 0;
  uint64_t bytes = 0;  // 0: none
  uint64_t hash = 0;   // XXH3-64 of the contents
};

// One thread at a time.
class SwapFile {
 public:
  // At most `max_bytes` are used.
  SwapFile(std::unique_ptr<platform::RandomFile> file, uint64_t max_bytes)
      : file_(std::move(file)), max_bytes_(max_bytes) {}

  // Io (disk full), OutOfMemory (max_bytes); then nothing is held.
  Result<SwapExtent> Write(std::span<const std::span<uint8_t>> contents);
  // Into spans of the same sizes as were written. Corrupt: not what was written; Io. The extent
  // stays.
  Status Read(const SwapExtent& extent, std::span<const std::span<uint8_t>> contents);
  void Free(const SwapExtent& extent);

  uint64_t used_bytes() const { return used_; }
  uint64_t free_bytes() const { return max_bytes_ - used_; }

 private:
  std::unique_ptr<platform::RandomFile> file_;
  uint64_t max_bytes_;
  uint64_t used_ = 0;
  uint64_t end_ = 0;                   // of what was ever used
  std::map<uint64_t, uint64_t> free_;  // offset -> bytes, neighbours merged, none at the end
};

}  // namespace cellm

#endif  // CELLM_SRC_ENGINE_SWAP_FILE_H_
