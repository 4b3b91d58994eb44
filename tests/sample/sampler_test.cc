// The sampler against a plain implementation that sorts whole rows in double, against chi-square
// bounds, and against hand-computed cases.
#include "sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"

namespace cellm::sample {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SamplingOptions Greedy() {
  SamplingOptions options;
  options.temperature = 0;
  options.top_k = 0;
  return options;
}

SamplingOptions Plain() {
  SamplingOptions options;
  options.temperature = 1;
  options.top_k = 0;
  return options;
}

std::unique_ptr<Sampler> Make(const SamplingOptions& options, size_t vocabulary,
                              uint64_t seed = 1) {
  Result<std::unique_ptr<Sampler>> sampler =
      Sampler::Create(options, static_cast<int32_t>(vocabulary), seed, SystemAllocator());
  EXPECT_TRUE(sampler.ok()) << sampler.status().message();
  return std::move(sampler).value();
}

int32_t Choose(Sampler& sampler, const std::vector<float>& row) {
  Result<int32_t> id = sampler.Sample(row);
  EXPECT_TRUE(id.ok()) << id.status().message();
  return id.ok() ? id.value() : -1;
}

std::vector<float> NoisyRow(Rng& rng, size_t size, float spread, bool ties) {
  std::vector<float> row(size);
  for (float& x : row) {
    x = (rng.NextFloat() + rng.NextFloat() + rng.NextFloat() - 1.5f) * spread;
    if (ties) x = std::round(x);
  }
  return row;
}

// ---- the plain twin: sorts everything, keeps everything in double
// --------------------------------

struct Entry {
  int32_t id;
  double logit;
};

void Renormalise(const std::vector<Entry>& kept, std::vector<double>* p) {
  double best = -INFINITY;
  for (const Entry& e : kept) best = std::max(best, e.logit);
  double sum = 0;
  p->clear();
  for (const Entry& e : kept) p->push_back(std::exp(e.logit - best));
  for (double x : *p) sum += x;
  for (double& x : *p) x /= sum;
}

// The final probability of every id that may be drawn.
std::map<int32_t, double> PlainDistribution(const std::vector<float>& row,
                                            const SamplingOptions& options,
                                            const std::vector<int32_t>& history) {
  std::vector<double> logits(row.begin(), row.end());
  for (const LogitBias& bias : options.logit_bias) {
    double& x = logits[static_cast<size_t>(bias.id)];
    x = bias.bias <= kBanBias ? -INFINITY : x + static_cast<double>(bias.bias);
  }
  std::map<int32_t, int> counts;
  size_t first = 0;
  if (options.penalty_window >= 0 && history.size() > static_cast<size_t>(options.penalty_window)) {
    first = history.size() - static_cast<size_t>(options.penalty_window);
  }
  for (size_t i = first; i < history.size(); ++i) ++counts[history[i]];
  for (const auto& [id, count] : counts) {
    double& x = logits[static_cast<size_t>(id)];
    const double r = static_cast<double>(options.repetition_penalty);
    x = x > 0 ? x / r : x * r;
    x -= static_cast<double>(options.frequency_penalty) * count +
         static_cast<double>(options.presence_penalty);
  }
  std::vector<Entry> kept;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > -INFINITY) kept.push_back({static_cast<int32_t>(i), logits[i]});
  }
  std::stable_sort(kept.begin(), kept.end(),
                   [](const Entry& a, const Entry& b) { return a.logit > b.logit; });
  if (options.top_k > 0 && kept.size() > static_cast<size_t>(options.top_k)) {
    kept.resize(static_cast<size_t>(options.top_k));
  }
  std::vector<double> p;
  if (options.typical_p < 1) {
    Renormalise(kept, &p);
    double entropy = 0;
    for (double x : p) entropy -= x > 0 ? x * std::log(x) : 0;
    std::vector<size_t> order(kept.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::abs(-std::log(p[a]) - entropy) < std::abs(-std::log(p[b]) - entropy);
    });
    double sum = 0;
    std::vector<Entry> next;
    for (size_t i : order) {
      next.push_back(kept[i]);
      sum += p[i];
      if (sum >= static_cast<double>(options.typical_p)) break;
    }
    std::stable_sort(next.begin(), next.end(), [](const Entry& a, const Entry& b) {
      return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
    });
    kept = next;
  }
  if (options.top_p < 1) {
    Renormalise(kept, &p);
    double sum = 0;
    size_t n = 0;
    while (n < kept.size()) {
      sum += p[n++];
      if (sum >= static_cast<double>(options.top_p)) break;
    }
    kept.resize(n);
  }
  if (options.min_p > 0) {
    Renormalise(kept, &p);
    const double best = *std::max_element(p.begin(), p.end());
    std::vector<Entry> next;
    for (size_t i = 0; i < kept.size(); ++i) {
      if (p[i] >= best * static_cast<double>(options.min_p)) next.push_back(kept[i]);
    }
    kept = next;
  }
  for (Entry& e : kept) e.logit /= static_cast<double>(options.temperature);
  Renormalise(kept, &p);
  std::map<int32_t, double> result;
  for (size_t i = 0; i < kept.size(); ++i) result[kept[i].id] = p[i];
  return result;
}

