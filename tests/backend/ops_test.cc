// The ops of the CPU backend against their formulas in double, and against themselves under other
// chunkings and thread counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backend/cpu_backend.h"
#include "backend/measure_backend.h"
#include "base/rng.h"
#include "tensor/half.h"
#include "tensor/quantize.h"

namespace cellm {
namespace {

std::vector<float> Random(int64_t count, uint64_t seed, float scale = 1.0f) {
  Rng rng(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = (rng.NextFloat() * 2.0f - 1.0f) * scale;
  return values;
}

Rows View(std::vector<float>& values, int32_t rows) {
  const int32_t cols = static_cast<int32_t>(values.size()) / rows;
  return {values.data(), rows, cols, cols};
}

// A backend with scratch for whatever `pass` does.
struct Bench {
  kernels::ChosenKernels kernels;
  std::unique_ptr<platform::ThreadPool> pool;
  std::unique_ptr<CpuBackend> backend;

  explicit Bench(int32_t threads, ActivationMode mode = ActivationMode::kFloat32) {
    kernels = kernels::ChooseKernels("").value();
    pool = std::move(platform::ThreadPool::Create(threads)).value();
    backend = std::make_unique<CpuBackend>(kernels.table, *pool, mode);
  }
  template <typename Pass>
  void Run(const Pass& pass) {
    MeasureBackend measure;
    pass(measure);
    const Status status = backend->Reserve(measure.needs(), SystemAllocator());
    ASSERT_TRUE(status.ok()) << status.message();
    pass(*backend);
  }
};

// One sequence that continues at `position` with states of its own.
struct OneSequence {
  std::vector<float> recurrent, conv;
  LayerState layer;
  SequenceSlice slice;
  std::vector<int32_t> positions;
  StepContext step;

  void Make(size_t recurrent_floats, size_t conv_floats) {
    recurrent.assign(recurrent_floats, 0.0f);
    conv.assign(conv_floats, 0.0f);
  }
  const StepContext& At(int32_t position, int32_t rows) {
    layer.recurrent = recurrent.data();
    layer.conv = conv.data();
    slice = {0, rows, position, 1000, &layer};
    positions.resize(static_cast<size_t>(rows));
    std::iota(positions.begin(), positions.end(), position);
    step.rows = rows;
    step.positions = positions.data();
    step.sequences = {&slice, 1};
    return step;
  }
};

void ExpectClose(const std::vector<float>& got, const std::vector<double>& expected, double bound,
                 const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  double largest = 1e-30;
  for (const double value : expected) largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::fabs(static_cast<double>(got[i]) - expected[i]) / largest, bound)
        << what << " at " << i << ": " << got[i] << " for " << expected[i];
  }
}

// Runs a stateful op over `tokens` rows in chunks and with threads: all must give the same bits.
// `op` gets (backend, step, first row, rows, out).
void ExpectSameUnderChunks(
    int32_t tokens, int32_t out_cols, size_t recurrent, size_t conv,
    const std::vector<double>& expected, double bound,
    const std::function<void(Backend&, const StepContext&, int32_t, int32_t, Rows)>& op) {
  std::vector<float> first;
  for (const int32_t threads : {1, 3}) {
    for (const int32_t chunk : {tokens, 1, 7}) {
      Bench bench(threads);
      OneSequence sequence;
      sequence.Make(recurrent, conv);
      std::vector<float> out(static_cast<size_t>(tokens) * static_cast<size_t>(out_cols));
      for (int32_t t = 0; t < tokens; t += chunk) {
        const int32_t rows = std::min(chunk, tokens - t);
        const StepContext& step = sequence.At(t, rows);
        const Rows part{out.data() + int64_t{t} * out_cols, rows, out_cols, out_cols};
        bench.Run([&](Backend& backend) { op(backend, step, t, rows, part); });
      }
      if (first.empty()) {
        first = out;
        ExpectClose(out, expected, bound, "against the formula");
      }
      EXPECT_EQ(std::memcmp(out.data(), first.data(), out.size() * sizeof(float)), 0)
          << "chunk " << chunk << " threads " << threads;
    }
  }
}

double Softplus(double x) { return std::log1p(std::exp(x)); }
double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

TEST(Ops, ShortConv) {
  const int32_t tokens = 23, channels = 300, taps = 4;
  const std::vector<float> weight = Random(channels * taps, 1);
  const std::vector<float> bias = Random(channels, 2);
  std::vector<float> x = Random(tokens * channels, 3);
  for (const bool silu : {false, true}) {
    std::vector<double> expected;
    for (int32_t t = 0; t < tokens; ++t) {
      for (int32_t c = 0; c < channels; ++c) {
        double sum = static_cast<double>(bias[static_cast<size_t>(c)]);
        for (int32_t m = 0; m < taps; ++m) {
          const int32_t at = t - taps + 1 + m;
          if (at < 0) continue;
          sum += static_cast<double>(weight[static_cast<size_t>(c * taps + m)]) *
                 static_cast<double>(x[static_cast<size_t>(at * channels + c)]);
        }
        expected.push_back(silu ? sum * Sigmoid(sum) : sum);
      }
    }
    ShortConvSpec spec{channels, taps, weight.data(), bias.data(),
                       silu ? Activation::kSilu : Activation::kNone};
    ExpectSameUnderChunks(
        tokens, channels, 0, static_cast<size_t>(channels * (taps - 1)), expected, 1e-6,
        [&](Backend& backend, const StepContext& step, int32_t t, int32_t rows, Rows out) {
          const Rows in{x.data() + int64_t{t} * channels, rows, channels, channels};
          backend.ShortConv(step, 0, spec, in, out);
        });
    // In place.
    Bench bench(2);
    OneSequence sequence;
    sequence.Make(0, static_cast<size_t>(channels * (taps - 1)));
    std::vector<float> same = x;
    bench.Run([&](Backend& backend) {
      backend.ShortConv(sequence.At(0, tokens), 0, spec, View(same, tokens), View(same, tokens));
    });
    ExpectClose(same, expected, 1e-6, "in place");
  }
}

TEST(Ops, DeltaRule) {
  const int32_t tokens = 20, hk = 2, hv = 4, dk = 24, dv = 16;
  const int32_t width = 2 * hk * dk + hv * dv;
  const std::vector<float> qkv = Random(tokens * width, 11);
  const std::vector<float> b = Random(tokens * hv, 12, 2.0f);
  const std::vector<float> a = Random(tokens * hv, 13, 2.0f);
  const std::vector<float> a_log = Random(hv, 14);
  const std::vector<float> dt_bias = Random(hv, 15);
  std::vector<double> expected(static_cast<size_t>(tokens * hv * dv));
  for (int32_t h = 0; h < hv; ++h) {
    std::vector<double> state(static_cast<size_t>(dk * dv), 0.0);
    const int32_t kh = h / (hv / hk);
    for (int32_t t = 0; t < tokens; ++t) {
      const float* const row = qkv.data() + t * width;
      const auto unit = [&](const float* x, double factor) {
        double sum = 1e-6;
        for (int32_t i = 0; i < dk; ++i)
          sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
        std::vector<double> y;
        for (int32_t i = 0; i < dk; ++i)
          y.push_back(static_cast<double>(x[i]) / std::sqrt(sum) * factor);
        return y;
      };
      const std::vector<double> q = unit(row + kh * dk, 1.0 / std::sqrt(static_cast<double>(dk)));
      const std::vector<double> k = unit(row + (hk + kh) * dk, 1.0);
      const float* const v = row + 2 * hk * dk + h * dv;
      const size_t at = static_cast<size_t>(t * hv + h);
      const double g = -std::exp(static_cast<double>(a_log[static_cast<size_t>(h)])) *
                       Softplus(static_cast<double>(a[at]) +
                                static_cast<double>(dt_bias[static_cast<size_t>(h)]));
      const double beta = Sigmoid(static_cast<double>(b[at]));
      for (double& s : state) s *= std::exp(g);
      for (int32_t j = 0; j < dv; ++j) {
        double r = 0.0;
        for (int32_t i = 0; i < dk; ++i)
          r += state[static_cast<size_t>(i * dv + j)] * k[static_cast<size_t>(i)];
        const double delta = beta * (static_cast<double>(v[j]) - r);
        double o = 0.0;
        for (int32_t i = 0; i < dk; ++i) {
          double& s = state[static_cast<size_t>(i * dv + j)];
          s += k[static_cast<size_t>(i)] * delta;
          o += s * q[static_cast<size_t>(i)];
        }
        expected[static_cast<size_t>((t * hv + h) * dv + j)] = o;
      }
    }
  }
  const DeltaRuleSpec spec{hk, hv, dk, dv, a_log.data(), dt_bias.data()};
  const auto part = [](const std::vector<float>& values, int32_t t, int32_t rows, int32_t cols) {
    return Rows{const_cast<float*>(values.data()) + t * cols, rows, cols, cols};
  };
  ExpectSameUnderChunks(
      tokens, hv * dv, static_cast<size_t>(hv * dk * dv), 0, expected, 2e-6,
      [&](Backend& backend, const StepContext& step, int32_t t, int32_t rows, Rows out) {
        backend.DeltaRule(step, 0, spec, part(qkv, t, rows, width), part(b, t, rows, hv),
                          part(a, t, rows, hv), out);
      });
}

TEST(Ops, SelectiveState) {
  const int32_t tokens = 19, heads = 6, dh = 8, n = 20, groups = 2;
  const int32_t width = heads * dh + 2 * groups * n;
  const std::vector<float> xbc = Random(tokens * width, 21);
  const std::vector<float> dt = Random(tokens * heads, 22, 2.0f);
  const std::vector<float> a_log = Random(heads, 23);
  const std::vector<float> dt_bias = Random(heads, 24);
  const std::vector<float> d = Random(heads, 25);
  std::vector<double> expected(static_cast<size_t>(tokens * heads * dh));
  for (int32_t h = 0; h < heads; ++h) {
    std::vector<double> state(static_cast<size_t>(dh * n), 0.0);
    const size_t hi = static_cast<size_t>(h);
    for (int32_t t = 0; t < tokens; ++t) {
      const float* const row = xbc.data() + t * width;
      const float* const b = row + heads * dh + h / (heads / groups) * n;
      const float* const c = b + groups * n;
      const double time = Softplus(static_cast<double>(dt[static_cast<size_t>(t * heads + h)]) +
                                   static_cast<double>(dt_bias[hi]));
      const double decay = std::exp(-std::exp(static_cast<double>(a_log[hi])) * time);
      for (int32_t p = 0; p < dh; ++p) {
        const double x = static_cast<double>(row[h * dh + p]);
        double y = static_cast<double>(d[hi]) * x;
        for (int32_t i = 0; i < n; ++i) {
          double& s = state[static_cast<size_t>(p * n + i)];
          s = s * decay + time * x * static_cast<double>(b[i]);
          y += s * static_cast<double>(c[i]);
        }
        expected[static_cast<size_t>((t * heads + h) * dh + p)] = y;
      }
    }
  }
  const SelectiveStateSpec spec{heads, dh, n, groups, a_log.data(), dt_bias.data(), d.data()};
  ExpectSameUnderChunks(
      tokens, heads * dh, static_cast<size_t>(heads * dh * n), 0, expected, 2e-6,
      [&](Backend& backend, const StepContext& step, int32_t t, int32_t rows, Rows out) {
        const Rows in{const_cast<float*>(xbc.data()) + t * width, rows, width, width};
        const Rows times{const_cast<float*>(dt.data()) + t * heads, rows, heads, heads};
        backend.SelectiveState(step, 0, spec, in, times, out);
      });
}

TEST(Ops, RouteExperts) {
  const int32_t rows = 40, experts = 9, top_k = 3;
  std::vector<float> logits = Random(rows * experts, 31, 3.0f);
  logits[1] = logits[4];  // a tie: the lower expert wins
  logits[0] = logits[2] = logits[3] = -9.0f;
  const std::vector<float> bias = Random(experts, 32, 0.5f);
  const std::vector<float> per_expert = Random(experts, 33);
  const struct {
    const char* name;
    RouterSpec spec;
  } cases[] = {
      {"R1", {RouterKind::kSoftmaxAll, experts, top_k}},
      {"R1 normalised", {RouterKind::kSoftmaxAll, experts, top_k, true}},
      {"R2", {RouterKind::kSoftmaxTopK, experts, top_k}},
      {"R3", {RouterKind::kSigmoid, experts, top_k, true, 1e-6f, 2.5f, bias.data()}},
      {"R4",
       {RouterKind::kSoftmaxAll, experts, top_k, true, 0.0f, 1.0f, nullptr, per_expert.data()}},
  };
  for (const auto& test : cases) {
    std::vector<int32_t> ids(static_cast<size_t>(rows * top_k));
    std::vector<float> weights(ids.size());
    Bench bench(2);
    bench.Run([&](Backend& backend) {
      backend.RouteExperts(test.spec, View(logits, rows),
                           {ids.data(), weights.data(), rows, top_k});
    });
    for (int32_t r = 0; r < rows; ++r) {
      const float* const row = logits.data() + r * experts;
      std::vector<double> value(static_cast<size_t>(experts));
      double sum = 0.0;
      for (int32_t e = 0; e < experts; ++e) sum += std::exp(static_cast<double>(row[e]));
      for (int32_t e = 0; e < experts; ++e) {
        const double l = static_cast<double>(row[e]);
        value[static_cast<size_t>(e)] =
            test.spec.kind == RouterKind::kSigmoid ? Sigmoid(l) : std::exp(l) / sum;
      }
      std::vector<int32_t> order(static_cast<size_t>(experts));
      std::iota(order.begin(), order.end(), 0);
      const auto rank = [&](int32_t e) {
        return value[static_cast<size_t>(e)] +
               (test.spec.bias != nullptr ? static_cast<double>(bias[static_cast<size_t>(e)])
                                          : 0.0);
      };
      std::stable_sort(order.begin(), order.end(),
                       [&](int32_t x, int32_t y) { return rank(x) > rank(y); });
      order.resize(static_cast<size_t>(top_k));
      std::sort(order.begin(), order.end());
      double chosen = 0.0;
      for (const int32_t e : order) chosen += value[static_cast<size_t>(e)];
      for (int32_t i = 0; i < top_k; ++i) {
        const int32_t e = order[static_cast<size_t>(i)];
        double weight = value[static_cast<size_t>(e)];
        if (test.spec.normalise || test.spec.kind == RouterKind::kSoftmaxTopK) {
          weight /= chosen + static_cast<double>(test.spec.normalise_eps);
        }
        weight *= static_cast<double>(test.spec.scale);
        if (test.spec.per_expert != nullptr) {
          weight *= static_cast<double>(per_expert[static_cast<size_t>(e)]);
        }
        const size_t at = static_cast<size_t>(r * top_k + i);
        ASSERT_EQ(ids[at], e) << test.name << " row " << r;
        ASSERT_NEAR(static_cast<double>(weights[at]), weight, 1e-6) << test.name << " row " << r;
      }
    }
  }
}

Weight DenseWeight(const std::vector<float>& values, int32_t rows, int32_t cols) {
  Weight weight;
  weight.kind = WeightKind::kDense;
  weight.rows = rows;
  weight.cols = cols;
  weight.dense = reinterpret_cast<const uint8_t*>(values.data());
  return weight;
}

TEST(Ops, ExpertMlp) {
  const int32_t rows = 150, cols = 40, inner = 24, out_cols = 36, experts = 5, top_k = 2;
  std::vector<std::vector<float>> storage;
  std::vector<Weight> gate, up, down;
  for (int32_t e = 0; e < experts; ++e) {
    for (const int32_t which : {0, 1, 2}) {
      const int32_t r = which == 2 ? out_cols : inner;
      const int32_t c = which == 2 ? inner : cols;
      storage.push_back(Random(r * c, static_cast<uint64_t>(100 + 3 * e + which), 0.3f));
      (which == 0 ? gate : which == 1 ? up : down).push_back(DenseWeight(storage.back(), r, c));
    }
  }
  std::vector<float> x = Random(rows * cols, 41);
  // Expert 3 is chosen by nobody, expert 0 by every row.
  std::vector<int32_t> ids;
  for (int32_t r = 0; r < rows; ++r) {
    ids.push_back(0);
    ids.push_back(r % 3 == 0 ? 1 : r % 3 == 1 ? 2 : 4);
  }
  std::vector<float> weights = Random(rows * top_k, 42);
  std::vector<double> expected;
  for (int32_t r = 0; r < rows; ++r) {
    std::vector<double> sum(static_cast<size_t>(out_cols), 0.0);
    for (int32_t i = 0; i < top_k; ++i) {
      const size_t e = static_cast<size_t>(ids[static_cast<size_t>(r * top_k + i)]);
      const auto product = [&](size_t which, int32_t row, const std::vector<double>& in) {
        double s = 0.0;
        for (size_t c = 0; c < in.size(); ++c) {
          s += in[c] * static_cast<double>(
                           storage[3 * e + which][static_cast<size_t>(row) * in.size() + c]);
        }
        return s;
      };
      const std::vector<double> in(x.begin() + r * cols, x.begin() + (r + 1) * cols);
      std::vector<double> h;
      for (int32_t j = 0; j < inner; ++j) {
        const double g = product(0, j, in);
        h.push_back(g * Sigmoid(g) * product(1, j, in));
      }
      for (int32_t j = 0; j < out_cols; ++j) {
        sum[static_cast<size_t>(j)] +=
            static_cast<double>(weights[static_cast<size_t>(r * top_k + i)]) * product(2, j, h);
      }
    }
    expected.insert(expected.end(), sum.begin(), sum.end());
  }
  ExpertSpec spec{gate, up, down, Activation::kSilu, inner};
  std::vector<float> whole(expected.size());
  for (const int32_t threads : {1, 3}) {
    for (const int32_t chunk : {rows, 1, 11}) {
      std::vector<float> out(expected.size());
      Bench bench(threads);
      for (int32_t r = 0; r < rows; r += chunk) {
        const int32_t count = std::min(chunk, rows - r);
        const Routing routing{ids.data() + r * top_k, weights.data() + r * top_k, count, top_k};
        bench.Run([&](Backend& backend) {
          backend.ExpertMlp({x.data() + r * cols, count, cols, cols}, spec, routing,
                            {out.data() + r * out_cols, count, out_cols, out_cols});
        });
      }
      if (threads == 1 && chunk == rows) {
        whole = out;
        ExpectClose(out, expected, 2e-6, "ExpertMlp");
      }
      EXPECT_EQ(std::memcmp(out.data(), whole.data(), out.size() * sizeof(float)), 0)
          << threads << " " << chunk;
    }
  }
}

TEST(Ops, LinearAndGatedLinear) {
  const int32_t rows = 70, cols = 48, outs = 40;  // two blocks of tokens, a ragged last tile
  const std::vector<float> w1 = Random(outs * cols, 51);
  const std::vector<float> w2 = Random(outs * cols, 52);
  const std::vector<float> b1 = Random(outs, 53);
  const std::vector<float> b2 = Random(outs, 54);
  std::vector<float> x = Random(rows * cols, 55);
  const Weight first = DenseWeight(w1, outs, cols);
  const Weight second = DenseWeight(w2, outs, cols);
  std::vector<double> y1, y2, gated;
  for (int32_t r = 0; r < rows; ++r) {
    for (int32_t o = 0; o < outs; ++o) {
      double p = static_cast<double>(b1[static_cast<size_t>(o)]);
      double q = static_cast<double>(b2[static_cast<size_t>(o)]);
      for (int32_t c = 0; c < cols; ++c) {
        const double v = static_cast<double>(x[static_cast<size_t>(r * cols + c)]);
        p += v * static_cast<double>(w1[static_cast<size_t>(o * cols + c)]);
        q += v * static_cast<double>(w2[static_cast<size_t>(o * cols + c)]);
      }
      y1.push_back(p);
      y2.push_back(q);
      gated.push_back(p * Sigmoid(p) * q);
    }
  }
  for (const int32_t threads : {1, 2}) {
    std::vector<float> out1(y1.size()), out2(y1.size()), out3(y1.size());
    Bench bench(threads);
    bench.Run([&](Backend& backend) {
      const LinearPart parts[] = {{&first, b1.data(), View(out1, rows)},
                                  {&second, b2.data(), View(out2, rows)}};
      backend.Linear(View(x, rows), parts);
      backend.GatedLinear(View(x, rows), {&first, b1.data(), {}}, {&second, b2.data(), {}},
                          Activation::kSilu, View(out3, rows));
    });
    ExpectClose(out1, y1, 1e-6, "first");
    ExpectClose(out2, y2, 1e-6, "second");
    ExpectClose(out3, gated, 1e-6, "gated");
  }
}

// Weights that are stored quantised: float activations give the decoded rows' product, 8-bit ones
// stay within the rounding of the activations; both ways of preparing agree.
TEST(Ops, QuantisedWeightsArePreparedWithoutLoss) {
  const int32_t outs = 37, cols = 96, rows = 9;
  std::vector<float> dense = Random(outs * cols, 61);
  std::vector<uint8_t> codes(static_cast<size_t>(outs * cols));
  std::vector<uint16_t> scales(static_cast<size_t>(outs));
  for (int32_t r = 0; r < outs; ++r) {
    EncodeV1I8Row(dense.data() + r * cols, cols, codes.data() + r * cols,
                  &scales[static_cast<size_t>(r)]);
  }
  Matrix matrix;
  matrix.format = Format::kI8V1;
  matrix.rows = outs;
  matrix.cols = cols;
  matrix.data = codes;
  matrix.scales = {reinterpret_cast<const uint8_t*>(scales.data()), scales.size() * 2};
  std::vector<float> x = Random(rows * cols, 62);
  std::vector<double> expected;
  for (int32_t r = 0; r < rows; ++r) {
    for (int32_t o = 0; o < outs; ++o) {
      double sum = 0.0;
      for (int32_t c = 0; c < cols; ++c) {
        sum += static_cast<double>(x[static_cast<size_t>(r * cols + c)]) *
               static_cast<double>(static_cast<int8_t>(codes[static_cast<size_t>(o * cols + c)])) *
               static_cast<double>(F16ToFloat(scales[static_cast<size_t>(o)]));
      }
      expected.push_back(sum);
    }
  }
  for (const ActivationMode mode : {ActivationMode::kFloat32, ActivationMode::kInt8}) {
    Bench bench(2, mode);
    const auto weight = bench.backend->Prepare(matrix, WeightUse::kLinear, SystemAllocator());
    ASSERT_TRUE(weight.ok()) << weight.status().message();
    EXPECT_EQ(weight->kind, WeightKind::kPacked);
    std::vector<float> out(expected.size());
    std::vector<float> looked_up(static_cast<size_t>(cols));
    std::vector<float> stored_row(static_cast<size_t>(cols));
    const std::vector<int32_t> token = {36};
    bench.Run([&](Backend& backend) {
      backend.Linear(View(x, rows), *weight, nullptr, View(out, rows));
      backend.Embed(*weight, token, 1.0f, View(looked_up, 1));
    });
    // 8-bit activations: half a step of 1/127 a column, averaged over 96 columns.
    ExpectClose(out, expected, mode == ActivationMode::kInt8 ? 0.01 : 1e-6, "packed");
    DecodeRow(matrix, 36, stored_row.data());
    EXPECT_EQ(looked_up, stored_row);
    const auto lookup = bench.backend->Prepare(matrix, WeightUse::kLookup, SystemAllocator());
    ASSERT_TRUE(lookup.ok());
    EXPECT_EQ(lookup->kind, WeightKind::kLookup);
    bench.Run([&](Backend& backend) { backend.Embed(*lookup, token, 1.0f, View(looked_up, 1)); });
    EXPECT_EQ(looked_up, stored_row);
  }
}

TEST(Ops, MisalignedWeightsAreCopied) {
  std::vector<uint8_t> bytes(1 + 2 * 8 * 16);
  for (size_t i = 0; i < 8 * 16; ++i) {
    const uint16_t half = FloatToBf16(static_cast<float>(i));
    std::memcpy(bytes.data() + 1 + 2 * i, &half, 2);
  }
  Matrix matrix;
  matrix.format = Format::kBF16;
  matrix.rows = 8;
  matrix.cols = 16;
  matrix.data = std::span(bytes).subspan(1);
  Bench bench(1);
  const auto weight = bench.backend->Prepare(matrix, WeightUse::kLinear, SystemAllocator());
  ASSERT_TRUE(weight.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(weight->dense) % 2, 0u);
  EXPECT_EQ(weight->dense_format, Format::kBF16);
  std::vector<float> row(16);
  const std::vector<int32_t> token = {5};
  bench.Run([&](Backend& backend) { backend.Embed(*weight, token, 2.0f, View(row, 1)); });
  for (size_t c = 0; c < 16; ++c) EXPECT_EQ(row[c], 2.0f * static_cast<float>(5 * 16 + c));
}

TEST(Ops, RowsOfSharesTheBytes) {
  const std::vector<float> values = Random(48 * 8, 71);
  const Weight weight = DenseWeight(values, 48, 8);
  const auto part = RowsOf(weight, 16, 20);
  ASSERT_TRUE(part.ok());
  EXPECT_EQ(part->rows, 20);
  EXPECT_EQ(part->dense, weight.dense + 16 * 8 * 4);
  EXPECT_EQ(RowsOf(weight, 40, 9).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(RowsOf(weight, -1, 2).status().code(), StatusCode::kInvalidArgument);
}

TEST(Ops, ElementwiseFormulas) {
  const int32_t rows = 5, cols = 300;
  const std::vector<float> x = Random(rows * cols, 81, 4.0f);
  const std::vector<float> y = Random(rows * cols, 82, 2.0f);
  const std::vector<float> w = Random(cols, 83);
  const auto d = [](float v) { return static_cast<double>(v); };
  const struct {
    Activation activation;
    double (*formula)(double);
  } activations[] = {
      {Activation::kNone, [](double v) { return v; }},
      {Activation::kSilu, [](double v) { return v * Sigmoid(v); }},
      {Activation::kGelu, [](double v) { return 0.5 * v * (1 + std::erf(v / std::sqrt(2.0))); }},
      {Activation::kGeluTanh,
       [](double v) {
         return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
       }},
      {Activation::kQuickGelu, [](double v) { return v * Sigmoid(1.702 * v); }},
      {Activation::kRelu, [](double v) { return std::max(v, 0.0); }},
      {Activation::kRelu2, [](double v) { return v > 0 ? v * v : 0.0; }},
      {Activation::kSigmoid, [](double v) { return Sigmoid(v); }},
      {Activation::kTanh, [](double v) { return std::tanh(v); }},
  };
  Bench bench(2);
  for (const auto& test : activations) {
    std::vector<float> a = x, b = y, out(x.size());
    std::vector<double> plain, gated;
    for (size_t i = 0; i < x.size(); ++i) {
      plain.push_back(test.formula(d(x[i])));
      gated.push_back(plain.back() * d(y[i]));
    }
    const std::string name = std::to_string(static_cast<int>(test.activation));
    bench.Run(
        [&](Backend& backend) { backend.Act(test.activation, View(a, rows), View(out, rows)); });
    ExpectClose(out, plain, 1e-6, "act " + name);
    bench.Run([&](Backend& backend) {
      backend.GatedAct(test.activation, View(a, rows), View(b, rows), View(a, rows));
    });
    ExpectClose(a, gated, 1e-6, "gated act " + name);
  }

  const auto check = [&](const char* name, double bound, const auto& op, const auto& formula) {
    std::vector<float> a = x, b = y;
    bench.Run([&](Backend& backend) { op(backend, View(a, rows), View(b, rows)); });
    std::vector<double> expected;
    for (size_t i = 0; i < x.size(); ++i) expected.push_back(formula(i));
    ExpectClose(a, expected, bound, name);
  };
  const auto row_of = [&](size_t i) { return i / static_cast<size_t>(cols); };
  const auto mean = [&](size_t i, const auto& f) {
    double sum = 0.0;
    for (int32_t c = 0; c < cols; ++c)
      sum += f(d(x[row_of(i) * static_cast<size_t>(cols) + static_cast<size_t>(c)]));
    return sum / cols;
  };
  check(
      "add", 1e-7, [](Backend& b, Rows p, Rows q) { b.Add(p, q, 0.3f); },
      [&](size_t i) { return d(x[i]) + d(0.3f) * d(y[i]); });
  check(
      "scale", 1e-7, [](Backend& b, Rows p, Rows) { b.Scale(p, 1.7f); },
      [&](size_t i) { return d(x[i]) * d(1.7f); });
  check(
      "mul", 1e-7, [](Backend& b, Rows p, Rows q) { b.Mul(p, q, p); },
      [&](size_t i) { return d(x[i]) * d(y[i]); });
  check(
      "mul vector", 1e-7, [&](Backend& b, Rows p, Rows) { b.MulVector(p, w.data()); },
      [&](size_t i) { return d(x[i]) * d(w[i % static_cast<size_t>(cols)]); });
  check(
      "soft cap", 1e-6, [](Backend& b, Rows p, Rows) { b.SoftCap(p, 2.5f); },
      [&](size_t i) { return 2.5 * std::tanh(d(x[i]) / 2.5); });
  check(
      "sigmoid gate", 1e-6, [](Backend& b, Rows p, Rows q) { b.SigmoidGate(p, q); },
      [&](size_t i) { return d(x[i]) * Sigmoid(d(y[i])); });
  check(
      "one gate a row", 1e-6, [](Backend& b, Rows p, Rows q) { b.SigmoidGate(p, q.Cols(3, 1)); },
      [&](size_t i) { return d(x[i]) * Sigmoid(d(y[row_of(i) * 300 + 3])); });
  check(
      "rms norm", 1e-6, [&](Backend& b, Rows p, Rows) { b.RmsNorm(p, w.data(), 1.0f, 1e-5f, p); },
      [&](size_t i) {
        return d(x[i]) / std::sqrt(mean(i, [](double v) { return v * v; }) + d(1e-5f)) *
               (1.0 + d(w[i % static_cast<size_t>(cols)]));
      });
  check(
      "layer norm", 1e-6,
      [&](Backend& b, Rows p, Rows) { b.LayerNorm(p, w.data(), w.data(), 1e-5f, p); },
      [&](size_t i) {
        const double m = mean(i, [](double v) { return v; });
        const double variance = mean(i, [m](double v) { return (v - m) * (v - m); });
        const double g = d(w[i % static_cast<size_t>(cols)]);
        return (d(x[i]) - m) / std::sqrt(variance + d(1e-5f)) * g + g;
      });
  check(
      "xielu", 1e-6, [](Backend& b, Rows p, Rows) { b.Xielu(0.9f, 1.1f, 0.5f, -1e-6f, p); },
      [&](size_t i) {
        const double v = d(x[i]);
        return v > 0 ? d(0.9f) * v * v + 0.5 * v
                     : d(1.1f) * (std::expm1(std::min(v, -1e-6)) - v) + 0.5 * v;
      });
  for (const bool gate_first : {false, true}) {
    check(
        "gated norm", 2e-6,
        [&](Backend& b, Rows p, Rows q) {
          b.GatedRmsNorm(p, q, w.data(), false, 100, 1e-5f, gate_first, p);
        },
        [&](size_t i) {
          const auto silu = [](double v) { return v * Sigmoid(v); };
          const size_t first = i / 100 * 100;
          double squares = 0.0;
          for (size_t j = first; j < first + 100; ++j) {
            const double v = d(x[j]) * (gate_first ? silu(d(y[j])) : 1.0);
            squares += v * v;
          }
          const double norm = 1.0 / std::sqrt(squares / 100 + d(1e-5f));
          return d(x[i]) * silu(d(y[i])) * norm * d(w[i % static_cast<size_t>(cols)]);
        });
  }
  check(
      "round to int8", 1e-6, [](Backend& b, Rows p, Rows) { b.RoundToInt8(p); },
      [&](size_t i) {
        float largest = 0.0f;
        for (size_t c = 0; c < 300; ++c)
          largest = std::max(largest, std::fabs(x[row_of(i) * 300 + c]));
        const float a = 127.0f / largest;
        return d(std::nearbyint(x[i] * a) / a);
      });
}

}  // namespace
}  // namespace cellm
