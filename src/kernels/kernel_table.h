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
#include "kernels/kernel_rows.h"
#include "kernels/kernel_types.h"

namespace cellm::kernels {

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

// `forced` empty: every tier that runs here and agrees with the scalar table on a short self-test
// is laid over the ones before it. Otherwise the same up to and including the named tier, so that
// "avx2" gives what a CPU without AVX-512 would run. Unsupported when the name is unknown (the
// message lists the names), the CPU lacks it, or it fails the self-test. A millisecond; any thread.
Result<ChosenKernels> ChooseKernels(std::string_view forced);

// The self-test: true when every row that `candidate` has gives the bits of the scalar table on a
// few small inputs. A guard against a CPU, emulator or compiler that does not do what it says.
bool AgreesWithScalar(const KernelTable& candidate);

// Bytes of AttendArgs::scratch that any tier may use, for heads of up to so many columns.
size_t AttendScratchBytes(int32_t head_dim, int32_t head_dim_v);

}  // namespace cellm::kernels

#endif  // CELLM_SRC_KERNELS_KERNEL_TABLE_H_
