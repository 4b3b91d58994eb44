// Convolutions and recurrences: per sequence, token by token, so that prefill and decode are the
// same arithmetic. A tile is one head (or a block of channels) of one sequence: its state stays in
// cache while its tokens run.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu_scratch.h"

namespace cellm {
namespace {

// ln(1 + e^x); the reference returns x itself above 20, where both agree to float precision.
float Softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

}  // namespace

void CpuBackend::ShortConv(const StepContext& step, int32_t layer, const ShortConvSpec& spec,
                           Rows x, Rows y) {
  const int32_t blocks = (spec.channels + kConvBlock - 1) / kConvBlock;
  const int32_t taps = spec.taps;
  const int64_t work = int64_t{step.rows} * spec.channels * taps;
  ForTiles(static_cast<int32_t>(step.sequences.size()) * blocks, work,
           [&](int32_t tile, int32_t worker) {
             const SequenceSlice& sequence = step.sequences[static_cast<size_t>(tile / blocks)];
             const int32_t first = tile % blocks * kConvBlock;
             const int32_t count = std::min(kConvBlock, spec.channels - first);
             // Weights by tap, so that channels are neighbours, and a ring of columns: slot (head +
             // m) % taps holds the column of tap m.
             float* const weights = scratch_->General(worker);
             float* const ring = weights + int64_t{taps} * kConvBlock;
             float* const tail = sequence.layers[layer].conv;
             const size_t bytes = static_cast<size_t>(count) * sizeof(float);
             for (int32_t m = 0; m < taps; ++m) {
               float* const w = weights + m * kConvBlock;
               for (int32_t c = 0; c < count; ++c)
                 w[c] = spec.weight[int64_t{first + c} * taps + m];
             }
             for (int32_t i = 0; i + 1 < taps; ++i) {
               float* const column = ring + i * kConvBlock;
               if (tail == nullptr) {
                 std::memset(column, 0, bytes);
               } else {
                 std::memcpy(column, tail + int64_t{i} * spec.channels + first, bytes);
               }
             }
             int32_t head = 0;
             const auto column = [&](int32_t m) { return ring + (head + m) % taps * kConvBlock; };
             for (int32_t r = sequence.row_begin; r < sequence.row_begin + sequence.row_count;
                  ++r) {
               std::memcpy(column(taps - 1), x.row(r) + first, bytes);
               float* const out = y.row(r) + first;
               if (spec.bias == nullptr) {
                 std::memset(out, 0, bytes);
               } else {
                 std::memcpy(out, spec.bias + first, bytes);
               }
               for (int32_t m = 0; m < taps; ++m) {
                 kernels_.mul_add_f32(weights + m * kConvBlock, column(m), count, out);
               }
               if (spec.activation == Activation::kSilu) {
                 ActivateRow(Activation::kSilu, out, nullptr, count, out);
               }
               head = (head + 1) % taps;
             }
             for (int32_t i = 0; tail != nullptr && i + 1 < taps; ++i) {
               std::memcpy(tail + int64_t{i} * spec.channels + first, column(i), bytes);
             }
           });
}

void CpuBackend::DeltaRule(const StepContext& step, int32_t layer, const DeltaRuleSpec& spec,
                           Rows qkv, Rows b, Rows a, Rows out) {
  const int32_t kd = spec.k_dim;
  const int32_t vd = spec.v_dim;
  const float q_scale = 1.0f / std::sqrt(static_cast<float>(kd));
  const auto normalise = [this, kd](const float* x, float factor, float* y) {
    const float inverse = 1.0f / std::sqrt(kernels_.dot_f32(x, x, kd) + 1e-6f);
    for (int32_t i = 0; i < kd; ++i) y[i] = x[i] * inverse * factor;
  };
  const int64_t work = int64_t{4} * step.rows * spec.v_heads * kd * vd;
  ForTiles(static_cast<int32_t>(step.sequences.size()) * spec.v_heads, work,
           [&](int32_t tile, int32_t worker) {
             const SequenceSlice& sequence =
                 step.sequences[static_cast<size_t>(tile / spec.v_heads)];
             const int32_t head = tile % spec.v_heads;
             const int32_t k_head = head / (spec.v_heads / spec.k_heads);
             float* const q = scratch_->General(worker);
             float* const k = q + int64_t{kDeltaTokens} * kd;
             float* const decay = k + int64_t{kDeltaTokens} * kd;
             float* const beta = decay + kDeltaTokens;
             const float rate = -std::exp(spec.a_log[head]);
             const int32_t end = sequence.row_begin + sequence.row_count;
             for (int32_t begin = sequence.row_begin; begin < end; begin += kDeltaTokens) {
               const int32_t tokens = std::min(kDeltaTokens, end - begin);
               for (int32_t t = 0; t < tokens; ++t) {
                 const float* const row = qkv.row(begin + t);
                 normalise(row + int64_t{k_head} * kd, q_scale, q + int64_t{t} * kd);
                 normalise(row + (int64_t{spec.k_heads} + k_head) * kd, 1.0f, k + int64_t{t} * kd);
                 decay[t] = std::exp(rate * Softplus(a.row(begin + t)[head] + spec.dt_bias[head]));
                 beta[t] = 1.0f / (1.0f + std::exp(-b.row(begin + t)[head]));
               }
               const int64_t v_at = 2 * int64_t{spec.k_heads} * kd + int64_t{head} * vd;
               const kernels::DeltaRuleArgs args{
                   .state = sequence.layers[layer].recurrent + int64_t{head} * kd * vd,
                   .state_stride = vd,
                   .k_dim = kd,
                   .columns = vd,
                   .tokens = tokens,
                   .q = q,
                   .k = k,
                   .v = qkv.row(begin) + v_at,
                   .v_stride = qkv.stride,
                   .decay = decay,
                   .beta = beta,
                   .out = out.row(begin) + int64_t{head} * vd,
                   .out_stride = out.stride};
               kernels_.delta_rule_f32(&args);
             }
           });
}

void CpuBackend::SelectiveState(const StepContext& step, int32_t layer,
                                const SelectiveStateSpec& spec, Rows xbc, Rows dt, Rows out) {
  const int32_t width = spec.heads * spec.head_dim;
  const int32_t n = spec.state_size;
  const int64_t work = int64_t{3} * step.rows * width * n;
  ForTiles(
      static_cast<int32_t>(step.sequences.size()) * spec.heads, work, [&](int32_t tile, int32_t) {
        const SequenceSlice& sequence = step.sequences[static_cast<size_t>(tile / spec.heads)];
        const int32_t head = tile % spec.heads;
        const int32_t group = head / (spec.heads / spec.groups);
        float* const state = sequence.layers[layer].recurrent + int64_t{head} * spec.head_dim * n;
        const float rate = -std::exp(spec.a_log[head]);
        for (int32_t r = sequence.row_begin; r < sequence.row_begin + sequence.row_count; ++r) {
          const float* const row = xbc.row(r);
          const float* const x = row + int64_t{head} * spec.head_dim;
          const float* const b = row + width + int64_t{group} * n;
          const float* const c = row + width + (int64_t{spec.groups} + group) * n;
          float* const o = out.row(r) + int64_t{head} * spec.head_dim;
          const float time = Softplus(dt.row(r)[head] + spec.dt_bias[head]);
          const float decay = std::exp(time * rate);
          for (int32_t p = 0; p < spec.head_dim; ++p) {
            float* const s = state + int64_t{p} * n;
            for (int32_t i = 0; i < n; ++i) s[i] *= decay;
            kernels_.axpy_f32(time * x[p], b, n, s);
            o[p] = kernels_.dot_f32(s, c, n) + spec.d[head] * x[p];
          }
        }
      });
}

}  // namespace cellm
