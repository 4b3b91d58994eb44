#include "cellm/serve/token_text.h"

#include <algorithm>

#include "cellm/common.h"

namespace cellm::tools::serve {
namespace {

// What the API writes for a probability of 0.
constexpr double kLeastLogprob = -9999.0;

double Finite(float logprob) { return std::max(static_cast<double>(logprob), kLeastLogprob); }

JsonObject Entry(const cellm_model* model, int32_t id, float logprob) {
  const std::string text = TokenBytes(model, id);
  std::string bytes = "[";
  for (const char c : text) {
    if (bytes.size() > 1) bytes += ", ";
    bytes += std::to_string(static_cast<int>(static_cast<unsigned char>(c)));
  }
  JsonObject object;
  object.Add("token", text).Add("logprob", Finite(logprob)).AddRaw("bytes", bytes + "]");
  return object;
}

}  // namespace

std::string TokenBytes(const cellm_model* model, int32_t id) {
  char small[64];
  size_t bytes = 0;
  if (cellm_model_detokenize(model, &id, 1, 0, small, sizeof(small), &bytes, nullptr) == CELLM_OK) {
    return std::string(small, bytes);
  }
  std::string large(bytes, '\0');
  if (cellm_model_detokenize(model, &id, 1, 0, large.data(), large.size(), &bytes, nullptr) !=
      CELLM_OK) {
    return {};
  }
  return large;
}

std::string LogprobEntry(const cellm_model* model, const TokenEvent& event) {
  std::string top = "[";
  for (const cellm_logprob& other : event.top) {
    if (top.size() > 1) top += ", ";
    top += Entry(model, other.token_id, other.logprob).Finish();
  }
  return Entry(model, event.token_id, event.logprob).AddRaw("top_logprobs", top + "]").Finish();
}

}  // namespace cellm::tools::serve
