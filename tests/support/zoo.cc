#include "support/zoo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "json/json.h"
#include "platform/file.h"

namespace cellm::testing {
namespace {

template <typename T>
std::vector<T> TensorOf(const std::string& bytes, json::Value header, const char* name) {
  const json::Value offsets = header.Find(name).Find("data_offsets");
  uint64_t begin = 0;
  uint64_t end = 0;
  if (!offsets.At(0).GetUint64(&begin) || !offsets.At(1).GetUint64(&end)) {
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }
  const uint64_t base = 8 + LoadLe64(bytes.data());
  std::vector<T> values(static_cast<size_t>(end - begin) / sizeof(T));
  std::memcpy(values.data(), bytes.data() + base + begin, values.size() * sizeof(T));
  return values;
}

std::vector<int32_t> Ints(json::Value list) {
  std::vector<int32_t> values;
  for (json::Value v = list.First(); v.exists(); v = list.Next(v)) {
    int64_t value = 0;
    EXPECT_TRUE(v.GetInt64(&value));
    values.push_back(static_cast<int32_t>(value));
  }
  return values;
}

}  // namespace

Reference ReadReference(const std::string& folder) {
  Reference reference;
  auto bytes = platform::SystemFiles().Read(folder + "/reference.safetensors", 64 << 20);
  auto text = platform::SystemFiles().Read(folder + "/reference.json", 16 << 20);
  if (!bytes.ok() || !text.ok()) {
    ADD_FAILURE() << folder << ": no reference";
    return reference;
  }
  const auto header = json::Document::Parse(
      std::string_view(*bytes).substr(8, static_cast<size_t>(LoadLe64(bytes->data()))), "header");
  const auto json = json::Document::Parse(*text, "reference.json");
  if (!header.ok() || !json.ok()) {
    ADD_FAILURE() << folder << ": reference is not readable";
    return reference;
  }
  const json::Value root = (*header)->root();
  reference.tokens = TensorOf<int32_t>(*bytes, root, "tokens");
  reference.positions = TensorOf<int32_t>(*bytes, root, "positions");
  reference.logits = TensorOf<float>(*bytes, root, "logits");
  reference.vocab = static_cast<int32_t>(reference.logits.size() /
                                         std::max<size_t>(1, reference.positions.size()));
  const json::Value prompts = (*json)->root().Find("prompts");
  for (json::Value p = prompts.First(); p.exists(); p = prompts.Next(p)) {
    ReferencePrompt prompt;
    std::string_view kind;
    p.Find("kind").GetString(&kind);
    prompt.kind = kind;
    prompt.ids = Ints(p.Find("ids"));
    prompt.greedy = Ints(p.Find("greedy"));
    EXPECT_TRUE(p.Find("smallest_top2_gap").GetDouble(&prompt.smallest_gap));
    reference.prompts.push_back(std::move(prompt));
  }
  EXPECT_FALSE(reference.prompts.empty());
  return reference;
}

std::unique_ptr<Engine> OpenEngine(const std::string& path, const EngineOptions& options) {
  auto engine = Engine::Open(platform::SystemFiles(), path, options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? std::move(engine).value() : nullptr;
}

std::vector<float> AllLogits(Engine& engine, const std::vector<int32_t>& tokens, int32_t chunk,
                             int32_t planned) {
  const int32_t count = static_cast<int32_t>(tokens.size());
  const size_t vocab = static_cast<size_t>(engine.info().vocab_size);
  std::vector<float> logits;
  const auto sequence = engine.CreateSequence(planned > 0 ? planned : count);
  EXPECT_TRUE(sequence.ok()) << sequence.status().message();
  if (!sequence.ok()) return logits;
  if (chunk == 0) chunk = count;
  for (int32_t begin = 0; begin < count; begin += chunk) {
    const size_t length = static_cast<size_t>(std::min(chunk, count - begin));
    const StepItem item{*sequence, {tokens.data() + begin, length}, LogitRows::kAll};
    const auto output = engine.Step({&item, 1});
    EXPECT_TRUE(output.ok()) << output.status().message();
    if (!output.ok()) break;
    EXPECT_FALSE(output->items[0].has_nan);
    logits.insert(logits.end(), output->logits.data, output->logits.data + length * vocab);
  }
  EXPECT_TRUE(engine.FreeSequence(*sequence).ok());
  return logits;
}

std::vector<int32_t> Greedy(Engine& engine, const std::vector<int32_t>& prompt, int32_t limit) {
  std::vector<int32_t> ids;
  const int32_t planned =
      std::min(engine.context_tokens(), static_cast<int32_t>(prompt.size()) + limit);
  const auto sequence = engine.CreateSequence(planned);
  EXPECT_TRUE(sequence.ok()) << sequence.status().message();
  if (!sequence.ok()) return ids;
  std::vector<int32_t> next = prompt;
  while (static_cast<int32_t>(ids.size()) < limit) {
    const StepItem item{*sequence, next, LogitRows::kLast};
    const auto output = engine.Step({&item, 1});
    EXPECT_TRUE(output.ok()) << output.status().message();
    if (!output.ok()) break;
    const float* const row = output->logits.data;
    const int32_t best =
        static_cast<int32_t>(std::max_element(row, row + engine.info().vocab_size) - row);
    ids.push_back(best);
    next.assign(1, best);
    const std::vector<int32_t>& ends = engine.info().eos_ids;
    if (std::find(ends.begin(), ends.end(), best) != ends.end()) break;
  }
  EXPECT_TRUE(engine.FreeSequence(*sequence).ok());
  return ids;
}

double LogitError(const Reference& reference, const std::vector<float>& got, int32_t first_position,
                  int32_t last_position) {
  double worst = 0.0;
  const size_t vocab = static_cast<size_t>(reference.vocab);
  for (size_t i = 0; i < reference.positions.size(); ++i) {
    const int32_t position = reference.positions[i];
    if (position < first_position || position > last_position) continue;
    const size_t at = static_cast<size_t>(position) * vocab;
    if (at + vocab > got.size()) {
      ADD_FAILURE() << "no logits at position " << position;
      return 1e9;
    }
    double largest = 0.0;
    double difference = 0.0;
    for (size_t v = 0; v < vocab; ++v) {
      const double expected = static_cast<double>(reference.logits[i * vocab + v]);
      const double actual = static_cast<double>(got[at + v]);
      if (!std::isfinite(actual)) return 1e9;
      largest = std::max(largest, std::fabs(expected));
      difference = std::max(difference, std::fabs(expected - actual));
    }
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

EngineOptions FloatPath() {
  EngineOptions options;
  options.activations = ActivationMode::kFloat32;
  options.kv_type = KvType::kF32;
  options.logit_rows = 512;
  options.threads = 2;
  return options;
}

}  // namespace cellm::testing
