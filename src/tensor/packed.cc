#include "tensor/packed.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "base/check.h"
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

constexpr uint8_t kIq4Bytes[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                   129, 141, 153, 166, 181, 197, 217, 241};
constexpr uint8_t kE2M1Bytes[16] = {0, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 24, 24};
// The last two of eight are never written; equal bytes keep the order.
constexpr uint8_t kIq2Bytes[8] = {85, 103, 120, 136, 153, 171, 171, 171};
constexpr uint8_t kIq3Bytes[16] = {1, 6, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50, 54, 58, 63};

struct BookInfo {
  CodeBook book;
  const char* name;
  int32_t bits;
  const uint8_t* bytes;
};
constexpr BookInfo kBooks[] = {{CodeBook::kIq4, ".iq4", 4, kIq4Bytes},
                               {CodeBook::kE2M1, ".e2m1", 4, kE2M1Bytes},
                               {CodeBook::kIq2, ".iq2", 3, kIq2Bytes},
                               {CodeBook::kIq3, ".iq3", 4, kIq3Bytes}};

const BookInfo* FindBook(CodeBook book) {
  for (const BookInfo& info : kBooks) {
    if (info.book == book) return &info;
  }
  return nullptr;
}

// The index of a byte in a book of 2^bits ascending bytes: the first that is not below it.
uint8_t BookIndex(const BookInfo& book, uint8_t code) {
  const uint8_t* const end = book.bytes + (1 << book.bits) - 1;
  const uint8_t* at = book.bytes;
  while (at < end && *at < code) ++at;
  CELLM_DCHECK(*at == code, "a code that its book does not have");
  return static_cast<uint8_t>(at - book.bytes);
}

