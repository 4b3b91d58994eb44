#include "format/tensor_index.h"

#include <algorithm>

#include "base/checked.h"
#include "base/limits.h"
#include "tensor/gguf_blocks.h"
#include "tensor/plain_formats.h"
#include "tensor/v1_formats.h"

namespace cellm::format {
namespace {

unsigned long long Printable(uint64_t value) { return static_cast<unsigned long long>(value); }

// The last dimension (a row) and the product of the others.
Status RowsAndCols(const std::vector<int64_t>& shape, uint64_t* rows, int32_t* cols) {
  if (shape.empty()) return InvalidArgument("no dimensions, expected at least one");
  if (shape.back() < 1 || shape.back() > limits::kMaxDimension) {
    return InvalidArgument("rows of %lld weights, expected 1 to %d",
                           static_cast<long long>(shape.back()), limits::kMaxDimension);
  }
  *cols = static_cast<int32_t>(shape.back());
  if (!ElementCount({shape.begin(), shape.end() - 1}, rows)) {
    return InvalidArgument("a shape that overflows");
  }
  return OkStatus();
}

Result<uint64_t> PackedTensorBytes(PackedLayout layout, const std::vector<int64_t>& shape) {
  if (shape.size() < 2) return InvalidArgument("fewer than two dimensions in a packed tensor");
  uint64_t rows = 0;
  uint64_t leading = 0;
  CELLM_RETURN_IF_ERROR(RowsAndCols(shape, &rows, &layout.cols));
  const int64_t matrix_rows = shape[shape.size() - 2];
  if (matrix_rows < 1 || matrix_rows > limits::kMaxDimension) {
    return InvalidArgument("%lld rows, expected 1 to %d", static_cast<long long>(matrix_rows),
                           limits::kMaxDimension);
  }
  layout.rows = static_cast<int32_t>(matrix_rows);
  CELLM_RETURN_IF_ERROR(ValidatePackedLayout(layout));
  uint64_t bytes = 0;
  if (!ElementCount({shape.begin(), shape.end() - 2}, &leading) ||
      !CheckedMul(leading, uint64_t{layout.total_bytes()}, &bytes)) {
    return InvalidArgument("a shape that overflows");
  }
  return bytes;
}

}  // namespace

std::string TensorPlace(const std::string& path, std::string_view name) {
  // Names come from files: cut and made printable, so that a message stays one line.
  std::string shown;
  for (const char c : name.substr(0, 200)) shown.push_back(c >= 0x20 && c != 0x7F ? c : '?');
  return path + ": tensor \"" + shown + "\"";
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

bool ElementCount(const std::vector<int64_t>& shape, uint64_t* count) {
  uint64_t product = 1;
  for (const int64_t dimension : shape) {
    if (dimension < 0 || !CheckedMul(product, static_cast<uint64_t>(dimension), &product) ||
        product > static_cast<uint64_t>(INT64_MAX)) {
      return false;
    }
  }
  *count = product;
  return true;
}

Status ReadShape(json::Value list, const std::string& where, std::vector<int64_t>* shape) {
  shape->clear();
  if (!list.is_array()) return Corrupt("%s: shape is not a list", where.c_str());
  if (list.size() > static_cast<size_t>(limits::kMaxTensorRank)) {
    return Corrupt("%s: %zu dimensions, expected at most %d", where.c_str(), list.size(),
                   limits::kMaxTensorRank);
  }
  for (json::Value item = list.First(); item.exists(); item = list.Next(item)) {
    int64_t dimension = 0;
    if (!item.GetInt64(&dimension) || dimension < 0) {
      return Corrupt("%s: dimension %zu is not a non-negative integer", where.c_str(),
                     shape->size());
    }
    shape->push_back(dimension);
  }
  return OkStatus();
}

Result<uint64_t> TensorBytes(Format format, const PackedLayout& packed,
                             const std::vector<int64_t>& shape) {
  if (format == Format::kPacked) return PackedTensorBytes(packed, shape);
  uint64_t bytes = 0;
  if (IsPlain(format) || format == Format::kI8V1) {
    uint64_t count = 0;
    if (!ElementCount(shape, &count) ||
        !CheckedMul(count, static_cast<uint64_t>(GetFormatInfo(format).block_bytes), &bytes)) {
      return InvalidArgument("a shape that overflows");
    }
    return bytes;
  }
  uint64_t rows = 0;
  int32_t cols = 0;
  CELLM_RETURN_IF_ERROR(RowsAndCols(shape, &rows, &cols));
  uint64_t row_bytes = 0;
  if (format == Format::kI4V1 || format == Format::kI2V1) {
    CELLM_ASSIGN_OR_RETURN(row_bytes, V1RowBytes(format, 0, cols));
  } else if (const GgufBlock* block = FindGgufBlock(format); block != nullptr) {
    if (cols % block->weights != 0 && format != Format::kQ1_0) {
      return InvalidArgument("rows of %d weights, expected a multiple of %d", cols, block->weights);
    }
    row_bytes =
        static_cast<uint64_t>(CeilDiv(cols, block->weights)) * static_cast<uint64_t>(block->bytes);
  } else {
    const std::string_view name = GetFormatInfo(format).name;
    return InvalidArgument("the format \"%.*s\" cannot be stored by itself",
                           static_cast<int>(name.size()), name.data());
  }
  if (!CheckedMul(rows, row_bytes, &bytes)) return InvalidArgument("a shape that overflows");
  return bytes;
}

Status CheckRange(const std::string& where, uint64_t offset, uint64_t bytes, uint64_t file_bytes) {
  if (RangeFits(offset, bytes, file_bytes)) return OkStatus();
  uint64_t end = 0;
  if (!CheckedAdd(offset, bytes, &end)) {
    return Corrupt("%s: offset %llu and length %llu overflow", where.c_str(), Printable(offset),
                   Printable(bytes));
  }
  return Corrupt("%s: data ends at byte %llu, file has %llu; the file is cut short", where.c_str(),
                 Printable(end), Printable(file_bytes));
}

Status SortAndCheckTensors(const std::string& path, std::vector<Tensor>* tensors) {
  std::vector<const Tensor*> by_place;
  for (const Tensor& tensor : *tensors) {
    if (!tensor.data.empty()) by_place.push_back(&tensor);
  }
  std::sort(by_place.begin(), by_place.end(), [](const Tensor* a, const Tensor* b) {
    return a->file_index != b->file_index ? a->file_index < b->file_index
                                          : a->file_offset < b->file_offset;
  });
  for (size_t i = 1; i < by_place.size(); ++i) {
    const Tensor& before = *by_place[i - 1];
    const Tensor& after = *by_place[i];
    if (before.file_index == after.file_index &&
        after.file_offset - before.file_offset < before.data.size()) {
      return Corrupt("%s overlaps tensor \"%s\" at byte %llu",
                     TensorPlace(path, after.name).c_str(), before.name.c_str(),
                     Printable(after.file_offset));
    }
  }
  std::sort(tensors->begin(), tensors->end(),
            [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  for (size_t i = 1; i < tensors->size(); ++i) {
    if ((*tensors)[i].name == (*tensors)[i - 1].name) {
      return Corrupt("%s: named twice", TensorPlace(path, (*tensors)[i].name).c_str());
    }
  }
  return OkStatus();
}

}  // namespace cellm::format
