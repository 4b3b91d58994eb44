#include "tensor/kv_type.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tensor/half.h"

namespace cellm {
namespace {

constexpr KvType kCoded[] = {KvType::kQ8, KvType::kQ4, KvType::kTq2_5, KvType::kTq3_5,
                             KvType::kTq4};

// A standard normal number (Box and Muller).
float Normal(Rng& rng) {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - rng.NextDouble()));
  return static_cast<float>(radius * std::cos(2.0 * std::numbers::pi * rng.NextDouble()));
}

std::vector<float> UnitVector(int32_t dim, Rng& rng) {
  std::vector<float> x(static_cast<size_t>(dim));
  double squares = 0.0;
  for (float& v : x) {
    v = Normal(rng);
    squares += static_cast<double>(v) * static_cast<double>(v);
  }
  for (float& v : x) v = static_cast<float>(v / std::sqrt(squares));
  return x;
}

// One row through a page of 32 tokens: what attention sees of it.
std::vector<float> Through(const KvLayout& layout, KvRole role, const std::vector<float>& x) {
  std::vector<uint8_t> head(32 * KvTokenBytes(layout.type, layout.dim));
  std::vector<float> work(static_cast<size_t>(layout.padded));
  std::vector<uint8_t> codes(static_cast<size_t>(layout.padded));
  const uint16_t scale = EncodeKvRow(layout, role, x.data(), work.data(), codes.data());
  PutKvRow(layout, role, codes.data(), scale, 32, 19, head.data());
  ReadKvRow(layout, role, 32, 19, head.data(), work.data());
  return work;
}

TEST(KvType, NamesAreReadBack) {
  for (int i = 0; i < kKvTypeCount; ++i) {
    const KvType type = static_cast<KvType>(i);
    const auto both = ParseKvTypes(KvTypeName(type));
    ASSERT_TRUE(both.ok());
    EXPECT_EQ(*both, KvTypes(type));
    for (int j = 0; j < kKvTypeCount; ++j) {
      const KvTypes types(type, static_cast<KvType>(j));
      const auto pair = ParseKvTypes(KvTypesName(types));
      ASSERT_TRUE(pair.ok()) << KvTypesName(types);
      EXPECT_EQ(*pair, types);
    }
  }
  EXPECT_EQ(*ParseKvTypes("v=q4,k=q8"), KvTypes(KvType::kQ8, KvType::kQ4));
  for (const char* name :
       {"", "q5", "Q8", "tq3", "k=q8", "q8,q4", "k=q8,k=q4", "k=q8,v=q4,", ","}) {
    const auto parsed = ParseKvTypes(name);
    ASSERT_FALSE(parsed.ok()) << name;
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
    for (const char* known : {"f32", "f16", "q8", "q4", "tq2.5", "tq3.5", "tq4"}) {
      EXPECT_NE(parsed.status().message().find(known), std::string::npos) << known;
    }
  }
}

TEST(KvType, BytesOfATokenByHand) {
  const struct {
    KvType type;
    int32_t dim;
    size_t bytes;
  } rows[] = {
      {KvType::kF32, 64, 256},
      {KvType::kF16, 64, 128},
      {KvType::kF16, 10, 20},
      {KvType::kQ8, 64, 66},
      {KvType::kQ8, 10, 18},
      {KvType::kQ4, 64, 34},
      {KvType::kTq4, 64, 34},
      {KvType::kTq4, 128, 66},
      {KvType::kTq4, 80, 42},
      {KvType::kTq3_5, 64, 30},
      {KvType::kTq3_5, 128, 58},
      {KvType::kTq2_5, 64, 22},
      {KvType::kTq2_5, 128, 42},
      {KvType::kTq2_5, 256, 82},
      // An odd number of tiles: the wide half is the smaller one.
      {KvType::kTq3_5, 80, 36},
      {KvType::kTq2_5, 48, 16},
      {KvType::kTq2_5, 16, 6},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(KvTokenBytes(row.type, row.dim), row.bytes) << KvTypeName(row.type) << " " << row.dim;
  }
}

