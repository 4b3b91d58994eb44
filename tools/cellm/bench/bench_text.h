#ifndef CELLM_TOOLS_CELLM_BENCH_BENCH_TEXT_H_
#define CELLM_TOOLS_CELLM_BENCH_BENCH_TEXT_H_

// Prose to measure with: repeated tokens would flatter caches and, in mixtures of experts, the
// choice of experts.

#include <cstdint>
#include <string>

namespace cellm::tools {

// At least `bytes` of text: the sentences of a short passage, in another order every time they are
// used up. The same for the same number.
std::string BenchText(size_t bytes);

}  // namespace cellm::tools

#endif  // CELLM_TOOLS_CELLM_BENCH_BENCH_TEXT_H_
