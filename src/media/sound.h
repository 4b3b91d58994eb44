#ifndef CELLM_SRC_MEDIA_SOUND_H_
#define CELLM_SRC_MEDIA_SOUND_H_

// Sound: one channel of floats at the rate that a model asks for, and the one door through which
// encoded clips become that.

#include <cstdint>
#include <span>

#include "base/allocator.h"
#include "base/status.h"

namespace cellm::media {

struct Sound {
  int32_t rate_hz = 0;
  Array<float> samples;  // full scale is [-1, 1]; files of floats may go beyond
};

struct SoundLimits {
  // Longer clips are refused by their header, before memory is asked for.
  double max_seconds = 3600.0;
};

// Decodes WAV (integers of 8 to 32 bits, floats of 32 and 64, any channels) and, where they are
// built in, FLAC (libsndfile) and MP3 (libmpg123). Channels are averaged; another rate than
// `rate_hz` is resampled where speexdsp is built in.
//   InvalidArgument  no bytes, or a rate_hz that no model has
//   Unsupported      not a sound that this build reads, or a kind of one that it does not: named
//   Corrupt          cut short, lengths that lie, samples that are not finite numbers
//   OutOfRange       no samples, or more than `limits` and the library's own caps (limits.h)
//   OutOfMemory
// Any thread.
Result<Sound> DecodeSound(std::span<const uint8_t> bytes, int32_t rate_hz,
                          const SoundLimits& limits, Allocator& allocator);

// `sound` at another rate, ceil(samples * rate_hz / sound.rate_hz) of them: a windowed sinc without
// delay. Unsupported when it is needed and not built in; OutOfMemory.
Result<Sound> ResampleSound(Sound sound, int32_t rate_hz, Allocator& allocator);
// Whether any rate can be had.
bool HaveResampler();
// Whether FLAC and MP3 can be read.
bool HaveFlac();
bool HaveMp3();

}  // namespace cellm::media

#endif  // CELLM_SRC_MEDIA_SOUND_H_
