// WAV: a RIFF file of chunks (name, length, data, a pad byte after odd lengths), of which two
// count.
//
//   fmt   format u16, channels u16, rate u32, bytes a second u32, bytes a frame u16, bits u16
//   data  frames of `channels` samples, little-endian; 8 bits are unsigned, more are signed
// Samples of fewer bits than their bytes hold stand in the upper ones, so that the scale follows
// from the bytes. Format 1 is integers, 3 floats, 0xFFFE one of them stated in an extension.

#include <cmath>
#include <cstring>
#include <string_view>

#include "base/bytes.h"
#include "media/media_limits.h"
#include "media/sound_decoders.h"

namespace cellm::media {
namespace {

struct WavFormat {
  int32_t format = 0;  // 1 or 3
  int32_t channels = 0;
  int32_t rate_hz = 0;
  int32_t sample_bytes = 0;
};

bool Is(const uint8_t* bytes, std::string_view name) {
  return std::memcmp(bytes, name.data(), name.size()) == 0;
}

const char* CodecName(int32_t format) {
  switch (format) {
    case 2:
    case 0x11:
      return "ADPCM";
    case 6:
      return "A-law";
    case 7:
      return "mu-law";
    case 0x31:
      return "GSM";
    case 0x50:
    case 0x55:
      return "MPEG";
    default:
      return "a codec";
  }
}

Result<WavFormat> ReadFormat(std::span<const uint8_t> data) {
  if (data.size() < 16) return Corrupt("WAV: a format of %zu bytes; 16 are needed", data.size());
  WavFormat f;
  f.format = LoadLe16(&data[0]);
  f.channels = LoadLe16(&data[2]);
  const uint32_t rate = LoadLe32(&data[4]);
  const int32_t frame_bytes = LoadLe16(&data[12]);
  const int32_t bits = LoadLe16(&data[14]);
  if (f.format == 0xFFFE) {
    if (data.size() < 40) return Corrupt("WAV: the extension of the format is missing");
    f.format = LoadLe16(&data[24]);
  }
  if (f.format != 1 && f.format != 3) {
    return Unsupported("WAV: samples coded as %s (format %d) are not read; save them as PCM",
                       CodecName(f.format), f.format);
  }
  if (f.channels < 1) return Corrupt("WAV: zero channels");
  if (rate < static_cast<uint32_t>(limits::kMinSoundRate) ||
      rate > static_cast<uint32_t>(limits::kMaxSoundRate)) {
    return OutOfRange("WAV: %u samples a second; %d to %d are taken", rate, limits::kMinSoundRate,
                      limits::kMaxSoundRate);
  }
  f.rate_hz = static_cast<int32_t>(rate);
  f.sample_bytes = frame_bytes / f.channels;
  const bool whole = f.sample_bytes > 0 && f.sample_bytes * f.channels == frame_bytes;
  if (!whole || bits > 8 * f.sample_bytes || bits <= 8 * (f.sample_bytes - 1)) {
    return Corrupt("WAV: frames of %d bytes cannot be %d channels of %d bits", frame_bytes,
                   f.channels, bits);
  }
  const bool sizes =
      f.format == 1 ? f.sample_bytes <= 4 : f.sample_bytes == 4 || f.sample_bytes == 8;
  if (!sizes) {
    return Unsupported(
        "WAV: %s of %d bits are not read; integers of 8 to 32 bits and floats of 32 "
        "and 64 are",
        f.format == 1 ? "integers" : "floats", bits);
  }
  return f;
}

// One sample as a float of full scale 1.
double Sample(const uint8_t* p, const WavFormat& f) {
  if (f.format == 3) {
    return f.sample_bytes == 4 ? static_cast<double>(LoadLe<float>(p)) : LoadLe<double>(p);
  }
  switch (f.sample_bytes) {
    case 1:
      return (p[0] - 128) / 128.0;
    case 2:
      return static_cast<int16_t>(LoadLe16(p)) / 32768.0;
    case 3: {
      const uint32_t high = static_cast<uint32_t>(p[0]) << 8 | static_cast<uint32_t>(p[1]) << 16 |
                            static_cast<uint32_t>(p[2]) << 24;
      return static_cast<int32_t>(high) / 2147483648.0;
    }
    default:
      return static_cast<int32_t>(LoadLe32(p)) / 2147483648.0;
  }
}

Result<Sound> ReadSamples(std::span<const uint8_t> data, const WavFormat& f,
                          const SoundLimits& limits, Allocator& allocator) {
  const size_t frame_bytes = static_cast<size_t>(f.sample_bytes) * static_cast<size_t>(f.channels);
  if (data.size() % frame_bytes != 0) {
    return Corrupt(
        "WAV: %zu bytes of samples are no whole number of frames of %zu bytes; the file "
        "is cut short",
        data.size(), frame_bytes);
  }
  const size_t frames = data.size() / frame_bytes;
  CELLM_RETURN_IF_ERROR(
      CheckSoundSize(static_cast<int64_t>(frames), f.channels, f.rate_hz, limits));
  Sound sound;
  sound.rate_hz = f.rate_hz;
  CELLM_ASSIGN_OR_RETURN(sound.samples, Array<float>::Uninitialised(
                                            allocator, frames, MemoryClass::kActivations, "WAV"));
  const uint8_t* p = data.data();
  for (size_t i = 0; i < frames; ++i) {
    double sum = 0.0;
    for (int32_t channel = 0; channel < f.channels; ++channel, p += f.sample_bytes) {
      sum += Sample(p, f);
    }
    const float mean = static_cast<float>(sum / f.channels);
    if (!std::isfinite(mean)) {
      return Corrupt("WAV: sample %zu is not a finite number", i);
    }
    sound.samples[i] = mean;
  }
  return sound;
}

}  // namespace

Result<Sound> DecodeWav(std::span<const uint8_t> bytes, const SoundLimits& limits,
                        Allocator& allocator) {
  WavFormat format;
  size_t at = 12;
  while (true) {
    if (bytes.size() < at + 8) {
      return Corrupt("WAV: the file ends at byte %zu without samples", bytes.size());
    }
    const uint8_t* chunk = &bytes[at];
    const size_t length = LoadLe32(chunk + 4);
    if (length > bytes.size() - at - 8) {
      return Corrupt(
          "WAV: the part %.4s at byte %zu says %zu bytes, and %zu are left; the file is "
          "cut short, or was written to a pipe",
          reinterpret_cast<const char*>(chunk), at, length, bytes.size() - at - 8);
    }
    const std::span<const uint8_t> data = bytes.subspan(at + 8, length);
    if (Is(chunk, "fmt ")) {
      CELLM_ASSIGN_OR_RETURN(format, ReadFormat(data));
    } else if (Is(chunk, "data")) {
      if (format.format == 0) return Corrupt("WAV: samples at byte %zu before their format", at);
      return ReadSamples(data, format, limits, allocator);
    }
    at += 8 + length + length % 2;
  }
}

}  // namespace cellm::media
