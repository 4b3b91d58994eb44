#include "format/quant_recipe.h"

#include <charconv>

#include "base/limits.h"

namespace cellm::format {
namespace {

constexpr size_t kMaxRecipeBytes = size_t{1} << 20;

// '*' stands for any run of characters. Linear in text * stars.
bool Matches(std::string_view pattern, std::string_view text) {
  size_t p = 0;
  size_t t = 0;
  size_t star = std::string_view::npos;  // the last star, and where its run ends now
  size_t run = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      run = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++run;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string_view TakeWord(std::string_view* line) {
  constexpr std::string_view kSpaces = " \t\r";
  const size_t begin = line->find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) {
    *line = {};
    return {};
  }
  size_t end = line->find_first_of(kSpaces, begin);
  if (end == std::string_view::npos) end = line->size();
  const std::string_view word = line->substr(begin, end - begin);
  line->remove_prefix(end);
  return word;
}

bool IsRole(std::string_view name) {
  return name == "attention" || name == "mlp" || name == "embedding" || name == "head" ||
         name == "other";
}

Status NoScheme(std::string_view word) {
  return InvalidArgument(
      "\"%.*s\" is no number format; there are float, i8 i6 i5 i4 i3 i2 (symmetric), i8a i6a i5a "
      "i4a i3a i2a (affine), ternary and i1, with :row or :COLUMNS (16 or a multiple of 32)",
      static_cast<int>(word.size()), word.data());
}

}  // namespace

Result<QuantScheme> ParseQuantScheme(std::string_view word) {
  QuantScheme scheme;
  std::string_view base = word.substr(0, word.find(':'));
  if (base == "float" && base.size() == word.size()) return scheme;
  if (base == "ternary") {
    scheme.kind = QuantKind::kTernary;
    scheme.bits = 2;
  } else {
    if (base.size() < 2 || base.size() > 3 || base[0] != 'i') return NoScheme(word);
    scheme.bits = base[1] - '0';
    if (scheme.bits < 1 || scheme.bits > 8 || scheme.bits == 7) return NoScheme(word);
    if (base.size() == 3) {
      if (base[2] != 'a' || scheme.bits == 1) return NoScheme(word);
      scheme.kind = QuantKind::kAffine;
    }
    scheme.group = scheme.bits == 8 ? 0 : scheme.bits == 1 ? 128 : 32;
  }
  if (base.size() == word.size()) return scheme;
  const std::string_view group = word.substr(base.size() + 1);
  if (group == "row") {
    scheme.group = 0;
    return scheme;
  }
  const std::from_chars_result end =
      std::from_chars(group.data(), group.data() + group.size(), scheme.group);
  if (end.ec != std::errc() || end.ptr != group.data() + group.size() || scheme.group < 1) {
    return NoScheme(word);
  }
  if (!QuantLayout(scheme, 1, limits::kMaxDimension).ok()) return NoScheme(word);
  return scheme;
}

std::string QuantSchemeName(const QuantScheme& scheme) {
  if (scheme.bits == 0) return "float";
  std::string name = scheme.kind == QuantKind::kTernary ? "ternary" : StrFormat("i%d", scheme.bits);
  if (scheme.kind == QuantKind::kAffine) name += 'a';
  name += ':';
  return name + (scheme.group == 0 ? std::string("row") : std::to_string(scheme.group));
}

Result<PackedLayout> QuantLayout(const QuantScheme& scheme, int32_t rows, int32_t cols) {
  PackedLayout layout;
  layout.rows = rows;
  layout.cols = cols;
  layout.bits = scheme.bits;
  layout.group = scheme.group >= cols ? 0 : scheme.group;
  switch (scheme.kind) {
    case QuantKind::kSymmetric:
      // One and two bits have no level to spare for zero: theirs lie half a step beside it.
      layout.zero2 = scheme.bits <= 2   ? (1 << scheme.bits) - 1
                     : scheme.bits <= 8 ? 1 << scheme.bits
                                        : 0;
      break;
    case QuantKind::kAffine:
      layout.has_min = true;
      if (scheme.bits < 2) return InvalidArgument("affine formats have 2 bits or more");
      break;
    case QuantKind::kTernary:
      layout.zero2 = 2;
      if (scheme.bits != 2) return InvalidArgument("ternary weights take 2 bits");
      break;
  }
  CELLM_RETURN_IF_ERROR(ValidatePackedLayout(layout));
  return layout;
}

const QuantScheme* QuantRecipe::Find(std::string_view tensor, std::string_view role) const {
  for (const QuantRule& rule : rules) {
    const std::string_view pattern = rule.pattern;
    if (pattern.starts_with('@') ? role.starts_with(pattern.substr(1)) : Matches(pattern, tensor)) {
      return &rule.scheme;
    }
  }
  return nullptr;
}

Result<QuantRecipe> ParseQuantRecipe(std::string_view text) {
  if (text.size() > kMaxRecipeBytes) return InvalidArgument("a recipe of %zu bytes", text.size());
  QuantRecipe recipe;
  recipe.name = "recipe";
  int number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    line = line.substr(0, line.find('#'));
    const std::string_view pattern = TakeWord(&line);
    if (pattern.empty()) continue;
    const std::string_view word = TakeWord(&line);
    if (!TakeWord(&line).empty() || word.empty()) {
      return InvalidArgument("recipe, line %d: expected \"PATTERN FORMAT\"", number);
    }
    if (pattern.starts_with('@') && !IsRole(pattern.substr(1))) {
      return InvalidArgument(
          "recipe, line %d: \"%.*s\" is no role; there are @attention, @mlp, @embedding, @head and "
          "@other",
          number, static_cast<int>(pattern.size()), pattern.data());
    }
    auto scheme = ParseQuantScheme(word);
    if (!scheme.ok()) {
      return Status(scheme.status()).WithContext("recipe, line " + std::to_string(number));
    }
    recipe.rules.push_back({std::string(pattern), *scheme});
  }
  if (recipe.rules.empty()) return InvalidArgument("the recipe has no lines");
  return recipe;
}

std::vector<MixedPreset> MixedPresets() {
  return {
      {"6", "@embedding i8\n@head i8\n* i6:64\n"},
      {"5", "@embedding i6\n@head i6\n* i5:64\n"},
      {"4", "@embedding i6\n@head i6\n* i4:64\n"},
      {"3", "@embedding i4\n@head i4\n* i3:64\n"},
      {"2", "@embedding i4:64\n@head i4:64\n*down_proj* i3:64\n*.w2.* i3:64\n* i2:64\n"},
  };
}

Result<QuantRecipe> MixedRecipe(std::string_view name) {
  std::string names;
  for (const MixedPreset& preset : MixedPresets()) {
    if (preset.name == name) {
      CELLM_ASSIGN_OR_RETURN(QuantRecipe recipe, ParseQuantRecipe(preset.recipe));
      recipe.name = "mixed " + std::string(name);
      return recipe;
    }
    names += names.empty() ? "" : ", ";
    names += preset.name;
  }
  return NotFound("no mixed preset \"%.*s\"; there are %s", static_cast<int>(name.size()),
                  name.data(), names.c_str());
}

}  // namespace cellm::format
