// The list of tiers and the choice among them.
//
// A tier is added here in three places: its table, what it asks of the CPU, its line in the list.

#include "kernels/kernel_table.h"
#include "kernels/scalar/scalar.h"
#include "platform/cpu.h"

#if defined(__x86_64__)
#include "kernels/avx2/avx2.h"
#include "kernels/avx512/avx512.h"
#include "kernels/avx512_vnni/avx512_vnni.h"
#elif defined(__aarch64__)
#include "kernels/neon/neon.h"
#include "kernels/neon_dot/neon_dot.h"
#endif

namespace cellm::kernels {
namespace {

bool ScalarRunsHere() { return true; }
#if defined(__x86_64__)
bool Avx2RunsHere() { return platform::DetectCpuFeatures().avx2; }
bool Avx512RunsHere() { return platform::DetectCpuFeatures().avx512; }
bool Avx512VnniRunsHere() { return platform::DetectCpuFeatures().avx512_vnni; }
#elif defined(__aarch64__)
bool NeonRunsHere() { return platform::DetectCpuFeatures().neon; }
bool NeonDotRunsHere() { return platform::DetectCpuFeatures().dotprod; }
#endif

// Non-null rows of `tier` replace those of `table`.
void LayOver(const KernelTable& tier, KernelTable& table) {
#define CELLM_KERNEL(name, exactness, result, parameters) \
  if (tier.name != nullptr) table.name = tier.name;
#include "kernels/kernel_list.inc"
#undef CELLM_KERNEL
}

std::string TierNames(const std::vector<Tier>& tiers) {
  std::string names;
  for (const Tier& tier : tiers) {
    if (!names.empty()) names += ", ";
    names += tier.name;
  }
  return names;
}

}  // namespace

std::vector<Tier> AllTiers() {
  return {
    {"scalar", &scalar::kTable, &ScalarRunsHere},
#if defined(__x86_64__)
        {"avx2", &avx2::kTable, &Avx2RunsHere}, {"avx512", &avx512::kTable, &Avx512RunsHere},
        {"avx512_vnni", &avx512_vnni::kTable, &Avx512VnniRunsHere},
#elif defined(__aarch64__)
        {"neon", &neon::kTable, &NeonRunsHere}, {"neon_dot", &neon_dot::kTable, &NeonDotRunsHere},
#endif
  };
}

Result<ChosenKernels> ChooseKernels(std::string_view forced) {
  const std::vector<Tier> tiers = AllTiers();
  ChosenKernels chosen = {*tiers[0].table, tiers[0].name};
  bool found = forced.empty() || forced == tiers[0].name;
  for (size_t i = 1; i < tiers.size() && (forced.empty() || !found); ++i) {
    const Tier& tier = tiers[i];
    const bool runs = tier.runs_here();
    const bool agrees = runs && AgreesWithScalar(*tier.table);
    if (tier.name == forced) {
      found = true;
      if (!runs) {
        return Unsupported("kernels \"%s\": this CPU lacks the instructions", tier.name.data());
      }
      if (!agrees) {
        return Unsupported("kernels \"%s\": results differ from the scalar ones on this machine",
                           tier.name.data());
      }
    }
    if (!agrees) continue;
    LayOver(*tier.table, chosen.table);
    chosen.tier = tier.name;
  }
  if (!found) {
    return InvalidArgument("kernels \"%.*s\" are not in this build, which has: %s",
                           static_cast<int>(forced.size()), forced.data(),
                           TierNames(tiers).c_str());
  }
  return chosen;
}

size_t AttendScratchBytes(int32_t head_dim, int32_t head_dim_v) {
  // A block of 64 keys and of 64 values as levels, columns to multiples of 16.
  const size_t columns = static_cast<size_t>((head_dim + 15) / 16 + (head_dim_v + 15) / 16) * 16;
  return 64 * columns;
}

}  // namespace cellm::kernels
