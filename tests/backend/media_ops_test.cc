// The ops that towers need: against plain loops in the order that backend.h states (equal bits), or
// against their formulas in double, on every tier and with one and three threads (equal bits).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backend/cpu_backend.h"
#include "backend/measure_backend.h"
#include "base/rng.h"
#include "tensor/half.h"

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

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Runs `op(backend, out)` on every tier that this CPU has and with one and three threads; all must
// give the bits of the first run, which is returned. `out` begins as NaN.
template <typename Op>
std::vector<float> RunEverywhere(size_t count, const Op& op) {
  std::vector<float> first;
  for (const kernels::Tier& tier : kernels::AllTiers()) {
    if (!tier.runs_here()) continue;
    const auto chosen = kernels::ChooseKernels(tier.name);
    EXPECT_TRUE(chosen.ok()) << tier.name;
    for (const int32_t threads : {1, 3}) {
      const auto pool = std::move(platform::ThreadPool::Create(threads)).value();
      CpuBackend backend(chosen->table, *pool, ActivationMode::kFloat32);
      std::vector<float> out(count, std::numeric_limits<float>::quiet_NaN());
      MeasureBackend measure;
      op(measure, out);
      EXPECT_TRUE(backend.Reserve(measure.needs(), SystemAllocator()).ok());
      op(backend, out);
      if (first.empty()) first = out;
      EXPECT_TRUE(SameBits(first, out)) << tier.name << ", " << threads << " threads";
    }
  }
  return first;
}

void ExpectClose(const std::vector<float>& got, const std::vector<double>& expected, double bound) {
  ASSERT_EQ(got.size(), expected.size());
  double largest = 1e-30;
  for (const double value : expected) largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::fabs(static_cast<double>(got[i]) - expected[i]) / largest, bound)
        << "at " << i << ": " << got[i] << " for " << expected[i];
  }
}

Weight Dense(const std::vector<uint8_t>& bytes, Format format, int32_t rows, int32_t cols) {
  Weight weight;
  weight.kind = WeightKind::kDense;
  weight.rows = rows;
  weight.cols = cols;
  weight.dense_format = format;
  weight.dense = bytes.data();
  return weight;
}

TEST(MediaOps, EmbedTapsAddsUpTableRows) {
  const int32_t entries = 23, cols = 100, rows = 301, taps = 3;
  const std::vector<float> values = Random(entries * cols, 1);
  std::vector<uint8_t> bytes(values.size() * 2);
  std::vector<float> stored(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half = FloatToBf16(values[i]);
    std::memcpy(bytes.data() + 2 * i, &half, 2);
    stored[i] = Bf16ToFloat(half);
  }
  const Weight table = Dense(bytes, Format::kBF16, entries, cols);
  const std::vector<float> weights = Random(rows * taps, 2);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < rows * taps; ++i) ids.push_back(i * 7 % entries);
  const std::vector<float> got = RunEverywhere(
      static_cast<size_t>(rows * cols), [&](Backend& backend, std::vector<float>& out) {
        backend.EmbedTaps(table, ids, weights.data(), taps, View(out, rows));
      });
  std::vector<float> expected(got.size());
  for (int32_t r = 0; r < rows; ++r) {
    for (int32_t c = 0; c < cols; ++c) {
      float sum = 0.0f;
      for (int32_t t = 0; t < taps; ++t) {
        const size_t at = static_cast<size_t>(r * taps + t);
        const float part = weights[at] * stored[static_cast<size_t>(ids[at] * cols + c)];
        sum = t == 0 ? part : sum + part;
      }
      expected[static_cast<size_t>(r * cols + c)] = sum;
    }
  }
  EXPECT_TRUE(SameBits(got, expected));
}

TEST(MediaOps, ScatterRowsReplacesOrAdds) {
  const int32_t rows = 400, cols = 60, count = 250;
  std::vector<float> x = Random(count * cols, 3);
  const std::vector<float> before = Random(rows * cols, 4);
  std::vector<int32_t> indices;
  for (int32_t i = 0; i < count; ++i) indices.push_back((i * 37 + 5) % rows);
  for (const bool add : {false, true}) {
    std::vector<float> expected = before;
    for (int32_t i = 0; i < count; ++i) {
      for (int32_t c = 0; c < cols; ++c) {
        float& to = expected[static_cast<size_t>(indices[static_cast<size_t>(i)] * cols + c)];
        const float from = x[static_cast<size_t>(i * cols + c)];
        to = add ? to + from : from;
      }
    }
    const std::vector<float> got =
        RunEverywhere(before.size(), [&](Backend& backend, std::vector<float>& out) {
          out = before;
          backend.ScatterRows(View(x, count), indices, add, View(out, rows));
        });
    EXPECT_TRUE(SameBits(got, expected)) << add;
  }
}

