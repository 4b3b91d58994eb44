// Encoded clips: right ones, and wrong ones of every kind.

#include "media/sound.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/rng.h"
#include "media/zoo_mm.h"
#include "support/paths.h"
#include "support/tiny_model.h"

#if defined(CELLM_TEST_SNDFILE)
#include <sndfile.h>

#include "platform/file.h"
#endif

namespace cellm::media {
namespace {

using Bytes = std::vector<uint8_t>;
constexpr double kPi = 3.14159265358979323846;

void Put(const std::string& text, Bytes* out) { out->insert(out->end(), text.begin(), text.end()); }
void PutLe(uint64_t value, int bytes, Bytes* out) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<uint8_t>(value >> (8 * i)));
}

struct WavKind {
  int format;  // 1 or 3
  int bits;
  bool extended;
};

// Writes frames of `channels` samples, interleaved.
Bytes WavOf(const std::vector<double>& samples, int channels, uint32_t rate, const WavKind& kind) {
  const int bytes = (kind.bits + 7) / 8;
  Bytes data;
  for (const double value : samples) {
    if (kind.format == 3 && bytes == 4) {
      const float narrow = static_cast<float>(value);
      uint32_t word = 0;
      std::memcpy(&word, &narrow, 4);
      PutLe(word, 4, &data);
    } else if (kind.format == 3) {
      uint64_t word = 0;
      std::memcpy(&word, &value, 8);
      PutLe(word, 8, &data);
    } else {
      const double scale = std::ldexp(1.0, 8 * bytes - 1);
      const int64_t whole =
          static_cast<int64_t>(std::clamp(std::round(value * scale), -scale, scale - 1));
      PutLe(static_cast<uint64_t>(bytes == 1 ? whole + 128 : whole), bytes, &data);
    }
  }
  Bytes wav;
  const int format_bytes = kind.extended ? 40 : 16;
  Put("RIFF", &wav);
  PutLe(28 + static_cast<uint64_t>(format_bytes) + data.size(), 4, &wav);
  Put("WAVELIST", &wav);
  PutLe(3, 4, &wav);
  Put("abc", &wav);
  wav.push_back(0);  // after an odd length
  Put("fmt ", &wav);
  PutLe(static_cast<uint64_t>(format_bytes), 4, &wav);
  PutLe(kind.extended ? 0xFFFE : static_cast<uint64_t>(kind.format), 2, &wav);
  PutLe(static_cast<uint64_t>(channels), 2, &wav);
  PutLe(rate, 4, &wav);
  PutLe(uint64_t{rate} * static_cast<uint64_t>(channels * bytes), 4, &wav);
  PutLe(static_cast<uint64_t>(channels * bytes), 2, &wav);
  PutLe(static_cast<uint64_t>(kind.bits), 2, &wav);
  if (kind.extended) {
    PutLe(22, 2, &wav);
    PutLe(static_cast<uint64_t>(kind.bits), 2, &wav);
    PutLe(0, 4, &wav);
    PutLe(static_cast<uint64_t>(kind.format), 2, &wav);
    Put(std::string("\0\0\0\0\x10\0\x80\0\0\xAA\0\x38\x9B\x71", 14), &wav);
  }
  Put("data", &wav);
  PutLe(data.size(), 4, &wav);
  wav.insert(wav.end(), data.begin(), data.end());
  return wav;
}

std::vector<double> Tone(double hz, uint32_t rate, size_t count, double level = 0.5) {
  std::vector<double> samples(count);
  for (size_t i = 0; i < count; ++i) {
    samples[i] = level * std::sin(2.0 * kPi * hz * static_cast<double>(i) / rate);
  }
  return samples;
}

Result<Sound> Decode(const Bytes& bytes, int32_t rate = 16000) {
  return DecodeSound(bytes, rate, {}, SystemAllocator());
}

void ExpectRefused(const Bytes& bytes, StatusCode code, const std::string& part) {
  const auto sound = Decode(bytes);
  EXPECT_EQ(sound.status().code(), code) << sound.status().message();
  EXPECT_NE(sound.status().message().find(part), std::string::npos) << sound.status().message();
  EXPECT_EQ(sound.status().message().find('\n'), std::string::npos);
}

