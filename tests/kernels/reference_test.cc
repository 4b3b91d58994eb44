// The scalar kernels against double arithmetic: they define all other tiers, so they need a judge
// of their own. Bounds are derived from the steps (u = 2^-24 is half a unit in the last place of
// 1): a fused running sum of n terms is within n u of the sum of magnitudes, and so on; each is
// stated where it is used.  users.md row 100

#include <algorithm>

#include "kernels/kernel_testers.h"
#include "tensor/half.h"
#include "tensor/kv_type.h"
#include "tensor/packed.h"

namespace cellm::kernels {
namespace {

constexpr double kU = 0x1p-24;

// Units in the last place of the float nearest to `exact` between it and `value`.
double UlpsApart(float value, double exact) {
  const double magnitude = std::max(std::fabs(exact), 0x1p-126);
  const double ulp = std::ldexp(1.0, std::ilogb(magnitude) - 23);
  return std::fabs(static_cast<double>(value) - exact) / ulp;
}

std::vector<float> Sweep(float low, float high, int count, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> x;
  for (int i = 0; i < count; ++i) x.push_back(low + (high - low) * rng.NextFloat());
  // Small magnitudes of every exponent, both signs.
  for (int e = -149; e < 0; ++e) {
    x.push_back(std::ldexp(0.5f + 0.5f * rng.NextFloat(), e));
    x.push_back(-x.back());
  }
  return x;
}

TEST(ScalarReference, ExpIsWithinOneUlpAndTwoWhereSubnormal) {
  const std::vector<float> x = Sweep(-104.5f, 89.5f, 200000, 40);
  std::vector<float> y(x.size());
  scalar::exp_f32(x.data(), static_cast<int64_t>(x.size()), y.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    if (exact > static_cast<double>(std::numeric_limits<float>::max())) {
      ASSERT_TRUE(std::isinf(y[i])) << x[i];
    } else {
      ASSERT_LE(UlpsApart(y[i], exact), exact < 0x1p-126 ? 2.0 : 1.0) << x[i];
    }
  }
}

TEST(ScalarReference, ExpAtTheEnds) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float x[] = {
      infinity, -infinity, 0.0f, -0.0f, 200.0f, -200.0f, std::numeric_limits<float>::quiet_NaN()};
  float y[7];
  scalar::exp_f32(x, 7, y);
  EXPECT_EQ(y[0], infinity);
  EXPECT_EQ(y[1], 0.0f);
  EXPECT_EQ(y[2], 1.0f);
  EXPECT_EQ(y[3], 1.0f);
  EXPECT_EQ(y[4], infinity);
  EXPECT_EQ(y[5], 0.0f);
  EXPECT_TRUE(std::isnan(y[6]));
}

// The branch near zero: fit 0.2, three roundings. The other: 2 / (e + 1) < 0.45 carries 2.5 u of
// its own, the subtraction rounds once; results are above 0.55.
TEST(ScalarReference, TanhIsWithinTwoUlp) {
  const std::vector<float> x = Sweep(-12.0f, 12.0f, 200000, 41);
  std::vector<float> y(x.size());
  scalar::tanh_f32(x.data(), static_cast<int64_t>(x.size()), y.data());
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_LE(UlpsApart(y[i], std::tanh(static_cast<double>(x[i]))), 2.0) << x[i];
  }
}

// exp within 2 u, the sum, the quotient and the product one each, and the argument's own rounding
// counts as often as the argument is large: gelu's takes four steps.
TEST(ScalarReference, GatedActivations) {
  const std::vector<float> gate = Sweep(-20.0f, 20.0f, 50000, 42);
  const std::vector<float> up(gate.size(), 1.5f);
  const int64_t count = static_cast<int64_t>(gate.size());
  std::vector<float> silu(gate.size());
  std::vector<float> sigmoid(gate.size());
  std::vector<float> gelu(gate.size());
  scalar::silu_mul_f32(gate.data(), up.data(), count, silu.data());
  scalar::sigmoid_mul_f32(gate.data(), up.data(), count, sigmoid.data());
  scalar::gelu_tanh_mul_f32(gate.data(), up.data(), count, gelu.data());
  for (size_t i = 0; i < gate.size(); ++i) {
    const double g = static_cast<double>(gate[i]);
    const double s = 1.0 / (1.0 + std::exp(-g));
    const double tiny = 0x1p-140;
    ASSERT_NEAR(silu[i], g * s * 1.5, 6 * kU * std::fabs(g * s * 1.5) + tiny) << gate[i];
    ASSERT_NEAR(sigmoid[i], s * 1.5, 6 * kU * s * 1.5 + tiny) << gate[i];
    const double u = std::sqrt(2.0 / M_PI) * (g + 0.044715 * g * g * g);
    const double exact = g / (1.0 + std::exp(-2.0 * u)) * 1.5;
    // Where exp(-2 u) overflows the result is -0: the true value is below 1.5 |g| / 2^128.
    ASSERT_NEAR(gelu[i], exact, (6 + 8 * std::fabs(u)) * kU * std::fabs(exact) + 0x1p-122)
        << gate[i];
  }
}

