// One switch per question, one case per group of formats; the formats' own files know the rest.
#include "tensor/matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/checked.h"
#include "base/limits.h"
#include "tensor/gguf_blocks.h"
#include "tensor/import_formats.h"
#include "tensor/plain_formats.h"
#include "tensor/v1_formats.h"

namespace cellm {
namespace {

Status CheckExtent(const Matrix& matrix) {
  if (matrix.rows < 1 || matrix.rows > limits::kMaxDimension || matrix.cols < 1 ||
      matrix.cols > limits::kMaxDimension) {
    return InvalidArgument("a matrix of %d x %d, expected 1 to %d rows and columns", matrix.rows,
                           matrix.cols, limits::kMaxDimension);
  }
  return OkStatus();
}

Status NoReader(Format format) {
  const std::string_view name = GetFormatInfo(format).name;
  return Unsupported("weights in the format \"%.*s\" are not supported",
                     static_cast<int>(name.size()), name.data());
}

Status CheckSide(const Matrix& matrix, std::span<const uint8_t> side, const char* what) {
  const uint64_t expected = static_cast<uint64_t>(matrix.rows) *
                            static_cast<uint64_t>(ScaleGroups(matrix.cols, matrix.group)) *
                            static_cast<uint64_t>(GetFormatInfo(matrix.scale_format).block_bytes);
  if (side.size() != expected) {
    return InvalidArgument("%s have %zu bytes, expected %llu", what, side.size(),
                           static_cast<unsigned long long>(expected));
  }
  return OkStatus();
}

Status ValidateV1(const Matrix& matrix) {
  if (matrix.group < 0) return InvalidArgument("a negative group of %d", matrix.group);
  if (!IsDenseFloat(matrix.scale_format)) {
    return InvalidArgument("scales must be f16, bf16 or f32");
  }
  CELLM_RETURN_IF_ERROR(CheckSide(matrix, matrix.scales, "scales"));
  if (matrix.format == Format::kMlxAffine) {
    CELLM_RETURN_IF_ERROR(CheckSide(matrix, matrix.biases, "biases"));
  }
  return OkStatus();
}

// kQ1_0 rows of .cellm files may end in a part of a block.
void DecodeGgufTail(const GgufBlock& block, const Matrix& matrix, const uint8_t* row, float* out) {
  const int32_t whole = matrix.cols / block.weights * block.weights;
  DecodeGgufRow(block, row, whole, out);
  if (whole == matrix.cols) return;
  float last[256];
  DecodeGgufRow(block, row + static_cast<size_t>(whole / block.weights * block.bytes),
                block.weights, last);
  for (int32_t i = whole; i < matrix.cols; ++i) out[i] = last[i - whole];
}

void DecodeGgufTailCodes(const GgufBlock& block, const Matrix& matrix, const uint8_t* row,
                         uint8_t* codes, float* scales, float* mins) {
  const int32_t whole = matrix.cols / block.weights * block.weights;
  DecodeGgufRowCodes(block, row, whole, codes, scales, mins);
  if (whole == matrix.cols) return;
  uint8_t last[256];
  DecodeGgufRowCodes(block, row + static_cast<size_t>(whole / block.weights * block.bytes),
                     block.weights, last, scales + whole / block.group,
                     mins == nullptr ? nullptr : mins + whole / block.group);
  for (int32_t i = whole; i < matrix.cols; ++i) codes[i] = last[i - whole];
}

const uint8_t* GgufRow(const GgufBlock& block, const Matrix& matrix, int32_t row) {
  const size_t blocks = static_cast<size_t>(CeilDiv(matrix.cols, block.weights));
  return matrix.data.data() + static_cast<size_t>(row) * blocks * static_cast<size_t>(block.bytes);
}

// Without a buffer that depends on the row's length: a chunk of codes at a time.
void DecodePackedRow(const Matrix& matrix, int32_t row, float* out) {
  const PackedLayout& layout = matrix.packed;
  float scale = 0;
  float min = 0;
  for (int32_t first = 0; first < layout.cols; first += kChunkCols) {
    uint8_t codes[kChunkCols];
    UnpackChunk(layout, row, first, matrix.data.data(), codes);
    const int32_t cols = layout.cols - first < kChunkCols ? layout.cols - first : kChunkCols;
    for (int32_t i = 0; i < cols; ++i) {
      if (i % 16 == 0) {  // groups are multiples of 16
        const int32_t group = layout.group == 0 ? 0 : (first + i) / layout.group;
        UnpackScale(layout, row, group, matrix.data.data(), &scale, &min);
      }
      const float level =
          0.5f * static_cast<float>(2 * static_cast<int32_t>(codes[i]) - layout.zero2);
      out[first + i] = layout.has_min ? level * scale + min : level * scale;
    }
  }
}

// A group that packed.h allows and that never spans two scales of the matrix: the matrix's own, or
// a part of it where that is needed because units of columns change place. -1 when none exists.
int32_t PackableGroup(const Matrix& matrix, int32_t group) {
  if (group == 0 || group >= matrix.cols) return 0;
  if (!matrix.column_order.empty()) group = std::gcd(group, matrix.column_unit);
  if (group % 32 == 0) return group;
  return group % 16 == 0 ? 16 : -1;
}

// The group as the format stores it (a row's end may cut it short).
int32_t StoredGroup(const Matrix& matrix) {
  if (const GgufBlock* block = FindGgufBlock(matrix.format); block != nullptr) return block->group;
  return matrix.format == Format::kPacked ? matrix.packed.group : matrix.group;
}

Status ValidateOrder(const Matrix& matrix) {
  if (!matrix.row_order.empty()) {
    if (matrix.row_order.size() != static_cast<size_t>(matrix.rows)) {
      return InvalidArgument("row order of %zu rows, expected %d", matrix.row_order.size(),
                             matrix.rows);
    }
    for (const int32_t row : matrix.row_order) {
      if (row < 0 || row >= matrix.rows) return InvalidArgument("row order names row %d", row);
    }
  }
  if (matrix.column_order.empty()) return OkStatus();
  const size_t units = matrix.column_order.size();
  if (matrix.column_unit < 1 || units > static_cast<size_t>(matrix.cols) ||
      units * static_cast<size_t>(matrix.column_unit) != static_cast<size_t>(matrix.cols)) {
    return InvalidArgument("column order of %zu units of %d, expected %d columns in all", units,
                           matrix.column_unit, matrix.cols);
  }
  for (const int32_t unit : matrix.column_order) {
    if (unit < 0 || static_cast<size_t>(unit) >= units) {
      return InvalidArgument("column order names unit %d", unit);
    }
  }
  return OkStatus();
}

// Moves units of `unit` items each: out unit u is stored unit order[u].
template <typename T>
void Reorder(std::span<const int32_t> order, int32_t unit, T* row) {
  const size_t count = static_cast<size_t>(unit);
  std::vector<T> stored(row, row + order.size() * count);
  for (size_t u = 0; u < order.size(); ++u) {
    const T* from = stored.data() + static_cast<size_t>(order[u]) * count;
    std::copy(from, from + count, row + u * count);
  }
}

// The row in stored column order.
void DecodeStoredRow(const Matrix& matrix, int32_t row, float* out) {
  if (IsPlain(matrix.format)) {
    const size_t row_bytes = static_cast<size_t>(matrix.cols) *
                             static_cast<size_t>(GetFormatInfo(matrix.format).block_bytes);
    return DecodePlain(matrix.format, matrix.data.data() + static_cast<size_t>(row) * row_bytes,
                       matrix.cols, out);
  }
  if (IsV1SideScaled(matrix.format)) return DecodeV1Row(matrix, row, out);
  if (IsImported(matrix.format)) return DecodeImportedRow(matrix, row, out);
  if (matrix.format == Format::kPacked) return DecodePackedRow(matrix, row, out);
  const GgufBlock* block = FindGgufBlock(matrix.format);
  CELLM_CHECK(block != nullptr, "DecodeRow of a matrix that ValidateMatrix would have refused");
  DecodeGgufTail(*block, matrix, GgufRow(*block, matrix, row), out);
}

// The row in stored column order, with the groups that the format stores. False: no minimums.
bool DecodeStoredCodes(const Matrix& matrix, int32_t row, uint8_t* codes, float* scales,
                       float* mins) {
  if (matrix.format == Format::kPacked) {
    UnpackRow(matrix.packed, row, matrix.data.data(), codes, scales, mins);
    return matrix.packed.has_min;
  }
  if (const GgufBlock* block = FindGgufBlock(matrix.format); block != nullptr) {
    DecodeGgufTailCodes(*block, matrix, GgufRow(*block, matrix, row), codes, scales, mins);
    return block->has_min;
  }
  if (IsImported(matrix.format)) {
    DecodeImportedRowCodes(matrix, row, codes, scales, mins);
    return !matrix.biases.empty();
  }
  CELLM_CHECK(IsV1SideScaled(matrix.format), "DecodeRowCodes of a format without codes");
  DecodeV1RowCodes(matrix, row, codes, scales, mins);
  return matrix.format == Format::kMlxAffine;
}

int32_t StoredSuper(const Matrix& matrix) {
  if (const GgufBlock* block = FindGgufBlock(matrix.format); block != nullptr) {
    return block->weights;
  }
  return matrix.packed.super;
}

// The super-scales in stored order. Only for formats whose layout is nested.
void DecodeStoredSupers(const Matrix& matrix, int32_t row, float* supers, float* super_mins) {
  if (matrix.format == Format::kPacked) {
    return UnpackSupers(matrix.packed, row, matrix.data.data(), supers, super_mins);
  }
  const GgufBlock* const block = FindGgufBlock(matrix.format);
  CELLM_CHECK(block != nullptr, "super-scales of a format without them");
  DecodeGgufRowSupers(*block, GgufRow(*block, matrix, row), matrix.cols, supers, super_mins);
}

// Columns of a super-scale as the layout has them, when units of columns change place: a part of
// the stored one. 0: the units cut groups or leave no power of two of them.
int32_t PackableSuper(const Matrix& matrix, const PackedLayout& layout) {
  if (layout.group == 0) return 0;
  if (matrix.column_order.empty()) return layout.super;
  const int32_t super = std::gcd(layout.super, matrix.column_unit);
  const bool fits =
      super % layout.group == 0 && std::has_single_bit(static_cast<uint32_t>(super / layout.group));
  return fits ? super : 0;
}

// One scale for `repeat` groups becomes one for each; from the back, in place.
void RepeatGroups(int32_t groups, int32_t repeat, float* scales) {
  for (int32_t g = groups - 1; g > 0; --g) scales[g] = scales[g / repeat];
}

}  // namespace

bool IsQuantised(const Matrix& matrix) { return !IsPlain(matrix.format); }

Result<uint64_t> MatrixBytes(const Matrix& matrix) {
  CELLM_RETURN_IF_ERROR(CheckExtent(matrix));
  const uint64_t rows = static_cast<uint64_t>(matrix.rows);
  const uint64_t cols = static_cast<uint64_t>(matrix.cols);
  if (IsPlain(matrix.format)) {
    return rows * cols * static_cast<uint64_t>(GetFormatInfo(matrix.format).block_bytes);
  }
  if (IsV1SideScaled(matrix.format)) {
    CELLM_ASSIGN_OR_RETURN(const uint64_t row_bytes,
                           V1RowBytes(matrix.format, matrix.bits, matrix.cols));
    return rows * row_bytes;
  }
  if (IsImported(matrix.format)) return ImportedBytes(matrix);
  if (matrix.format == Format::kPacked) {
    CELLM_RETURN_IF_ERROR(ValidatePackedLayout(matrix.packed));
    if (matrix.packed.rows != matrix.rows || matrix.packed.cols != matrix.cols) {
      return InvalidArgument("packed layout of %d x %d in a matrix of %d x %d", matrix.packed.rows,
                             matrix.packed.cols, matrix.rows, matrix.cols);
    }
    return uint64_t{matrix.packed.total_bytes()};
  }
  const GgufBlock* block = FindGgufBlock(matrix.format);
  if (block == nullptr) return NoReader(matrix.format);
  if (matrix.cols % block->weights != 0 && matrix.format != Format::kQ1_0) {
    const std::string_view name = GetFormatInfo(matrix.format).name;
    return InvalidArgument("%d columns in the format \"%.*s\", expected a multiple of %d",
                           matrix.cols, static_cast<int>(name.size()), name.data(), block->weights);
  }
  return rows * CeilDiv(cols, static_cast<uint64_t>(block->weights)) *
         static_cast<uint64_t>(block->bytes);
}

Status ValidateMatrix(const Matrix& matrix) {
  CELLM_ASSIGN_OR_RETURN(const uint64_t expected, MatrixBytes(matrix));
  const bool in_words = matrix.format == Format::kMlxAffine &&
                        matrix.data.size() == static_cast<uint64_t>(matrix.rows) *
                                                  MlxWordRowBytes(matrix.bits, matrix.cols);
  if (matrix.data.size() != expected && !in_words) {
    const std::string_view name = GetFormatInfo(matrix.format).name;
    return InvalidArgument("%d x %d weights in the format \"%.*s\" have %zu bytes, expected %llu",
                           matrix.rows, matrix.cols, static_cast<int>(name.size()), name.data(),
                           matrix.data.size(), static_cast<unsigned long long>(expected));
  }
  CELLM_RETURN_IF_ERROR(ValidateOrder(matrix));
  if (!std::isfinite(matrix.tensor_scale)) return InvalidArgument("a scale that is not finite");
  if (IsImported(matrix.format)) return ValidateImported(matrix);
  return IsV1SideScaled(matrix.format) ? ValidateV1(matrix) : OkStatus();
}

void DecodeRow(const Matrix& matrix, int32_t row, float* out) {
  const int32_t stored =
      matrix.row_order.empty() ? row : matrix.row_order[static_cast<size_t>(row)];
  DecodeStoredRow(matrix, stored, out);
  if (!matrix.column_order.empty()) Reorder(matrix.column_order, matrix.column_unit, out);
  if (matrix.tensor_scale == 1.0f) return;
  for (int32_t col = 0; col < matrix.cols; ++col) out[col] *= matrix.tensor_scale;
}

Result<PackedLayout> LosslessPackedLayout(const Matrix& matrix) {
  CELLM_RETURN_IF_ERROR(ValidateMatrix(matrix));
  PackedLayout layout;
  layout.rows = matrix.rows;
  layout.cols = matrix.cols;
  if (matrix.format == Format::kPacked) {
    layout = matrix.packed;
  } else if (const GgufBlock* block = FindGgufBlock(matrix.format); block != nullptr) {
    layout = GgufPackedLayout(*block, matrix.rows, matrix.cols, matrix.data);
  } else if (IsV1SideScaled(matrix.format)) {
    V1CodeLayout(matrix, &layout);
    layout.scale_type = matrix.scale_format == Format::kF16 ? ScaleType::kF16 : ScaleType::kF32;
  } else if (IsImported(matrix.format)) {
    CELLM_RETURN_IF_ERROR(ImportedCodeLayout(matrix, &layout));
  } else {
    const std::string_view name = GetFormatInfo(matrix.format).name;
    return Unsupported("weights in the format \"%.*s\" have no integer form",
                       static_cast<int>(name.size()), name.data());
  }
  layout.group = PackableGroup(matrix, StoredGroup(matrix));
  if (layout.nested()) layout.super = PackableSuper(matrix, layout);
  // A factor of the whole matrix rounds once more for every scale, and a super-scale cut by a
  // reorder is none: then the products of both levels are written out.
  if (layout.nested() && (matrix.tensor_scale != 1.0f || layout.super == 0)) {
    layout.sub = SubScale::kNone;
    layout.super = 0;
    layout.scale_type = ScaleType::kF32;
  }
  if (matrix.tensor_scale != 1.0f) layout.scale_type = ScaleType::kF32;
  if (layout.group < 0) {
    return Unsupported("groups of %d columns%s cannot be packed, expected a multiple of 16",
                       StoredGroup(matrix), matrix.column_order.empty() ? "" : " (reordered)");
  }
  CELLM_RETURN_IF_ERROR(ValidatePackedLayout(layout));
  return layout;
}

void DecodeRowCodes(const Matrix& matrix, int32_t row, uint8_t* codes, float* scales, float* mins) {
  const int32_t stored =
      matrix.row_order.empty() ? row : matrix.row_order[static_cast<size_t>(row)];
  const bool has_min = DecodeStoredCodes(matrix, stored, codes, scales, mins);
  const int32_t stored_group = StoredGroup(matrix);
  const int32_t group = PackableGroup(matrix, stored_group);
  if (matrix.tensor_scale != 1.0f) {
    const int32_t count = stored_group == 0 ? 1 : CeilDiv(matrix.cols, stored_group);
    for (int32_t g = 0; g < count; ++g) {
      scales[g] *= matrix.tensor_scale;
      if (has_min) mins[g] *= matrix.tensor_scale;
    }
  }
  if (group > 0 && group != stored_group) {
    const int32_t groups = CeilDiv(matrix.cols, group);
    RepeatGroups(groups, stored_group / group, scales);
    if (has_min) RepeatGroups(groups, stored_group / group, mins);
  }
  if (matrix.column_order.empty()) return;
  Reorder(matrix.column_order, matrix.column_unit, codes);
  if (group == 0) return;
  Reorder(matrix.column_order, matrix.column_unit / group, scales);
  if (has_min) Reorder(matrix.column_order, matrix.column_unit / group, mins);
}

int64_t PackingFloats(const PackedLayout& layout) {
  // Before a reorder repeats them, super-scales are at most as many as after it.
  return 2 * (int64_t{layout.groups()} + layout.supers());
}

void PackMatrixRow(const Matrix& matrix, int32_t row, const PackedLayout& layout,
                   int32_t packed_row, uint8_t* codes, float* floats, uint8_t* packed) {
  float* const scales = floats;
  float* const mins = scales + layout.groups();
  float* const supers = mins + layout.groups();
  float* const super_mins = supers + layout.supers();
  DecodeRowCodes(matrix, row, codes, scales, mins);
  if (layout.nested()) {
    const int32_t stored =
        matrix.row_order.empty() ? row : matrix.row_order[static_cast<size_t>(row)];
    DecodeStoredSupers(matrix, stored, supers, super_mins);
    if (!matrix.column_order.empty()) {
      const int32_t repeat = StoredSuper(matrix) / layout.super;
      const int32_t unit = matrix.column_unit / layout.super;
      for (float* const values : {supers, super_mins}) {
        if (values == super_mins && !layout.has_min) break;
        RepeatGroups(layout.supers(), repeat, values);
        Reorder(matrix.column_order, unit, values);
      }
    }
  }
  PackRow(layout, packed_row, codes, {scales, mins, supers, super_mins}, packed);
}

}  // namespace cellm
