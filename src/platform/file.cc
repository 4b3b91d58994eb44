#include "platform/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/checked.h"

namespace cellm::platform {

FileMapping::FileMapping(FileMapping&& other) noexcept { *this = std::move(other); }

FileMapping& FileMapping::operator=(FileMapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

FileMapping::~FileMapping() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
  if (fd_ >= 0) ::close(fd_);
}

namespace {

// madvise wants whole pages: the inner ones for Release (a partly used page must stay), the
// touched ones for Prefetch.
constexpr uint64_t kPage = 4096;

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

Status ErrnoStatus(const std::string& path, const char* action, int error) {
  if (error == ENOENT) return NotFound("%s: no such file or directory", path.c_str());
  if (error == ENOMEM) return OutOfMemory("%s: cannot %s: out of memory", path.c_str(), action);
  return IoError("%s: cannot %s: %s", path.c_str(), action, std::strerror(error));
}

class PosixFileWriter final : public FileWriter {
 public:
  PosixFileWriter(std::string path, std::string temporary, int fd)
      : path_(std::move(path)), temporary_(std::move(temporary)) {
    descriptor_.fd = fd;
  }
  ~PosixFileWriter() override {
    if (!committed_) ::unlink(temporary_.c_str());
  }

  Status Write(std::span<const uint8_t> bytes) override {
    CELLM_RETURN_IF_ERROR(WriteRange(position_, bytes));
    position_ += bytes.size();
    return OkStatus();
  }
  Status WriteAt(uint64_t offset, std::span<const uint8_t> bytes) override {
    CELLM_CHECK(RangeFits(offset, bytes.size(), position_), "WriteAt past what was written");
    return WriteRange(offset, bytes);
  }
  uint64_t position() const override { return position_; }
  const std::string& draft_path() const override { return temporary_; }

  Status Commit() override {
    if (::fsync(descriptor_.fd) != 0) return ErrnoStatus(path_, "flush", errno);
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
      return ErrnoStatus(path_, "rename into place", errno);
    }
    committed_ = true;
    // The rename itself must survive a power cut: flush the folder too (best effort: some file
    // systems refuse).
    Descriptor folder;
    folder.fd = ::open(ParentPath(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder.fd >= 0) (void)::fsync(folder.fd);
    return OkStatus();
  }

 private:
  Status WriteRange(uint64_t offset, std::span<const uint8_t> bytes) {
    while (!bytes.empty()) {
      const ssize_t count =
          ::pwrite(descriptor_.fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (count < 0) {
        if (errno == EINTR) continue;
        return ErrnoStatus(path_, "write", errno);
      }
      offset += static_cast<uint64_t>(count);
      bytes = bytes.subspan(static_cast<size_t>(count));
    }
    return OkStatus();
  }

  std::string path_;
  std::string temporary_;
  Descriptor descriptor_;
  uint64_t position_ = 0;
  bool committed_ = false;
};

}  // namespace

void FileMapping::Release(uint64_t offset, uint64_t length) const {
  if (!RangeFits(offset, length, size_)) return;
  const uint64_t begin = RoundUp(offset, kPage);
  const uint64_t end = (offset + length) / kPage * kPage;
  if (begin >= end) return;
  (void)::madvise(const_cast<uint8_t*>(data_) + begin, end - begin, MADV_DONTNEED);
}

void FileMapping::Prefetch(uint64_t offset, uint64_t length) const {
  if (length == 0 || !RangeFits(offset, length, size_)) return;
  const uint64_t begin = offset / kPage * kPage;
  (void)::madvise(const_cast<uint8_t*>(data_) + begin, offset + length - begin, MADV_WILLNEED);
}

void FileMapping::ExpectRandomReads(uint64_t offset, uint64_t length) const {
  if (length == 0 || !RangeFits(offset, length, size_)) return;
  const uint64_t begin = offset / kPage * kPage;
  (void)::madvise(const_cast<uint8_t*>(data_) + begin, offset + length - begin, MADV_RANDOM);
}

Status FileMapping::Read(uint64_t offset, std::span<uint8_t> out) const {
  if (!RangeFits(offset, out.size(), size_)) {
    return IoError("%s: cannot read %zu bytes at %llu: the file has %zu", path_.c_str(), out.size(),
                   static_cast<unsigned long long>(offset), size_);
  }
  if (fd_ < 0) {
    if (!out.empty()) std::memcpy(out.data(), data_ + offset, out.size());
    return OkStatus();
  }
  while (!out.empty()) {
    const ssize_t count = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(path_, "read", errno);
    }
    if (count == 0) return IoError("%s: was cut short while it was read", path_.c_str());
    offset += static_cast<uint64_t>(count);
    out = out.subspan(static_cast<size_t>(count));
  }
  return OkStatus();
}

class PosixFileSystem final : public FileSystem {
 public:
  Result<FileMapping> Map(const std::string& path) override {
    Descriptor file;
    struct stat info = {};
    CELLM_RETURN_IF_ERROR(OpenRegular(path, &file, &info));
    FileMapping mapping;
    mapping.path_ = path;
    if (info.st_size == 0) return mapping;
    void* memory =
        ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (memory == MAP_FAILED) return ErrnoStatus(path, "map", errno);
    mapping.data_ = static_cast<const uint8_t*>(memory);
    mapping.size_ = static_cast<size_t>(info.st_size);
    mapping.fd_ = std::exchange(file.fd, -1);
    return mapping;
  }

