#ifndef CELLM_SRC_JINJA_OPTIONS_H_
#define CELLM_SRC_JINJA_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <optional>

namespace cellm::jinja {

// What one render may use. Reaching a bound is an error of kind kLimit (or RecursionError) that
// names the field, never a crash or a hang. The defaults leave real chats of a million characters
// a factor of ten.
struct Limits {
  // Evaluated nodes, loop rounds, and bytes or items that built-ins touch (in units of 64 and 8).
  int64_t max_steps = 20'000'000;
  // Macros, call blocks and recursive loops inside each other. The reference gives up at about 200.
  int max_call_depth = 100;
  // Nested evaluations, which is what the C++ stack pays for: about 1 kB each from gcc, 2 from
  // clang.
  int max_eval_depth = 450;
  size_t max_output_bytes = size_t{64} << 20;
  size_t max_string_bytes = size_t{64} << 20;   // of any one string on the way
  size_t max_memory_bytes = size_t{256} << 20;  // of all values alive at once
  size_t max_integer_bits = 16384;
};

// A moment as a calendar shows it, without time zone.
struct CivilTime {
  int year = 1970;
  int month = 1;  // 1..12
  int day = 1;    // 1..31
  int hour = 0;
  int minute = 0;
  int second = 0;
};

struct RenderOptions {
  // What strftime_now() formats. Without it a template that asks for the time is an error.
  std::optional<CivilTime> now;
  // Of the filter "random", so that a render can be repeated.
  uint64_t random_seed = 0;
  Limits limits;
};

}  // namespace cellm::jinja

#endif  // CELLM_SRC_JINJA_OPTIONS_H_