// Draws often and compares counts with the plain distribution: nothing outside its support, and
// Pearson's chi-square within 6 standard deviations of its mean (bins of 5 or more expected).
void ExpectDistribution(const std::vector<float>& row, const SamplingOptions& options,
                        const std::vector<int32_t>& history, uint64_t seed, int draws) {
  const std::map<int32_t, double> expected = PlainDistribution(row, options, history);
  std::unique_ptr<Sampler> sampler = Make(options, row.size(), seed);
  for (int32_t id : history) sampler->Accept(id);
  std::map<int32_t, int> counts;
  for (int i = 0; i < draws; ++i) ++counts[Choose(*sampler, row)];
  double chi = 0;
  double bins = 0;
  for (const auto& [id, count] : counts) {
    ASSERT_TRUE(expected.count(id))
        << "token " << id << " was filtered out but drawn; seed " << seed;
  }
  for (const auto& [id, p] : expected) {
    const double mean = p * draws;
    if (mean < 5) continue;
    const double difference = counts[id] - mean;
    chi += difference * difference / mean;
    ++bins;
  }
  EXPECT_LT(chi, bins + 6 * std::sqrt(2 * bins) + 6) << "seed " << seed;
}

TEST(Sampler, DistributionEqualsThePlainOne) {
  struct Case {
    const char* name;
    SamplingOptions options;
  };
  std::vector<Case> cases;
  const auto add = [&](const char* name, auto change) {
    SamplingOptions options = Plain();
    change(options);
    cases.push_back({name, options});
  };
  add("plain", [](SamplingOptions&) {});
  add("cold", [](SamplingOptions& o) { o.temperature = 0.3f; });
  add("hot", [](SamplingOptions& o) { o.temperature = 5; });
  add("top_k", [](SamplingOptions& o) { o.top_k = 7; });
  add("top_k 1", [](SamplingOptions& o) { o.top_k = 1; });
  add("top_k beyond the row", [](SamplingOptions& o) { o.top_k = 100000; });
  add("top_p", [](SamplingOptions& o) { o.top_p = 0.7f; });
  add("tiny top_p", [](SamplingOptions& o) { o.top_p = 1e-6f; });
  add("min_p", [](SamplingOptions& o) { o.min_p = 0.1f; });
  add("min_p 1", [](SamplingOptions& o) { o.min_p = 1; });
  add("typical", [](SamplingOptions& o) { o.typical_p = 0.5f; });
  add("penalties", [](SamplingOptions& o) {
    o.repetition_penalty = 1.8f;
    o.frequency_penalty = 0.4f;
    o.presence_penalty = 0.7f;
    o.penalty_window = 16;
  });
  add("negative penalties", [](SamplingOptions& o) {
    o.repetition_penalty = 0.5f;
    o.frequency_penalty = -0.2f;
    o.penalty_window = -1;
  });
  add("bias", [](SamplingOptions& o) { o.logit_bias = {{3, 2.5f}, {4, -100}, {5, -1}, {5, -1}}; });
  add("everything", [](SamplingOptions& o) {
    o.temperature = 1.3f;
    o.top_k = 60;
    o.top_p = 0.9f;
    o.min_p = 0.02f;
    o.typical_p = 0.95f;
    o.repetition_penalty = 1.2f;
    o.frequency_penalty = 0.1f;
    o.logit_bias = {{1, 1}, {2, -100}};
  });
  Rng rng(20);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    for (const size_t size : {size_t{6}, size_t{77}, size_t{700}}) {
      const std::vector<float> row = NoisyRow(rng, size, 6, size == 77);
      std::vector<int32_t> history;
      for (int i = 0; i < 40; ++i) history.push_back(static_cast<int32_t>(rng.NextBelow(size)));
      ExpectDistribution(row, c.options, history, 1000 + size, 4000);
    }
  }
}

