#ifndef CELLM_SRC_FORMAT_FIND_MATRIX_H_
#define CELLM_SRC_FORMAT_FIND_MATRIX_H_

// The seam of FindMatrix(): how a weight's side tensors are found. Each family of quantised
// checkpoints has a resolver; they are asked in the order of the table in find_matrix.cc, and the
// first that knows the weight fills the matrix.

#include "base/status.h"
#include "format/model_file.h"

namespace cellm::format {

struct MatrixQuery {
  const ModelFile& file;
  // The tensor's stem as found: the weight's name without ".weight" (side tensors hang there), or
  // the name itself for fused expert tensors.
  std::string stem;
  // The tensor named stem + ".weight" or stem; null when there is neither, as in checkpoints that
  // store only side tensors ("qweight").
  const Tensor* weight;
  int32_t rows, cols;  // wanted
  int32_t expert;      // -1: the weight is one matrix
};

enum class Resolved { kNo, kYes };

// kNo: not of this kind, the next resolver is asked. A Status: of this kind, and broken. On kYes
// *matrix is filled; FindMatrix() validates it.
using MatrixResolver = Result<Resolved> (*)(const MatrixQuery& query, Matrix* matrix);

// "[rows, cols] expected, shape found" as the Corrupt that every resolver gives.
Status WrongShape(const MatrixQuery& query, const Tensor& tensor);

// The columns that share a scale when a row of `cols` has `scales` of them: 0 for one, else the
// smallest of 32, 64, 128, 256 that gives that number, else cols / scales where that is exact.
// -1 when there is none. (Version 1 stores no group size.)
int32_t InferGroup(int32_t cols, int64_t scales);

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_FIND_MATRIX_H_
