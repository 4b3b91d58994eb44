#include "cellm/convert_calibrate.h"

#include <algorithm>
#include <cinttypes>

#include "base/hash.h"
#include "cellm/cellm_experimental.h"
#include "cellm/progress.h"
#include "cellm/quality.h"

namespace cellm::tools {
namespace {

constexpr size_t kWindow = 256;
// Windows that the ledger is measured over.
constexpr size_t kMeasuredWindows = 40;

Result<ModelHandle> OpenPlainModel(const std::string& path) {
  cellm_error error = CELLM_ERROR_INIT;
  cellm_model* model = nullptr;
  if (cellm_model_open(path.data(), path.size(), nullptr, &model, &error) != CELLM_OK) {
    return ToStatus(error);
  }
  return ModelHandle(model);
}

// Products and K/V in float, so that what is measured is the weights.
Result<EngineHandle> OpenFloatEngine(cellm_model* model) {
  cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
  options.activations = CELLM_ACTIVATIONS_F32;
  options.kv = CELLM_KV_F32;
  options.context_tokens = kWindow;
  options.chunk_tokens = kWindow;
  options.max_sessions = 1;
  cellm_error error = CELLM_ERROR_INIT;
  cellm_engine* engine = nullptr;
  if (cellm_engine_open(model, &options, &engine, &error) != CELLM_OK) return ToStatus(error);
  return EngineHandle(engine);
}

int32_t AddInput(const cellm_input_moments* moments, void* user) {
  const size_t cols = static_cast<size_t>(moments->columns);
  const size_t size = moments->is_diagonal != 0 ? cols : cols * cols;
  static_cast<format::Calibration*>(user)->inputs.push_back(
      {std::string(moments->tensor.data, moments->tensor.bytes),
       moments->matrix,
       moments->columns,
       {moments->moments, size}});
  return 0;
}

int32_t Ignore(size_t, size_t, const float*, int32_t, void*) { return 0; }

}  // namespace

Result<Calibrator> Calibrator::Run(const std::string& model_path, const std::string& text_path,
                                   uint64_t most_tokens, uint64_t max_bytes, bool quiet) {
  Calibrator run;
  CELLM_ASSIGN_OR_RETURN(const std::string text, ReadInput(text_path));
  run.text_hash_ = HashXxh3(text);
  CELLM_ASSIGN_OR_RETURN(run.model_, OpenPlainModel(model_path));
  CELLM_ASSIGN_OR_RETURN(run.ids_, TokenizeText(run.model_.get(), text));
  const size_t windows =
      std::min<size_t>(run.ids_.size(), static_cast<size_t>(most_tokens)) / kWindow;
  if (windows == 0) {
    return OutOfRange("%s: the text has %zu tokens; calibration needs %zu or more",
                      text_path.c_str(), run.ids_.size(), kWindow);
  }
  CELLM_ASSIGN_OR_RETURN(run.engine_, OpenFloatEngine(run.model_.get()));
  cellm_error error = CELLM_ERROR_INIT;
  if (cellm_engine_collect_inputs(run.engine_.get(), max_bytes, &error) != CELLM_OK) {
    return ToStatus(error);
  }
  Progress progress("calibrate", quiet);
  for (size_t w = 0; w < windows; ++w) {
    cellm_token_list list = CELLM_TOKEN_LIST_INIT;
    list.ids = run.ids_.data() + w * kWindow;
    list.count = kWindow;
    if (cellm_engine_evaluate(run.engine_.get(), &list, 1, Ignore, nullptr, &error) != CELLM_OK) {
      return ToStatus(error);
    }
    progress.Update(w + 1, windows);
  }
  progress.Clear();
  run.tokens_ = windows * kWindow;
  if (cellm_engine_get_inputs(run.engine_.get(), AddInput, &run.inputs_, &error) != CELLM_OK) {
    return ToStatus(error);
  }
  return run;
}

Result<std::string> Calibrator::MeasureFile(const std::string& path, bool quiet) {
  inputs_.inputs.clear();
  cellm_error error = CELLM_ERROR_INIT;
  if (cellm_engine_collect_inputs(engine_.get(), 0, &error) != CELLM_OK) return ToStatus(error);
  CELLM_ASSIGN_OR_RETURN(const ModelHandle model, OpenPlainModel(path));
  CELLM_ASSIGN_OR_RETURN(const EngineHandle engine, OpenFloatEngine(model.get()));
  Progress progress("measure", quiet);
  const Result<TextQuality> quality =
      MeasureText(engine.get(), engine_.get(), ids_, kWindow, kMeasuredWindows,
                  [&progress](uint64_t done, uint64_t all) { progress.Update(done, all); });
  progress.Clear();
  if (!quality.ok()) return quality.status();
  return JsonObject()
      .Add("text_xxh3", StrFormat("%016" PRIx64, text_hash_))
      .Add("calibration_tokens", tokens_)
      .Add("predicted_tokens", quality->predicted)
      .Add("perplexity", quality->perplexity)
      .Add("source_perplexity", quality->reference_perplexity)
      .Add("kl_divergence", quality->divergence)
      .Add("same_top", quality->same_top)
      .Finish();
}

}  // namespace cellm::tools
