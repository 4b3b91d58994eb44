#include "unicode/script.h"

#include <algorithm>
#include <iterator>

namespace cellm::unicode {
namespace {

struct ScriptRange {
  uint32_t first;
  uint32_t last;
  Script script;
};

#include "unicode/scripts.inc"

}  // namespace

constinit const Script kScriptUnknown = 0;
constinit const Script kScriptHan = kHan;
constinit const Script kScriptHiragana = kHiragana;
constinit const Script kScriptKatakana = kKatakana;

Script ScriptOf(char32_t code_point) {
  const ScriptRange* range = std::upper_bound(
      std::begin(kScriptRanges), std::end(kScriptRanges), code_point,
      [](char32_t c, const ScriptRange& candidate) { return c < candidate.first; });
  if (range == std::begin(kScriptRanges)) return kScriptUnknown;
  --range;
  return code_point <= range->last ? range->script : kScriptUnknown;
}

}  // namespace cellm::unicode
