// Tester of attention over pages.

#include <algorithm>
#include <memory>

#include "kernels/kernel_testers.h"
#include "tensor/half.h"
#include "tensor/kv_type.h"

namespace cellm::kernels {
namespace {

struct AttendCase {
  int32_t rows, heads, head_dim, head_dim_v, page_tokens;
  int32_t first_end;  // key_end of row 0; row r sees r keys more
  int32_t window;     // 0: all keys from 0
  float softcap;
};

KvCodes CodesOf(const KvLayout& layout, int32_t page_tokens) {
  KvCodes codes = {};
  codes.kind = layout.type == KvType::kF32   ? kKvF32
               : layout.type == KvType::kF16 ? kKvF16
                                             : kKvCoded;
  if (codes.kind != kKvCoded) return codes;
  codes.tiles = layout.tiles;
  codes.wide_tiles = layout.wide_tiles;
  codes.wide_bits = layout.wide_bits;
  codes.narrow_bits = layout.narrow_bits;
  codes.wide_levels = layout.wide_levels;
  codes.narrow_levels = layout.narrow_levels;
  codes.group_bytes = layout.group_bytes();
  codes.scales_offset = layout.scales_offset(page_tokens);
  return codes;
}

// A cache in pages. Keys past the last and before the first have NaN floats or NaN scales; pages
// before the window are absent.
class Cache {
 public:
  Cache(const AttendCase& c, KvTypes types, int32_t first_key, int32_t end_key, Rng& rng)
      : case_(c), layouts_{MakeKvLayout(types.k, c.head_dim), MakeKvLayout(types.v, c.head_dim_v)} {
    const size_t page_tokens = static_cast<size_t>(c.page_tokens);
    kv.page_tokens = c.page_tokens;
    kv.k_head_stride = page_tokens * KvTokenBytes(types.k, c.head_dim);
    kv.v_offset = kKvHeads * kv.k_head_stride;
    kv.v_head_stride = page_tokens * KvTokenBytes(types.v, c.head_dim_v);
    kv.k = CodesOf(layouts_[0], c.page_tokens);
    kv.v = CodesOf(layouts_[1], c.page_tokens);
    for (int32_t page = 0; page * c.page_tokens < end_key; ++page) {
      if ((page + 1) * c.page_tokens <= first_key) {
        pointers_.push_back(nullptr);
        continue;
      }
      pages_.push_back(
          std::make_unique<Guarded<uint8_t>>(kv.v_offset + kKvHeads * kv.v_head_stride));
      uint8_t* const data = pages_.back()->data();
      for (size_t i = 0; i < pages_.back()->size(); ++i)
        data[i] = static_cast<uint8_t>(rng.NextU64());
      for (size_t head = 0; head < kKvHeads; ++head) {
        for (int32_t slot = 0; slot < c.page_tokens; ++slot) {
          const int32_t key = page * c.page_tokens + slot;
          const bool written = key >= first_key && key < end_key;
          // Only the last row sees the last key: its value, which is not finite, must not reach the
          // others, not even times a weight of zero.
          const bool infinite = key == end_key - 1 && c.rows > 1;
          Put(0, data + head * kv.k_head_stride, slot, written, false, rng);
          Put(1, data + kv.v_offset + head * kv.v_head_stride, slot, written, infinite, rng);
        }
      }
      pointers_.push_back(data);
    }
    kv.pages = pointers_.data();
  }

  KvPages kv = {};

 private:
  static constexpr size_t kKvHeads = 2;

