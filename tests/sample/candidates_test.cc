#include "sample/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "sample/log_probs.h"

namespace cellm::sample {
namespace {

// Selection without sorting equals a full sort, for every k and with many ties.
TEST(SelectTop, EqualsAFullSort) {
  Rng rng(11);
  for (int round = 0; round < 300; ++round) {
    const size_t size = 1 + rng.NextBelow(300);
    const size_t k = 1 + rng.NextBelow(size + 2);
    std::vector<float> row(size);
    for (float& x : row) {
      x = static_cast<float>(rng.NextBelow(round % 2 ? 10 : 100000)) - 5.0f;
      if (rng.NextBelow(8) == 0) x = -std::numeric_limits<float>::infinity();
    }
    std::vector<Candidate> all;
    for (size_t i = 0; i < size; ++i) {
      if (std::isfinite(row[i])) all.push_back({static_cast<int32_t>(i), row[i]});
    }
    std::sort(all.begin(), all.end(), Better);
    all.resize(std::min(all.size(), k));
    std::vector<Candidate> out(std::min(2 * k, size));
    ASSERT_EQ(SelectTop(row, k, out), all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(out[i].id, all[i].id) << "round " << round << " size " << size << " k " << k;
    }
  }
}

// A rising row is the worst case for the running floor: every entry beats it.
TEST(SelectTop, RisingRow) {
  std::vector<float> row(1000);
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(i);
  std::vector<Candidate> out(20);
  ASSERT_EQ(SelectTop(row, 10, out), 10u);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(out[static_cast<size_t>(i)].id, 999 - i);
}

// users.md row 51: log-probabilities are of the raw distribution; exp() over the vocabulary sums
// to 1.
TEST(LogProbs, SumToOneOverTheVocabulary) {
  Rng rng(5);
  std::vector<float> row(4096);
  for (float& x : row) x = rng.NextFloat() * 30 - 15;
  row[17] = -std::numeric_limits<float>::infinity();
  const double log_sum = LogSumExp(row);
  double sum = 0;
  for (const float x : row) sum += std::exp(static_cast<double>(x) - log_sum);
  EXPECT_NEAR(sum, 1.0, 1e-12);

  std::vector<TokenLogProb> top(row.size());
  std::vector<Candidate> scratch(row.size());
  const size_t count = TopLogProbs(row, log_sum, scratch, top);
  ASSERT_EQ(count, row.size() - 1);
  sum = 0;
  for (size_t i = 0; i < count; ++i) {
    sum += std::exp(static_cast<double>(top[i].log_prob));
    if (i > 0) {
      EXPECT_LE(top[i].log_prob, top[i - 1].log_prob);
    }
    EXPECT_NEAR(static_cast<double>(top[i].log_prob),
                static_cast<double>(row[static_cast<size_t>(top[i].id)]) - log_sum, 1e-5);
  }
  EXPECT_NEAR(sum, 1.0, 1e-5);
}

TEST(LogProbs, FewerEntriesThanAskedFor) {
  const std::vector<float> row = {0.0f, 1.0f};
  std::vector<TokenLogProb> top(5);
  std::vector<Candidate> scratch(2);
  ASSERT_EQ(TopLogProbs(row, LogSumExp(row), scratch, top), 2u);
  EXPECT_EQ(top[0].id, 1);
  EXPECT_NEAR(static_cast<double>(top[1].log_prob), -1.3132616875182228, 1e-6);  // -log(1 + e)
  EXPECT_EQ(TopLogProbs(row, 0, {}, {}), 0u);
}

}  // namespace
}  // namespace cellm::sample
