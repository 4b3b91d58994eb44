// Matrix products.
//
// A tile of work is a block of outputs for all tokens of the step, so that every weight is read
// from memory once a step; inside, tokens go in blocks that stay in cache beside the weights. The
// kernels add up each output in an order of its own that no cut can change.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cpu_scratch.h"

namespace cellm {
namespace {

// Weight bytes of one tile of work: enough to make claiming cheap, few enough to share evenly.
constexpr int64_t kTaskBytes = 48 * 1024;

int32_t WeightTiles(const Weight& weight) { return (weight.rows + kTileRows - 1) / kTileRows; }

int64_t TileBytes(const Weight& weight) {
  return std::max<int64_t>(1, static_cast<int64_t>(weight.bytes()) / WeightTiles(weight));
}

// Tiles of 16 outputs that one task takes: about kTaskBytes, but at least eight tasks a matrix
// where it has that many tiles. Even beyond one: kernels take tiles in pairs when tokens are many.
int32_t TilesPerTask(const Weight& weight) {
  const int64_t by_bytes = std::max<int64_t>(kTaskBytes / TileBytes(weight), 2);
  const int64_t by_share = (WeightTiles(weight) + 7) / 8;
  const int64_t tiles = std::clamp<int64_t>(std::min(by_bytes, by_share), 1, kMaxTaskTiles);
  return static_cast<int32_t>(tiles == 1 ? 1 : tiles / 2 * 2);
}

int32_t TaskCount(const Weight& weight) {
  const int32_t step = TilesPerTask(weight);
  return (WeightTiles(weight) + step - 1) / step;
}

int64_t Work(Rows x, const Weight& weight) { return int64_t{x.rows} * weight.cols * weight.rows; }

int32_t Chunks(int32_t cols) { return (cols + kChunkCols - 1) / kChunkCols; }

}  // namespace

void CpuBackend::QuantiseInput(Rows x) {
  Scratch& s = *scratch_;
  const int64_t chunks = Chunks(x.cols);
  CELLM_DCHECK(x.rows * chunks <= static_cast<int64_t>(s.scales.size()), "scratch is too small");
  ForRows(x.rows, x.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t row = begin; row < end; ++row) {
      kernels_.quantize_row_a8(x.row(row), x.cols, s.values.data() + row * chunks * kChunkCols,
                               s.scales.data() + row * chunks, s.sums.data() + row * chunks * 2);
    }
  });
}

void CpuBackend::QuantiseRows(Rows x) {
  Scratch& s = *scratch_;
  const int64_t chunks = Chunks(x.cols);
  CELLM_DCHECK(x.rows * chunks <= static_cast<int64_t>(s.scales.size()), "scratch is too small");
  ForRows(x.rows, x.cols, [&](int32_t begin, int32_t end, int32_t) {
    for (int32_t r = begin; r < end; ++r) {
      const float* const row = x.row(r);
      int8_t* const values = s.values.data() + r * chunks * kChunkCols;
      float* const scales = s.scales.data() + r * chunks;
      int32_t* const sums = s.sums.data() + r * chunks * 2;
      const float a = Int8RowFactor(row, x.cols);
      std::fill(values, values + chunks * kChunkCols, int8_t{0});
      std::fill(sums, sums + 2 * chunks, 0);
      // A NaN or infinity makes every output NaN, as it does in float.
      std::fill(scales, scales + chunks, 1.0f / a);
      if (!(a > 0.0f)) continue;
      for (int32_t c = 0; c < x.cols; ++c) {
        const float value = std::clamp(std::nearbyint(row[c] * a), -127.0f, 127.0f);
        values[c] = static_cast<int8_t>(value);
        sums[c / (kChunkCols / 2)] += values[c];
      }
    }
  });
}

void CpuBackend::Product(const Weight& weight, const float* bias, Rows x, int32_t token_begin,
                         int32_t tokens, int32_t tile_begin, int32_t tile_end, int32_t worker,
                         float* out, int64_t out_stride) {
  Scratch& s = *scratch_;
  const int32_t row_begin = tile_begin * kTileRows;
  const int32_t rows = std::min(weight.rows, tile_end * kTileRows) - row_begin;
  const float* const input = x.row(token_begin);
  if (weight.kind == WeightKind::kDense) {
    const int64_t cols = weight.cols;
    if (weight.dense_format == Format::kF32) {
      kernels_.matmul_f32_f32(reinterpret_cast<const float*>(weight.dense) + row_begin * cols, cols,
                              input, x.stride, rows, weight.cols, tokens, out, out_stride);
    } else {
      const uint16_t* const w = reinterpret_cast<const uint16_t*>(weight.dense) + row_begin * cols;
      const auto product =
          weight.dense_format == Format::kF16 ? kernels_.matmul_f16_f32 : kernels_.matmul_bf16_f32;
      product(w, cols, input, x.stride, rows, weight.cols, tokens, out, out_stride);
    }
  } else if (mode_ == ActivationMode::kInt8) {
    // The kernel counts tiles from the matrix's start; shift it so that outputs begin at 0.
    kernels::PackedTiles tiles = weight.tiles;
    tiles.data += static_cast<size_t>(tile_begin) * tiles.tile_bytes;
    tiles.rows -= row_begin;
    const int64_t chunks = tiles.chunks;
    const kernels::QuantRows quantised{
        s.values.data() + token_begin * chunks * kChunkCols, s.scales.data() + token_begin * chunks,
        s.sums.data() + token_begin * chunks * 2, tokens, tiles.chunks};
    kernels_.matmul_packed_a8(&tiles, &quantised, 0, tile_end - tile_begin, out, out_stride);
  } else {
    float* const unpacked = s.unpack.data() + worker * s.unpack_stride;
    for (int32_t tile = tile_begin; tile < tile_end; ++tile) {
      kernels_.unpack_tile_f32(&weight.tiles, tile, unpacked);
      const int32_t tile_rows = std::min(kTileRows, weight.rows - tile * kTileRows);
      kernels_.matmul_f32_f32(unpacked, weight.cols, input, x.stride, tile_rows, weight.cols,
                              tokens, out + (tile - tile_begin) * kTileRows, out_stride);
    }
  }
  if (bias == nullptr) return;
  for (int32_t token = 0; token < tokens; ++token) {
    float* const o = out + token * out_stride;
    for (int32_t row = 0; row < rows; ++row) o[row] += bias[row_begin + row];
  }
}