  // Random codes with a scale, or random floats.
  void Put(size_t side, uint8_t* head, int32_t slot, bool written, bool infinite, Rng& rng) {
    const KvLayout& layout = layouts_[side];
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float infinity = std::numeric_limits<float>::infinity();
    if (KvIsCoded(layout.type)) {
      const float scale = !written ? nan : infinite ? infinity : (0.1f + rng.NextFloat()) / 64.0f;
      const uint16_t half = FloatToF16(scale);
      std::memcpy(head + layout.scales_offset(case_.page_tokens) + 2 * static_cast<size_t>(slot),
                  &half, sizeof(half));
      if (layout.wide_bits == 8) {  // random bytes have the level -128, which is never written
        std::vector<uint8_t> codes(static_cast<size_t>(layout.padded));
        for (uint8_t& code : codes) code = static_cast<uint8_t>(1 + rng.NextBelow(255));
        PutKvRow(layout, side == 0 ? KvRole::kKey : KvRole::kValue, codes.data(), half,
                 case_.page_tokens, slot, head);
      }
      return;
    }
    for (int32_t d = 0; d < layout.dim; ++d) {
      const float value = !written             ? nan
                          : infinite && d == 0 ? infinity
                                               : rng.NextFloat() * 2.0f - 1.0f;
      const int32_t i =
          side == 0 ? (slot / 16 * layout.dim + d) * 16 + slot % 16 : slot * layout.dim + d;
      if (layout.type == KvType::kF32) {
        std::memcpy(head + 4 * i, &value, sizeof(value));
      } else {
        const uint16_t half = FloatToF16(value);
        std::memcpy(head + 2 * i, &half, sizeof(half));
      }
    }
  }

  const AttendCase case_;
  const KvLayout layouts_[2];
  std::vector<std::unique_ptr<Guarded<uint8_t>>> pages_;
  std::vector<const uint8_t*> pointers_;
};

std::vector<AttendCase> Cases() {
  std::vector<AttendCase> cases = {
      {1, 1, 64, 64, 32, 1, 0, 0.0f},       {1, 3, 64, 64, 32, 130, 0, 0.0f},
      {1, 7, 64, 64, 16, 64, 0, 0.0f},      {1, 4, 128, 128, 64, 65, 0, 30.0f},
      {1, 8, 96, 96, 128, 300, 0, 0.0f},    {5, 3, 64, 64, 32, 60, 0, 0.0f},
      {9, 2, 64, 64, 32, 1, 0, 0.0f},       {17, 3, 80, 80, 16, 50, 40, 0.0f},
      {70, 1, 64, 64, 32, 1, 33, 50.0f},    {4, 5, 24, 40, 48, 100, 7, 0.0f},
      {3, 2, 1, 1, 16, 30, 0, 0.0f},        {2, 6, 17, 33, 16, 127, 0, 0.0f},
      {13, 1, 256, 256, 32, 190, 64, 0.0f},
  };
  if (LongTests()) cases.push_back({64, 7, 64, 64, 32, 4000, 0, 0.0f});
  return cases;
}

void CheckCase(const KernelTable& tier, const AttendCase& c, KvTypes types) {
  Rng rng(30);
  std::vector<int32_t> begin(static_cast<size_t>(c.rows));
  std::vector<int32_t> end(static_cast<size_t>(c.rows));
  for (int32_t r = 0; r < c.rows; ++r) {
    end[static_cast<size_t>(r)] = c.first_end + r;
    begin[static_cast<size_t>(r)] = c.window == 0 ? 0 : std::max(0, c.first_end + r - c.window);
  }
  const Cache cache(c, types, begin[0], end.back(), rng);
  const size_t queries = static_cast<size_t>(c.rows * c.heads);
  const int64_t q_stride = c.heads * c.head_dim + 3;
  Guarded<float> q(static_cast<size_t>((c.rows - 1) * q_stride + c.heads * c.head_dim));
  for (size_t i = 0; i < q.size(); ++i) q[i] = (rng.NextFloat() - 0.5f) * 8.0f;
  const size_t columns = static_cast<size_t>(cache.kv.k.tiles * 16);
  Guarded<int8_t> q8(queries * columns);
  for (size_t i = 0; i < q8.size(); ++i) q8[i] = static_cast<int8_t>(rng.NextBelow(255) - 127);
  Guarded<float> q_scales(queries);
  for (size_t i = 0; i < queries; ++i) q_scales[i] = 0.05f * rng.NextFloat();
  const size_t columns_v =
      static_cast<size_t>(cache.kv.v.kind == kKvCoded ? cache.kv.v.tiles * 16 : c.head_dim_v);
  const size_t out_stride = columns_v + 5;
  const size_t out_size = (queries - 1) * out_stride + columns_v;
  std::vector<float> want(out_size, 0.0f);
  Guarded<float> got(out_size);
  for (size_t i = 0; i < out_size; ++i) got[i] = 0.0f;
  std::vector<AttendState> want_states(queries);
  Guarded<AttendState> got_states(queries);
  Guarded<uint8_t> scratch(AttendScratchBytes(c.head_dim, c.head_dim_v));

  AttendArgs args = {};
  args.q = q.data();
  args.q_row_stride = q_stride;
  args.q8 = q8.data();
  args.q_scales = q_scales.data();
  args.out_stride = static_cast<int64_t>(out_stride);
  args.rows = c.rows;
  args.heads = c.heads;
  args.head_dim = c.head_dim;
  args.head_dim_v = c.head_dim_v;
  args.kv_head = 1;
  args.key_begin = begin.data();
  args.key_end = end.data();
  args.scale = 0.125f;
  args.softcap = c.softcap;
  args.kv = cache.kv;
  args.scratch = scratch.data();
  args.out = want.data();
  args.states = want_states.data();
  scalar::attend(&args);
  args.out = got.data();
  args.states = got_states.data();
  tier.attend(&args);
  const std::string where = KvTypesName(types) + ", " + std::to_string(c.rows) + " rows, " +
                            std::to_string(c.heads) + " heads, keys to " +
                            std::to_string(c.first_end);
  const auto check_states = [&](const AttendState* wanted, const AttendState* found, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      EXPECT_TRUE(SameFloat(wanted[i].maximum, found[i].maximum)) << where << ", query " << i;
      ExpectSame(wanted[i].lanes, found[i].lanes, 16, where + ", denominators");
    }
  };
  ExpectSame(want, got, out_size, where);
  check_states(want_states.data(), got_states.data(), queries);
  // NaN only where the last row meets a coded value that is not finite.
  const size_t finite = c.rows > 1 && KvIsCoded(types.v)
                            ? (queries - static_cast<size_t>(c.heads)) * out_stride
                            : out_size;
  for (size_t i = 0; i < finite; ++i) ASSERT_FALSE(std::isnan(want[i])) << where << " " << i;

