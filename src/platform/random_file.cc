#include "platform/random_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "platform/file.h"

namespace cellm::platform {
namespace {

Status ErrnoStatus(const std::string& path, const char* action, int error) {
  if (error == ENOENT) return NotFound("%s: no such file or directory", path.c_str());
  return IoError("%s: cannot %s: %s", path.c_str(), action, std::strerror(error));
}

class PosixRandomFile final : public RandomFile {
 public:
  PosixRandomFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~PosixRandomFile() override { ::close(fd_); }

  Status ReadAt(uint64_t offset, std::span<uint8_t> bytes) override {
    while (!bytes.empty()) {
      const ssize_t count = ::pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return ErrnoStatus(path_, "read", errno);
      if (count == 0) return Corrupt("%s: ends before what was written to it", path_.c_str());
      offset += static_cast<uint64_t>(count);
      bytes = bytes.subspan(static_cast<size_t>(count));
    }
    return OkStatus();
  }

  Status WriteAt(uint64_t offset, std::span<const uint8_t> bytes) override {
    while (!bytes.empty()) {
      const ssize_t count = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return ErrnoStatus(path_, "write", errno);
      offset += static_cast<uint64_t>(count);
      bytes = bytes.subspan(static_cast<size_t>(count));
    }
    return OkStatus();
  }

  Status Resize(uint64_t bytes) override {
    if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) {
      return ErrnoStatus(path_, "resize", errno);
    }
    return OkStatus();
  }

  Result<uint64_t> Size() override {
    struct stat info = {};
    if (::fstat(fd_, &info) != 0) return ErrnoStatus(path_, "stat", errno);
    return static_cast<uint64_t>(info.st_size);
  }

  Status Sync() override {
    if (::fsync(fd_) != 0) return ErrnoStatus(path_, "flush", errno);
    return OkStatus();
  }

  void Discard(uint64_t offset, uint64_t bytes) override {
#if defined(FALLOC_FL_PUNCH_HOLE)
    (void)::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                      static_cast<off_t>(bytes));
#else
    (void)offset;
    (void)bytes;
#endif
  }

 private:
  std::string path_;
  int fd_;
};

}  // namespace

Result<std::unique_ptr<RandomFile>> OpenScratchFile(const std::string& folder) {
  const std::string name = JoinPath(folder, "cellm-XXXXXX");
  std::vector<char> path(name.begin(), name.end());
  path.push_back('\0');
  const int fd = ::mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(folder, "make a scratch file in it", errno);
  (void)::unlink(path.data());
  (void)::fchmod(fd, 0600);
  return std::unique_ptr<RandomFile>(new PosixRandomFile(JoinPath(folder, "(scratch file)"), fd));
}

Result<std::unique_ptr<RandomFile>> OpenRandomFile(const std::string& path, OpenMode mode) {
  const int create = mode == OpenMode::kCreate ? O_CREAT | O_EXCL : 0;
  const int fd = ::open(path.c_str(), O_RDWR | create | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (fd < 0) {
    if (errno == ELOOP) return IoError("%s: is a link, a file was expected", path.c_str());
    return ErrnoStatus(path, mode == OpenMode::kCreate ? "create" : "open", errno);
  }
  auto file = std::make_unique<PosixRandomFile>(path, fd);
  // A umask can only have taken from the mode; whoever has made it too narrow means other files.
  if (create != 0) (void)::fchmod(fd, 0600);
  struct stat info = {};
  if (::fstat(fd, &info) != 0) return ErrnoStatus(path, "stat", errno);
  if (!S_ISREG(info.st_mode)) return IoError("%s: not a regular file", path.c_str());
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return Busy("%s: in use", path.c_str());
    return ErrnoStatus(path, "lock", errno);
  }
  if (mode == OpenMode::kCreate) {
    // The name must survive a power cut too (best effort: some file systems refuse).
    const int folder = ::open(ParentPath(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
      (void)::fsync(folder);
      ::close(folder);
    }
  }
  return std::unique_ptr<RandomFile>(std::move(file));
}

Status RemoveFile(const std::string& path) {
  if (::unlink(path.c_str()) != 0) return ErrnoStatus(path, "remove", errno);
  return OkStatus();
}

Result<int64_t> ModifiedNs(const std::string& path) {
  struct stat info = {};
  if (::lstat(path.c_str(), &info) != 0) return ErrnoStatus(path, "stat", errno);
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

}  // namespace cellm::platform