TEST(Sound, WavOfEveryKind) {
  const WavKind kinds[] = {{1, 8, false}, {1, 12, false}, {1, 16, false}, {1, 16, true},
                           {1, 20, true}, {1, 24, false}, {1, 32, false}, {3, 32, false},
                           {3, 32, true}, {3, 64, false}};
  const std::vector<double> samples = Tone(700.0, 16000, 400);
  for (const WavKind& kind : kinds) {
    SCOPED_TRACE(StrFormat("format %d, %d bits", kind.format, kind.bits));
    const auto sound = Decode(WavOf(samples, 1, 16000, kind));
    ASSERT_TRUE(sound.ok()) << sound.status().message();
    ASSERT_EQ(sound->samples.size(), samples.size());
    const int stored = (kind.bits + 7) / 8 * 8;
    const double step = kind.format == 3 ? 1e-7 : std::ldexp(1.0, 1 - stored) + 1e-7;
    for (size_t i = 0; i < samples.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(sound->samples[i]), samples[i], step) << i;
    }
  }
}

TEST(Sound, SixteenBitsAreExact) {
  const Bytes wav = ReadZooBytes("audio/chirp_16k.wav");
  const auto sound = Decode(wav);
  ASSERT_TRUE(sound.ok()) << sound.status().message();
  ASSERT_EQ(sound->samples.size(), (wav.size() - 44) / 2);
  for (size_t i = 0; i < sound->samples.size(); ++i) {
    const int16_t value = static_cast<int16_t>(wav[44 + 2 * i] | wav[45 + 2 * i] << 8);
    ASSERT_EQ(sound->samples[i], static_cast<float>(value) / 32768.0f);
  }
}

TEST(Sound, ChannelsAreAveraged) {
  const auto sound = Decode(WavOf({0.5, -0.25, 0.125, 1.0, 0.0, -0.5}, 3, 16000, {3, 32, false}));
  ASSERT_TRUE(sound.ok()) << sound.status().message();
  ASSERT_EQ(sound->samples.size(), 2u);
  EXPECT_FLOAT_EQ(sound->samples[0], 0.125f);
  EXPECT_FLOAT_EQ(sound->samples[1], 0.5f / 3.0f);
}

// A tone below both limits comes through in place and size; one above the new limit goes.
TEST(Sound, Resampling) {
  if (!HaveResampler()) {
    ExpectRefused(WavOf(Tone(440, 44100, 1000), 1, 44100, {1, 16, false}), StatusCode::kUnsupported,
                  "libspeexdsp-dev");
    return;
  }
  for (const uint32_t rate : {8000u, 22050u, 44100u, 48000u, 96000u}) {
    SCOPED_TRACE(rate);
    const size_t count = rate / 2 + 7;
    const auto sound = Decode(WavOf(Tone(440, rate, count), 1, rate, {3, 32, false}));
    ASSERT_TRUE(sound.ok()) << sound.status().message();
    EXPECT_EQ(sound->rate_hz, 16000);
    ASSERT_EQ(sound->samples.size(), CeilDiv<uint64_t>(uint64_t{count} * 16000, rate));
    const std::vector<double> expected = Tone(440, 16000, sound->samples.size());
    double worst = 0.0;
    // Away from the ends, where the filter sees silence.
    for (size_t i = 400; i + 400 < expected.size(); ++i) {
      worst = std::max(worst, std::fabs(static_cast<double>(sound->samples[i]) - expected[i]));
    }
    EXPECT_LT(worst, 1e-3);
  }
  const auto high = Decode(WavOf(Tone(10000, 44100, 22050), 1, 44100, {3, 32, false}));
  ASSERT_TRUE(high.ok());
  double largest = 0.0;
  for (size_t i = 400; i + 400 < high->samples.size(); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(high->samples[i])));
  }
  EXPECT_LT(largest, 1e-3);
  const auto stereo = Decode(ReadZooBytes("audio/stereo_44k.wav"));
  ASSERT_TRUE(stereo.ok()) << stereo.status().message();
  EXPECT_EQ(stereo->samples.size(), CeilDiv<uint64_t>(uint64_t{105884 - 44} / 4 * 16000, 44100));
}

