#ifndef CELLM_TESTS_SUPPORT_HEAP_COUNT_H_
#define CELLM_TESTS_SUPPORT_HEAP_COUNT_H_

#include <cstdint>

namespace cellm::testing {

// Calls of operator new so far in this process. Programs that use this get counting versions of
// the global operators.
int64_t HeapAllocations();

}  // namespace cellm::testing

#endif  // CELLM_TESTS_SUPPORT_HEAP_COUNT_H_