// The kept set, compared exactly: with a huge temperature every kept token is as good as any other,
// so a few thousand draws show all of them.
TEST(Sampler, FiltersKeepExactlyTheSetOfThePlainOnes) {
  Rng rng(7);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    const size_t size = 2 + rng.NextBelow(60);
    const std::vector<float> row = NoisyRow(rng, size, 8, rng.NextBelow(2) == 0);
    SamplingOptions options = Plain();
    options.temperature = 1e6f;
    if (rng.NextBelow(2)) options.top_k = 1 + static_cast<int32_t>(rng.NextBelow(size + 3));
    if (rng.NextBelow(2)) options.top_p = 0.05f + 0.9f * rng.NextFloat();
    if (rng.NextBelow(2)) options.min_p = rng.NextFloat();
    if (rng.NextBelow(2)) options.typical_p = 0.05f + 0.9f * rng.NextFloat();
    const std::map<int32_t, double> expected = PlainDistribution(row, options, {});
    std::unique_ptr<Sampler> sampler = Make(options, size, 5);
    std::map<int32_t, int> seen;
    for (int i = 0; i < 1200; ++i) ++seen[Choose(*sampler, row)];
    ASSERT_EQ(seen.size(), expected.size());
    for (const auto& [id, p] : expected) EXPECT_TRUE(seen.count(id)) << id;
  }
}

// ---- greedy
// ---------------------------------------------------------------------------------------

TEST(Sampler, TemperatureZeroIsTheArgmaxWithTheSmallestIdOnTies) {
  SamplingOptions options = Greedy();
  options.top_k = 3;
  options.top_p = 0.01f;  // filters cannot change an argmax
  for (const size_t size : {1u, 2u, 15u, 16u, 17u, 31u, 32u, 33u, 100u}) {
    std::vector<float> row(size, -3.0f);
    std::unique_ptr<Sampler> sampler = Make(options, size);
    EXPECT_EQ(Choose(*sampler, row), 0);
    for (size_t i = size; i-- > 0;) {
      row[i] = 4.0f;  // from the back: each is equal to those after it
      EXPECT_EQ(Choose(*sampler, row), static_cast<int32_t>(i)) << size;
    }
  }
}

TEST(Sampler, TemperatureZeroUsesPenaltiesOnlyWhenGiven) {
  const std::vector<float> row = {1.0f, 0.9f};
  SamplingOptions options = Greedy();
  std::unique_ptr<Sampler> plain = Make(options, 2);
  for (int i = 0; i < 10; ++i) plain->Accept(0);
  EXPECT_EQ(Choose(*plain, row), 0);
  options.repetition_penalty = 1.2f;
  std::unique_ptr<Sampler> penalised = Make(options, 2);
  penalised->Accept(0);
  EXPECT_EQ(Choose(*penalised, row), 1);
  options.penalty_window = 0;
  std::unique_ptr<Sampler> off = Make(options, 2);
  off->Accept(0);
  EXPECT_EQ(Choose(*off, row), 0);
}

// A penalty above 1 makes a repeated token less likely whatever the sign of its logit.
TEST(Sampler, RepetitionPenaltyHasTheRightSign) {
  SamplingOptions options = Greedy();
  options.repetition_penalty = 1.5f;
  std::unique_ptr<Sampler> positive = Make(options, 2);
  positive->Accept(0);
  EXPECT_EQ(Choose(*positive, {3.0f, 2.5f}), 1);  // 3 / 1.5 = 2
  std::unique_ptr<Sampler> negative = Make(options, 2);
  negative->Accept(0);
  EXPECT_EQ(Choose(*negative, {-2.0f, -2.5f}), 1);  // -2 * 1.5 = -3
}

