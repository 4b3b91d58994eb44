#include "cellm/bench/bench_report.h"

#include <algorithm>
#include <cmath>

#include "cellm/common.h"
#include "json/json.h"
#include "machine_limits.h"

namespace cellm::tools {

Ceilings MeasureCeilings(bool two) {
  Ceilings c;
  for (int threads = 1; threads <= (two ? 2 : 1); ++threads) {
    const int at = threads - 1;
    c.read_bytes[at] = bench::ReadRate(threads);
    c.int8_ops[at] = bench::Int8Rate(threads);
    c.f32_ops[at] = bench::FloatRate(threads);
    c.bf16_ops[at] = bench::Bf16Rate(threads);
  }
  return c;
}

Statistics Summarise(std::vector<double> values) {
  Statistics s;
  s.count = values.size();
  if (values.empty()) return s;
  std::sort(values.begin(), values.end());
  const auto rank = [&values](double share) {
    const double at = std::ceil(share * static_cast<double>(values.size()));
    return values[static_cast<size_t>(std::clamp(at, 1.0, static_cast<double>(values.size()))) - 1];
  };
  const size_t half = values.size() / 2;
  s.median = values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  s.least = values.front();
  s.most = values.back();
  s.p10 = rank(0.10);
  s.p90 = rank(0.90);
  s.p95 = rank(0.95);
  s.p99 = rank(0.99);
  return s;
}

namespace {

double Mega(uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

// "61% int8"
std::string Share(const Measured& row) {
  if (row.share < 0) return "";
  return StrFormat("%.0f%% %s", 100 * row.share, row.share_of.c_str());
}

JsonObject& AddStatistics(const Statistics& s, JsonObject* object) {
  return object->Add("median", s.median)
      .Add("min", s.least)
      .Add("max", s.most)
      .Add("p10", s.p10)
      .Add("p90", s.p90)
      .Add("p95", s.p95)
      .Add("p99", s.p99)
      .Add("repeats", static_cast<uint64_t>(s.count));
}

std::string PairJson(const double (&values)[2]) {
  return StrFormat("[%.6g, %.6g]", values[0], values[1]);
}

}  // namespace

std::string CeilingsTable(const Ceilings& c) {
  std::string out = "machine, measured in this run           1 thread   2 threads\n";
  const struct {
    const char* name;
    const double (&values)[2];
    const char* unit;
  } rows[] = {{"memory read, huge pages", c.read_bytes, "GB/s"},
              {"8-bit multiply-accumulate", c.int8_ops, "Gop/s"},
              {"f32 multiply-accumulate", c.f32_ops, "Gop/s"},
              {"bf16 multiply-accumulate", c.bf16_ops, "Gop/s"}};
  for (const auto& row : rows) {
    out += StrFormat("  %-34s %9.1f   %9.1f  %s\n", row.name, row.values[0] / 1e9,
                     row.values[1] / 1e9, row.unit);
  }
  return out;
}

std::string BenchTable(const BenchRun& run) {
  std::string out =
      StrFormat("%s, %s, %d thread%s, %s kernels, weights %s (%.0f MB, %.0f M parameters), kv %s\n",
                run.model.c_str(), run.format.c_str(), run.threads, run.threads == 1 ? "" : "s",
                run.kernels.c_str(), run.weights.c_str(), Mega(run.weight_bytes),
                static_cast<double>(run.parameters) / 1e6, run.kv.c_str());
  out += StrFormat("  %-50s %10s %-9s %7s %8s %8s %s\n", "", "median", "", "spread", "p10", "p90",
                   "of the ceiling");
  for (const Measured& row : run.rows) {
    out += StrFormat("  %-50s %10.4g %-9s %6.0f%% %8.4g %8.4g %s", row.detail.c_str(),
                     row.value.median, row.unit.c_str(), 100 * row.value.Spread(), row.value.p10,
                     row.value.p90, Share(row).c_str());
    while (out.back() == ' ') out.pop_back();
    out += "\n";
  }
  return out;
}

std::string MemoryTable(const BenchRun& run) {
  if (run.samples.empty()) return "";
  std::string out =
      StrFormat("  %-14s %8s %9s %9s %11s %9s %9s %9s %9s\n", "memory, MB", "seconds", "weights",
                "cache", "activations", "others", "all", "for reuse", "on disk");
  for (size_t begin = 0; begin < run.samples.size();) {
    size_t end = begin;
    while (end < run.samples.size() && run.samples[end].phase == run.samples[begin].phase) ++end;
    // Evenly spread, the last one always.
    const size_t shown = std::min<size_t>(5, end - begin);
    for (size_t i = 1; i <= shown; ++i) {
      const MemorySample& s = run.samples[begin + (end - begin) * i / shown - 1];
      const cellm_memory& m = s.memory;
      out += StrFormat("  %-14s %8.2f %9.1f %9.1f %11.1f %9.1f %9.1f %9.1f %9.1f\n",
                       s.phase.c_str(), s.seconds, Mega(m.weights), Mega(m.cache),
                       Mega(m.activations), Mega(m.tokenizer + m.other), Mega(m.used),
                       Mega(s.past_bytes), Mega(s.swapped_bytes));
    }
    begin = end;
  }
  return out;
}

namespace {

std::string SamplesJson(const std::vector<MemorySample>& samples) {
  std::string list;
  for (const MemorySample& s : samples) {
    JsonObject object;
    object.Add("test", s.phase)
        .Add("seconds", s.seconds)
        .Add("weights", s.memory.weights)
        .Add("cache", s.memory.cache)
        .Add("activations", s.memory.activations)
        .Add("tokenizer", s.memory.tokenizer)
        .Add("other", s.memory.other)
        .Add("used", s.memory.used)
        .Add("past_bytes", s.past_bytes)
        .Add("swapped_bytes", s.swapped_bytes);
    if (!list.empty()) list += ", ";
    list += object.Finish();
  }
  return "[" + list + "]";
}

}  // namespace

std::string BenchJson(const Ceilings& c, const std::vector<BenchRun>& runs) {
  JsonObject ceilings;
  ceilings.AddRaw("read_bytes_per_second", PairJson(c.read_bytes))
      .AddRaw("int8_ops_per_second", PairJson(c.int8_ops))
      .AddRaw("f32_ops_per_second", PairJson(c.f32_ops))
      .AddRaw("bf16_ops_per_second", PairJson(c.bf16_ops));
  std::string list;
  for (const BenchRun& run : runs) {
    std::string rows;
    for (const Measured& row : run.rows) {
      JsonObject object;
      object.Add("test", row.test)
          .Add("tokens", row.tokens)
          .Add("depth", row.depth)
          .Add("sequences", row.sequences)
          .Add("unit", row.unit);
      AddStatistics(row.value, &object);
      if (row.share >= 0) object.Add("share", row.share).Add("share_of", row.share_of);
      if (row.step_ms.count > 0) {
        JsonObject steps;
        AddStatistics(row.step_ms, &steps);
        object.AddRaw("step_ms", steps.Finish());
      }
      if (!rows.empty()) rows += ", ";
      rows += object.Finish();
    }
    JsonObject object;
    object.Add("model", run.model)
        .Add("format", run.format)
        .Add("threads", run.threads)
        .Add("kernels", run.kernels)
        .Add("weights", run.weights)
        .Add("kv", run.kv)
        .Add("file_bytes", run.file_bytes)
        .Add("weight_bytes", run.weight_bytes)
        .Add("parameters", run.parameters)
        .AddRaw("results", "[" + rows + "]");
    if (!run.samples.empty()) object.AddRaw("memory_over_time", SamplesJson(run.samples));
    if (!list.empty()) list += ", ";
    list += object.Finish();
  }
  JsonObject out;
  out.AddRaw("machine", ceilings.Finish()).AddRaw("runs", "[" + list + "]");
  return out.Finish() + "\n";
}

std::string BenchCsv(const std::vector<BenchRun>& runs) {
  std::string out =
      "model,format,threads,kernels,weights,kv,test,tokens,depth,sequences,unit,median,min,max,p10,"
      "p90,p95,p99,repeats,share,share_of\n";
  for (const BenchRun& run : runs) {
    for (const Measured& row : run.rows) {
      const Statistics& s = row.value;
      // Names of files may hold a comma or a quote.
      std::string model = "\"";
      for (const char ch : run.model) model.append(ch == '"' ? 2 : 1, ch);
      out += model + "\"," + run.format + StrFormat(",%d,", run.threads) + run.kernels + "," +
             run.weights + "," + run.kv + "," + row.test +
             StrFormat(",%lld,%lld,%lld,", static_cast<long long>(row.tokens),
                       static_cast<long long>(row.depth), static_cast<long long>(row.sequences)) +
             row.unit +
             StrFormat(",%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%zu,", s.median, s.least, s.most, s.p10,
                       s.p90, s.p95, s.p99, s.count) +
             (row.share < 0 ? std::string() : StrFormat("%.4f", row.share)) + "," + row.share_of +
             "\n";
    }
  }
  return out;
}

}  // namespace cellm::tools
