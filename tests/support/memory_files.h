#ifndef CELLM_TESTS_SUPPORT_MEMORY_FILES_H_
#define CELLM_TESTS_SUPPORT_MEMORY_FILES_H_

// A file system in memory, and one that fails on purpose.

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "platform/file.h"

namespace cellm::testing {

// Files are entries of `files`; a folder exists when a path begins with its name and a slash.
// Written files appear at Commit(). One thread.
class MemoryFiles final : public platform::FileSystem {
 public:
  std::map<std::string, std::string> files;
  bool poison_tails = false;  // as MapBytes() says

  Result<platform::FileMapping> Map(const std::string& path) override;
  Result<std::string> Read(const std::string& path, uint64_t max_bytes) override;
  Result<std::unique_ptr<platform::FileWriter>> Create(const std::string& path) override;
  bool IsFile(const std::string& path) override;
  bool IsDirectory(const std::string& path) override;
  Result<std::vector<std::string>> List(const std::string& path) override;
};

// Bytes as a mapping: of a file in memory, read-only. With `poison_tail`, AddressSanitizer finds
// reads past the last byte although the page goes on; the mark outlives the mapping, so only
// programs all of whose mappings are made here may ask for it.
platform::FileMapping MapBytes(std::string_view bytes, const std::string& path,
                               bool poison_tail = false);

// Passes everything to `inner`, but the n-th operation that could fail (counted from 0) does fail.
// Loop n upward until a run has no fault: then fault_happened() is false. One thread.
class FaultyFiles final : public platform::FileSystem {
 public:
  enum class Fault {
    kError,      // Map, Read, Create, List, Write, Commit: an error of the operating system
    kShortFile,  // Map and Read give the first half only, as if the file were cut short
    kDiskFull,   // Write and Commit only
  };
  FaultyFiles(platform::FileSystem& inner, Fault fault, int fail_at)
      : inner_(inner), fault_(fault), countdown_(fail_at) {}
  bool fault_happened() const { return happened_; }

  Result<platform::FileMapping> Map(const std::string& path) override;
  Result<std::string> Read(const std::string& path, uint64_t max_bytes) override;
  Result<std::unique_ptr<platform::FileWriter>> Create(const std::string& path) override;
  bool IsFile(const std::string& path) override { return inner_.IsFile(path); }
  bool IsDirectory(const std::string& path) override { return inner_.IsDirectory(path); }
  Result<std::vector<std::string>> List(const std::string& path) override;

  // For the writers made by Create().
  bool Fails(bool reading);

 private:
  platform::FileSystem& inner_;
  Fault fault_;
  int countdown_;
  bool happened_ = false;
};

}  // namespace cellm::testing

#endif  // CELLM_TESTS_SUPPORT_MEMORY_FILES_H_
