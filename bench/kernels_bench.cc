// Kernels at real shapes, each figure with its share of the machine's limit measured in this run.
//
//   cellm_kernels_bench [--tier=NAME] [Google Benchmark flags, e.g. --benchmark_filter=gemv]
//
// Names: gemv/<weights>/<model>/<matrix>/threads:N   one token, weights streamed from memory
//        batch/<weights>/<model>/<matrix>/<tokens>   a few tokens, weights streamed from memory
//        gemm/<weights>/<model>/<matrix>/<tokens>    many tokens, weights warm in cache
//        attend/<format>/<dim>x<heads>/<keys>        one row of decode over a cache in memory
// Counters: GB/s and of_read (share of the read rate of as many threads), Gop/s and of_int8 (share
// of the vpdpbusd rate of one core) or of_fma (share of the f32 rate). All of them count the time
// that the thread was on a core, so that they hold on a busy machine; only two threads go by the
// clock.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/kernel_table.h"
#include "machine_limits.h"
#include "tensor/half.h"
#include "tensor/kv_type.h"
#include "tensor/packed.h"

namespace cellm::bench {
namespace {

using kernels::KernelTable;
using kernels::PackedTiles;
using kernels::QuantRows;

KernelTable g_table;
double g_read_rate[3];
double g_int8_rate;
double g_float_rate;
constexpr size_t kPoolBytes = size_t{384} << 20;
uint8_t* g_pool;  // weights: random bytes that make finite scales

struct Shape {
  std::string model, name;
  int32_t rows = 0, cols = 0;
};

std::vector<Shape> ReadShapes(const std::string& model) {
  std::vector<Shape> shapes;
  std::ifstream file(std::string(CELLM_BENCH_SHAPES) + "/" + model + ".txt");
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    Shape shape;
    shape.model = model;
    fields >> shape.rows >> shape.cols >> shape.name;
    shapes.push_back(shape);
  }
  if (shapes.empty()) {
    std::fprintf(stderr, "no shapes for %s\n", model.c_str());
    std::exit(1);
  }
  return shapes;
}

// How a format lies in memory; shape left open.
struct Packed {
  const char* name;
  int32_t bits, group, zero2;
  bool has_min = false;
  SubScale sub = SubScale::kNone;
  CodeBook book = CodeBook::kNone;
};

constexpr Packed kPacked[] = {
    {"i8", 8, 0, 256},
    {"i4g32", 4, 32, 16},
    {"i4g64", 4, 64, 16},
    {"i4g128", 4, 128, 16},
    {"i2g64", 2, 64, 3},
    {"q8_0", 8, 32, 256},
    {"q4_0", 4, 32, 16},
    {"q4_1", 4, 32, 0, true},
    {"q5_0", 5, 32, 32},
    {"q2_k", 2, 16, 0, true, SubScale::kN4},
    {"q3_k", 3, 16, 8, false, SubScale::kI8},
    {"q4_k", 4, 32, 0, true, SubScale::kI8},
    {"q5_k", 5, 32, 0, true, SubScale::kI8},
    {"q6_k", 6, 16, 64, false, SubScale::kI8},
    {"iq4_nl", 4, 32, 256, false, SubScale::kNone, CodeBook::kIq4},
    {"iq4_xs", 4, 32, 256, false, SubScale::kI8, CodeBook::kIq4},
    {"iq2_xs", 3, 16, 256, false, SubScale::kI8, CodeBook::kIq2},
    {"tq2_0", 2, 256, 2},
};

PackedLayout Layout(const Shape& shape, const Packed& packed) {
  PackedLayout layout;
  layout.rows = shape.rows;
  layout.cols = shape.cols;
  layout.bits = packed.bits;
  layout.group = packed.group;
  layout.zero2 = packed.zero2;
  layout.has_min = packed.has_min;
  layout.sub = packed.sub;
  if (layout.nested()) layout.super = 256;
  layout.book = packed.book;
  return layout;
}

PackedTiles Tiles(const PackedLayout& layout, const uint8_t* data) {
  PackedTiles tiles = {};
  tiles.data = data;
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
  tiles.has_min = layout.has_min ? 1 : 0;
  tiles.sub = static_cast<kernels::SubKind>(layout.sub);
  while (layout.nested() && layout.group << tiles.super_shift < layout.super) ++tiles.super_shift;
  tiles.subs_offset = layout.subs_offset();
  tiles.sub_mins_offset = layout.sub_mins_offset();
  tiles.book = CodeBookBytes(layout.book);
  return tiles;
}

struct Activations {
  std::vector<float> x;
  std::vector<int8_t> values;
  std::vector<float> scales;
  std::vector<int32_t> sums;
  QuantRows rows;

