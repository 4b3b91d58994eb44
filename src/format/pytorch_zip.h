#ifndef CELLM_SRC_FORMAT_PYTORCH_ZIP_H_
#define CELLM_SRC_FORMAT_PYTORCH_ZIP_H_

// The part of the ZIP format that PyTorch writes: entries stored without compression, found through
// the central directory at the end, with 64-bit sizes where needed.
//
// Sources: the published ZIP application note (4.3.6 to 4.3.16).

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cellm::format {

struct ZipEntry {
  std::string_view name;
  uint64_t offset = 0;  // of its data in the file
  std::span<const uint8_t> data;
};

// All entries in the order of the directory. Views of `bytes`. Messages start with `file_name`.
//   Corrupt      no directory, or a record that points outside the file
//   Unsupported  compressed or encrypted entries, archives in several volumes
Result<std::vector<ZipEntry>> ReadZip(std::span<const uint8_t> bytes, std::string_view file_name);

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_PYTORCH_ZIP_H_
