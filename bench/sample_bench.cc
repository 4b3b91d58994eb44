// Choosing a token from rows of large vocabularies.
//
//   cellm_sample_bench [Google Benchmark flags]
//
// Names: KIND/VOCABULARY[/K]. A decode step of a small model takes milliseconds; choosing must be a
// few passes over the row, and no sort of it.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"
#include "sample/candidates.h"

namespace cellm::sample {
namespace {

// Logits as models give them: a bell of deviation 3, and a few that stand out.
std::vector<float> Row(int64_t vocabulary) {
  Rng rng(17);
  std::vector<float> row(static_cast<size_t>(vocabulary));
  for (float& logit : row) {
    float sum = 0;
    for (int i = 0; i < 12; ++i) sum += rng.NextFloat();
    logit = 3.0f * (sum - 6.0f);
  }
  for (int i = 0; i < 20; ++i) row[rng.NextBelow(row.size())] += 8.0f;
  return row;
}

void Check(benchmark::State& state) {
  const std::vector<float> row = Row(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(CheckLogits(row).ok());
  state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
}

void Largest(benchmark::State& state) {
  const std::vector<float> row = Row(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(ArgMax(row));
  state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
}

void Top(benchmark::State& state) {
  const std::vector<float> row = Row(state.range(0));
  const size_t k = static_cast<size_t>(state.range(1));
  std::vector<Candidate> out(2 * k);
  for (auto _ : state) benchmark::DoNotOptimize(SelectTop(row, k, out));
  state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
}

// What selecting saves: the same by sorting.
void Sorted(benchmark::State& state) {
  const std::vector<float> row = Row(state.range(0));
  std::vector<Candidate> all(row.size());
  for (auto _ : state) {
    for (size_t i = 0; i < row.size(); ++i) all[i] = {static_cast<int32_t>(i), row[i]};
    std::sort(all.begin(), all.end(), Better);
    benchmark::DoNotOptimize(all.data());
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
}

BENCHMARK(Check)->Arg(49152)->Arg(151936)->Arg(262144);
BENCHMARK(Largest)->Arg(49152)->Arg(151936)->Arg(262144);
BENCHMARK(Top)->ArgsProduct({{49152, 151936, 262144}, {40, 1000}});
BENCHMARK(Sorted)->Arg(262144);

}  // namespace
}  // namespace cellm::sample

BENCHMARK_MAIN();
