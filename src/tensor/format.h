#ifndef CELLM_SRC_TENSOR_FORMAT_H_
#define CELLM_SRC_TENSOR_FORMAT_H_

// Numeric formats: what the bytes of a stored tensor mean.
//
// A format is either plain (one element after the other), blocked (a row is a run of equal blocks
// that hold their own scales, as in GGUF), side-scaled (integers whose scales lie in tensors of
// their own, as in version-1 .cellm, MLX, GPTQ), or packed (our kernel layout, packed.h).
// The table below is the single list: readers, converters, `inspect` and tests walk it.

#include <cstdint>
#include <string_view>

namespace cellm {

enum class Format : uint8_t {
  // Plain.
  kF32,
  kF16,
  kBF16,
  kF64,
  kI8,
  kU8,
  kI16,
  kU16,
  kI32,
  kU32,
  kI64,
  kU64,
  kBool,
  kF8E4M3,    // OCP E4M3FN: largest 448, S.1111.111 is NaN
  kF8E5M2,    // OCP
  kF8E4M3V1,  // version-1 .cellm: exponent 15 decodes to +-240
  // Side-scaled, version-1 .cellm. Scales in "<name>.qscale", f16 [rows] or [rows, groups].
  kI8V1,  // "i8": int8, value = q * scale (plain int8 is "int8")
  kI4V1,  // two a byte, low nibble first, value = (nibble - 8) * scale
  kI2V1,  // four a byte, lowest bits first, levels -1.5 -0.5 0.5 1.5 times scale
  // Side-scaled, from other projects' safetensors; the Matrix carries what each needs.
  kMlxAffine,       // u32 words, value = q * scale + bias, 2 3 4 5 6 8 bits
  kGptq,            // int32 [in / (32 / bits), out]
  kAwq,             // int32 [in, out / 8], nibbles interleaved
  kBitnetPacked,    // u8 [rows / 4, cols], four row quarters in one byte, value - 1
  kCompressedInt4,  // compressed-tensors pack-quantized
  // Blocked, GGUF. Sizes and meanings in gguf_blocks.h.
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ1_S,
  kIQ1_M,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ3_XXS,
  kIQ3_S,
  kIQ4_NL,
  kIQ4_XS,
  kTQ1_0,
  kTQ2_0,
  kMXFP4,
  kQ1_0,  // 128 weights: f16 d, 16 bytes of bits; bit 1 is +d, 0 is -d. Also "q1_0_g128" of .cellm
  kQ2_0,
  kNVFP4,
  // Ours: tiles of 16 rows in kernel layout; bits, group and scales in a PackedLayout.
  kPacked,
  kCount,
};

struct FormatInfo {
  Format format;
  std::string_view name;  // as in GGUF or .cellm, lower case: "f16", "q4_0", ...
  int32_t
      block_weights;    // weights in a block; 1 for plain formats, 0 where a row has no fixed block
  int32_t block_bytes;  // bytes of a block; 0 where block_weights is 0
  bool is_float;        // plain floating point that the engine can use as a vector
};

const FormatInfo& GetFormatInfo(Format format);
// Format::kCount when there is no such name. "q1_0_g128", the .cellm name of kQ1_0, is known too.
Format FormatByName(std::string_view name);

inline bool IsDenseFloat(Format format) {
  return format == Format::kF32 || format == Format::kF16 || format == Format::kBF16;
}

}  // namespace cellm

#endif  // CELLM_SRC_TENSOR_FORMAT_H_
