// Attention over pages: queries in rows by heads of a group, keys in segments.
//
// A query's result is defined by segments of kAttendSegment keys at absolute multiples. The kernel
// sums one segment; AddPart() adds segments up from left to right. Who ran which segment cannot be
// seen, so the keys of a sequence are shared among threads where there are few heads.

#include <algorithm>
#include <cmath>

#include "backend/cpu_scratch.h"

namespace cellm {
namespace {

constexpr int32_t kSplitRows = 4;  // query rows of a task when segments are shared out

kernels::KvCodes CodesOf(const KvLayout& layout, int32_t page_tokens) {
  kernels::KvCodes codes{};
  codes.kind = layout.type == KvType::kF32   ? kernels::kKvF32
               : layout.type == KvType::kF16 ? kernels::kKvF16
                                             : kernels::kKvCoded;
  if (codes.kind != kernels::kKvCoded) return codes;
  codes.tiles = layout.tiles;
  codes.wide_tiles = layout.wide_tiles;
  codes.wide_bits = layout.wide_bits;
  codes.narrow_bits = layout.narrow_bits;
  codes.wide_levels = layout.wide_levels;
  codes.narrow_levels = layout.narrow_levels;
  codes.group_bytes = layout.group_bytes();
  codes.scales_offset = layout.scales_offset(page_tokens);
  return codes;
}

// x[0, count) to q8 in -127..127, by the largest magnitude; the scale is NaN when x is not finite.
float QuantiseQuery(const float* x, int32_t count, int8_t* q8) {
  float largest = 0.0f;
  bool finite = true;
  for (int32_t i = 0; i < count; ++i) {
    const float magnitude = std::fabs(x[i]);
    finite = finite && magnitude <= std::numeric_limits<float>::max();
    largest = magnitude > largest ? magnitude : largest;
  }
  if (!finite || largest < 0x1p-100f) {
    std::fill_n(q8, count, int8_t{0});
    return finite ? 0.0f : __builtin_nanf("");
  }
  const float factor = 127.0f / largest;
  for (int32_t i = 0; i < count; ++i) {
    // Rounds to the nearest integer, ties to even.
    q8[i] = static_cast<int8_t>(static_cast<int32_t>(x[i] * factor + 0x1.8p23f - 0x1.8p23f));
  }
  return largest / 127.0f;
}

float FoldLanes(const float* s) {
  float a[8], b[4];
  for (int i = 0; i < 8; ++i) a[i] = s[i] + s[i + 8];
  for (int i = 0; i < 4; ++i) b[i] = a[i] + a[i + 4];
  return (b[0] + b[2]) + (b[1] + b[3]);
}

}  // namespace

struct CpuBackend::Attention {
  // Rows [first, first + rows) of a sequence, for the query heads of one kv head.
  struct Task {
    const SequenceSlice* sequence;
    int32_t head, first, rows;
  };
  struct RowRange {
    int32_t begin, end;
  };

  CpuBackend& backend;
  const StepContext& step;
  int32_t layer;
  const AttendSpec& spec;
  Rows q, out;
  KvLayout k, v;
  KvLayout demoted_k, demoted_v;  // as wide as k and v
  int32_t group;                  // query heads of a kv head
  int32_t block_rows;             // of a task, at most

  Scratch& scratch() const { return *backend.scratch_; }

  int32_t Blocks(const SequenceSlice& sequence) const {
    return (sequence.row_count + block_rows - 1) / block_rows;
  }
  int32_t Tasks() const {
    int32_t tasks = 0;
    for (const SequenceSlice& sequence : step.sequences) tasks += Blocks(sequence) * spec.kv_heads;
    return tasks;
  }
  Task TaskAt(int32_t index) const {
    const SequenceSlice* sequence = step.sequences.data();
    for (; index >= Blocks(*sequence) * spec.kv_heads; ++sequence) {
      index -= Blocks(*sequence) * spec.kv_heads;
    }
    const int32_t blocks = Blocks(*sequence);
    const int32_t first = index % blocks * block_rows;
    return {sequence, index / blocks, first, std::min(block_rows, sequence->row_count - first)};
  }

