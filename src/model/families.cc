#include "model/families.h"

#include <algorithm>

namespace cellm {
namespace {

constexpr const Family* kFamilies[] = {
    // One a line, by name.
    &kApertusFamily,        //
    &kBitNetFamily,         //
    &kExaone4Family,        //
    &kGemma2Family,         //
    &kGemma3Family,         //
    &kGemma4Family,         //
    &kGraniteFamily,        //
    &kGraniteHybridFamily,  //
    &kGraniteMoeFamily,     //
    &kGraniteSharedFamily,  //
    &kHunyuanFamily,        //
    &kLfm2Family,           //
    &kLfm2MoeFamily,        //
    &kLlamaFamily,          //
    &kMiniCpmFamily,        //
    &kMinistral3Family,     //
    &kMistralFamily,        //
    &kMobileLlmFamily,      //
    &kOlmo2Family,          //
    &kOlmo3Family,          //
    &kPhi3Family,           //
    &kQwen2Family,          //
    &kQwen3Family,          //
    &kQwen35Family,         //
    &kQwen35MoeFamily,      //
    &kQwen3MoeFamily,       //
    &kSmolLm3Family,        //
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
