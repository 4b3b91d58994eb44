#include "backend/measure_backend.h"

#include <algorithm>

namespace cellm {
namespace {

template <typename T>
void Raise(T* largest, T value) {
  *largest = std::max(*largest, value);
}

int64_t Chunks(int64_t cols) { return (cols + kChunkCols - 1) / kChunkCols; }

void NoteScratch(Rows x, const Weight& weight, ScratchNeeds* needs) {
  if (weight.kind != WeightKind::kPacked) return;
  Raise(&needs->quantised_chunks, x.rows * Chunks(x.cols));
  Raise(&needs->unpack_cols, weight.cols);
}

uint64_t ElementsOf(const Weight& weight) {
  return static_cast<uint64_t>(weight.rows) * static_cast<uint64_t>(weight.cols);
}

}  // namespace

void MeasureBackend::NoteProduct(Rows x, const Weight& weight) {
  NoteScratch(x, weight, &needs_);
  products_.push_back({x.rows, weight.bytes(), ElementsOf(weight)});
}

TokenWork MeasureBackend::WorkOf(int32_t step_rows) const {
  TokenWork work;
  for (const Product& product : products_) {
    const bool is_head = product.rows < step_rows;
    (is_head ? work.head_bytes : work.body_bytes) += product.bytes;
    (is_head ? work.head_products : work.body_products) += product.products;
  }
  return work;
}

Result<Weight> MeasureBackend::Prepare(const Matrix&, WeightUse, Allocator&) {
  return Unsupported("the measuring backend prepares no weights");
}

void MeasureBackend::Embed(const Weight& table, std::span<const int32_t>, float, Rows) {
  if (table.kind == WeightKind::kPacked) Raise(&needs_.lookup_cols, table.cols);
}
void MeasureBackend::EmbedTaps(const Weight& table, std::span<const int32_t>, const float*, int32_t,
                               Rows) {
  if (table.kind == WeightKind::kPacked) Raise(&needs_.lookup_cols, table.cols);
  Raise(&needs_.thread_floats, int64_t{table.cols});
}
void MeasureBackend::AttendRelative(const RelativeAttendSpec& spec, Rows, Rows, Rows, Rows, Rows) {
  Raise(&needs_.thread_floats, int64_t{spec.window});
}
void MeasureBackend::Linear(Rows x, std::span<const LinearPart> parts) {
  for (const LinearPart& part : parts) NoteProduct(x, *part.weight);
}
void MeasureBackend::GatedLinear(Rows x, const LinearPart& gate, const LinearPart& up, Activation,
                                 Rows) {
  NoteProduct(x, *gate.weight);
  NoteProduct(x, *up.weight);
}
void MeasureBackend::RopeTable(const StepContext&, const RopeSpec& spec, Rows) {
  Raise(&needs_.rotary_half, spec.rotary_dim / 2);
  // A second bound of either kind makes every length beyond the lower one a class of its own.
  const auto note_exact = [this](int32_t from) {
    rope_dynamic_from_ = rope_dynamic_from_ == 0 ? from : std::min(rope_dynamic_from_, from);
  };
  if (spec.dynamic_from > 0) note_exact(spec.dynamic_from);
  if (spec.long_inv_freq.empty() || spec.long_from == rope_long_from_) return;
  if (rope_long_from_ > 0) note_exact(std::min(spec.long_from, rope_long_from_));
  rope_long_from_ = spec.long_from;
}
void MeasureBackend::StoreKv(const StepContext& step, int32_t, const AttendSpec& spec, Rows, Rows) {
  // A row of floats, and its codes.
  const KvLayout k = MakeKvLayout(step.kv_type.k, spec.head_dim);
  const KvLayout v = MakeKvLayout(step.kv_type.v, spec.head_dim_v);
  Raise(&needs_.thread_floats, 2 * int64_t{std::max(k.padded, v.padded)});
}
void MeasureBackend::AttendPages(const StepContext& step, int32_t, const AttendSpec& spec, Rows,
                                 Rows) {
  const KvLayout k = MakeKvLayout(step.kv_type.k, spec.head_dim);
  const KvLayout v = MakeKvLayout(step.kv_type.v, spec.head_dim_v);
  Raise(&needs_.attend_heads, spec.heads / spec.kv_heads);
  Raise(&needs_.attend_columns, k.padded);
  if (!(step.demoted_type == step.kv_type)) Raise(&needs_.demoted_columns, k.padded);
  Raise(&needs_.attend_columns_v, v.padded);
  Raise(&needs_.thread_floats, int64_t{std::max(k.padded, v.padded)});
}
void MeasureBackend::ShortConv(const StepContext&, int32_t, const ShortConvSpec& spec, Rows, Rows) {
  Raise(&needs_.thread_floats, 2 * int64_t{spec.taps} * kConvBlock);
}
void MeasureBackend::DeltaRule(const StepContext&, int32_t, const DeltaRuleSpec& spec, Rows, Rows,
                               Rows, Rows) {
  Raise(&needs_.thread_floats, 2 * int64_t{kDeltaTokens} * (spec.k_dim + 1));
}
void MeasureBackend::RouteExperts(const RouterSpec& spec, Rows, const Routing&) {
  Raise(&needs_.thread_floats, 2 * int64_t{spec.experts});
}
void MeasureBackend::ExpertMlp(Rows x, const ExpertSpec& spec, const Routing& routing, Rows out) {
  const int64_t entries = int64_t{std::min(x.rows, kExpertBlockRows)} * routing.top_k;
  Raise(&needs_.expert_floats, entries * (int64_t{x.cols} + spec.inner + out.cols));
  Raise(&needs_.expert_ints, 2 * entries + static_cast<int64_t>(spec.down.size()) + 1);
  const Rows gathered{nullptr, static_cast<int32_t>(entries), x.cols, x.cols};
  const Rows inner{nullptr, static_cast<int32_t>(entries), spec.inner, spec.inner};
  // All experts are of one size, so a token's share of them is top_k of all.
  Product chosen{x.rows, 0, 0};
  const auto note = [&](Rows input, const Weight& weight) {
    NoteScratch(input, weight, &needs_);
    chosen.bytes += weight.bytes();
    chosen.products += ElementsOf(weight);
  };
  for (const Weight& weight : spec.gate) note(gathered, weight);
  for (const Weight& weight : spec.up) note(gathered, weight);
  for (const Weight& weight : spec.down) note(inner, weight);
  const uint64_t experts = std::max<uint64_t>(spec.down.size(), 1);
  const uint64_t top_k = static_cast<uint64_t>(routing.top_k);
  products_.push_back({x.rows, chosen.bytes * top_k / experts, chosen.products * top_k / experts});
}

// The rest needs no scratch.
void MeasureBackend::GatherRows(Rows, std::span<const int32_t>, Rows) {}
void MeasureBackend::ScatterRows(Rows, std::span<const int32_t>, bool, Rows) {}
void MeasureBackend::MeanRows(Rows, std::span<const int32_t>, int32_t, Rows) {}
void MeasureBackend::Input(const float*, Rows) {}
void MeasureBackend::Windows(const float*, const WindowsSpec&, int32_t, Rows) {}
void MeasureBackend::RmsNorm(Rows, const float*, float, float, Rows) {}
void MeasureBackend::LayerNorm(Rows, const float*, const float*, float, Rows) {}
void MeasureBackend::GatedRmsNorm(Rows, Rows, const float*, bool, int32_t, float, bool, Rows) {}
void MeasureBackend::GatedAct(Activation, Rows, Rows, Rows) {}
void MeasureBackend::Act(Activation, Rows, Rows) {}
void MeasureBackend::Xielu(float, float, float, float, Rows) {}
void MeasureBackend::Add(Rows, Rows, float) {}
void MeasureBackend::Scale(Rows, float) {}
void MeasureBackend::Mul(Rows, Rows, Rows) {}
void MeasureBackend::MulVector(Rows, const float*) {}
void MeasureBackend::AddVector(Rows, const float*) {}
void MeasureBackend::Clamp(Rows, float, float, Rows) {}
void MeasureBackend::SoftCap(Rows, float) {}
void MeasureBackend::SigmoidGate(Rows, Rows) {}
void MeasureBackend::ScaleByPosition(const StepContext&, float, int32_t, Rows) {}
void MeasureBackend::RoundToInt8(Rows) {}
void MeasureBackend::Rope(const RopeSpec&, Rows, int32_t, Rows) {}
void MeasureBackend::SelectiveState(const StepContext&, int32_t, const SelectiveStateSpec&, Rows,
                                    Rows, Rows) {}

}  // namespace cellm
