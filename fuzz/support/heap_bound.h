#ifndef CELLM_FUZZ_SUPPORT_HEAP_BOUND_H_
#define CELLM_FUZZ_SUPPORT_HEAP_BOUND_H_

// What a reader may take from the heap while it looks at bytes that lie: as much as there are bytes
// at once, a small multiple of them in all, and a fixed amount.

#include <cstddef>
#include <cstdint>

namespace cellm::fuzz {

// Between construction and destruction: no single allocation above input_bytes + kFixed, and never
// more than kMultiple * input_bytes + kFixed beyond what was held at the start. Counts operator new
// in all threads, of which a fuzz target has one. A breach ends the program. One at a time.
class HeapBound {
 public:
  static constexpr size_t kFixed = size_t{1} << 20;
  static constexpr size_t kMultiple = 64;

  explicit HeapBound(size_t input_bytes);
  ~HeapBound();
  HeapBound(const HeapBound&) = delete;
  HeapBound& operator=(const HeapBound&) = delete;
};

}  // namespace cellm::fuzz

#endif  // CELLM_FUZZ_SUPPORT_HEAP_BOUND_H_
