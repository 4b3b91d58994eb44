#ifndef CELLM_SRC_BASE_LOG_H_
#define CELLM_SRC_BASE_LOG_H_

#include <string_view>

namespace cellm {

enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarning = 2 };

// Where the library's few lines go; silent by default. A plain function pointer, so that C callers
// can pass theirs through. Called on the thread that has something to say, never under a lock and
// never from a kernel. User text and tokens appear at kDebug only.
struct LogSink {
  void (*write)(void* user, LogLevel level, std::string_view component,
                std::string_view text) = nullptr;
  void* user = nullptr;

  void Write(LogLevel level, std::string_view component, std::string_view text) const {
    if (write != nullptr) write(user, level, component, text);
  }
};

}  // namespace cellm

#endif  // CELLM_SRC_BASE_LOG_H_
