#ifndef CELLM_SRC_MEDIA_MEDIA_LIMITS_H_
#define CELLM_SRC_MEDIA_MEDIA_LIMITS_H_

// Every cap on what an encoded picture or clip may ask for; base/limits.h has those of all other
// files.

#include <cstdint>

#include "base/limits.h"

namespace cellm::limits {

// An encoded picture: phones make 50 million pixels, and 200 MB of them is what one may cost.
inline constexpr int32_t kMaxPicturePixels = 1 << 26;
// The largest side that JPEG can state.
inline constexpr int32_t kMaxPictureSide = 65535;
// Tiles of one picture, and rows that it becomes; published processors reach 65 and 16384.
inline constexpr int32_t kMaxPictureTiles = 256;
inline constexpr int64_t kMaxFeatureRows = 1 << 18;
// Scans of a progressive JPEG: each is a pass over the whole picture, and encoders write about ten.
inline constexpr int32_t kMaxJpegScans = 100;
// An encoded clip: frames after decoding (an hour at 16 kHz has 58 million), channels, and rates.
inline constexpr int64_t kMaxSoundFrames = int64_t{1} << 26;
inline constexpr int32_t kMaxSoundChannels = 64;
inline constexpr int32_t kMinSoundRate = 1000;
inline constexpr int32_t kMaxSoundRate = 768000;

}  // namespace cellm::limits

#endif  // CELLM_SRC_MEDIA_MEDIA_LIMITS_H_