TEST(Sampler, PenaltyWindowForgetsTheOldest) {
  SamplingOptions options = Greedy();
  options.presence_penalty = 1;
  options.penalty_window = 2;
  std::unique_ptr<Sampler> sampler = Make(options, 4);
  const std::vector<float> row = {0.5f, 0.4f, 0.3f, -5.0f};
  sampler->Accept(0);
  EXPECT_EQ(Choose(*sampler, row), 1);
  sampler->Accept(1);
  EXPECT_EQ(Choose(*sampler, row), 2);
  sampler->Accept(3);  // 0 leaves
  EXPECT_EQ(Choose(*sampler, row), 0);
  sampler->Accept(3);  // 1 leaves
  EXPECT_EQ(Choose(*sampler, row), 0);
  sampler->Accept(-1);  // rows of an image have no id
  sampler->Accept(4);
  EXPECT_EQ(Choose(*sampler, row), 0);
}

TEST(Sampler, PenalisedTokenGivesItsPlaceInTopKToAnother) {
  SamplingOptions options = Plain();
  options.top_k = 1;
  options.presence_penalty = 10;
  std::unique_ptr<Sampler> sampler = Make(options, 3);
  sampler->Accept(0);
  EXPECT_EQ(Choose(*sampler, {5.0f, 4.0f, 3.0f}), 1);
}

// ---- bias
// -----------------------------------------------------------------------------------------

// users.md row 52: a bias of -100 is never sampled in 10,000 draws, +100 always.
TEST(Sampler, BiasOfAHundredIsAbsolute) {
  for (const float temperature : {0.0f, 0.7f, 1000.0f}) {
    SamplingOptions options = Plain();
    options.temperature = temperature;
    options.logit_bias = {{2, -100}};
    std::unique_ptr<Sampler> never = Make(options, 4);
    options.logit_bias = {{1, 100}};
    std::unique_ptr<Sampler> always = Make(options, 4);
    for (int i = 0; i < 10000; ++i) {
      ASSERT_NE(Choose(*never, {0.0f, 1.0f, 500.0f, 2.0f}), 2);
      ASSERT_EQ(Choose(*always, {0.0f, -400.0f, 500.0f, 2.0f}), 1);
    }
  }
}

TEST(Sampler, BanningEverythingIsAnError) {
  SamplingOptions options = Plain();
  options.logit_bias = {{0, -100}, {1, -100}};
  std::unique_ptr<Sampler> sampler = Make(options, 2);
  const std::vector<float> row = {1.0f, 2.0f};
  EXPECT_EQ(sampler->Sample(row).status().code(), StatusCode::kInternal);
}

// ---- seeds
// ----------------------------------------------------------------------------------------

TEST(Sampler, SeedReplaysAndSeedsDiffer) {
  Rng rng(3);
  const std::vector<float> row = NoisyRow(rng, 500, 2, false);
  const auto run = [&](uint64_t seed) {
    std::unique_ptr<Sampler> sampler = Make(Plain(), row.size(), seed);
    std::vector<int32_t> ids;
    for (int i = 0; i < 50; ++i) ids.push_back(Choose(*sampler, row));
    return ids;
  };
  EXPECT_EQ(run(42), run(42));
  EXPECT_NE(run(42), run(43));
  EXPECT_EQ(Make(Plain(), 3, 99)->seed(), 99u);
}

// ---- bad rows and bad options
// ---------------------------------------------------------------------

TEST(Sampler, BadLogitsAreErrorsThatNameTheToken) {
  for (const SamplingOptions& options : {Greedy(), Plain()}) {
    std::unique_ptr<Sampler> sampler = Make(options, 3);
    const std::vector<float> nan = {1.0f, kNan, 2.0f};
    EXPECT_EQ(sampler->Sample(nan).status().message(), "logits: token 1 has the value NaN");
    const std::vector<float> negative_nan = {1.0f, 3.0f, -kNan};
    EXPECT_EQ(sampler->Sample(negative_nan).status().message(),
              "logits: token 2 has the value NaN");
    const std::vector<float> infinite = {kInf, 0.0f, 2.0f};
    EXPECT_EQ(sampler->Sample(infinite).status().message(),
              "logits: token 0 has the value +infinity");
    const std::vector<float> banned = {-kInf, -kInf, -kInf};
    EXPECT_FALSE(sampler->Sample(banned).ok());
    const std::vector<float> one_left = {-kInf, -1000.0f, -kInf};
    EXPECT_EQ(Choose(*sampler, one_left), 1);
    const std::vector<float> short_row = {1.0f};
    EXPECT_EQ(sampler->Sample(short_row).status().code(), StatusCode::kInvalidArgument);
  }
}

