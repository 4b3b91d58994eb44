#ifndef CELLM_SRC_BACKEND_MEASURE_BACKEND_H_
#define CELLM_SRC_BACKEND_MEASURE_BACKEND_H_

// Runs nothing and notes how much scratch the ops would need. The engine lets a family's forward
// pass run over it once, with a measuring Arena, to size everything before the first step.

#include <cstdint>
#include <vector>

#include "backend/backend.h"

namespace cellm {

// How CpuBackend cuts its work; here because scratch depends on it.
inline constexpr int32_t kConvBlock = 256;        // channels of a ShortConv tile
inline constexpr int32_t kExpertBlockRows = 128;  // rows whose expert products are taken together
inline constexpr int32_t kDeltaTokens = 32;       // tokens that DeltaRule takes at a time

// Largest sizes met in one forward pass.
struct ScratchNeeds {
  int64_t quantised_chunks = 0;  // rows * ceil(cols / 32) of one product's input
  int32_t unpack_cols = 0;       // columns of a packed weight
  int32_t lookup_cols = 0;       // columns of a packed table that Embed() reads
  int32_t rotary_half = 0;       // of tables whose frequencies depend on a sequence
  int32_t attend_heads = 0;      // query heads of a kv head
  int32_t attend_columns = 0, attend_columns_v = 0;  // of a head, as stored
  int32_t demoted_columns = 0;                       // 0: nothing is demoted
  int64_t thread_floats = 0;  // one thread's, of convolutions, recurrences and routers
  int64_t expert_floats = 0;  // of ExpertMlp, all threads together
  int64_t expert_ints = 0;
};

// What one token is multiplied with. Of experts, as many as a token is sent to.
struct TokenWork {
  uint64_t body_bytes = 0, head_bytes = 0;
  uint64_t body_products = 0, head_products = 0;
};

class MeasureBackend final : public Backend {
 public:
  const ScratchNeeds& needs() const { return needs_; }
  // Requires a step of more rows than rows of logits: fewer rows mean the head.
  TokenWork WorkOf(int32_t step_rows) const;
  // Where the model's rotary factors begin to depend on the planned length; 0: nowhere.
  int32_t rope_long_from() const { return rope_long_from_; }
  int32_t rope_dynamic_from() const { return rope_dynamic_from_; }

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
  void LinearInt8(Rows x, std::span<const LinearPart> parts) override { Linear(x, parts); }
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
  struct Product {
    int32_t rows;  // of the input
    uint64_t bytes, products;
  };
  void NoteProduct(Rows x, const Weight& weight);

  std::vector<Product> products_;
  ScratchNeeds needs_;
  int32_t rope_long_from_ = 0;
  int32_t rope_dynamic_from_ = 0;
};

}  // namespace cellm

#endif  // CELLM_SRC_BACKEND_MEASURE_BACKEND_H_
