// Making matrices ready, and the scratch of the CPU backend.
#include <bit>
#include <cstring>

#include "backend/cpu_scratch.h"
#include "base/bytes.h"
#include "tensor/half.h"

namespace cellm {
namespace {

bool Aligned(const void* pointer, size_t alignment) {
  return reinterpret_cast<uintptr_t>(pointer) % alignment == 0;
}

kernels::PackedTiles TilesOf(const PackedLayout& layout, const uint8_t* data) {
  kernels::PackedTiles tiles{};
  tiles.data = data;
  tiles.tile_bytes = layout.tile_bytes();
  tiles.mins_offset = layout.mins_offset();
  tiles.codes_offset = layout.codes_offset();
  tiles.rows = layout.rows;
  tiles.cols = layout.cols;
  tiles.chunks = layout.chunks();
  tiles.bits = layout.bits;
  tiles.group = layout.group == 0 ? layout.chunks() * kChunkCols : layout.group;
  tiles.groups = layout.groups();
  tiles.zero2 = layout.zero2;
  tiles.scales_are_f32 = layout.scale_type == ScaleType::kF32 ? 1 : 0;
  tiles.has_min = layout.has_min ? 1 : 0;
  tiles.sub = layout.sub == SubScale::kNone ? kernels::kSubNone
              : layout.sub == SubScale::kI8 ? kernels::kSubI8
                                            : kernels::kSubN4;
  if (layout.nested()) {
    tiles.super_shift = std::countr_zero(static_cast<uint32_t>(layout.super / layout.group));
    tiles.subs_offset = layout.subs_offset();
    tiles.sub_mins_offset = layout.sub_mins_offset();
  }
  tiles.book = CodeBookBytes(layout.book);
  return tiles;
}

Weight WeightFor(const Matrix& matrix, WeightKind kind) {
  Weight weight;
  weight.kind = kind;
  weight.rows = matrix.rows;
  weight.cols = matrix.cols;
  weight.source = matrix;
  return weight;
}

void UsePacked(const PackedLayout& layout, const uint8_t* data, Weight* weight) {
  weight->source.packed = layout;
  weight->tiles = TilesOf(layout, data);
}

size_t DenseBytes(Format format) { return format == Format::kF32 ? 4 : 2; }

}  // namespace

uint64_t Weight::bytes() const {
  switch (kind) {
    case WeightKind::kNone:
      return 0;
    case WeightKind::kDense:
      return static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols) * DenseBytes(dense_format);
    case WeightKind::kPacked:
      return uint64_t{tiles.tile_bytes} * static_cast<uint64_t>((rows + kTileRows - 1) / kTileRows);
    case WeightKind::kLookup:
      return source.data.size() + source.scales.size() + source.biases.size();
  }
  return 0;
}

Result<Weight> RowsOf(const Weight& weight, int32_t begin, int32_t count) {
  if (begin < 0 || count < 1 || begin > weight.rows - count) {
    return InvalidArgument("rows [%d, %d) of a matrix with %d rows", begin, begin + count,
                           weight.rows);
  }
  Weight part;
  part.kind = weight.kind;
  part.rows = count;
  part.cols = weight.cols;
  part.dense_format = weight.dense_format;
  part.source.data = weight.source.data;  // which tensor it is of
  if (weight.kind == WeightKind::kDense) {
    part.dense = weight.dense + static_cast<size_t>(begin) * static_cast<size_t>(weight.cols) *
                                    DenseBytes(weight.dense_format);
  } else if (weight.kind == WeightKind::kPacked) {
    if (begin % kTileRows != 0) {
      return InvalidArgument("packed rows from %d: not a multiple of %d", begin, kTileRows);
    }
    part.tiles = weight.tiles;
    part.tiles.data += static_cast<size_t>(begin / kTileRows) * weight.tiles.tile_bytes;
    part.tiles.rows = count;
    part.source.packed = weight.source.packed;
    part.source.packed.rows = count;
  } else {
    return InvalidArgument("rows of a matrix that is only looked up");
  }
  return part;
}

CpuBackend::CpuBackend(const kernels::KernelTable& kernels, platform::ThreadPool& pool,
                       ActivationMode mode)
    : kernels_(kernels), pool_(pool), mode_(mode), scratch_(std::make_unique<Scratch>()) {}

CpuBackend::~CpuBackend() = default;

