#ifndef CELLM_TOOLS_CELLM_BENCH_BENCH_MEASURE_H_
#define CELLM_TOOLS_CELLM_BENCH_BENCH_MEASURE_H_

// The measurements of `cellm bench`, each over the C API.
//
// A figure is the median of several repeats after a warm-up; every repeat starts from the same
// state, a fork of a sequence that was filled once. Speeds are held against ceilings by what the
// model's shape says a token costs: for decode the bytes of the weights that it is multiplied with
// and of the keys and values that it reads, for prefill two operations a weight.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "cellm/bench/bench_report.h"
#include "cellm/cellm.h"
#include "cellm/common.h"

namespace cellm::tools {

struct BenchPlan {
  bool prefill = true, decode = true, batch = true, long_context = false;
  bool load = true, first_token = true, encode = true, memory = true;
  int64_t prefill_tokens = 512;
  int64_t decode_tokens = 64;
  std::vector<int64_t> depths = {0};
  std::vector<int64_t> batches = {1, 2, 4, 8};
  int64_t batch_depth = 64;
  int64_t long_tokens = 8192;
  int64_t prompt_tokens = 1024, reply_tokens = 256;  // of first_token
  int64_t chunk_tokens = 512;  // of the engine: what one step takes of a prompt
  int64_t repeats = 5, warmups = 1;
  std::string text;     // for prompts and encode; empty: prose of our own
  double seconds = 30;  // a figure that takes longer gets fewer repeats, at least one
  bool quiet = false;

  // The longest sequence that the plan needs, and how many beside one another.
  int64_t ContextNeeded() const;
  int64_t SequencesNeeded() const;
};

// Measures everything but loading on an engine. `text_ids`: as many ids as the plan needs, or more.
Status MeasureEngine(const BenchPlan& plan, const Ceilings& ceilings, cellm_model* model,
                     cellm_engine* engine, BenchRun* run);

// Time to open the model and an engine, by `open`.
class Opener {
 public:
  virtual ~Opener() = default;
  virtual Status Open(ModelHandle* model, EngineHandle* engine) = 0;
};
Status MeasureLoad(const BenchPlan& plan, Opener* opener, BenchRun* run);

}  // namespace cellm::tools

#endif  // CELLM_TOOLS_CELLM_BENCH_BENCH_MEASURE_H_
