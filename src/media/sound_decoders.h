#ifndef CELLM_SRC_MEDIA_SOUND_DECODERS_H_
#define CELLM_SRC_MEDIA_SOUND_DECODERS_H_

// The decoders behind sound.h. Private to src/media.

#include <cstdint>
#include <span>

#include "media/sound.h"

namespace cellm::media {

// Refuses what is too much, from a header alone. OutOfRange names what was found.
Status CheckSoundSize(int64_t frames, int32_t channels, int32_t rate_hz, const SoundLimits& limits);

// Room for `wanted` samples, of which the first `held` are kept; then no more than `held`. For
// files whose length is known when they end. OutOfMemory.
Status GrowSound(size_t held, size_t wanted, Allocator& allocator, Sound* sound);
Status TrimSound(size_t held, Allocator& allocator, Sound* sound);

// One channel, at the file's own rate.
Result<Sound> DecodeWav(std::span<const uint8_t> bytes, const SoundLimits& limits,
                        Allocator& allocator);
Result<Sound> DecodeFlac(std::span<const uint8_t> bytes, const SoundLimits& limits,
                         Allocator& allocator);
// `bytes` start with a frame: behind any tag.
Result<Sound> DecodeMp3(std::span<const uint8_t> bytes, const SoundLimits& limits,
                        Allocator& allocator);

}  // namespace cellm::media

#endif  // CELLM_SRC_MEDIA_SOUND_DECODERS_H_
