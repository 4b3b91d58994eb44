#include "tensor/import_formats.h"

#include <algorithm>
#include <cinttypes>

#include "base/bytes.h"
#include "base/checked.h"
#include "tensor/plain_formats.h"

namespace cellm {
namespace {

// Where row 0..7 of eight lies in an AWQ word: the inverse of the order 0 2 4 6 1 3 5 7.
constexpr uint32_t kAwqNibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};

int32_t Bits(const Matrix& matrix) {
  if (matrix.format == Format::kAwq) return 4;
  return matrix.format == Format::kBitnetPacked ? 2 : matrix.bits;
}

int32_t Groups(const Matrix& matrix) {
  return matrix.group == 0 ? 1 : CeilDiv(matrix.cols, matrix.group);
}

size_t Size(int64_t value) { return static_cast<size_t>(value); }

uint32_t WordAt(std::span<const uint8_t> bytes, size_t word) {
  return LoadLe32(bytes.data() + 4 * word);
}

// Code `index` of a stream of codes that starts at word `first` and whose words lie `stride` apart.
uint32_t StreamCode(std::span<const uint8_t> bytes, size_t first, size_t stride, size_t index,
                    uint32_t bits) {
  const size_t bit = index * bits;
  const size_t word = bit / 32;
  const uint32_t shift = static_cast<uint32_t>(bit % 32);
  uint64_t pair = WordAt(bytes, first + word * stride);
  if (shift + bits > 32) pair |= uint64_t{WordAt(bytes, first + (word + 1) * stride)} << 32;
  return static_cast<uint32_t>(pair >> shift) & ((1u << bits) - 1u);
}

uint32_t CodeAt(const Matrix& matrix, int32_t row, int32_t col) {
  const size_t r = Size(row);
  const size_t c = Size(col);
  const uint32_t bits = static_cast<uint32_t>(Bits(matrix));
  switch (matrix.format) {
    case Format::kGptq:
      return StreamCode(matrix.data, r, Size(matrix.rows), c, bits);
    case Format::kAwq:
      return (WordAt(matrix.data, c * Size(matrix.rows / 8) + r / 8) >> (4 * kAwqNibble[r % 8])) &
             15;
    case Format::kBitnetPacked: {
      const size_t quarter = Size(matrix.rows / 4);
      return (uint32_t{matrix.data[r % quarter * Size(matrix.cols) + c]} >> (2 * (r / quarter))) &
             3;
    }
    default: {
      const size_t words = CeilDiv(Size(matrix.cols) * bits, 32);
      return StreamCode(matrix.data, r * words, 1, c, bits);
    }
  }
}

int32_t ZeroPoint(const Matrix& matrix, int32_t row, int32_t group) {
  if (matrix.biases.empty()) return matrix.zero_point;
  const size_t r = Size(row);
  const size_t g = Size(group);
  const uint32_t bits = static_cast<uint32_t>(Bits(matrix));
  uint32_t zero = 0;
  if (matrix.format == Format::kGptq) {
    const size_t words = Size(matrix.rows) * bits / 32;
    zero = StreamCode(matrix.biases, g * words, 1, r, bits);
  } else if (matrix.format == Format::kAwq) {
    zero =
        (WordAt(matrix.biases, g * Size(matrix.rows / 8) + r / 8) >> (4 * kAwqNibble[r % 8])) & 15;
  } else {
    zero = StreamCode(matrix.biases, g, Size(Groups(matrix)), r, bits);
  }
  return static_cast<int32_t>(zero) + matrix.zero_offset;
}

float Scale(const Matrix& matrix, int32_t row, int32_t group) {
  if (matrix.scales.empty()) return 1.0f;
  const bool by_group = matrix.format != Format::kCompressedInt4;
  const size_t index = by_group ? Size(group) * Size(matrix.rows) + Size(row)
                                : Size(row) * Size(Groups(matrix)) + Size(group);
  const size_t item = Size(GetFormatInfo(matrix.scale_format).block_bytes);
  float scale = 0;
  DecodePlain(matrix.scale_format, matrix.scales.data() + index * item, 1, &scale);
  return scale;
}

int32_t Zero2(const Matrix& matrix) { return matrix.biases.empty() ? 2 * matrix.zero_point : 0; }

// The minimum of a group with zero points of its own.
float Min(const Matrix& matrix, int32_t row, int32_t group, float scale) {
  return -(static_cast<float>(ZeroPoint(matrix, row, group)) * scale);
}

Status CheckBytes(std::span<const uint8_t> bytes, uint64_t expected, const char* what) {
  if (bytes.size() == expected) return OkStatus();
  return InvalidArgument("%s have %zu bytes, expected %" PRIu64, what, bytes.size(), expected);
}

Status CheckWidths(const Matrix& matrix) {
  const int32_t bits = matrix.bits;
  switch (matrix.format) {
    case Format::kGptq:
      if (bits != 2 && bits != 3 && bits != 4 && bits != 8) {
        return InvalidArgument("GPTQ weights of %d bits, expected 2, 3, 4 or 8", bits);
      }
      if (int64_t{matrix.cols} * bits % 32 != 0 || int64_t{matrix.rows} * bits % 32 != 0) {
        return InvalidArgument("GPTQ weights of %d x %d at %d bits do not fill words", matrix.rows,
                               matrix.cols, bits);
      }
      return OkStatus();
    case Format::kAwq:
      if (matrix.rows % 8 != 0) {
        return InvalidArgument("AWQ weights of %d rows, expected a multiple of 8", matrix.rows);
      }
      return OkStatus();
    case Format::kBitnetPacked:
      if (matrix.rows % 4 != 0) {
        return InvalidArgument("packed ternary weights of %d rows, expected a multiple of 4",
                               matrix.rows);
      }
      return OkStatus();
    default:
      if (bits != 4 && bits != 8) {
        return InvalidArgument("compressed integers of %d bits, expected 4 or 8", bits);
      }
      return OkStatus();
  }
}

}  // namespace

