#ifndef CELLM_SRC_MEDIA_RESIZE_H_
#define CELLM_SRC_MEDIA_RESIZE_H_

// Resampling in integers, bit for bit as the two libraries under the published processors do it.
//
// Separable with antialiasing: columns first, then rows, each pass rounded to 8 bits; a pass that
// changes nothing is skipped. Output i of n -> o has its centre at (i + 0.5) * n / o and weighs the
// inputs within the filter's support, which shrinking widens by n / o; weights are divided by their
// sum, so edges need no replication. Each weight becomes an integer of B fractional bits, and
//   out = clip((2^(B-1) + sum(weight * pixel)) >> B, 0, 255).
// The libraries differ in B alone: PIL takes 22, torchvision what lets the largest weight of the
// pass fit 15 bits. Between them values differ by a level or two.

#include <cstdint>

#include "base/allocator.h"
#include "base/status.h"
#include "media/picture.h"

namespace cellm::media {

enum class Filter { kBilinear, kBicubic, kLanczos };
enum class Backend { kTorchvision, kPil };

// `picture` in width x height (both positive, at most limits::kMaxPictureSide). OutOfMemory. Any
// thread. Time: pixels of both passes times the taps of the filter.
Result<Picture> Resize(const PictureView& picture, int32_t width, int32_t height, Filter filter,
                       Backend backend, Allocator& allocator);

}  // namespace cellm::media

#endif  // CELLM_SRC_MEDIA_RESIZE_H_
