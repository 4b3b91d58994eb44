#include "format/quant_recipe.h"

#include <gtest/gtest.h>

#include <string>

namespace cellm::format {
namespace {

TEST(QuantScheme, WordsMeanWhatTheySay) {
  const struct {
    const char* word;
    int32_t bits, group;
    QuantKind kind;
    const char* name;    // canonical
    const char* packed;  // of a [32, 256] matrix
  } rows[] = {
      {"i8", 8, 0, QuantKind::kSymmetric, "i8:row", "x16.u8.grow.z256.f16"},
      {"i8:32", 8, 32, QuantKind::kSymmetric, "i8:32", "x16.u8.g32.z256.f16"},
      {"i6", 6, 32, QuantKind::kSymmetric, "i6:32", "x16.u6.g32.z64.f16"},
      {"i5:16", 5, 16, QuantKind::kSymmetric, "i5:16", "x16.u5.g16.z32.f16"},
      {"i4:128", 4, 128, QuantKind::kSymmetric, "i4:128", "x16.u4.g128.z16.f16"},
      {"i4a", 4, 32, QuantKind::kAffine, "i4a:32", "x16.u4.g32.z0.f16.min"},
      {"i3:row", 3, 0, QuantKind::kSymmetric, "i3:row", "x16.u3.grow.z8.f16"},
      {"i2", 2, 32, QuantKind::kSymmetric, "i2:32", "x16.u2.g32.z3.f16"},
      {"i2a:64", 2, 64, QuantKind::kAffine, "i2a:64", "x16.u2.g64.z0.f16.min"},
      {"ternary", 2, 0, QuantKind::kTernary, "ternary:row", "x16.u2.grow.z2.f16"},
      {"ternary:64", 2, 64, QuantKind::kTernary, "ternary:64", "x16.u2.g64.z2.f16"},
      {"i1", 1, 128, QuantKind::kSymmetric, "i1:128", "x16.u1.g128.z1.f16"},
  };
  for (const auto& row : rows) {
    const auto scheme = ParseQuantScheme(row.word);
    ASSERT_TRUE(scheme.ok()) << row.word;
    EXPECT_EQ(scheme->bits, row.bits) << row.word;
    EXPECT_EQ(scheme->group, row.group) << row.word;
    EXPECT_EQ(scheme->kind, row.kind) << row.word;
    EXPECT_EQ(QuantSchemeName(*scheme), row.name);
    const auto layout = QuantLayout(*scheme, 32, 256);
    ASSERT_TRUE(layout.ok()) << row.word;
    EXPECT_EQ(PackedName(*layout), row.packed);
  }
  EXPECT_EQ(ParseQuantScheme("float")->bits, 0);
  // A group as wide as the row is the row.
  EXPECT_EQ(QuantLayout(*ParseQuantScheme("i4:64"), 8, 64)->group, 0);
  EXPECT_EQ(QuantLayout(*ParseQuantScheme("i1"), 8, 96)->group, 0);
}

TEST(QuantScheme, OtherWordsAreRefused) {
  for (const char* word :
       {"",         "i",         "i0",       "i7",    "i9",    "i44",           "i1a", "q4",
        "i4:",      "i4:0",      "i4:-32",   "i4:33", "i4:48", "i4:row2",       "i4b", "i4a:",
        "float:32", "ternary:x", "ternarya", "I4",    "i4 ",   "i4:99999999999"}) {
    EXPECT_FALSE(ParseQuantScheme(word).ok()) << word;
  }
}

TEST(QuantRecipe, TheFirstRuleThatMatchesDecides) {
  const auto recipe = ParseQuantRecipe(
      "# few bits, more where it hurts\n"
      "@embedding   i6\n"
      "\n"
      "model.layers.0.*  i5:32   # the first layer\r\n"
      "*.down_proj.weight\ti4a:64\n"
      "@other float\n"
      "*a*b*c i2\n"
      "@attention i3");
  ASSERT_TRUE(recipe.ok()) << recipe.status().message();
  ASSERT_EQ(recipe->rules.size(), 6u);
  const auto find = [&](const char* tensor, const char* role) {
    const QuantScheme* const scheme = recipe->Find(tensor, role);
    return scheme == nullptr ? std::string("none") : QuantSchemeName(*scheme);
  };
  EXPECT_EQ(find("model.embed_tokens.weight", "embedding"), "i6:32");
  EXPECT_EQ(find("model.layers.0.mlp.down_proj.weight", "mlp"), "i5:32");
  EXPECT_EQ(find("model.layers.10.mlp.down_proj.weight", "mlp"), "i4a:64");
  EXPECT_EQ(find("model.layers.1.mlp.down_proj.bias", "mlp"), "none");
  EXPECT_EQ(find("x.weight", "other matrices"), "float");
  EXPECT_EQ(find("xaybzc", "mlp"), "i2:32");
  EXPECT_EQ(find("xaybzcq", "mlp"), "none");
  EXPECT_EQ(find("abab", "mlp"), "none");
  EXPECT_EQ(find("y.weight", "attention"), "i3:32");
}

TEST(QuantRecipe, MistakesNameTheirLine) {
  const struct {
    const char *text, *part;
  } rows[] = {
      {"", "no lines"},
      {"# nothing\n\n", "no lines"},
      {"* i4\n* \n", "line 2"},
      {"*\n", "line 1"},
      {"* i4 i5\n", "line 1"},
      {"\n\n* i7\n", "line 3"},
      {"@towers i4\n", "@attention"},
  };
  for (const auto& row : rows) {
    const auto recipe = ParseQuantRecipe(row.text);
    ASSERT_FALSE(recipe.ok()) << row.text;
    EXPECT_NE(recipe.status().message().find(row.part), std::string::npos)
        << recipe.status().message();
  }
}

TEST(QuantRecipe, PresetsParseAndUnknownNamesListThem) {
  ASSERT_FALSE(MixedPresets().empty());
  for (const MixedPreset& preset : MixedPresets()) {
    const auto recipe = MixedRecipe(preset.name);
    ASSERT_TRUE(recipe.ok()) << preset.name;
    // Every matrix has a scheme.
    for (const char* role : {"attention", "mlp", "embedding", "head", "other matrices"}) {
      EXPECT_NE(recipe->Find("some.tensor.weight", role), nullptr) << preset.name << " " << role;
    }
  }
  const auto missing = MixedRecipe("none such");
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.status().message().find(std::string(MixedPresets()[0].name)),
            std::string::npos);
}

}  // namespace
}  // namespace cellm::format
