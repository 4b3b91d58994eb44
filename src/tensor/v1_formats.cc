#include "tensor/v1_formats.h"

#include "base/bytes.h"
#include "base/checked.h"
#include "tensor/plain_formats.h"

namespace cellm {
namespace {

// `bits` bits starting at bit `offset` of a little-endian stream.
uint32_t BitsAt(const uint8_t* bytes, uint64_t offset, int32_t bits) {
  uint32_t value = 0;
  for (int32_t done = 0; done < bits;) {
    const uint64_t at = offset + static_cast<uint64_t>(done);
    const int32_t shift = static_cast<int32_t>(at % 8);
    const int32_t take = bits - done < 8 - shift ? bits - done : 8 - shift;
    const uint32_t part = (uint32_t{bytes[at / 8]} >> shift) & ((1u << take) - 1u);
    value |= part << done;
    done += take;
  }
  return value;
}

void MlxRowCodes(const Matrix& matrix, int32_t row, uint8_t* codes) {
  const uint64_t row_bytes = matrix.data.size() / static_cast<uint64_t>(matrix.rows);
  const uint8_t* bytes = matrix.data.data() + row_bytes * static_cast<uint64_t>(row);
  const uint64_t bits = static_cast<uint64_t>(matrix.bits);
  const bool in_words = row_bytes != CeilDiv(static_cast<uint64_t>(matrix.cols) * bits, 32) * 4;
  const uint64_t per_word = 32 / bits;
  for (int32_t col = 0; col < matrix.cols; ++col) {
    const uint64_t c = static_cast<uint64_t>(col);
    const uint64_t offset = in_words ? c / per_word * 32 + c % per_word * bits : c * bits;
    codes[col] = static_cast<uint8_t>(BitsAt(bytes, offset, matrix.bits));
  }
}

void LoadSideRow(const Matrix& matrix, std::span<const uint8_t> side, int32_t row, float* out) {
  const int32_t groups = ScaleGroups(matrix.cols, matrix.group);
  const size_t item = static_cast<size_t>(GetFormatInfo(matrix.scale_format).block_bytes);
  const size_t first = static_cast<size_t>(row) * static_cast<size_t>(groups);
  DecodePlain(matrix.scale_format, side.data() + first * item, groups, out);
}

}  // namespace

bool IsV1SideScaled(Format format) {
  return format == Format::kI8V1 || format == Format::kI4V1 || format == Format::kI2V1 ||
         format == Format::kMlxAffine;
}

Result<uint64_t> V1RowBytes(Format format, int32_t bits, int32_t cols) {
  const uint64_t count = static_cast<uint64_t>(cols);
  switch (format) {
    case Format::kI8V1:
      return count;
    case Format::kI4V1:
      return CeilDiv(count, 2);
    case Format::kI2V1:
      return CeilDiv(count, 4);
    case Format::kMlxAffine:
      if (bits < 2 || bits > 8 || bits == 7) {
        return InvalidArgument("affine weights of %d bits, expected 2 to 6 or 8", bits);
      }
      return CeilDiv(count * static_cast<uint64_t>(bits), 32) * 4;
    default:
      return Internal("not a side-scaled format of version 1");
  }
}

uint64_t MlxWordRowBytes(int32_t bits, int32_t cols) {
  return CeilDiv(static_cast<uint64_t>(cols), static_cast<uint64_t>(32 / bits)) * 4;
}

int32_t ScaleGroups(int32_t cols, int32_t group) { return group == 0 ? 1 : CeilDiv(cols, group); }

void DecodeV1RowCodes(const Matrix& matrix, int32_t row, uint8_t* codes, float* scales,
                      float* mins) {
  const size_t cols = static_cast<size_t>(matrix.cols);
  const size_t r = static_cast<size_t>(row);
  switch (matrix.format) {
    case Format::kI8V1: {
      const uint8_t* bytes = matrix.data.data() + r * cols;
      for (size_t c = 0; c < cols; ++c) codes[c] = static_cast<uint8_t>(bytes[c] ^ 0x80u);
      break;
    }
    case Format::kI4V1: {
      const uint8_t* bytes = matrix.data.data() + r * CeilDiv(cols, 2);
      for (size_t c = 0; c < cols; ++c) {
        codes[c] = static_cast<uint8_t>((bytes[c / 2] >> (c % 2 * 4)) & 15u);
      }
      break;
    }
    case Format::kI2V1: {
      const uint8_t* bytes = matrix.data.data() + r * CeilDiv(cols, 4);
      for (size_t c = 0; c < cols; ++c) {
        codes[c] = static_cast<uint8_t>((bytes[c / 4] >> (c % 4 * 2)) & 3u);
      }
      break;
    }
    default:
      MlxRowCodes(matrix, row, codes);
      LoadSideRow(matrix, matrix.biases, row, mins);
      break;
  }
  LoadSideRow(matrix, matrix.scales, row, scales);
}

void DecodeV1Row(const Matrix& matrix, int32_t row, float* out) {
  // A group at a time, so that no buffer depends on the file: scales are read where they are used.
  PackedLayout layout;
  V1CodeLayout(matrix, &layout);
  const uint64_t row_bytes = matrix.data.size() / static_cast<uint64_t>(matrix.rows);
  const uint8_t* bytes = matrix.data.data() + row_bytes * static_cast<uint64_t>(row);
  const uint64_t bits = static_cast<uint64_t>(layout.bits);
  const bool in_words = matrix.format == Format::kMlxAffine &&
                        row_bytes != CeilDiv(static_cast<uint64_t>(matrix.cols) * bits, 32) * 4;
  const size_t item = static_cast<size_t>(GetFormatInfo(matrix.scale_format).block_bytes);
  const int32_t groups = ScaleGroups(matrix.cols, matrix.group);
  const int32_t group_cols = matrix.group == 0 ? matrix.cols : matrix.group;
  for (int32_t group = 0; group < groups; ++group) {
    const size_t side =
        (static_cast<size_t>(row) * static_cast<size_t>(groups) + static_cast<size_t>(group)) *
        item;
    float scale = 0;
    float min = 0;
    DecodePlain(matrix.scale_format, matrix.scales.data() + side, 1, &scale);
    if (layout.has_min) {
      DecodePlain(matrix.scale_format, matrix.biases.data() + side, 1, &min);
    }
    const int32_t begin = group * group_cols;
    const int32_t end = matrix.cols - begin < group_cols ? matrix.cols : begin + group_cols;
    for (int32_t col = begin; col < end; ++col) {
      const uint64_t c = static_cast<uint64_t>(col);
      const uint64_t per_word = 32 / bits;
      const uint64_t offset = in_words ? c / per_word * 32 + c % per_word * bits : c * bits;
      uint32_t code = BitsAt(bytes, offset, layout.bits);
      if (matrix.format == Format::kI8V1) code ^= 0x80u;
      const float level = 0.5f * static_cast<float>(2 * static_cast<int32_t>(code) - layout.zero2);
      out[col] = layout.has_min ? level * scale + min : level * scale;
    }
  }
}

void V1CodeLayout(const Matrix& matrix, PackedLayout* layout) {
  layout->has_min = matrix.format == Format::kMlxAffine;
  switch (matrix.format) {
    case Format::kI8V1:
      layout->bits = 8;
      layout->zero2 = 256;
      break;
    case Format::kI4V1:
      layout->bits = 4;
      layout->zero2 = 16;
      break;
    case Format::kI2V1:
      layout->bits = 2;
      layout->zero2 = 3;
      break;
    default:
      layout->bits = matrix.bits;
      layout->zero2 = 0;
      break;
  }
}

}  // namespace cellm
