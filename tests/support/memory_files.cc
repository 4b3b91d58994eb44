#include "support/memory_files.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#ifdef CELLM_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace cellm::platform {

// The door that file.h leaves open for tests: a mapping over pages that the test made.
class FileMappingForTest {
 public:
  static FileMapping Make(const uint8_t* data, size_t size, const std::string& path) {
    FileMapping mapping;
    mapping.data_ = data;
    mapping.size_ = size;
    mapping.path_ = path;
    return mapping;
  }
};

}  // namespace cellm::platform

namespace cellm::testing {
namespace {

class MemoryWriter final : public platform::FileWriter {
 public:
  MemoryWriter(MemoryFiles* owner, std::string path)
      : owner_(owner), path_(std::move(path)), draft_path_(path_ + ".draft") {}
  Status Write(std::span<const uint8_t> bytes) override {
    text_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return OkStatus();
  }
  Status WriteAt(uint64_t offset, std::span<const uint8_t> bytes) override {
    text_.replace(static_cast<size_t>(offset), bytes.size(),
                  reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return OkStatus();
  }
  uint64_t position() const override { return text_.size(); }
  const std::string& draft_path() const override { return draft_path_; }
  Status Commit() override {
    owner_->files[path_] = text_;
    return OkStatus();
  }

 private:
  MemoryFiles* owner_;
  std::string path_;
  std::string draft_path_;
  std::string text_;
};

class FaultyWriter final : public platform::FileWriter {
 public:
  FaultyWriter(FaultyFiles* owner, std::unique_ptr<platform::FileWriter> inner)
      : owner_(owner), inner_(std::move(inner)) {}
  Status Write(std::span<const uint8_t> bytes) override {
    if (!owner_->Fails(false)) return inner_->Write(bytes);
    // A full disk takes what still fits.
    (void)inner_->Write(bytes.first(bytes.size() / 2)).ok();
    return IoError("injected: no space left on device");
  }
  Status WriteAt(uint64_t offset, std::span<const uint8_t> bytes) override {
    if (owner_->Fails(false)) return IoError("injected: no space left on device");
    return inner_->WriteAt(offset, bytes);
  }
  uint64_t position() const override { return inner_->position(); }
  const std::string& draft_path() const override { return inner_->draft_path(); }
  Status Commit() override {
    if (owner_->Fails(false)) return IoError("injected: no space left on device");
    return inner_->Commit();
  }

 private:
  FaultyFiles* owner_;
  std::unique_ptr<platform::FileWriter> inner_;
};

}  // namespace

platform::FileMapping MapBytes(std::string_view bytes, const std::string& path,
                               [[maybe_unused]] bool poison_tail) {
  if (bytes.empty()) return platform::FileMappingForTest::Make(nullptr, 0, path);
  // A file in memory, mapped as the real one is: pages that are released come back when touched.
  const int file = ::memfd_create("cellm-test", MFD_CLOEXEC);
  if (file < 0 || ::write(file, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    std::abort();
  }
  void* memory = ::mmap(nullptr, bytes.size(), PROT_READ, MAP_PRIVATE, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) std::abort();
  const uint8_t* data = static_cast<const uint8_t*>(memory);
#ifdef CELLM_ASAN
  const size_t pages = (bytes.size() + 4095) / 4096 * 4096;
  if (poison_tail) {
    // What an earlier mapping of these pages left is lifted first.
    __asan_unpoison_memory_region(data, pages);
    __asan_poison_memory_region(data + bytes.size(), pages - bytes.size());
  }
#endif
  return platform::FileMappingForTest::Make(data, bytes.size(), path);
}

Result<platform::FileMapping> MemoryFiles::Map(const std::string& path) {
  const auto found = files.find(path);
  if (found == files.end()) return NotFound("%s: no such file or directory", path.c_str());
  return MapBytes(found->second, path, poison_tails);
}

Result<std::string> MemoryFiles::Read(const std::string& path, uint64_t max_bytes) {
  const auto found = files.find(path);
  if (found == files.end()) return NotFound("%s: no such file or directory", path.c_str());
  if (found->second.size() > max_bytes) return OutOfRange("%s: too large", path.c_str());
  return found->second;
}

Result<std::unique_ptr<platform::FileWriter>> MemoryFiles::Create(const std::string& path) {
  return std::unique_ptr<platform::FileWriter>(new MemoryWriter(this, path));
}

bool MemoryFiles::IsFile(const std::string& path) { return files.count(path) != 0; }

bool MemoryFiles::IsDirectory(const std::string& path) {
  const auto found = files.lower_bound(path + "/");
  return found != files.end() && found->first.starts_with(path + "/");
}

Result<std::vector<std::string>> MemoryFiles::List(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& [name, text] : files) {
    if (name.starts_with(path + "/")) names.push_back(name.substr(path.size() + 1));
  }
  return names;
}

bool FaultyFiles::Fails(bool reading) {
  if (reading && fault_ == Fault::kDiskFull) return false;
  if (!reading && fault_ == Fault::kShortFile) return false;
  if (countdown_-- != 0) return false;
  happened_ = true;
  return true;
}

Result<platform::FileMapping> FaultyFiles::Map(const std::string& path) {
  if (!Fails(true)) return inner_.Map(path);
  if (fault_ == Fault::kError) return IoError("%s: injected: cannot map", path.c_str());
  CELLM_ASSIGN_OR_RETURN(const platform::FileMapping whole, inner_.Map(path));
  const std::span<const uint8_t> bytes = whole.bytes();
  return MapBytes({reinterpret_cast<const char*>(bytes.data()), bytes.size() / 2}, path);
}

Result<std::string> FaultyFiles::Read(const std::string& path, uint64_t max_bytes) {
  if (!Fails(true)) return inner_.Read(path, max_bytes);
  if (fault_ == Fault::kError) return IoError("%s: injected: cannot read", path.c_str());
  CELLM_ASSIGN_OR_RETURN(std::string text, inner_.Read(path, max_bytes));
  text.resize(text.size() / 2);
  return text;
}

Result<std::unique_ptr<platform::FileWriter>> FaultyFiles::Create(const std::string& path) {
  if (fault_ == Fault::kError && Fails(false)) {
    return IoError("%s: injected: cannot create", path.c_str());
  }
  CELLM_ASSIGN_OR_RETURN(auto writer, inner_.Create(path));
  return std::unique_ptr<platform::FileWriter>(new FaultyWriter(this, std::move(writer)));
}

Result<std::vector<std::string>> FaultyFiles::List(const std::string& path) {
  if (fault_ == Fault::kError && Fails(true)) {
    return IoError("%s: injected: cannot list", path.c_str());
  }
  return inner_.List(path);
}

}  // namespace cellm::testing