TEST(MediaOps, MeanRowsAddsInOrderThenDivides) {
  const int32_t rows = 90, cols = 130, group = 9;
  std::vector<float> x = Random(rows * group * cols, 5);
  std::vector<int32_t> indices;
  for (int32_t i = 0; i < rows * group; ++i) indices.push_back(i * 7 % (rows * group));
  const std::vector<float> got = RunEverywhere(
      static_cast<size_t>(rows * cols), [&](Backend& backend, std::vector<float>& out) {
        backend.MeanRows(View(x, rows * group), indices, group, View(out, rows));
      });
  std::vector<float> expected(got.size());
  for (int32_t r = 0; r < rows; ++r) {
    for (int32_t c = 0; c < cols; ++c) {
      float sum = 0.0f;
      for (int32_t i = 0; i < group; ++i) {
        const int32_t row = indices[static_cast<size_t>(r * group + i)];
        const float value = x[static_cast<size_t>(row * cols + c)];
        sum = i == 0 ? value : sum + value;
      }
      expected[static_cast<size_t>(r * cols + c)] = sum / static_cast<float>(group);
    }
  }
  EXPECT_TRUE(SameBits(got, expected));
}

// Planes of a picture without padding, and channels-last spectrograms with it.
TEST(MediaOps, WindowsAreThoseOfAConvolution) {
  struct Case {
    WindowsSpec spec;
    size_t values;
  };
  const Case cases[] = {
      {{3, 30, 33, 30 * 33, 33, 1, 8, 8, 0},
       3 * 30 * 33},  // the last rows and columns are left out
      {{5, 17, 12, 1, 12 * 5, 5, 3, 2, 1}, 17 * 12 * 5},
      {{1, 4, 4, 0, 4, 1, 3, 2, 1}, 16},
  };
  for (const Case& test : cases) {
    const WindowsSpec& s = test.spec;
    const std::vector<float> values = Random(static_cast<int64_t>(test.values), 6);
    const int32_t cols = s.channels * s.side * s.side;
    const int32_t windows = s.out_rows() * s.out_cols();
    std::vector<float> expected;
    for (int32_t i = 0; i < s.out_rows(); ++i) {
      for (int32_t j = 0; j < s.out_cols(); ++j) {
        for (int32_t c = 0; c < s.channels; ++c) {
          for (int32_t a = 0; a < s.side; ++a) {
            for (int32_t b = 0; b < s.side; ++b) {
              const int32_t y = i * s.step - s.padding + a;
              const int32_t x = j * s.step - s.padding + b;
              const bool inside = y >= 0 && x >= 0 && y < s.rows && x < s.cols;
              const int64_t at = c * s.channel_stride + y * s.row_stride + x * s.col_stride;
              expected.push_back(inside ? values[static_cast<size_t>(at)] : 0.0f);
            }
          }
        }
      }
    }
    ASSERT_EQ(expected.size(), static_cast<size_t>(windows * cols));
    // In two parts.
    const int32_t half = windows / 2;
    const std::vector<float> got =
        RunEverywhere(expected.size(), [&](Backend& backend, std::vector<float>& out) {
          const Rows all{out.data(), windows, cols, cols};
          backend.Windows(values.data(), s, half, all.Some(half, windows - half));
          if (half > 0) backend.Windows(values.data(), s, 0, all.Some(0, half));
        });
    EXPECT_TRUE(SameBits(got, expected));
  }
}

TEST(MediaOps, InputAddVectorAndClamp) {
  const int32_t rows = 70, cols = 300;
  const std::vector<float> x = Random(rows * cols, 7, 3.0f);
  const std::vector<float> vector = Random(cols, 8);
  const std::vector<float> got =
      RunEverywhere(x.size(), [&](Backend& backend, std::vector<float>& out) {
        backend.Input(x.data(), View(out, rows));
        backend.AddVector(View(out, rows), vector.data());
        backend.Clamp(View(out, rows), -0.5f, 1.25f, View(out, rows));
      });
  std::vector<float> expected;
  for (size_t i = 0; i < x.size(); ++i) {
    expected.push_back(std::clamp(x[i] + vector[i % static_cast<size_t>(cols)], -0.5f, 1.25f));
  }
  EXPECT_TRUE(SameBits(got, expected));

  const std::vector<float> odd = {std::numeric_limits<float>::quiet_NaN(), -INFINITY, INFINITY};
  const std::vector<float> clamped =
      RunEverywhere(odd.size(), [&](Backend& backend, std::vector<float>& out) {
        out = odd;
        backend.Clamp(View(out, 1), -1.0f, 2.0f, View(out, 1));
      });
  EXPECT_TRUE(std::isnan(clamped[0]));
  EXPECT_EQ(clamped[1], -1.0f);
  EXPECT_EQ(clamped[2], 2.0f);
}

