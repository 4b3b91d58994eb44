#ifndef CELLM_TESTS_SUPPORT_RANDOM_FILE_H_
#define CELLM_TESTS_SUPPORT_RANDOM_FILE_H_

// A RandomFile in memory that can be full, damaged or cut.

#include <cstring>
#include <string>

#include "platform/random_file.h"

namespace cellm::testing {

class MemoryRandomFile final : public platform::RandomFile {
 public:
  std::string bytes;

  void set_full(bool full) { full_ = full; }
  // Changes one byte, or cuts the file.
  void Damage(uint64_t seed) {
    if (bytes.empty()) return;
    const size_t at = seed % bytes.size();
    if (seed % 7 == 0) {
      bytes.resize(at);
    } else {
      bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    }
  }

  Status ReadAt(uint64_t offset, std::span<uint8_t> out) override {
    if (offset > bytes.size() || out.size() > bytes.size() - offset) {
      return Corrupt("the file ends before what was written to it");
    }
    std::memcpy(out.data(), bytes.data() + offset, out.size());
    return OkStatus();
  }
  Status WriteAt(uint64_t offset, std::span<const uint8_t> in) override {
    if (full_) return IoError("no space left on device");
    if (bytes.size() < offset + in.size()) bytes.resize(offset + in.size());
    std::memcpy(bytes.data() + offset, in.data(), in.size());
    return OkStatus();
  }
  Status Resize(uint64_t size) override {
    bytes.resize(size);
    return OkStatus();
  }
  Result<uint64_t> Size() override { return static_cast<uint64_t>(bytes.size()); }
  Status Sync() override { return full_ ? IoError("no space left on device") : OkStatus(); }
  void Discard(uint64_t, uint64_t) override {}

 private:
  bool full_ = false;
};

}  // namespace cellm::testing

#endif  // CELLM_TESTS_SUPPORT_RANDOM_FILE_H_
