#include "format/pytorch_zip.h"

#include <algorithm>
#include <cinttypes>
#include <string>

#include "base/bytes.h"
#include "base/checked.h"

namespace cellm::format {
namespace {

constexpr uint32_t kLocalMagic = 0x04034B50;
constexpr uint32_t kCentralMagic = 0x02014B50;
constexpr uint32_t kEndMagic = 0x06054B50;
constexpr uint32_t kEnd64Magic = 0x06064B50;
constexpr uint32_t kLocator64Magic = 0x07064B50;
constexpr size_t kLocalBytes = 30;
constexpr size_t kCentralBytes = 46;
constexpr size_t kEndBytes = 22;
constexpr size_t kEnd64Bytes = 56;
constexpr size_t kLocator64Bytes = 20;
constexpr size_t kMaxComment = 65535;

struct Directory {
  uint64_t entries = 0;
  uint64_t bytes = 0;
  uint64_t offset = 0;
};

Status Damaged(std::string_view file_name, const char* what) {
  return Corrupt("%.*s: as a ZIP archive: %s", static_cast<int>(file_name.size()), file_name.data(),
                 what);
}

// The record at the very end, before a comment of any length.
Result<Directory> FindDirectory(std::span<const uint8_t> bytes, std::string_view file_name) {
  if (bytes.size() < kEndBytes) return Damaged(file_name, "too short");
  const size_t last = bytes.size() - kEndBytes;
  const size_t first = last > kMaxComment ? last - kMaxComment : 0;
  for (size_t at = last + 1; at-- > first;) {
    const uint8_t* end = bytes.data() + at;
    if (LoadLe32(end) != kEndMagic || LoadLe16(end + 20) != last - at) continue;
    if (LoadLe16(end + 4) != 0 || LoadLe16(end + 6) != 0) {
      return Unsupported("%.*s: a ZIP archive in several volumes",
                         static_cast<int>(file_name.size()), file_name.data());
    }
    Directory directory{LoadLe16(end + 10), LoadLe32(end + 12), LoadLe32(end + 16)};
    if (directory.entries != 0xFFFF && directory.bytes != 0xFFFFFFFF &&
        directory.offset != 0xFFFFFFFF) {
      return directory;
    }
    if (at < kLocator64Bytes || LoadLe32(end - kLocator64Bytes) != kLocator64Magic) {
      return Damaged(file_name, "64-bit sizes without their record");
    }
    const uint64_t record = LoadLe64(end - kLocator64Bytes + 8);
    if (!RangeFits(record, kEnd64Bytes, bytes.size()) ||
        LoadLe32(bytes.data() + record) != kEnd64Magic) {
      return Damaged(file_name, "64-bit sizes without their record");
    }
    const uint8_t* end64 = bytes.data() + record;
    return Directory{LoadLe64(end64 + 32), LoadLe64(end64 + 40), LoadLe64(end64 + 48)};
  }
  return Damaged(file_name, "no directory at its end");
}

// Sizes and offset that do not fit in 32 bits lie in the extra field of number 1, in this order.
Status TakeWide(std::span<const uint8_t> extra, std::string_view file_name, uint64_t* size,
                uint64_t* stored, uint64_t* offset) {
  uint64_t* const wide[] = {size, stored, offset};
  if (std::none_of(std::begin(wide), std::end(wide),
                   [](const uint64_t* value) { return *value == 0xFFFFFFFF; })) {
    return OkStatus();
  }
  while (extra.size() >= 4) {
    const size_t length = LoadLe16(extra.data() + 2);
    if (length > extra.size() - 4) break;
    std::span<const uint8_t> field = extra.subspan(4, length);
    if (LoadLe16(extra.data()) == 1) {
      for (uint64_t* const value : wide) {
        if (*value != 0xFFFFFFFF) continue;
        if (field.size() < 8) return Damaged(file_name, "a 64-bit size is missing");
        *value = LoadLe64(field.data());
        field = field.subspan(8);
      }
      return OkStatus();
    }
    extra = extra.subspan(4 + length);
  }
  return Damaged(file_name, "a 64-bit size is missing");
}

}  // namespace

Result<std::vector<ZipEntry>> ReadZip(std::span<const uint8_t> bytes, std::string_view file_name) {
  CELLM_ASSIGN_OR_RETURN(const Directory directory, FindDirectory(bytes, file_name));
  if (!RangeFits(directory.offset, directory.bytes, bytes.size()) ||
      directory.entries > directory.bytes / kCentralBytes) {
    return Damaged(file_name, "a directory outside the file");
  }
  std::span<const uint8_t> records =
      bytes.subspan(static_cast<size_t>(directory.offset), static_cast<size_t>(directory.bytes));
  std::vector<ZipEntry> entries;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    if (records.size() < kCentralBytes || LoadLe32(records.data()) != kCentralMagic) {
      return Damaged(file_name, "a directory record is cut short");
    }
    const uint8_t* record = records.data();
    const size_t name_bytes = LoadLe16(record + 28);
    const size_t extra_bytes = LoadLe16(record + 30);
    const size_t record_bytes = kCentralBytes + name_bytes + extra_bytes + LoadLe16(record + 32);
    if (record_bytes > records.size()) return Damaged(file_name, "a directory record is cut short");
    ZipEntry entry;
    entry.name = {reinterpret_cast<const char*>(record + kCentralBytes), name_bytes};
    uint64_t stored = LoadLe32(record + 20);
    uint64_t size = LoadLe32(record + 24);
    uint64_t local = LoadLe32(record + 42);
    CELLM_RETURN_IF_ERROR(TakeWide(records.subspan(kCentralBytes + name_bytes, extra_bytes),
                                   file_name, &size, &stored, &local));
    const uint16_t flags = LoadLe16(record + 8);
    if (LoadLe16(record + 10) != 0 || (flags & 1) != 0 || size != stored) {
      return Unsupported("%.*s: the entry \"%.*s\" is compressed or encrypted",
                         static_cast<int>(file_name.size()), file_name.data(),
                         static_cast<int>(std::min<size_t>(entry.name.size(), 200)),
                         entry.name.data());
    }
    // The data follow a second header, whose own name and extra field may have other lengths.
    if (!RangeFits(local, kLocalBytes, bytes.size()) ||
        LoadLe32(bytes.data() + local) != kLocalMagic) {
      return Damaged(file_name, "an entry outside the file");
    }
    entry.offset = local + kLocalBytes + LoadLe16(bytes.data() + local + 26) +
                   LoadLe16(bytes.data() + local + 28);
    if (!RangeFits(entry.offset, size, bytes.size())) {
      return Damaged(file_name, "an entry outside the file");
    }
    entry.data = bytes.subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(size));
    entries.push_back(entry);
    records = records.subspan(record_bytes);
  }
  return entries;
}

}  // namespace cellm::format
