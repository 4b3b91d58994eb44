#ifndef CELLM_TOOLS_CELLM_BENCH_BENCH_REPORT_H_
#define CELLM_TOOLS_CELLM_BENCH_BENCH_REPORT_H_

// What was measured, and its three spellings: a table for people, JSON, CSV.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "cellm/cellm.h"

namespace cellm::tools {

// What the machine can do, measured in the same run; 0 where not known. [0] one thread, [1] two.
struct Ceilings {
  double read_bytes[2] = {};
  double int8_ops[2] = {};
  double f32_ops[2] = {};
  double bf16_ops[2] = {};
};
// `two`: the process may use two cores.
Ceilings MeasureCeilings(bool two);

struct Statistics {
  double median = 0, least = 0, most = 0;
  double p10 = 0, p90 = 0, p95 = 0, p99 = 0;
  size_t count = 0;
  // (most - least) / median.
  double Spread() const { return median > 0 ? (most - least) / median : 0; }
};
// Percentiles by the nearest rank. `values` is not empty.
Statistics Summarise(std::vector<double> values);

struct Measured {
  std::string test;    // "prefill", "decode", ...
  std::string detail;  // what a row of the table says beside it
  int64_t tokens = 0;  // of the unit of work
  int64_t depth = 0;   // tokens before it
  int64_t sequences = 1;
  std::string unit;  // "tokens/s", "ms", "MB", "MB/s"
  Statistics value;
  double share = -1;     // of a ceiling; < 0: none
  std::string share_of;  // "read", "int8", "bf16", "f32"
  Statistics step_ms;    // of single steps; count 0: none
};

// What an engine held at a moment of --serve.
struct MemorySample {
  std::string phase;   // the test under way
  double seconds = 0;  // since the first test began
  cellm_memory memory = CELLM_MEMORY_INIT;
  uint64_t past_bytes = 0;     // of memory.cache: kept beginnings that nobody uses
  uint64_t swapped_bytes = 0;  // on disk
};

// One model in one setting.
struct BenchRun {
  std::string model, format, kernels, weights, kv;
  int threads = 0;
  uint64_t file_bytes = 0, weight_bytes = 0, parameters = 0;
  std::vector<Measured> rows;
  std::vector<MemorySample> samples;
};

std::string BenchTable(const BenchRun& run);
// Memory by class over the samples, in five rows a test or fewer; empty without samples.
std::string MemoryTable(const BenchRun& run);
std::string CeilingsTable(const Ceilings& ceilings);
std::string BenchJson(const Ceilings& ceilings, const std::vector<BenchRun>& runs);
// With a heading line.
std::string BenchCsv(const std::vector<BenchRun>& runs);

}  // namespace cellm::tools

#endif  // CELLM_TOOLS_CELLM_BENCH_BENCH_REPORT_H_
