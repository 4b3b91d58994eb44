#ifndef CELLM_SRC_MEDIA_SOUND_DECODERS_H_
#define CELLM_SRC_MEDIA_SOUND_DECODERS_H_

// The decoders behind sound.h. Private to src/media.

#include <cstdint>
#include <span>

#include "media/sound.h"

namespace cellm::media {

// Refuses what is too much, from a header alone. OutOfRange names what was found.
Status CheckSoundSize(int64_t frames, int32_t channels, int32_t rate_hz, const SoundLimits& limits);

// One channel, at the file's own rate.
Result<Sound> DecodeWav(std::span<const uint8_t> bytes, const SoundLimits& limits,
                        Allocator& allocator);
Result<Sound> DecodeWithSndfile(std::span<const uint8_t> bytes, const SoundLimits& limits,
                                Allocator& allocator);

}  // namespace cellm::media

#endif  // CELLM_SRC_MEDIA_SOUND_DECODERS_H_
