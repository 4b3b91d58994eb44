#include "capi/generation_config.h"

#include <limits>
#include <memory>

#include "json/json.h"

namespace cellm::capi {

Result<sample::SamplingOptions> ReadGenerationConfig(std::string_view text) {
  constexpr const char* kName = "generation_config.json";
  sample::SamplingOptions options;
  if (text.empty()) return options;
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<json::Document> document,
                         json::Document::Parse(text, kName));
  const json::Value root = document->root();
  if (!root.is_object()) return Corrupt("%s: not a JSON object", kName);

  struct Key {
    const char* name;
    float* field;
  };
  const Key keys[] = {
      {"temperature", &options.temperature},
      {"top_p", &options.top_p},
      {"min_p", &options.min_p},
      {"typical_p", &options.typical_p},
      {"repetition_penalty", &options.repetition_penalty},
  };
  bool says_how = false;
  for (const Key& key : keys) {
    const json::Value value = root.Find(key.name);
    if (!value.has_value()) continue;
    double number = 0;
    if (!value.GetDouble(&number)) return Corrupt("%s: \"%s\" is not a number", kName, key.name);
    *key.field = static_cast<float>(number);
    says_how = true;
  }
  if (says_how) options.top_k = 0;
  const json::Value top_k = root.Find("top_k");
  if (top_k.has_value()) {
    int64_t number = 0;
    if (!top_k.GetInt64(&number)) return Corrupt("%s: \"top_k\" is not an integer", kName);
    if (number < 0 || number > std::numeric_limits<int32_t>::max()) number = 0;
    options.top_k = static_cast<int32_t>(number);
  }
  bool sample = true;
  const json::Value do_sample = root.Find("do_sample");
  if (do_sample.has_value()) {
    if (!do_sample.GetBool(&sample)) return Corrupt("%s: \"do_sample\" is not a bool", kName);
    if (!sample) options.temperature = 0;
  }
  const Status status = sample::ValidateSampling(options, std::numeric_limits<int32_t>::max());
  if (!status.ok()) return Unsupported("%s: %s", kName, status.message().c_str());
  return options;
}

Result<sample::SamplingOptions> ApplySampling(const sample::SamplingOptions& defaults,
                                              const cellm_sampling& given, int32_t vocabulary) {
  sample::SamplingOptions options = defaults;
  const auto has = [&](uint32_t bit) { return (given.given & bit) != 0; };
  if (has(CELLM_SAMPLING_TEMPERATURE)) options.temperature = given.temperature;
  if (has(CELLM_SAMPLING_TOP_K)) options.top_k = given.top_k;
  if (has(CELLM_SAMPLING_TOP_P)) options.top_p = given.top_p;
  if (has(CELLM_SAMPLING_MIN_P)) options.min_p = given.min_p;
  if (has(CELLM_SAMPLING_TYPICAL_P)) options.typical_p = given.typical_p;
  if (has(CELLM_SAMPLING_REPETITION_PENALTY)) {
    options.repetition_penalty = given.repetition_penalty;
  }
  if (has(CELLM_SAMPLING_FREQUENCY_PENALTY)) options.frequency_penalty = given.frequency_penalty;
  if (has(CELLM_SAMPLING_PRESENCE_PENALTY)) options.presence_penalty = given.presence_penalty;
  if (has(CELLM_SAMPLING_PENALTY_WINDOW)) options.penalty_window = given.penalty_window;
  if (given.logit_bias_count > 0 && given.logit_bias == nullptr) {
    return InvalidArgument("sampling.logit_bias is null but has %u entries",
                           given.logit_bias_count);
  }
  // A bias per token at most: more entries than tokens cannot be meant.
  if (given.logit_bias_count > static_cast<uint32_t>(vocabulary)) {
    return InvalidArgument("sampling.logit_bias has %u entries, the vocabulary %d",
                           given.logit_bias_count, vocabulary);
  }
  for (uint32_t i = 0; i < given.logit_bias_count; ++i) {
    options.logit_bias.push_back({given.logit_bias[i].token_id, given.logit_bias[i].bias});
  }
  CELLM_RETURN_IF_ERROR(sample::ValidateSampling(options, vocabulary));
  return options;
}

}  // namespace cellm::capi
