#ifndef CELLM_SRC_KERNELS_KERNEL_TABLE_H_
#define CELLM_SRC_KERNELS_KERNEL_TABLE_H_

// The kernel table and its choice.
//
// Each tier (scalar, neon, neon_dot, avx2, avx512, avx512_vnni) fills what it has; ChooseKernels()
// lays the tiers that this CPU can run over the scalar table, best last. The table is a plain
// struct that the engine owns and passes down by reference.

#include <string_view>
#include <vector>

#include "base/status.h"
#include "kernels/kernel_types.h"

namespace cellm::kernels {

struct KernelTable {
#define CELLM_KERNEL(name, exactness, result, parameters) result(*name) parameters = nullptr;
#include "kernels/kernel_list.inc"
#undef CELLM_KERNEL
};

struct Tier {
  std::string_view name;
  const KernelTable* table;  // null rows: this tier has none
  bool (*runs_here)();       // CPU features and operating system state
};

// All tiers compiled in, worst first; scalar is always index 0.
std::vector<Tier> AllTiers();

struct ChosenKernels {
  KernelTable table;      // no null rows
  std::string_view tier;  // the best tier that was laid over
};

// `forced` empty: the best tier that runs here and agrees with the scalar table on a short
// self-test. Otherwise exactly that tier (over scalar). Unsupported when the name is unknown (the
// message lists the names) or the CPU lacks it.
Result<ChosenKernels> ChooseKernels(std::string_view forced);

// Floats of AttendArgs::scratch that any tier may use.
size_t AttendScratchFloats(int32_t heads, int32_t rows, int32_t head_dim_v);

}  // namespace cellm::kernels

#endif  // CELLM_SRC_KERNELS_KERNEL_TABLE_H_
