#include "media/sound.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "media/media_limits.h"
#include "media/sound_decoders.h"

namespace cellm::media {
namespace {

bool StartsWith(std::span<const uint8_t> bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

// The sync word of an MPEG frame (eleven bits), then the version and the layer; only layer III is
// MP3.
bool IsMpegFrame(std::span<const uint8_t> bytes) {
  return bytes.size() >= 2 && bytes[0] == 0xFF && (bytes[1] & 0xE0) == 0xE0;
}
bool IsMp3Frame(std::span<const uint8_t> bytes) {
  return IsMpegFrame(bytes) && (bytes[1] & 0x06) == 0x02;
}

// The bytes behind an ID3 tag in front of the frames, and behind the zeros that pad it. The tag's
// size has seven bits a byte.
std::span<const uint8_t> SkipTag(std::span<const uint8_t> bytes) {
  if (!StartsWith(bytes, "ID3") || bytes.size() < 10) return bytes;
  size_t size = 0;
  for (size_t i = 6; i < 10; ++i) size = size << 7 | (bytes[i] & 0x7F);
  size_t at = std::min(bytes.size(), size + 10);
  while (at < bytes.size() && bytes[at] == 0) ++at;
  return bytes.subspan(at);
}

const char* KindOf(std::span<const uint8_t> bytes) {
  if (IsMpegFrame(SkipTag(bytes))) return "MPEG audio of another layer than III";
  if (StartsWith(bytes, "ID3")) return "an ID3 tag without MP3 frames behind it";
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
  const std::span<const uint8_t> frames = SkipTag(bytes);
  if (StartsWith(bytes, "fLaC")) return DecodeFlac(bytes, limits, allocator);
  if (IsMp3Frame(frames)) return DecodeMp3(frames, limits, allocator);
  return Unsupported("this is %s; WAV, FLAC and MP3 are read", KindOf(bytes));
}

}  // namespace

Status GrowSound(size_t held, size_t wanted, Allocator& allocator, Sound* sound) {
  Array<float>& samples = sound->samples;
  if (wanted <= samples.size()) return OkStatus();
  CELLM_ASSIGN_OR_RETURN(Array<float> larger, Array<float>::Uninitialised(
                                                  allocator, std::max(wanted, 2 * samples.size()),
                                                  MemoryClass::kActivations, "decoded sound"));
  if (held > 0) std::memcpy(larger.data(), samples.data(), held * sizeof(float));
  samples = std::move(larger);
  return OkStatus();
}

Status TrimSound(size_t held, Allocator& allocator, Sound* sound) {
  CELLM_ASSIGN_OR_RETURN(
      Array<float> exact,
      Array<float>::Uninitialised(allocator, held, MemoryClass::kActivations, "decoded sound"));
  if (held > 0) std::memcpy(exact.data(), sound->samples.data(), held * sizeof(float));
  sound->samples = std::move(exact);
  return OkStatus();
}

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