  Activations(int32_t tokens, int32_t cols) {
    const int32_t chunks = (cols + 31) / 32;
    const size_t padded = static_cast<size_t>(chunks) * 32;
    const size_t count = static_cast<size_t>(tokens);
    x.resize(count * static_cast<size_t>(cols));
    values.resize(count * padded);
    scales.resize(count * static_cast<size_t>(chunks));
    sums.resize(count * static_cast<size_t>(chunks) * 2);
    Rng rng(7);
    for (float& v : x) v = rng.NextFloat() - 0.5f;
    for (size_t t = 0; t < count; ++t) {
      g_table.quantize_row_a8(x.data() + t * static_cast<size_t>(cols), cols,
                              values.data() + t * padded, scales.data() + t * padded / 32,
                              sums.data() + t * padded / 16);
    }
    rows = {values.data(), scales.data(), sums.data(), tokens, chunks};
  }
};

void Count(benchmark::State& state, double bytes, double operations, double peak,
           const char* peak_name) {
  using benchmark::Counter;
  const double rounds = static_cast<double>(state.iterations());
  const double read = g_read_rate[std::min(2, static_cast<int>(state.threads()))];
  if (bytes > 0) {
    state.counters["GB/s"] = Counter(rounds * bytes / 1e9, Counter::kIsRate);
    state.counters["of_read"] = Counter(rounds * bytes / read, Counter::kIsRate);
  }
  if (operations > 0) {
    state.counters["Gop/s"] = Counter(rounds * operations / 1e9, Counter::kIsRate);
    if (peak > 0) state.counters[peak_name] = Counter(rounds * operations / peak, Counter::kIsRate);
  }
}

// Matrices one after another through the pool, so that weights always come from memory.
struct PoolWalk {
  size_t bytes, begin, end, at;
  PoolWalk(const benchmark::State& state, size_t matrix_bytes) : bytes(matrix_bytes) {
    const size_t share = kPoolBytes / static_cast<size_t>(state.threads()) / 4096 * 4096;
    begin = share * static_cast<size_t>(state.thread_index());
    end = begin + share;
    at = begin;
  }
  const uint8_t* Next() {
    if (at + bytes > end) at = begin;
    const uint8_t* data = g_pool + at;
    at += (bytes + 63) / 64 * 64;
    return data;
  }
};

// A matrix larger than a thread's share of the pool is cut to as many rows as fit.
Shape Fit(const benchmark::State& state, Shape shape, double bytes_a_row) {
  const double share = 0.9 * static_cast<double>(kPoolBytes) / static_cast<double>(state.threads());
  const double rows = share / bytes_a_row;
  if (rows < shape.rows) shape.rows = static_cast<int32_t>(rows) / 16 * 16;
  return shape;
}

void PackedGemv(benchmark::State& state, Shape shape, Packed packed, int32_t tokens) {
  shape = Fit(state, shape, 1.1 * shape.cols);
  const PackedLayout layout = Layout(shape, packed);
  const Activations x(tokens, shape.cols);
  std::vector<float> out(static_cast<size_t>(shape.rows) * static_cast<size_t>(tokens));
  PoolWalk walk(state, layout.total_bytes());
  for (auto _ : state) {
    const PackedTiles tiles = Tiles(layout, walk.Next());
    g_table.matmul_packed_a8(&tiles, &x.rows, 0, layout.tiles(), out.data(), shape.rows);
    benchmark::ClobberMemory();
  }
  Count(state, static_cast<double>(layout.total_bytes()), 2.0 * shape.rows * shape.cols * tokens,
        g_int8_rate, "of_int8");
}

void PackedGemm(benchmark::State& state, Shape shape, Packed packed, int32_t tokens) {
  shape = Fit(state, shape, 1.1 * shape.cols);
  const PackedLayout layout = Layout(shape, packed);
  const Activations x(tokens, shape.cols);
  std::vector<float> out(static_cast<size_t>(shape.rows) * static_cast<size_t>(tokens));
  const PackedTiles tiles = Tiles(layout, g_pool);
  for (auto _ : state) {
    g_table.matmul_packed_a8(&tiles, &x.rows, 0, layout.tiles(), out.data(), shape.rows);
    benchmark::ClobberMemory();
  }
  Count(state, 0, 2.0 * shape.rows * shape.cols * tokens, g_int8_rate, "of_int8");
}

enum class Dense { kF32, kF16, kBf16 };

void RunDense(Dense kind, const uint8_t* w, const float* x, const Shape& shape, int32_t tokens,
              float* out) {
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(w);
  if (kind == Dense::kF16) {
    g_table.matmul_f16_f32(halves, shape.cols, x, shape.cols, shape.rows, shape.cols, tokens, out,
                           shape.rows);
  } else if (kind == Dense::kBf16) {
    g_table.matmul_bf16_f32(halves, shape.cols, x, shape.cols, shape.rows, shape.cols, tokens, out,
                            shape.rows);
  } else {
    g_table.matmul_f32_f32(reinterpret_cast<const float*>(w), shape.cols, x, shape.cols, shape.rows,
                           shape.cols, tokens, out, shape.rows);
  }
}

void DenseGemv(benchmark::State& state, Shape shape, Dense kind, int32_t tokens, bool stream) {
  const size_t element = kind == Dense::kF32 ? 4 : 2;
  shape = Fit(state, shape, static_cast<double>(element) * shape.cols);
  const size_t bytes = static_cast<size_t>(shape.rows) * static_cast<size_t>(shape.cols) * element;
  const Activations x(tokens, shape.cols);
  std::vector<float> out(static_cast<size_t>(shape.rows) * static_cast<size_t>(tokens));
  PoolWalk walk(state, bytes);
  for (auto _ : state) {
    RunDense(kind, stream ? walk.Next() : g_pool, x.x.data(), shape, tokens, out.data());
    benchmark::ClobberMemory();
  }
  Count(state, stream ? static_cast<double>(bytes) : 0, 2.0 * shape.rows * shape.cols * tokens,
        g_float_rate, "of_fma");
}

// `rows` query rows of `heads` heads over `keys` keys; the caches of 64 kv heads follow each other.
void Attend(benchmark::State& state, int32_t dim, int32_t heads, int32_t keys, int32_t rows,
            KvType type) {
  const int32_t page_tokens = 64;
  const KvLayout layout = MakeKvLayout(type, dim);
  const size_t page_bytes = static_cast<size_t>(page_tokens) * 2 * KvTokenBytes(type, dim);
  const int32_t pages = (keys + page_tokens - 1) / page_tokens;
  const size_t cache_bytes = page_bytes * static_cast<size_t>(pages);
  const size_t queries = static_cast<size_t>(rows * heads);
  const size_t columns = static_cast<size_t>(layout.padded);
  std::vector<float> q(queries * columns, 0.01f);
  std::vector<int8_t> q8(queries * columns, 3);
  std::vector<float> q_scales(queries, 0.01f);
  std::vector<float> out(queries * columns);
  std::vector<kernels::AttendState> states(queries);
  std::vector<uint8_t> scratch(kernels::AttendScratchBytes(dim, dim) + 64);
  std::vector<int32_t> begin(static_cast<size_t>(rows), 0);
  std::vector<int32_t> end(static_cast<size_t>(rows));
  for (int32_t r = 0; r < rows; ++r) end[static_cast<size_t>(r)] = keys - rows + 1 + r;
  std::vector<const uint8_t*> table(static_cast<size_t>(pages));
  kernels::AttendArgs args = {};
  args.q = q.data();
  args.q_row_stride = heads * dim;
  args.q8 = q8.data();
  args.q_scales = q_scales.data();
  args.out = out.data();
  args.out_stride = layout.padded;
  args.states = states.data();
  args.rows = rows;
  args.heads = heads;
  args.head_dim = dim;
  args.head_dim_v = dim;
  args.key_begin = begin.data();
  args.key_end = end.data();
  args.scale = 0.125f;
  args.kv.page_tokens = page_tokens;
  args.kv.v_offset = page_bytes / 2;
  args.kv.pages = table.data();
  args.kv.k.kind = type == KvType::kF32   ? kernels::kKvF32
                   : type == KvType::kF16 ? kernels::kKvF16
                                          : kernels::kKvCoded;
  if (KvIsCoded(type)) {
    args.kv.k = {kernels::kKvCoded,    layout.tiles,         layout.wide_tiles,
                 layout.wide_bits,     layout.narrow_bits,   layout.wide_levels,
                 layout.narrow_levels, layout.group_bytes(), layout.scales_offset(page_tokens)};
  }
  args.kv.v = args.kv.k;
  args.scratch = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
  PoolWalk walk(state, cache_bytes);
  for (auto _ : state) {
    const uint8_t* data = walk.Next();
    for (size_t p = 0; p < table.size(); ++p) table[p] = data + p * page_bytes;
    g_table.attend(&args);
    benchmark::ClobberMemory();
  }
  Count(state, static_cast<double>(cache_bytes), 4.0 * dim * heads * rows * (keys - rows / 2.0),
        g_float_rate, "of_fma");
}

// One thread is timed by its own time on a core (busy neighbours do not count), two by the clock.
template <typename Function, typename... Args>
void Add(const std::string& name, int threads, Function function, Args... args) {
  benchmark::internal::Benchmark* const added =
      benchmark::RegisterBenchmark(name.c_str(), function, args...)->Threads(threads);
  if (threads > 1) added->UseRealTime();
}

void Register() {
  const std::vector<std::pair<const char*, Dense>> dense = {
      {"f16", Dense::kF16}, {"bf16", Dense::kBf16}, {"f32", Dense::kF32}};
  for (const char* model : {"smollm2_135m", "qwen2_5_0_5b", "llama3_2_1b"}) {
    for (const Shape& shape : ReadShapes(model)) {
      const std::string tail = "/" + shape.model + "/" + shape.name;
      const auto counted = [&](const char* kind, const char* type, int32_t tokens) {
        return std::string(kind) + type + tail + "/" + std::to_string(tokens);
      };
      for (const Packed& p : kPacked) {
        for (const int threads : {1, 2}) {
          Add(std::string("gemv/") + p.name + tail, threads, PackedGemv, shape, p, 1);
        }
        for (const int32_t tokens : {2, 4, 8}) {
          Add(counted("batch/", p.name, tokens), 1, PackedGemv, shape, p, tokens);
        }
        if (shape.rows > 20000) continue;
        for (const int32_t tokens : {16, 128, 512}) {
          Add(counted("gemm/", p.name, tokens), 1, PackedGemm, shape, p, tokens);
        }
      }
      for (const auto& [name, kind] : dense) {
        for (const int threads : {1, 2}) {
          Add(std::string("gemv/") + name + tail, threads, DenseGemv, shape, kind, 1, true);
        }
        for (const int32_t tokens : {2, 4, 8}) {
          Add(counted("batch/", name, tokens), 1, DenseGemv, shape, kind, tokens, true);
        }
        if (shape.rows > 20000) continue;
        for (const int32_t tokens : {128, 512}) {
          Add(counted("gemm/", name, tokens), 1, DenseGemv, shape, kind, tokens, false);
        }
      }
    }
  }
  for (const KvType type : {KvType::kF16, KvType::kF32, KvType::kQ8, KvType::kQ4, KvType::kTq4,
                            KvType::kTq3_5, KvType::kTq2_5}) {
    for (const int32_t heads : {1, 3, 4, 7}) {
      for (const int32_t dim : {64, 128}) {
        const std::string name = "attend/" + std::string(KvTypeName(type)) + "/" +
                                 std::to_string(dim) + "x" + std::to_string(heads) + "/4096";
        for (const int threads : {1, 2}) Add(name, threads, Attend, dim, heads, 4096, 1, type);
        Add(name + "/rows:16", 1, Attend, dim, heads, 4096, 16, type);
      }
    }
  }
}

void FillPool() {
  g_pool = HugeBytes(kPoolBytes + 4096);
  Rng rng(11);
  // As halves or brains these are small finite numbers of either sign; as codes they are random.
  for (size_t i = 0; i + 8 <= kPoolBytes; i += 8) {
    const uint64_t word = (rng.NextU64() & 0xBBFFBBFFBBFFBBFFu) | 0x2000200020002000u;
    std::memcpy(g_pool + i, &word, 8);
  }
}

}  // namespace
}  // namespace cellm::bench

