/* cellm_experimental.h: calls that may change or go at any version. They are in the static library
 * only; the shared library does not export them. Rules as in cellm.h.
 */
#ifndef CELLM_CELLM_EXPERIMENTAL_H_
#define CELLM_CELLM_EXPERIMENTAL_H_

#include "cellm/cellm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- calibration: what the matrices of a model are multiplied with -----------------------------
 */

/* From now on everything that the engine evaluates adds to statistics of the inputs of every
 * matrix: sums of x x^T. Evaluation is slower meanwhile. At most about max_bytes of memory (beyond
 * the engine's own budget when that has a limit: the smaller of the two); matrices for which it
 * does not suffice get the sums of each column alone. max_bytes 0: stops and forgets. */
cellm_status cellm_engine_collect_inputs(cellm_engine* engine, uint64_t max_bytes,
                                         cellm_error* error);

typedef struct cellm_input_moments {
  uint32_t struct_size;
  int32_t matrix;    /* the expert of a fused tensor; -1: the tensor is one matrix */
  cellm_text tensor; /* name in the model file */
  int32_t columns;
  int32_t is_diagonal;  /* 1: moments is [columns]; 0: [columns, columns], row-major */
  uint64_t rows;        /* how many inputs were added up */
  const float* moments; /* valid, like tensor.data, until the engine evaluates again */
} cellm_input_moments;
#define CELLM_INPUT_MOMENTS_INIT \
  { sizeof(cellm_input_moments), 0, {0, 0}, 0, 0, 0, 0 }

typedef int32_t (*cellm_input_moments_fn)(const cellm_input_moments* moments, void* user);
/* Calls `callback` for each matrix that was reached, by tensor name; non-zero stops (CANCELLED).
 *   INVALID_ARGUMENT  nothing is collected     OUT_OF_MEMORY  a sum could not be had */
cellm_status cellm_engine_get_inputs(const cellm_engine* engine, cellm_input_moments_fn callback,
                                     void* user, cellm_error* error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CELLM_CELLM_EXPERIMENTAL_H_ */
