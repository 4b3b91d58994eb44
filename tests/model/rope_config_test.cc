// Rotary frequencies of every kind against numbers from a separate script of the published
// formulas (double arithmetic, rounded to float), and what is refused.
#include "model/rope_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "json/json.h"

namespace cellm {
namespace {

struct Outcome {
  Result<RopeSpec> spec;
  std::unique_ptr<json::Document> document;  // keeps the values alive
};

Outcome Read(const std::string& json, RopeDefaults defaults = {}) {
  auto document = json::Document::Parse(json, "config");
  EXPECT_TRUE(document.ok()) << document.status().message();
  if (defaults.head_dim == 0) defaults.head_dim = 16;
  if (defaults.max_position_embeddings == 0) defaults.max_position_embeddings = 1024;
  Config config((*document)->root());
  return {ReadRope(config, defaults), std::move(document).value()};
}

void ExpectFrequencies(const RopeSpec& spec, int32_t planned, const std::vector<float>& expected,
                       const char* name) {
  std::vector<float> got(static_cast<size_t>(spec.rotary_dim / 2));
  RopeFrequencies(spec, planned, got.data());
  ASSERT_EQ(got.size(), expected.size()) << name;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], 2e-7f * expected[i]) << name << " " << i;
  }
}

const std::vector<float> kDefault = {1.0f,           0.316227764f,   0.1f,   0.0316227749f,
                                     0.00999999978f, 0.00316227763f, 0.001f, 0.000316227757f};

TEST(RopeConfig, FrequenciesOfEveryKind) {
  const struct {
    const char* name;
    const char* config;
    int32_t planned;
    std::vector<float> expected;
    float factor;
  } cases[] = {
      {"absent", "{}", 100, kDefault, 1.0f},
      {"null", R"({"rope_scaling": null, "rope_parameters": {}})", 100, kDefault, 1.0f},
      {"default, new spelling",
       R"({"rope_parameters": {"rope_type": "default", "rope_theta": 10000}})", 100, kDefault,
       1.0f},
      {"linear",
       R"({"rope_scaling": {"type": "linear", "factor": 4}})",
       100,
       {0.25f, 0.079056941f, 0.025f, 0.00790569372f, 0.0025f, 0.000790569407f, 0.00025f,
        7.90569393e-05f},
       1.0f},
      {"llama3",
       R"({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
           "high_freq_factor": 4.0, "original_max_position_embeddings": 256}})",
       100,
       {1.0f, 0.316227764f, 0.1f, 0.00661310647f, 0.00125f, 0.000395284704f, 0.000125f,
        3.95284696e-05f},
       1.0f},
      {"yarn, factor from the lengths",
       R"({"rope_scaling": {"rope_type": "yarn", "factor": null,
           "original_max_position_embeddings": 256}})",
       100,
       {1.0f, 0.25693506f, 0.0625f, 0.0138349645f, 0.0025f, 0.000790569407f, 0.00025f,
        7.90569393e-05f},
       1.13862944f},
      {"yarn with everything",
       R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "mscale": 1.0,
           "mscale_all_dim": 0.5, "beta_fast": 16, "beta_slow": 2, "truncate": false,
           "original_max_position_embeddings": 256}})",
       100,
       {1.0f, 0.291525632f, 0.0506643951f, 0.00790569372f, 0.0025f, 0.000790569407f, 0.00025f,
        7.90569393e-05f},
       1.0648216f},
      {"longrope, short",
       R"({"rope_scaling": {"type": "su", "short_factor": [1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
           "long_factor": [1, 2, 3, 4, 5, 6, 7, 8]}, "original_max_position_embeddings": 256})",
       256,
       {1.0f, 0.287479788f, 0.0833333358f, 0.0243252125f, 0.00714285718f, 0.00210818509f,
        0.000624999986f, 0.000186016332f},
       1.11803401f},
      {"longrope, long",
       R"({"rope_scaling": {"type": "longrope",
           "short_factor": [1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
           "long_factor": [1, 2, 3, 4, 5, 6, 7, 8], "original_max_position_embeddings": 256}})",
       257,
       {1.0f, 0.158113882f, 0.0333333351f, 0.00790569372f, 0.002f, 0.000527046272f, 0.000142857141f,
        3.95284696e-05f},
       1.11803401f},
      {"dynamic within the trained length",
       R"({"rope_scaling": {"type": "dynamic", "factor": 2.0}})", 1024, kDefault, 1.0f},
      {"dynamic beyond it",
       R"({"rope_scaling": {"type": "dynamic", "factor": 2.0}})",
       2000,
       {1.0f, 0.271524847f, 0.0737257451f, 0.0200183708f, 0.00543548493f, 0.00147586921f,
        0.000400735153f, 0.000108809552f},
       1.0f},
      {"proportional",
       R"({"rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": 0.5,
           "factor": 2.0}})",
       100,
       {0.5f, 0.158113882f, 0.05f, 0.0158113874f, 0, 0, 0, 0},
       1.0f},
  };
  for (const auto& test : cases) {
    const Outcome outcome = Read(test.config);
    ASSERT_TRUE(outcome.spec.ok()) << test.name << ": " << outcome.spec.status().message();
    ExpectFrequencies(*outcome.spec, test.planned, test.expected, test.name);
    EXPECT_NEAR(outcome.spec->attention_factor, test.factor, 2e-7f) << test.name;
  }
}

