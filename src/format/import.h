#ifndef CELLM_SRC_FORMAT_IMPORT_H_
#define CELLM_SRC_FORMAT_IMPORT_H_

// Resolvers of FindMatrix() for the quantised checkpoints of other projects; packings in
// tensor/import_formats.h. Widths and groups come from the tensors' shapes, which cannot lie about
// themselves; only what shapes do not show comes from quantization_config:
//   quant_method          gptq or awq, where the shapes fit both
//   checkpoint_format     gptq: zero points stored minus one; gptq_v2: as they are
//   version               awq: gemm alone
//   linear_class          bitnet: weight_scale multiplies (autobitlinear) or divides

#include "base/status.h"
#include "format/find_matrix.h"

namespace cellm::format {

// "<stem>.qweight" with scales and qzeros: GPTQ, and AWQ.
Result<Resolved> ResolveGptq(const MatrixQuery& query, Matrix* matrix);
// Bytes of four ternary weights, with "<stem>.weight_scale".
Result<Resolved> ResolveBitnet(const MatrixQuery& query, Matrix* matrix);
// "<stem>.weight_packed", or an int8 weight, with "<stem>.weight_scale": compressed-tensors.
Result<Resolved> ResolveCompressed(const MatrixQuery& query, Matrix* matrix);

// The one factor of a whole matrix ("<stem>.weight_scale", or "weight_scale_inv") into
// matrix->tensor_scale, where there is one. Unsupported when it is more than one number.
Status TakeTensorScale(const MatrixQuery& query, Matrix* matrix);

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_IMPORT_H_
