// Lookup, norms, activations and other work on one row at a time.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu_scratch.h"
#include "tensor/half.h"

namespace cellm {
namespace {

// Rows of a table on flash between two times that its pages are given back.
constexpr int64_t kFlashRows = 512;

// One row of a packed table: the formula of unpack_tile_f32.
void LookUpPacked(const Weight& table, int32_t row, uint8_t* codes, float* scales, float* out) {
  const PackedLayout& layout = table.source.packed;
  const int32_t groups = layout.groups();
  float* const mins = scales + groups;
  UnpackRow(layout, row, table.tiles.data, codes, scales, mins);
  for (int32_t c = 0; c < table.cols; ++c) {
    const int32_t group = c / table.tiles.group;
    const float level = static_cast<float>(2 * int32_t{codes[c]} - layout.zero2);
    out[c] = level * (0.5f * scales[group]);
    if (layout.has_min) out[c] += mins[group];
  }
}

// Ones, for kernels that multiply.
constexpr int64_t kOnes = 256;
struct Ones {
  float values[kOnes];
  constexpr Ones() : values() {
    for (float& value : values) value = 1.0f;
  }
};
constinit const Ones ones;

float ActivateOne(Activation activation, float x) {
  switch (activation) {
    case Activation::kGelu:
      return 0.5f * x * (1.0f + std::erf(x * 0.70710678118654752f));
    case Activation::kRelu:
      return x > 0.0f ? x : x * 0.0f;  // NaN stays
    case Activation::kRelu2:
      return x > 0.0f ? x * x : x * 0.0f;
    default:
      return x;
  }
}

}  // namespace

// out = act(gate) * up; up == nullptr: act(gate).
void CpuBackend::ActivateRow(Activation activation, const float* gate, const float* up,
                             int64_t count, float* out) {
  if (up == nullptr && (activation == Activation::kSilu || activation == Activation::kGeluTanh ||
                        activation == Activation::kSigmoid)) {
    for (int64_t i = 0; i < count; i += kOnes) {
      ActivateRow(activation, gate + i, ones.values, std::min(kOnes, count - i), out + i);
    }
    return;
  }
  switch (activation) {
    case Activation::kSilu:
      kernels_.silu_mul_f32(gate, up, count, out);
      return;
    case Activation::kGeluTanh:
      kernels_.gelu_tanh_mul_f32(gate, up, count, out);
      return;
    case Activation::kSigmoid:
      kernels_.sigmoid_mul_f32(gate, up, count, out);
      return;
    case Activation::kTanh:
      kernels_.tanh_f32(gate, count, out);
      break;
    case Activation::kQuickGelu:
      for (int64_t i = 0; i < count; i += kOnes) {
        const int64_t part = std::min(kOnes, count - i);
        float scaled[kOnes];
        for (int64_t j = 0; j < part; ++j) scaled[j] = 1.702f * gate[i + j];
        kernels_.sigmoid_mul_f32(scaled, gate + i, part, scaled);
        for (int64_t j = 0; j < part; ++j) {
          out[i + j] = up == nullptr ? scaled[j] : scaled[j] * up[i + j];
        }
      }
      return;
    case Activation::kNone:
    case Activation::kGelu:
    case Activation::kRelu:
    case Activation::kRelu2:
      for (int64_t i = 0; i < count; ++i) {
        const float value = ActivateOne(activation, gate[i]);
        out[i] = up == nullptr ? value : value * up[i];
      }
      return;
  }
  if (up == nullptr) return;
  for (int64_t i = 0; i < count; ++i) out[i] *= up[i];
}

void CpuBackend::LookUp(const Weight& table, int32_t row, int32_t worker, float* out) {
  Scratch& s = *scratch_;
  const int64_t cols = table.cols;
  if (table.kind == WeightKind::kLookup) {
    DecodeRow(table.source, row, out);
  } else if (table.kind == WeightKind::kPacked) {
    const int64_t stride = s.needs.lookup_cols;
    LookUpPacked(table, row, s.codes.data() + worker * s.codes_stride,
                 s.code_scales.data() + worker * ((2 * stride + 15) / 16 * 16), out);
  } else if (table.dense_format == Format::kF32) {
    std::memcpy(out, reinterpret_cast<const float*>(table.dense) + row * cols,
                static_cast<size_t>(cols) * sizeof(float));
  } else {
    const auto convert =
        table.dense_format == Format::kF16 ? kernels_.f16_to_f32 : kernels_.bf16_to_f32;
    convert(reinterpret_cast<const uint16_t*>(table.dense) + row * cols, cols, out);
  }
}

// Each row touches a few pages; after some hundred rows the kernel gets them back.
void CpuBackend::ReleaseFlash(const Weight& table, int64_t rows) {
  if (table.on_flash == nullptr) return;
  flash_rows_ += rows;
  if (flash_rows_ < kFlashRows) return;
  flash_rows_ = 0;
  const uint8_t* const file = table.on_flash->bytes().data();
  table.on_flash->Release(static_cast<uint64_t>(table.source.data.data() - file),
                          table.source.data.size());
}

void CpuBackend::Embed(const Weight& table, std::span<const int32_t> tokens, float scale,
                       Rows out) {
  const int64_t cols = table.cols;
  ForRows(out.rows, cols, [&](int32_t begin, int32_t end, int32_t worker) {
    for (int32_t r = begin; r < end; ++r) {
      float* const row = out.row(r);
      LookUp(table, tokens[static_cast<size_t>(r)], worker, row);
      if (scale == 1.0f) continue;
      for (int64_t c = 0; c < cols; ++c) row[c] *= scale;
    }
  });
  ReleaseFlash(table, out.rows);
}

void CpuBackend::GatherRows(Rows x, std::span<const int32_t> indices, Rows out) {
  ForRows(out.rows, x.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      std::memcpy(out.row(r), x.row(indices[static_cast<size_t>(r)]),
                  static_cast<size_t>(x.cols) * sizeof(float));
    }
  });
}