// Which small integer times `super` is `value`. Values that no integer gives are infinities and
// NaN: one times the infinity, and nothing times a NaN or infinity.
int32_t SubOf(float value, float super) {
  const float quotient = value / super;
  if (std::isfinite(quotient)) return static_cast<int32_t>(std::nearbyint(quotient));
  if (super == 0.0f || std::isnan(value)) return 0;
  return std::signbit(value) == std::signbit(super) ? 1 : -1;
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
  const BookInfo* const book = FindBook(layout.book);
  if (layout.book != CodeBook::kNone && (book == nullptr || book->bits != layout.bits)) {
    return InvalidArgument("packed matrix: %d bits do not suit its code book", layout.bits);
  }
  const int32_t code_bits = book == nullptr ? layout.bits : 8;
  if (layout.zero2 < 0 || layout.zero2 > (2 << code_bits)) {
    return InvalidArgument("packed matrix: zero2 of %d, expected 0 to %d", layout.zero2,
                           2 << code_bits);
  }
  if (layout.scale_type != ScaleType::kF16 && layout.scale_type != ScaleType::kF32) {
    return InvalidArgument("packed matrix: unknown scale type %d",
                           static_cast<int>(layout.scale_type));
  }
  if (layout.sub > SubScale::kN4) {
    return InvalidArgument("packed matrix: unknown sub-scales %d", static_cast<int>(layout.sub));
  }
  const bool super_fits = layout.group > 0 && layout.super > 0 &&
                          layout.super % layout.group == 0 && layout.super <= 16 * layout.group &&
                          std::has_single_bit(static_cast<uint32_t>(layout.super / layout.group));
  if (layout.nested() ? !super_fits : layout.super != 0) {
    return InvalidArgument("packed matrix: super-scales of %d columns over groups of %d",
                           layout.super, layout.group);
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

const uint8_t* CodeBookBytes(CodeBook book) {
  const BookInfo* const info = FindBook(book);
  return info == nullptr ? nullptr : info->bytes;
}

std::string PackedName(const PackedLayout& layout) {
  std::string name = StrFormat("x%d.u%d.g", kTileRows, layout.bits);
  name += layout.group == 0 ? std::string("row") : std::to_string(layout.group);
  name += StrFormat(".z%d.%s", layout.zero2, layout.scale_type == ScaleType::kF16 ? "f16" : "f32");
  if (layout.has_min) name += ".min";
  if (layout.sub == SubScale::kI8) name += StrFormat(".i8s%d", layout.super);
  if (layout.sub == SubScale::kN4) name += StrFormat(".n4s%d", layout.super);
  if (const BookInfo* const book = FindBook(layout.book); book != nullptr) name += book->name;
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
  if (ok && TakeText(&rest, ".i8s")) layout.sub = SubScale::kI8;
  if (ok && TakeText(&rest, ".n4s")) layout.sub = SubScale::kN4;
  if (layout.nested()) ok = TakeNumber(&rest, &layout.super);
  for (const BookInfo& book : kBooks) {
    if (ok && rest == book.name) {
      layout.book = book.book;
      rest = {};
    }
  }
  // Only the canonical spelling: "g032" would be a second name for the same bytes.
  if (!ok || !rest.empty() || PackedName(layout) != name) {
    return Unsupported("\"%.*s\" is not the name of a packed layout that this version knows",
                       static_cast<int>(name.size()), name.data());
  }
  CELLM_RETURN_IF_ERROR(ValidatePackedLayout(layout));
  return layout;
}

namespace {

// The floats and small integers of one row's groups.
void PackScales(const PackedLayout& layout, int32_t lane, const RowScales& scales, uint8_t* tile) {
  const auto put = [&](size_t offset, const float* values, int32_t count) {
    for (int32_t i = 0; i < count; ++i) {
      StoreScale(layout.scale_type, values[i], tile + offset,
                 static_cast<size_t>(i * kTileRows + lane));
    }
  };
  const int32_t floats = layout.nested() ? layout.supers() : layout.groups();
  put(0, layout.nested() ? scales.supers : scales.scales, floats);
  if (layout.has_min) {
    put(layout.mins_offset(), layout.nested() ? scales.super_mins : scales.mins, floats);
  }
  if (!layout.nested()) return;
  for (int32_t group = 0; group < layout.groups(); ++group) {
    const int32_t super = group / (layout.super / layout.group);
    const size_t at = static_cast<size_t>(group * kTileRows + lane);
    const int32_t sub = SubOf(scales.scales[group], scales.supers[super]);
    const int32_t sub_min =
        layout.has_min ? SubOf(scales.mins[group], scales.super_mins[super]) : 0;
    if (layout.sub == SubScale::kN4) {
      CELLM_DCHECK(sub >= 0 && sub < 16 && sub_min >= 0 && sub_min < 16, "no nibble");
      tile[layout.subs_offset() + at] = static_cast<uint8_t>((sub & 15) | ((sub_min & 15) << 4));
    } else {
      CELLM_DCHECK(sub >= -128 && sub < 128 && sub_min >= -128 && sub_min < 128, "no int8");
      tile[layout.subs_offset() + at] = static_cast<uint8_t>(sub);
      if (layout.has_min) tile[layout.sub_mins_offset() + at] = static_cast<uint8_t>(sub_min);
    }
  }
}

}  // namespace

void PackRow(const PackedLayout& layout, int32_t row, const uint8_t* codes, const float* scales,
             const float* mins, uint8_t* packed) {
  CELLM_CHECK(!layout.nested(), "a nested layout needs super-scales");
  PackRow(layout, row, codes, RowScales{scales, mins, nullptr, nullptr}, packed);
}

void PackRow(const PackedLayout& layout, int32_t row, const uint8_t* codes, const RowScales& scales,
             uint8_t* packed) {
  uint8_t* tile = packed + static_cast<size_t>(row / kTileRows) * layout.tile_bytes();
  const int32_t lane = row % kTileRows;
  PackScales(layout, lane, scales, tile);
  const BookInfo* const book = FindBook(layout.book);
  const Planes planes = PlanesOf(layout.bits);
  uint8_t* plane = tile + layout.codes_offset() + 4 * lane;
  for (int32_t first = 0; first < layout.cols; first += kChunkCols) {
    uint8_t stored[kChunkCols];
    const int32_t cols = layout.cols - first < kChunkCols ? layout.cols - first : kChunkCols;
    for (int32_t col = 0; col < cols; ++col) {
      stored[col] = book == nullptr ? codes[first + col] : BookIndex(*book, codes[first + col]);
    }
    int32_t low_bit = 0;
    for (int32_t p = 0; p < planes.count; ++p) {
      const int32_t bits = planes.bits[p];
      for (int32_t vector = 0; vector < bits; ++vector) std::memset(plane + 64 * vector, 0, 4);
      for (int32_t col = 0; col < cols; ++col) {
        const Place place = PlaceOf(bits, col);
        const uint32_t part = (uint32_t{stored[col]} >> low_bit) & ((1u << bits) - 1u);
        uint8_t& byte = plane[64 * place.vector + place.byte];
        byte = static_cast<uint8_t>(byte | (part << place.shift));
      }
      plane += 64 * bits;
      low_bit += bits;
    }
  }
}

void UnpackScale(const PackedLayout& layout, int32_t row, int32_t group, const uint8_t* packed,
                 float* scale, float* min) {
  const uint8_t* const tile = TileOf(layout, row, packed);
  const size_t lane = static_cast<size_t>(row % kTileRows);
  const int32_t index = layout.nested() ? group / (layout.super / layout.group) : group;
  const size_t at = static_cast<size_t>(index) * kTileRows + lane;
  *scale = LoadScale(layout.scale_type, tile, at);
  if (layout.has_min) *min = LoadScale(layout.scale_type, tile + layout.mins_offset(), at);
  if (!layout.nested()) return;
  const size_t sub_at = static_cast<size_t>(group) * kTileRows + lane;
  const uint8_t sub = tile[layout.subs_offset() + sub_at];
  const bool nibbles = layout.sub == SubScale::kN4;
  *scale *= static_cast<float>(nibbles ? sub & 15 : static_cast<int8_t>(sub));
  if (!layout.has_min) return;
  *min *= static_cast<float>(
      nibbles ? sub >> 4 : static_cast<int8_t>(tile[layout.sub_mins_offset() + sub_at]));
}

void UnpackSupers(const PackedLayout& layout, int32_t row, const uint8_t* packed, float* supers,
                  float* super_mins) {
  const uint8_t* const tile = TileOf(layout, row, packed);
  for (int32_t super = 0; super < layout.supers(); ++super) {
    const size_t at = static_cast<size_t>(super * kTileRows + row % kTileRows);
    supers[super] = LoadScale(layout.scale_type, tile, at);
    if (layout.has_min) {
      super_mins[super] = LoadScale(layout.scale_type, tile + layout.mins_offset(), at);
    }
  }
}

void UnpackRow(const PackedLayout& layout, int32_t row, const uint8_t* packed, uint8_t* codes,
               float* scales, float* mins) {
  for (int32_t group = 0; group < layout.groups(); ++group) {
    UnpackScale(layout, row, group, packed, scales + group,
                layout.has_min ? mins + group : nullptr);
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
  if (const uint8_t* const book = CodeBookBytes(layout.book); book != nullptr) {
    for (int32_t col = 0; col < cols; ++col) codes[col] = book[codes[col]];
  }
}

}  // namespace cellm