TEST(Sound, WrongFiles) {
  const Bytes good = WavOf(Tone(440, 16000, 100), 1, 16000, {1, 16, false});
  ASSERT_TRUE(Decode(good).ok());
  constexpr size_t kFormat = 24 + 8;  // where the format's data starts
  const auto changed = [&](size_t at, std::initializer_list<int> bytes) {
    Bytes wav = good;
    for (const int byte : bytes) wav[at++] = static_cast<uint8_t>(byte);
    return wav;
  };
  ExpectRefused({}, StatusCode::kInvalidArgument, "no bytes");
  ExpectRefused(changed(kFormat + 2, {0, 0}), StatusCode::kCorrupt, "zero channels");
  ExpectRefused(changed(kFormat + 2, {100, 0}), StatusCode::kCorrupt, "100 channels");
  ExpectRefused(changed(kFormat + 4, {0, 0, 0, 0}), StatusCode::kOutOfRange, "0 samples a second");
  ExpectRefused(changed(kFormat + 4, {255, 255, 255, 255}), StatusCode::kOutOfRange, "4294967295");
  ExpectRefused(changed(kFormat + 12, {0, 0}), StatusCode::kCorrupt, "0 bytes");
  ExpectRefused(changed(kFormat + 14, {24, 0}), StatusCode::kCorrupt, "24 bits");
  ExpectRefused(changed(kFormat, {7, 0}), StatusCode::kUnsupported, "mu-law");
  ExpectRefused(changed(kFormat, {6, 0}), StatusCode::kUnsupported, "A-law");
  ExpectRefused(changed(kFormat, {3, 0}), StatusCode::kUnsupported, "floats of 16");
  ExpectRefused(changed(kFormat, {0xFE, 0xFF}), StatusCode::kCorrupt, "extension");
  ExpectRefused(changed(kFormat + 16 + 4, {255, 255, 255, 255}), StatusCode::kCorrupt,
                "says 4294967295 bytes");
  ExpectRefused(changed(kFormat + 16 + 4, {0, 0, 0, 0}), StatusCode::kOutOfRange, "no samples");
  ExpectRefused(changed(kFormat + 16 + 4, {199, 0, 0, 0}), StatusCode::kCorrupt, "whole number");
  ExpectRefused(changed(kFormat - 8, {'x'}), StatusCode::kCorrupt, "before their format");
  ExpectRefused(changed(0, {'R', 'I', 'F', 'X'}), StatusCode::kUnsupported, "big-endian");
  ExpectRefused(changed(0, {'O', 'g', 'g', 'S'}), StatusCode::kUnsupported, "Ogg");
  ExpectRefused({1, 2, 3}, StatusCode::kUnsupported, "no known signature");
  ExpectRefused({0xFF, 0xFD, 0x90, 0}, StatusCode::kUnsupported, "another layer");
  ExpectRefused({'I', 'D', '3', 3, 0, 0, 0, 0, 0, 2, 9, 9, 1, 2}, StatusCode::kUnsupported,
                "ID3 tag without");
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(Decode(Bytes(good.begin(), good.begin() + static_cast<long>(length))).ok());
  }
  EXPECT_EQ(Decode(good, 0).status().code(), StatusCode::kInvalidArgument);
}

TEST(Sound, SamplesThatAreNoNumbers) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 1e300}) {
    std::vector<double> samples = Tone(440, 16000, 50);
    samples[17] = bad;
    ExpectRefused(WavOf(samples, 1, 16000, {3, 64, false}), StatusCode::kCorrupt, "sample 17");
  }
}

