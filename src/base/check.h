#ifndef CELLM_SRC_BASE_CHECK_H_
#define CELLM_SRC_BASE_CHECK_H_

// Checks of our own invariants. Never reachable by file bytes, requests or callers' arguments:
// those become a Status.

namespace cellm {

// Prints place and message to stderr and aborts: the one place where the library writes by itself.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const char* message);

}  // namespace cellm

// Always on. `message` says what would be wrong.
#define CELLM_CHECK(condition, message)                                              \
  do {                                                                               \
    if (!(condition)) ::cellm::CheckFailed(__FILE__, __LINE__, #condition, message); \
  } while (0)

// Only with CELLM_DEBUG_CHECKS: for checks that cost.
#if defined(CELLM_DEBUG_CHECKS) && CELLM_DEBUG_CHECKS
#define CELLM_DCHECK(condition, message) CELLM_CHECK(condition, message)
#else
#define CELLM_DCHECK(condition, message) \
  do {                                   \
  } while (0)
#endif

#endif  // CELLM_SRC_BASE_CHECK_H_
