#include "cellm/serve/metrics.h"

#include <algorithm>
#include <cinttypes>

#include "base/status.h"

namespace cellm::tools::serve {
namespace {

constexpr double kNsPerSecond = 1e9;
// Weight of the newest request in the mean: the last dozen count.
constexpr double kMeanWeight = 0.1;

void Head(std::string_view name, std::string_view type, std::string_view help, std::string* out) {
  out->append("# HELP ").append(name).append(" ").append(help).append("\n# TYPE ");
  out->append(name).append(" ").append(type).append("\n");
}

void One(std::string_view name, std::string_view type, std::string_view help, uint64_t value,
         std::string* out) {
  Head(name, type, help, out);
  out->append(name).append(StrFormat(" %" PRIu64 "\n", value));
}

// A label value: backslash, quote and line feed are escaped.
std::string Label(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out + "\"";
}

struct ModelNumbers {
  std::string label;
  cellm_memory memory = CELLM_MEMORY_INIT;
  cellm_engine_stats stats = CELLM_ENGINE_STATS_INIT;
};

void PerModel(const std::vector<ModelNumbers>& models, std::string_view name, std::string_view type,
              std::string_view help, uint64_t (*value)(const ModelNumbers&), std::string* out) {
  Head(name, type, help, out);
  for (const ModelNumbers& model : models) {
    out->append(name).append("{model=").append(model.label);
    out->append(StrFormat("} %" PRIu64 "\n", value(model)));
  }
}

void MemoryByClass(const std::vector<ModelNumbers>& models, std::string* out) {
  const std::string_view name = "cellm_memory_bytes";
  Head(name, "gauge", "Bytes that an engine holds, by class.", out);
  for (const ModelNumbers& model : models) {
    const std::pair<const char*, uint64_t> classes[] = {{"weights", model.memory.weights},
                                                        {"cache", model.memory.cache},
                                                        {"activations", model.memory.activations},
                                                        {"tokenizer", model.memory.tokenizer},
                                                        {"other", model.memory.other}};
    for (const auto& [label, bytes] : classes) {
      out->append(name).append("{model=").append(model.label).append(",class=\"").append(label);
      out->append(StrFormat("\"} %" PRIu64 "\n", bytes));
    }
  }
}

}  // namespace

void Histogram::Add(double seconds) {
  size_t bucket = 0;
  while (bucket < kBounds.size() && seconds > kBounds[bucket]) ++bucket;
  counts_[bucket].fetch_add(1, std::memory_order_relaxed);
  sum_ns_.fetch_add(static_cast<uint64_t>(std::max(seconds, 0.0) * kNsPerSecond),
                    std::memory_order_relaxed);
}

void Histogram::Write(std::string_view name, std::string_view help, std::string* out) const {
  Head(name, "histogram", help, out);
  uint64_t below = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i].load(std::memory_order_relaxed);
    const std::string bound = i < kBounds.size() ? StrFormat("%g", kBounds[i]) : "+Inf";
    out->append(name).append("_bucket{le=\"").append(bound);
    out->append(StrFormat("\"} %" PRIu64 "\n", below));
  }
  const double sum = static_cast<double>(sum_ns_.load(std::memory_order_relaxed)) / kNsPerSecond;
  out->append(name).append(StrFormat("_sum %.9g\n", sum));
  out->append(name).append(StrFormat("_count %" PRIu64 "\n", below));
}

void Metrics::CountRequest(std::string_view route, int status) {
  if (status == 429) refused.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard<std::mutex> lock(mutex_);
  ++requests_[{std::string(route), status}];
}

void Metrics::CountReply(const cellm_receipt& receipt) {
  replies_.fetch_add(1, std::memory_order_relaxed);
  prompt_tokens_.fetch_add(receipt.prompt_tokens, std::memory_order_relaxed);
  reused_tokens_.fetch_add(receipt.reused_tokens, std::memory_order_relaxed);
  generated_tokens_.fetch_add(receipt.generated_tokens, std::memory_order_relaxed);
  queue_.Add(static_cast<double>(receipt.queue_ns) / kNsPerSecond);
  const double first = static_cast<double>(receipt.first_token_ns) / kNsPerSecond;
  const double rest = static_cast<double>(receipt.decode_ns) / kNsPerSecond;
  if (receipt.generated_tokens > 0) first_token_.Add(first);
  if (receipt.generated_tokens > 1) {
    token_.Add(rest / static_cast<double>(receipt.generated_tokens - 1));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  mean_seconds_ += kMeanWeight * (first + rest - mean_seconds_);
}

double Metrics::mean_request_seconds() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return mean_seconds_;
}