TEST(ScalarReference, DotIsWithinItsSummationBound) {
  Rng rng(43);
  for (const int32_t n : {1, 15, 16, 17, 576, 4864}) {
    std::vector<float> a(static_cast<size_t>(n));
    std::vector<float> b(a.size());
    double exact = 0.0;
    double magnitude = 0.0;
    for (size_t i = 0; i < a.size(); ++i) {
      a[i] = MakeValue(Values::kWide, i, rng);
      b[i] = MakeValue(Values::kNoise, i, rng);
      exact += static_cast<double>(a[i]) * static_cast<double>(b[i]);
      magnitude += std::fabs(static_cast<double>(a[i]) * static_cast<double>(b[i]));
    }
    // n / 16 fused steps a lane and four levels of the fold.
    EXPECT_NEAR(scalar::dot_f32(a.data(), b.data(), n), exact, (n / 16 + 5) * kU * magnitude);
  }
}

// The state as a matrix in double: S = decay S, delta = beta (v - S^T k), S += k delta^T, out = S^T
// q.
TEST(ScalarReference, DeltaRuleFollowsItsMatrixForm) {
  Rng rng(47);
  constexpr int kDim = 24;
  constexpr int kColumns = 5;
  constexpr int kTokens = 6;
  const auto fill = [&rng](std::vector<float>* x) {
    for (float& v : *x) v = (rng.NextFloat() - 0.5f) * 0.5f;
  };
  std::vector<float> state(kDim * kColumns), q(kTokens * kDim), k(q.size());
  std::vector<float> v(kTokens * kColumns), out(v.size()), decay(kTokens), beta(kTokens);
  for (std::vector<float>* x : {&state, &q, &k, &v}) fill(x);
  for (float& d : decay) d = 0.5f + 0.5f * rng.NextFloat();
  for (float& b : beta) b = rng.NextFloat();
  std::vector<double> exact(state.begin(), state.end());
  const kernels::DeltaRuleArgs args = {state.data(), kColumns,   kDim,     kColumns, kTokens,
                                       q.data(),     k.data(),   v.data(), kColumns, decay.data(),
                                       beta.data(),  out.data(), kColumns};
  scalar::delta_rule_f32(&args);
  for (size_t t = 0; t < kTokens; ++t) {
    for (double& s : exact) s *= double{decay[t]};
    for (size_t j = 0; j < kColumns; ++j) {
      double held = 0;
      for (size_t i = 0; i < kDim; ++i) held += exact[i * kColumns + j] * double{k[t * kDim + i]};
      const double delta = double{beta[t]} * (double{v[t * kColumns + j]} - held);
      double o = 0;
      for (size_t i = 0; i < kDim; ++i) {
        exact[i * kColumns + j] += double{k[t * kDim + i]} * delta;
        o += exact[i * kColumns + j] * double{q[t * kDim + i]};
      }
      // All magnitudes are below 1: some 4 * kDim * kTokens roundings of at most kU each.
      EXPECT_NEAR(out[t * kColumns + j], o, 4 * kDim * kTokens * kU);
    }
  }
}