  // Each row alone gives the same bits as all rows together.
  for (int32_t r = 0; r < c.rows; ++r) {
    const size_t first = static_cast<size_t>(r * c.heads);
    std::vector<float> alone(static_cast<size_t>(c.heads) * out_stride);
    std::vector<AttendState> states(static_cast<size_t>(c.heads));
    AttendArgs one = args;
    one.q = q.data() + r * q_stride;
    one.q8 = q8.data() + first * columns;
    one.q_scales = q_scales.data() + first;
    one.out = alone.data();
    one.states = states.data();
    one.rows = 1;
    one.key_begin = begin.data() + r;
    one.key_end = end.data() + r;
    tier.attend(&one);
    for (size_t h = 0; h < static_cast<size_t>(c.heads); ++h) {
      ExpectSame(want.data() + (first + h) * out_stride, alone.data() + h * out_stride, columns_v,
                 where + ", one row");
    }
    check_states(want_states.data() + first, states.data(), states.size());
  }
}

}  // namespace

void Check_attend(const KernelTable& tier) {
  for (const AttendCase& c : Cases()) {
    for (const KvTypes types :
         {KvTypes(KvType::kF32), KvTypes(KvType::kF16), KvTypes(KvType::kQ8), KvTypes(KvType::kQ4),
          KvTypes(KvType::kTq2_5), KvTypes(KvType::kTq3_5), KvTypes(KvType::kTq4),
          KvTypes(KvType::kF16, KvType::kTq2_5), KvTypes(KvType::kQ8, KvType::kF32)}) {
      CheckCase(tier, c, types);
    }
  }
}

}  // namespace cellm::kernels
