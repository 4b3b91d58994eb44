// Perplexity of the zoo's checkpoints and GGUF files, by the protocol of its README, through the
// interface that a program would use: own ids, windows of 256, each from an empty state.
//
// Expected figures were measured by other engines: in float32 from the stored weights for folders,
// from the dequantised ones for GGUF files. Floats are held to 0.1 % of them and the ordinary mode
// (activations of 8 bits, keys and values in half precision) to 1 % of our floats.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "cellm/cellm.h"
#include "json/json.h"
#include "platform/file.h"
#include "support/paths.h"

namespace cellm {
namespace {

constexpr size_t kWindow = 256;
constexpr size_t kWindows = 40;

bool Long() { return ::getenv("CELLM_TEST_LONG") != nullptr; }

struct CloseModel {
  void operator()(cellm_model* model) const { cellm_model_close(model); }
};
struct CloseEngine {
  void operator()(cellm_engine* engine) const { cellm_engine_close(engine); }
};
using Model = std::unique_ptr<cellm_model, CloseModel>;
using Engine = std::unique_ptr<cellm_engine, CloseEngine>;

// A window's ids, and the negative log likelihood of all but the first.
struct Window {
  const int32_t* ids;
  double surprise = 0;
};

int32_t AddSurprise(size_t, size_t position, const float* logits, int32_t vocabulary, void* user) {
  Window& window = *static_cast<Window*>(user);
  if (position + 1 >= kWindow) return 0;
  double largest = static_cast<double>(logits[0]);
  for (int32_t i = 1; i < vocabulary; ++i) {
    largest = std::fmax(largest, static_cast<double>(logits[i]));
  }
  double sum = 0;
  for (int32_t i = 0; i < vocabulary; ++i) {
    sum += std::exp(static_cast<double>(logits[i]) - largest);
  }
  window.surprise +=
      largest + std::log(sum) - static_cast<double>(logits[window.ids[position + 1]]);
  return 0;
}

// One model and the held-out text in its ids. `model` null: the test has failed.
struct Subject {
  Model model;
  std::vector<int32_t> ids;
};

Subject Open(const std::string& path) {
  Subject subject;
  cellm_error error = CELLM_ERROR_INIT;
  cellm_model* model = nullptr;
  if (cellm_model_open(path.data(), path.size(), nullptr, &model, &error) != CELLM_OK) {
    ADD_FAILURE() << path << ": " << error.message;
    return subject;
  }
  const auto text = platform::SystemFiles().Read(testing::SharedData("zoo/heldout.txt"), 1 << 20);
  EXPECT_TRUE(text.ok());
  size_t count = 0;
  subject.ids.resize(text->size() + 16);
  EXPECT_EQ(cellm_model_tokenize(model, text->data(), text->size(),
                                 CELLM_TOKENIZE_ADD_SPECIAL | CELLM_TOKENIZE_PARSE_SPECIAL,
                                 subject.ids.data(), subject.ids.size(), &count, &error),
            CELLM_OK)
      << error.message;
  subject.ids.resize(count);
  EXPECT_GE(count, kWindow * kWindows);
  subject.model.reset(model);
  return subject;
}

enum class Arithmetic { kFloats, kOrdinary };

double Perplexity(const Subject& subject, Arithmetic arithmetic, size_t windows) {
  cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
  if (arithmetic == Arithmetic::kFloats) {
    options.activations = CELLM_ACTIVATIONS_F32;
    options.kv = CELLM_KV_F32;
  }
  cellm_error error = CELLM_ERROR_INIT;
  cellm_engine* opened = nullptr;
  EXPECT_EQ(cellm_engine_open(subject.model.get(), &options, &opened, &error), CELLM_OK)
      << error.message;
  const Engine engine(opened);
  double surprise = 0;
  for (size_t w = 0; w < windows && engine != nullptr; ++w) {
    Window window{subject.ids.data() + w * kWindow};
    cellm_token_list list = CELLM_TOKEN_LIST_INIT;
    list.ids = window.ids;
    list.count = kWindow;
    EXPECT_EQ(cellm_engine_evaluate(engine.get(), &list, 1, AddSurprise, &window, &error), CELLM_OK)
        << error.message;
    surprise += window.surprise;
  }
  return std::exp(surprise / static_cast<double>(windows * (kWindow - 1)));
}

// Both modes over the whole protocol.
void CheckWhole(const std::string& path, double expected) {
  const Subject subject = Open(path);
  ASSERT_NE(subject.model, nullptr);
  const double floats = Perplexity(subject, Arithmetic::kFloats, kWindows);
  const double ordinary = Perplexity(subject, Arithmetic::kOrdinary, kWindows);
  EXPECT_NEAR(floats / expected, 1.0, 1e-3) << floats;
  EXPECT_NEAR(ordinary / floats, 1.0, 1e-2) << ordinary << " beside " << floats;
  ::testing::Test::RecordProperty("float_over_reference", std::to_string(floats / expected - 1));
  ::testing::Test::RecordProperty("ordinary_over_float", std::to_string(ordinary / floats - 1));
}

struct GgufFile {
  const char* name;
  double perplexity;      // zoo/gguf/README.md: "ppl, this file"
  bool everyday = false;  // the others only under CELLM_TEST_LONG
  const char* first_file = ".gguf";
};

void PrintTo(const GgufFile& file, std::ostream* out) { *out << file.name; }

constexpr GgufFile kGgufFiles[] = {
    {"gemma3-Q8_0", 40.2003},
    {"granite-Q4_1", 54.0287, true},
    {"lfm2-Q8_0", 44.3806},
    {"llama-F16", 43.9142},
    {"qwen2-Q8_0", 47.3362, false, "-00001-of-00002.gguf"},
    {"qwen3-IQ4_XS", 31.8138},
    {"qwen3-Q2_K", 37.4928, true},
    {"qwen3-Q3_K_M", 32.8589},
    {"qwen3-Q4_0", 32.1515},
    {"qwen3-Q4_K_M", 31.9946},
    {"qwen3-Q8_0", 31.3272},
    {"qwen3-TQ2_0", 31605.9654},
    {"qwen3_5-Q8_0", 50.8411},
    {"qwen3_moe-Q4_0", 50.5431},
};

class GgufPerplexity : public ::testing::TestWithParam<GgufFile> {};

TEST_P(GgufPerplexity, IsTheReferences) {
  const std::string name = std::string("zoo/gguf/") + GetParam().name + GetParam().first_file;
  CELLM_SKIP_WITHOUT_SHARED(path, name);
  CheckWhole(path, GetParam().perplexity);
}

std::vector<GgufFile> GgufFiles() {
  std::vector<GgufFile> files;
  for (const GgufFile& file : kGgufFiles) {
    if (Long() || file.everyday) files.push_back(file);
  }
  return files;
}

INSTANTIATE_TEST_SUITE_P(Zoo, GgufPerplexity, ::testing::ValuesIn(GgufFiles()),
                         [](const auto& param) {
                           std::string name = param.param.name;
                           for (char& c : name) {
                             if (c == '-') c = '_';
                           }
                           return name;
                         });

class FolderPerplexity : public ::testing::TestWithParam<const char*> {};

TEST_P(FolderPerplexity, IsTheReferences) {
  const std::string name = GetParam();
  CELLM_SKIP_WITHOUT_SHARED(folder, "zoo/" + name);
  const auto text = platform::SystemFiles().Read(folder + "/reference.json", 16 << 20);
  ASSERT_TRUE(text.ok());
  const auto reference = json::Document::Parse(*text, "reference.json");
  ASSERT_TRUE(reference.ok());
  double expected = 0;
  ASSERT_TRUE((*reference)->root().Find("perplexity").Find("value").GetDouble(&expected));
  CheckWhole(folder, expected);
}

std::vector<const char*> Folders() {
  if (!Long()) return {"gemma4"};
  return {"apertus", "bitnet", "gemma3", "gemma4", "granite", "hunyuan", "lfm2",      "llama",
          "nano",    "olmo2",  "phi3",   "qwen2",  "qwen3",   "qwen3_5", "qwen3_moe", "smollm3"};
}

INSTANTIATE_TEST_SUITE_P(Zoo, FolderPerplexity, ::testing::ValuesIn(Folders()),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace cellm