Status CpuBackend::Reserve(const ScratchNeeds& needs, Allocator& allocator) {
  auto fresh = std::make_unique<Scratch>();
  fresh->needs = needs;
  const size_t threads = static_cast<size_t>(pool_.threads());
  const auto make = [&allocator](auto* array, int64_t count) -> Status {
    using T = std::remove_reference_t<decltype((*array)[0])>;
    CELLM_ASSIGN_OR_RETURN(*array, Array<T>::Zeroed(allocator, static_cast<size_t>(count),
                                                    MemoryClass::kActivations, "scratch"));
    return OkStatus();
  };
  const auto per_thread = [&](auto* array, int64_t count, int64_t* stride) -> Status {
    *stride = (count + 15) / 16 * 16;  // whole cache lines, so that threads do not share them
    return make(array, *stride * static_cast<int64_t>(threads));
  };
  if (mode_ == ActivationMode::kInt8) {
    CELLM_RETURN_IF_ERROR(make(&fresh->values, needs.quantised_chunks * kChunkCols));
    CELLM_RETURN_IF_ERROR(make(&fresh->scales, needs.quantised_chunks));
    CELLM_RETURN_IF_ERROR(make(&fresh->sums, needs.quantised_chunks * 2));
  } else {
    CELLM_RETURN_IF_ERROR(
        per_thread(&fresh->unpack, int64_t{kTileRows} * needs.unpack_cols, &fresh->unpack_stride));
  }
  CELLM_RETURN_IF_ERROR(per_thread(&fresh->gated, int64_t{kTokenBlock} * kTileRows * kMaxTaskTiles,
                                   &fresh->gated_stride));
  CELLM_RETURN_IF_ERROR(per_thread(&fresh->attend_levels,
                                   static_cast<int64_t>(kernels::AttendScratchBytes(
                                       needs.attend_columns, needs.attend_columns_v)) +
                                       64,
                                   &fresh->attend_levels_stride));
  fresh->attend_queries = int64_t{kAttendRows} * needs.attend_heads * static_cast<int64_t>(threads);
  const int64_t queries = fresh->attend_queries;
  CELLM_RETURN_IF_ERROR(make(&fresh->attend_q8, queries * needs.attend_columns));
  CELLM_RETURN_IF_ERROR(make(&fresh->attend_q_scales, queries));
  CELLM_RETURN_IF_ERROR(make(&fresh->demoted_q8, queries * needs.demoted_columns));
  CELLM_RETURN_IF_ERROR(make(&fresh->demoted_q_scales, needs.demoted_columns > 0 ? queries : 0));
  CELLM_RETURN_IF_ERROR(make(&fresh->attend_parts, queries * needs.attend_columns_v));
  CELLM_RETURN_IF_ERROR(make(&fresh->attend_totals, queries * needs.attend_columns_v));
  CELLM_RETURN_IF_ERROR(make(&fresh->attend_states,
                             queries * static_cast<int64_t>(sizeof(kernels::AttendState) / 4)));
  CELLM_RETURN_IF_ERROR(make(&fresh->attend_maxima, queries));
  CELLM_RETURN_IF_ERROR(make(&fresh->attend_denominators, queries));
  CELLM_RETURN_IF_ERROR(
      make(&fresh->key_ranges, 2 * int64_t{kAttendRows} * static_cast<int64_t>(threads)));
  CELLM_RETURN_IF_ERROR(per_thread(&fresh->general, needs.thread_floats, &fresh->general_stride));
  int64_t codes_stride = 0;
  CELLM_RETURN_IF_ERROR(per_thread(&fresh->codes, needs.lookup_cols, &fresh->codes_stride));
  CELLM_RETURN_IF_ERROR(per_thread(&fresh->code_scales, 2 * needs.lookup_cols, &codes_stride));
  CELLM_RETURN_IF_ERROR(make(&fresh->frequencies, needs.rotary_half));
  CELLM_RETURN_IF_ERROR(make(&fresh->expert_floats, needs.expert_floats));
  CELLM_RETURN_IF_ERROR(make(&fresh->expert_ints, needs.expert_ints));
  scratch_ = std::move(fresh);
  return OkStatus();
}

uint64_t CpuBackend::scratch_bytes() const {
  const Scratch& s = *scratch_;
  return s.values.size() + s.codes.size() + s.attend_levels.size() + s.attend_q8.size() +
         s.demoted_q8.size() +
         4 * (s.scales.size() + s.sums.size() + s.unpack.size() + s.gated.size() +
              s.attend_q_scales.size() + s.demoted_q_scales.size() + s.attend_parts.size() +
              s.attend_totals.size() + s.attend_states.size() + s.attend_maxima.size() +
              s.attend_denominators.size() + s.key_ranges.size() + s.general.size() +
              s.code_scales.size() + s.frequencies.size() + s.expert_floats.size() +
              s.expert_ints.size());
}

