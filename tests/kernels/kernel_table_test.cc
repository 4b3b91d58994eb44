#include "kernels/kernel_table.h"

#include <gtest/gtest.h>

namespace cellm::kernels {
namespace {

TEST(ChooseKernels, FillsEveryRow) {
  Result<ChosenKernels> chosen = ChooseKernels("");
  ASSERT_TRUE(chosen.ok()) << chosen.status().message();
#define CELLM_KERNEL(name, exactness, result, parameters) \
  EXPECT_NE(chosen->table.name, nullptr) << #name;
#include "kernels/kernel_list.inc"
#undef CELLM_KERNEL
}

TEST(ChooseKernels, ScalarCanBeForced) {
  Result<ChosenKernels> chosen = ChooseKernels("scalar");
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->tier, "scalar");
  EXPECT_EQ(chosen->table.exp_f32, AllTiers()[0].table->exp_f32);
}

TEST(ChooseKernels, RefusesUnknownNamesAndListsTheOthers) {
  const Result<ChosenKernels> chosen = ChooseKernels("sse9");
  ASSERT_FALSE(chosen.ok());
  EXPECT_EQ(chosen.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(chosen.status().message().find("sse9"), std::string::npos);
  EXPECT_NE(chosen.status().message().find("scalar"), std::string::npos);
}

// Every tier either runs here (then it can be forced and is laid over) or is refused by name.
TEST(ChooseKernels, EveryTierIsChosenOrRefused) {
  std::string_view best = "scalar";
  for (const Tier& tier : AllTiers()) {
    const Result<ChosenKernels> chosen = ChooseKernels(tier.name);
    if (tier.runs_here()) {
      ASSERT_TRUE(chosen.ok()) << chosen.status().message();
      EXPECT_EQ(chosen->tier, tier.name);
      best = tier.name;
    } else {
      ASSERT_FALSE(chosen.ok());
      EXPECT_EQ(chosen.status().code(), StatusCode::kUnsupported);
    }
  }
  EXPECT_EQ(ChooseKernels("")->tier, best);
}

}  // namespace
}  // namespace cellm::kernels
