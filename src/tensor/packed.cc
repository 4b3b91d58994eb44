#include "tensor/packed.h"

#include <charconv>
#include <cstring>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/limits.h"
#include "tensor/half.h"

namespace cellm {
namespace {

// The planes of a code, low bits first (packed.h).
struct Planes {
  int32_t count;
  int32_t bits[2];
};

Planes PlanesOf(int32_t bits) {
  switch (bits) {
    case 3:
      return {2, {2, 1}};
    case 5:
      return {2, {4, 1}};
    case 6:
      return {2, {4, 2}};
    default:
      return {1, {bits, 0}};
  }
}

bool IsCodeWidth(int32_t bits) { return (bits >= 1 && bits <= 6) || bits == 8; }

// Where column `col` (0 .. 31) of a row lies in a plane: the vector, the byte of the row's four,
// and the shift inside that byte.
struct Place {
  int32_t vector, byte, shift;
};

Place PlaceOf(int32_t plane_bits, int32_t col) {
  const int32_t vectors = plane_bits;         // 8, 4, 2 or 1 vectors of 64 bytes
  const int32_t cols_per_part = 4 * vectors;  // columns that share a shift
  const int32_t inside = col % cols_per_part;
  return {inside / 4, inside % 4, col / cols_per_part * plane_bits};
}

float LoadScale(ScaleType type, const uint8_t* bytes, size_t index) {
  return type == ScaleType::kF16 ? F16ToFloat(LoadLe16(bytes + 2 * index))
                                 : LoadLe<float>(bytes + 4 * index);
}

void StoreScale(ScaleType type, float value, uint8_t* bytes, size_t index) {
  if (type == ScaleType::kF16) {
    StoreLe(bytes + 2 * index, FloatToF16(value));
  } else {
    StoreLe(bytes + 4 * index, value);
  }
}

// The bytes of row `row % 16` in its tile: code chunks start at tile + codes_offset().
const uint8_t* TileOf(const PackedLayout& layout, int32_t row, const uint8_t* packed) {
  return packed + static_cast<size_t>(row / kTileRows) * layout.tile_bytes();
}

bool TakeNumber(std::string_view* text, int32_t* out) {
  const std::from_chars_result result =
      std::from_chars(text->data(), text->data() + text->size(), *out);
  if (result.ec != std::errc()) return false;
  text->remove_prefix(static_cast<size_t>(result.ptr - text->data()));
  return true;
}

bool TakeText(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

}  // namespace

Status ValidatePackedLayout(const PackedLayout& layout) {
  if (layout.rows < 1 || layout.rows > limits::kMaxDimension) {
    return InvalidArgument("packed matrix: %d rows, expected 1 to %d", layout.rows,
                           limits::kMaxDimension);
  }
  if (layout.cols < 1 || layout.cols > limits::kMaxDimension) {
    return InvalidArgument("packed matrix: %d columns, expected 1 to %d", layout.cols,
                           limits::kMaxDimension);
  }
  if (!IsCodeWidth(layout.bits)) {
    return InvalidArgument("packed matrix: %d bits, expected 1 to 6 or 8", layout.bits);
  }
  if (layout.group != 0 && layout.group != 16 &&
      (layout.group < 0 || layout.group > limits::kMaxDimension || layout.group % 32 != 0)) {
    return InvalidArgument("packed matrix: group of %d, expected 0, 16 or a multiple of 32",
                           layout.group);
  }
  if (layout.zero2 < 0 || layout.zero2 > (2 << layout.bits)) {
    return InvalidArgument("packed matrix: zero2 of %d, expected 0 to %d", layout.zero2,
                           2 << layout.bits);
  }
  if (layout.scale_type != ScaleType::kF16 && layout.scale_type != ScaleType::kF32) {
    return InvalidArgument("packed matrix: unknown scale type %d",
                           static_cast<int>(layout.scale_type));
  }
  // With rows and columns below 2^22 nothing above overflows 64 bits; on 32-bit machines the
  // total may.
  uint64_t tile =
      uint64_t{64} * static_cast<uint64_t>(layout.bits) * static_cast<uint64_t>(layout.chunks());
  tile += static_cast<uint64_t>(layout.codes_offset());
  uint64_t total = 0;
  size_t narrow = 0;
  if (!CheckedMul(tile, static_cast<uint64_t>(layout.tiles()), &total) ||
      !CheckedCast(total, &narrow)) {
    return InvalidArgument("packed matrix: %d x %d does not fit the address space", layout.rows,
                           layout.cols);
  }
  return OkStatus();
}

std::string PackedName(const PackedLayout& layout) {
  std::string name = StrFormat("x%d.u%d.g", kTileRows, layout.bits);
  name += layout.group == 0 ? std::string("row") : std::to_string(layout.group);
  name += StrFormat(".z%d.%s", layout.zero2, layout.scale_type == ScaleType::kF16 ? "f16" : "f32");
  if (layout.has_min) name += ".min";
  return name;
}

Result<PackedLayout> ParsePackedName(std::string_view name, int32_t rows, int32_t cols) {
  PackedLayout layout;
  layout.rows = rows;
  layout.cols = cols;
  std::string_view rest = name;
  int32_t tile_rows = 0;
  bool ok = TakeText(&rest, "x") && TakeNumber(&rest, &tile_rows) && tile_rows == kTileRows &&
            TakeText(&rest, ".u") && TakeNumber(&rest, &layout.bits) && TakeText(&rest, ".g");
  if (ok && !TakeText(&rest, "row")) ok = TakeNumber(&rest, &layout.group) && layout.group > 0;
  ok = ok && TakeText(&rest, ".z") && TakeNumber(&rest, &layout.zero2);
  if (ok && TakeText(&rest, ".f32")) {
    layout.scale_type = ScaleType::kF32;
  } else {
    ok = ok && TakeText(&rest, ".f16");
  }
  layout.has_min = ok && TakeText(&rest, ".min");
  // Only the canonical spelling: "g032" would be a second name for the same bytes.
  if (!ok || !rest.empty() || PackedName(layout) != name) {
    return Unsupported("\"%.*s\" is not the name of a packed layout that this version knows",
                       static_cast<int>(name.size()), name.data());
  }
  CELLM_RETURN_IF_ERROR(ValidatePackedLayout(layout));
  return layout;
}

void PackRow(const PackedLayout& layout, int32_t row, const uint8_t* codes, const float* scales,
             const float* mins, uint8_t* packed) {
  uint8_t* tile = packed + static_cast<size_t>(row / kTileRows) * layout.tile_bytes();
  const int32_t lane = row % kTileRows;
  for (int32_t group = 0; group < layout.groups(); ++group) {
    const size_t index = static_cast<size_t>(group) * kTileRows + static_cast<size_t>(lane);
    StoreScale(layout.scale_type, scales[group], tile, index);
    if (layout.has_min) {
      StoreScale(layout.scale_type, mins[group], tile + layout.mins_offset(), index);
    }
  }
  const Planes planes = PlanesOf(layout.bits);
  uint8_t* plane = tile + layout.codes_offset() + 4 * lane;
  for (int32_t first = 0; first < layout.cols; first += kChunkCols) {
    int32_t low_bit = 0;
    for (int32_t p = 0; p < planes.count; ++p) {
      const int32_t bits = planes.bits[p];
      for (int32_t vector = 0; vector < bits; ++vector) std::memset(plane + 64 * vector, 0, 4);
      for (int32_t col = 0; col < kChunkCols && first + col < layout.cols; ++col) {
        const Place place = PlaceOf(bits, col);
        const uint32_t part = (uint32_t{codes[first + col]} >> low_bit) & ((1u << bits) - 1u);
        uint8_t& byte = plane[64 * place.vector + place.byte];
        byte = static_cast<uint8_t>(byte | (part << place.shift));
      }
      plane += 64 * bits;
      low_bit += bits;
    }
  }
}

void UnpackRow(const PackedLayout& layout, int32_t row, const uint8_t* packed, uint8_t* codes,
               float* scales, float* mins) {
  const uint8_t* tile = TileOf(layout, row, packed);
  const int32_t lane = row % kTileRows;
  for (int32_t group = 0; group < layout.groups(); ++group) {
    const size_t index = static_cast<size_t>(group) * kTileRows + static_cast<size_t>(lane);
    scales[group] = LoadScale(layout.scale_type, tile, index);
    if (layout.has_min) {
      mins[group] = LoadScale(layout.scale_type, tile + layout.mins_offset(), index);
    }
  }
  for (int32_t first = 0; first < layout.cols; first += kChunkCols) {
    UnpackChunk(layout, row, first, packed, codes + first);
  }
}

void UnpackChunk(const PackedLayout& layout, int32_t row, int32_t first_col, const uint8_t* packed,
                 uint8_t* codes) {
  const uint8_t* plane = TileOf(layout, row, packed) + layout.codes_offset() +
                         static_cast<size_t>(first_col / kChunkCols) * layout.chunk_bytes() +
                         4 * (row % kTileRows);
  const int32_t cols = layout.cols - first_col < kChunkCols ? layout.cols - first_col : kChunkCols;
  const Planes planes = PlanesOf(layout.bits);
  int32_t low_bit = 0;
  for (int32_t p = 0; p < planes.count; ++p) {
    const int32_t bits = planes.bits[p];
    for (int32_t col = 0; col < cols; ++col) {
      const Place place = PlaceOf(bits, col);
      const uint32_t byte = plane[64 * place.vector + place.byte];
      const uint32_t part = (byte >> place.shift) & ((1u << bits) - 1u);
      const uint32_t below = low_bit == 0 ? 0u : uint32_t{codes[col]};
      codes[col] = static_cast<uint8_t>(below | (part << low_bit));
    }
    plane += 64 * bits;
    low_bit += bits;
  }
}

}  // namespace cellm