TEST(RopeConfig, OldSpellingWinsAndDropsTheNewOneWhole) {
  const Outcome outcome = Read(
      R"({"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
          "rope_scaling": {"type": "linear", "factor": 4}})");
  ASSERT_TRUE(outcome.spec.ok());
  // Theta falls back to the default, not to the loser's.
  EXPECT_FLOAT_EQ(outcome.spec->inv_freq[4], 0.0025f);
}

TEST(RopeConfig, PartialWidthAndNestedTypes) {
  RopeDefaults partial;
  partial.partial_allowed = true;
  const Outcome half = Read(R"({"partial_rotary_factor": 0.5})", partial);
  ASSERT_TRUE(half.spec.ok());
  EXPECT_EQ(half.spec->rotary_dim, 8);
  ExpectFrequencies(*half.spec, 1, {1.0f, 0.1f, 0.01f, 0.001f}, "partial");

  const char* const nested =
      R"({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 4.0},
                              "sliding_attention": {"rope_type": "default"}}})";
  RopeDefaults full;
  full.layer_type = "full_attention";
  EXPECT_FLOAT_EQ(Read(nested, full).spec->inv_freq[0], 0.25f);
  full.layer_type = "sliding_attention";
  EXPECT_FLOAT_EQ(Read(nested, full).spec->inv_freq[0], 1.0f);
}

TEST(RopeConfig, RefusesByName) {
  const struct {
    const char* config;
    const char* in_message;
    StatusCode code;
  } cases[] = {
      {R"({"rope_scaling": {"rope_type": "spiral"}})", "spiral", StatusCode::kUnsupported},
      {R"({"rope_scaling": {"rope_type": 7}})", "rope_type", StatusCode::kCorrupt},
      {R"({"rope_scaling": [1]})", "rope_scaling", StatusCode::kCorrupt},
      {R"({"rope_scaling": {"rope_type": "linear", "factor": 2, "bend": 1}})", "bend",
       StatusCode::kUnsupported},
      {R"({"rope_scaling": {"rope_type": "linear"}})", "factor", StatusCode::kCorrupt},
      {R"({"rope_scaling": {"rope_type": "linear", "factor": 0}})", "factor", StatusCode::kCorrupt},
      {R"({"rope_scaling": {"rope_type": "linear", "factor": "two"}})", "factor",
       StatusCode::kCorrupt},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}})", "low_freq_factor",
       StatusCode::kCorrupt},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
           "high_freq_factor": 4}})",
       "high_freq_factor", StatusCode::kCorrupt},
      {R"({"rope_scaling": {"rope_type": "longrope", "short_factor": [1], "long_factor": [1]}})",
       "short_factor", StatusCode::kCorrupt},
      {R"({"rope_scaling": {"rope_type": "longrope",
           "short_factor": [1, 1, 1, 1, 1, 1, 1, 0], "long_factor": [1, 1, 1, 1, 1, 1, 1, 1]}})",
       "short_factor", StatusCode::kCorrupt},
      {R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor", StatusCode::kUnsupported},
      {R"({"partial_rotary_factor": 2})", "partial_rotary_factor", StatusCode::kCorrupt},
      {R"({"rope_theta": -1})", "rope_theta", StatusCode::kCorrupt},
      {R"({"rope_scaling": {"rope_type": "yarn", "factor": 4,
           "original_max_position_embeddings": 0}})",
       "original_max_position_embeddings", StatusCode::kCorrupt},
  };
  for (const auto& test : cases) {
    const Outcome outcome = Read(test.config);
    ASSERT_FALSE(outcome.spec.ok()) << test.config;
    EXPECT_EQ(outcome.spec.status().code(), test.code) << outcome.spec.status().message();
    EXPECT_NE(outcome.spec.status().message().find(test.in_message), std::string::npos)
        << outcome.spec.status().message();
  }
}

TEST(RopeTable, TurnsByPositionTimesFrequency) {
  const float frequency = 0.37f;
  for (const int32_t position : {0, 1, 7, 1000, 100000}) {
    float cos_sin[2];
    RopeRow(&frequency, 1, 1.5f, position, cos_sin);
    const double angle = static_cast<double>(static_cast<float>(position) * frequency);
    EXPECT_NEAR(cos_sin[0], 1.5 * std::cos(angle), 2e-7);
    EXPECT_NEAR(cos_sin[1], 1.5 * std::sin(angle), 2e-7);
  }
}

}  // namespace
}  // namespace cellm