std::string Metrics::Text(const Models& models, int connections, size_t live_sessions) const {
  std::string out;
  {
    Head("cellm_http_requests_total", "counter", "Requests that were answered.", &out);
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [key, count] : requests_) {
      out += "cellm_http_requests_total{route=" + Label(key.first) +
             StrFormat(",status=\"%d\"} %" PRIu64 "\n", key.second, count);
    }
  }
  const auto load = [](const std::atomic<uint64_t>& value) {
    return value.load(std::memory_order_relaxed);
  };
  One("cellm_http_connections", "gauge", "Open connections.",
      static_cast<uint64_t>(std::max(connections, 0)), &out);
  One("cellm_requests_generating", "gauge", "Requests that wait for a model or are being answered.",
      static_cast<uint64_t>(std::max<int64_t>(generating.load(), 0)), &out);
  One("cellm_requests_refused_total", "counter", "Requests that were answered 429.", load(refused),
      &out);
  One("cellm_clients_departed_total", "counter", "Clients that left before their reply had ended.",
      load(departed), &out);
  One("cellm_replies_total", "counter", "Replies that were produced.", load(replies_), &out);
  One("cellm_prompt_tokens_total", "counter", "Tokens of prompts.", load(prompt_tokens_), &out);
  One("cellm_prompt_tokens_reused_total", "counter", "Tokens of prompts that were known already.",
      load(reused_tokens_), &out);
  One("cellm_generated_tokens_total", "counter", "Tokens of replies.", load(generated_tokens_),
      &out);
  One("cellm_tool_calls_total", "counter", "Tool calls in replies.", load(tool_calls), &out);
  One("cellm_sessions_live", "gauge", "Sessions that are kept by name and not suspended.",
      live_sessions, &out);
  first_token_.Write("cellm_time_to_first_token_seconds", "From submission to the first token.",
                     &out);
  token_.Write("cellm_time_per_token_seconds", "Between tokens, in the mean of a reply.", &out);
  queue_.Write("cellm_queue_seconds", "From submission until a model began.", &out);

  std::vector<ModelNumbers> numbers;
  for (const ModelLease& model : models.Open()) {
    ModelNumbers one;
    one.label = Label(model->name);
    (void)cellm_engine_get_memory(model->engine.get(), &one.memory, nullptr);
    (void)cellm_engine_get_stats(model->engine.get(), &one.stats, nullptr);
    numbers.push_back(std::move(one));
  }
  MemoryByClass(numbers, &out);
  PerModel(
      numbers, "cellm_memory_peak_bytes", "gauge", "Most bytes that an engine held.",
      [](const ModelNumbers& m) { return m.memory.peak; }, &out);
  PerModel(
      numbers, "cellm_steps_total", "counter", "Passes over the weights.",
      [](const ModelNumbers& m) { return m.stats.steps; }, &out);
  PerModel(
      numbers, "cellm_running", "gauge", "Requests that are evaluated now.",
      [](const ModelNumbers& m) { return m.stats.running; }, &out);
  PerModel(
      numbers, "cellm_waiting", "gauge", "Requests that wait for their turn.",
      [](const ModelNumbers& m) { return m.stats.waiting; }, &out);
  PerModel(
      numbers, "cellm_preemptions_total", "counter", "Times that a request gave way.",
      [](const ModelNumbers& m) { return m.stats.paused + m.stats.swapped + m.stats.dropped; },
      &out);
  PerModel(
      numbers, "cellm_kept_beginnings", "gauge", "Beginnings that are kept for reuse.",
      [](const ModelNumbers& m) { return m.stats.pasts; }, &out);
  PerModel(
      numbers, "cellm_kept_bytes", "gauge", "Bytes that only kept beginnings hold.",
      [](const ModelNumbers& m) { return m.stats.past_bytes; }, &out);
  Head("cellm_model_loads_total", "counter", "Times that a model was opened.", &out);
  for (const ModelListing& model : models.List()) {
    out += "cellm_model_loads_total{model=" + Label(model.name) +
           StrFormat("} %" PRIu64 "\n", model.loads);
  }
  return out;
}

}  // namespace cellm::tools::serve