namespace {

// Packs a quantised matrix without loss: rows are decoded to codes and scales, sixteen rows a tile.
Result<Weight> Pack(const Matrix& matrix, platform::ThreadPool& pool, Allocator& allocator) {
  CELLM_ASSIGN_OR_RETURN(const PackedLayout layout, LosslessPackedLayout(matrix));
  Weight weight = WeightFor(matrix, WeightKind::kPacked);
  CELLM_ASSIGN_OR_RETURN(weight.owned,
                         Array<uint8_t>::Uninitialised(allocator, layout.total_bytes(),
                                                       MemoryClass::kWeights, "packed weights"));
  const size_t threads = static_cast<size_t>(pool.threads());
  const size_t cols = static_cast<size_t>(layout.cols);
  const size_t row_floats = static_cast<size_t>(PackingFloats(layout));
  CELLM_ASSIGN_OR_RETURN(
      Array<uint8_t> codes,
      Array<uint8_t>::Zeroed(allocator, threads * cols, MemoryClass::kOther, "packing"));
  CELLM_ASSIGN_OR_RETURN(Array<float> floats, Array<float>::Zeroed(allocator, threads * row_floats,
                                                                   MemoryClass::kOther, "packing"));
  uint8_t* const packed = weight.owned.data();
  pool.For(layout.tiles(), [&](int32_t tile, int32_t worker) {
    uint8_t* const row_codes = codes.data() + static_cast<size_t>(worker) * cols;
    float* const row_scratch = floats.data() + static_cast<size_t>(worker) * row_floats;
    const int32_t end = std::min(layout.rows, (tile + 1) * kTileRows);
    // Padding is zero. Cleared here and not before, so that all threads share the page faults.
    std::memset(packed + static_cast<size_t>(tile) * layout.tile_bytes(), 0, layout.tile_bytes());
    for (int32_t row = tile * kTileRows; row < end; ++row) {
      PackMatrixRow(matrix, row, layout, row, row_codes, row_scratch, packed);
    }
  });
  UsePacked(layout, packed, &weight);
  return weight;
}

// Dense floats that the kernels cannot take as they lie: misaligned, in another order, or of
// another width. 16-bit floats stay what they are (they survive the way through float unchanged),
// everything else becomes f32.
Result<Weight> CopyDense(const Matrix& matrix, platform::ThreadPool& pool, Allocator& allocator) {
  Weight weight = WeightFor(matrix, WeightKind::kDense);
  weight.dense_format = IsDenseFloat(matrix.format) ? matrix.format : Format::kF32;
  const size_t cols = static_cast<size_t>(matrix.cols);
  const size_t row_bytes = cols * DenseBytes(weight.dense_format);
  CELLM_ASSIGN_OR_RETURN(weight.owned, Array<uint8_t>::Uninitialised(
                                           allocator, static_cast<size_t>(matrix.rows) * row_bytes,
                                           MemoryClass::kWeights, "weights"));
  CELLM_ASSIGN_OR_RETURN(Array<float> rows,
                         Array<float>::Zeroed(allocator, static_cast<size_t>(pool.threads()) * cols,
                                              MemoryClass::kOther, "copying"));
  uint8_t* const target = weight.owned.data();
  pool.For(matrix.rows, [&](int32_t row, int32_t worker) {
    uint8_t* const out = target + static_cast<size_t>(row) * row_bytes;
    float* const values = rows.data() + static_cast<size_t>(worker) * cols;
    DecodeRow(matrix, row, values);
    if (weight.dense_format == Format::kF32) {
      std::memcpy(out, values, row_bytes);
      return;
    }
    const bool half = weight.dense_format == Format::kF16;
    for (size_t c = 0; c < cols; ++c) {
      StoreLe<uint16_t>(out + 2 * c, half ? FloatToF16(values[c]) : FloatToBf16(values[c]));
    }
  });
  weight.dense = target;
  return weight;
}

}  // namespace

Result<Weight> CpuBackend::Prepare(const Matrix& matrix, WeightUse use, Allocator& allocator) {
  CELLM_RETURN_IF_ERROR(ValidateMatrix(matrix));
  if (matrix.format == Format::kPacked) {
    if (!IsInStoredOrder(matrix)) {
      return Unsupported("a packed matrix in another row or column order");
    }
    Weight weight = WeightFor(matrix, WeightKind::kPacked);
    UsePacked(matrix.packed, matrix.data.data(), &weight);
    return weight;
  }
  if (IsDenseFloat(matrix.format) && IsInStoredOrder(matrix) && matrix.tensor_scale == 1.0f &&
      Aligned(matrix.data.data(), matrix.format == Format::kF32 ? 4 : 2)) {
    Weight weight = WeightFor(matrix, WeightKind::kDense);
    weight.dense_format = matrix.format;
    weight.dense = matrix.data.data();
    return weight;
  }
  if (use == WeightUse::kLookup) return WeightFor(matrix, WeightKind::kLookup);
  // GPTQ in activation order has no integer form: it becomes f32.
  const bool packs = IsQuantised(matrix) && matrix.group_index.empty();
  if (packs) return Pack(matrix, pool_, allocator);
  return CopyDense(matrix, pool_, allocator);
}

}  // namespace cellm
