#ifndef CELLM_SRC_BASE_STATUS_H_
#define CELLM_SRC_BASE_STATUS_H_

// Errors as values.
//
// A function that can fail returns Status, or Result<T> when it also yields a value. The library
// is built without exceptions, so nothing else carries a failure. Codes have the same numbers as
// the C API's cellm_status, and those numbers are frozen.
//
// A message names the thing, the place, what was found and what was expected, e.g.
//   model.gguf: tensor "blk.3.attn_q.weight": data ends at byte 918528, file has 917504
// Code never parses a message.

#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace cellm {

enum class StatusCode : int {
  kOk = 0,
  kInvalidArgument = 1,  // the caller asked for something that makes no sense
  kNotFound = 2,         // a file, tensor, key or token that does not exist
  kUnsupported = 3,      // well-formed, but not something this build runs
  kCorrupt = 4,          // the bytes lie
  kOutOfMemory = 5,      // the allocator or the budget refused
  kIo = 6,               // the operating system refused
  kCancelled = 7,        // the caller said stop
  kBusy = 8,             // try again later
  kOutOfRange = 9,       // past a limit: context length, buffer size
  kInternal = 10,        // an invariant of ours is broken
};

// The code's name as users see it, e.g. "invalid argument". Never fails.
std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // Ok
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same error with "context: " in front of the message. Ok stays Ok.
  Status WithContext(std::string_view context) &&;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return Status(); }

// printf-style constructors, one a code. The format string is checked by the compiler.
#define CELLM_PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
Status InvalidArgument(const char* format, ...) CELLM_PRINTF_LIKE(1, 2);
Status NotFound(const char* format, ...) CELLM_PRINTF_LIKE(1, 2);
Status Unsupported(const char* format, ...) CELLM_PRINTF_LIKE(1, 2);
Status Corrupt(const char* format, ...) CELLM_PRINTF_LIKE(1, 2);
Status OutOfMemory(const char* format, ...) CELLM_PRINTF_LIKE(1, 2);
Status IoError(const char* format, ...) CELLM_PRINTF_LIKE(1, 2);
Status Cancelled(const char* format, ...) CELLM_PRINTF_LIKE(1, 2);
Status Busy(const char* format, ...) CELLM_PRINTF_LIKE(1, 2);
Status OutOfRange(const char* format, ...) CELLM_PRINTF_LIKE(1, 2);
Status Internal(const char* format, ...) CELLM_PRINTF_LIKE(1, 2);

// printf into a std::string.
std::string StrFormat(const char* format, ...) CELLM_PRINTF_LIKE(1, 2);

// A value or a non-Ok Status. Reading the value of a failed Result is a bug of ours and aborts.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : has_value_(true), value_(std::move(value)) {}  // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) {             // NOLINT: implicit by design
    CELLM_CHECK(!status_.ok(), "a Result was made from an Ok Status and has no value");
  }
  Result(const Result& other) : has_value_(other.has_value_), status_(other.status_) {
    if (has_value_) new (&value_) T(other.value_);
  }
  Result(Result&& other) noexcept
      : has_value_(other.has_value_), status_(std::move(other.status_)) {
    if (has_value_) new (&value_) T(std::move(other.value_));
  }
  Result& operator=(Result other) noexcept {
    if (has_value_) value_.~T();
    has_value_ = other.has_value_;
    status_ = std::move(other.status_);
    if (has_value_) new (&value_) T(std::move(other.value_));
    return *this;
  }
  ~Result() {
    if (has_value_) value_.~T();
  }

  bool ok() const { return has_value_; }
  const Status& status() const { return status_; }

  T& value() & {
    CELLM_CHECK(has_value_, status_.message().c_str());
    return value_;
  }
  const T& value() const& {
    CELLM_CHECK(has_value_, status_.message().c_str());
    return value_;
  }
  T&& value() && {
    CELLM_CHECK(has_value_, status_.message().c_str());
    return std::move(value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  bool has_value_ = false;
  Status status_;
  union {
    T value_;
  };
};

#define CELLM_CONCAT_INNER(a, b) a##b
#define CELLM_CONCAT(a, b) CELLM_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expression` (a Status) is not Ok.
#define CELLM_RETURN_IF_ERROR(expression)          \
  do {                                             \
    ::cellm::Status cellm_status_ = (expression);  \
    if (!cellm_status_.ok()) return cellm_status_; \
  } while (0)

// CELLM_ASSIGN_OR_RETURN(auto x, F()): x gets the value of the Result, or its Status is returned.
#define CELLM_ASSIGN_OR_RETURN(declaration, expression) \
  CELLM_ASSIGN_OR_RETURN_INNER(CELLM_CONCAT(cellm_result_, __LINE__), declaration, expression)
#define CELLM_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                         \
  if (!result.ok()) return result.status();                           \
  declaration = std::move(result).value()

}  // namespace cellm

#endif  // CELLM_SRC_BASE_STATUS_H_
