#ifndef CELLM_TESTS_SUPPORT_ZOO_H_
#define CELLM_TESTS_SUPPORT_ZOO_H_

// Zoo checkpoints (testdata/zoo, or the shared zoo) and what the reference says of them.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace cellm::testing {

struct ReferencePrompt {
  std::string kind;
  std::vector<int32_t> ids;
  std::vector<int32_t> greedy;  // end id included
  double smallest_gap = 0.0;
};

struct Reference {
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;
  int32_t vocab = 0;
  std::vector<float> logits;  // [positions, vocab]
  std::vector<ReferencePrompt> prompts;
};

// Reads reference.safetensors and reference.json of a zoo folder; fails the test otherwise.
Reference ReadReference(const std::string& folder);

// Opens a model or fails the test (null).
std::unique_ptr<Engine> OpenEngine(const std::string& path, const EngineOptions& options);

// Logits of every position of `tokens` on a fresh sequence, fed in chunks of `chunk` (0: whole), as
// [tokens, vocab]. planned 0: the number of tokens.
std::vector<float> AllLogits(Engine& engine, const std::vector<int32_t>& tokens, int32_t chunk = 0,
                             int32_t planned = 0);

// Greedy continuation until an end id or `limit` new tokens.
std::vector<int32_t> Greedy(Engine& engine, const std::vector<int32_t>& prompt, int32_t limit);

// Largest difference between `got` [tokens, vocab] at the reference's positions and the reference,
// over the row's largest absolute logit. `up_to`: positions beyond it are left out.
double LogitError(const Reference& reference, const std::vector<float>& got, int32_t first_position,
                  int32_t last_position);

// Options of the float path: what the reference tolerances are stated for.
EngineOptions FloatPath();

}  // namespace cellm::testing

#endif  // CELLM_TESTS_SUPPORT_ZOO_H_
