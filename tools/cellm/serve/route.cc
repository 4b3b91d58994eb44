// Which function answers which path, and what holds for all of them.
#include <algorithm>
#include <string>

#include "cellm/serve/endpoints.h"
#include "cellm/serve/page_assets.h"

namespace cellm::tools::serve {
namespace {

struct RouteRow {
  std::string_view method;
  std::string_view path;  // a trailing '/' takes everything below it
  Endpoint endpoint;
  bool open = false;  // without the key
};

constexpr RouteRow kRoutes[] = {
    {"POST", "/v1/chat/completions", ServeChat},
    {"POST", "/v1/completions", ServeCompletion},
    {"GET", "/v1/models", ServeModels},
    {"GET", "/v1/models/", ServeModels},
    {"GET", "/health", ServeHealth, true},
    {"GET", "/metrics", ServeMetrics},
    {"GET", "/props", ServeProps},
    {"POST", "/v1/embeddings", ServeEmbeddings},
    {"POST", "/v1/responses", ServeResponses},
    {"POST", "/tokenize", ServeTokenize},
    {"POST", "/detokenize", ServeDetokenize},
    {"POST", "/apply-template", ServeApplyTemplate},
    {"POST", "/count_tokens", ServeCountTokens},
    {"GET", "/sessions", ServeSessions},
    {"GET", "/sessions/", ServeSession},
    {"POST", "/sessions/", ServeSessionAction},
    {"DELETE", "/sessions/", ServeDeleteSession},
};

bool Matches(const RouteRow& row, std::string_view path) {
  return row.path.back() == '/' ? path.size() > row.path.size() && path.starts_with(row.path)
                                : path == row.path;
}

// Takes as long for a wrong key as for a right one of the same length.
bool SameText(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  int difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

bool HasKey(const ServerState& state, const HttpRequest& request) {
  if (state.options.api_key.empty()) return true;
  std::string_view given = request.Header("authorization");
  const std::string_view scheme = "Bearer ";
  if (given.size() > scheme.size() && (given[0] == 'B' || given[0] == 'b') &&
      given.substr(1, scheme.size() - 1) == scheme.substr(1)) {
    given.remove_prefix(scheme.size());
  } else {
    given = request.Header("x-api-key");
  }
  return SameText(given, state.options.api_key);
}

// "localhost", "127.0.0.1" and "[::1]", with or without a port. HTTP/1.0 clients may name none.
bool NamesThisMachine(std::string_view host) {
  if (host.starts_with("[::1]")) return host.size() == 5 || host[5] == ':';
  host = host.substr(0, host.find(':'));
  return host.empty() || host == "localhost" || host.ends_with(".localhost") ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == host.npos);
}

// A browser sends other types across origins without asking first; nobody needs them here.
bool IsJson(const HttpRequest& request) {
  std::string type(request.Header("content-type").substr(0, 16));
  std::transform(type.begin(), type.end(), type.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return type == "application/json";
}

void AddCors(const ServerState& state, HttpExchange& exchange) {
  if (state.options.cors.empty()) return;
  exchange.AddHeader("Access-Control-Allow-Origin", state.options.cors);
  if (state.options.cors != "*") exchange.AddHeader("Vary", "Origin");
}

int Preflight(HttpExchange& exchange) {
  exchange.AddHeader("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
  // Clients send headers of their own (x-stainless-...); those that ask get what they ask for.
  const std::string_view asked = exchange.request().Header("access-control-request-headers");
  exchange.AddHeader("Access-Control-Allow-Headers",
                     asked.empty() ? std::string_view("Authorization, Content-Type") : asked);
  exchange.AddHeader("Access-Control-Max-Age", "600");
  exchange.Reply(204, {}, {});
  return 204;
}

int ServeAsset(HttpExchange& exchange, const PageAsset& asset) {
  const HttpRequest& request = exchange.request();
  exchange.AddHeader("ETag", asset.etag);
  exchange.AddHeader("Cache-Control", "no-cache");
  exchange.AddHeader("X-Content-Type-Options", "nosniff");
  // Nothing from elsewhere, and nobody else's page around this one.
  exchange.AddHeader("Content-Security-Policy",
                     "default-src 'self'; frame-ancestors 'none'; base-uri 'none'");
  if (request.Header("if-none-match") == asset.etag) {
    exchange.Reply(304, asset.content_type, {});
    return 304;
  }
  exchange.Reply(200, asset.content_type, asset.bytes);
  return 200;
}

int Dispatch(ServerState& state, HttpExchange& exchange, std::string_view* route) {
  const HttpRequest& request = exchange.request();
  if (state.options.local_only && !NamesThisMachine(request.Header("host"))) {
    ReplyError(exchange, FromStatus(403,
                                    "this server answers to localhost alone; with --api-key or "
                                    "another --host it answers to every name"));
    return 403;
  }
  AddCors(state, exchange);
  if (request.method == "OPTIONS") return Preflight(exchange);
  const bool reads = request.method == "GET" || request.method == "HEAD";
  const RouteRow* other_method = nullptr;
  for (const RouteRow& row : kRoutes) {
    if (!Matches(row, request.path)) continue;
    if (row.method != request.method && !(row.method == "GET" && reads)) {
      other_method = &row;
      continue;
    }
    *route = row.path;
    if (!row.open && !HasKey(state, request)) {
      ReplyError(exchange, FromStatus(401, "an API key is needed: Authorization: Bearer KEY"));
      return 401;
    }
    if (!request.body.empty() && !IsJson(request)) {
      ReplyError(exchange, FromStatus(415, "send JSON: Content-Type: application/json"));
      return 415;
    }
    return row.endpoint(state, exchange);
  }
  if (other_method != nullptr) {
    *route = other_method->path;
    exchange.AddHeader("Allow", other_method->method);
    ReplyError(exchange, FromStatus(405, "this path takes " + std::string(other_method->method)));
    return 405;
  }
  for (const PageAsset& asset : PageAssets()) {
    if (!reads || asset.path != request.path) continue;
    *route = "page";
    return ServeAsset(exchange, asset);
  }
  ReplyError(exchange, FromStatus(404, "nothing is here; docs/server.md lists the paths"));
  return 404;
}

}  // namespace

void Route(ServerState& state, HttpExchange& exchange) {
  std::string_view route = "other";
  const int status = Dispatch(state, exchange, &route);
  state.metrics.CountRequest(route, status);
}

}  // namespace cellm::tools::serve
