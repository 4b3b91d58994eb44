// Any bytes as a GGUF model: a Status or a model whose every tensor can be read.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "format/gguf.h"
#include "support/heap_bound.h"
#include "tensor/matrix.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cellm;
  format::ModelFile model;
  const format::GgufPart part{"fuzz.gguf", {data, size}};
  {
    // What the file's floats become in memory (norms, tables) is counted as well.
    const fuzz::HeapBound bound(size);
    if (!format::LoadGguf({&part, 1}, &model).ok()) return 0;
  }
  for (const format::Tensor& tensor : model.tensors) {
    if (tensor.shape.size() != 2 || tensor.shape[0] > 4096 || tensor.shape[1] > 4096) continue;
    Matrix matrix;
    matrix.format = tensor.format;
    matrix.rows = static_cast<int32_t>(tensor.shape[0]);
    matrix.cols = static_cast<int32_t>(tensor.shape[1]);
    matrix.data = tensor.data;
    matrix.row_order = tensor.row_order;
    matrix.column_order = tensor.column_order;
    matrix.column_unit = tensor.column_unit;
    if (!ValidateMatrix(matrix).ok()) continue;
    std::vector<float> row(static_cast<size_t>(matrix.cols));
    DecodeRow(matrix, 0, row.data());
    DecodeRow(matrix, matrix.rows - 1, row.data());
  }
  return 0;
}