  // Past the row's own key.
  int32_t OwnEnd(const Task& task, int32_t row) const {
    return task.sequence->position_begin + task.first + row + 1;
  }
  int32_t KeyEnd(const Task& task, int32_t row) const {
    if (!spec.two_way || step.key_ends == nullptr) return OwnEnd(task, row);
    return step.key_ends[task.sequence->row_begin + task.first + row];
  }
  int32_t KeyBegin(const Task& task, int32_t row) const {
    return spec.window > 0 ? std::max(0, OwnEnd(task, row) - spec.window) : 0;
  }
  RowRange Segments(const Task& task) const {
    return {KeyBegin(task, 0) / kAttendSegment,
            (KeyEnd(task, task.rows - 1) - 1) / kAttendSegment + 1};
  }
  // The rows of the task that see a key of the segment.
  RowRange RowsOf(const Task& task, int32_t segment) const {
    RowRange rows = {0, task.rows};
    while (KeyEnd(task, rows.begin) <= segment * kAttendSegment) ++rows.begin;
    while (KeyBegin(task, rows.end - 1) >= (segment + 1) * kAttendSegment) --rows.end;
    return rows;
  }

  int64_t QueriesOf(const Task& task) const { return int64_t{task.rows} * group; }

  const KvSlice& SliceOf(const Task& task) const { return task.sequence->layers[layer].kv; }

  // Queries `at`, ... become those of the task, with nothing summed.
  void Begin(const Task& task, int64_t at, int32_t worker) const {
    Scratch& s = scratch();
    const bool coded = KvIsCoded(k.type);
    const bool demoted = SliceOf(task).demoted_tokens > 0;
    float* const work = s.General(worker);
    const auto quantise = [&](const KvLayout& layout, const float* x, int8_t* q8) {
      std::copy_n(x, layout.dim, work);
      std::fill(work + layout.dim, work + layout.padded, 0.0f);
      if (KvIsRotated(layout.type)) RotateKvRow(work, layout.padded, false);
      return QuantiseQuery(work, layout.padded, q8);
    };
    for (int32_t row = 0; row < task.rows; ++row) {
      for (int32_t h = 0; h < group; ++h, ++at) {
        const int32_t head = task.head * group + h;
        const float* const x =
            q.row(task.sequence->row_begin + task.first + row) + int64_t{head} * spec.head_dim;
        const size_t query = static_cast<size_t>(at);
        if (coded) {
          s.attend_q_scales[query] = quantise(k, x, s.attend_q8.data() + at * k.padded);
        }
        if (demoted) {
          s.demoted_q_scales[query] = quantise(demoted_k, x, s.demoted_q8.data() + at * k.padded);
        }
        const bool sink = spec.sinks != nullptr;
        s.attend_maxima[static_cast<size_t>(at)] =
            sink ? spec.sinks[head] : -std::numeric_limits<float>::infinity();
        s.attend_denominators[static_cast<size_t>(at)] = sink ? 1.0f : 0.0f;
        std::fill_n(s.attend_totals.data() + at * v.padded, v.padded, 0.0f);
      }
    }
  }

