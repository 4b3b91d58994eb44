#ifndef CELLM_SRC_PLATFORM_FILE_H_
#define CELLM_SRC_PLATFORM_FILE_H_

// Files: the only door to the disk.
//
// FileSystem is one of the four virtual seams, so that tests can cut reads short, fill the disk or
// refuse a mapping. Paths are UTF-8 as the operating system takes them. Messages name the path.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cellm::platform {

// A whole file mapped read-only (PROT_READ, MAP_PRIVATE), and kept open. Unmaps at destruction;
// spans of bytes() must not outlive it. Movable. A file that another process cuts short while
// mapped makes reads of bytes() fault: model files are replaced by rename, never in place.
class FileMapping {
 public:
  FileMapping() = default;
  FileMapping(FileMapping&& other) noexcept;
  FileMapping& operator=(FileMapping&& other) noexcept;
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;
  ~FileMapping();

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  // Tells the kernel that the pages of [offset, offset + length) are no longer needed here; they
  // are read again from the file when touched. Best effort.
  void Release(uint64_t offset, uint64_t length) const;
  // Asks the kernel to start reading the range. Best effort.
  void Prefetch(uint64_t offset, uint64_t length) const;
  // Says that the range is read here and there: a touched page brings no neighbours with it. Best
  // effort.
  void ExpectRandomReads(uint64_t offset, uint64_t length) const;
  // Copies [offset, offset + out.size()) of the file without touching the mapping: no page of it
  // becomes resident, and a file that was cut short is an error and no fault. Io names the path.
  // Any thread.
  Status Read(uint64_t offset, std::span<uint8_t> out) const;

 private:
  friend class PosixFileSystem;
  friend class FileMappingForTest;
  const uint8_t* data_ = nullptr;
  int fd_ = -1;  // none: Read() copies from the mapping
  size_t size_ = 0;
  std::string path_;
};

// Writes to a temporary file beside the target; Commit() flushes to disk and renames. Destroyed
// without Commit(), the temporary file is removed and the target is untouched.
class FileWriter {
 public:
  virtual ~FileWriter() = default;
  virtual Status Write(std::span<const uint8_t> bytes) = 0;
  // Overwrites bytes written before; [offset, offset + size) must lie inside what was written.
  virtual Status WriteAt(uint64_t offset, std::span<const uint8_t> bytes) = 0;
  virtual uint64_t position() const = 0;
  // Where the bytes lie until Commit(), for whoever reads them back first.
  virtual const std::string& draft_path() const = 0;
  virtual Status Commit() = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // NotFound, Io. An empty file maps to an empty span.
  virtual Result<FileMapping> Map(const std::string& path) = 0;
  // The whole file; OutOfRange when it is larger than `max_bytes`.
  virtual Result<std::string> Read(const std::string& path, uint64_t max_bytes) = 0;
  // Io where the folder cannot be written, or `path` is there and no regular file.
  virtual Result<std::unique_ptr<FileWriter>> Create(const std::string& path) = 0;
  // The same for what only its owner may read, whatever the umask: conversations.
  virtual Result<std::unique_ptr<FileWriter>> CreatePrivate(const std::string& path) {
    return Create(path);
  }
  virtual bool IsFile(const std::string& path) = 0;
  virtual bool IsDirectory(const std::string& path) = 0;
  // Names in the folder, without "." and "..", sorted byte-wise.
  virtual Result<std::vector<std::string>> List(const std::string& path) = 0;
};

// The operating system's. One object, alive for ever, any thread.
FileSystem& SystemFiles();

// "a" + "b" -> "a/b"; an absolute `name` is returned as it is.
std::string JoinPath(std::string_view folder, std::string_view name);
// The folder of a path ("." when there is none) and its last component.
std::string ParentPath(std::string_view path);
std::string BaseName(std::string_view path);

}  // namespace cellm::platform

#endif  // CELLM_SRC_PLATFORM_FILE_H_