TEST(MediaOps, LayerNormWithoutBias) {
  const int32_t rows = 9, cols = 77;
  const std::vector<float> x = Random(rows * cols, 9), weight = Random(cols, 10);
  const std::vector<float> zeros(static_cast<size_t>(cols), 0.0f);
  std::vector<std::vector<float>> results;
  for (const float* bias : {static_cast<const float*>(nullptr), zeros.data()}) {
    results.push_back(RunEverywhere(x.size(), [&](Backend& backend, std::vector<float>& out) {
      out = x;
      backend.LayerNorm(View(out, rows), weight.data(), bias, 1e-6f, View(out, rows));
    }));
  }
  for (size_t i = 0; i < results[0].size(); ++i) EXPECT_EQ(results[0][i], results[1][i]) << i;
}

TEST(MediaOps, AttendRelative) {
  const RelativeAttendSpec spec{3, 20, 12, 50.0f};
  const int32_t rows = 61, cols = spec.heads * spec.head_dim;
  std::vector<float> q = Random(rows * cols, 11, 4.0f), k = Random(rows * cols, 12, 4.0f);
  std::vector<float> v = Random(rows * cols, 13), distances = Random(spec.window * cols, 14, 3.0f);
  const std::vector<float> got =
      RunEverywhere(q.size(), [&](Backend& backend, std::vector<float>& out) {
        backend.AttendRelative(spec, View(q, rows), View(k, rows), View(v, rows),
                               View(distances, spec.window), View(out, rows));
      });
  const auto at = [&](const std::vector<float>& x, int32_t row, int32_t head, int32_t d) {
    return static_cast<double>(x[static_cast<size_t>(row * cols + head * spec.head_dim + d)]);
  };
  std::vector<double> expected;
  for (int32_t i = 0; i < rows; ++i) {
    for (int32_t h = 0; h < spec.heads; ++h) {
      std::vector<double> weights;
      const int32_t first = std::max(0, i - spec.window + 1);
      double sum = 0.0;
      for (int32_t j = first; j <= i; ++j) {
        double s = 0.0;
        for (int32_t d = 0; d < spec.head_dim; ++d) {
          s += at(q, i, h, d) * (at(k, j, h, d) + at(distances, i - j, h, d));
        }
        weights.push_back(std::exp(50.0 * std::tanh(s / 50.0) - 50.0));
        sum += weights.back();
      }
      for (int32_t d = 0; d < spec.head_dim; ++d) {
        double o = 0.0;
        for (int32_t j = first; j <= i; ++j) {
          o += weights[static_cast<size_t>(j - first)] * at(v, j, h, d);
        }
        expected.push_back(o / sum);
      }
    }
  }
  // Scores of tens in float: their error, times their size, is what the weights see.
  ExpectClose(got, expected, 2e-5);
}

// -- Attention whose rows look ahead

// Sequences of the given lengths with pages of their own; pages begin as NaN, so that a key beyond
// a row's end would show.
struct Sequences {
  std::vector<std::vector<float>> bytes;
  std::vector<std::vector<uint8_t*>> pages;
  std::vector<LayerState> states;
  std::vector<SequenceSlice> slices;

  Sequences(const std::vector<int32_t>& lengths, int32_t heads, int32_t head_dim) {
    const size_t count = lengths.size();
    bytes.resize(count);
    pages.resize(count);
    states.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const int32_t page_rows = (lengths[i] + 15) / 16 * 16;
      const size_t head_floats = static_cast<size_t>(page_rows) * static_cast<size_t>(head_dim);
      bytes[i].assign(2 * static_cast<size_t>(heads) * head_floats,
                      std::numeric_limits<float>::quiet_NaN());
      pages[i] = {reinterpret_cast<uint8_t*>(bytes[i].data())};
      states[i].kv.pages = pages[i].data();
      states[i].kv.page_tokens = page_rows;
      states[i].kv.places.v_offset = static_cast<size_t>(heads) * head_floats * 4;
      states[i].kv.places.k_head_stride = states[i].kv.places.v_head_stride = head_floats * 4;
    }
  }
};

