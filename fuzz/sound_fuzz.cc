// Any bytes as a clip: a Status, or finite samples at the rate that was asked for.

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/allocator.h"
#include "base/check.h"
#include "media/sound.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cellm;
  media::SoundLimits limits;
  limits.max_seconds = 2.0;
  // Two seconds at the highest rate, twice while they grow, and at the rate of the model.
  BudgetAllocator budget(SystemAllocator(), uint64_t{64} << 20);
  {
    const auto sound = media::DecodeSound({data, size}, 16000, limits, budget);
    if (sound.ok()) {
      CELLM_CHECK(sound->rate_hz == 16000 && !sound->samples.empty(), "a clip of another rate");
      CELLM_CHECK(sound->samples.size() <= 2 * 16000 + 1, "a clip beyond its limits");
      for (const float sample : sound->samples) {
        CELLM_CHECK(std::isfinite(sample), "a sample is no number");
      }
    } else {
      CELLM_CHECK(sound.status().code() != StatusCode::kOutOfMemory,
                  "a short clip asked for too much memory");
      CELLM_CHECK(sound.status().code() != StatusCode::kInternal, "an error of ours");
    }
  }
  CELLM_CHECK(budget.used_bytes() == 0, "memory is left behind");
  return 0;
}
