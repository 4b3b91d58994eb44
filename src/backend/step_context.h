#ifndef CELLM_SRC_BACKEND_STEP_CONTEXT_H_
#define CELLM_SRC_BACKEND_STEP_CONTEXT_H_

// What one pass over the weights works on: the rows of the step and whose they are.
//
//   rows       0  1  2  3 | 4 | 5  6
//   sequence   A (chunk)  | B | C (chunk)      rows of a sequence are neighbours, in order
//   position  16 17 18 19 |90 | 0  1           absolute, consecutive within a sequence
//
// Ops that mix tokens work sequence by sequence in absolute positions and keep what they remember
// in that sequence's LayerState, so that a chunk boundary or a neighbour cannot be seen in the
// result. Everything here is owned by the engine and lives for one step.

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/rows.h"
#include "tensor/kv_type.h"

namespace cellm {

// Attention sums keys up in segments of so many tokens at absolute multiples, from left to right.
// A segment is stored in one format.
inline constexpr int32_t kKvSegment = 512;

// Where a layer's keys and values lie in a page.
struct KvPlaces {
  size_t k_offset = 0, v_offset = 0;            // bytes from a page's start to head 0
  size_t k_head_stride = 0, v_head_stride = 0;  // bytes from one kv head to the next
};

// The pages of one layer of one sequence (layout: kernels::KvPages).
struct KvSlice {
  uint8_t* const* pages = nullptr;  // [position / page_tokens]; null once out of the window
  int32_t page_tokens = 0;
  KvPlaces places;
  // The first so many tokens, whole segments, are in StepContext::demoted_type and lie like this.
  int32_t demoted_tokens = 0;
  KvPlaces demoted_places;
};

// What one layer of one sequence remembers. Parts that the layer does not have are null.
struct LayerState {
  KvSlice kv;
  float* recurrent = nullptr;  // LayerStateSpec::recurrent_floats, zeros before the first token
  float* conv = nullptr;       // [conv_taps - 1][conv_channels], oldest first, zeros at the start
};

// Rows of a step whose embedding is given: what a tower made of a picture or a sound. Their tokens
// are ids that the model has; a family looks up by them what it has beside the embedding.
struct GivenRows {
  static constexpr int kMaxDeep = 8;
  std::span<const int32_t> rows;  // of the step, ascending
  Rows embeddings;                // [rows.size(), hidden], taken as they are
  // Added to the hidden states after layer i; [rows.size(), hidden] each, `deep_count` of them.
  Rows deep[kMaxDeep];
  int32_t deep_count = 0;
};

struct SequenceSlice {
  int32_t row_begin = 0;
  int32_t row_count = 0;
  int32_t position_begin = 0;  // of row_begin
  // The length that the sequence is planned to reach; fixed when it is created. Rotary kinds whose
  // factors depend on length choose by it, once for the whole life of the sequence.
  int32_t planned_total_tokens = 0;
  const LayerState* layers = nullptr;  // [ModelInfo::layers.size()]
};

struct StepContext {
  int32_t rows = 0;
  const int32_t* tokens = nullptr;     // [rows]
  const int32_t* positions = nullptr;  // [rows], in the sequence's cache
  // Null, or [rows][3]: positions along three axes for rotary tables, where they are not
  // `positions` three times.
  const int32_t* rope_positions = nullptr;
  // Null, or [rows]: for attention that is two_way the end (absolute, past the last key) of what a
  // row sees: the end of its block, or its own position + 1. Never falls within a sequence, and
  // never lies past the rows of the step: a block that sees itself is in one step whole.
  const int32_t* key_ends = nullptr;
  const GivenRows* given = nullptr;  // null: all rows are tokens
  std::span<const SequenceSlice> sequences;
  std::span<const int32_t> logit_rows;  // rows whose logits are wanted, ascending
  Rows logits;                          // [logit_rows.size(), vocab_size], where they go
  // Null, or where to say where the states of all rows after the last norm are (what the head is
  // multiplied with), [rows, hidden]: in the arena, until the next step.
  Rows* states = nullptr;
  KvTypes kv_type;
  KvTypes demoted_type;  // kv_type where nothing is demoted
  Arena* arena = nullptr;

  std::span<const int32_t> token_ids() const { return {tokens, static_cast<size_t>(rows)}; }
};

}  // namespace cellm

#endif  // CELLM_SRC_BACKEND_STEP_CONTEXT_H_
