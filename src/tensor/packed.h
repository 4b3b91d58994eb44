#ifndef CELLM_SRC_TENSOR_PACKED_H_
#define CELLM_SRC_TENSOR_PACKED_H_

// The packed layout: how quantised matrices lie in memory for the kernels, and in .cellm files.
//
// Sixteen output rows make a tile; a tile's rows sit in vector lanes, so that one tile times one
// activation row yields sixteen neighbouring outputs without a horizontal sum. Rows are padded to
// 16 and columns to 32 (padding codes are 0; their activations are 0, so they add nothing).
//
//   matrix   tile 0 | tile 1 | ...            tile_bytes() each, a multiple of 64
//   tile     scales [groups][16]              f16 or f32
//            mins   [groups][16]              same type; only with has_min
//            zeros to a multiple of 64
//            chunk 0 | chunk 1 | ...          one per 32 columns, 64 * bits bytes each
//
// A code is an unsigned integer of `bits` bits, and
//   value(row, col) = (2 * code - zero2) * scale / 2  [+ min]
// so zero2 = 2 * zero point: 256 for 8 bits, 16 for 4 bits, 3 for the levels -1.5 .. 1.5 of two
// bits, 2 for ternary (codes 0 1 2), 1 for one bit (with scale = 2 d). With has_min, zero2 is
// commonly 0. scale and min belong to (row, col / group); group 0 means one for the whole row.
//
// Two levels of scales (the K formats of GGUF): with `sub`, every group has small integers and
// `super` columns share what they multiply. The product is exact in float, so that a nested layout
// means the same numbers as one that writes the products out as f32:
//   tile     supers [supers][16]              f16 or f32
//            super mins [supers][16]          same type; only with has_min
//            subs   [groups][16]              kI8: int8. kN4: scale in the low, min in the high
//            nibble sub mins [groups][16]            int8; only kI8 with has_min zeros, chunks as
//            above
//   scale = sub * super, min = sub min * super min
//
// Code books: with `book`, what is stored in `bits` bits is an index n, and the code of the formula
// above is CodeBookBytes(book)[n], a byte. Everywhere outside the packed bytes a code is the byte.
//
// A chunk holds the codes of 16 rows x 32 columns in planes. 8 bits are one plane; fewer bits are
// split, most significant last, into planes of 4, 2 and 1 bits (6 = 4 + 2, 5 = 4 + 1, 3 = 2 + 1):
//   plane of 8: 8 vectors of 64 bytes; byte 4*row+i of vector v is column 4v+i
//   plane of 4: 4 vectors; low nibble of byte 4*row+i of vector v is column 4v+i,
//               high nibble column 16+4v+i
//   plane of 2: 2 vectors; bits 2j..2j+1 (j = 0..3) of byte 4*row+i of vector v are column 8j+4v+i
//   plane of 1: 1 vector; bit j (j = 0..7) of byte 4*row+i is column 4j+i
// The first plane holds the low bits of the code.
//
// The same bytes serve every tier: 512-bit code takes whole vectors, 256-bit code halves of 8
// rows, NEON quarters of 4 rows.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace cellm {

inline constexpr int32_t kTileRows = 16;
inline constexpr int32_t kChunkCols = 32;

enum class ScaleType : uint8_t { kF16, kF32 };
enum class SubScale : uint8_t { kNone, kI8, kN4 };
enum class CodeBook : uint8_t {
  kNone,
  kIq4,   // 16 levels, -127 .. 113, plus 128 (IQ4_NL, IQ4_XS)
  kE2M1,  // 16 4-bit floats, twice their value plus 12 (MXFP4, NVFP4)
  kIq2,   // 8 levels, +-8 +-25 +-43 (and two unused), plus 128
  kIq3,   // 16 levels, half of +-4 .. +-62, plus 32 (IQ3_XXS)
};

struct PackedLayout {
  int32_t rows = 0;
  int32_t cols = 0;
  int32_t bits = 0;   // 1 .. 6, 8
  int32_t group = 0;  // 16, or a multiple of 32; 0: one scale a row
  int32_t zero2 = 0;  // twice the zero point
  ScaleType scale_type = ScaleType::kF16;
  bool has_min = false;
  SubScale sub = SubScale::kNone;
  int32_t super = 0;  // with sub: columns of a super-scale, `group` times a power of two up to 16
  CodeBook book = CodeBook::kNone;

