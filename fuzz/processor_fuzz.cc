// Any three texts, parted by bytes of zero, as config.json, preprocessor_config.json and
// processor_config.json: what is accepted can be planned for any picture and clip, and what is
// small is processed.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "media/placeholders.h"
#include "media/processor.h"

namespace {

using namespace cellm;
using namespace cellm::media;

// Results beyond this only cost time.
constexpr int64_t kSmall = 1 << 18;

void TryPicture(const Processor& processor, Size size) {
  const auto plan = PlanPicture(processor, size);
  if (!plan.ok()) return;
  const auto small = [](Size s) { return int64_t{s.width} * s.height <= kSmall; };
  if (plan->feature_rows <= kSmall / 16) {
    const Expansion expansion = ExpandPicture(processor, *plan);
    CELLM_CHECK(expansion.feature_rows == plan->feature_rows, "rows differ from the plan");
  }
  const Size between = {plan->first.width, size.height};
  if (plan->tower_values > kSmall || !small(size) || !small(between) || !small(plan->first) ||
      !small(plan->canvas)) {
    return;
  }
  const std::vector<uint8_t> rgb(
      static_cast<size_t>(size.width) * static_cast<size_t>(size.height) * 3, 77);
  const auto input =
      ProcessPicture(processor, {size.width, size.height, rgb.data()}, SystemAllocator());
  CELLM_CHECK(input.ok(), "a picture that was planned cannot be processed");
  int64_t product = 1;
  for (const int64_t dim : input->shape) product *= dim;
  CELLM_CHECK(product == plan->tower_values, "the shape is not the plan's");
  for (const float value : input->storage) CELLM_CHECK(!std::isnan(value), "a value is no number");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t first = std::min(all.find('\0'), all.size());
  const size_t second = std::min(all.find('\0', std::min(first + 1, all.size())), all.size());
  ProcessorFiles files;
  files.config = all.substr(0, first);
  if (first < all.size()) files.preprocessor = all.substr(first + 1, second - first - 1);
  if (second < all.size()) files.processor = all.substr(second + 1);
  const auto processor = ReadProcessor(files, {});
  if (!processor.ok()) return 0;
  for (const Size picture : {Size{1, 1}, Size{100, 37}, Size{37, 100}, Size{20000, 1},
                             Size{1, 20000}, Size{65535, 1024}}) {
    TryPicture(*processor, picture);
  }
  for (const int64_t samples : {0, 1, 1000, 20000, 100000000}) {
    const auto plan = PlanSound(*processor, samples);
    if (!plan.ok() || plan->frames * processor->gemma4.mel_bins > kSmall || samples > 20000)
      continue;
    const std::vector<float> clip(static_cast<size_t>(samples), 0.5f);
    CELLM_CHECK(ProcessSound(*processor, clip, SystemAllocator()).ok(),
                "a clip that was planned cannot be processed");
  }
  return 0;
}
