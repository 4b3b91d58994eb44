// Testers of the matrix products.

#include "kernels/kernel_testers.h"
#include "tensor/half.h"
#include "tensor/packed.h"

namespace cellm::kernels {
namespace {

struct Shape {
  int32_t rows, cols, tokens;
};

// Small ones around every tile and vector edge, then one real shape.
std::vector<Shape> DenseShapes() {
  std::vector<Shape> shapes;
  for (const int32_t rows : {0, 1, 2, 5, 6, 7, 8, 9, 13, 16, 17}) {
    for (const int32_t cols : {0, 1, 15, 16, 17, 31, 33, 64}) {
      for (const int32_t tokens : {0, 1, 2, 3, 4, 5, 6, 7, 9, 13})
        shapes.push_back({rows, cols, tokens});
    }
  }
  shapes.push_back({49, 576, 11});
  shapes.push_back({7, 8195, 17});  // more than one block of tokens
  if (LongTests()) {
    shapes.push_back({576, 1536, 70});
    shapes.push_back({896, 4864, 40});
  }
  return shapes;
}

// The kernel against scalar, and one call for all tokens against one call a token.
template <typename Stored, typename Kernel, typename Make>
void CheckDense(Kernel kernel, Kernel reference, Make make) {
  Rng rng(20);
  int round = 0;
  for (const Shape& shape : DenseShapes()) {
    const bool at_start = ++round % 2 == 0;
    const int64_t w_stride = shape.cols + round % 3;
    const int64_t x_stride = shape.cols + round % 2;
    const int64_t out_stride = shape.rows + round % 2;
    const auto extent = [](int64_t count, int64_t stride, int64_t width) {
      return static_cast<size_t>(count == 0 ? 0 : (count - 1) * stride + width);
    };
    Guarded<Stored> w(extent(shape.rows, w_stride, shape.cols), at_start);
    Guarded<float> x(extent(shape.tokens, x_stride, shape.cols), at_start);
    const size_t out_size = extent(shape.tokens, out_stride, shape.rows);
    Guarded<float> got(out_size, at_start);
    std::vector<float> want(out_size, 0.0f);
    const Values kind = static_cast<Values>(round % static_cast<int>(Values::kCount));
    for (size_t i = 0; i < w.size(); ++i) w[i] = make(MakeValue(kind, i, rng));
    for (size_t i = 0; i < x.size(); ++i) x[i] = MakeValue(Values::kNoise, i, rng);
    for (size_t i = 0; i < out_size; ++i) got[i] = 0.0f;
    reference(w.data(), w_stride, x.data(), x_stride, shape.rows, shape.cols, shape.tokens,
              want.data(), out_stride);
    kernel(w.data(), w_stride, x.data(), x_stride, shape.rows, shape.cols, shape.tokens, got.data(),
           out_stride);
    const std::string where = std::to_string(shape.rows) + " x " + std::to_string(shape.cols) +
                              ", tokens " + std::to_string(shape.tokens);
    ExpectSame(want, got, out_size, where);
    for (int64_t t = 0; t < shape.tokens; ++t) {
      Guarded<float> alone(static_cast<size_t>(shape.rows));
      kernel(w.data(), w_stride, x.data() + t * x_stride, x_stride, shape.rows, shape.cols, 1,
             alone.data(), out_stride);
      ExpectSame(want.data() + t * out_stride, alone, alone.size(), where + ", one token");
    }
  }
}

}  // namespace

void Check_matmul_f32_f32(const KernelTable& tier) {
  CheckDense<float>(tier.matmul_f32_f32, &scalar::matmul_f32_f32, [](float v) { return v; });
}
void Check_matmul_f16_f32(const KernelTable& tier) {
  CheckDense<uint16_t>(tier.matmul_f16_f32, &scalar::matmul_f16_f32, &FloatToF16);
}
void Check_matmul_bf16_f32(const KernelTable& tier) {
  CheckDense<uint16_t>(tier.matmul_bf16_f32, &scalar::matmul_bf16_f32, &FloatToBf16);
}

namespace {

// A random packed matrix; its bytes end at an unreadable page.
struct PackedCase {
  PackedLayout layout;
  Guarded<uint8_t> bytes;
  PackedTiles tiles = {};