TEST(MediaOps, RowsOfATileSeeAllOfIt) {
  const std::vector<int32_t> lengths = {5, 37, 1, 600};  // the last is more than one segment
  const int32_t heads = 3, dim = 20, rows = std::accumulate(lengths.begin(), lengths.end(), 0);
  AttendSpec spec;
  spec.heads = spec.kv_heads = heads;
  spec.head_dim = spec.head_dim_v = dim;
  spec.scale = 0.3f;
  spec.two_way = true;
  std::vector<float> q = Random(rows * heads * dim, 21, 2.0f);
  std::vector<float> k = Random(rows * heads * dim, 22, 2.0f);
  std::vector<float> v = Random(rows * heads * dim, 23);
  const std::vector<float> got =
      RunEverywhere(q.size(), [&](Backend& backend, std::vector<float>& out) {
        Sequences sequences(lengths, heads, dim);
        std::vector<int32_t> ends;
        StepContext step;
        step.rows = rows;
        step.kv_type = KvType::kF32;
        for (size_t i = 0; i < lengths.size(); ++i) {
          sequences.slices.push_back(
              {static_cast<int32_t>(ends.size()), lengths[i], 0, lengths[i], &sequences.states[i]});
          ends.insert(ends.end(), static_cast<size_t>(lengths[i]), lengths[i]);
        }
        step.sequences = sequences.slices;
        step.key_ends = ends.data();
        backend.StoreKv(step, 0, spec, View(k, rows), View(v, rows));
        backend.AttendPages(step, 0, spec, View(q, rows), View(out, rows));
      });
  const auto at = [&](const std::vector<float>& x, int32_t row, int32_t h, int32_t d) {
    return static_cast<double>(x[static_cast<size_t>((row * heads + h) * dim + d)]);
  };
  std::vector<double> expected;
  int32_t first = 0;
  for (const int32_t length : lengths) {
    for (int32_t i = first; i < first + length; ++i) {
      for (int32_t h = 0; h < heads; ++h) {
        std::vector<double> sums(static_cast<size_t>(dim), 0.0);
        double total = 0.0;
        for (int32_t j = first; j < first + length; ++j) {
          double s = 0.0;
          for (int32_t d = 0; d < dim; ++d) s += at(q, i, h, d) * at(k, j, h, d);
          const double p = std::exp(s * static_cast<double>(spec.scale));
          total += p;
          for (int32_t d = 0; d < dim; ++d) sums[static_cast<size_t>(d)] += p * at(v, j, h, d);
        }
        for (const double sum : sums) expected.push_back(sum / total);
      }
    }
    first += length;
  }
  ExpectClose(got, expected, 1e-5);
}

