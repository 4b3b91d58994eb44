// Testers of the rows that work on plain vectors.

#include "kernels/kernel_testers.h"

namespace cellm::kernels {
namespace {

using Unary = void (*)(const float*, int64_t, float*);
using Binary = void (*)(const float*, const float*, int64_t, float*);

// Calls body(length, kind, at_start) over the grid.
template <typename Body>
void ForGrid(Body body) {
  for (const int32_t length : TestLengths()) {
    for (int kind = 0; kind < static_cast<int>(Values::kCount); ++kind) {
      for (const bool at_start : {false, true}) body(length, static_cast<Values>(kind), at_start);
    }
  }
}

std::string Where(int32_t length, Values kind) {
  return "length " + std::to_string(length) + ", values " + std::to_string(static_cast<int>(kind));
}

void FillWith(const Guarded<float>& buffer, Values kind, Rng& rng, float scale = 4.0f) {
  for (size_t i = 0; i < buffer.size(); ++i) buffer[i] = MakeValue(kind, i, rng, scale);
}

void CheckUnary(Unary kernel, Unary reference) {
  Rng rng(1);
  ForGrid([&](int32_t length, Values kind, bool at_start) {
    const size_t n = static_cast<size_t>(length);
    Guarded<float> x(n, at_start);
    Guarded<float> got(n, at_start);
    std::vector<float> want(n);
    FillWith(x, kind, rng, kind == Values::kNoise ? 100.0f : 4.0f);
    reference(x.data(), length, want.data());
    kernel(x.data(), length, got.data());
    ExpectSame(want, got, n, Where(length, kind));
    kernel(x.data(), length, x.data());  // in place
    ExpectSame(want, x, n, Where(length, kind) + ", in place");
  });
}

void CheckBinary(Binary kernel, Binary reference) {
  Rng rng(2);
  ForGrid([&](int32_t length, Values kind, bool at_start) {
    const size_t n = static_cast<size_t>(length);
    Guarded<float> a(n, at_start);
    Guarded<float> b(n, at_start);
    Guarded<float> got(n, at_start);
    std::vector<float> want(n);
    FillWith(a, kind, rng, kind == Values::kNoise ? 30.0f : 4.0f);
    FillWith(b, Values::kNoise, rng);
    reference(a.data(), b.data(), length, want.data());
    kernel(a.data(), b.data(), length, got.data());
    ExpectSame(want, got, n, Where(length, kind));
    kernel(a.data(), b.data(), length, a.data());
    ExpectSame(want, a, n, Where(length, kind) + ", in place");
  });
}

}  // namespace

void Check_exp_f32(const KernelTable& tier) { CheckUnary(tier.exp_f32, &scalar::exp_f32); }
void Check_tanh_f32(const KernelTable& tier) { CheckUnary(tier.tanh_f32, &scalar::tanh_f32); }
void Check_silu_mul_f32(const KernelTable& tier) {
  CheckBinary(tier.silu_mul_f32, &scalar::silu_mul_f32);
}
void Check_sigmoid_mul_f32(const KernelTable& tier) {
  CheckBinary(tier.sigmoid_mul_f32, &scalar::sigmoid_mul_f32);
}
void Check_gelu_tanh_mul_f32(const KernelTable& tier) {
  CheckBinary(tier.gelu_tanh_mul_f32, &scalar::gelu_tanh_mul_f32);
}

void Check_axpy_f32(const KernelTable& tier) {
  Rng rng(3);
  ForGrid([&](int32_t length, Values kind, bool at_start) {
    const size_t n = static_cast<size_t>(length);
    Guarded<float> x(n, at_start);
    Guarded<float> y(n, at_start);
    FillWith(x, kind, rng);
    FillWith(y, Values::kNoise, rng);
    std::vector<float> want(y.data(), y.data() + n);
    scalar::axpy_f32(-0.3f, x.data(), length, want.data());
    tier.axpy_f32(-0.3f, x.data(), length, y.data());
    ExpectSame(want, y, n, Where(length, kind));
  });
}

void Check_mul_add_f32(const KernelTable& tier) {
  Rng rng(34);
  ForGrid([&](int32_t length, Values kind, bool at_start) {
    const size_t n = static_cast<size_t>(length);
    Guarded<float> a(n, at_start);
    Guarded<float> b(n, at_start);
    Guarded<float> y(n, at_start);
    FillWith(a, kind, rng);
    FillWith(b, Values::kNoise, rng);
    FillWith(y, Values::kNoise, rng);
    std::vector<float> want(y.data(), y.data() + n);
    scalar::mul_add_f32(a.data(), b.data(), length, want.data());
    tier.mul_add_f32(a.data(), b.data(), length, y.data());
    ExpectSame(want, y, n, Where(length, kind));
  });
}

void Check_dot_f32(const KernelTable& tier) {
  Rng rng(4);
  ForGrid([&](int32_t length, Values kind, bool at_start) {
    Guarded<float> a(static_cast<size_t>(length), at_start);
    Guarded<float> b(static_cast<size_t>(length), at_start);
    FillWith(a, kind, rng);
    FillWith(b, Values::kNoise, rng);
    EXPECT_TRUE(SameFloat(scalar::dot_f32(a.data(), b.data(), length),
                          tier.dot_f32(a.data(), b.data(), length)))
        << Where(length, kind);
  });
}

void Check_rmsnorm_f32(const KernelTable& tier) {
  Rng rng(5);
  ForGrid([&](int32_t length, Values kind, bool at_start) {
    if (length == 0) return;
    const size_t n = static_cast<size_t>(length);
    Guarded<float> x(n, at_start);
    Guarded<float> weight(n, at_start);
    Guarded<float> got(n, at_start);
    std::vector<float> want(n);
    FillWith(x, kind, rng);
    FillWith(weight, Values::kNoise, rng);
    for (const float* w :
         {static_cast<const float*>(weight.data()), static_cast<const float*>(nullptr)}) {
      scalar::rmsnorm_f32(x.data(), w, 1.0f, 1e-6f, length, want.data());
      tier.rmsnorm_f32(x.data(), w, 1.0f, 1e-6f, length, got.data());
      ExpectSame(want, got, n, Where(length, kind));
    }
    scalar::rmsnorm_f32(x.data(), weight.data(), 0.0f, 1e-5f, length, want.data());
    tier.rmsnorm_f32(x.data(), weight.data(), 0.0f, 1e-5f, length, x.data());
    ExpectSame(want, x, n, Where(length, kind) + ", in place");
  });
}

void Check_rope_f32(const KernelTable& tier) {
  Rng rng(6);
  for (const int32_t interleaved : {0, 1}) {
    for (const int32_t heads : {1, 3}) {
      for (int32_t rotary = 0; rotary <= 140; rotary += 2) {
        for (const int32_t extra : {0, 1, 24}) {
          const int32_t head_dim = rotary + extra;
          const size_t n = static_cast<size_t>(heads * head_dim);
          const bool at_start = rotary % 4 == 0;
          Guarded<float> x(n, at_start);
          Guarded<float> table(static_cast<size_t>(rotary), at_start);
          FillWith(x, Values::kNoise, rng);
          FillWith(table, Values::kNoise, rng, 1.0f);
          std::vector<float> want(x.data(), x.data() + n);
          scalar::rope_f32(want.data(), heads, head_dim, rotary, table.data(), interleaved);
          tier.rope_f32(x.data(), heads, head_dim, rotary, table.data(), interleaved);
          ExpectSame(want, x, n, "rotary " + std::to_string(rotary));
        }
      }
    }
  }
}

namespace {

// Every 16-bit pattern once, in pieces that end inside a vector.
template <typename Kernel>
void CheckAllHalves(Kernel kernel, Kernel reference) {
  for (int32_t begin = 0, length = 1; begin < 65536; begin += length, length = length % 1000 + 7) {
    if (begin + length > 65536) length = 65536 - begin;
    const size_t n = static_cast<size_t>(length);
    Guarded<uint16_t> x(n);
    Guarded<float> got(n);
    std::vector<float> want(n);
    for (size_t i = 0; i < n; ++i) x[i] = static_cast<uint16_t>(static_cast<size_t>(begin) + i);
    reference(x.data(), length, want.data());
    kernel(x.data(), length, got.data());
    ExpectSame(want, got, n, "patterns from " + std::to_string(begin));
  }
}

bool IsNanHalf(uint16_t half) { return (half & 0x7FFFu) > 0x7C00u; }

}  // namespace

void Check_f16_to_f32(const KernelTable& tier) {
  CheckAllHalves(tier.f16_to_f32, &scalar::f16_to_f32);
}
void Check_bf16_to_f32(const KernelTable& tier) {
  CheckAllHalves(tier.bf16_to_f32, &scalar::bf16_to_f32);
}

void Check_f32_to_f16(const KernelTable& tier) {
  Rng rng(7);
  for (int round = 0; round < 200; ++round) {
    const size_t n = static_cast<size_t>(round % 100);
    Guarded<float> x(n, round % 2 == 0);
    Guarded<uint16_t> got(n, round % 2 == 0);
    std::vector<uint16_t> want(n);
    for (size_t i = 0; i < n; ++i) {
      // Any bits, or values near half's rounding points and subnormals.
      const uint32_t bits = static_cast<uint32_t>(rng.NextU64());
      std::memcpy(&x[i], &bits, sizeof(bits));
      if (round % 4 == 1)
        x[i] = std::ldexp(rng.NextFloat(), static_cast<int>(rng.NextBelow(45)) - 28);
      if (round % 4 == 2) x[i] = static_cast<float>(rng.NextBelow(8192)) * 0x1.0p-26f;
    }
    scalar::f32_to_f16(x.data(), static_cast<int64_t>(n), want.data());
    tier.f32_to_f16(x.data(), static_cast<int64_t>(n), got.data());
    for (size_t i = 0; i < n; ++i) {
      EXPECT_TRUE(want[i] == got[i] || (IsNanHalf(want[i]) && IsNanHalf(got[i])))
          << std::hexfloat << x[i] << ": " << got[i] << ", scalar " << want[i];
    }
  }
}

void Check_argmax_f32(const KernelTable& tier) {
  Rng rng(8);
  ForGrid([&](int32_t length, Values kind, bool at_start) {
    Guarded<float> x(static_cast<size_t>(length), at_start);
    FillWith(x, kind, rng);
    EXPECT_EQ(tier.argmax_f32(x.data(), length), scalar::argmax_f32(x.data(), length))
        << Where(length, kind);
    if (length > 3) {  // the first of equals, wherever it is
      const size_t at = static_cast<size_t>(rng.NextBelow(static_cast<uint64_t>(length)));
      x[at] = 1e9f;
      x[static_cast<size_t>(length) - 1] = 1e9f;
      EXPECT_EQ(tier.argmax_f32(x.data(), length), scalar::argmax_f32(x.data(), length));
    }
  });
}

void Check_quantize_row_a8(const KernelTable& tier) {
  Rng rng(9);
  ForGrid([&](int32_t length, Values kind, bool at_start) {
    const size_t chunks = (static_cast<size_t>(length) + 31) / 32;
    Guarded<float> x(static_cast<size_t>(length), at_start);
    Guarded<int8_t> values(chunks * 32, at_start);
    Guarded<float> scales(chunks, at_start);
    Guarded<int32_t> sums(chunks * 2, at_start);
    FillWith(x, kind, rng);
    std::vector<int8_t> want_values(chunks * 32);
    std::vector<float> want_scales(chunks);
    std::vector<int32_t> want_sums(chunks * 2);
    scalar::quantize_row_a8(x.data(), length, want_values.data(), want_scales.data(),
                            want_sums.data());
    tier.quantize_row_a8(x.data(), length, values.data(), scales.data(), sums.data());
    ExpectSame(want_scales, scales, chunks, Where(length, kind));
    for (size_t i = 0; i < chunks * 32; ++i) {
      ASSERT_EQ(want_values[i], values[i]) << Where(length, kind) << ", value " << i;
    }
    for (size_t i = 0; i < chunks * 2; ++i) {
      ASSERT_EQ(want_sums[i], sums[i]) << Where(length, kind) << ", sum " << i;
    }
  });
}

void Check_delta_rule_f32(const KernelTable& tier) {
  Rng rng(33);
  int round = 0;
  for (const int32_t k_dim : {1, 7, 64, 128}) {
    for (const int32_t columns : {0, 1, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 64, 100, 128}) {
      for (const int32_t tokens : {1, 3}) {
        const bool at_start = ++round % 2 == 0;
        const int64_t stride = columns + round % 3;
        const size_t state_size =
            static_cast<size_t>(columns == 0 ? 0 : (k_dim - 1) * stride + columns);
        const size_t row_size =
            static_cast<size_t>(columns == 0 ? 0 : (tokens - 1) * stride + columns);
        const size_t keys = static_cast<size_t>(tokens * k_dim);
        Guarded<float> state(state_size, at_start);
        Guarded<float> v(row_size, at_start);
        Guarded<float> out(row_size, at_start);
        Guarded<float> q(keys, at_start);
        Guarded<float> k(keys, at_start);
        Guarded<float> decay(static_cast<size_t>(tokens), at_start);
        Guarded<float> beta(static_cast<size_t>(tokens), at_start);
        for (const Guarded<float>* x : {&state, &v, &out, &q, &k, &decay, &beta}) {
          for (size_t i = 0; i < x->size(); ++i) (*x)[i] = MakeValue(Values::kNoise, i, rng, 1.0f);
        }
        if (round % 5 == 0 && state_size > 0)
          state[state_size / 2] = MakeValue(Values::kNan, 0, rng);
        DeltaRuleArgs args = {state.data(), stride,     k_dim,    columns, tokens,
                              q.data(),     k.data(),   v.data(), stride,  decay.data(),
                              beta.data(),  out.data(), stride};
        std::vector<float> want_state(state.data(), state.data() + state_size);
        std::vector<float> want(out.data(), out.data() + row_size);
        DeltaRuleArgs reference = args;
        reference.state = want_state.data();
        reference.out = want.data();
        scalar::delta_rule_f32(&reference);
        // One call a token gives what one call for all gives.
        args.tokens = 1;
        for (int32_t t = 0; t < tokens; ++t) {
          tier.delta_rule_f32(&args);
          args.q += k_dim;
          args.k += k_dim;
          args.v += stride;
          args.out += stride;
          ++args.decay;
          ++args.beta;
        }
        const std::string where = std::to_string(k_dim) + " x " + std::to_string(columns);
        ExpectSame(want, out, row_size, where + ", out");
        ExpectSame(want_state, state, state_size, where + ", state");
      }
    }
  }
}

}  // namespace cellm::kernels
