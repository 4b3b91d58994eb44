#include "cellm/convert_check.h"

#include "cellm/common.h"

namespace cellm::tools {

Status CheckLoads(void* user, const std::string& draft_path) {
  const std::string& source = *static_cast<const std::string*>(user);
  cellm_error error = CELLM_ERROR_INIT;
  cellm_model* model_pointer = nullptr;
  cellm_model_options model_options = CELLM_MODEL_OPTIONS_INIT;
  model_options.weights =
      CELLM_WEIGHTS_MAP;  // converting takes no memory that grows with the model
  cellm_status status = cellm_model_open(draft_path.data(), draft_path.size(), &model_options,
                                         &model_pointer, &error);
  const ModelHandle model(model_pointer);
  cellm_engine* engine_pointer = nullptr;
  if (status == CELLM_OK) {
    cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
    options.context_tokens = 1;  // the weights are what counts
    options.max_sessions = 1;
    status = cellm_engine_open(model.get(), &options, &engine_pointer, &error);
  }
  const EngineHandle engine(engine_pointer);
  if (status == CELLM_OK) return OkStatus();
  std::string message = error.message;
  for (size_t at = 0; (at = message.find(draft_path, at)) != std::string::npos;) {
    message.replace(at, draft_path.size(), source);
    at += source.size();
  }
  return Status(ToStatus(error).code(), std::move(message))
      .WithContext("the file would not load, so it is not written");
}

}  // namespace cellm::tools
