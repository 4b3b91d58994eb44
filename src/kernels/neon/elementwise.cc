// Elementwise functions, conversions and the largest element, 4 at a time.

#include "kernels/neon/neon.h"
#include "kernels/neon/simd.h"

namespace cellm::neon {
namespace {

// y[i] = f(a[i]) or f(a[i], b[i]).
template <typename Function>
CELLM_INLINE void Map(const float* a, int64_t count, float* y, Function function) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) vst1q_f32(y + i, function(vld1q_f32(a + i)));
  if (i < count) StorePart(y + i, count - i, function(LoadPart(a + i, count - i)));
}

template <typename Function>
CELLM_INLINE void Map2(const float* a, const float* b, int64_t count, float* y, Function function) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) vst1q_f32(y + i, function(vld1q_f32(a + i), vld1q_f32(b + i)));
  if (i < count) {
    StorePart(y + i, count - i, function(LoadPart(a + i, count - i), LoadPart(b + i, count - i)));
  }
}

}  // namespace

void exp_f32(const float* x, int64_t count, float* y) {
  Map(x, count, y, [](float32x4_t v) { return Exp(v); });
}

void tanh_f32(const float* x, int64_t count, float* y) {
  Map(x, count, y, [](float32x4_t v) { return Tanh(v); });
}

void silu_mul_f32(const float* gate, const float* up, int64_t count, float* y) {
  Map2(gate, up, count, y, [](float32x4_t g, float32x4_t u) {
    const float32x4_t d = vaddq_f32(vdupq_n_f32(1.0f), Exp(vnegq_f32(g)));
    return vmulq_f32(vdivq_f32(g, d), u);
  });
}

void sigmoid_mul_f32(const float* gate, const float* up, int64_t count, float* y) {
  Map2(gate, up, count, y, [](float32x4_t g, float32x4_t u) {
    const float32x4_t one = vdupq_n_f32(1.0f);
    return vmulq_f32(vdivq_f32(one, vaddq_f32(one, Exp(vnegq_f32(g)))), u);
  });
}

void gelu_tanh_mul_f32(const float* gate, const float* up, int64_t count, float* y) {
  Map2(gate, up, count, y, [](float32x4_t g, float32x4_t u) {
    const float32x4_t v = vfmaq_f32(vdupq_n_f32(kernels::kGeluLinear), vmulq_f32(g, g),
                                    vdupq_n_f32(kernels::kGeluCubic));
    const float32x4_t d = vaddq_f32(vdupq_n_f32(1.0f), Exp(vmulq_f32(g, v)));
    return vmulq_f32(vdivq_f32(g, d), u);
  });
}

void axpy_f32(float s, const float* x, int64_t count, float* y) {
  const float32x4_t factor = vdupq_n_f32(s);
  Map2(x, y, count, y, [factor](float32x4_t a, float32x4_t b) { return vfmaq_f32(b, factor, a); });
}

void mul_add_f32(const float* a, const float* b, int64_t count, float* y) {
  for (int64_t i = 0; i < count; i += 4) {
    const int64_t left = count - i;
    StorePart(y + i, left,
              vfmaq_f32(LoadPart(y + i, left), LoadPart(a + i, left), LoadPart(b + i, left)));
  }
}

void f32_to_f16(const float* x, int64_t count, uint16_t* y) {
  for (int64_t i = 0; i < count; i += 4) {
    StorePart(y + i, count - i, vreinterpret_u16_f16(vcvt_f16_f32(LoadPart(x + i, count - i))));
  }
}

void f16_to_f32(const uint16_t* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; i += 4) {
    StorePart(y + i, count - i, WidenHalves(LoadPart(x + i, count - i)));
  }
}

void bf16_to_f32(const uint16_t* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; i += 4) {
    StorePart(y + i, count - i, WidenBrains(LoadPart(x + i, count - i)));
  }
}

int64_t argmax_f32(const float* x, int64_t count) {
  if (count <= 0) return -1;
  // First the largest value, then where it is first.
  const float32x4_t first = vdupq_n_f32(x[0]);
  float32x4_t best = first;
  uint32x4_t ordered = vdupq_n_u32(~0u);
  for (int64_t i = 0; i < count; i += 4) {
    const float32x4_t v = vbslq_f32(LaneMask(count - i), LoadPart(x + i, count - i), first);
    ordered = vandq_u32(ordered, vceqq_f32(v, v));
    best = vmaxq_f32(best, v);
  }
  if (vminvq_u32(ordered) == 0) return -1;
  const float32x4_t largest = vdupq_n_f32(vmaxvq_f32(best));
  for (int64_t i = 0; i < count; i += 4) {
    const uint32x4_t equal =
        vandq_u32(vceqq_f32(LoadPart(x + i, count - i), largest), LaneMask(count - i));
    if (vmaxvq_u32(equal) == 0) continue;
    uint32_t lanes[4];
    vst1q_u32(lanes, equal);
    for (int64_t lane = 0; lane < 4; ++lane) {
      if (lanes[lane] != 0) return i + lane;
    }
  }
  return -1;
}

}  // namespace cellm::neon
