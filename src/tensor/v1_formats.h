#ifndef CELLM_SRC_TENSOR_V1_FORMATS_H_
#define CELLM_SRC_TENSOR_V1_FORMATS_H_

// The side-scaled formats of version-1 .cellm files: kI8V1, kI4V1, kI2V1, kMlxAffine.
//
// Each row yields unsigned codes and scales per group, in the form of packed.h:
//   kI8V1       code = byte + 128                  zero2 256
//   kI4V1       code = nibble, low one first       zero2 16
//   kI2V1       code = two bits, lowest first      zero2 3   (levels -1.5 -0.5 0.5 1.5)
//   kMlxAffine  code = `bits` bits, lowest first   zero2 0, with a minimum (the bias)
// Bit streams of kMlxAffine come in two kinds, told apart by the row's length: codes follow each
// other through the words without gaps, or (3 bits, 10 to a word) never cross a word's end.
// Codes wider than 4 bits and 3-bit ones exist in the first kind only, save as said.
// Source: the format's description in docs/format.md, section "Version 1 formats".

#include <cstdint>

#include "base/status.h"
#include "tensor/matrix.h"

namespace cellm {

bool IsV1SideScaled(Format format);

// Bytes of one row of codes. InvalidArgument for a width that the format does not have.
Result<uint64_t> V1RowBytes(Format format, int32_t bits, int32_t cols);
// For kMlxAffine: the bytes of a row whose codes never cross a word.
uint64_t MlxWordRowBytes(int32_t bits, int32_t cols);

// Number of scales a row: 1 for group 0, else ceil(cols / group).
int32_t ScaleGroups(int32_t cols, int32_t group);

// Requires a validated matrix of these formats. codes [cols], scales and mins [groups]; mins only
// for kMlxAffine.
void DecodeV1RowCodes(const Matrix& matrix, int32_t row, uint8_t* codes, float* scales,
                      float* mins);
// The row as values, out [cols].
void DecodeV1Row(const Matrix& matrix, int32_t row, float* out);
// bits and zero2 of the codes above, has_min.
void V1CodeLayout(const Matrix& matrix, PackedLayout* layout);

}  // namespace cellm

#endif  // CELLM_SRC_TENSOR_V1_FORMATS_H_
