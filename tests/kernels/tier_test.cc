// Every tier that runs on this CPU against the scalar one, row by row.  users.md row 100

#include <cctype>

#include "kernels/kernel_testers.h"

namespace cellm::kernels {
namespace {

std::vector<Tier> TiersHere() {
  std::vector<Tier> here;
  for (const Tier& tier : AllTiers()) {
    if (tier.runs_here()) here.push_back(tier);
  }
  return here;
}

// The scalar tier is in: its testers then check the grid itself (guard pages, canaries).
class TierTest : public ::testing::TestWithParam<Tier> {};

INSTANTIATE_TEST_SUITE_P(Tiers, TierTest, ::testing::ValuesIn(TiersHere()),
                         [](const auto& param) { return std::string(param.param.name); });

// A row that a tier leaves null is that of the tier before it, which has its own test.
#define CELLM_KERNEL(name, exactness, result, parameters) \
  TEST_P(TierTest, name) {                                \
    const KernelTable& table = *GetParam().table;         \
    if (table.name != nullptr) Check_##name(table);       \
  }
#include "kernels/kernel_list.inc"
#undef CELLM_KERNEL

TEST(SelfTest, AcceptsEveryTierHere) {
  for (const Tier& tier : TiersHere()) EXPECT_TRUE(AgreesWithScalar(*tier.table)) << tier.name;
}

float WrongDot(const float* a, const float* b, int32_t count) {
  return scalar::dot_f32(a, b, count) * 1.0000002f;
}

TEST(SelfTest, RefusesATableThatIsOffByOneBit) {
  KernelTable table;
  table.dot_f32 = &WrongDot;
  EXPECT_FALSE(AgreesWithScalar(table));
}

}  // namespace
}  // namespace cellm::kernels