  // One segment of the task that Begin() put at `at`, into parts `part`, ...
  void RunSegment(const Task& task, int32_t segment, int64_t at, int64_t part,
                  int32_t worker) const {
    Scratch& s = scratch();
    const RowRange rows = RowsOf(task, segment);
    int32_t* const begins = s.key_ranges.data() + worker * 2 * kAttendRows;
    int32_t* const ends = begins + kAttendRows;
    for (int32_t r = rows.begin; r < rows.end; ++r) {
      begins[r - rows.begin] = std::max(KeyBegin(task, r), segment * kAttendSegment);
      ends[r - rows.begin] = std::min(KeyEnd(task, r), (segment + 1) * kAttendSegment);
    }
    const int64_t skipped = int64_t{rows.begin} * group;
    const KvSlice& slice = SliceOf(task);
    const bool demoted = segment * kAttendSegment < slice.demoted_tokens;
    const KvPlaces& places = demoted ? slice.demoted_places : slice.places;
    kernels::AttendArgs args{};
    args.q = q.row(task.sequence->row_begin + task.first + rows.begin) +
             int64_t{task.head} * group * spec.head_dim;
    args.q_row_stride = q.stride;
    args.q8 = (demoted ? s.demoted_q8 : s.attend_q8).data() + (at + skipped) * k.padded;
    args.q_scales = (demoted ? s.demoted_q_scales : s.attend_q_scales).data() + at + skipped;
    args.out = s.attend_parts.data() + part * v.padded;
    args.out_stride = v.padded;
    args.states = reinterpret_cast<kernels::AttendState*>(s.attend_states.data()) + part;
    args.rows = rows.end - rows.begin;
    args.heads = group;
    args.head_dim = spec.head_dim;
    args.head_dim_v = spec.head_dim_v;
    args.kv_head = task.head;
    args.key_begin = begins;
    args.key_end = ends;
    args.scale = spec.scale;
    args.softcap = spec.softcap;
    args.kv = {slice.pages,
               slice.page_tokens,
               places.k_offset,
               places.v_offset,
               places.k_head_stride,
               places.v_head_stride,
               CodesOf(demoted ? demoted_k : k, slice.page_tokens),
               CodesOf(demoted ? demoted_v : v, slice.page_tokens)};
    uint8_t* const levels = s.attend_levels.data() + worker * s.attend_levels_stride;
    args.scratch = levels + (64 - reinterpret_cast<uintptr_t>(levels) % 64) % 64;
    backend.kernels_.attend(&args);
    // Sums of values that are stored rotated meet sums of others.
    if (demoted && KvIsRotated(demoted_v.type) && !KvIsRotated(v.type)) {
      for (int64_t i = 0; i < int64_t{args.rows} * group; ++i) {
        RotateKvRow(args.out + i * args.out_stride, v.padded, true);
      }
    }
  }

  // Adds RunSegment()'s parts to the totals.
  void AddPart(const Task& task, int32_t segment, int64_t at, int64_t part) const {
    Scratch& s = scratch();
    const RowRange rows = RowsOf(task, segment);
    at += int64_t{rows.begin} * group;
    const int64_t end = at + int64_t{rows.end - rows.begin} * group;
    for (; at < end; ++at, ++part) {
      const kernels::AttendState& state =
          reinterpret_cast<const kernels::AttendState*>(s.attend_states.data())[part];
      float& maximum = s.attend_maxima[static_cast<size_t>(at)];
      float& denominator = s.attend_denominators[static_cast<size_t>(at)];
      const float largest = std::max(maximum, state.maximum);
      float factors[2] = {maximum - largest, state.maximum - largest};
      backend.kernels_.exp_f32(factors, 2, factors);
      denominator = denominator * factors[0] + FoldLanes(state.lanes) * factors[1];
      maximum = largest;
      float* const total = s.attend_totals.data() + at * v.padded;
      const float* const sums = s.attend_parts.data() + part * v.padded;
      for (int32_t d = 0; d < v.padded; ++d)
        total[d] = total[d] * factors[0] + sums[d] * factors[1];
    }
  }

  void Finish(const Task& task, int64_t at) const {
    Scratch& s = scratch();
    for (int32_t row = 0; row < task.rows; ++row) {
      for (int32_t h = 0; h < group; ++h, ++at) {
        float* const total = s.attend_totals.data() + at * v.padded;
        const float denominator = s.attend_denominators[static_cast<size_t>(at)];
        for (int32_t d = 0; d < v.padded; ++d) total[d] /= denominator;
        if (KvIsRotated(v.type)) RotateKvRow(total, v.padded, true);
        std::copy_n(total, spec.head_dim_v,
                    out.row(task.sequence->row_begin + task.first + row) +
                        (int64_t{task.head} * group + h) * spec.head_dim_v);
      }
    }
  }

