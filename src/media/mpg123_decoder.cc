// The one place that includes libmpg123: MP3, fed from memory and read in blocks.
//
// It is told to be quiet, to mix channels to one and to give floats. The length is known at the end
// only, so memory grows with what was really decoded.

#include <cmath>

#include "media/media_limits.h"
#include "media/sound_decoders.h"

#if defined(CELLM_HAVE_MPG123)
#include <mpg123.h>

namespace cellm::media {
namespace {

// The rate of the stream, once its first frame was seen; a stream may not change it on the way.
Status ReadRate(mpg123_handle* decoder, Sound* sound) {
  long rate = 0;
  int channels = 0;
  int encoding = 0;
  if (mpg123_getformat(decoder, &rate, &channels, &encoding) != MPG123_OK) {
    return Corrupt("MP3: %s", mpg123_strerror(decoder));
  }
  if (channels != 1 || encoding != MPG123_ENC_FLOAT_32) {
    return Unsupported("MP3: this build of libmpg123 gives no floats of one channel");
  }
  if (sound->rate_hz != 0 && rate != sound->rate_hz) {
    return Unsupported("MP3: the rate changes from %d to %ld Hz on the way", sound->rate_hz, rate);
  }
  if (rate < limits::kMinSoundRate || rate > limits::kMaxSoundRate) {
    return Corrupt("MP3: %ld samples a second", rate);
  }
  sound->rate_hz = static_cast<int32_t>(rate);
  return OkStatus();
}

Result<Sound> ReadAll(mpg123_handle* decoder, const SoundLimits& limits, Allocator& allocator) {
  constexpr size_t kBlock = 1 << 14;
  Sound sound;
  size_t frames = 0;
  for (int code = MPG123_OK; code == MPG123_OK || code == MPG123_NEW_FORMAT;) {
    CELLM_RETURN_IF_ERROR(GrowSound(frames, frames + kBlock, allocator, &sound));
    float* out = sound.samples.data() + frames;
    size_t bytes = 0;
    code = mpg123_read(decoder, out, kBlock * sizeof(float), &bytes);
    if (code == MPG123_NEW_FORMAT) CELLM_RETURN_IF_ERROR(ReadRate(decoder, &sound));
    if (bytes == 0) continue;
    if (sound.rate_hz == 0) CELLM_RETURN_IF_ERROR(ReadRate(decoder, &sound));
    for (size_t i = 0; i < bytes / sizeof(float); ++i) {
      if (!std::isfinite(out[i])) return Corrupt("MP3: sample %zu is not a number", frames + i);
    }
    frames += bytes / sizeof(float);
    CELLM_RETURN_IF_ERROR(CheckSoundSize(static_cast<int64_t>(frames), 1, sound.rate_hz, limits));
  }
  if (frames == 0) return Corrupt("MP3: no frame of the file can be decoded");
  CELLM_RETURN_IF_ERROR(TrimSound(frames, allocator, &sound));
  return sound;
}

}  // namespace

bool HaveMp3() { return true; }

Result<Sound> DecodeMp3(std::span<const uint8_t> bytes, const SoundLimits& limits,
                        Allocator& allocator) {
  int code = MPG123_OK;
  mpg123_handle* decoder = mpg123_new(nullptr, &code);
  if (decoder == nullptr) return OutOfMemory("MP3: %s", mpg123_plain_strerror(code));
  const long flags = MPG123_QUIET | MPG123_FORCE_FLOAT | MPG123_MONO_MIX;
  const bool ready = mpg123_param(decoder, MPG123_ADD_FLAGS, flags, 0.0) == MPG123_OK &&
                     mpg123_open_feed(decoder) == MPG123_OK &&
                     mpg123_feed(decoder, bytes.data(), bytes.size()) == MPG123_OK;
  Result<Sound> sound = ready ? ReadAll(decoder, limits, allocator)
                              : Result<Sound>(OutOfMemory("MP3: %s", mpg123_strerror(decoder)));
  mpg123_delete(decoder);
  return sound;
}

}  // namespace cellm::media

#else

namespace cellm::media {

bool HaveMp3() { return false; }

Result<Sound> DecodeMp3(std::span<const uint8_t>, const SoundLimits&, Allocator&) {
  return Unsupported(
      "MP3 is not in this build: save the clip as WAV, or build with libmpg123 (Debian "
      "libmpg123-dev)");
}

}  // namespace cellm::media

#endif
