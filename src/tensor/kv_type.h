#ifndef CELLM_SRC_TENSOR_KV_TYPE_H_
#define CELLM_SRC_TENSOR_KV_TYPE_H_

// How cached keys and values are stored: names, bytes, and the codes of the types below 16 bits.
//
// The coded types keep, for every token and head, one f16 scale and a code for each of `padded`
// columns (the head's columns, with zeros up to a multiple of 16):
//
//   value[i] = level[code[i]] * scale, level in -127..127
//
//   q8      8 bits: level = code - 128
//   q4      4 bits: 16 levels at equal distances
//   tq4     4 bits: the 16 levels of least squared error for a normal variable (Lloyd, Max)
//   tq3.5   the same with 4 bits for the first half of the columns and 3 for the rest
//   tq2.5   the same with 3 and 2 bits
//
// All but q8 store the row after a fixed rotation R (RotateKvRow), which makes its coordinates
// look alike whatever the row was: TurboQuant (Zandieh, Daliri, Hadian, Mirrokni, 2025,
// arXiv:2504.19874). Queries are rotated likewise, (R q) . (R k) = q . k, and sums of values are
// rotated back. A row's codes are a function of that row alone.
//
// Codes lie in tiles of 16 tokens by 16 columns. A tile has 16 lanes of 16 codes: for keys a lane
// is a token, for values a column, so that products take either as it comes:
//   8 bits  code (lane, i) at byte 64 * (i / 4) + 4 * lane + i % 4              256 bytes
//   4 bits  byte 64 * (i / 8) + 4 * lane + i % 4, high nibble if i & 4          128 bytes
//   2 bits  byte 4 * lane + i % 4, bits 2 * (i / 4) and up                      64 bytes
//   3 bits  the low two bits as above; the third is bit 4 * lane + i % 4 of the
//           64-bit word i / 4 that follow                                       96 bytes
// A head's part of a page: [page_tokens / 16][padded / 16] tiles, then page_tokens f16 scales. The
// tiles with more bits come first.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace cellm {

enum class KvType : uint8_t { kF32, kF16, kQ8, kQ4, kTq2_5, kTq3_5, kTq4 };
inline constexpr int kKvTypeCount = 7;

// The types of keys and of values. One type converts to the pair of it.
struct KvTypes {
  KvType k = KvType::kF16;
  KvType v = KvType::kF16;
  constexpr KvTypes() = default;
  constexpr KvTypes(KvType both) : k(both), v(both) {}
  constexpr KvTypes(KvType keys, KvType values) : k(keys), v(values) {}
  friend constexpr bool operator==(KvTypes a, KvTypes b) { return a.k == b.k && a.v == b.v; }
};

std::string_view KvTypeName(KvType type);
// "f16", or "k=q8,v=q4" when they differ.
std::string KvTypesName(KvTypes types);
// "q8" for both, or "k=q8,v=q4" in either order. InvalidArgument lists the names.
Result<KvTypes> ParseKvTypes(std::string_view text);

inline constexpr bool KvIsCoded(KvType type) { return type >= KvType::kQ8; }
inline constexpr bool KvIsRotated(KvType type) { return type >= KvType::kQ4; }

// One head's keys or values of one token.
struct KvLayout {
  KvType type = KvType::kF16;
  int32_t dim = 0;     // columns of the head
  int32_t padded = 0;  // columns stored; dim itself for floats
  // Coded types only.
  int32_t tiles = 0, wide_tiles = 0;       // of 16 columns
  int32_t wide_bits = 0, narrow_bits = 0;  // of the first wide_tiles, and of the others
  // 16 levels + 128 by code; null at 8 bits, where the code is that already.
  const uint8_t* wide_levels = nullptr;
  const uint8_t* narrow_levels = nullptr;

  // Of 16 tokens, without scales. Coded types only.
  size_t group_bytes() const;
  // From the head's part of a page to its scales.
  size_t scales_offset(int32_t page_tokens) const {
    return static_cast<size_t>(page_tokens) / 16 * group_bytes();
  }
};
KvLayout MakeKvLayout(KvType type, int32_t dim);
inline constexpr size_t KvTileBytes(int32_t bits) { return static_cast<size_t>(bits) * 32; }

// Bytes of one head of one token: dim * 4 or dim * 2 for floats, else padded * bits / 8 + 2 with
// bits the mean over the tiles.
size_t KvTokenBytes(KvType type, int32_t dim);

// Multiplies by R (or its inverse) in place. `count` is a multiple of 16.
void RotateKvRow(float* x, int32_t count, bool inverse);

// What a coded row is made from: keys are scaled so that (on average) R k . value = |k|^2, which
// keeps scores free of a bias towards zero; values so that the squared error is least.
enum class KvRole : uint8_t { kKey, kValue };

// Codes of x[0, dim), [padded], and the scale. `work`: padded floats. A row holding NaN or an
// infinity gets a NaN scale and some codes; one of zeros the scale 0.
uint16_t EncodeKvRow(const KvLayout& layout, KvRole role, const float* x, float* work,
                     uint8_t* codes);
// Into the head's part of a page. Tokens of a group of 16 share bytes: one thread a group.
void PutKvRow(const KvLayout& layout, KvRole role, const uint8_t* codes, uint16_t scale,
              int32_t page_tokens, int32_t slot, uint8_t* head);
// The row as attention sees it, in the model's columns: the scalar decoder. `out`: padded floats,
// of which dim count.
void ReadKvRow(const KvLayout& layout, KvRole role, int32_t page_tokens, int32_t slot,
               const uint8_t* head, float* out);

}  // namespace cellm

#endif  // CELLM_SRC_TENSOR_KV_TYPE_H_
