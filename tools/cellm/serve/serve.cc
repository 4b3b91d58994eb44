// cellm serve: the command. Reads the flags, opens the port and the first model, serves until it is
// told to stop, and then ends in order: no new connections, replies finished, sessions suspended.
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "cellm/commands.h"
#include "cellm/common.h"
#include "cellm/serve/endpoints.h"
#include "cellm/serve/server_state.h"

namespace cellm::tools {
namespace {

using serve::HttpOptions;
using serve::HttpServer;

// How often the process was told to stop: once ends in order, twice at once.
volatile int32_t stop_count = 0;

void OnStopSignal(int) { stop_count = stop_count + 1; }

// InvalidArgument outside [least, most].
Status ReadBounded(const Arguments& arguments, const char* name, int64_t least, int64_t most,
                   int64_t otherwise, int64_t* out) {
  *out = arguments.Integer(name, otherwise);
  if (*out >= least && *out <= most) return OkStatus();
  return InvalidArgument("--%s is %lld; it must be between %lld and %lld", name,
                         static_cast<long long>(*out), static_cast<long long>(least),
                         static_cast<long long>(most));
}

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

struct ServeFlags {
  HttpOptions http;
  serve::ServerOptions options;
  uint64_t memory_bytes = 0;
  uint32_t parallel = 0;
  std::string session_folder;
  size_t most_sessions = 0;
  int64_t grace_ms = 0;
};

Result<ServeFlags> ReadFlags(const Arguments& arguments) {
  ServeFlags flags;
  int64_t value = 0;
  flags.http.host = arguments.Text("host", flags.http.host);
  CELLM_RETURN_IF_ERROR(ReadBounded(arguments, "port", 0, 65535, flags.http.port, &value));
  flags.http.port = static_cast<int>(value);
  CELLM_RETURN_IF_ERROR(
      ReadBounded(arguments, "max-connections", 1, 65536, flags.http.max_connections, &value));
  flags.http.max_connections = static_cast<int>(value);
  if (arguments.Has("max-body")) {
    CELLM_ASSIGN_OR_RETURN(flags.http.max_body_bytes,
                           ParseSize("max-body", arguments.Text("max-body")));
  }
  CELLM_RETURN_IF_ERROR(
      ReadBounded(arguments, "max-requests", 1, 65536, flags.options.max_requests, &value));
  flags.options.max_requests = static_cast<uint32_t>(value);
  CELLM_RETURN_IF_ERROR(ReadBounded(arguments, "parallel", 1, 4096, 64, &value));
  flags.parallel = static_cast<uint32_t>(value);
  CELLM_RETURN_IF_ERROR(ReadBounded(arguments, "max-sessions", 1, 65536, 64, &value));
  flags.most_sessions = static_cast<size_t>(value);
  CELLM_RETURN_IF_ERROR(
      ReadBounded(arguments, "ping-ms", 50, 600'000, flags.options.generation.ping_ms, &value));
  flags.options.generation.ping_ms = value;
  CELLM_RETURN_IF_ERROR(ReadBounded(arguments, "grace", 0, 3600, 30, &value));
  flags.grace_ms = value * 1000;
  if (arguments.Has("memory")) {
    CELLM_ASSIGN_OR_RETURN(flags.memory_bytes, ParseSize("memory", arguments.Text("memory")));
    if (flags.memory_bytes == 0) return InvalidArgument("--memory is 0; nothing runs in that");
  }
  flags.options.cors = arguments.Text("cors");
  if (flags.options.cors.find_first_of("\r\n") != std::string::npos) {
    return InvalidArgument("--cors: a header value has no line breaks");
  }
  flags.options.api_key = arguments.Text("api-key");
  const char* const key = std::getenv("CELLM_API_KEY");
  if (!arguments.Has("api-key") && key != nullptr) flags.options.api_key = key;
  if (arguments.Has("api-key") && flags.options.api_key.empty()) {
    return InvalidArgument("--api-key is empty");  // an unset variable must not open the server
  }
  flags.options.local_only = IsLoopback(flags.http.host) && flags.options.api_key.empty();
  flags.session_folder = arguments.Text("sessions");
  if (!flags.session_folder.empty()) {
    std::error_code error;
    std::filesystem::create_directories(flags.session_folder, error);
    if (error) {
      return IoError("--sessions %s: %s", flags.session_folder.c_str(), error.message().c_str());
    }
  }
  return flags;
}

Result<std::vector<serve::ModelSpec>> FindModels(const Arguments& arguments) {
  std::vector<std::string> given = arguments.All("model");
  if (given.empty()) {
    CELLM_ASSIGN_OR_RETURN(const std::string path, FindModelPath(""));
    given.push_back(path);
  }
  if (given.size() > 1 && arguments.Has("tokenizer")) {
    return InvalidArgument("--tokenizer needs a single --model");
  }
  return serve::ReadModelSpecs(given);
}

Status Serve(const Arguments& arguments) {
  CELLM_ASSIGN_OR_RETURN(const ServeFlags flags, ReadFlags(arguments));
  CELLM_ASSIGN_OR_RETURN(std::vector<serve::ModelSpec> specs, FindModels(arguments));
  serve::ServerState state(flags.options, std::move(specs), arguments, flags.memory_bytes,
                           flags.parallel, flags.session_folder, flags.most_sessions);
  state.started_s = serve::UnixTime();
  state.models.set_release_idle(
      [&state](const std::string& keep) { state.sessions.ReleaseIdle(keep); });

  struct sigaction action = {};
  action.sa_handler = OnStopSignal;
  (void)sigaction(SIGINT, &action, nullptr);
  (void)sigaction(SIGTERM, &action, nullptr);

  // The port first: that it is taken should not be found out after a model was read.
  CELLM_ASSIGN_OR_RETURN(
      const std::unique_ptr<HttpServer> http,
      HttpServer::Open(
          flags.http, [&state](serve::HttpExchange& exchange) { serve::Route(state, exchange); },
          [](int status, std::string_view message) {
            return serve::FromStatus(status, message).Body();
          }));
  state.http = http.get();
  CELLM_RETURN_IF_ERROR(state.models.OpenFirst());
  const bool v6 = flags.http.host.find(':') != std::string::npos;
  std::fprintf(stderr, "serve: http://%s%s%s:%d%s\n", v6 ? "[" : "", flags.http.host.c_str(),
               v6 ? "]" : "", http->port(),
               flags.options.api_key.empty() ? "" : " (with an API key)");
  if (!IsLoopback(flags.http.host) && flags.options.api_key.empty()) {
    std::fprintf(stderr, "serve: everybody who reaches this address may use it; see --api-key\n");
  }
  http->Serve(&stop_count);
  std::fprintf(stderr, "serve: stopping; replies under way have %lld s (again to stop at once)\n",
               static_cast<long long>(flags.grace_ms / 1000));
  if (!http->Drain(flags.grace_ms, &stop_count)) {
    std::fprintf(stderr, "serve: %d connections are broken off\n", http->connections());
  }
  http->Stop();
  state.sessions.ReleaseIdle({});
  return OkStatus();
}

}  // namespace

int RunServe(const Arguments& arguments) {
  const Status status = Serve(arguments);
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace cellm::tools
