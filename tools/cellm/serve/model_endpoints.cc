// /v1/models, /health, /metrics, /props.
#include <string>
#include <vector>

#include "cellm/common.h"
#include "cellm/serve/endpoints.h"

namespace cellm::tools::serve {
namespace {

std::string DescribeModel(const ModelListing& model) {
  return JsonObject()
      .Add("id", model.name)
      .Add("object", "model")
      .Add("created", model.created)
      .Add("owned_by", "local")
      .Add("loaded", model.open)
      .Finish();
}

constexpr std::string_view kModelsPrefix = "/v1/models/";

}  // namespace

int ServeModels(ServerState& state, HttpExchange& exchange) {
  const std::string& path = exchange.request().path;
  if (path.starts_with(kModelsPrefix)) {
    const std::string name = path.substr(kModelsPrefix.size());
    for (const ModelListing& model : state.models.List()) {
      if (model.name != name) continue;
      ReplyJson(exchange, DescribeModel(model));
      return 200;
    }
    ReplyError(exchange, NotFoundError("model_not_found", "no model of this name is served here"));
    return 404;
  }
  std::string data = "[";
  for (const ModelListing& model : state.models.List()) {
    if (data.size() > 1) data += ", ";
    data += DescribeModel(model);
  }
  ReplyJson(exchange, JsonObject().Add("object", "list").AddRaw("data", data + "]").Finish());
  return 200;
}

int ServeHealth(ServerState&, HttpExchange& exchange) {
  ReplyJson(exchange, JsonObject().Add("status", "ok").Finish());
  return 200;
}

int ServeMetrics(ServerState& state, HttpExchange& exchange) {
  const int connections = state.http == nullptr ? 0 : state.http->connections();
  exchange.Reply(200, "text/plain; version=0.0.4; charset=utf-8",
                 state.metrics.Text(state.models, connections, state.sessions.live()));
  return 200;
}

// What this server is and what its open models can do: for pages and programs that adapt to it.
int ServeProps(ServerState& state, HttpExchange& exchange) {
  std::string models;
  for (const ModelLease& model : state.models.Open()) {
    std::vector<char> info;
    size_t bytes = 0;
    (void)cellm_model_get_info_json(model->model.get(), nullptr, 0, &bytes, nullptr);
    info.resize(bytes);
    if (cellm_model_get_info_json(model->model.get(), info.data(), info.size(), &bytes, nullptr) !=
        CELLM_OK) {
      continue;
    }
    cellm_engine_info engine = CELLM_ENGINE_INFO_INIT;
    cellm_memory memory = CELLM_MEMORY_INIT;
    (void)cellm_engine_get_info(model->engine.get(), &engine, nullptr);
    (void)cellm_engine_get_memory(model->engine.get(), &memory, nullptr);
    JsonObject bytes_by_class;
    bytes_by_class.Add("weights", memory.weights)
        .Add("cache", memory.cache)
        .Add("activations", memory.activations)
        .Add("tokenizer", memory.tokenizer)
        .Add("other", memory.other)
        .Add("used", memory.used)
        .Add("peak", memory.peak);
    if (!models.empty()) models += ", ";
    models += JsonObject()
                  .Add("name", model->name)
                  .Add("context_tokens", uint64_t{model->context_tokens})
                  .Add("threads", engine.threads)
                  .Add("kernels", engine.kernels)
                  .AddRaw("memory", bytes_by_class.Finish())
                  .AddRaw("weights", WeightsJson(model->engine.get()))
                  .AddRaw("info", std::string_view(info.data(), info.size()))
                  .Finish();
  }
  ReplyJson(exchange, JsonObject()
                          .Add("version", cellm_version_string())
                          .Add("started", state.started_s)
                          .Add("max_requests", uint64_t{state.options.max_requests})
                          .Add("requests", state.metrics.generating.load())
                          .Add("sessions", static_cast<uint64_t>(state.sessions.live()))
                          .AddRaw("models", Bracketed(models))
                          .Finish());
  return 200;
}

}  // namespace cellm::tools::serve
