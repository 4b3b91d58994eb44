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

/* ---- steps without sessions: for measuring ------------------------------------------------------
 */

/* A sequence of tokens of an engine. Freed ones are NOT_FOUND. */
typedef struct cellm_sequence {
  uint32_t slot;
  uint32_t generation;
} cellm_sequence;
/* planned_tokens: the length that it may reach; 0: the engine's context. */
cellm_status cellm_sequence_create(cellm_engine* engine, uint32_t planned_tokens,
                                   cellm_sequence* out, cellm_error* error);
/* Another with the same past, whose pages are shared until they are written. */
cellm_status cellm_sequence_fork(cellm_engine* engine, cellm_sequence sequence, cellm_sequence* out,
                                 cellm_error* error);
cellm_status cellm_sequence_free(cellm_engine* engine, cellm_sequence sequence, cellm_error* error);

typedef struct cellm_step_item {
  cellm_sequence sequence;
  const int32_t* ids; /* appended to the sequence; at least one */
  size_t count;
} cellm_step_item;
/* One pass over the weights for all items. With `logits` the last token of each item gets a row,
 * which is handed out as `list` (the item's index), `position` 0; null: no logits are computed. */
cellm_status cellm_sequences_step(cellm_engine* engine, const cellm_step_item* items, size_t count,
                                  cellm_logits_fn logits, void* user, cellm_error* error);

/* What one token of one sequence costs by the model's shape, which is what speed is held against.
 * Of experts only as many count as a token is sent to. */
typedef struct cellm_token_work {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t body_bytes; /* of the weights that a token is multiplied with, without the head */
  uint64_t head_bytes;
  uint64_t body_products; /* multiplications with weights */
  uint64_t head_products;
  uint64_t cache_bytes; /* keys and values that a token at `depth` reads */
  uint64_t state_bytes; /* recurrent states that it reads and writes */
} cellm_token_work;
#define CELLM_TOKEN_WORK_INIT \
  { sizeof(cellm_token_work), 0, 0, 0, 0, 0, 0, 0 }
cellm_status cellm_engine_get_work(const cellm_engine* engine, uint32_t depth,
                                   cellm_token_work* work, cellm_error* error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CELLM_CELLM_EXPERIMENTAL_H_ */
