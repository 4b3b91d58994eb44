// Gemma 4, sound: the logarithm of mel magnitudes, one row a hop.
//
//   zeros       frame/2 before the clip, and behind it up to a multiple of 128 samples
//   frame i     samples [i * hop, i * hop + frame), times a periodic Hann window, zeros up to `fft`
//   row i       ln(floor + sum over bins of |FFT| * triangle): magnitude, not power
//   triangles   straight in Hz between points that are equally spaced on the HTK mel scale,
//               2595 * log10(1 + f / 700), not normalised
// A frame counts when one sample beyond its end is still a real one; rows of others are zero. The
// tower halves the rows twice and keeps every second flag each time, so that a clip takes a quarter
// of its valid frames, rounded up.
//
// The published extractor works in float32 (1e-4 between builds is usual); here it is double.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "media/families.h"

namespace cellm::media {
namespace {

constexpr double kPi = 3.14159265358979323846;
// The published extractor pads clips to a multiple of this.
constexpr int64_t kPadTo = 128;
// Rows of the tower's output a valid frame: two convolutions of stride 2.
constexpr int64_t kFramesARow = 4;

double MelOf(double hz) { return 2595.0 * std::log10(1.0 + hz / 700.0); }
double HzOf(double mel) { return 700.0 * (std::pow(10.0, mel / 2595.0) - 1.0); }

// What every frame of a clip shares.
struct Tables {
  Array<double> window;    // [frame]
  Array<double> turns;     // [fft / 2, 2]: cos and -sin of 2 pi k / fft
  Array<double> triangle;  // [mel_bins, fft / 2 + 1]
  Array<double> work;      // [fft, 2]: the transform, in place
};

Result<Tables> MakeTables(const Gemma4Settings& s, Allocator& allocator) {
  const auto kind = MemoryClass::kActivations;
  const size_t fft = static_cast<size_t>(s.fft);
  const size_t bins = fft / 2 + 1;
  const size_t mels = static_cast<size_t>(s.mel_bins);
  Tables t;
  CELLM_ASSIGN_OR_RETURN(t.window, Array<double>::Zeroed(allocator, static_cast<size_t>(s.frame),
                                                         kind, "mel features"));
  CELLM_ASSIGN_OR_RETURN(t.turns, Array<double>::Zeroed(allocator, fft, kind, "mel features"));
  CELLM_ASSIGN_OR_RETURN(t.triangle,
                         Array<double>::Zeroed(allocator, mels * bins, kind, "mel features"));
  CELLM_ASSIGN_OR_RETURN(t.work, Array<double>::Zeroed(allocator, fft * 2, kind, "mel features"));
  for (size_t i = 0; i < t.window.size(); ++i) {
    t.window[i] = 0.5 - 0.5 * std::cos(2.0 * kPi * static_cast<double>(i) / s.frame);
  }
  for (size_t k = 0; k < fft / 2; ++k) {
    const double angle = 2.0 * kPi * static_cast<double>(k) / s.fft;
    t.turns[2 * k] = std::cos(angle);
    t.turns[2 * k + 1] = -std::sin(angle);
  }
  const double low = MelOf(s.low_hz);
  const double step = (MelOf(s.high_hz) - low) / (s.mel_bins + 1);
  for (size_t m = 0; m < mels; ++m) {
    const double left = HzOf(low + step * static_cast<double>(m));
    const double top = HzOf(low + step * static_cast<double>(m + 1));
    const double right = HzOf(low + step * static_cast<double>(m + 2));
    for (size_t k = 0; k < bins; ++k) {
      const double hz = static_cast<double>(k) * s.rate_hz / s.fft;
      const double flank = std::min((hz - left) / (top - left), (right - hz) / (right - top));
      t.triangle[m * bins + k] = std::max(0.0, flank);
    }
  }
  return t;
}

// In-place radix-2 transform of `n` complex numbers, n a power of two (Cooley and Tukey, 1965).
void Transform(double* z, size_t n, const double* turns) {
  for (size_t i = 1, j = 0; i < n; ++i) {
    size_t bit = n >> 1;
    for (; (j & bit) != 0; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) {
      std::swap(z[2 * i], z[2 * j]);
      std::swap(z[2 * i + 1], z[2 * j + 1]);
    }
  }
  for (size_t half = 1; half < n; half *= 2) {
    const size_t stride = n / (2 * half);
    for (size_t start = 0; start < n; start += 2 * half) {
      for (size_t k = 0; k < half; ++k) {
        const double c = turns[2 * k * stride];
        const double s = turns[2 * k * stride + 1];
        double* a = z + 2 * (start + k);
        double* b = a + 2 * half;
        const double re = b[0] * c - b[1] * s;
        const double im = b[0] * s + b[1] * c;
        b[0] = a[0] - re;
        b[1] = a[1] - im;
        a[0] += re;
        a[1] += im;
      }
    }
  }
}

}  // namespace

void ReadGemma4Sound(ProcessorSources* sources, Gemma4Settings* settings) {
  Settings& sound = sources->sound;
  if (sound.empty()) return;
  settings->sound = true;
  sound.Text("feature_extractor_type", {"Gemma4AudioFeatureExtractor"});
  sound.Int("feature_size", 1, 1024, &settings->mel_bins);
  sound.Int("sampling_rate", 8000, 96000, &settings->rate_hz);
  sound.Int("frame_length", 16, 8192, &settings->frame);
  sound.Int("hop_length", 16, 8192, &settings->hop);
  sound.Int("fft_length", 16, 8192, &settings->fft);
  sound.Real("min_frequency", 0.0, 1e6, &settings->low_hz);
  sound.Real("max_frequency", 1.0, 1e6, &settings->high_hz);
  sound.Real("mel_floor", 1e-12, 1.0, &settings->floor);
  sound.OnlyNumber("preemphasis", 0.0);
  sound.OnlyNumber("dither", 0.0);
  sound.OnlyNumber("input_scale_factor", 1.0);
  sound.OnlyNumber("padding_value", 0.0);
  sound.Only("fft_overdrive", false);
  sound.OnlyNull("per_bin_mean");
  sound.OnlyNull("per_bin_stddev");
  sound.Ignore({"padding_side", "return_attention_mask", "preemphasis_htk_flavor",
                "processor_class", "frame_length_ms", "hop_length_ms"});
  int32_t milliseconds = 40;
  sources->whole.Int("audio_ms_per_token", 1, 10000, &milliseconds);
  sources->whole.Int("audio_seq_length", 1, 1 << 16, &settings->max_tokens_sound);
  const int32_t token_samples = static_cast<int32_t>(kFramesARow) * settings->hop;
  if (int64_t{milliseconds} * settings->rate_hz != int64_t{token_samples} * 1000) {
    sources->whole.Refuse(Corrupt(
        "processor_config.json: audio_ms_per_token is %d, but %d samples a token at %d Hz are not",
        milliseconds, token_samples, settings->rate_hz));
  }
  const bool power_of_two = (settings->fft & (settings->fft - 1)) == 0;
  if (!power_of_two || settings->fft < settings->frame) {
    sources->whole.Refuse(Unsupported(
        "processor_config.json: fft_length %d is not a power of two of at least frame_length %d",
        settings->fft, settings->frame));
  }
  if (!(settings->low_hz < settings->high_hz) || settings->high_hz > 0.5 * settings->rate_hz) {
    sources->whole.Refuse(
        Corrupt("processor_config.json: frequencies from %g to %g Hz at a sampling_rate of %d",
                settings->low_hz, settings->high_hz, settings->rate_hz));
  }
}

Result<SoundPlan> PlanGemma4Sound(const Gemma4Settings& settings, int64_t samples) {
  const int64_t most = int64_t{settings.max_tokens_sound} * kFramesARow * settings.hop;
  if (samples > most) {
    return OutOfRange("the clip has %.1f s, and this model takes at most %.1f s at once; cut it",
                      static_cast<double>(samples) / settings.rate_hz,
                      static_cast<double>(most) / settings.rate_hz);
  }
  const int64_t left = settings.frame / 2;
  const int64_t padded = left + CeilDiv<int64_t>(std::max<int64_t>(samples, 0), kPadTo) * kPadTo;
  SoundPlan plan;
  // Frames are cut with the sample after them, which is not used.
  if (padded > settings.frame) plan.frames = (padded - settings.frame - 1) / settings.hop + 1;
  const int64_t reach = left + samples - settings.frame;  // valid: i * hop < reach
  if (reach > 0) plan.valid_frames = std::min(plan.frames, CeilDiv<int64_t>(reach, settings.hop));
  if (plan.valid_frames == 0) {
    return OutOfRange(
        "the clip has %lld samples, which is less than one frame of this model (%lld "
        "samples at %d Hz)",
        static_cast<long long>(samples), static_cast<long long>(settings.frame - left + 1),
        settings.rate_hz);
  }
  plan.feature_rows = CeilDiv<int64_t>(plan.valid_frames, kFramesARow);
  return plan;
}

Status ProcessGemma4Sound(const Gemma4Settings& settings, const SoundPlan& plan,
                          std::span<const float> samples, Allocator& allocator, TowerInput* out) {
  CELLM_ASSIGN_OR_RETURN(Tables tables, MakeTables(settings, allocator));
  const size_t fft = static_cast<size_t>(settings.fft);
  const size_t bins = fft / 2 + 1;
  const size_t mels = static_cast<size_t>(settings.mel_bins);
  const int64_t left = settings.frame / 2;
  const int64_t end = static_cast<int64_t>(samples.size());
  double* z = tables.work.data();
  for (int64_t i = 0; i < plan.valid_frames; ++i) {
    std::fill_n(z, 2 * fft, 0.0);
    for (int64_t k = 0; k < settings.frame; ++k) {
      const int64_t at = i * settings.hop + k - left;
      if (at < 0 || at >= end) continue;
      z[2 * k] = tables.window[static_cast<size_t>(k)] *
                 static_cast<double>(samples[static_cast<size_t>(at)]);
    }
    Transform(z, fft, tables.turns.data());
    for (size_t k = 0; k < bins; ++k) {
      z[k] = std::sqrt(z[2 * k] * z[2 * k] + z[2 * k + 1] * z[2 * k + 1]);
    }
    float* row = out->storage.data() + static_cast<size_t>(i) * mels;
    for (size_t m = 0; m < mels; ++m) {
      const double* triangle = tables.triangle.data() + m * bins;
      double sum = 0.0;
      for (size_t k = 0; k < bins; ++k) sum += triangle[k] * z[k];
      row[m] = static_cast<float>(std::log(sum + settings.floor));
    }
  }
  out->shape = {plan.frames, settings.mel_bins};
  out->frame_valid.assign(static_cast<size_t>(plan.frames), 0);
  std::fill_n(out->frame_valid.begin(), plan.valid_frames, uint8_t{1});
  return OkStatus();
}

}  // namespace cellm::media
