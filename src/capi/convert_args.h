#ifndef CELLM_SRC_CAPI_CONVERT_ARGS_H_
#define CELLM_SRC_CAPI_CONVERT_ARGS_H_

// The border between C callers and the library: errors out, sized structs in and out, buffers.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/status.h"
#include "cellm/cellm.h"

namespace cellm::capi {

// Most bytes of any text that a caller passes; far beyond any prompt.
inline constexpr size_t kMaxTextBytes = size_t{256} << 20;
// Struct sizes beyond this are not from any header of ours.
inline constexpr uint32_t kMaxStructBytes = 4096;

// What beside code and message goes into a cellm_error.
struct ErrorDetails {
  int32_t reason = CELLM_REASON_NONE;
  uint64_t needed = 0;
  uint64_t available = 0;
  std::string_view kind;
};

// Fills *error (null is fine) from a failed status and returns its number. CELLM_OK for Ok, which
// leaves *error alone.
cellm_status Report(const Status& status, cellm_error* error, const ErrorDetails& details = {});

// Of a failure that may be a lack of memory.
inline ErrorDetails MemoryDetails(const Status& status) {
  ErrorDetails details;
  if (status.code() == StatusCode::kOutOfMemory) details.reason = CELLM_REASON_MEMORY;
  return details;
}

// Reads a caller's options struct over the defaults (all zero). Null gives the defaults.
//   InvalidArgument  a struct_size that is no size     Unsupported  unknown fields that are not 0
template <typename T>
Status ReadSized(const T* given, const char* name, T* out) {
  std::memset(static_cast<void*>(out), 0, sizeof(T));
  out->struct_size = sizeof(T);
  if (given == nullptr) return OkStatus();
  const uint32_t size = given->struct_size;
  if (size < 2 * sizeof(uint32_t) || size > kMaxStructBytes) {
    return InvalidArgument("%s.struct_size is %u; it must be set by the _INIT macro", name, size);
  }
  const unsigned char* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) {
      return Unsupported("%s has a field at byte %zu that this library does not know", name, i);
    }
  }
  std::memcpy(static_cast<void*>(out), given, std::min<size_t>(size, sizeof(T)));
  out->struct_size = sizeof(T);
  return OkStatus();
}

// InvalidArgument: a caller's struct that results cannot be written to.
template <typename T>
Status CheckSized(const T* out, const char* name) {
  if (out == nullptr) return InvalidArgument("%s is null", name);
  if (out->struct_size < 2 * sizeof(uint32_t) || out->struct_size > kMaxStructBytes) {
    return InvalidArgument("%s.struct_size is %u; it must be set by the _INIT macro", name,
                           out->struct_size);
  }
  return OkStatus();
}

// Writes `value` to a caller's struct, as much of it as the caller's struct_size has room for.
template <typename T>
Status WriteSized(const T& value, const char* name, T* out) {
  CELLM_RETURN_IF_ERROR(CheckSized(out, name));
  const uint32_t size = out->struct_size;
  T copy = value;
  copy.struct_size = size;
  std::memcpy(static_cast<void*>(out), &copy, std::min<size_t>(size, sizeof(T)));
  return OkStatus();
}

// A pointer and length as a view. InvalidArgument: null with a length, or longer than
// kMaxTextBytes.
Status ReadText(const char* data, size_t bytes, const char* name, std::string_view* out);
inline Status ReadText(const cellm_text& text, const char* name, std::string_view* out) {
  return ReadText(text.data, text.bytes, name, out);
}

// Copies a result to a caller's buffer and reports the needed size in *needed.
//   OutOfRange       too small: nothing was written    InvalidArgument  null where not allowed
Status WriteBytes(std::string_view value, char* buffer, size_t capacity, size_t* needed);
Status WriteIds(const int32_t* ids, size_t count, int32_t* buffer, size_t capacity, size_t* needed);

}  // namespace cellm::capi

#endif  // CELLM_SRC_CAPI_CONVERT_ARGS_H_
