#ifndef CELLM_SRC_TENSOR_PLAIN_FORMATS_H_
#define CELLM_SRC_TENSOR_PLAIN_FORMATS_H_

// Plain formats: one element after the other, no scales. Conversions between them.

#include <cstdint>
#include <span>

#include "base/status.h"
#include "tensor/format.h"

namespace cellm {

// True for the formats of this file: floats of 8 to 64 bits and plain integers.
bool IsPlain(Format format);

// `count` elements of a plain `format` at `bytes` (any alignment) into out[count]. Doubles and wide
// integers are rounded to float. Any thread.
void DecodePlain(Format format, const uint8_t* bytes, int64_t count, float* out);

// 8-bit floats, exactly.
float F8E4M3ToFloat(uint8_t bits);    // OCP E4M3FN
float F8E5M2ToFloat(uint8_t bits);    // OCP E5M2
float F8E4M3V1ToFloat(uint8_t bits);  // version-1 .cellm: exponent 15 is +-240

// What a conversion to a narrower float lost.
struct FloatLosses {
  int64_t overflowed = 0;   // finite values that became infinite
  int64_t underflowed = 0;  // non-zero values that became zero
  int64_t not_finite = 0;   // infinities and NaN in the source
};

// values[count] as f32, f16 or bf16 (round to nearest even) into `out`, which has count elements of
// that size. Adds to *losses. Requires IsDenseFloat(format).
void EncodeDenseFloat(Format format, const float* values, int64_t count, uint8_t* out,
                      FloatLosses* losses);

}  // namespace cellm

#endif  // CELLM_SRC_TENSOR_PLAIN_FORMATS_H_