  Result<std::string> Read(const std::string& path, uint64_t max_bytes) override {
    Descriptor file;
    struct stat info = {};
    CELLM_RETURN_IF_ERROR(OpenRegular(path, &file, &info));
    if (static_cast<uint64_t>(info.st_size) > max_bytes) {
      return OutOfRange("%s: %lld bytes, more than the %llu allowed", path.c_str(),
                        static_cast<long long>(info.st_size),
                        static_cast<unsigned long long>(max_bytes));
    }
    std::string text(static_cast<size_t>(info.st_size), '\0');
    size_t done = 0;
    while (done < text.size()) {
      const ssize_t count = ::read(file.fd, text.data() + done, text.size() - done);
      if (count < 0) {
        if (errno == EINTR) continue;
        return ErrnoStatus(path, "read", errno);
      }
      if (count == 0) break;
      done += static_cast<size_t>(count);
    }
    text.resize(done);
    return text;
  }

  Result<std::unique_ptr<FileWriter>> Create(const std::string& path) override {
    return CreateWithMode(path, 0666);  // less the umask
  }
  Result<std::unique_ptr<FileWriter>> CreatePrivate(const std::string& path) override {
    return CreateWithMode(path, kPrivate);
  }

  bool IsFile(const std::string& path) override {
    struct stat info = {};
    return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
  }
  bool IsDirectory(const std::string& path) override {
    struct stat info = {};
    return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  }

  Result<std::vector<std::string>> List(const std::string& path) override {
    DIR* folder = ::opendir(path.c_str());
    if (folder == nullptr) return ErrnoStatus(path, "list", errno);
    std::vector<std::string> names;
    while (const dirent* entry = ::readdir(folder)) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    ::closedir(folder);
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  static constexpr mode_t kPrivate = 0600;
  static Result<std::unique_ptr<FileWriter>> CreateWithMode(const std::string& path, mode_t mode) {
    struct stat info = {};
    if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
      // The rename at the end would put a file in the place of a device, pipe or socket.
      return IoError(S_ISDIR(info.st_mode) ? "%s: is a directory"
                                           : "%s: is a device or pipe; a file is written whole",
                     path.c_str());
    }
    const std::string temporary = path + StrFormat(".tmp-%ld", static_cast<long>(::getpid()));
    // O_EXCL and no following of links: a planted name must not redirect the write.
    (void)::unlink(temporary.c_str());
    const int fd =
        ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0) return ErrnoStatus(path, "create", errno);
    // A umask that takes from the owner, too, means other files.
    if (mode == kPrivate) (void)::fchmod(fd, kPrivate);
    return std::unique_ptr<FileWriter>(new PosixFileWriter(path, temporary, fd));
  }

  static Status OpenRegular(const std::string& path, Descriptor* file, struct stat* info) {
    // O_NONBLOCK: a named pipe must not hang the open.
    file->fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0) return ErrnoStatus(path, "open", errno);
    if (::fstat(file->fd, info) != 0) return ErrnoStatus(path, "stat", errno);
    if (S_ISDIR(info->st_mode)) {
      return IoError("%s: is a directory, a file was expected", path.c_str());
    }
    if (!S_ISREG(info->st_mode)) {
      return IoError("%s: not a regular file", path.c_str());
    }
    return OkStatus();
  }
};

FileSystem& SystemFiles() {
  static constinit PosixFileSystem files;
  return files;
}

std::string JoinPath(std::string_view folder, std::string_view name) {
  if (folder.empty() || name.starts_with('/')) return std::string(name);
  std::string path(folder);
  if (path.back() != '/') path.push_back('/');
  return path.append(name);
}

std::string ParentPath(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(path.substr(0, slash == 0 ? 1 : slash));
}

std::string BaseName(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

}  // namespace cellm::platform
