#include "engine/journal.h"

#include <cstring>
#include <utility>

#include "base/hash.h"

namespace cellm {
namespace {

constexpr char kMagic[8] = {'C', 'E', 'L', 'L', 'M', 'J', 'N', 'L'};
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = 32;
constexpr size_t kRecordHeaderBytes = 16;

std::span<const uint8_t> BytesOf(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// The hash of a record whose first eight bytes (length and kind) and payload these are.
uint64_t HashRecord(uint64_t before, std::span<const uint8_t> head,
                    std::span<const uint8_t> payload) {
  uint8_t chained[8];
  StoreLe(chained, before);
  Xxh3Stream hash;
  hash.Update(chained);
  hash.Update(head);
  hash.Update(payload);
  return hash.Digest();
}

}  // namespace

Result<JournalImage> ReadJournal(std::span<const uint8_t> file, std::string_view name) {
  const std::string path(name);
  if (file.size() < kHeaderBytes || std::memcmp(file.data(), kMagic, sizeof(kMagic)) != 0) {
    return Corrupt("%s: not a journal, or one that was never begun", path.c_str());
  }
  JournalImage image;
  image.last_hash = HashXxh3(file.first(24));
  const uint32_t version = LoadLe32(file.data() + 8);
  if (image.last_hash != LoadLe64(file.data() + 24)) {
    return Corrupt("%s: the header of the journal is damaged", path.c_str());
  }
  if (version != kVersion) {
    return Unsupported("%s: a journal of version %u; this build reads version %u", path.c_str(),
                       version, kVersion);
  }
  image.model_hash = LoadLe64(file.data() + 16);
  image.good_bytes = kHeaderBytes;
  for (;;) {
    const std::span<const uint8_t> rest = file.subspan(image.good_bytes);
    if (rest.size() < kRecordHeaderBytes) return image;
    const uint32_t bytes = LoadLe32(rest.data());
    if (bytes > rest.size() - kRecordHeaderBytes) return image;
    const std::span<const uint8_t> payload = rest.subspan(kRecordHeaderBytes, bytes);
    const uint64_t hash = HashRecord(image.last_hash, rest.first(8), payload);
    if (hash != LoadLe64(rest.data() + 8)) return image;
    image.records.push_back({LoadLe32(rest.data() + 4), payload});
    image.last_hash = hash;
    image.good_bytes += kRecordHeaderBytes + bytes;
  }
}

Journal::Journal(std::string path, uint64_t model_hash) : path_(std::move(path)) {
  uint8_t header[kHeaderBytes] = {};
  std::memcpy(header, kMagic, sizeof(kMagic));
  StoreLe(header + 8, kVersion);
  StoreLe(header + 16, model_hash);
  hash_ = HashXxh3(std::span<const uint8_t>(header).first(24));
  StoreLe(header + 24, hash_);
  staged_.assign(reinterpret_cast<const char*>(header), sizeof(header));
}

Journal::Journal(std::string path, std::unique_ptr<platform::RandomFile> file,
                 const JournalImage& image)
    : path_(std::move(path)),
      hash_(image.last_hash),
      file_(std::move(file)),
      end_(image.good_bytes) {}

void Journal::Stage(uint32_t kind, std::string_view payload) {
  const std::lock_guard<std::mutex> lock(staged_mutex_);
  uint8_t head[kRecordHeaderBytes];
  StoreLe(head, static_cast<uint32_t>(payload.size()));
  StoreLe(head + 4, kind);
  hash_ = HashRecord(hash_, std::span<const uint8_t>(head).first(8), BytesOf(payload));
  StoreLe(head + 8, hash_);
  staged_.append(reinterpret_cast<const char*>(head), sizeof(head));
  staged_.append(payload);
}

Status Journal::Flush(bool sync) {
  const std::lock_guard<std::mutex> file_lock(file_mutex_);
  std::string bytes;
  {
    const std::lock_guard<std::mutex> lock(staged_mutex_);
    if (!failure_.ok()) return failure_;
    bytes.swap(staged_);
  }
  const Status status = Write(bytes, sync);
  if (!status.ok()) {
    const std::lock_guard<std::mutex> lock(staged_mutex_);
    failure_ = status;
  }
  return status;
}

Status Journal::Write(const std::string& bytes, bool sync) {
  if (removed_) return OkStatus();
  if (file_ == nullptr) {
    CELLM_ASSIGN_OR_RETURN(file_, platform::OpenRandomFile(path_, platform::OpenMode::kCreate));
  }
  if (!bytes.empty()) {
    CELLM_RETURN_IF_ERROR(file_->WriteAt(end_, BytesOf(bytes)));
    end_ += bytes.size();
    unsynced_ = true;
  }
  if (sync && unsynced_) {
    CELLM_RETURN_IF_ERROR(file_->Sync());
    unsynced_ = false;
  }
  return OkStatus();
}

bool Journal::failed() const {
  const std::lock_guard<std::mutex> lock(staged_mutex_);
  return !failure_.ok();
}

Status Journal::Remove() {
  const std::lock_guard<std::mutex> file_lock(file_mutex_);
  removed_ = true;
  if (file_ == nullptr) return OkStatus();
  const Status status = platform::RemoveFile(path_);  // before the lock on it goes
  file_.reset();
  return status;
}

}  // namespace cellm