// A text of 40 with blocks [6, 22) and [22, 30) whose rows see each other, the window cutting what
// is far behind; whole and cut anywhere outside the blocks: the same bits.
TEST(MediaOps, BlocksSeeThemselvesUnderAnyCut) {
  const int32_t tokens = 40, heads = 2, dim = 24, window = 10;
  AttendSpec spec;
  spec.heads = heads;
  spec.kv_heads = 1;
  spec.head_dim = spec.head_dim_v = dim;
  spec.scale = 0.25f;
  spec.two_way = true;
  std::vector<int32_t> ends;
  for (int32_t i = 0; i < tokens; ++i) ends.push_back(i < 6 || i >= 30 ? i + 1 : i < 22 ? 22 : 30);
  std::vector<float> q = Random(tokens * heads * dim, 31, 2.0f);
  std::vector<float> k = Random(tokens * dim, 32, 2.0f);
  std::vector<float> v = Random(tokens * dim, 33);
  for (const int32_t width : {0, window}) {
    spec.window = width;
    const auto run = [&](const std::vector<int32_t>& cuts) {
      return RunEverywhere(q.size(), [&](Backend& backend, std::vector<float>& out) {
        Sequences sequences({tokens}, 1, dim);
        for (size_t c = 0; c + 1 < cuts.size(); ++c) {
          const int32_t begin = cuts[c];
          const int32_t rows = cuts[c + 1] - begin;
          const SequenceSlice slice{0, rows, begin, tokens, sequences.states.data()};
          StepContext step;
          step.rows = rows;
          step.kv_type = KvType::kF32;
          step.sequences = {&slice, 1};
          step.key_ends = ends.data() + begin;
          backend.StoreKv(step, 0, spec, View(k, tokens).Some(begin, rows),
                          View(v, tokens).Some(begin, rows));
          backend.AttendPages(step, 0, spec, View(q, tokens).Some(begin, rows),
                              View(out, tokens).Some(begin, rows));
        }
      });
    };
    const std::vector<float> whole = run({0, 40});
    EXPECT_TRUE(SameBits(whole, run({0, 3, 6, 22, 30, 31, 40}))) << width;
    EXPECT_TRUE(SameBits(whole, run({0, 5, 30, 40}))) << width;
    std::vector<double> expected;
    for (int32_t i = 0; i < tokens; ++i) {
      for (int32_t h = 0; h < heads; ++h) {
        std::vector<double> sums(static_cast<size_t>(dim), 0.0);
        double total = 0.0;
        for (int32_t j = 0; j < tokens; ++j) {
          if (j >= ends[static_cast<size_t>(i)] || (width > 0 && j <= i - width)) continue;
          double s = 0.0;
          for (int32_t d = 0; d < dim; ++d) {
            s += static_cast<double>(q[static_cast<size_t>((i * heads + h) * dim + d)]) *
                 static_cast<double>(k[static_cast<size_t>(j * dim + d)]);
          }
          const double p = std::exp(s * static_cast<double>(spec.scale));
          total += p;
          for (int32_t d = 0; d < dim; ++d) {
            sums[static_cast<size_t>(d)] +=
                p * static_cast<double>(v[static_cast<size_t>(j * dim + d)]);
          }
        }
        for (const double sum : sums) expected.push_back(sum / total);
      }
    }
    ExpectClose(whole, expected, 1e-5);
  }
}

TEST(MediaOps, RotaryPairsTurnByTheirAxis) {
  RopeSpec spec;
  spec.head_dim = spec.rotary_dim = 16;
  spec.inv_freq = {1.0f, 0.5f, 0.25f, 0.125f, 1.0f, 0.5f, 0.25f, 0.125f};
  spec.axes = {0, 1, 2, 0, 1, 2, 0, 1};
  const int32_t rows = 20;
  std::vector<int32_t> positions, axes;
  for (int32_t r = 0; r < rows; ++r) {
    positions.push_back(r);
    axes.insert(axes.end(), {r + 3, 2 * r, 40 - r});
  }
  const SequenceSlice slice{0, rows, 0, rows, nullptr};
  StepContext step;
  step.rows = rows;
  step.positions = positions.data();
  step.sequences = {&slice, 1};
  for (const bool given : {false, true}) {
    step.rope_positions = given ? axes.data() : nullptr;
    const std::vector<float> got =
        RunEverywhere(static_cast<size_t>(rows) * 16, [&](Backend& backend, std::vector<float>& o) {
          backend.RopeTable(step, spec, View(o, rows));
        });
    std::vector<double> expected;
    for (int32_t r = 0; r < rows; ++r) {
      for (size_t j = 0; j < 8; ++j) {
        const int32_t position = given ? axes[static_cast<size_t>(3 * r) + spec.axes[j]]
                                       : positions[static_cast<size_t>(r)];
        const double angle = position * static_cast<double>(spec.inv_freq[j]);
        expected.push_back(std::cos(angle));
        expected.push_back(std::sin(angle));
      }
    }
    ExpectClose(got, expected, 1e-7);
  }
}

TEST(MediaOps, ShortConvWithoutAStateStartsFromZeros) {
  const int32_t rows = 30, channels = 300, taps = 5;
  std::vector<float> x = Random(rows * channels, 41);
  const std::vector<float> weight = Random(channels * taps, 42);
  const ShortConvSpec spec{channels, taps, weight.data(), nullptr, Activation::kNone};
  std::vector<std::vector<float>> results;
  for (const bool kept : {false, true}) {
    results.push_back(RunEverywhere(x.size(), [&](Backend& backend, std::vector<float>& out) {
      std::vector<float> tail(static_cast<size_t>(channels * (taps - 1)), 0.0f);
      LayerState state;
      state.conv = kept ? tail.data() : nullptr;
      const SequenceSlice slice{0, rows, 0, rows, &state};
      StepContext step;
      step.rows = rows;
      step.sequences = {&slice, 1};
      backend.ShortConv(step, 0, spec, View(x, rows), View(out, rows));
    }));
  }
  EXPECT_TRUE(SameBits(results[0], results[1]));
}

}  // namespace
}  // namespace cellm
