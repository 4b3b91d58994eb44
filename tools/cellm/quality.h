#ifndef CELLM_TOOLS_CELLM_QUALITY_H_
#define CELLM_TOOLS_CELLM_QUALITY_H_

// How well a model predicts a text, and how far it strays from another one.
//
// The ids of the whole text are cut into windows; each is evaluated from an empty state, and all
// its tokens but the first are predicted.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cellm/common.h"

namespace cellm::tools {

struct TextQuality {
  double perplexity = 0;
  uint64_t predicted = 0;
  uint64_t windows = 0;
  // Against the reference, where there is one.
  bool compared = false;
  double reference_perplexity = 0;
  double divergence = 0;  // mean over positions of KL(reference || model), in nats
  double same_top = 0;    // part of the positions at which both rank the same token first
};

// The ids of a text; by default with what the tokenizer adds, and special tokens are recognised.
// flags: CELLM_TOKENIZE_...
Result<std::vector<int32_t>> TokenizeText(const cellm_model* model, const std::string& text,
                                          uint32_t flags = CELLM_TOKENIZE_ADD_SPECIAL |
                                                           CELLM_TOKENIZE_PARSE_SPECIAL);

// Measures `engine` on the first `windows` (0: all) windows of `window` ids, against `reference`
// unless that is null. Both must have one vocabulary.
//   OutOfRange  fewer ids than a window    Internal  logits that are not finite
Result<TextQuality> MeasureText(cellm_engine* engine, cellm_engine* reference,
                                const std::vector<int32_t>& ids, size_t window, size_t windows,
                                const std::function<void(uint64_t done, uint64_t all)>& progress);

}  // namespace cellm::tools

#endif  // CELLM_TOOLS_CELLM_QUALITY_H_
