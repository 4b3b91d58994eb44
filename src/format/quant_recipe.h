#ifndef CELLM_SRC_FORMAT_QUANT_RECIPE_H_
#define CELLM_SRC_FORMAT_QUANT_RECIPE_H_

// Which number format each tensor of a converted file gets.
//
// A scheme is written as one word:
//
//   float               as `--dtype` says
//   i8 i6 i5 i4 i3 i2   symmetric: value = level * scale; i2 has the levels -1.5 -0.5 0.5 1.5
//   i8a i6a ... i2a     affine: value = code * scale + min
//   ternary             -1, 0 or 1 times the scale
//   i1                  -1 or 1 times the scale
//
// with an optional ":row" or ":COLUMNS" for the columns that share a scale: 16 or a multiple of 32.
// Without it: the row for i8 and ternary, 128 for i1, else 32.
//
// A recipe is a text file of lines "PATTERN SCHEME"; '#' starts a comment. A pattern is a tensor's
// name with '*' for any run of characters, or a role: @attention, @mlp, @embedding, @head, @other.
// The first line that matches decides:
//
//   @embedding             i6:32
//   *.layers.0.*           i5
//   *.down_proj.weight     i4a:32
//   *                      i3:64

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/packed.h"

namespace cellm::format {

enum class QuantKind : uint8_t { kSymmetric, kAffine, kTernary };

struct QuantScheme {
  int32_t bits = 0;   // 0: floats; 1 to 6 or 8
  int32_t group = 0;  // columns that share a scale; 0: the whole row
  QuantKind kind = QuantKind::kSymmetric;
};

// The words above. InvalidArgument.
Result<QuantScheme> ParseQuantScheme(std::string_view word);
std::string QuantSchemeName(const QuantScheme& scheme);
// The packed layout of a [rows, cols] matrix; a group as wide as the row or wider is the row.
// `scheme.bits` is not 0. InvalidArgument when the scheme is none.
Result<PackedLayout> QuantLayout(const QuantScheme& scheme, int32_t rows, int32_t cols);

struct QuantRule {
  std::string pattern;
  QuantScheme scheme;
};

struct QuantRecipe {
  std::string name;  // for the file's description; "" without rules
  std::vector<QuantRule> rules;

  // The scheme of the first rule that matches; null when none does. `role` as RoleName().
  const QuantScheme* Find(std::string_view tensor, std::string_view role) const;
};

// Parses a recipe's text. InvalidArgument names the line.
Result<QuantRecipe> ParseQuantRecipe(std::string_view text);
// The presets of --mixed, from many bits to few; docs/quality.md has what they cost and give.
struct MixedPreset {
  std::string_view name, recipe;
};
std::vector<MixedPreset> MixedPresets();
// NotFound lists the names.
Result<QuantRecipe> MixedRecipe(std::string_view name);

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_QUANT_RECIPE_H_
