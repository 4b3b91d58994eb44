#ifndef CELLM_SRC_TENSOR_IMPORT_FORMATS_H_
#define CELLM_SRC_TENSOR_IMPORT_FORMATS_H_

// Quantised matrices of other projects' safetensors: GPTQ, AWQ, packed bitnet, compressed-tensors.
// (MLX words are in v1_formats.h.) For a matrix of `rows` outputs and `cols` inputs:
//
//   kGptq            data   u32 [cols * bits / 32, rows]: down each column of words runs one row's
//                           stream of codes, lowest bits first, 2 3 4 or 8 bits
//                    scales [groups, rows]; biases u32 [groups, rows * bits / 32]: a stream of zero
//                           points a group, each plus zero_offset; group_index i32 [cols] or empty
//   kAwq             data   u32 [cols, rows / 8]: nibble i of a word is row 0 2 4 6 1 3 5 7 of its
//                           eight
//                    scales [groups, rows]; biases u32 [groups, rows / 8], likewise
//   kBitnetPacked    data   u8 [rows / 4, cols]: two bits a row, byte r has rows r, r + rows/4, ...
//                           lowest first; code 0 1 2 is -1 0 1; tensor_scale the factor
//   kCompressedInt4  data   u32 [rows, ceil(cols * bits / 32)], 4 or 8 bits, lowest first
//                    scales [rows, groups]; biases u32 [ceil(rows * bits / 32), groups]
//
// value = (code - zero point) * scale. Without biases every zero point is matrix.zero_point.
// Without scales every scale is 1.
// Sources: AutoGPTQ qlinear (pack), AutoAWQ gemm (from_linear), transformers bitnet (pack_weights),
// compressed-tensors pack_quantized (pack_to_int32). Vectors: testdata/import.

#include <cstdint>

#include "base/status.h"
#include "tensor/matrix.h"

namespace cellm {

bool IsImported(Format format);

// As MatrixBytes() and ValidateMatrix(), which call these.
Result<uint64_t> ImportedBytes(const Matrix& matrix);
Status ValidateImported(const Matrix& matrix);

// True when all zero points in matrix.biases are equal: then *zero is it, and the matrix means the
// same without biases. Requires a validated matrix. O(zero points).
bool HaveOneZeroPoint(const Matrix& matrix, int32_t* zero);

// Fills bits, zero2, scale_type and has_min of the codes below. Unsupported for GPTQ with a
// group_index: its columns share scales in no order that a packed matrix has.
Status ImportedCodeLayout(const Matrix& matrix, PackedLayout* layout);
// Requires a validated matrix. codes [cols]; scales and mins [groups], mins only with biases.
void DecodeImportedRowCodes(const Matrix& matrix, int32_t row, uint8_t* codes, float* scales,
                            float* mins);
// The row as values, out [cols]: the codes' values, bit for bit. Also with a group_index.
void DecodeImportedRow(const Matrix& matrix, int32_t row, float* out);

}  // namespace cellm

#endif  // CELLM_SRC_TENSOR_IMPORT_FORMATS_H_
