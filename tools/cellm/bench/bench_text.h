#ifndef CELLM_TOOLS_CELLM_BENCH_BENCH_TEXT_H_
#define CELLM_TOOLS_CELLM_BENCH_BENCH_TEXT_H_

// Prose to measure with: repeated tokens would flatter caches and, in mixtures of experts, the
// choice of experts.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "cellm/cellm.h"

namespace cellm::tools {

// At least `bytes` of text: the sentences of a short passage, in another order every time they are
// used up. The same for the same number.
std::string BenchText(size_t bytes);

// At least `needed` ids of `text` (empty: of BenchText), drawn at random past its end and where the
// model has no tokenizer.
Result<std::vector<int32_t>> BenchIds(const cellm_model* model, const std::string& text,
                                      int64_t needed);

}  // namespace cellm::tools

#endif  // CELLM_TOOLS_CELLM_BENCH_BENCH_TEXT_H_
