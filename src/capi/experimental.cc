// cellm_experimental.h.
#include "capi/convert_args.h"
#include "capi/handles.h"
#include "cellm/cellm_experimental.h"
#include "engine/engine.h"

using cellm::Cancelled;
using cellm::InvalidArgument;
using cellm::capi::Report;

extern "C" {

cellm_status cellm_engine_collect_inputs(cellm_engine* engine, uint64_t max_bytes,
                                         cellm_error* error) {
  if (engine == nullptr) return Report(InvalidArgument("engine is null"), error);
  engine->state->engine->CollectInputs(max_bytes);
  return CELLM_OK;
}

cellm_status cellm_engine_get_inputs(const cellm_engine* engine, cellm_input_moments_fn callback,
                                     void* user, cellm_error* error) {
  if (engine == nullptr || callback == nullptr) {
    return Report(InvalidArgument("cellm_engine_get_inputs: engine or callback is null"), error);
  }
  const cellm::InputStatistics* const inputs = engine->state->engine->inputs();
  if (inputs == nullptr) return Report(InvalidArgument("the engine collects no inputs"), error);
  if (!inputs->status().ok()) return Report(inputs->status(), error);
  for (const cellm::InputStatistics::Entry& entry : inputs->Entries()) {
    cellm_input_moments moments = CELLM_INPUT_MOMENTS_INIT;
    moments.matrix = entry.matrix;
    moments.tensor = {entry.tensor.data(), entry.tensor.size()};
    moments.columns = entry.cols;
    moments.is_diagonal = entry.moments.size() == static_cast<size_t>(entry.cols) ? 1 : 0;
    moments.rows = entry.rows;
    moments.moments = entry.moments.data();
    if (callback(&moments, user) != 0) {
      return Report(Cancelled("the callback asked to stop"), error);
    }
  }
  return CELLM_OK;
}

}  // extern "C"
