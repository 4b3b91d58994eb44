#ifndef CELLM_SRC_ENGINE_JOURNAL_H_
#define CELLM_SRC_ENGINE_JOURNAL_H_

// The journal of one session: a file to which everything that was acknowledged is appended before
// it is acknowledged, so that a process that is killed at any instruction loses nothing of it. All
// numbers little-endian.
//
//   offset  size  what
//   0       8     "CELLMJNL"
//   8       4     version: 1
//   12      4     0
//   16      8     hash of the model (ModelHash)
//   24      8     XXH3-64 of the 24 bytes before
//   32            records:
//                   4   n: bytes of the payload
//                   4   kind
//                   8   XXH3-64 of the hash before it (of the record before, of the header for the
//                       first), n, kind and the payload
//                   n   payload
//
// The hashes form a chain, so a record that was cut short, changed, moved or left over from another
// file ends the journal: what comes before it is kept, it and what follows are cut off. They find
// accidents, not forgers: what a payload says is checked like any other input.
//
// This file knows nothing of what records mean (capi/session_journal.h does).

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "platform/random_file.h"

namespace cellm {

struct JournalRecord {
  uint32_t kind = 0;
  std::span<const uint8_t> payload;
};

struct JournalImage {
  uint64_t model_hash = 0;
  std::vector<JournalRecord> records;  // the longest good beginning; views of the file's bytes
  uint64_t good_bytes = 0;             // of the file
  uint64_t last_hash = 0;
};

// Corrupt: not a journal, or its header is damaged. Unsupported: a newer version. Damage after the
// header is no error: `records` ends before it. `name` is for messages.
Result<JournalImage> ReadJournal(std::span<const uint8_t> file, std::string_view name);

// Stage() decides the order and is quick; Flush() does the writing, outside of the caller's locks.
// Any thread: several may stage and flush at a time, and each Flush() returns when what its thread
// staged before is in the file, whoever wrote it.
class Journal {
 public:
  // A new journal at `path`, which must not exist: the file is made by the first Flush().
  Journal(std::string path, uint64_t model_hash);
  // Goes on after the good part of an existing file, which must have been cut there.
  Journal(std::string path, std::unique_ptr<platform::RandomFile> file, const JournalImage& image);

  // Puts a record behind all others.
  void Stage(uint32_t kind, std::string_view payload);
  // Everything staged so far is given to the operating system: it survives this process. With
  // `sync` it is on the disk, and survives a power cut. Io: after the first failure nothing more is
  // written, and every Flush() says so.
  Status Flush(bool sync);
  bool failed() const;

  const std::string& path() const { return path_; }
  // Deletes the file, if there is one. Nothing is written afterwards. Io.
  Status Remove();

 private:
  Status Write(const std::string& bytes, bool sync);

  const std::string path_;
  // Guards what follows; held shortly, never during I/O.
  mutable std::mutex staged_mutex_;
  std::string staged_;
  uint64_t hash_ = 0;  // of the last staged record
  Status failure_;
  // The file's own lock, held while it is written. Taken before staged_mutex_.
  std::mutex file_mutex_;
  std::unique_ptr<platform::RandomFile> file_;  // null: not made yet, or removed
  uint64_t end_ = 0;
  bool unsynced_ = false;
  bool removed_ = false;
};

// ---- payloads: numbers and byte strings, one after the other ----

class PayloadWriter {
 public:
  template <typename T>
  void Put(T value) {
    static_assert(std::is_arithmetic_v<T>);
    char bytes[sizeof(T)];
    StoreLe(bytes, value);
    bytes_.append(bytes, sizeof(T));
  }
  void PutBytes(std::string_view bytes) {
    Put(static_cast<uint64_t>(bytes.size()));
    bytes_.append(bytes);
  }
  void PutIds(std::span<const int32_t> ids) {
    PutBytes({reinterpret_cast<const char*>(ids.data()), ids.size_bytes()});
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Reading past the end gives zeros and makes ok() false for good.
class PayloadReader {
 public:
  explicit PayloadReader(std::span<const uint8_t> payload) : left_(payload) {}
  template <typename T>
  T Get() {
    static_assert(std::is_arithmetic_v<T>);
    if (left_.size() < sizeof(T)) {
      ok_ = false;
      return T{};
    }
    const T value = LoadLe<T>(left_.data());
    left_ = left_.subspan(sizeof(T));
    return value;
  }
  // A view of the payload.
  std::string_view GetBytes() {
    const uint64_t count = Get<uint64_t>();
    if (count > left_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view bytes(reinterpret_cast<const char*>(left_.data()), count);
    left_ = left_.subspan(count);
    return bytes;
  }
  std::vector<int32_t> GetIds() {
    const std::string_view bytes = GetBytes();
    if (bytes.size() % sizeof(int32_t) != 0) ok_ = false;
    std::vector<int32_t> ids(bytes.size() / sizeof(int32_t));
    if (!ids.empty()) std::memcpy(ids.data(), bytes.data(), ids.size() * sizeof(int32_t));
    return ids;
  }
  bool ok() const { return ok_; }
  // Everything was read, and nothing beyond.
  bool done() const { return ok_ && left_.empty(); }

 private:
  std::span<const uint8_t> left_;
  bool ok_ = true;
};

}  // namespace cellm

#endif  // CELLM_SRC_ENGINE_JOURNAL_H_
