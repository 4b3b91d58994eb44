// Mixture of experts: routing, and products that touch the chosen experts only.
//
// ExpertMlp sorts the (row, expert) entries of a block of rows by expert, gathers their inputs, and
// takes all experts' gate and up products in one run over the pool and all down products in
// another:
//   entries   row 0 -> e1, row 0 -> e4, row 1 -> e1 ...      sorted:  e1: rows 0 1 | e4: row 0
// Each row then adds up its own entries in ascending order of experts.
#include <algorithm>
#include <cstring>

#include "backend/cpu_scratch.h"

namespace cellm {
namespace {

int32_t TilesOf(const Weight& weight) { return (weight.rows + kTileRows - 1) / kTileRows; }

// Tiles of 16 outputs a task; experts are small and many, so the split is plain.
constexpr int32_t kExpertTaskTiles = 4;
static_assert(kExpertTaskTiles <= kMaxTaskTiles);

// The index of the largest of values[0, count); the first of equals. NaN never wins.
int32_t LargestIndex(const float* values, int32_t count) {
  int32_t best = 0;
  for (int32_t i = 1; i < count; ++i) {
    if (values[i] > values[best]) best = i;
  }
  return best;
}

}  // namespace

void CpuBackend::RouteExperts(const RouterSpec& spec, Rows logits, const Routing& routing) {
  constexpr float kTaken = -__builtin_inff();
  const int32_t experts = spec.experts;
  ForRows(logits.rows, int64_t{experts} * (spec.top_k + 8),
          [&](int32_t begin, int32_t end, int32_t worker) {
            float* const value = scratch_->General(worker);  // what a chosen expert weighs
            float* const rank = value + experts;             // what it is chosen by
            for (int32_t r = begin; r < end; ++r) {
              const float* const row = logits.row(r);
              int32_t* const ids = routing.ids + int64_t{r} * routing.top_k;
              float* const weights = routing.weights + int64_t{r} * routing.top_k;
              const float largest = row[LargestIndex(row, experts)];
              if (spec.kind == RouterKind::kSigmoid) {
                for (int32_t e = 0; e < experts; ++e) value[e] = 1.0f;
                kernels_.sigmoid_mul_f32(row, value, experts, value);
              } else {
                for (int32_t e = 0; e < experts; ++e) value[e] = row[e] - largest;
                kernels_.exp_f32(value, experts, value);
              }
              for (int32_t e = 0; e < experts; ++e) {
                rank[e] = spec.kind == RouterKind::kSoftmaxTopK ? row[e] : value[e];
                if (spec.bias != nullptr) rank[e] += spec.bias[e];
              }
              if (spec.kind == RouterKind::kSoftmaxAll) {
                float sum = 0.0f;
                for (int32_t e = 0; e < experts; ++e) sum += value[e];
                for (int32_t e = 0; e < experts; ++e) value[e] /= sum;
              }
              for (int32_t i = 0; i < spec.top_k; ++i) {
                ids[i] = LargestIndex(rank, experts);
                rank[ids[i]] = kTaken;
              }
              std::sort(ids, ids + spec.top_k);
              float sum = 0.0f;
              for (int32_t i = 0; i < spec.top_k; ++i) sum += value[ids[i]];
              const bool divide = spec.normalise || spec.kind == RouterKind::kSoftmaxTopK;
              for (int32_t i = 0; i < spec.top_k; ++i) {
                float weight = value[ids[i]];
                if (divide) weight /= sum + spec.normalise_eps;
                weight *= spec.scale;
                if (spec.per_expert != nullptr) weight *= spec.per_expert[ids[i]];
                weights[i] = weight;
              }
            }
          });
}

// Calls task(expert, tile_begin, tile_end, worker) for all tiles of all experts that have entries.
template <typename Task>
void CpuBackend::ExpertTasks(std::span<const Weight> weights, const int32_t* expert_begin,
                             const Task& task) {
  const int32_t experts = static_cast<int32_t>(weights.size());
  const int32_t per_expert = (TilesOf(weights[0]) + kExpertTaskTiles - 1) / kExpertTaskTiles;
  int32_t active = 0;
  for (int32_t e = 0; e < experts; ++e) active += expert_begin[e + 1] > expert_begin[e] ? 1 : 0;
  const int64_t work = int64_t{expert_begin[experts]} * weights[0].rows * weights[0].cols;
  ForTiles(active * per_expert, work, [&](int32_t index, int32_t worker) {
    int32_t skip = index / per_expert;
    int32_t e = 0;
    for (;; ++e) {
      if (expert_begin[e + 1] > expert_begin[e] && skip-- == 0) break;
    }
    const int32_t begin = index % per_expert * kExpertTaskTiles;
    const int32_t end =
        std::min(begin + kExpertTaskTiles, TilesOf(weights[static_cast<size_t>(e)]));
    task(e, begin, end, worker);
  });
}

void CpuBackend::ExpertBlock(Rows x, const ExpertSpec& spec, const Routing& routing,
                             int32_t row_begin, int32_t row_count, Rows out) {
  Scratch& s = *scratch_;
  const int32_t experts = static_cast<int32_t>(spec.down.size());
  const int32_t top_k = routing.top_k;
  const int32_t entries = row_count * top_k;
  const int32_t* const ids = routing.ids + int64_t{row_begin} * top_k;
  int32_t* const order = s.expert_ints.data();  // sorted place -> entry
  int32_t* const place = order + entries;       // entry -> sorted place
  int32_t* const expert_begin = place + entries;
  std::fill(expert_begin, expert_begin + experts + 1, 0);
  for (int32_t i = 0; i < entries; ++i) ++expert_begin[ids[i] + 1];
  for (int32_t e = 0; e < experts; ++e) expert_begin[e + 1] += expert_begin[e];
  for (int32_t i = 0; i < entries; ++i) order[place[i] = expert_begin[ids[i]]++] = i;
  for (int32_t e = experts; e > 0; --e) expert_begin[e] = expert_begin[e - 1];
  expert_begin[0] = 0;

  float* const base = s.expert_floats.data();
  const Rows gathered{base, entries, x.cols, x.cols};
  const Rows inner{base + int64_t{entries} * x.cols, entries, spec.inner, spec.inner};
  const Rows results{inner.data + int64_t{entries} * spec.inner, entries, out.cols, out.cols};
  for (int32_t i = 0; i < entries; ++i) {
    std::memcpy(gathered.row(i), x.row(row_begin + order[i] / top_k),
                static_cast<size_t>(x.cols) * sizeof(float));
  }
  // `rows`, sorted by expert, go to `weights` (and `others`, which share them).
  const auto observe = [&](Rows rows, std::span<const Weight> weights,
                           std::span<const Weight> others) {
    for (int32_t e = 0; e < experts; ++e) {
      const int32_t first = expert_begin[e];
      const uint8_t* const sources[] = {weights[static_cast<size_t>(e)].source.data.data(),
                                        others[static_cast<size_t>(e)].source.data.data()};
      observer_->Observe({rows.row(first), expert_begin[e + 1] - first, rows.cols, rows.stride},
                         sources);
    }
  };
  if (observer_ != nullptr) observe(gathered, spec.gate, spec.up);
  const bool packed = mode_ == ActivationMode::kInt8;
  if (packed && spec.gate[0].kind == WeightKind::kPacked) QuantiseInput(gathered);
  const auto blocks = [&](int32_t e, const auto& body) {
    for (int32_t i = expert_begin[e]; i < expert_begin[e + 1]; i += kTokenBlock) {
      body(i, std::min(kTokenBlock, expert_begin[e + 1] - i));
    }
  };
  ExpertTasks(spec.gate, expert_begin, [&](int32_t e, int32_t begin, int32_t end, int32_t worker) {
    const size_t index = static_cast<size_t>(e);
    const int64_t first = int64_t{begin} * kTileRows;
    const int64_t count = std::min<int64_t>(spec.inner - first, (end - begin) * kTileRows);
    float* const up = s.gated.data() + worker * s.gated_stride;
    constexpr int64_t kUpStride = int64_t{kTileRows} * kMaxTaskTiles;
    blocks(e, [&](int32_t i, int32_t tokens) {
      float* const gate = inner.row(i) + first;
      Product(spec.gate[index], nullptr, gathered, i, tokens, begin, end, worker, gate,
              inner.stride);
      Product(spec.up[index], nullptr, gathered, i, tokens, begin, end, worker, up, kUpStride);
      for (int32_t t = 0; t < tokens; ++t) {
        float* const row = gate + t * inner.stride;
        ActivateRow(spec.activation, row, up + t * kUpStride, count, row);
      }
    });
  });
  if (observer_ != nullptr) observe(inner, spec.down, spec.down);
  if (packed && spec.down[0].kind == WeightKind::kPacked) QuantiseInput(inner);
  ExpertTasks(spec.down, expert_begin, [&](int32_t e, int32_t begin, int32_t end, int32_t worker) {
    blocks(e, [&](int32_t i, int32_t tokens) {
      Product(spec.down[static_cast<size_t>(e)], nullptr, inner, i, tokens, begin, end, worker,
              results.row(i) + int64_t{begin} * kTileRows, results.stride);
    });
  });
  ForRows(row_count, int64_t{top_k} * out.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      float* const o = out.row(row_begin + r);
      std::fill(o, o + out.cols, 0.0f);
      for (int32_t i = r * top_k; i < (r + 1) * top_k; ++i) {
        kernels_.axpy_f32(routing.weights[int64_t{row_begin} * top_k + i], results.row(place[i]),
                          out.cols, o);
      }
    }
  });
}

void CpuBackend::ExpertMlp(Rows x, const ExpertSpec& spec, const Routing& routing, Rows out) {
  for (int32_t row = 0; row < x.rows; row += kExpertBlockRows) {
    ExpertBlock(x, spec, routing, row, std::min(kExpertBlockRows, x.rows - row), out);
  }
}

}  // namespace cellm
