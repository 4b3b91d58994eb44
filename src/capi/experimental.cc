// cellm_experimental.h.
#include <algorithm>
#include <vector>

#include "capi/convert_args.h"
#include "capi/handles.h"
#include "cellm/cellm_experimental.h"
#include "engine/engine.h"

using cellm::Cancelled;
using cellm::InvalidArgument;
using cellm::OutOfRange;
using cellm::Serving;
using cellm::capi::EngineState;
using cellm::capi::Find;
using cellm::capi::NotOpen;
using cellm::capi::Report;
using cellm::capi::WriteSized;

extern "C" {

cellm_status cellm_engine_collect_inputs(cellm_engine* engine, uint64_t max_bytes,
                                         cellm_error* error) {
  const std::shared_ptr<EngineState> state = Find(engine);
  if (state == nullptr) return Report(NotOpen("engine", engine), error);
  Serving::Lock lock = state->serving->Acquire();
  return Report(state->serving->RunAlone(lock,
                                         [&] {
                                           state->engine->CollectInputs(max_bytes);
                                           return cellm::OkStatus();
                                         }),
                error);
}

cellm_status cellm_engine_get_inputs(const cellm_engine* engine, cellm_input_moments_fn callback,
                                     void* user, cellm_error* error) {
  const std::shared_ptr<EngineState> state = Find(engine);
  if (state == nullptr) return Report(NotOpen("engine", engine), error);
  if (callback == nullptr) return Report(InvalidArgument("callback is null"), error);
  const cellm::InputStatistics* const inputs = state->engine->inputs();
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

cellm_status cellm_sequence_create(cellm_engine* engine, uint32_t planned_tokens,
                                   cellm_sequence* out, cellm_error* error) {
  const std::shared_ptr<EngineState> state = Find(engine);
  if (state == nullptr) return Report(NotOpen("engine", engine), error);
  if (out == nullptr) return Report(InvalidArgument("cellm_sequence_create: out is null"), error);
  if (planned_tokens > static_cast<uint32_t>(state->engine->context_tokens())) {
    return Report(OutOfRange("a sequence of %u tokens; the context has %d", planned_tokens,
                             state->engine->context_tokens()),
                  error);
  }
  const auto id = state->engine->CreateSequence(static_cast<int32_t>(planned_tokens));
  if (!id.ok()) return Report(id.status(), error);
  *out = {id->slot, id->generation};
  return CELLM_OK;
}

cellm_status cellm_sequence_fork(cellm_engine* engine, cellm_sequence sequence, cellm_sequence* out,
                                 cellm_error* error) {
  const std::shared_ptr<EngineState> state = Find(engine);
  if (state == nullptr) return Report(NotOpen("engine", engine), error);
  if (out == nullptr) return Report(InvalidArgument("cellm_sequence_fork: out is null"), error);
  const auto id = state->engine->Fork({sequence.slot, sequence.generation});
  if (!id.ok()) return Report(id.status(), error);
  *out = {id->slot, id->generation};
  return CELLM_OK;
}

cellm_status cellm_sequence_free(cellm_engine* engine, cellm_sequence sequence,
                                 cellm_error* error) {
  const std::shared_ptr<EngineState> state = Find(engine);
  if (state == nullptr) return Report(NotOpen("engine", engine), error);
  return Report(state->engine->FreeSequence({sequence.slot, sequence.generation}), error);
}

cellm_status cellm_sequences_step(cellm_engine* engine, const cellm_step_item* items, size_t count,
                                  cellm_logits_fn logits, void* user, cellm_error* error) {
  const std::shared_ptr<EngineState> state = Find(engine);
  if (state == nullptr) return Report(NotOpen("engine", engine), error);
  if (items == nullptr && count > 0) {
    return Report(InvalidArgument("cellm_sequences_step: items is null"), error);
  }
  cellm::Engine& inner = *state->engine;
  std::vector<cellm::StepItem> plan;
  for (size_t i = 0; i < count; ++i) {
    if (items[i].ids == nullptr) {
      return Report(InvalidArgument("step item %zu has no ids", i), error);
    }
    plan.push_back({{items[i].sequence.slot, items[i].sequence.generation},
                    {items[i].ids, items[i].count},
                    logits != nullptr ? cellm::LogitRows::kLast : cellm::LogitRows::kNone});
  }
  // A step goes no further than to where older tokens are demoted.
  for (cellm::StepItem& item : plan) {
    for (;;) {
      const auto position = inner.Position(item.sequence);
      if (!position.ok()) return Report(position.status(), error);
      const size_t most = static_cast<size_t>(inner.MostTokens(*position));
      if (item.tokens.size() <= most) break;
      const cellm::StepItem part = {item.sequence, item.tokens.first(most),
                                    cellm::LogitRows::kNone};
      const auto stepped = inner.Step({&part, 1});
      if (!stepped.ok()) return Report(stepped.status(), error);
      item.tokens = item.tokens.subspan(most);
    }
  }
  const auto output = inner.Step(plan);
  if (!output.ok()) return Report(output.status(), error);
  for (size_t i = 0; logits != nullptr && i < count; ++i) {
    if (logits(i, 0, output->logits.row(output->items[i].first_row), inner.info().vocab_size,
               user) != 0) {
      return Report(Cancelled("the callback asked to stop"), error);
    }
  }
  return CELLM_OK;
}

cellm_status cellm_engine_get_work(const cellm_engine* engine, uint32_t depth,
                                   cellm_token_work* work, cellm_error* error) {
  const std::shared_ptr<EngineState> state = Find(engine);
  if (state == nullptr) return Report(NotOpen("engine", engine), error);
  const cellm::Engine& inner = *state->engine;
  const cellm::TokenWork token = inner.MeasureToken();
  cellm_token_work filled = CELLM_TOKEN_WORK_INIT;
  filled.body_bytes = token.body_bytes;
  filled.head_bytes = token.head_bytes;
  filled.body_products = token.body_products;
  filled.head_products = token.head_products;
  for (const cellm::LayerStateSpec& layer : inner.info().layers) {
    filled.state_bytes += 2 * 4 * static_cast<uint64_t>(layer.recurrent_floats);
    if (!layer.stores_kv()) continue;
    const uint64_t tokens =
        layer.window > 0 ? std::min<uint64_t>(depth, static_cast<uint64_t>(layer.window)) : depth;
    filled.cache_bytes +=
        tokens * static_cast<uint64_t>(cellm::KvBytesPerToken(layer, inner.options().kv_type));
  }
  return Report(WriteSized(filled, "work", work), error);
}

}  // extern "C"
