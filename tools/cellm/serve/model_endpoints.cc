// /v1/models, /health, /metrics.
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

}  // namespace cellm::tools::serve
