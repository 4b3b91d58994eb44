#ifndef CELLM_SRC_BACKEND_CPU_BACKEND_H_
#define CELLM_SRC_BACKEND_CPU_BACKEND_H_

// The ops on the CPU: the kernel table over the thread pool.
//
// Work is cut by output into tiles whose edges depend on shapes only. Small pieces (norms of a few
// rows) run on the caller without waking anyone.

#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "backend/linear_observer.h"
#include "backend/measure_backend.h"
#include "base/allocator.h"
#include "base/status.h"
#include "kernels/kernel_table.h"
#include "platform/thread_pool.h"

namespace cellm {

// How products with quantised weights are taken.
enum class ActivationMode : uint8_t {
  kInt8,     // activations in 8 bits per 32 columns, integer sums
  kFloat32,  // weights unpacked to float: slow, the oracle
};

class CpuBackend final : public Backend {
 public:
  // Borrows both; they must outlive the backend.
  CpuBackend(const kernels::KernelTable& kernels, platform::ThreadPool& pool, ActivationMode mode);
  ~CpuBackend() override;

  // Makes room for forward passes up to `needs`. Must be called before ops run; Prepare() works
  // without. OutOfMemory leaves the old scratch.
  Status Reserve(const ScratchNeeds& needs, Allocator& allocator);
  uint64_t scratch_bytes() const;
  // Shows every product's inputs to `observer` (null: to nobody), which is borrowed.
  void set_observer(LinearObserver* observer) { observer_ = observer; }

  Result<Weight> Prepare(const Matrix& matrix, WeightUse use, Allocator& allocator) override;
  void Embed(const Weight& table, std::span<const int32_t> tokens, float scale, Rows out) override;
  void EmbedTaps(const Weight& table, std::span<const int32_t> ids, const float* weights,
                 int32_t taps, Rows out) override;
  void GatherRows(Rows x, std::span<const int32_t> indices, Rows out) override;
  void ScatterRows(Rows x, std::span<const int32_t> indices, bool add, Rows out) override;
  void MeanRows(Rows x, std::span<const int32_t> indices, int32_t group, Rows out) override;
  void Input(const float* values, Rows out) override;
  void Windows(const float* values, const WindowsSpec& spec, int32_t first, Rows out) override;
  void RmsNorm(Rows x, const float* weight, float offset, float eps, Rows y) override;
  void LayerNorm(Rows x, const float* weight, const float* bias, float eps, Rows y) override;
  void GatedRmsNorm(Rows x, Rows z, const float* weight, bool weight_per_group, int32_t group,
                    float eps, bool gate_first, Rows out) override;
  using Backend::Linear;
  void Linear(Rows x, std::span<const LinearPart> parts) override;
  void LinearInt8(Rows x, std::span<const LinearPart> parts) override;
  void GatedLinear(Rows x, const LinearPart& gate, const LinearPart& up, Activation activation,
                   Rows out) override;
  void GatedAct(Activation activation, Rows gate, Rows up, Rows out) override;
  void Act(Activation activation, Rows x, Rows out) override;
  void Xielu(float a_p, float a_n, float beta, float eps, Rows x) override;
  void Add(Rows x, Rows y, float scale) override;
  void Scale(Rows x, float scale) override;
  void Mul(Rows a, Rows b, Rows out) override;
  void MulVector(Rows x, const float* vector) override;
  void AddVector(Rows x, const float* vector) override;
  void Clamp(Rows x, float low, float high, Rows out) override;
  void SoftCap(Rows x, float cap) override;
  void SigmoidGate(Rows x, Rows gate) override;
  void ScaleByPosition(const StepContext& step, float beta, int32_t original, Rows x) override;
  void RoundToInt8(Rows x) override;
  void RopeTable(const StepContext& step, const RopeSpec& spec, Rows cos_sin) override;
  void Rope(const RopeSpec& spec, Rows cos_sin, int32_t heads, Rows x) override;
  void StoreKv(const StepContext& step, int32_t layer, const AttendSpec& spec, Rows k,
               Rows v) override;
  void AttendPages(const StepContext& step, int32_t layer, const AttendSpec& spec, Rows q,
                   Rows out) override;
  void AttendRelative(const RelativeAttendSpec& spec, Rows q, Rows k, Rows v, Rows distances,
                      Rows out) override;
  void ShortConv(const StepContext& step, int32_t layer, const ShortConvSpec& spec, Rows x,
                 Rows y) override;
  void DeltaRule(const StepContext& step, int32_t layer, const DeltaRuleSpec& spec, Rows qkv,
                 Rows b, Rows a, Rows out) override;
  void SelectiveState(const StepContext& step, int32_t layer, const SelectiveStateSpec& spec,
                      Rows xbc, Rows dt, Rows out) override;
  void RouteExperts(const RouterSpec& spec, Rows logits, const Routing& routing) override;
  void ExpertMlp(Rows x, const ExpertSpec& spec, const Routing& routing, Rows out) override;

 private:
  struct Scratch;
  struct Attention;  // AttendPages() under way
  // Both stay on the caller when there is little to do.
  template <typename Body>
  void ForTiles(int32_t tiles, int64_t work, const Body& body);
  // Calls body(begin, end, worker) over blocks of rows.
  template <typename Body>
  void ForRows(int32_t rows, int64_t floats_per_row, const Body& body);
  // Row `row` of a table of any kind into out[table.cols].
  void LookUp(const Weight& table, int32_t row, int32_t worker, float* out);
  // Gives pages of a table on flash back now and then; `rows` were just read.
  void ReleaseFlash(const Weight& table, int64_t rows);
  // Quantises x into the shared scratch when a part needs it.
  void QuantiseInput(Rows x);
  // Outputs [16 * tile_begin, 16 * tile_end) of tokens [token_begin, token_begin + tokens) of
  // Quantises x as RoundToInt8() does: one scale a row.
  void QuantiseRows(Rows x);
  void Products(Rows x, std::span<const LinearPart> parts);
  // Linear(x, weight), to out[token][output - 16 * tile_begin]. x was given to QuantiseInput().
  void Product(const Weight& weight, const float* bias, Rows x, int32_t token_begin, int32_t tokens,
               int32_t tile_begin, int32_t tile_end, int32_t worker, float* out,
               int64_t out_stride);
  void ActivateRow(Activation activation, const float* gate, const float* up, int64_t count,
                   float* out);
  template <typename Task>
  void ExpertTasks(std::span<const Weight> weights, const int32_t* expert_begin, const Task& task);
  void ExpertBlock(Rows x, const ExpertSpec& spec, const Routing& routing, int32_t row_begin,
                   int32_t row_count, Rows out);

  int64_t flash_rows_ = 0;  // looked up in tables on flash since their pages were given back
  const kernels::KernelTable& kernels_;
  platform::ThreadPool& pool_;
  ActivationMode mode_;
  LinearObserver* observer_ = nullptr;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace cellm

#endif  // CELLM_SRC_BACKEND_CPU_BACKEND_H_
