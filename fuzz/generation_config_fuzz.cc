// Any bytes as generation_config.json: what is accepted can be sampled with.

#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

#include "base/check.h"
#include "capi/generation_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const cellm::Result<cellm::sample::SamplingOptions> options =
      cellm::capi::ReadGenerationConfig(text);
  if (!options.ok()) return 0;
  CELLM_CHECK(cellm::sample::ValidateSampling(*options, std::numeric_limits<int32_t>::max()).ok(),
              "accepted sampling options are not valid");
  cellm_sampling given = CELLM_SAMPLING_INIT;
  given.given = CELLM_SAMPLING_TEMPERATURE | CELLM_SAMPLING_TOP_K;
  if (size >= 8) {
    std::memcpy(&given.temperature, data, 4);
    std::memcpy(&given.top_k, data + 4, 4);
  }
  (void)cellm::capi::ApplySampling(*options, given, 1000).ok();
  return 0;
}
