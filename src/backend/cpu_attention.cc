// Rotary embedding, and keys and values in pages.
#include <algorithm>
#include <cstring>

#include "backend/cpu_scratch.h"

namespace cellm {
namespace {

// Writes one head's key into its column of the block of 16 tokens.
template <typename T>
void ScatterKey(const T* key, int32_t head_dim, int32_t slot, uint8_t* head_base) {
  T* const block = reinterpret_cast<T*>(head_base) + int64_t{slot / 16} * head_dim * 16 + slot % 16;
  for (int32_t d = 0; d < head_dim; ++d) block[int64_t{d} * 16] = key[d];
}

// The slice as kernels see it.
kernels::KvPages PagesOf(const KvSlice& slice) {
  return {slice.pages,    slice.page_tokens,   slice.k_offset,
          slice.v_offset, slice.k_head_stride, slice.v_head_stride};
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
        RopeRow(frequencies, half, spec.attention_factor, step.positions[r], cos_sin.row(r));
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
  constexpr int32_t kPart = 256;
  const bool half = step.kv_type == KvType::kF16;
  const size_t element = KvElementBytes(step.kv_type);
  const auto store_token = [&](const KvSlice& slice, int32_t position, const float* key,
                               const float* value) {
    uint8_t* const page = slice.pages[position / slice.page_tokens];
    const int32_t slot = position % slice.page_tokens;
    for (int32_t head = 0; head < spec.kv_heads; ++head) {
      const size_t h = static_cast<size_t>(head);
      uint8_t* const k_base = page + slice.k_offset + h * slice.k_head_stride;
      uint8_t* const v_row =
          page + slice.v_offset + h * slice.v_head_stride +
          static_cast<size_t>(slot) * static_cast<size_t>(spec.head_dim_v) * element;
      const float* const head_key = key + int64_t{head} * spec.head_dim;
      const float* const head_value = value + int64_t{head} * spec.head_dim_v;
      if (!half) {
        ScatterKey(head_key, spec.head_dim, slot, k_base);
        std::memcpy(v_row, head_value, static_cast<size_t>(spec.head_dim_v) * sizeof(float));
        continue;
      }
      uint16_t* const block =
          reinterpret_cast<uint16_t*>(k_base) + int64_t{slot / 16} * spec.head_dim * 16 + slot % 16;
      for (int32_t d = 0; d < spec.head_dim; d += kPart) {
        const int32_t count = std::min(kPart, spec.head_dim - d);
        uint16_t converted[kPart];
        kernels_.f32_to_f16(head_key + d, count, converted);
        for (int32_t i = 0; i < count; ++i) block[int64_t{d + i} * 16] = converted[i];
      }
      kernels_.f32_to_f16(head_value, spec.head_dim_v, reinterpret_cast<uint16_t*>(v_row));
    }
  };
  for (const SequenceSlice& sequence : step.sequences) {
    const KvSlice& slice = sequence.layers[layer].kv;
    ForRows(sequence.row_count, 4 * (int64_t{k.cols} + v.cols),
            [&](int32_t begin, int32_t end, int32_t) {
              for (int32_t i = begin; i < end; ++i) {
                const int32_t row = sequence.row_begin + i;
                store_token(slice, sequence.position_begin + i, k.row(row), v.row(row));
              }
            });
  }
}

void CpuBackend::AttendPages(const StepContext& step, int32_t layer, const AttendSpec& spec, Rows q,
                             Rows out) {
  Scratch& s = *scratch_;
  const auto attend = step.kv_type == KvType::kF16 ? kernels_.attend_f16 : kernels_.attend_f32;
  const int32_t group = spec.heads / spec.kv_heads;
  // A task is (sequence, kv head, block of up to kAttendRows rows).
  int32_t tasks = 0;
  int64_t work = 0;
  for (const SequenceSlice& sequence : step.sequences) {
    tasks += (sequence.row_count + kAttendRows - 1) / kAttendRows * spec.kv_heads;
    int64_t keys = int64_t{sequence.position_begin} + sequence.row_count;
    if (spec.window > 0) keys = std::min<int64_t>(keys, spec.window);
    work += keys * sequence.row_count * spec.heads * (spec.head_dim + spec.head_dim_v);
  }
  ForTiles(tasks, work, [&](int32_t task, int32_t worker) {
    const SequenceSlice* sequence = step.sequences.data();
    int32_t blocks = 0;
    for (;; ++sequence) {
      blocks = (sequence->row_count + kAttendRows - 1) / kAttendRows;
      if (task < blocks * spec.kv_heads) break;
      task -= blocks * spec.kv_heads;
    }
    const int32_t head = task / blocks;
    const int32_t first = task % blocks * kAttendRows;
    const int32_t rows = std::min(kAttendRows, sequence->row_count - first);
    int32_t* const begins = s.key_ranges.data() + worker * 2 * kAttendRows;
    int32_t* const ends = begins + kAttendRows;
    for (int32_t r = 0; r < rows; ++r) {
      const int32_t position = sequence->position_begin + first + r;
      begins[r] = spec.window > 0 ? std::max(0, position - spec.window + 1) : 0;
      ends[r] = position + 1;
    }
    kernels::AttendArgs args{};
    args.q = q.row(sequence->row_begin + first) + int64_t{head} * group * spec.head_dim;
    args.q_row_stride = q.stride;
    args.out = out.row(sequence->row_begin + first) + int64_t{head} * group * spec.head_dim_v;
    args.out_row_stride = out.stride;
    args.rows = rows;
    args.heads = group;
    args.head_dim = spec.head_dim;
    args.head_dim_v = spec.head_dim_v;
    args.kv_head = head;
    args.key_begin = begins;
    args.key_end = ends;
    args.scale = spec.scale;
    args.softcap = spec.softcap;
    args.sinks = spec.sinks == nullptr ? nullptr : spec.sinks + int64_t{head} * group;
    args.kv = PagesOf(sequence->layers[layer].kv);
    args.scratch = s.attend.data() + worker * s.attend_stride;
    attend(&args);
  });
}

}  // namespace cellm