  int32_t tiles() const { return (rows + kTileRows - 1) / kTileRows; }
  int32_t chunks() const { return (cols + kChunkCols - 1) / kChunkCols; }
  int32_t groups() const { return group == 0 ? 1 : (cols + group - 1) / group; }
  bool nested() const { return sub != SubScale::kNone; }
  int32_t supers() const { return nested() ? (cols + super - 1) / super : 0; }
  size_t scale_bytes() const {  // of the floats alone: scales, or mins, or supers
    return static_cast<size_t>(nested() ? supers() : groups()) * kTileRows *
           (scale_type == ScaleType::kF16 ? 2u : 4u);
  }
  size_t mins_offset() const { return scale_bytes(); }
  size_t subs_offset() const { return scale_bytes() * (has_min ? 2u : 1u); }
  size_t sub_bytes() const {  // of the sub-scales alone (or of the sub-mins alone)
    return nested() ? static_cast<size_t>(groups()) * kTileRows : 0u;
  }
  size_t sub_mins_offset() const { return subs_offset() + sub_bytes(); }
  size_t codes_offset() const {
    const size_t sub_mins = has_min && sub == SubScale::kI8 ? sub_bytes() : 0u;
    return (sub_mins_offset() + sub_mins + 63u) / 64u * 64u;
  }
  size_t chunk_bytes() const { return 64u * static_cast<size_t>(bits); }
  size_t tile_bytes() const {
    return codes_offset() + static_cast<size_t>(chunks()) * chunk_bytes();
  }
  size_t total_bytes() const { return static_cast<size_t>(tiles()) * tile_bytes(); }
};

// Checks every field against its rule and that total_bytes() does not overflow. InvalidArgument
// names the field.
Status ValidatePackedLayout(const PackedLayout& layout);

// The bytes that the indexes of a book stand for, 2^bits of them in ascending order; null for
// kNone.
const uint8_t* CodeBookBytes(CodeBook book);

// The dtype string of a .cellm file, e.g. "x16.u4.g32.z16.f16", "x16.u4.g64.z0.f16.min",
// "x16.u4.g32.z0.f16.min.i8s256" (int8 sub-scales, super-scales of 256 columns) or
// "x16.u4.g32.z256.f16.iq4" (a book); "grow" stands for group 0. rows and cols come from the
// tensor's shape.
std::string PackedName(const PackedLayout& layout);
// Parses PackedName(); Unsupported when it is not one.
Result<PackedLayout> ParsePackedName(std::string_view name, int32_t rows, int32_t cols);

// A row's scales and what they are made of.
//   scales, mins         [groups()]   mins only with has_min
//   supers, super_mins   [supers()]   null unless the layout is nested
struct RowScales {
  const float* scales = nullptr;
  const float* mins = nullptr;
  const float* supers = nullptr;
  const float* super_mins = nullptr;
};

// One row's codes and scales into / out of packed bytes (scalar, for converters and oracles).
//   codes  [cols], each < 2^bits, or one of the book's bytes
// PackRow() writes the row's own bytes only: padding rows and the zeros of packed.h are there when
// `packed` was zeroed before. f16 scales are rounded to nearest. A nested layout takes supers too,
// of which every scale is a multiple that fits its sub-scale.
void PackRow(const PackedLayout& layout, int32_t row, const uint8_t* codes, const RowScales& scales,
             uint8_t* packed);
// The same for a layout that is not nested.
void PackRow(const PackedLayout& layout, int32_t row, const uint8_t* codes, const float* scales,
             const float* mins, uint8_t* packed);
void UnpackRow(const PackedLayout& layout, int32_t row, const uint8_t* packed, uint8_t* codes,
               float* scales, float* mins);
// supers and super_mins [supers()] of one row of a nested layout.
void UnpackSupers(const PackedLayout& layout, int32_t row, const uint8_t* packed, float* supers,
                  float* super_mins);
// Scale and (with has_min) min of one row and group.
void UnpackScale(const PackedLayout& layout, int32_t row, int32_t group, const uint8_t* packed,
                 float* scale, float* min);
// The codes of columns [first_col, min(first_col + 32, cols)) of one row; first_col % 32 == 0.
void UnpackChunk(const PackedLayout& layout, int32_t row, int32_t first_col, const uint8_t* packed,
                 uint8_t* codes);

}  // namespace cellm

#endif  // CELLM_SRC_TENSOR_PACKED_H_