void CpuBackend::Linear(Rows x, std::span<const LinearPart> parts) {
  if (observer_ != nullptr) {
    std::vector<const uint8_t*> sources;
    for (const LinearPart& part : parts) sources.push_back(part.weight->source.data.data());
    observer_->Observe(x, sources);
  }
  bool quantised = false;
  for (const LinearPart& part : parts) {
    quantised = quantised || part.weight->kind == WeightKind::kPacked;
  }
  if (quantised && mode_ == ActivationMode::kInt8) QuantiseInput(x);
  Products(x, parts);
}

void CpuBackend::LinearInt8(Rows x, std::span<const LinearPart> parts) {
  bool integers = mode_ == ActivationMode::kInt8;
  for (const LinearPart& part : parts) {
    integers = integers && part.weight->kind == WeightKind::kPacked;
  }
  if (!integers) {
    RoundToInt8(x);
    Linear(x, parts);
    return;
  }
  QuantiseRows(x);
  Products(x, parts);
}

// All outputs of all parts, of an x that is quantised already where that is needed.
void CpuBackend::Products(Rows x, std::span<const LinearPart> parts) {
  int32_t tasks = 0;
  int64_t work = 0;
  for (const LinearPart& part : parts) {
    tasks += TaskCount(*part.weight);
    work += Work(x, *part.weight);
  }
  ForTiles(tasks, work, [&](int32_t task, int32_t worker) {
    const LinearPart* part = parts.data();
    while (task >= TaskCount(*part->weight)) task -= TaskCount(*part++->weight);
    const int32_t step = TilesPerTask(*part->weight);
    const int32_t begin = task * step;
    const int32_t end = std::min(begin + step, WeightTiles(*part->weight));
    for (int32_t token = 0; token < x.rows; token += kTokenBlock) {
      Product(*part->weight, part->bias, x, token, std::min(kTokenBlock, x.rows - token), begin,
              end, worker, part->out.row(token) + begin * kTileRows, part->out.stride);
    }
  });
}

void CpuBackend::GatedLinear(Rows x, const LinearPart& gate, const LinearPart& up,
                             Activation activation, Rows out) {
  if (observer_ != nullptr) {
    const uint8_t* const sources[] = {gate.weight->source.data.data(),
                                      up.weight->source.data.data()};
    observer_->Observe(x, sources);
  }
  Scratch& s = *scratch_;
  if (mode_ == ActivationMode::kInt8 &&
      (gate.weight->kind == WeightKind::kPacked || up.weight->kind == WeightKind::kPacked)) {
    QuantiseInput(x);
  }
  const int32_t step = TilesPerTask(*gate.weight);
  ForTiles(TaskCount(*gate.weight), 2 * Work(x, *gate.weight), [&](int32_t task, int32_t worker) {
    const int32_t begin = task * step;
    const int32_t end = std::min(begin + step, WeightTiles(*gate.weight));
    const int64_t first = int64_t{begin} * kTileRows;
    const int64_t count = std::min<int64_t>(out.cols - first, (end - begin) * kTileRows);
    float* const up_out = s.gated.data() + worker * s.gated_stride;
    constexpr int64_t kUpStride = int64_t{kTileRows} * kMaxTaskTiles;
    for (int32_t token = 0; token < x.rows; token += kTokenBlock) {
      const int32_t tokens = std::min(kTokenBlock, x.rows - token);
      float* const gate_out = out.row(token) + first;
      Product(*gate.weight, gate.bias, x, token, tokens, begin, end, worker, gate_out, out.stride);
      Product(*up.weight, up.bias, x, token, tokens, begin, end, worker, up_out, kUpStride);
      for (int32_t t = 0; t < tokens; ++t) {
        float* const row = gate_out + t * out.stride;
        ActivateRow(activation, row, up_out + t * kUpStride, count, row);
      }
    }
  });
}

}  // namespace cellm