TEST(KvType, RotationIsOrthogonal) {
  Rng rng(3);
  for (const int32_t count : {16, 32, 48, 64, 80, 96, 112, 128, 256, 512}) {
    const std::vector<float> a = UnitVector(count, rng);
    const std::vector<float> b = UnitVector(count, rng);
    std::vector<float> ra = a;
    std::vector<float> rb = b;
    RotateKvRow(ra.data(), count, false);
    RotateKvRow(rb.data(), count, false);
    double before = 0.0, after = 0.0, largest = 0.0;
    for (size_t i = 0; i < a.size(); ++i) {
      before += static_cast<double>(a[i]) * static_cast<double>(b[i]);
      after += static_cast<double>(ra[i]) * static_cast<double>(rb[i]);
    }
    EXPECT_NEAR(before, after, 1e-5) << count;
    RotateKvRow(ra.data(), count, true);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(ra[i], a[i], 2e-6) << count;
    // No coordinate keeps a row that had all its length in one.
    for (int32_t hot = 0; hot < count; ++hot) {
      std::vector<float> one(static_cast<size_t>(count));
      one[static_cast<size_t>(hot)] = 1.0f;
      RotateKvRow(one.data(), count, false);
      for (const float v : one) largest = std::max(largest, std::fabs(static_cast<double>(v)));
    }
    EXPECT_LT(largest, 0.8) << count;
  }
}

TEST(KvType, RowsOfAPageDoNotTouchEachOther) {
  for (const KvType type : kCoded) {
    for (const int32_t dim : {5, 48, 64, 80}) {
      for (const KvRole role : {KvRole::kKey, KvRole::kValue}) {
        Rng rng(11);
        const KvLayout layout = MakeKvLayout(type, dim);
        const size_t padded = static_cast<size_t>(layout.padded);
        std::vector<uint8_t> head(48 * KvTokenBytes(type, dim), 0xA5);
        std::vector<std::vector<float>> rows;
        std::vector<float> work(padded);
        std::vector<uint8_t> codes(padded);
        for (int32_t i = 0; i < 48; ++i) {
          const int32_t slot = i * 5 % 48;
          std::vector<float> x(static_cast<size_t>(dim));
          for (float& v : x) v = Normal(rng);
          const uint16_t scale = EncodeKvRow(layout, role, x.data(), work.data(), codes.data());
          PutKvRow(layout, role, codes.data(), scale, 48, slot, head.data());
          rows.push_back(Through(layout, role, x));
        }
        for (int32_t i = 0; i < 48; ++i) {
          ReadKvRow(layout, role, 48, i * 5 % 48, head.data(), work.data());
          EXPECT_EQ(work, rows[static_cast<size_t>(i)]) << KvTypeName(type) << " " << dim;
        }
      }
    }
  }
}

// The squared error of b bits a coordinate of a random unit vector: the optimal scalar quantiser of
// a normal variable leaves 0.3634, 0.1175, 0.03454, 0.009497 at 1 to 4 bits (Max 1960; the paper
// rounds to 0.36, 0.117, 0.03, 0.009), nothing can leave less than 4^-b, and the paper's theorem
// allows sqrt(3) pi / 2 * 4^-b.
TEST(KvType, ErrorOfValuesIsThePapers) {
  const struct {
    KvType type;
    double wide, narrow;  // of either half
    double bits;
    double slack;
  } rows[] = {
      {KvType::kTq4, 0.009497, 0.009497, 4, 1.03},
      {KvType::kTq3_5, 0.009497, 0.03454, 3.5, 1.03},
      {KvType::kTq2_5, 0.03454, 0.1175, 2.5, 1.03},
      {KvType::kQ4, 0.01154, 0.01154, 4, 1.10},  // the best of equal distances (Max, table 2)
  };
  for (const auto& row : rows) {
    for (const int32_t dim : {64, 128, 256}) {
      Rng rng(21);
      const KvLayout layout = MakeKvLayout(row.type, dim);
      double error = 0.0;
      constexpr int kVectors = 400;
      for (int n = 0; n < kVectors; ++n) {
        const std::vector<float> x = UnitVector(dim, rng);
        const std::vector<float> y = Through(layout, KvRole::kValue, x);
        for (size_t i = 0; i < x.size(); ++i) {
          error += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2.0);
        }
      }
      error /= kVectors;
      const double expected = (row.wide + row.narrow) / 2.0;
      EXPECT_LT(error, expected * row.slack) << KvTypeName(row.type) << " " << dim;
      EXPECT_GT(error, std::pow(4.0, -row.bits)) << KvTypeName(row.type) << " " << dim;
      if (row.type == KvType::kTq4) {
        EXPECT_LT(error, std::sqrt(3.0) * std::numbers::pi / 2.0 * std::pow(4.0, -row.bits));
      }
    }
  }
}

