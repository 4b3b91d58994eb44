// The one place that includes speexdsp's resampler.

#include "media/sound.h"

#if defined(CELLM_HAVE_SPEEXDSP)
#include <speex/speex_resampler.h>
#endif

#include <algorithm>

#include "base/checked.h"
#include "media/media_limits.h"

namespace cellm::media {

#if defined(CELLM_HAVE_SPEEXDSP)

namespace {

// The longest filter that the library has: aliases below 90 dB.
constexpr int kQuality = 10;
constexpr size_t kBlock = 1 << 16;

Status Run(SpeexResamplerState* state, const Array<float>& in, Array<float>* out) {
  speex_resampler_skip_zeros(state);
  const float silence[256] = {};
  size_t taken = 0;
  size_t made = 0;
  while (made < out->size()) {
    // Behind the clip comes silence, until the filter has given everything back.
    const bool inside = taken < in.size();
    const float* source = inside ? in.data() + taken : silence;
    spx_uint32_t count = static_cast<spx_uint32_t>(inside ? std::min(kBlock, in.size() - taken)
                                                          : std::size(silence));
    spx_uint32_t room = static_cast<spx_uint32_t>(std::min(kBlock, out->size() - made));
    const int code =
        speex_resampler_process_float(state, 0, source, &count, out->data() + made, &room);
    if (code != RESAMPLER_ERR_SUCCESS || (count == 0 && room == 0)) {
      return Internal("resampling stopped after %zu of %zu samples: %s", made, out->size(),
                      speex_resampler_strerror(code));
    }
    if (inside) taken += count;
    made += room;
  }
  return OkStatus();
}

}  // namespace

bool HaveResampler() { return true; }

Result<Sound> ResampleSound(Sound sound, int32_t rate_hz, Allocator& allocator) {
  if (sound.rate_hz == rate_hz) return sound;
  const int64_t frames =
      CeilDiv<int64_t>(static_cast<int64_t>(sound.samples.size()) * rate_hz, sound.rate_hz);
  if (frames > limits::kMaxSoundFrames) {
    return OutOfRange("the clip has %lld samples at %d Hz; %lld are taken",
                      static_cast<long long>(frames), rate_hz,
                      static_cast<long long>(limits::kMaxSoundFrames));
  }
  Sound out;
  out.rate_hz = rate_hz;
  CELLM_ASSIGN_OR_RETURN(out.samples,
                         Array<float>::Uninitialised(allocator, static_cast<size_t>(frames),
                                                     MemoryClass::kActivations, "resampled sound"));
  int code = RESAMPLER_ERR_SUCCESS;
  SpeexResamplerState* state =
      speex_resampler_init(1, static_cast<spx_uint32_t>(sound.rate_hz),
                           static_cast<spx_uint32_t>(rate_hz), kQuality, &code);
  if (state == nullptr) {
    return OutOfMemory("resampling from %d to %d Hz: %s", sound.rate_hz, rate_hz,
                       speex_resampler_strerror(code));
  }
  const Status status = Run(state, sound.samples, &out.samples);
  speex_resampler_destroy(state);
  CELLM_RETURN_IF_ERROR(status);
  return out;
}

#else

bool HaveResampler() { return false; }

Result<Sound> ResampleSound(Sound sound, int32_t rate_hz, Allocator&) {
  if (sound.rate_hz == rate_hz) return sound;
  return Unsupported(
      "the clip has %d samples a second, the model takes %d, and this build cannot "
      "resample: convert the clip, or build with speexdsp (Debian libspeexdsp-dev)",
      sound.rate_hz, rate_hz);
}

#endif

}  // namespace cellm::media