int main(int argc, char** argv) {
  std::string tier;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--tier=", 7) == 0) {
      tier = argv[i] + 7;
      std::rotate(argv + i, argv + i + 1, argv + argc);
      --argc;
      --i;
    }
  }
  const cellm::Result<cellm::kernels::ChosenKernels> chosen = cellm::kernels::ChooseKernels(tier);
  if (!chosen.ok()) {
    std::fprintf(stderr, "%s\n", chosen.status().message().c_str());
    return 1;
  }
  cellm::bench::g_table = chosen->table;
  cellm::bench::FillPool();
  cellm::bench::g_read_rate[1] = cellm::bench::ReadRate(1, cellm::bench::Timer::kOwn);
  cellm::bench::g_read_rate[2] = cellm::bench::ReadRate(2);
  cellm::bench::g_int8_rate = cellm::bench::Int8Rate(1, cellm::bench::Timer::kOwn);
  cellm::bench::g_float_rate = cellm::bench::FloatRate(1, cellm::bench::Timer::kOwn);
  std::printf("tier %s; read %.1f GB/s (1 thread), %.1f (2); int8 %.0f Gop/s, f32 %.0f Gop/s\n",
              std::string(chosen->tier).c_str(), cellm::bench::g_read_rate[1] / 1e9,
              cellm::bench::g_read_rate[2] / 1e9, cellm::bench::g_int8_rate / 1e9,
              cellm::bench::g_float_rate / 1e9);
  cellm::bench::Register();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
