#include "capi/convert_args.h"

#include "base/utf8.h"

namespace cellm::capi {
namespace {

static_assert(CELLM_OK == static_cast<int>(StatusCode::kOk));
static_assert(CELLM_INVALID_ARGUMENT == static_cast<int>(StatusCode::kInvalidArgument));
static_assert(CELLM_NOT_FOUND == static_cast<int>(StatusCode::kNotFound));
static_assert(CELLM_UNSUPPORTED == static_cast<int>(StatusCode::kUnsupported));
static_assert(CELLM_CORRUPT == static_cast<int>(StatusCode::kCorrupt));
static_assert(CELLM_OUT_OF_MEMORY == static_cast<int>(StatusCode::kOutOfMemory));
static_assert(CELLM_IO == static_cast<int>(StatusCode::kIo));
static_assert(CELLM_CANCELLED == static_cast<int>(StatusCode::kCancelled));
static_assert(CELLM_BUSY == static_cast<int>(StatusCode::kBusy));
static_assert(CELLM_OUT_OF_RANGE == static_cast<int>(StatusCode::kOutOfRange));
static_assert(CELLM_INTERNAL == static_cast<int>(StatusCode::kInternal));

// Copies what fits, whole characters only, and ends it with NUL. NUL bytes inside become spaces.
void CopyText(std::string_view text, char* out, size_t capacity) {
  size_t used = 0;
  while (!text.empty()) {
    const Utf8Char character = DecodeUtf8(text);
    if (used + character.byte_count + 1 > capacity) break;
    for (uint32_t i = 0; i < character.byte_count; ++i) {
      out[used++] = text[i] == '\0' ? ' ' : text[i];
    }
    text.remove_prefix(character.byte_count);
  }
  out[used] = '\0';
}

}  // namespace

cellm_status Report(const Status& status, cellm_error* error, const ErrorDetails& details) {
  const cellm_status code = static_cast<cellm_status>(status.code());
  if (status.ok() || error == nullptr) return code;
  const uint32_t size = error->struct_size;
  if (size < 2 * sizeof(uint32_t) || size > kMaxStructBytes) return code;
  cellm_error filled = CELLM_ERROR_INIT;
  filled.struct_size = size;
  filled.status = code;
  filled.reason = details.reason;
  filled.needed = details.needed;
  filled.available = details.available;
  CopyText(details.kind, filled.kind, sizeof(filled.kind));
  CopyText(status.message(), filled.message, sizeof(filled.message));
  std::memcpy(error, &filled, std::min<size_t>(size, sizeof(filled)));
  return code;
}

Status ReadText(const char* data, size_t bytes, const char* name, std::string_view* out) {
  if (data == nullptr && bytes != 0) {
    return InvalidArgument("%s is null but has %zu bytes", name, bytes);
  }
  if (bytes > kMaxTextBytes) {
    return InvalidArgument("%s has %zu bytes; at most %zu are taken", name, bytes, kMaxTextBytes);
  }
  *out = data == nullptr ? std::string_view() : std::string_view(data, bytes);
  return OkStatus();
}

namespace {

template <typename T>
Status WriteItems(const T* items, size_t count, T* buffer, size_t capacity, size_t* needed,
                  const char* unit) {
  if (needed == nullptr) return InvalidArgument("the pointer for the size of the result is null");
  if (buffer == nullptr && capacity != 0) return InvalidArgument("the buffer is null");
  *needed = count;
  if (count > capacity) {
    return OutOfRange("the buffer has room for %zu %s, the result has %zu", capacity, unit, count);
  }
  if (count > 0) std::memcpy(buffer, items, count * sizeof(T));
  return OkStatus();
}

}  // namespace

Status WriteBytes(std::string_view value, char* buffer, size_t capacity, size_t* needed) {
  return WriteItems(value.data(), value.size(), buffer, capacity, needed, "bytes");
}

Status WriteIds(const int32_t* ids, size_t count, int32_t* buffer, size_t capacity,
                size_t* needed) {
  return WriteItems(ids, count, buffer, capacity, needed, "ids");
}

}  // namespace cellm::capi
