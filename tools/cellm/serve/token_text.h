#ifndef CELLM_TOOLS_CELLM_SERVE_TOKEN_TEXT_H_
#define CELLM_TOOLS_CELLM_SERVE_TOKEN_TEXT_H_

// Log-probabilities and single tokens in the shapes of the OpenAI API.

#include <string>
#include <string_view>

#include "cellm/cellm.h"
#include "cellm/serve/runner.h"

namespace cellm::tools::serve {

// The bytes of one token by itself, special tokens included.
std::string TokenBytes(const cellm_model* model, int32_t id);
// {"token", "logprob", "bytes", "top_logprobs": [...]}, an entry of choices[].logprobs.content.
std::string LogprobEntry(const cellm_model* model, const TokenEvent& event);

}  // namespace cellm::tools::serve

#endif  // CELLM_TOOLS_CELLM_SERVE_TOKEN_TEXT_H_
