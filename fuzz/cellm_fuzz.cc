// Any bytes as a .cellm file. A header of ours is hashed, which no mutation survives: so the hash
// is put right first, and what lies behind it is reached.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "format/cellm_file.h"
#include "support/model_exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cellm::format;  // NOLINT: a target's only function
  cellm::fuzz::ExerciseModel({data, size}, "f.cellm", "");
  if (size < kCellmPreludeBytes + kCellmIdentityStart.size() + 16) return 0;
  std::string text(reinterpret_cast<const char*>(data), size);
  uint32_t header_bytes = 0;
  std::memcpy(&header_bytes, data + 6, 4);
  if (header_bytes > size - kCellmPreludeBytes) return 0;
  const std::string_view header(text.data() + kCellmPreludeBytes, header_bytes);
  if (!header.starts_with(kCellmIdentityStart)) return 0;
  const std::string identity = CellmIdentity(header);
  if (identity.empty()) return 0;
  text.replace(kCellmPreludeBytes + kCellmIdentityStart.size(), 16, identity);
  cellm::fuzz::ExerciseModel({reinterpret_cast<const uint8_t*>(text.data()), text.size()},
                             "f.cellm", "");
  return 0;
}