void CpuBackend::RmsNorm(Rows x, const float* weight, float offset, float eps, Rows y) {
  ForRows(x.rows, x.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      kernels_.rmsnorm_f32(x.row(r), weight, offset, eps, x.cols, y.row(r));
    }
  });
}

void CpuBackend::LayerNorm(Rows x, const float* weight, const float* bias, float eps, Rows y) {
  ForRows(x.rows, x.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      const float* const in = x.row(r);
      float* const out = y.row(r);
      double sum = 0.0;
      for (int32_t c = 0; c < x.cols; ++c) sum += static_cast<double>(in[c]);
      const float mean = static_cast<float>(sum / x.cols);
      double squares = 0.0;
      for (int32_t c = 0; c < x.cols; ++c) {
        const double d = static_cast<double>(in[c] - mean);
        squares += d * d;
      }
      const float scale = 1.0f / std::sqrt(static_cast<float>(squares / x.cols) + eps);
      for (int32_t c = 0; c < x.cols; ++c) {
        const float scaled = (in[c] - mean) * scale * weight[c];
        out[c] = bias == nullptr ? scaled : scaled + bias[c];
      }
    }
  });
}

void CpuBackend::GatedRmsNorm(Rows x, Rows z, const float* weight, bool weight_per_group,
                              int32_t group, float eps, bool gate_first, Rows out) {
  ForRows(x.rows, x.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      for (int32_t first = 0; first < x.cols; first += group) {
        const float* const in = x.row(r) + first;
        const float* const gate = z.row(r) + first;
        float* const o = out.row(r) + first;
        const float* const w = weight + (weight_per_group ? 0 : first);
        if (gate_first) {
          kernels_.silu_mul_f32(gate, in, group, o);
          kernels_.rmsnorm_f32(o, w, 0.0f, eps, group, o);
        } else {
          kernels_.rmsnorm_f32(in, w, 0.0f, eps, group, o);
          kernels_.silu_mul_f32(gate, o, group, o);
        }
      }
    }
  });
}

void CpuBackend::GatedAct(Activation activation, Rows gate, Rows up, Rows out) {
  ForRows(out.rows, out.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      ActivateRow(activation, gate.row(r), up.row(r), out.cols, out.row(r));
    }
  });
}

