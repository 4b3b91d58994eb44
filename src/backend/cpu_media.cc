// Ops of towers: what pictures and sounds need beside the ops of text models.
//
// All but AttendRelative() move or add up rows; each output row is made by one thread in the order
// that backend.h states.
#include <algorithm>
#include <cstring>

#include "backend/cpu_scratch.h"

namespace cellm {

void CpuBackend::EmbedTaps(const Weight& table, std::span<const int32_t> ids, const float* weights,
                           int32_t taps, Rows out) {
  const int32_t cols = table.cols;
  ForRows(out.rows, int64_t{taps} * cols, [&](int32_t begin, int32_t end, int32_t worker) {
    float* const tap = scratch_->General(worker);
    for (int32_t r = begin; r < end; ++r) {
      float* const row = out.row(r);
      for (int32_t i = 0; i < taps; ++i) {
        const int64_t at = int64_t{r} * taps + i;
        LookUp(table, ids[static_cast<size_t>(at)], worker, tap);
        const float weight = weights[at];
        for (int32_t c = 0; c < cols; ++c) {
          const float part = weight * tap[c];
          row[c] = i == 0 ? part : row[c] + part;
        }
      }
    }
  });
  ReleaseFlash(table, int64_t{out.rows} * taps);
}

void CpuBackend::ScatterRows(Rows x, std::span<const int32_t> indices, bool add, Rows out) {
  ForRows(x.rows, x.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      const float* const in = x.row(r);
      float* const row = out.row(indices[static_cast<size_t>(r)]);
      if (add) {
        for (int32_t c = 0; c < x.cols; ++c) row[c] += in[c];
      } else {
        std::memcpy(row, in, static_cast<size_t>(x.cols) * sizeof(float));
      }
    }
  });
}

void CpuBackend::MeanRows(Rows x, std::span<const int32_t> indices, int32_t group, Rows out) {
  const float count = static_cast<float>(group);
  ForRows(out.rows, int64_t{group} * x.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      float* const row = out.row(r);
      for (int32_t i = 0; i < group; ++i) {
        const int64_t at = int64_t{r} * group + i;
        const float* const in = x.row(indices[static_cast<size_t>(at)]);
        for (int32_t c = 0; c < x.cols; ++c) row[c] = i == 0 ? in[c] : row[c] + in[c];
      }
      for (int32_t c = 0; c < x.cols; ++c) row[c] /= count;
    }
  });
}

void CpuBackend::Input(const float* values, Rows out) {
  ForRows(out.rows, out.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      std::memcpy(out.row(r), values + int64_t{r} * out.cols,
                  static_cast<size_t>(out.cols) * sizeof(float));
    }
  });
}

void CpuBackend::Windows(const float* values, const WindowsSpec& spec, int32_t first, Rows out) {
  const int32_t across = spec.out_cols();
  ForRows(out.rows, out.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      const int32_t top = (first + r) / across * spec.step - spec.padding;
      const int32_t left = (first + r) % across * spec.step - spec.padding;
      float* o = out.row(r);
      for (int32_t channel = 0; channel < spec.channels; ++channel) {
        for (int32_t y = top; y < top + spec.side; ++y) {
          for (int32_t x = left; x < left + spec.side; ++x, ++o) {
            const bool inside = y >= 0 && y < spec.rows && x >= 0 && x < spec.cols;
            *o = inside ? values[channel * spec.channel_stride + y * spec.row_stride +
                                 x * spec.col_stride]
                        : 0.0f;
          }
        }
      }
    }
  });
}

void CpuBackend::AttendRelative(const RelativeAttendSpec& spec, Rows q, Rows k, Rows v,
                                Rows distances, Rows out) {
  const int32_t dim = spec.head_dim;
  const int64_t work_per_row = int64_t{3} * spec.window * q.cols;
  ForRows(q.rows, work_per_row, [&](int32_t begin, int32_t end, int32_t worker) {
    float* const scores = scratch_->General(worker);
    for (int32_t i = begin; i < end; ++i) {
      const int32_t first = std::max(0, i - spec.window + 1);
      const int32_t count = i + 1 - first;
      for (int32_t head = 0; head < spec.heads; ++head) {
        const int64_t at = int64_t{head} * dim;
        const float* const query = q.row(i) + at;
        for (int32_t j = first; j <= i; ++j) {
          scores[j - first] = kernels_.dot_f32(query, k.row(j) + at, dim) +
                              kernels_.dot_f32(query, distances.row(i - j) + at, dim);
        }
        if (spec.softcap > 0.0f) {
          for (int32_t j = 0; j < count; ++j) scores[j] /= spec.softcap;
          kernels_.tanh_f32(scores, count, scores);
          for (int32_t j = 0; j < count; ++j) scores[j] *= spec.softcap;
        }
        float largest = scores[0];
        for (int32_t j = 1; j < count; ++j) largest = std::max(largest, scores[j]);
        for (int32_t j = 0; j < count; ++j) scores[j] -= largest;
        kernels_.exp_f32(scores, count, scores);
        float sum = 0.0f;
        float* const o = out.row(i) + at;
        std::fill_n(o, dim, 0.0f);
        for (int32_t j = 0; j < count; ++j) {
          sum += scores[j];
          kernels_.axpy_f32(scores[j], v.row(first + j) + at, dim, o);
        }
        for (int32_t d = 0; d < dim; ++d) o[d] /= sum;
      }
    }
  });
}

}  // namespace cellm
