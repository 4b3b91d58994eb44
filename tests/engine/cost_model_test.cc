// Predicted and learnt costs of steps.
#include "engine/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/rng.h"

namespace cellm {
namespace {

CostModel Truth() {
  CostModel truth;
  truth.step_ns = 31e6;
  truth.prompt_row_ns = 420e3;
  truth.decode_row_ns = 900e3;
  truth.attended_ns = 35;
  return truth;
}

TEST(CostModelTest, AttendedTokensAreCountedRowByRow) {
  for (const int64_t position : {0, 1, 77}) {
    for (const int64_t rows : {1, 2, 40}) {
      StepShape shape;
      shape.AddPrompt(position, rows);
      int64_t expected = 0;
      for (int64_t row = 0; row < rows; ++row) expected += position + row + 1;
      EXPECT_EQ(shape.attended_tokens, expected);
      EXPECT_DOUBLE_EQ(Truth().StepNs(shape), Truth().step_ns + Truth().PromptNs(position, rows));
    }
  }
}

TEST(CostModelTest, RowsWithinAreTheMostThatFit) {
  const CostModel cost = Truth();
  for (const double ns : {0.0, 1e5, 1e6, 1e7, 1e9}) {
    for (const int32_t position : {0, 1000, 100'000}) {
      const int32_t rows = cost.PromptRowsWithin(ns, position, 512);
      EXPECT_LE(rows, 512);
      EXPECT_TRUE(rows == 0 || cost.PromptNs(position, rows) <= ns);
      EXPECT_TRUE(rows == 512 || cost.PromptNs(position, rows + 1) > ns);
    }
  }
}

TEST(CostModelTest, ASplitRestoreIsTheBestOfAllSplits) {
  for (const double read : {1e6, 30e6, 400e6, 1e12}) {
    CostModel cost = Truth();
    cost.swap_read_bytes_per_second = read;
    constexpr int64_t kTokens = 700;
    constexpr uint64_t kBytes = 30 << 20;
    const RestoreSplit split = SplitRestore(cost, kTokens, kBytes, 128);
    double best = HUGE_VAL;
    for (int64_t k = 0; k <= kTokens; ++k) {
      const double left = static_cast<double>(kBytes) * static_cast<double>(kTokens - k) / kTokens;
      best = std::min(best, std::max(cost.RecomputeNs(k, 128), left * 1e9 / read));
    }
    EXPECT_NEAR(split.ns, best, best * 0.01) << read;
    EXPECT_LE(split.ns, cost.SwapInNs(kBytes));
    EXPECT_LE(split.ns, cost.RecomputeNs(kTokens, 128));
  }
  EXPECT_EQ(SplitRestore(Truth(), 0, 0, 128).recomputed, 0);
}

// Steps as a server runs them: decodes of some conversations, sometimes with a chunk.
StepShape RandomShape(Rng& rng) {
  StepShape shape;
  const uint64_t decodes = rng.NextBelow(12);
  for (uint64_t i = 0; i < decodes; ++i) shape.AddDecode(static_cast<int64_t>(rng.NextBelow(3000)));
  if (decodes == 0 || rng.NextBelow(3) == 0) {
    shape.AddPrompt(static_cast<int64_t>(rng.NextBelow(2000)),
                    static_cast<int64_t>(1 + rng.NextBelow(128)));
  }
  return shape;
}

TEST(CostEstimatorTest, LearnsCoefficientsFromNoisySteps) {
  Rng rng(3);
  CostEstimator estimator{CostModel{}};
  for (int i = 0; i < 600; ++i) {
    const StepShape shape = RandomShape(rng);
    const double noise = 1 + 0.1 * (2 * rng.NextDouble() - 1);
    estimator.ObserveStep(shape, static_cast<int64_t>(Truth().StepNs(shape) * noise));
  }
  for (int i = 0; i < 200; ++i) {
    const StepShape shape = RandomShape(rng);
    const double truth = Truth().StepNs(shape);
    EXPECT_NEAR(estimator.model().StepNs(shape), truth, 0.06 * truth) << i;
  }
}

TEST(CostEstimatorTest, FollowsAMachineThatSlowsDown) {
  Rng rng(4);
  CostEstimator estimator(CostModel{}, 64);
  CostModel slow = Truth();
  slow.step_ns *= 3;
  slow.prompt_row_ns *= 3;
  slow.decode_row_ns *= 3;
  slow.attended_ns *= 3;
  for (int i = 0; i < 900; ++i) {
    const StepShape shape = RandomShape(rng);
    estimator.ObserveStep(shape, static_cast<int64_t>((i < 500 ? Truth() : slow).StepNs(shape)));
  }
  const StepShape shape = RandomShape(rng);
  EXPECT_NEAR(estimator.model().StepNs(shape), slow.StepNs(shape), 0.1 * slow.StepNs(shape));
}

TEST(CostEstimatorTest, NothingIsEverNegativeOrAbsurd) {
  // Decodes alone tell nothing of prompts: the starting model keeps deciding there. Nonsense is
  // ignored.
  CostEstimator estimator{CostModel{}};
  StepShape decode;
  decode.AddDecode(10);
  for (int i = 0; i < 300; ++i) {
    estimator.ObserveStep(decode, 1'000'000 + i % 7 * 100'000);
    estimator.ObserveStep(decode, -5);
    estimator.ObserveStep(StepShape{}, 1000);
    estimator.ObserveSwapIn(0, 100);
    estimator.ObserveSwapOut(100, 0);
  }
  const CostModel& model = estimator.model();
  EXPECT_DOUBLE_EQ(model.prompt_row_ns, CostModel{}.prompt_row_ns);
  EXPECT_GE(model.step_ns, 0);
  EXPECT_GE(model.decode_row_ns, 0);
  EXPECT_GE(model.attended_ns, 0);
  EXPECT_NEAR(model.StepNs(decode), 1.3e6, 0.3e6);
  EXPECT_DOUBLE_EQ(model.swap_read_bytes_per_second, CostModel{}.swap_read_bytes_per_second);
  for (int i = 0; i < 50; ++i) estimator.ObserveSwapIn(1 << 20, 1'000'000);
  EXPECT_NEAR(model.swap_read_bytes_per_second, 1048.576e6, 1e6);
}

}  // namespace
}  // namespace cellm
