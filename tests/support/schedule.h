#ifndef CELLM_TESTS_SUPPORT_SCHEDULE_H_
#define CELLM_TESTS_SUPPORT_SCHEDULE_H_

// Promise 1 as a check: one model's logits under many schedules, bit against bit.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace cellm::testing {

bool SameBits(const std::vector<float>& a, const std::vector<float>& b);

// Fails the test (null) on error.
std::unique_ptr<Engine> MakeEngine(std::shared_ptr<const Model> model,
                                   const EngineOptions& options);

// Logits of `tokens` fed in chunks (0: whole), while three other sequences of other tokens take
// part in the same steps with chunks of their own and come and go.
std::vector<float> LogitsBesideOthers(Engine& engine, const std::vector<int32_t>& tokens,
                                      int32_t chunk);

struct Sweep {
  std::vector<int32_t> chunks = {1, 7, 64, 0};
  // One engine each; sizes that divide a block of keys, that it divides, and that do neither.
  std::vector<std::pair<int32_t, int32_t>> threads_and_page_tokens = {
      {1, 16}, {1, 64}, {2, 32}, {2, 48}};
  int32_t tokens = 90;
  // Those chunks that are also tried beside others; empty: all.
  std::vector<int32_t> chunks_beside = {};
};

// All schedules of one model in one numeric mode against: alone, whole, one thread, pages of 32.
void CheckSchedules(const std::shared_ptr<const Model>& model, EngineOptions options,
                    const Sweep& sweep, const std::string& name);

}  // namespace cellm::testing

#endif  // CELLM_TESTS_SUPPORT_SCHEDULE_H_