bool IsImported(Format format) {
  return format == Format::kGptq || format == Format::kAwq || format == Format::kBitnetPacked ||
         format == Format::kCompressedInt4;
}

Result<uint64_t> ImportedBytes(const Matrix& matrix) {
  CELLM_RETURN_IF_ERROR(CheckWidths(matrix));
  const uint64_t rows = static_cast<uint64_t>(matrix.rows);
  const uint64_t cols = static_cast<uint64_t>(matrix.cols);
  const uint64_t bits = static_cast<uint64_t>(Bits(matrix));
  if (matrix.format == Format::kCompressedInt4) return rows * CeilDiv(cols * bits, 32) * 4;
  return rows * cols * bits / 8;
}

Status ValidateImported(const Matrix& matrix) {
  if (matrix.group < 0) return InvalidArgument("a negative group of %d", matrix.group);
  const uint64_t rows = static_cast<uint64_t>(matrix.rows);
  const uint64_t groups = static_cast<uint64_t>(Groups(matrix));
  const uint64_t bits = static_cast<uint64_t>(Bits(matrix));
  if (!matrix.scales.empty()) {
    if (!IsDenseFloat(matrix.scale_format)) {
      return InvalidArgument("scales must be f16, bf16 or f32");
    }
    const uint64_t item = static_cast<uint64_t>(GetFormatInfo(matrix.scale_format).block_bytes);
    CELLM_RETURN_IF_ERROR(CheckBytes(matrix.scales, rows * groups * item, "scales"));
  }
  const int32_t highest = 1 << bits;
  if (matrix.zero_point < 0 || matrix.zero_point > highest || matrix.zero_offset < 0 ||
      matrix.zero_offset > 1) {
    return InvalidArgument("zero points of %d plus %d at %" PRIu64 " bits", matrix.zero_point,
                           matrix.zero_offset, bits);
  }
  if (!matrix.biases.empty()) {
    if (matrix.format == Format::kBitnetPacked) {
      return InvalidArgument("ternary weights with zero points");
    }
    const uint64_t expected = groups * CeilDiv(rows * bits, 32) * 4;
    CELLM_RETURN_IF_ERROR(CheckBytes(matrix.biases, expected, "zero points"));
  }
  if (matrix.group_index.empty()) return OkStatus();
  CELLM_RETURN_IF_ERROR(
      CheckBytes(matrix.group_index, static_cast<uint64_t>(matrix.cols) * 4, "group indexes"));
  for (int32_t col = 0; col < matrix.cols; ++col) {
    const uint32_t group = WordAt(matrix.group_index, Size(col));
    if (group >= groups) {
      return InvalidArgument("column %d belongs to group %" PRIu32 " of %" PRIu64, col, group,
                             groups);
    }
  }
  return OkStatus();
}

bool HaveOneZeroPoint(const Matrix& matrix, int32_t* zero) {
  *zero = ZeroPoint(matrix, 0, 0);
  const int32_t groups = Groups(matrix);
  for (int32_t group = 0; group < groups; ++group) {
    for (int32_t row = 0; row < matrix.rows; ++row) {
      if (ZeroPoint(matrix, row, group) != *zero) return false;
    }
  }
  return true;
}

Status ImportedCodeLayout(const Matrix& matrix, PackedLayout* layout) {
  if (!matrix.group_index.empty()) {
    return Unsupported("GPTQ weights in activation order have no integer form");
  }
  layout->bits = Bits(matrix);
  layout->zero2 = Zero2(matrix);
  layout->has_min = !matrix.biases.empty();
  // A minimum is a scale times a zero point, and mostly no half.
  const bool half = matrix.scales.empty() || matrix.scale_format == Format::kF16;
  layout->scale_type = half && !layout->has_min ? ScaleType::kF16 : ScaleType::kF32;
  return OkStatus();
}

void DecodeImportedRowCodes(const Matrix& matrix, int32_t row, uint8_t* codes, float* scales,
                            float* mins) {
  for (int32_t col = 0; col < matrix.cols; ++col) {
    codes[col] = static_cast<uint8_t>(CodeAt(matrix, row, col));
  }
  const int32_t groups = Groups(matrix);
  for (int32_t group = 0; group < groups; ++group) {
    scales[group] = Scale(matrix, row, group);
    if (!matrix.biases.empty()) mins[group] = Min(matrix, row, group, scales[group]);
  }
}

void DecodeImportedRow(const Matrix& matrix, int32_t row, float* out) {
  const int32_t zero2 = Zero2(matrix);
  const bool has_min = !matrix.biases.empty();
  int32_t known = -1;  // the group whose scale and minimum are at hand
  float half_scale = 0;
  float min = 0;
  for (int32_t col = 0; col < matrix.cols; ++col) {
    int32_t group = matrix.group == 0 ? 0 : col / matrix.group;
    if (!matrix.group_index.empty()) {
      group = static_cast<int32_t>(WordAt(matrix.group_index, Size(col)));
    }
    if (group != known) {
      const float scale = Scale(matrix, row, group);
      half_scale = 0.5f * scale;
      if (has_min) min = Min(matrix, row, group, scale);
      known = group;
    }
    const int32_t twice = 2 * static_cast<int32_t>(CodeAt(matrix, row, col)) - zero2;
    const float product = static_cast<float>(twice) * half_scale;
    out[col] = has_min ? product + min : product;
  }
}

}  // namespace cellm
