// The one place that includes libsndfile: FLAC, read from memory in blocks.
//
// The header may lie about the length, so memory grows with what was really decoded. libsndfile
// reads MP3 as well, but lets the library behind it print; mpg123_decoder.cc does not.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "media/media_limits.h"
#include "media/sound_decoders.h"

#if defined(CELLM_HAVE_SNDFILE)
#include <sndfile.h>

namespace cellm::media {
namespace {

struct Source {
  std::span<const uint8_t> bytes;
  sf_count_t at = 0;
};

sf_count_t Length(void* user) {
  return static_cast<sf_count_t>(static_cast<Source*>(user)->bytes.size());
}
sf_count_t Seek(sf_count_t offset, int whence, void* user) {
  Source& source = *static_cast<Source*>(user);
  const sf_count_t size = Length(user);
  sf_count_t base = 0;
  if (whence == SEEK_CUR) base = source.at;
  if (whence == SEEK_END) base = size;
  // The library's offsets lie within a file, whose size is far from the end of 64 bits.
  source.at = std::clamp<sf_count_t>(base + std::clamp(offset, -size, size), 0, size);
  return source.at;
}
sf_count_t Read(void* out, sf_count_t count, void* user) {
  Source& source = *static_cast<Source*>(user);
  const sf_count_t taken = std::clamp<sf_count_t>(count, 0, Length(user) - source.at);
  std::memcpy(out, source.bytes.data() + source.at, static_cast<size_t>(taken));
  source.at += taken;
  return taken;
}
sf_count_t Write(const void*, sf_count_t, void*) { return 0; }
sf_count_t Tell(void* user) { return static_cast<Source*>(user)->at; }

Result<Sound> ReadAll(SNDFILE* file, const SF_INFO& info, const SoundLimits& limits,
                      Allocator& allocator) {
  constexpr size_t kBlockFrames = 4096;
  const size_t channels = static_cast<size_t>(info.channels);
  CELLM_ASSIGN_OR_RETURN(Array<float> block,
                         Array<float>::Uninitialised(allocator, kBlockFrames * channels,
                                                     MemoryClass::kActivations, "decoded sound"));
  Sound sound;
  sound.rate_hz = info.samplerate;
  size_t frames = 0;
  while (true) {
    const sf_count_t got = sf_readf_float(file, block.data(), kBlockFrames);
    if (got <= 0) break;
    const size_t count = static_cast<size_t>(got);
    CELLM_RETURN_IF_ERROR(CheckSoundSize(static_cast<int64_t>(frames + count), info.channels,
                                         info.samplerate, limits));
    CELLM_RETURN_IF_ERROR(GrowSound(frames, frames + count, allocator, &sound));
    for (size_t i = 0; i < count; ++i) {
      double sum = 0.0;
      for (size_t c = 0; c < channels; ++c) {
        sum += static_cast<double>(block[i * channels + c]);
      }
      const float mean = static_cast<float>(sum / static_cast<double>(channels));
      if (!std::isfinite(mean)) {
        return Corrupt("sample %zu of the clip is not a finite number", frames + i);
      }
      sound.samples[frames + i] = mean;
    }
    frames += count;
  }
  if (sf_error(file) != SF_ERR_NO_ERROR) {
    return Corrupt("the clip is damaged: %s", sf_strerror(file));
  }
  // FLAC states its length; a file that ends before it is cut short.
  const bool flac = (info.format & SF_FORMAT_TYPEMASK) == SF_FORMAT_FLAC;
  if (flac && static_cast<int64_t>(frames) < info.frames) {
    return Corrupt("FLAC: %zu of %lld samples are there; the file is cut short", frames,
                   static_cast<long long>(info.frames));
  }
  CELLM_RETURN_IF_ERROR(
      CheckSoundSize(static_cast<int64_t>(frames), info.channels, info.samplerate, limits));
  CELLM_RETURN_IF_ERROR(TrimSound(frames, allocator, &sound));
  return sound;
}

}  // namespace

bool HaveFlac() { return true; }

Result<Sound> DecodeFlac(std::span<const uint8_t> bytes, const SoundLimits& limits,
                         Allocator& allocator) {
  Source source = {bytes};
  SF_VIRTUAL_IO io = {Length, Seek, Read, Write, Tell};
  SF_INFO info = {};
  SNDFILE* file = sf_open_virtual(&io, SFM_READ, &info, &source);
  if (file == nullptr) return Corrupt("the clip cannot be read: %s", sf_strerror(nullptr));
  Status size = OkStatus();
  // A length that FLAC does not know is given as the largest number.
  if (info.frames > 0 && info.frames < SF_COUNT_MAX) {
    size = CheckSoundSize(info.frames, info.channels, info.samplerate, limits);
  } else {
    size = CheckSoundSize(1, info.channels, info.samplerate, limits);
  }
  Result<Sound> sound = size.ok() ? ReadAll(file, info, limits, allocator) : Result<Sound>(size);
  sf_close(file);
  return sound;
}

}  // namespace cellm::media

#else

namespace cellm::media {

bool HaveFlac() { return false; }

Result<Sound> DecodeFlac(std::span<const uint8_t>, const SoundLimits&, Allocator&) {
  return Unsupported(
      "FLAC is not in this build: save the clip as WAV, or build with libsndfile (Debian "
      "libsndfile1-dev)");
}

}  // namespace cellm::media

#endif
