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
  ForTiles(
      static_cast<int32_t>(step.sequences.size()) * blocks, work,
      [&](int32_t tile, int32_t worker) {
        const SequenceSlice& sequence = step.sequences[static_cast<size_t>(tile / blocks)];
        const int32_t first = tile % blocks * kConvBlock;
        const int32_t count = std::min(kConvBlock, spec.channels - first);
        // window[i]: the i-th newest-but-(taps - 1 - i) column; a ring would save little at 3-4
        // taps.
        float* const window = scratch_->General(worker);
        float* const tail = sequence.layers[layer].conv;
        const size_t bytes = static_cast<size_t>(count) * sizeof(float);
        for (int32_t i = 0; i + 1 < taps; ++i) {
          std::memcpy(window + i * kConvBlock, tail + int64_t{i} * spec.channels + first, bytes);
        }
        for (int32_t r = sequence.row_begin; r < sequence.row_begin + sequence.row_count; ++r) {
          std::memcpy(window + (taps - 1) * kConvBlock, x.row(r) + first, bytes);
          float* const out = y.row(r) + first;
          for (int32_t c = 0; c < count; ++c) {
            const float* const w = spec.weight + int64_t{first + c} * taps;
            float sum = spec.bias == nullptr ? 0.0f : spec.bias[first + c];
            for (int32_t m = 0; m < taps; ++m)
              sum = std::fma(w[m], window[m * kConvBlock + c], sum);
            out[c] = sum;
          }
          if (spec.activation == Activation::kSilu) {
            ActivateRow(Activation::kSilu, out, nullptr, count, out);
          }
          std::memmove(window, window + kConvBlock,
                       static_cast<size_t>(taps - 1) * kConvBlock * sizeof(float));
        }
        for (int32_t i = 0; i + 1 < taps; ++i) {
          std::memcpy(tail + int64_t{i} * spec.channels + first, window + i * kConvBlock, bytes);
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
  ForTiles(
      static_cast<int32_t>(step.sequences.size()) * spec.v_heads, work,
      [&](int32_t tile, int32_t worker) {
        const SequenceSlice& sequence = step.sequences[static_cast<size_t>(tile / spec.v_heads)];
        const int32_t head = tile % spec.v_heads;
        const int32_t k_head = head / (spec.v_heads / spec.k_heads);
        float* const state = sequence.layers[layer].recurrent + int64_t{head} * kd * vd;
        float* const q = scratch_->General(worker);
        float* const k = q + kd;
        float* const delta = k + kd;
        const float rate = -std::exp(spec.a_log[head]);
        for (int32_t r = sequence.row_begin; r < sequence.row_begin + sequence.row_count; ++r) {
          const float* const row = qkv.row(r);
          normalise(row + int64_t{k_head} * kd, q_scale, q);
          normalise(row + (int64_t{spec.k_heads} + k_head) * kd, 1.0f, k);
          const float* const v = row + 2 * int64_t{spec.k_heads} * kd + int64_t{head} * vd;
          const float decay = std::exp(rate * Softplus(a.row(r)[head] + spec.dt_bias[head]));
          const float beta = 1.0f / (1.0f + std::exp(-b.row(r)[head]));
          for (int32_t j = 0; j < vd; ++j) delta[j] = 0.0f;
          for (int32_t i = 0; i < kd; ++i) {
            float* const s = state + int64_t{i} * vd;
            for (int32_t j = 0; j < vd; ++j) s[j] *= decay;
            kernels_.axpy_f32(k[i], s, vd, delta);
          }
          for (int32_t j = 0; j < vd; ++j) delta[j] = beta * (v[j] - delta[j]);
          float* const o = out.row(r) + int64_t{head} * vd;
          for (int32_t j = 0; j < vd; ++j) o[j] = 0.0f;
          for (int32_t i = 0; i < kd; ++i) {
            float* const s = state + int64_t{i} * vd;
            kernels_.axpy_f32(k[i], delta, vd, s);
            kernels_.axpy_f32(q[i], s, vd, o);
          }
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