TEST(ScalarReference, MatmulsAreTheirDots) {
  Rng rng(44);
  constexpr int32_t kRows = 3;
  constexpr int32_t kCols = 50;
  std::vector<float> x(kCols);
  std::vector<float> w(kRows * kCols);
  std::vector<uint16_t> halves(w.size());
  std::vector<uint16_t> brains(w.size());
  for (float& v : x) v = rng.NextFloat() - 0.5f;
  for (size_t i = 0; i < w.size(); ++i) {
    w[i] = rng.NextFloat() - 0.5f;
    halves[i] = FloatToF16(w[i]);
    brains[i] = FloatToBf16(w[i]);
  }
  float f32[kRows];
  float f16[kRows];
  float bf16[kRows];
  scalar::matmul_f32_f32(w.data(), kCols, x.data(), kCols, kRows, kCols, 1, f32, kRows);
  scalar::matmul_f16_f32(halves.data(), kCols, x.data(), kCols, kRows, kCols, 1, f16, kRows);
  scalar::matmul_bf16_f32(brains.data(), kCols, x.data(), kCols, kRows, kCols, 1, bf16, kRows);
  for (int32_t r = 0; r < kRows; ++r) {
    double exact[3] = {};
    for (int32_t c = 0; c < kCols; ++c) {
      const size_t i = static_cast<size_t>(r * kCols + c);
      const double xc = static_cast<double>(x[static_cast<size_t>(c)]);
      exact[0] += static_cast<double>(w[i]) * xc;
      exact[1] += static_cast<double>(F16ToFloat(halves[i])) * xc;
      exact[2] += static_cast<double>(Bf16ToFloat(brains[i])) * xc;
    }
    const double bound = 9 * kU * kCols * 0.25;  // every product is at most a quarter
    EXPECT_NEAR(f32[r], exact[0], bound);
    EXPECT_NEAR(f16[r], exact[1], bound);
    EXPECT_NEAR(bf16[r], exact[2], bound);
  }
}

TEST(ScalarReference, RmsNorm) {
  Rng rng(45);
  for (const int32_t n : {1, 7, 64, 576}) {
    std::vector<float> x(static_cast<size_t>(n));
    std::vector<float> weight(x.size());
    std::vector<float> y(x.size());
    double squares = 0.0;
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = MakeValue(Values::kNoise, i, rng);
      weight[i] = MakeValue(Values::kNoise, i, rng);
      squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    const double eps = static_cast<double>(1e-5f);
    const double factor = 1.0 / std::sqrt(squares / n + eps);
    scalar::rmsnorm_f32(x.data(), weight.data(), 1.0f, 1e-5f, n, y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double w = static_cast<double>(weight[i]) + 1.0;
      const double exact = static_cast<double>(x[i]) * factor * w;
      // Half the sum's error goes through the root; root, quotient, two products; 1 + weight rounds
      // in units of its larger term.
      const double bound = (n / 32 + 9) * kU * std::fabs(exact) +
                           kU * std::fabs(static_cast<double>(x[i]) * factor) * (std::fabs(w) + 4);
      EXPECT_NEAR(y[i], exact, bound);
    }
  }
}

TEST(ScalarReference, RopeTurnsPairs) {
  const float cos_sin[4] = {0.6f, 0.8f, 0.0f, 1.0f};
  float halves[5] = {1.0f, 2.0f, 3.0f, 4.0f, 9.0f};
  scalar::rope_f32(halves, 1, 5, 4, cos_sin, 0);
  EXPECT_FLOAT_EQ(halves[0], 0.6f - 2.4f);  // pair (0, 2)
  EXPECT_FLOAT_EQ(halves[2], 1.8f + 0.8f);
  EXPECT_FLOAT_EQ(halves[1], -4.0f);  // pair (1, 3), a quarter turn
  EXPECT_FLOAT_EQ(halves[3], 2.0f);
  EXPECT_EQ(halves[4], 9.0f);  // past rotary_dim
  float pairs[4] = {1.0f, 3.0f, 2.0f, 4.0f};
  scalar::rope_f32(pairs, 1, 4, 4, cos_sin, 1);
  EXPECT_FLOAT_EQ(pairs[0], 0.6f - 2.4f);
  EXPECT_FLOAT_EQ(pairs[1], 1.8f + 0.8f);
  EXPECT_FLOAT_EQ(pairs[2], -4.0f);
  EXPECT_FLOAT_EQ(pairs[3], 2.0f);
}

