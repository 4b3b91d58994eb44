#include "model/families.h"

#include <algorithm>

namespace cellm {
namespace {

constexpr const Family* kFamilies[] = {
    // One a line, by name.
    &kGemma2Family,    //
    &kGemma3Family,    //
    &kLlamaFamily,     //
    &kMistralFamily,   //
    &kQwen2Family,     //
    &kQwen3Family,     //
    &kQwen3MoeFamily,  //
};

}  // namespace

std::span<const Family* const> AllFamilies() { return kFamilies; }

const Family* FindFamily(std::string_view model_type) {
  for (const Family* family : kFamilies) {
    const auto& types = family->model_types;
    if (std::find(types.begin(), types.end(), model_type) != types.end()) return family;
  }
  return nullptr;
}

}  // namespace cellm