TEST(Sampler, RefusesOptionsByName) {
  struct Case {
    const char* word;
    void (*change)(SamplingOptions&);
  };
  const Case cases[] = {
      {"temperature", [](SamplingOptions& o) { o.temperature = -0.1f; }},
      {"temperature", [](SamplingOptions& o) { o.temperature = kNan; }},
      {"temperature", [](SamplingOptions& o) { o.temperature = kInf; }},
      {"top_k", [](SamplingOptions& o) { o.top_k = -1; }},
      {"top_p", [](SamplingOptions& o) { o.top_p = 0; }},
      {"top_p", [](SamplingOptions& o) { o.top_p = 1.5f; }},
      {"top_p", [](SamplingOptions& o) { o.top_p = kNan; }},
      {"typical_p", [](SamplingOptions& o) { o.typical_p = 0; }},
      {"min_p", [](SamplingOptions& o) { o.min_p = -0.5f; }},
      {"min_p", [](SamplingOptions& o) { o.min_p = kNan; }},
      {"repetition_penalty", [](SamplingOptions& o) { o.repetition_penalty = 0; }},
      {"repetition_penalty", [](SamplingOptions& o) { o.repetition_penalty = kNan; }},
      {"frequency_penalty", [](SamplingOptions& o) { o.frequency_penalty = kInf; }},
      {"presence_penalty", [](SamplingOptions& o) { o.presence_penalty = kNan; }},
      {"penalty_window", [](SamplingOptions& o) { o.penalty_window = -2; }},
      {"penalty_window", [](SamplingOptions& o) { o.penalty_window = INT32_MAX; }},
      {"logit_bias",
       [](SamplingOptions& o) {
         o.logit_bias = {{100, 1}};
       }},
      {"logit_bias",
       [](SamplingOptions& o) {
         o.logit_bias = {{-1, 1}};
       }},
      {"logit_bias",
       [](SamplingOptions& o) {
         o.logit_bias = {{1, kNan}};
       }},
  };
  for (const Case& c : cases) {
    SamplingOptions options = Plain();
    c.change(options);
    const Status status = ValidateSampling(options, 100);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.word;
    EXPECT_NE(status.message().find(c.word), std::string::npos) << status.message();
    EXPECT_FALSE(Sampler::Create(options, 100, 1, SystemAllocator()).ok());
  }
  EXPECT_FALSE(Sampler::Create(Plain(), 0, 1, SystemAllocator()).ok());
}

class FailingAllocator final : public Allocator {
 public:
  explicit FailingAllocator(int successes) : left_(successes) {}
  void* Allocate(size_t bytes, size_t alignment, MemoryClass memory_class) override {
    if (left_-- <= 0) return nullptr;
    ++held_;
    return SystemAllocator().Allocate(bytes, alignment, memory_class);
  }
  void Free(void* pointer, size_t bytes, MemoryClass memory_class) override {
    if (pointer != nullptr) --held_;
    SystemAllocator().Free(pointer, bytes, memory_class);
  }
  int held() const { return held_; }

 private:
  int left_;
  int held_ = 0;
};

TEST(Sampler, EveryRefusedAllocationIsAStatus) {
  SamplingOptions options = Plain();
  options.presence_penalty = 1;
  int failures = 0;
  for (int successes = 0;; ++successes) {
    FailingAllocator memory(successes);
    Result<std::unique_ptr<Sampler>> sampler = Sampler::Create(options, 50, 1, memory);
    if (sampler.ok()) break;
    EXPECT_EQ(sampler.status().code(), StatusCode::kOutOfMemory);
    EXPECT_EQ(memory.held(), 0);
    ++failures;
  }
  EXPECT_EQ(failures, 6);  // candidates, logits, counts, slots, ids, ring
}

}  // namespace
}  // namespace cellm::sample