TEST(ScalarReference, QuantizedValuesAreNearest) {
  Rng rng(46);
  constexpr int32_t kCols = 75;
  std::vector<float> x(kCols);
  for (float& v : x) v = (rng.NextFloat() - 0.5f) * 6.0f;
  int8_t values[96];
  float scales[3];
  int32_t sums[6];
  scalar::quantize_row_a8(x.data(), kCols, values, scales, sums);
  int32_t want_sums[6] = {};
  for (int32_t i = 0; i < 96; ++i) {
    const double v = i < kCols ? static_cast<double>(x[static_cast<size_t>(i)]) : 0.0;
    const double scale = static_cast<double>(scales[i / 32]);
    // Half a step, and three roundings of numbers up to 127 steps.
    EXPECT_LE(std::fabs(v - values[i] * scale), scale * (0.5 + 127 * 4 * kU));
    EXPECT_LE(std::abs(values[i]), 127);
    want_sums[i / 16] += values[i];
  }
  for (int32_t i = 0; i < 6; ++i) EXPECT_EQ(sums[i], want_sums[i]);
}

TEST(ScalarReference, QuantizeMarksWhatIsNotFinite) {
  float x[64];
  for (float& v : x) v = 1.0f;
  x[40] = std::numeric_limits<float>::infinity();
  int8_t values[64];
  float scales[2];
  int32_t sums[4];
  scalar::quantize_row_a8(x, 64, values, scales, sums);
  EXPECT_EQ(scales[0], 1.0f / 127.0f);
  EXPECT_EQ(values[5], 127);
  EXPECT_TRUE(std::isnan(scales[1]));
  EXPECT_EQ(values[40], 0);
  EXPECT_EQ(sums[2], 0);
}

