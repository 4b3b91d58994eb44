#ifndef CELLM_TOOLS_CELLM_SERVE_ENDPOINTS_H_
#define CELLM_TOOLS_CELLM_SERVE_ENDPOINTS_H_

// The endpoints, one function each, and the table that finds them. A function replies in every case
// and returns the status that it replied with, for the counters.

#include "cellm/serve/http_server.h"
#include "cellm/serve/server_state.h"

namespace cellm::tools::serve {

using Endpoint = int (*)(ServerState& state, HttpExchange& exchange);

// chat.cc, completions.cc
int ServeChat(ServerState& state, HttpExchange& exchange);
int ServeCompletion(ServerState& state, HttpExchange& exchange);
// model_endpoints.cc
int ServeModels(ServerState& state, HttpExchange& exchange);
int ServeHealth(ServerState& state, HttpExchange& exchange);
int ServeMetrics(ServerState& state, HttpExchange& exchange);
int ServeProps(ServerState& state, HttpExchange& exchange);
// text_endpoints.cc
int ServeTokenize(ServerState& state, HttpExchange& exchange);
int ServeDetokenize(ServerState& state, HttpExchange& exchange);
int ServeApplyTemplate(ServerState& state, HttpExchange& exchange);
int ServeCountTokens(ServerState& state, HttpExchange& exchange);
// embeddings.cc
int ServeEmbeddings(ServerState& state, HttpExchange& exchange);
// responses.cc
int ServeResponses(ServerState& state, HttpExchange& exchange);
// session_endpoints.cc
int ServeSessions(ServerState& state, HttpExchange& exchange);
int ServeSession(ServerState& state, HttpExchange& exchange);
int ServeSessionAction(ServerState& state, HttpExchange& exchange);
int ServeDeleteSession(ServerState& state, HttpExchange& exchange);

// Finds the endpoint and calls it: authentication, CORS, methods and content types are checked
// here, for all of them.
void Route(ServerState& state, HttpExchange& exchange);

}  // namespace cellm::tools::serve

#endif  // CELLM_TOOLS_CELLM_SERVE_ENDPOINTS_H_