  PackedCase(const PackedLayout& packed, Rng& rng, bool at_start)
      : layout(packed), bytes(packed.total_bytes(), at_start) {
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(rng.NextU64());
    // Scales and mins: finite, either sign, also zero.
    for (int32_t tile = 0; tile < layout.tiles(); ++tile) {
      uint8_t* scales = bytes.data() + static_cast<size_t>(tile) * layout.tile_bytes();
      const size_t floats =
          static_cast<size_t>(layout.nested() ? layout.supers() : layout.groups());
      const size_t count = floats * 16u * (layout.has_min ? 2u : 1u);
      for (size_t i = 0; i < count; ++i) {
        const float scale = rng.NextBelow(20) == 0 ? 0.0f : (rng.NextFloat() - 0.4f) * 0.1f;
        if (layout.scale_type == ScaleType::kF32) {
          std::memcpy(scales + 4 * i, &scale, 4);
        } else {
          const uint16_t half = FloatToF16(scale);
          std::memcpy(scales + 2 * i, &half, 2);
        }
      }
    }
    tiles.data = bytes.data();
    tiles.tile_bytes = layout.tile_bytes();
    tiles.mins_offset = layout.mins_offset();
    tiles.codes_offset = layout.codes_offset();
    tiles.rows = layout.rows;
    tiles.cols = layout.cols;
    tiles.chunks = layout.chunks();
    tiles.bits = layout.bits;
    tiles.group = layout.group == 0 ? layout.chunks() * 32 : layout.group;
    tiles.groups = layout.groups();
    tiles.zero2 = layout.zero2;
    tiles.scales_are_f32 = layout.scale_type == ScaleType::kF32 ? 1 : 0;
    tiles.has_min = layout.has_min ? 1 : 0;
    tiles.sub = layout.sub == SubScale::kNone ? kSubNone
                : layout.sub == SubScale::kI8 ? kSubI8
                                              : kSubN4;
    if (layout.nested()) {
      while (layout.group << tiles.super_shift < layout.super) ++tiles.super_shift;
      tiles.subs_offset = layout.subs_offset();
      tiles.sub_mins_offset = layout.sub_mins_offset();
    }
    tiles.book = CodeBookBytes(layout.book);
  }
};

struct QuantCase {
  Guarded<int8_t> values;
  Guarded<float> scales;
  Guarded<int32_t> sums;
  QuantRows rows;

