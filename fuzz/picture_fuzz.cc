// Any bytes as a picture: a Status, or a picture of the size that was allowed, in memory that
// follows from the bytes and the pixels.

#include <cstddef>
#include <cstdint>

#include "base/allocator.h"
#include "base/check.h"
#include "media/picture.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cellm;
  media::PictureLimits limits;
  limits.max_pixels = 1 << 18;
  // Far from the limits of single decoders, which their own tests hold.
  BudgetAllocator budget(SystemAllocator(), (uint64_t{64} << 18) + (4 << 20) + 8 * size);
  {
    const auto picture = media::DecodePicture({data, size}, limits, budget);
    if (picture.ok()) {
      const int64_t pixels = int64_t{picture->width} * picture->height;
      CELLM_CHECK(pixels > 0 && pixels <= limits.max_pixels, "a picture beyond its limits");
      CELLM_CHECK(picture->rgb.size() == static_cast<size_t>(pixels) * 3, "pixels are missing");
    } else {
      CELLM_CHECK(picture.status().code() != StatusCode::kOutOfMemory,
                  "a small picture asked for too much memory");
      CELLM_CHECK(picture.status().code() != StatusCode::kInternal, "an error of ours");
    }
  }
  CELLM_CHECK(budget.used_bytes() == 0, "memory is left behind");
  return 0;
}
