#include "media/sound.h"

#include <cstring>
#include <string_view>

#include "media/media_limits.h"
#include "media/sound_decoders.h"

namespace cellm::media {
namespace {

bool StartsWith(std::span<const uint8_t> bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

// MP3 with a tag, or the sync word of a layer III frame: eleven bits, a version, the layer.
bool IsMp3(std::span<const uint8_t> bytes) {
  if (StartsWith(bytes, "ID3")) return true;
  return bytes.size() >= 2 && bytes[0] == 0xFF && (bytes[1] & 0xE6) == 0xE2;
}

const char* KindOf(std::span<const uint8_t> bytes) {
  if (StartsWith(bytes, "OggS")) return "Ogg (Vorbis or Opus)";
  if (StartsWith(bytes, "RIFX")) return "a big-endian WAV";
  if (StartsWith(bytes, "RF64")) return "a 64-bit WAV";
  if (StartsWith(bytes, "FORM")) return "AIFF";
  if (StartsWith(bytes, "\x1A\x45\xDF\xA3")) return "WebM or Matroska";
  if (bytes.size() >= 8 && StartsWith(bytes.subspan(4), "ftyp")) return "M4A or a video";
  return "a file that starts with no known signature";
}

Result<Sound> Decode(std::span<const uint8_t> bytes, const SoundLimits& limits,
                     Allocator& allocator) {
  if (StartsWith(bytes, "RIFF") && bytes.size() >= 12 && StartsWith(bytes.subspan(8), "WAVE")) {
    return DecodeWav(bytes, limits, allocator);
  }
  if (StartsWith(bytes, "fLaC") || IsMp3(bytes)) {
    return DecodeWithSndfile(bytes, limits, allocator);
  }
  return Unsupported("this is %s; WAV, FLAC and MP3 are read", KindOf(bytes));
}

}  // namespace

Status CheckSoundSize(int64_t frames, int32_t channels, int32_t rate_hz,
                      const SoundLimits& limits) {
  if (channels < 1 || channels > limits::kMaxSoundChannels) {
    return OutOfRange("the clip has %d channels; 1 to %d are taken", channels,
                      limits::kMaxSoundChannels);
  }
  if (rate_hz < limits::kMinSoundRate || rate_hz > limits::kMaxSoundRate) {
    return OutOfRange("the clip has %d samples a second; %d to %d are taken", rate_hz,
                      limits::kMinSoundRate, limits::kMaxSoundRate);
  }
  if (frames < 1) return OutOfRange("the clip has no samples");
  const double seconds = static_cast<double>(frames) / rate_hz;
  if (frames > limits::kMaxSoundFrames || !(seconds <= limits.max_seconds)) {
    return OutOfRange(
        "the clip has %.1f s (%lld samples); at most %.1f s and %lld samples are "
        "taken; cut it",
        seconds, static_cast<long long>(frames), limits.max_seconds,
        static_cast<long long>(limits::kMaxSoundFrames));
  }
  return OkStatus();
}

Result<Sound> DecodeSound(std::span<const uint8_t> bytes, int32_t rate_hz,
                          const SoundLimits& limits, Allocator& allocator) {
  if (bytes.empty()) return InvalidArgument("the clip has no bytes");
  if (rate_hz < limits::kMinSoundRate || rate_hz > limits::kMaxSoundRate) {
    return InvalidArgument("a rate of %d Hz was asked for; %d to %d are possible", rate_hz,
                           limits::kMinSoundRate, limits::kMaxSoundRate);
  }
  CELLM_ASSIGN_OR_RETURN(Sound sound, Decode(bytes, limits, allocator));
  return ResampleSound(std::move(sound), rate_hz, allocator);
}

}  // namespace cellm::media