TEST(Sound, LongClipsAreRefusedByTheirHeader) {
  // An hour and a second, one byte a sample.
  const Bytes hour = WavOf(std::vector<double>(3601 * 1000), 1, 1000, {1, 8, false});
  BudgetAllocator budget(SystemAllocator(), uint64_t{1} << 40);
  const auto sound = DecodeSound(hour, 16000, {}, budget);
  EXPECT_EQ(sound.status().code(), StatusCode::kOutOfRange) << sound.status().message();
  EXPECT_NE(sound.status().message().find("3601.0 s"), std::string::npos);
  EXPECT_EQ(budget.peak_bytes(), 0u);
  SoundLimits limits;
  limits.max_seconds = 0.05;
  const Bytes tenth = WavOf(Tone(440, 16000, 1600), 1, 16000, {1, 16, false});
  EXPECT_EQ(DecodeSound(tenth, 16000, limits, budget).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(budget.peak_bytes(), 0u);
}

TEST(Sound, FlippedBits) {
  const int rounds = std::getenv("CELLM_TEST_LONG") != nullptr ? 100000 : 3000;
  const Bytes good = WavOf(Tone(440, 8000, 120), 2, 8000, {1, 16, true});
  Rng rng(11);
  for (int round = 0; round < rounds; ++round) {
    Bytes flipped = good;
    for (uint64_t i = 0; i <= rng.NextBelow(3); ++i) {
      const uint64_t bit = rng.NextBelow(good.size() * 8);
      flipped[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    }
    const auto sound = Decode(flipped);
    EXPECT_NE(sound.status().code(), StatusCode::kInternal) << sound.status().message();
  }
}

TEST(Sound, RefusedMemoryIsAStatus) {
  const Bytes wav = WavOf(Tone(440, 8000, 1200), 1, HaveResampler() ? 8000 : 16000, {1, 16, false});
  for (int64_t fail_at = 1;; ++fail_at) {
    testing::FailingAllocator allocator(fail_at);
    {
      const auto sound = DecodeSound(wav, 16000, {}, allocator);
      if (!allocator.failed()) {
        EXPECT_TRUE(sound.ok()) << sound.status().message();
        break;
      }
      EXPECT_EQ(sound.status().code(), StatusCode::kOutOfMemory);
    }
    EXPECT_EQ(allocator.live_bytes(), 0);
  }
}

#if defined(CELLM_TEST_SNDFILE)
Bytes EncodedBySndfile(const std::vector<double>& samples, int channels, int rate, int format) {
  const std::string path = testing::TempFolder() + "/clip";
  SF_INFO info = {};
  info.samplerate = rate;
  info.channels = channels;
  info.format = format;
  SNDFILE* file = sf_open(path.c_str(), SFM_WRITE, &info);
  EXPECT_NE(file, nullptr) << sf_strerror(nullptr);
  if (file == nullptr) return {};
  const sf_count_t frames = static_cast<sf_count_t>(samples.size()) / channels;
  EXPECT_EQ(sf_writef_double(file, samples.data(), frames), frames);
  sf_close(file);
  const auto text = platform::SystemFiles().Read(path, 1 << 24);
  EXPECT_TRUE(text.ok());
  return Bytes(text->begin(), text->end());
}

TEST(Sound, FlacIsTheSameAsWav) {
  const std::vector<double> samples = Tone(600, 16000, 9000);
  const Bytes flac = EncodedBySndfile(samples, 1, 16000, SF_FORMAT_FLAC | SF_FORMAT_PCM_16);
  const auto sound = Decode(flac);
  ASSERT_TRUE(sound.ok()) << sound.status().message();
  ASSERT_EQ(sound->samples.size(), samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(sound->samples[i]), samples[i], 1.0 / 32768);
  }
  for (size_t length = 4; length < flac.size(); length += 97) {
    EXPECT_FALSE(Decode(Bytes(flac.begin(), flac.begin() + static_cast<long>(length))).ok());
  }
}

TEST(Sound, Mp3IsCloseToWhatWentIn) {
  const std::vector<double> samples = Tone(600, 16000, 16000);
  const Bytes mp3 = EncodedBySndfile(samples, 1, 16000, SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III);
  if (mp3.empty() || !HaveMp3()) {
    GTEST_SKIP() << "libsndfile writes or libmpg123 reads no MP3";
  }
  const auto sound = Decode(mp3);
  ASSERT_TRUE(sound.ok()) << sound.status().message();
  double squares = 0.0;
  for (size_t i = 4000; i < 12000; ++i) {
    squares += static_cast<double>(sound->samples[i]) * static_cast<double>(sound->samples[i]);
  }
  EXPECT_NEAR(std::sqrt(squares / 8000.0), 0.5 / std::sqrt(2.0), 0.01);
}
#endif

TEST(Sound, WhatIsNotBuiltInIsRefusedByName) {
  if (!HaveFlac()) {
    ExpectRefused({'f', 'L', 'a', 'C', 0, 0}, StatusCode::kUnsupported, "libsndfile1-dev");
  }
  if (!HaveMp3()) ExpectRefused({0xFF, 0xFB, 0x90, 0}, StatusCode::kUnsupported, "libmpg123-dev");
  EXPECT_FALSE(Decode({'f', 'L', 'a', 'C', 0, 0}).ok());
  EXPECT_FALSE(Decode({0xFF, 0xFB, 0x90, 0}).ok());
}

}  // namespace
}  // namespace cellm::media
