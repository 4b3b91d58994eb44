#ifndef CELLM_SRC_TENSOR_QUANTIZE_H_
#define CELLM_SRC_TENSOR_QUANTIZE_H_

// Encoders from floats to quantised weights. Scalar, deterministic: the same row gives the same
// bytes on every machine. Two kinds:
//
//   QuantizeRow*()  ours, for the packed layout: the scale of a group is searched for, so that the
//                   squared error is smallest; f16 scales are rounded first and the codes chosen
//                   for the rounded scale, so nothing is rounded twice
//   EncodeV1*()     as version-1 writers do it (scale from the largest magnitude), bit for bit, for
//                   files that old readers run; see docs/format.md
//
// Values that are not finite are the caller's to refuse (IsAllFinite).

#include <cstdint>

#include "tensor/packed.h"

namespace cellm {

bool IsAllFinite(const float* values, int64_t count);

// One row of `layout.cols` floats into codes [cols], scales [groups()] and, with has_min, mins
// [groups()] of any packed layout (quantize_group.h says which codes are used). A group's scale and
// min are searched for on their own and weights are rounded to the nearest level; error_feedback.h
// does better where the inputs of the matrix are known.
//   importance  [cols] weights of the squared errors, e.g. mean squares of a column's activations;
//               null: all equal
// f16 scales that would overflow are clamped to 65504. Any thread.
void QuantizeRow(const PackedLayout& layout, const float* row, const float* importance,
                 uint8_t* codes, float* scales, float* mins = nullptr);

// True when all values are -s, 0 or s; then *scale is s (0 when all are 0).
bool TernaryScale(const float* values, int64_t count, float* scale);

// Version-1 encoders. `scales` are f16 bits; a row or group of zeros has scale 1.
//   i8  codes [cols]: round half away from zero of w / scale, scale = max|w| / 127, -127 .. 127
void EncodeV1I8Row(const float* row, int32_t cols, uint8_t* codes, uint16_t* scale);
//   i4  codes [ceil(cols / 2)], scales [groups]; group 0: one for the row; scale = max|w| / 7
void EncodeV1I4Row(const float* row, int32_t cols, int32_t group, uint8_t* codes, uint16_t* scales);
//   i2  codes [ceil(cols / 4)]; scale = max|w| / 1.5, thresholds -1 0 1
void EncodeV1I2Row(const float* row, int32_t cols, uint8_t* codes, uint16_t* scale);
//   q1_0_g128  blocks [ceil(cols / 128) * 18]: scale = mean|w| of the block, bit = w > 0
void EncodeQ10Row(const float* row, int32_t cols, uint8_t* blocks);
//   f8e4m3 of version 1: saturates at +-240 (0x77, 0xF7), not finite -> 0x7F, 0xFF
uint8_t EncodeF8E4M3V1(float value);

}  // namespace cellm

#endif  // CELLM_SRC_TENSOR_QUANTIZE_H_
