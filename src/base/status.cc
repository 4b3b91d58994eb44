#include "base/status.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace cellm {

void CheckFailed(const char* file, int line, const char* condition, const char* message) {
  std::fprintf(stderr, "%s:%d: check failed: %s: %s\n", file, line, condition, message);
  std::abort();
}

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kNotFound:
      return "not found";
    case StatusCode::kUnsupported:
      return "unsupported";
    case StatusCode::kCorrupt:
      return "corrupt";
    case StatusCode::kOutOfMemory:
      return "out of memory";
    case StatusCode::kIo:
      return "io";
    case StatusCode::kCancelled:
      return "cancelled";
    case StatusCode::kBusy:
      return "busy";
    case StatusCode::kOutOfRange:
      return "out of range";
    case StatusCode::kInternal:
      return "internal";
  }
  return "unknown";
}

Status Status::WithContext(std::string_view context) && {
  if (!ok()) message_.insert(0, std::string(context) + ": ");
  return std::move(*this);
}

namespace {

std::string FormatV(const char* format, va_list args) {
  va_list copy;
  va_copy(copy, args);
  const int length = std::vsnprintf(nullptr, 0, format, copy);
  va_end(copy);
  if (length <= 0) return std::string();
  std::string text(static_cast<size_t>(length), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, args);
  return text;
}

}  // namespace

std::string StrFormat(const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::string text = FormatV(format, args);
  va_end(args);
  return text;
}

#define CELLM_DEFINE_STATUS(name, status_code)                     \
  Status name(const char* format, ...) {                           \
    va_list args;                                                  \
    va_start(args, format);                                        \
    Status status(StatusCode::status_code, FormatV(format, args)); \
    va_end(args);                                                  \
    return status;                                                 \
  }
CELLM_DEFINE_STATUS(InvalidArgument, kInvalidArgument)
CELLM_DEFINE_STATUS(NotFound, kNotFound)
CELLM_DEFINE_STATUS(Unsupported, kUnsupported)
CELLM_DEFINE_STATUS(Corrupt, kCorrupt)
CELLM_DEFINE_STATUS(OutOfMemory, kOutOfMemory)
CELLM_DEFINE_STATUS(IoError, kIo)
CELLM_DEFINE_STATUS(Cancelled, kCancelled)
CELLM_DEFINE_STATUS(Busy, kBusy)
CELLM_DEFINE_STATUS(OutOfRange, kOutOfRange)
CELLM_DEFINE_STATUS(Internal, kInternal)
#undef CELLM_DEFINE_STATUS

}  // namespace cellm
