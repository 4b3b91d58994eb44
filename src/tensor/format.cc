#include "tensor/format.h"

#include <iterator>

#include "base/check.h"

namespace cellm {
namespace {

using enum Format;

// In the order of the enumerators; tests check that, and that names are unique. Plain integers of
// 8 bits are "int8": in version-1 .cellm files "i8" means int8 with a scale a row. "u32" there is a
// plain tensor of words; with side tensors it becomes kMlxAffine.
constexpr FormatInfo kFormats[] = {
    {kF32, "f32", 1, 4, true},
    {kF16, "f16", 1, 2, true},
    {kBF16, "bf16", 1, 2, true},
    {kF64, "f64", 1, 8, true},
    {kI8, "int8", 1, 1, false},
    {kU8, "u8", 1, 1, false},
    {kI16, "i16", 1, 2, false},
    {kU16, "u16", 1, 2, false},
    {kI32, "i32", 1, 4, false},
    {kU32, "u32", 1, 4, false},
    {kI64, "i64", 1, 8, false},
    {kU64, "u64", 1, 8, false},
    {kBool, "bool", 1, 1, false},
    {kF8E4M3, "f8e4m3fn", 1, 1, true},
    {kF8E5M2, "f8e5m2", 1, 1, true},
    {kF8E4M3V1, "f8e4m3", 1, 1, true},
    {kI8V1, "i8", 1, 1, false},
    {kI4V1, "i4", 0, 0, false},
    {kI2V1, "i2", 0, 0, false},
    {kMlxAffine, "mlx_affine", 0, 0, false},
    {kGptq, "gptq", 0, 0, false},
    {kAwq, "awq", 0, 0, false},
    {kBitnetPacked, "bitnet", 0, 0, false},
    {kCompressedInt4, "compressed_int4", 0, 0, false},
    {kQ4_0, "q4_0", 32, 18, false},
    {kQ4_1, "q4_1", 32, 20, false},
    {kQ5_0, "q5_0", 32, 22, false},
    {kQ5_1, "q5_1", 32, 24, false},
    {kQ8_0, "q8_0", 32, 34, false},
    {kQ2_K, "q2_k", 256, 84, false},
    {kQ3_K, "q3_k", 256, 110, false},
    {kQ4_K, "q4_k", 256, 144, false},
    {kQ5_K, "q5_k", 256, 176, false},
    {kQ6_K, "q6_k", 256, 210, false},
    {kIQ1_S, "iq1_s", 256, 50, false},
    {kIQ1_M, "iq1_m", 256, 56, false},
    {kIQ2_XXS, "iq2_xxs", 256, 66, false},
    {kIQ2_XS, "iq2_xs", 256, 74, false},
    {kIQ2_S, "iq2_s", 256, 82, false},
    {kIQ3_XXS, "iq3_xxs", 256, 98, false},
    {kIQ3_S, "iq3_s", 256, 110, false},
    {kIQ4_NL, "iq4_nl", 32, 18, false},
    {kIQ4_XS, "iq4_xs", 256, 136, false},
    {kTQ1_0, "tq1_0", 256, 54, false},
    {kTQ2_0, "tq2_0", 256, 66, false},
    {kMXFP4, "mxfp4", 32, 17, false},
    {kQ1_0, "q1_0", 128, 18, false},
    {kQ2_0, "q2_0", 64, 18, false},
    {kNVFP4, "nvfp4", 64, 36, false},
    {kPacked, "packed", 0, 0, false},
};
static_assert(std::size(kFormats) == static_cast<size_t>(kCount));

}  // namespace

const FormatInfo& GetFormatInfo(Format format) {
  CELLM_CHECK(format < kCount, "a format outside the table");
  return kFormats[static_cast<size_t>(format)];
}

Format FormatByName(std::string_view name) {
  if (name == "q1_0_g128") return kQ1_0;
  for (const FormatInfo& info : kFormats) {
    if (info.name == name) return info.format;
  }
  return kCount;
}

}  // namespace cellm
