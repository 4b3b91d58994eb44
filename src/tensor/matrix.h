#ifndef CELLM_SRC_TENSOR_MATRIX_H_
#define CELLM_SRC_TENSOR_MATRIX_H_

// A weight matrix as stored, whatever the container: [rows = outputs, cols = inputs].
//
// A Matrix borrows its bytes from the ModelFile. It has two readings:
//   DecodeRow()       the row in float: the definition of every format, and the oracle of tests
//   DecodeRowCodes()  the same row as integers with scales, without loss, for every quantised
//                     format: value(c) = (2 code - zero2) * scale / 2 + min. This is what the
//                     engine packs into kernel layout at load when the file is not packed already.
// How it is reached from names and side tensors is the business of format/.

#include <cstdint>
#include <span>

#include "base/status.h"
#include "tensor/format.h"
#include "tensor/packed.h"

namespace cellm {

struct Matrix {
  Format format = Format::kF32;
  int32_t rows = 0;
  int32_t cols = 0;
  std::span<const uint8_t> data;

  PackedLayout packed;  // kPacked only; rows and cols as above

  // Side-scaled formats. Scales are [rows, groups] unless a format says otherwise.
  int32_t bits = 0;
  int32_t group = 0;  // columns that share a scale; 0: the whole row
  Format scale_format = Format::kF16;
  std::span<const uint8_t> scales;
  std::span<const uint8_t> biases;  // MLX: same shape and format as scales. GPTQ/AWQ: packed zeros
  std::span<const uint8_t> group_index;  // GPTQ act-order: int32 [cols]; empty otherwise
  int32_t zero_offset = 0;               // GPTQ: 1 for the old convention (stored zero - 1), else 0
  int32_t zero_point = 0;     // formats of import_formats.h: of all groups, without biases
  float tensor_scale = 1.0f;  // one factor for the whole matrix, of whatever format

  // How the stored order differs from the matrix's own (GGUF files reorder some matrices). Row r is
  // stored as row row_order[r]; the columns [u * column_unit, (u + 1) * column_unit) are stored as
  // those of unit column_order[u]. Empty: as it is. DecodeRow() and DecodeRowCodes() undo both and
  // apply tensor_scale, so whoever reads `data` directly must first see that IsInStoredOrder().
  std::span<const int32_t> row_order;
  std::span<const int32_t> column_order;
  int32_t column_unit = 0;
};

inline bool IsInStoredOrder(const Matrix& matrix) {
  return matrix.row_order.empty() && matrix.column_order.empty() && matrix.tensor_scale == 1.0f;
}

bool IsQuantised(const Matrix& matrix);

// The bytes that `matrix.data` must have. InvalidArgument when rows/cols do not suit the format
// (e.g. K-quants need cols % 256 == 0), with the reason.
Result<uint64_t> MatrixBytes(const Matrix& matrix);

// Checks that data and side spans have the sizes that the format demands.
Status ValidateMatrix(const Matrix& matrix);

// Row `row` in float into out[cols]. Requires a validated matrix. Any thread.
void DecodeRow(const Matrix& matrix, int32_t row, float* out);

// How the codes of a quantised matrix are laid out: bits, group, zero2, has_min, scale_type chosen
// so that packing loses nothing. Unsupported (by name) for formats that have no integer form.
Result<PackedLayout> LosslessPackedLayout(const Matrix& matrix);
// Row `row` as codes[cols], scales[groups], mins[groups] of LosslessPackedLayout(matrix).
void DecodeRowCodes(const Matrix& matrix, int32_t row, uint8_t* codes, float* scales, float* mins);

// Row `row` into row `packed_row` of packed bytes in `layout`, which is
// LosslessPackedLayout(matrix) but for its count of rows. codes [cols] and floats
// [PackingFloats(layout)] are scratch.
int64_t PackingFloats(const PackedLayout& layout);
void PackMatrixRow(const Matrix& matrix, int32_t row, const PackedLayout& layout,
                   int32_t packed_row, uint8_t* codes, float* floats, uint8_t* packed);

}  // namespace cellm

#endif  // CELLM_SRC_TENSOR_MATRIX_H_
