#ifndef CELLM_SRC_PLATFORM_RANDOM_FILE_H_
#define CELLM_SRC_PLATFORM_RANDOM_FILE_H_

// A file that is read and written at any place: the swap file, journals.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace cellm::platform {

// One of the virtual seams, so that tests can fill the disk or damage what was written. One thread
// at a time.
class RandomFile {
 public:
  virtual ~RandomFile() = default;
  // All of `bytes`, or Io. Past the end is Corrupt: the file was cut short.
  virtual Status ReadAt(uint64_t offset, std::span<uint8_t> bytes) = 0;
  // All of `bytes`, growing the file where needed, or Io.
  virtual Status WriteAt(uint64_t offset, std::span<const uint8_t> bytes) = 0;
  virtual Status Resize(uint64_t bytes) = 0;
  virtual Result<uint64_t> Size() = 0;
  // What was written survives a crash of the machine.
  virtual Status Sync() = 0;
  // Best effort: the range will not be read again and need not take space.
  virtual void Discard(uint64_t offset, uint64_t bytes) = 0;
};

// A file without a name in `folder`, gone when closed or when the process dies. Io, NotFound.
Result<std::unique_ptr<RandomFile>> OpenScratchFile(const std::string& folder);

// The file at `path`: kCreate makes it, readable by its owner only whatever the umask, and refuses
// one that is there; kExisting opens it. A link, a folder or a device is refused. Locked against a
// second opening: Busy when another process or handle has it. NotFound, Io.
enum class OpenMode : uint8_t { kCreate, kExisting };
Result<std::unique_ptr<RandomFile>> OpenRandomFile(const std::string& path, OpenMode mode);

// NotFound, Io.
Status RemoveFile(const std::string& path);
// When the file was last written: nanoseconds since the epoch (UTC). NotFound, Io.
Result<int64_t> ModifiedNs(const std::string& path);

}  // namespace cellm::platform

#endif  // CELLM_SRC_PLATFORM_RANDOM_FILE_H_
