#include "cellm/serve/server_state.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <random>

namespace cellm::tools::serve {
namespace {

// Notes that are remembered; beyond, nothing more is said.
constexpr size_t kMaxNotes = 1000;
constexpr int kMaxRetrySeconds = 60;
constexpr double kNsPerMs = 1e6;

}  // namespace

void ServerState::NoteOnce(const std::string& text) {
  {
    const std::lock_guard<std::mutex> lock(notes_mutex);
    if (noted.size() >= kMaxNotes || !noted.insert(text).second) return;
  }
  std::fprintf(stderr, "serve: %s\n", text.c_str());
}

void ServerState::NoteUnknown(std::string_view route, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    // Names are the client's: nothing but plain characters reaches a terminal.
    std::string shown = name.substr(0, 60);
    std::replace_if(
        shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    NoteOnce(std::string(route) + ": the field '" + shown + "' is not known here and is ignored");
  }
}

Admission::Admission(ServerState* state) : state_(state) {
  const int64_t before = state_->metrics.generating.fetch_add(1);
  if (before < int64_t{state_->options.max_requests}) return;
  // When all that wait are served at the pace of late, a place is free after one request's time.
  const double seconds = std::ceil(state_->metrics.mean_request_seconds());
  error_ = TooBusy("too many requests are waiting; try again later",
                   static_cast<int>(std::clamp(seconds, 1.0, double{kMaxRetrySeconds})));
}

Admission::~Admission() { state_->metrics.generating.fetch_sub(1); }

void ReplyError(HttpExchange& exchange, const ApiError& error) {
  if (error.retry_after_s > 0) {
    exchange.AddHeader("Retry-After", std::to_string(error.retry_after_s));
  }
  if (error.status == 401) exchange.AddHeader("WWW-Authenticate", "Bearer");
  exchange.Reply(error.status, "application/json", error.Body());
}

void ReplyJson(HttpExchange& exchange, std::string_view body) {
  exchange.Reply(200, "application/json", body);
}

int Answer(HttpExchange& exchange, const ApiError& error, std::string_view body) {
  if (error.ok()) {
    ReplyJson(exchange, body);
    return 200;
  }
  ReplyError(exchange, error);
  return error.status;
}

std::string Bracketed(std::string_view entries) {
  std::string list = "[";
  return list.append(entries).append("]");
}

std::string NewId(std::string_view prefix) {
  static std::mutex mutex;
  static std::mt19937_64 generator{std::random_device{}()};
  const std::lock_guard<std::mutex> lock(mutex);
  const uint64_t high = generator();
  const uint64_t low = generator();
  return std::string(prefix) + StrFormat("-%016llx%08llx", static_cast<unsigned long long>(high),
                                         static_cast<unsigned long long>(low >> 32));
}

int64_t UnixTime() { return int64_t{std::time(nullptr)}; }

std::string UsageJson(uint64_t prompt, uint64_t cached, uint64_t generated, uint64_t reasoning) {
  JsonObject usage;
  usage.Add("prompt_tokens", prompt)
      .Add("completion_tokens", generated)
      .Add("total_tokens", prompt + generated)
      .AddRaw("prompt_tokens_details", JsonObject().Add("cached_tokens", cached).Finish())
      .AddRaw("completion_tokens_details",
              JsonObject().Add("reasoning_tokens", reasoning).Finish());
  return usage.Finish();
}

std::string TimingsJson(const cellm_receipt& receipt) {
  const auto ms = [](uint64_t ns) { return static_cast<double>(ns) / kNsPerMs; };
  JsonObject timings;
  timings.Add("queue_ms", ms(receipt.queue_ns))
      .Add("prompt_n",
           receipt.prompt_tokens - std::min(receipt.prompt_tokens, receipt.reused_tokens))
      .Add("cache_n", receipt.reused_tokens)
      .Add("prompt_ms", ms(receipt.prompt_ns))
      .Add("prompt_per_second", receipt.prompt_tokens_per_second)
      .Add("first_token_ms", ms(receipt.first_token_ns))
      .Add("predicted_n", receipt.generated_tokens)
      .Add("predicted_ms", ms(receipt.decode_ns))
      .Add("predicted_per_second", receipt.decode_tokens_per_second)
      .Add("preemptions", receipt.preemptions)
      .Add("seed", receipt.seed);
  return timings.Finish();
}

std::string_view FinishReason(int32_t finish) {
  switch (finish) {
    case CELLM_FINISH_LENGTH:
    case CELLM_FINISH_CONTEXT:
      return "length";
    default:
      return "stop";
  }
}

}  // namespace cellm::tools::serve
