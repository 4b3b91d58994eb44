#ifndef CELLM_TOOLS_CELLM_SERVE_SERVER_STATE_H_
#define CELLM_TOOLS_CELLM_SERVE_SERVER_STATE_H_

// What all requests share, and the small things that every endpoint does.

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cellm/serve/api_error.h"
#include "cellm/serve/generation.h"
#include "cellm/serve/http_server.h"
#include "cellm/serve/metrics.h"
#include "cellm/serve/models.h"
#include "cellm/serve/sessions.h"

namespace cellm::tools::serve {

struct ServerOptions {
  // Only for programs of this machine: requests must name it as their host, so that a page from
  // elsewhere whose name was made to point here (DNS rebinding) is refused.
  bool local_only = false;
  std::string api_key;          // "": everybody may
  std::string cors;             // value of Access-Control-Allow-Origin; "": no such header
  uint32_t max_requests = 256;  // being answered or waiting for a model
  GenerationSettings generation;
};

struct ServerState {
  ServerState(ServerOptions given, std::vector<ModelSpec> specs, const Arguments& arguments,
              uint64_t memory_bytes, uint32_t parallel, std::string session_folder,
              size_t most_sessions)
      : options(std::move(given)),
        models(std::move(specs), arguments, memory_bytes, parallel),
        sessions(std::move(session_folder), most_sessions, &models) {}

  ServerOptions options;
  Models models;
  Sessions sessions;
  Metrics metrics;
  HttpServer* http = nullptr;  // for its numbers
  int64_t started_s = 0;       // Unix time

  std::mutex notes_mutex;
  std::set<std::string> noted;  // guarded by notes_mutex

  // A line on stderr, the first time that this is said.
  void NoteOnce(const std::string& text);
  // The same for fields that mean nothing here.
  void NoteUnknown(std::string_view route, const std::vector<std::string>& names);
};

// A place among the requests that wait for models; given back at destruction.
class Admission {
 public:
  explicit Admission(ServerState* state);
  ~Admission();
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;
  // 429 when there was none, with the time after which one should be free.
  const ApiError& error() const { return error_; }

 private:
  ServerState* state_;
  ApiError error_;
};

// Replies with an error (and counts nothing: routing does).
void ReplyError(HttpExchange& exchange, const ApiError& error);
void ReplyJson(HttpExchange& exchange, std::string_view body);
// Either; returns the status.
int Answer(HttpExchange& exchange, const ApiError& error, std::string_view body);

// "[entries]", from entries that are joined already.
std::string Bracketed(std::string_view entries);

// "PREFIX-" and 24 random hexadecimal digits.
std::string NewId(std::string_view prefix);
int64_t UnixTime();

// The usage object of the OpenAI API.
std::string UsageJson(uint64_t prompt, uint64_t cached, uint64_t generated, uint64_t reasoning);
// Where the time of a reply went, with the names that clients of other local servers know.
std::string TimingsJson(const cellm_receipt& receipt);
// "stop", "length", ...
std::string_view FinishReason(int32_t finish);

}  // namespace cellm::tools::serve

#endif  // CELLM_TOOLS_CELLM_SERVE_SERVER_STATE_H_