  QuantCase(int32_t count, int32_t cols, Rng& rng, bool extreme)
      : values(static_cast<size_t>(count) * static_cast<size_t>((cols + 31) / 32 * 32)),
        scales(static_cast<size_t>(count) * static_cast<size_t>((cols + 31) / 32)),
        sums(static_cast<size_t>(count) * static_cast<size_t>((cols + 31) / 32 * 2)) {
    const int32_t chunks = (cols + 31) / 32;
    std::vector<float> x(static_cast<size_t>(cols));
    for (int32_t t = 0; t < count; ++t) {
      // `extreme`: all at +-127, where 16-bit intermediates would overflow.
      for (float& v : x) {
        v = (rng.NextFloat() - 0.5f) * 3.0f;
        if (extreme) v = t % 2 == 0 ? 1.0f : (rng.NextBelow(2) == 0 ? 1.0f : -1.0f);
      }
      scalar::quantize_row_a8(x.data(), cols, values.data() + t * chunks * 32,
                              scales.data() + t * chunks, sums.data() + t * chunks * 2);
    }
    rows = {values.data(), scales.data(), sums.data(), count, chunks};
  }
};

// The 16-wide, 32-wide, wider and whole-row groups of every width, with and without mins.
std::vector<PackedLayout> PackedLayouts(int32_t rows, int32_t cols) {
  std::vector<PackedLayout> layouts;
  for (const int32_t bits : {1, 2, 3, 4, 5, 6, 8}) {
    for (const int32_t group : {0, 16, 32, 64, 256}) {
      for (const int variant : {0, 1, 2, 3}) {
        PackedLayout layout;
        layout.rows = rows;
        layout.cols = cols;
        layout.bits = bits;
        layout.group = group;
        layout.has_min = variant % 2 == 1;
        layout.scale_type = variant == 2 ? ScaleType::kF32 : ScaleType::kF16;
        // Even (a whole zero point), odd (between two codes) and none.
        layout.zero2 = variant == 0 ? 1 << bits : (variant == 2 ? (1 << bits) - 1 : 0);
        layouts.push_back(layout);
      }
    }
  }
  // Scales of scales, and codes out of books, as the formats of GGUF files have them.
  const struct {
    int32_t bits, group, zero2;
    bool has_min;
    SubScale sub;
    int32_t super;
    ScaleType type;
    CodeBook book;
  } nested[] = {
      {6, 16, 64, false, SubScale::kI8, 256, ScaleType::kF16, CodeBook::kNone},
      {3, 16, 8, false, SubScale::kI8, 32, ScaleType::kF32, CodeBook::kNone},
      {4, 32, 0, true, SubScale::kI8, 256, ScaleType::kF16, CodeBook::kNone},
      {5, 32, 0, true, SubScale::kI8, 128, ScaleType::kF32, CodeBook::kNone},
      {2, 16, 0, true, SubScale::kN4, 256, ScaleType::kF16, CodeBook::kNone},
      {4, 32, 15, false, SubScale::kN4, 64, ScaleType::kF16, CodeBook::kNone},
      {4, 32, 256, false, SubScale::kI8, 256, ScaleType::kF16, CodeBook::kIq4},
      {4, 32, 256, false, SubScale::kNone, 0, ScaleType::kF16, CodeBook::kIq4},
      {4, 16, 24, false, SubScale::kNone, 0, ScaleType::kF32, CodeBook::kE2M1},
      {3, 16, 256, false, SubScale::kI8, 256, ScaleType::kF32, CodeBook::kIq2},
      {4, 32, 64, true, SubScale::kI8, 32, ScaleType::kF32, CodeBook::kIq3},
  };
  for (const auto& n : nested) {
    PackedLayout layout;
    layout.rows = rows;
    layout.cols = cols;
    layout.bits = n.bits;
    layout.group = n.group;
    layout.zero2 = n.zero2;
    layout.has_min = n.has_min;
    layout.sub = n.sub;
    layout.super = n.super;
    layout.scale_type = n.type;
    layout.book = n.book;
    EXPECT_TRUE(ValidatePackedLayout(layout).ok());
    layouts.push_back(layout);
  }
  return layouts;
}

void CheckPacked(const KernelTable& tier, const PackedLayout& layout, int32_t tokens, Rng& rng,
                 bool flip) {
  const PackedCase w(layout, rng, flip);
  const QuantCase x(tokens, layout.cols, rng, flip);
  const size_t count = static_cast<size_t>(tokens) * static_cast<size_t>(layout.rows);
  std::vector<float> want(count, 0.0f);
  Guarded<float> got(count, flip);
  for (size_t i = 0; i < count; ++i) got[i] = 0.0f;
  scalar::matmul_packed_a8(&w.tiles, &x.rows, 0, layout.tiles(), want.data(), layout.rows);
  // In two calls: other tiles are left alone.
  const int32_t middle = layout.tiles() / 2;
  tier.matmul_packed_a8(&w.tiles, &x.rows, middle, layout.tiles(), got.data(), layout.rows);
  for (int32_t row = 0; row < middle * 16 && tokens > 0; ++row) {
    ASSERT_EQ(got[static_cast<size_t>(row)], 0.0f);
  }
  tier.matmul_packed_a8(&w.tiles, &x.rows, 0, middle, got.data(), layout.rows);
  const std::string where = PackedName(layout) + ", " + std::to_string(layout.rows) + " x " +
                            std::to_string(layout.cols) + ", tokens " + std::to_string(tokens);
  ExpectSame(want, got, count, where);
}

}  // namespace

void Check_matmul_packed_a8(const KernelTable& tier) {
  Rng rng(21);
  int round = 0;
  // Every layout at a size with partial tiles, half chunks and more than one panel.
  for (const PackedLayout& layout : PackedLayouts(37, 584)) {
    for (const int32_t tokens : {1, 7}) CheckPacked(tier, layout, tokens, rng, ++round % 2 == 0);
    if (layout.nested() || layout.book != CodeBook::kNone)
      CheckPacked(tier, layout, 11, rng, false);
  }
  // A row longer than what the products of few and of several tokens take at once.
  for (const int32_t group : {16, 32}) {
    PackedLayout layout;
    layout.rows = 17;
    layout.cols = 17000;
    layout.bits = 4;
    layout.group = group;
    layout.zero2 = 15;
    layout.has_min = true;
    layout.sub = SubScale::kI8;
    layout.super = 256;
    for (const int32_t tokens : {3, 9}) CheckPacked(tier, layout, tokens, rng, false);
  }
  // Every number of tokens around the register tiles, few layouts.
  for (int32_t tokens = 0; tokens <= 18; ++tokens) {
    for (const int32_t bits : {8, 4, 6}) {
      for (const int32_t group : {16, 32}) {
        PackedLayout layout;
        layout.rows = 16 + tokens * 5;
        layout.cols = 33 + tokens * 16;
        layout.bits = bits;
        layout.group = group;
        layout.zero2 = 1 << bits;
        CheckPacked(tier, layout, tokens, rng, ++round % 2 == 0);
      }
    }
  }
  PackedLayout real;
  real.rows = LongTests() ? 1536 : 64;
  real.cols = 1536;
  real.bits = 8;
  real.group = 32;
  real.zero2 = 256;
  CheckPacked(tier, real, 13, rng, false);
}

void Check_unpack_tile_f32(const KernelTable& tier) {
  Rng rng(22);
  for (const int32_t cols : {1, 16, 17, 32, 70, 96}) {
    for (const PackedLayout& layout : PackedLayouts(35, cols)) {
      const PackedCase w(layout, rng, cols % 2 == 0);
      const size_t count = 16u * static_cast<size_t>(cols);
      for (int32_t tile = 0; tile < layout.tiles(); ++tile) {
        std::vector<float> want(count);
        Guarded<float> got(count, cols % 2 == 1);
        scalar::unpack_tile_f32(&w.tiles, tile, want.data());
        tier.unpack_tile_f32(&w.tiles, tile, got.data());
        ExpectSame(want, got, count, PackedName(layout));
      }
    }
  }
}

// Two levels of scales are a way to write: their products written out as floats, and indexes
// written out as bytes, give the same bits.
TEST(PackedProduct, NestedScalesAndBooksEqualTheirFlatForms) {
  Rng rng(24);
  constexpr int32_t kRows = 21;
  constexpr int32_t kCols = 520;
  for (const PackedLayout& layout : PackedLayouts(kRows, kCols)) {
    if (!layout.nested() && layout.book == CodeBook::kNone) continue;
    SCOPED_TRACE(PackedName(layout));
    const PackedCase nested(layout, rng, false);
    PackedLayout flat_layout = layout;
    flat_layout.sub = SubScale::kNone;
    flat_layout.super = 0;
    flat_layout.book = CodeBook::kNone;
    flat_layout.scale_type = ScaleType::kF32;
    if (layout.book != CodeBook::kNone) flat_layout.bits = 8;
    PackedCase flat(flat_layout, rng, false);
    std::memset(flat.bytes.data(), 0, flat.bytes.size());
    std::vector<uint8_t> codes(kCols);
    std::vector<float> scales(static_cast<size_t>(layout.groups()));
    std::vector<float> mins(scales.size());
    for (int32_t row = 0; row < kRows; ++row) {
      UnpackRow(layout, row, nested.bytes.data(), codes.data(), scales.data(), mins.data());
      PackRow(flat_layout, row, codes.data(), scales.data(), mins.data(), flat.bytes.data());
    }
    const QuantCase x(9, kCols, rng, false);
    std::vector<float> want(9 * kRows);
    std::vector<float> got(want.size());
    for (const Tier& tier : AllTiers()) {
      if (!tier.runs_here() || tier.table->matmul_packed_a8 == nullptr) continue;
      const auto product = tier.table->matmul_packed_a8;
      product(&flat.tiles, &x.rows, 0, layout.tiles(), want.data(), kRows);
      product(&nested.tiles, &x.rows, 0, layout.tiles(), got.data(), kRows);
      ExpectSame(want, got, want.size(), std::string(tier.name));
    }
  }
}

// One call for many tokens gives the bits of one call a token, in every tier.
TEST(PackedProduct, BatchEqualsOneByOne) {
  for (const Tier& tier : AllTiers()) {
    if (!tier.runs_here() || tier.table->matmul_packed_a8 == nullptr) continue;
    Rng rng(23);
    for (const PackedLayout& layout : PackedLayouts(33, 100)) {
      const PackedCase w(layout, rng, false);
      const int32_t tokens = 13;
      const QuantCase x(tokens, layout.cols, rng, false);
      std::vector<float> batch(static_cast<size_t>(tokens * layout.rows));
      tier.table->matmul_packed_a8(&w.tiles, &x.rows, 0, layout.tiles(), batch.data(), layout.rows);
      for (int32_t t = 0; t < tokens; ++t) {
        QuantRows one = x.rows;
        one.values += t * one.chunks * 32;
        one.scales += t * one.chunks;
        one.sums += t * one.chunks * 2;
        one.rows = 1;
        std::vector<float> alone(static_cast<size_t>(layout.rows));
        tier.table->matmul_packed_a8(&w.tiles, &one, 0, layout.tiles(), alone.data(), layout.rows);
        ExpectSame(alone, batch.data() + t * layout.rows, alone.size(), std::string(tier.name));
      }
    }
  }
}

}  // namespace cellm::kernels
