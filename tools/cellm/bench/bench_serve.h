#ifndef CELLM_TOOLS_CELLM_BENCH_BENCH_SERVE_H_
#define CELLM_TOOLS_CELLM_BENCH_BENCH_SERVE_H_

// `cellm bench --serve`: many conversations on one engine, over cellm.h alone.
//
// One thread drives the steps (cellm_engine_step) and collects the tokens of all requests after
// each (cellm_request_poll), so a token's time is the end of the step that made it. Every test has
// an engine of its own and starts from the same state.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "cellm/bench/bench_measure.h"
#include "cellm/bench/bench_report.h"

namespace cellm::tools {

struct ServePlan {
  bool latency = true, throughput = true, first_token = true, resume = true, turns = true;
  bool memory = true;  // the samples are shown
  int64_t background = 4;
  std::vector<int64_t> sessions = {1, 4, 8, 16};
  int32_t throughput_class = CELLM_CLASS_INTERACTIVE;
  int64_t system_tokens = 2048;
  int64_t context_tokens = 4096;
  int64_t turn_tokens = 1024;  // of each of the sessions that take turns
  std::string folder;          // for files of sessions
  BenchPlan bench;             // text, decode_tokens, batch_depth, repeats, seconds, quiet

  int64_t ContextNeeded() const;
  int64_t SequencesNeeded() const;
};

Status MeasureServe(const ServePlan& plan, Opener* opener, BenchRun* run);

}  // namespace cellm::tools

#endif  // CELLM_TOOLS_CELLM_BENCH_BENCH_SERVE_H_