  // A whole task on one thread.
  void RunTask(const Task& task, int32_t worker) const {
    const int64_t at = int64_t{worker} * kAttendRows * group;
    Begin(task, at, worker);
    const RowRange segments = Segments(task);
    for (int32_t segment = segments.begin; segment < segments.end; ++segment) {
      RunSegment(task, segment, at, at, worker);
      AddPart(task, segment, at, at);
    }
    Finish(task, at);
  }

  // Few tasks: their segments are handed out, as many at a time as there are parts.
  void RunSplit(int32_t tasks) const {
    // Where the k-th unit from (task, segment) on is; false past the end.
    struct Unit {
      int32_t task, segment;
      int64_t at, part;
    };
    const auto next = [&](Unit unit, Unit* found) {
      const Task task = TaskAt(unit.task);
      ++unit.segment;
      unit.part += QueriesOf(task);
      if (unit.segment == Segments(task).end) {
        unit.at += QueriesOf(task);
        if (++unit.task == tasks) return false;
        unit.segment = Segments(TaskAt(unit.task)).begin;
      }
      *found = unit;
      return true;
    };
    int64_t at = 0;
    for (int32_t i = 0; i < tasks; ++i) {
      const Task task = TaskAt(i);
      Begin(task, at, 0);
      at += QueriesOf(task);
    }
    const int64_t room = scratch().attend_queries;
    Unit first = {0, Segments(TaskAt(0)).begin, 0, 0};
    for (bool more = true; more;) {
      // The wave: as many units as have room for their parts.
      first.part = 0;
      int32_t units = 0;
      Unit unit = first;
      while (more && unit.part + QueriesOf(TaskAt(unit.task)) <= room) {
        ++units;
        more = next(unit, &unit);
      }
      backend.pool_.For(units, [&](int32_t index, int32_t worker) {
        Unit mine = first;
        for (int32_t i = 0; i < index; ++i) (void)next(mine, &mine);
        RunSegment(TaskAt(mine.task), mine.segment, mine.at, mine.part, worker);
      });
      Unit done = first;
      for (int32_t i = 0; i < units; ++i) {
        AddPart(TaskAt(done.task), done.segment, done.at, done.part);
        (void)next(done, &done);
      }
      first = unit;
    }
    at = 0;
    for (int32_t i = 0; i < tasks; ++i) {
      const Task task = TaskAt(i);
      Finish(task, at);
      at += QueriesOf(task);
    }
  }
};

void CpuBackend::AttendPages(const StepContext& step, int32_t layer, const AttendSpec& spec, Rows q,
                             Rows out) {
  Attention attention{*this,
                      step,
                      layer,
                      spec,
                      q,
                      out,
                      MakeKvLayout(step.kv_type.k, spec.head_dim),
                      MakeKvLayout(step.kv_type.v, spec.head_dim_v),
                      MakeKvLayout(step.demoted_type.k, spec.head_dim),
                      MakeKvLayout(step.demoted_type.v, spec.head_dim_v),
                      spec.heads / spec.kv_heads,
                      kAttendRows};
  int64_t work = 0;
  bool long_enough = false;
  for (const SequenceSlice& sequence : step.sequences) {
    int64_t keys = int64_t{sequence.position_begin} + sequence.row_count;
    if (spec.window > 0) keys = std::min<int64_t>(keys, spec.window);
    long_enough = long_enough || keys > kAttendSegment;
    work += keys * sequence.row_count * spec.heads * (spec.head_dim + spec.head_dim_v);
  }
  const int32_t enough = 2 * pool_.threads();
  if (pool_.threads() > 1 && attention.Tasks() < enough) {
    attention.block_rows = kSplitRows;
    const int32_t tasks = attention.Tasks();
    if (tasks < enough && long_enough && work >= kSmallWork) return attention.RunSplit(tasks);
  }
  ForTiles(attention.Tasks(), work, [&](int32_t task, int32_t worker) {
    attention.RunTask(attention.TaskAt(task), worker);
  });
}

}  // namespace cellm
