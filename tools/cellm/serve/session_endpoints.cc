// /sessions: what is kept by name.
#include <memory>
#include <string>

#include "cellm/serve/endpoints.h"
#include "cellm/serve/openai_request.h"

namespace cellm::tools::serve {
namespace {

constexpr std::string_view kPrefix = "/sessions/";

std::string IdOf(const HttpExchange& exchange) {
  return exchange.request().path.substr(kPrefix.size());
}

int AnswerWithSession(ServerState& state, HttpExchange& exchange, ApiError error,
                      const std::string& id) {
  std::string body;
  if (error.ok()) error = state.sessions.DescribeJson(id, &body);
  return Answer(exchange, error, body);
}

}  // namespace

int ServeSessions(ServerState& state, HttpExchange& exchange) {
  ReplyJson(exchange, state.sessions.ListJson());
  return 200;
}

int ServeSession(ServerState& state, HttpExchange& exchange) {
  return AnswerWithSession(state, exchange, {}, IdOf(exchange));
}

// POST /sessions/ID/suspend, /resume, /fork.
int ServeSessionAction(ServerState& state, HttpExchange& exchange) {
  const std::string rest = IdOf(exchange);
  const size_t slash = rest.find('/');
  const std::string id = rest.substr(0, slash);
  const std::string action = slash == std::string::npos ? "" : rest.substr(slash + 1);
  if (action == "suspend") {
    return AnswerWithSession(state, exchange, state.sessions.Suspend(id), id);
  }
  if (action == "resume") {
    return AnswerWithSession(state, exchange, state.sessions.Resume(id), id);
  }
  if (action != "fork") {
    return Answer(exchange, FromStatus(404, "a session can be suspended, resumed and forked"), {});
  }
  std::unique_ptr<json::Document> body;
  ApiError error = ParseBody(exchange.request().body, &body);
  std::string new_id;
  if (error.ok()) {
    Fields fields(body->root());
    if (!fields.Text("id", &new_id) && fields.ok()) {
      fields.Fail("id", "missing: the name of the new session", "missing_required_parameter");
    } else if (fields.ok() && !IsSessionName(new_id)) {
      fields.Fail("id", "expected 1 to 64 letters, digits, '_', '-' and '.'", "invalid_value");
    }
    error = fields.error();
  }
  if (error.ok()) error = state.sessions.Fork(id, new_id);
  return AnswerWithSession(state, exchange, error, new_id);
}

int ServeDeleteSession(ServerState& state, HttpExchange& exchange) {
  const std::string id = IdOf(exchange);
  return Answer(exchange, state.sessions.Delete(id),
                JsonObject().Add("id", id).Add("deleted", true).Finish());
}

}  // namespace cellm::tools::serve