// Inner products with keys: the paper's sketch leaves 0.56 / d, 0.18 / d, 0.047 / d at 2 to 4 bits
// without a bias. Scales that make <k, value> = |k|^2 have no bias either, and less error than that
// at the same bits.
TEST(KvType, InnerProductsWithKeysAreTrueOnAverage) {
  const struct {
    KvType type;
    double squared_times_dim;
  } rows[] = {{KvType::kTq4, 0.047}, {KvType::kTq3_5, 0.047}, {KvType::kTq2_5, 0.18}};
  constexpr int32_t kDim = 128;
  for (const auto& row : rows) {
    Rng rng(5);
    const KvLayout layout = MakeKvLayout(row.type, kDim);
    double squared = 0.0, self = 0.0;
    constexpr int kPairs = 1000;
    for (int n = 0; n < kPairs; ++n) {
      const std::vector<float> k = UnitVector(kDim, rng);
      const std::vector<float> q = UnitVector(kDim, rng);
      const std::vector<float> y = Through(layout, KvRole::kKey, k);
      double error = 0.0;
      for (size_t i = 0; i < k.size(); ++i) {
        error +=
            static_cast<double>(q[i]) * (static_cast<double>(y[i]) - static_cast<double>(k[i]));
        self += static_cast<double>(k[i]) * static_cast<double>(y[i]);
      }
      squared += error * error;
    }
    EXPECT_NEAR(self / kPairs, 1.0, 2e-3) << KvTypeName(row.type);
    EXPECT_LT(squared / kPairs, row.squared_times_dim / kDim) << KvTypeName(row.type);
  }
}

TEST(KvType, EightBitsAreWithinHalfAStep) {
  Rng rng(9);
  const KvLayout layout = MakeKvLayout(KvType::kQ8, 80);
  for (int n = 0; n < 50; ++n) {
    std::vector<float> x(80);
    float largest = 0.0f;
    for (float& v : x) {
      v = Normal(rng) * 3.0f;
      largest = std::max(largest, std::fabs(v));
    }
    const std::vector<float> y = Through(layout, KvRole::kKey, x);
    // Half a step; and the f16 scale, 2^-11 off, takes the largest that much past 127 steps.
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(y[i], x[i], largest * (0.5 / 127 + 1.0 / 2048)) << i;
    }
  }
}

TEST(KvType, RowsThatAreNotFiniteStayVisible) {
  for (const KvType type : kCoded) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> x(64, 0.5f);
      x[7] = bad;
      for (const float v : Through(MakeKvLayout(type, 64), KvRole::kValue, x)) {
        EXPECT_TRUE(std::isnan(v)) << KvTypeName(type);
      }
    }
    for (const float v :
         Through(MakeKvLayout(type, 64), KvRole::kKey, std::vector<float>(64, 0.0f))) {
      EXPECT_EQ(v, 0.0f) << KvTypeName(type);
    }
  }
}

}  // namespace
}  // namespace cellm
