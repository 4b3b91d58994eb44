// What constrained output costs at a vocabulary of 151,936 tokens: a step beside one without a
// constraint, masks that are made for the first time, compiling.
//
// The vocabulary is made up: all bytes, then words of two to twelve letters, a third with a space
// in front, numbers, runs of signs as JSON has them, and characters of two and three bytes.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "base/allocator.h"
#include "base/rng.h"
#include "constrain/constraint.h"
#include "constrain/token_trie.h"
#include "sample/sampler.h"

namespace {

using namespace cellm;             // NOLINT
using namespace cellm::constrain;  // NOLINT

constexpr int32_t kVocabulary = 151'936;

const TokenTrie& Trie() {
  static const std::unique_ptr<TokenTrie> trie = [] {
    Rng rng(1);
    std::vector<TokenText> tokens;
    for (int byte = 0; byte < 256; ++byte) {
      tokens.push_back({std::string(1, static_cast<char>(byte)), false});
    }
    const char* const signs[] = {"{\"", "\":", "\",",    "\"}", "[]",
                                 "],",  "}}",  "\": \"", "();", "=="};
    while (tokens.size() < static_cast<size_t>(kVocabulary)) {
      std::string text;
      const uint64_t kind = rng.NextBelow(20);
      if (kind == 0) {
        text = std::to_string(rng.NextBelow(1000));
      } else if (kind == 1) {
        text = signs[rng.NextBelow(std::size(signs))];
        if (rng.NextBelow(2) == 0) text += static_cast<char>('a' + rng.NextBelow(26));
      } else if (kind < 5) {
        for (uint64_t i = 0; i < 1 + rng.NextBelow(3); ++i) {
          const uint64_t c = 0x400 + rng.NextBelow(0x100);
          text += static_cast<char>(0xC0 | (c >> 6));
          text += static_cast<char>(0x80 | (c & 63));
        }
      } else {
        if (rng.NextBelow(3) == 0) text += ' ';
        // Squares make some letters common, as in words.
        for (uint64_t i = 0; i < 2 + rng.NextBelow(11); ++i) {
          const uint64_t r = rng.NextBelow(26 * 26);
          uint64_t letter = 0;
          while (letter * letter <= r) ++letter;
          text += static_cast<char>('a' + 26 - letter);
        }
      }
      tokens.push_back({text, false});
    }
    return std::move(TokenTrie::Build(tokens, kVocabulary, SystemAllocator())).value();
  }();
  return *trie;
}

std::unique_ptr<Constraint> Make(ConstraintKind kind, const std::string& text) {
  Result<std::unique_ptr<Constraint>> made =
      Constraint::Compile(kind, text, Trie(), SystemAllocator());
  return std::move(made).value();
}

std::vector<float> Row() {
  Rng rng(2);
  std::vector<float> row(kVocabulary);
  for (float& x : row) x = (rng.NextFloat() + rng.NextFloat() - 1.0f) * 12.0f;
  return row;
}

// One step of choosing: mask, sampling, following. `kind` kNone: sampling alone.
void Step(benchmark::State& state, ConstraintKind kind, const std::string& text,
          float temperature) {
  const std::vector<float> row = Row();
  sample::SamplingOptions options;
  options.temperature = temperature;
  const auto sampler =
      std::move(sample::Sampler::Create(options, kVocabulary, 1, SystemAllocator(), true)).value();
  std::unique_ptr<Constraint> constraint;
  std::unique_ptr<Matcher> matcher;
  if (kind != ConstraintKind::kNone) {
    constraint = Make(kind, text);
    matcher = std::make_unique<Matcher>(*constraint);
  }
  std::vector<uint64_t> words(Trie().mask_words());
  for (auto _ : state) {
    if (matcher == nullptr) {
      benchmark::DoNotOptimize(sampler->Sample(row).value());
      continue;
    }
    if (!matcher->FillAllowed(words).ok()) std::abort();
    const int32_t id = sampler->Sample(row, words).value();
    if (!matcher->Accept(id).ok()) std::abort();
  }
}

void StepFree(benchmark::State& state) { Step(state, ConstraintKind::kNone, "", 0.8f); }
void StepAnything(benchmark::State& state) {
  Step(state, ConstraintKind::kRegex, "[^\\x00]*", 0.8f);
}
void StepInString(benchmark::State& state) {
  // A string without an end to come: every state is one of its own characters.
  Step(state, ConstraintKind::kGrammar, "root ::= \"\\\"\" [^\"\\\\\\x00-\\x1F]*", 0.8f);
}
void StepFreeGreedy(benchmark::State& state) { Step(state, ConstraintKind::kNone, "", 0.0f); }
void StepAnythingGreedy(benchmark::State& state) {
  Step(state, ConstraintKind::kRegex, "[^\\x00]*", 0.0f);
}
BENCHMARK(StepFree)->Unit(benchmark::kMicrosecond);
BENCHMARK(StepAnything)->Unit(benchmark::kMicrosecond);
BENCHMARK(StepInString)->Unit(benchmark::kMicrosecond);
BENCHMARK(StepFreeGreedy)->Unit(benchmark::kMicrosecond);
BENCHMARK(StepAnythingGreedy)->Unit(benchmark::kMicrosecond);

// A mask that is made for the first time, transitions known and not.
void NewMask(benchmark::State& state, const char* schema, const char* text, bool warm) {
  const auto constraint = Make(ConstraintKind::kJsonSchema, schema);
  std::vector<uint64_t> words(Trie().mask_words());
  Machine& machine = constraint->machine();
  for (auto _ : state) {
    state.PauseTiming();
    machine.Tidy(true);
    Matcher matcher(*constraint);
    for (const char* c = text; *c != '\0'; ++c) {
      if (!matcher.Accept(static_cast<uint8_t>(*c)).ok()) std::abort();
    }
    if (warm) {
      (void)matcher.FillAllowed(words);
      machine.ForgetMasks();
    }
    state.ResumeTiming();
    if (!matcher.FillAllowed(words).ok()) std::abort();
  }
}
constexpr char kString[] = R"({"type":"string"})";
constexpr char kObject[] =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":40}},"required":["name"]})";
BENCHMARK_CAPTURE(NewMask, any_string, kString, "\"abc", false)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(NewMask, any_string_again, kString, "\"abc", true)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(NewMask, bounded_string, kObject, "{\"name\": \"abc", false)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(NewMask, between_members, kObject, "{", false)->Unit(benchmark::kMicrosecond);

// `count` properties of five kinds, nested in tens.
std::string LargeSchema(int count) {
  std::string out = R"({"type":"object","additionalProperties":false,"properties":{)";
  for (int group = 0; group * 10 < count; ++group) {
    if (group > 0) out += ',';
    out += "\"group" + std::to_string(group) +
           R"(":{"type":"object","required":["p0"],"properties":{)";
    for (int i = 0; i < 10; ++i) {
      const char* const kinds[] = {R"({"type":"string"})", R"({"type":"integer","minimum":0})",
                                   R"({"enum":["red","green","blue"]})",
                                   R"({"type":"array","items":{"type":"number"},"maxItems":5})",
                                   R"({"type":["string","null"],"format":"date-time"})"};
      if (i > 0) out += ',';
      out += "\"p" + std::to_string(i) + "\":" + kinds[i % 5];
    }
    out += "}}";
  }
  return out + "}}";
}
void CompileSchema(benchmark::State& state) {
  const std::string schema = LargeSchema(static_cast<int>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(Make(ConstraintKind::kJsonSchema, schema));
  state.counters["bytes"] = static_cast<double>(schema.size());
  const auto made = Make(ConstraintKind::kJsonSchema, schema);
  state.counters["nodes"] = static_cast<double>(made->machine().automaton().node_count());
}
BENCHMARK(CompileSchema)->Arg(10)->Arg(100)->Arg(1000)->Unit(benchmark::kMillisecond);

void BuildTrie(benchmark::State& state) {
  std::vector<TokenText> tokens(static_cast<size_t>(kVocabulary));
  for (int32_t id = 0; id < kVocabulary; ++id) {
    tokens[static_cast<size_t>(id)].bytes = Trie().text(id);
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(TokenTrie::Build(tokens, kVocabulary, SystemAllocator()));
  }
  state.counters["nodes"] = static_cast<double>(Trie().node_count());
}
BENCHMARK(BuildTrie)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