TEST(ScalarReference, ArgmaxTakesTheFirstAndRefusesNan) {
  const float x[] = {1.0f, 3.0f, 3.0f, -1.0f};
  EXPECT_EQ(scalar::argmax_f32(x, 4), 1);
  EXPECT_EQ(scalar::argmax_f32(x, 0), -1);
  const float bad[] = {1.0f, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_EQ(scalar::argmax_f32(bad, 2), -1);
}

// Codes and scales packed by tensor/, multiplied here: the two sides agree on the layout.
TEST(ScalarReference, PackedProductOfKnownCodes) {
  Rng rng(47);
  for (const int32_t bits : {1, 2, 3, 4, 5, 6, 8}) {
    for (const int32_t group : {0, 16, 32, 64}) {
      for (const bool has_min : {false, true}) {
        PackedLayout layout;
        layout.rows = 21;
        layout.cols = 80;
        layout.bits = bits;
        layout.group = group;
        layout.zero2 = (1 << bits) - (bits % 2);
        layout.scale_type = ScaleType::kF32;
        layout.has_min = has_min;
        const size_t cols = static_cast<size_t>(layout.cols);
        const size_t groups = static_cast<size_t>(layout.groups());
        std::vector<uint8_t> packed(layout.total_bytes(), 0);
        std::vector<std::vector<double>> weights;  // the values that the formula gives
        for (int32_t row = 0; row < layout.rows; ++row) {
          std::vector<uint8_t> codes(cols);
          std::vector<float> scales(groups);
          std::vector<float> mins(groups);
          for (uint8_t& code : codes) code = static_cast<uint8_t>(rng.NextBelow(1u << bits));
          for (float& scale : scales) scale = rng.NextFloat() - 0.3f;
          for (float& min : mins) min = rng.NextFloat() - 0.5f;
          PackRow(layout, row, codes.data(), scales.data(), mins.data(), packed.data());
          std::vector<double> values(cols);
          for (size_t c = 0; c < cols; ++c) {
            const size_t g = group == 0 ? 0 : c / static_cast<size_t>(group);
            values[c] = (2.0 * codes[c] - layout.zero2) * static_cast<double>(scales[g]) / 2.0 +
                        (has_min ? static_cast<double>(mins[g]) : 0.0);
          }
          weights.push_back(values);
        }
        PackedTiles tiles = {};
        tiles.data = packed.data();
        tiles.tile_bytes = layout.tile_bytes();
        tiles.mins_offset = layout.mins_offset();
        tiles.codes_offset = layout.codes_offset();
        tiles.rows = layout.rows;
        tiles.cols = layout.cols;
        tiles.chunks = layout.chunks();
        tiles.bits = bits;
        tiles.group = group == 0 ? layout.chunks() * 32 : group;
        tiles.groups = layout.groups();
        tiles.zero2 = layout.zero2;
        tiles.scales_are_f32 = 1;
        tiles.has_min = has_min ? 1 : 0;
        std::vector<float> x(cols);
        for (float& v : x) v = rng.NextFloat() - 0.5f;
        std::vector<int8_t> values(static_cast<size_t>(layout.chunks()) * 32);
        std::vector<float> scales(static_cast<size_t>(layout.chunks()));
        std::vector<int32_t> sums(static_cast<size_t>(layout.chunks()) * 2);
        scalar::quantize_row_a8(x.data(), layout.cols, values.data(), scales.data(), sums.data());
        const QuantRows rows = {values.data(), scales.data(), sums.data(), 1, layout.chunks()};
        std::vector<float> out(static_cast<size_t>(layout.rows));
        scalar::matmul_packed_a8(&tiles, &rows, 0, layout.tiles(), out.data(), layout.rows);
        std::vector<float> unpacked(16 * cols);
        for (int32_t row = 0; row < layout.rows; ++row) {
          if (row % 16 == 0) scalar::unpack_tile_f32(&tiles, row / 16, unpacked.data());
          const std::vector<double>& w = weights[static_cast<size_t>(row)];
          double exact = 0.0;
          double magnitude = 0.0;
          for (size_t c = 0; c < cols; ++c) {
            const double xc = values[c] * static_cast<double>(scales[c / 32]);
            exact += w[c] * xc;
            magnitude += (std::fabs(w[c]) + 2.0) * std::fabs(xc);  // scale part and min apart
            EXPECT_NEAR(unpacked[static_cast<size_t>(row % 16) * cols + c], w[c],
                        3 * kU * (std::fabs(w[c]) + 1.0));
          }
          // Six half chunks, each with a product of scales and two fused steps.
          EXPECT_NEAR(out[static_cast<size_t>(row)], exact, 20 * kU * magnitude)
              << "bits " << bits << ", group " << group;
        }
      }
    }
  }
}

TEST(ScalarReference, AttentionIsSoftmax) {
  Rng rng(48);
  constexpr int32_t kDim = 24;
  constexpr int32_t kKeys = 144;
  std::vector<float> cache(2 * kKeys * kDim);
  for (float& v : cache) v = rng.NextFloat() * 2.0f - 1.0f;
  std::vector<float> q(kDim);
  for (float& v : q) v = rng.NextFloat() * 6.0f - 3.0f;
  const uint8_t* const pages[1] = {reinterpret_cast<const uint8_t*>(cache.data())};
  for (const float softcap : {0.0f, 2.0f}) {
    const int32_t begin = 5;
    const int32_t end = 137;
    float out[kDim];
    AttendState state;
    AttendArgs args = {};
    args.q = q.data();
    args.out = out;
    args.states = &state;
    args.rows = 1;
    args.heads = 1;
    args.head_dim = kDim;
    args.head_dim_v = kDim;
    args.key_begin = &begin;
    args.key_end = &end;
    args.scale = 0.2f;
    args.softcap = softcap;
    args.kv.pages = pages;
    args.kv.page_tokens = kKeys;
    args.kv.v_offset = kKeys * kDim * sizeof(float);
    scalar::attend(&args);
    double sums[kDim] = {};
    double total = 0.0;
    double largest = -1e30;
    for (int32_t key = begin; key < end; ++key) {
      double score = 0.0;
      for (int32_t d = 0; d < kDim; ++d) {
        score +=
            static_cast<double>(q[static_cast<size_t>(d)]) *
            static_cast<double>(cache[static_cast<size_t>((key / 16 * kDim + d) * 16 + key % 16)]);
      }
      score *= static_cast<double>(0.2f);
      if (softcap > 0.0f) score = 2.0 * std::tanh(score / 2.0);
      largest = std::max(largest, score);
      const double p = std::exp(score);
      total += p;
      for (int32_t d = 0; d < kDim; ++d) {
        sums[d] +=
            p * static_cast<double>(cache[static_cast<size_t>(kKeys * kDim + key * kDim + d)]);
      }
    }
    // A score is off by up to kDim u times 3 * kDim * 0.2, which every weight carries; the sum of
    // kKeys weighted values in [-1, 1] and its denominator add kKeys u each.
    const double bound = (2 * kDim * 3 * kDim * 0.2 + 2 * kKeys + 20) * kU;
    double denominator = 0.0;
    for (const float lane : state.lanes) denominator += static_cast<double>(lane);
    EXPECT_NEAR(static_cast<double>(state.maximum), largest, bound);
    EXPECT_NEAR(denominator, total / std::exp(largest), kKeys * bound);
    for (int32_t d = 0; d < kDim; ++d) {
      EXPECT_NEAR(static_cast<double>(out[d]) / denominator, sums[d] / total, bound);
    }
  }
}

// Coded keys and values against products with the rows that the format's decoder reads.
TEST(ScalarReference, CodedAttentionIsThatOfTheDecodedRows) {
  constexpr int32_t kDim = 40;  // 48 stored
  constexpr int32_t kKeys = 96;
  for (const KvType type :
       {KvType::kQ8, KvType::kQ4, KvType::kTq2_5, KvType::kTq3_5, KvType::kTq4}) {
    Rng rng(7);
    const KvLayout layout = MakeKvLayout(type, kDim);
    const size_t columns = static_cast<size_t>(layout.padded);
    const size_t part = KvTokenBytes(type, kDim) * kKeys;
    std::vector<uint8_t> page(2 * part);
    std::vector<float> row(columns), work(columns);
    std::vector<uint8_t> codes(columns);
    for (int32_t key = 0; key < kKeys; ++key) {
      for (const KvRole role : {KvRole::kKey, KvRole::kValue}) {
        for (float& x : row) x = rng.NextFloat() * 2.0f - 1.0f;
        const uint16_t scale = EncodeKvRow(layout, role, row.data(), work.data(), codes.data());
        PutKvRow(layout, role, codes.data(), scale, kKeys, key,
                 page.data() + (role == KvRole::kKey ? 0 : part));
      }
    }
    std::vector<int8_t> q8(columns);
    for (int8_t& x : q8) x = static_cast<int8_t>(rng.NextBelow(255) - 127);
    // The query in the model's columns.
    std::vector<float> q(columns);
    const float q_scale = 0.02f;
    for (size_t i = 0; i < columns; ++i) q[i] = static_cast<float>(q8[i]) * q_scale;
    if (KvIsRotated(type)) RotateKvRow(q.data(), layout.padded, true);
    const int32_t begin = 3;
    const int32_t end = 91;
    std::vector<float> out(columns);
    AttendState state;
    const uint8_t* const pages[1] = {page.data()};
    AttendArgs args = {};
    args.q8 = q8.data();
    args.q_scales = &q_scale;
    args.out = out.data();
    args.states = &state;
    args.rows = args.heads = 1;
    args.head_dim = args.head_dim_v = kDim;
    args.key_begin = &begin;
    args.key_end = &end;
    args.scale = 0.2f;
    args.kv = {pages, kKeys, 0, part, part, part, {}, {}};
    args.kv.k = {kKvCoded,
                 layout.tiles,
                 layout.wide_tiles,
                 layout.wide_bits,
                 layout.narrow_bits,
                 layout.wide_levels,
                 layout.narrow_levels,
                 layout.group_bytes(),
                 layout.scales_offset(kKeys)};
    args.kv.v = args.kv.k;
    scalar::attend(&args);
    std::vector<double> sums(columns);
    double total = 0.0;
    for (int32_t key = begin; key < end; ++key) {
      ReadKvRow(layout, KvRole::kKey, kKeys, key, page.data(), row.data());
      double score = 0.0;
      for (size_t d = 0; d < columns; ++d) {
        score += static_cast<double>(row[d]) * static_cast<double>(q[d]);
      }
      const double p = std::exp(score * static_cast<double>(0.2f));
      total += p;
      ReadKvRow(layout, KvRole::kValue, kKeys, key, page.data() + part, row.data());
      for (size_t d = 0; d < columns; ++d) sums[d] += p * static_cast<double>(row[d]);
    }
    double denominator = 0.0;
    for (const float lane : state.lanes) denominator += static_cast<double>(lane);
    if (KvIsRotated(type)) RotateKvRow(out.data(), layout.padded, true);
    // Weights are rounded to half a 32512th of their block's largest; 64 keys of a block at most
    // carry that, values up to 2 after decoding.
    for (size_t d = 0; d < columns; ++d) {
      EXPECT_NEAR(static_cast<double>(out[d]) / denominator, sums[d] / total, 64.0 / 32512)
          << KvTypeName(type) << ", column " << d;
    }
  }
}

}  // namespace
}  // namespace cellm::kernels
