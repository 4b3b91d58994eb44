// Rotary embedding, and keys and values into pages.
#include <algorithm>
#include <cstring>

#include "backend/cpu_scratch.h"

namespace cellm {
namespace {

// Writes one head's key into its column of the block of 16 tokens.
template <typename T>
void ScatterKey(const T* key, int32_t head_dim, int32_t slot, uint8_t* head) {
  T* const block = reinterpret_cast<T*>(head) + int64_t{slot / 16} * head_dim * 16 + slot % 16;
  for (int32_t d = 0; d < head_dim; ++d) block[int64_t{d} * 16] = key[d];
}

}  // namespace

void CpuBackend::RopeTable(const StepContext& step, const RopeSpec& spec, Rows cos_sin) {
  const int32_t half = spec.rotary_dim / 2;
  for (const SequenceSlice& sequence : step.sequences) {
    float* const frequencies = scratch_->frequencies.data();
    RopeFrequencies(spec, sequence.planned_total_tokens, frequencies);
    // A sine costs about as much as sixteen floats of other work.
    ForRows(sequence.row_count, int64_t{16} * half, [&](int32_t begin, int32_t end, int32_t) {
      for (int32_t r = sequence.row_begin + begin; r < sequence.row_begin + end; ++r) {
        const int32_t* const axes =
            step.rope_positions == nullptr ? nullptr : step.rope_positions + int64_t{3} * r;
        if (axes == nullptr || spec.axes.empty()) {
          const int32_t position = axes == nullptr ? step.positions[r] : axes[0];
          RopeRow(frequencies, half, spec.attention_factor, position, cos_sin.row(r));
        } else {
          RopeRow(frequencies, spec.axes.data(), half, spec.attention_factor, axes, cos_sin.row(r));
        }
      }
    });
  }
}

void CpuBackend::Rope(const RopeSpec& spec, Rows cos_sin, int32_t heads, Rows x) {
  ForRows(x.rows, x.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      kernels_.rope_f32(x.row(r), heads, spec.head_dim, spec.rotary_dim, cos_sin.row(r),
                        spec.interleaved ? 1 : 0);
    }
  });
}

void CpuBackend::StoreKv(const StepContext& step, int32_t layer, const AttendSpec& spec, Rows k,
                         Rows v) {
  const KvLayout layouts[2] = {MakeKvLayout(step.kv_type.k, spec.head_dim),
                               MakeKvLayout(step.kv_type.v, spec.head_dim_v)};
  // One row into the head's part of a page; `work`: 2 * padded floats.
  const auto store = [&](KvRole role, const KvSlice& slice, int32_t slot, const float* x,
                         float* work, uint8_t* head) {
    const KvLayout& layout = layouts[role == KvRole::kKey ? 0 : 1];
    const bool key = role == KvRole::kKey;
    if (KvIsCoded(layout.type)) {
      uint8_t* const codes = reinterpret_cast<uint8_t*>(work + layout.padded);
      const uint16_t scale = EncodeKvRow(layout, role, x, work, codes);
      PutKvRow(layout, role, codes, scale, slice.page_tokens, slot, head);
    } else if (layout.type == KvType::kF32) {
      if (key) return ScatterKey(x, layout.dim, slot, head);
      std::memcpy(head + static_cast<size_t>(slot) * static_cast<size_t>(layout.dim) * 4, x,
                  static_cast<size_t>(layout.dim) * 4);
    } else {
      uint16_t* const halves = key ? reinterpret_cast<uint16_t*>(work)
                                   : reinterpret_cast<uint16_t*>(head) + int64_t{slot} * layout.dim;
      kernels_.f32_to_f16(x, layout.dim, halves);
      if (key) ScatterKey(halves, layout.dim, slot, head);
    }
  };
  // A task is (sequence, kv head, 16 tokens at an absolute multiple of 16): codes of such a group
  // share bytes.
  const auto groups_of = [](const SequenceSlice& sequence) {
    return (sequence.position_begin + sequence.row_count - 1) / 16 - sequence.position_begin / 16 +
           1;
  };
  int32_t tasks = 0;
  for (const SequenceSlice& sequence : step.sequences) tasks += groups_of(sequence) * spec.kv_heads;
  const bool coded = KvIsCoded(step.kv_type.k) || KvIsCoded(step.kv_type.v);
  const int64_t work = int64_t{step.rows} * (k.cols + v.cols) * (coded ? 32 : 4);
  ForTiles(tasks, work, [&](int32_t task, int32_t worker) {
    const SequenceSlice* sequence = step.sequences.data();
    for (; task >= groups_of(*sequence) * spec.kv_heads; ++sequence) {
      task -= groups_of(*sequence) * spec.kv_heads;
    }
    const int32_t groups = groups_of(*sequence);
    const int32_t head = task / groups;
    const int32_t first = (sequence->position_begin / 16 + task % groups) * 16;
    const int32_t begin = std::max(first, sequence->position_begin);
    const int32_t end = std::min(first + 16, sequence->position_begin + sequence->row_count);
    const KvSlice& slice = sequence->layers[layer].kv;
    float* const floats = scratch_->General(worker);
    for (int32_t position = begin; position < end; ++position) {
      uint8_t* const page = slice.pages[position / slice.page_tokens];
      const int32_t slot = position % slice.page_tokens;
      const int32_t row = sequence->row_begin + position - sequence->position_begin;
      const size_t h = static_cast<size_t>(head);
      store(KvRole::kKey, slice, slot, k.row(row) + int64_t{head} * spec.head_dim, floats,
            page + slice.places.k_offset + h * slice.places.k_head_stride);
      store(KvRole::kValue, slice, slot, v.row(row) + int64_t{head} * spec.head_dim_v, floats,
            page + slice.places.v_offset + h * slice.places.v_head_stride);
    }
  });
}

}  // namespace cellm