void CpuBackend::Act(Activation activation, Rows x, Rows out) {
  ForRows(x.rows, x.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      ActivateRow(activation, x.row(r), nullptr, x.cols, out.row(r));
    }
  });
}

void CpuBackend::Xielu(float a_p, float a_n, float beta, float eps, Rows x) {
  ForRows(x.rows, x.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      float* const row = x.row(r);
      for (int32_t c = 0; c < x.cols; ++c) {
        const float v = row[c];
        row[c] =
            v > 0.0f ? a_p * v * v + beta * v : a_n * (std::expm1(std::min(v, eps)) - v) + beta * v;
      }
    }
  });
}

void CpuBackend::Add(Rows x, Rows y, float scale) {
  ForRows(x.rows, x.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      float* const a = x.row(r);
      const float* const b = y.row(r);
      for (int32_t c = 0; c < x.cols; ++c) a[c] += scale * b[c];
    }
  });
}

void CpuBackend::Scale(Rows x, float scale) {
  ForRows(x.rows, x.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      float* const row = x.row(r);
      for (int32_t c = 0; c < x.cols; ++c) row[c] *= scale;
    }
  });
}

void CpuBackend::Mul(Rows a, Rows b, Rows out) {
  ForRows(out.rows, out.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      const float* const p = a.row(r);
      const float* const q = b.row(r);
      float* const o = out.row(r);
      for (int32_t c = 0; c < out.cols; ++c) o[c] = p[c] * q[c];
    }
  });
}

void CpuBackend::MulVector(Rows x, const float* vector) {
  ForRows(x.rows, x.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      float* const row = x.row(r);
      for (int32_t c = 0; c < x.cols; ++c) row[c] *= vector[c];
    }
  });
}

void CpuBackend::AddVector(Rows x, const float* vector) {
  ForRows(x.rows, x.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      float* const row = x.row(r);
      for (int32_t c = 0; c < x.cols; ++c) row[c] += vector[c];
    }
  });
}

void CpuBackend::Clamp(Rows x, float low, float high, Rows out) {
  ForRows(x.rows, x.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      const float* const in = x.row(r);
      float* const o = out.row(r);
      for (int32_t c = 0; c < x.cols; ++c) {
        // Comparisons with NaN are false, so it passes.
        const float raised = in[c] < low ? low : in[c];
        o[c] = raised > high ? high : raised;
      }
    }
  });
}

void CpuBackend::SoftCap(Rows x, float cap) {
  ForRows(x.rows, x.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      float* const row = x.row(r);
      for (int32_t c = 0; c < x.cols; ++c) row[c] /= cap;
      kernels_.tanh_f32(row, x.cols, row);
      for (int32_t c = 0; c < x.cols; ++c) row[c] *= cap;
    }
  });
}

void CpuBackend::SigmoidGate(Rows x, Rows gate) {
  ForRows(x.rows, x.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      float* const row = x.row(r);
      if (gate.cols == x.cols) {
        kernels_.sigmoid_mul_f32(gate.row(r), row, x.cols, row);
        continue;
      }
      float factor = 0.0f;
      kernels_.sigmoid_mul_f32(gate.row(r), ones.values, 1, &factor);
      for (int32_t c = 0; c < x.cols; ++c) row[c] *= factor;
    }
  });
}

void CpuBackend::ScaleByPosition(const StepContext& step, float beta, int32_t original, Rows x) {
  ForRows(x.rows, x.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      const float turns = static_cast<float>(step.positions[r] / original);
      const float factor = 1.0f + beta * std::log(1.0f + turns);
      if (factor == 1.0f) continue;
      float* const row = x.row(r);
      for (int32_t c = 0; c < x.cols; ++c) row[c] *= factor;
    }
  });
}

void CpuBackend::RoundToInt8(Rows x) {
  ForRows(x.rows, x.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      float* const row = x.row(r);
      const float a = Int8RowFactor(row, x.cols);
      for (int32_t c = 0; c < x.cols; ++c) {
        row[c] = std::clamp(std::nearbyint(row[c] * a), -128.0f, 127.0f) / a;
      }
    }
  });
}

}  // namespace cellm
