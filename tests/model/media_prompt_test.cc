// Prompts with pictures and sounds through the text models of the five tiny checkpoints of
// testdata/zoo-mm: logits and greedy tokens of a plain forward pass with the reference's features,
// whole and cut into chunks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu_backend.h"
#include "format/model_file.h"
#include "model/model.h"
#include "model/tower.h"
#include "platform/file.h"
#include "support/paths.h"
#include "support/zoo_mm.h"

namespace cellm {
namespace {

using ::cellm::testing::ZooMm;

// One sequence of a model with its states, in floats, and nothing of the engine.
class PlainSequence {
 public:
  PlainSequence(const Model& model, CpuBackend& backend, int32_t capacity)
      : model_(model), backend_(backend) {
    const int32_t page_tokens = (capacity + 15) / 16 * 16;
    states_.resize(model.info.layers.size());
    pages_.resize(states_.size());
    floats_.resize(3 * states_.size());
    for (size_t l = 0; l < states_.size(); ++l) {
      const LayerStateSpec& spec = model.info.layers[l];
      LayerState& state = states_[l];
      const auto zeros = [&](size_t part, int64_t count) {
        floats_[3 * l + part].assign(static_cast<size_t>(count), 0.0f);
        return floats_[3 * l + part].data();
      };
      if (spec.recurrent_floats > 0) state.recurrent = zeros(0, spec.recurrent_floats);
      if (spec.conv_floats() > 0) state.conv = zeros(1, spec.conv_floats());
      if (!spec.stores_kv()) continue;
      const int64_t k_floats = int64_t{page_tokens} * spec.head_dim;
      const int64_t v_floats = int64_t{page_tokens} * spec.head_dim_v;
      pages_[l] = reinterpret_cast<uint8_t*>(zeros(2, spec.kv_heads * (k_floats + v_floats)));
      const auto bytes = [](int64_t floats) { return 4 * static_cast<size_t>(floats); };
      state.kv.pages = &pages_[l];
      state.kv.page_tokens = page_tokens;
      state.kv.places.v_offset = bytes(spec.kv_heads * k_floats);
      state.kv.places.k_head_stride = bytes(k_floats);
      state.kv.places.v_head_stride = bytes(v_floats);
    }
  }

  // Runs rows [begin, end) of what `prompt` describes whole; logits of all of them.
  std::vector<float> Run(const StepContext& prompt, int32_t begin, int32_t end) {
    StepContext step = prompt;
    step.rows = end - begin;
    step.tokens += begin;
    step.positions += begin;
    if (step.rope_positions != nullptr) step.rope_positions += 3 * begin;
    if (step.key_ends != nullptr) step.key_ends += begin;
    GivenRows given;
    std::vector<int32_t> given_rows;
    size_t first = 0;
    for (const int32_t row : prompt.given->rows) {
      if (row < begin) ++first;
      if (row >= begin && row < end) given_rows.push_back(row - begin);
    }
    given.rows = given_rows;
    given.embeddings = prompt.given->embeddings.Some(static_cast<int32_t>(first),
                                                     static_cast<int32_t>(given_rows.size()));
    step.given = given_rows.empty() ? nullptr : &given;
    return RunRows(step, begin);
  }

  // Runs the rows of `step`, the first of which is at `position`.
  std::vector<float> RunRows(StepContext step, int32_t position) {
    std::vector<int32_t> all;
    for (int32_t r = 0; r < step.rows; ++r) all.push_back(r);
    const int32_t vocab = model_.info.vocab_size;
    std::vector<float> logits(static_cast<size_t>(step.rows) * static_cast<size_t>(vocab));
    const SequenceSlice slice{0, step.rows, position, 4096, states_.data()};
    step.sequences = {&slice, 1};
    step.logit_rows = all;
    step.logits = {logits.data(), step.rows, vocab, vocab};
    step.kv_type = KvType::kF32;
    MeasureBackend measure;
    Arena counting;
    step.arena = &counting;
    model_.family->forward(model_.weights.get(), measure, step);
    auto block = Array<std::byte>::Uninitialised(SystemAllocator(), counting.used_bytes(),
                                                 MemoryClass::kActivations, "arena");
    EXPECT_TRUE(block.ok() && backend_.Reserve(measure.needs(), SystemAllocator()).ok());
    Arena arena(block->data(), block->size());
    step.arena = &arena;
    model_.family->forward(model_.weights.get(), backend_, step);
    return logits;
  }

 private:
  const Model& model_;
  CpuBackend& backend_;
  std::vector<LayerState> states_;
  std::vector<uint8_t*> pages_;
  std::vector<std::vector<float>> floats_;
};

// A prompt of a case, as a step of all its rows. Not to be moved.
struct Prompt {
  std::vector<int32_t> tokens, positions, rope_positions, key_ends, given_rows;
  std::vector<float> features;
  GivenRows given;
  StepContext step;
  int32_t delta = 0;  // what a token's rotary position lags behind its place

  // `pictures_given`: features in place of the reference's.
  Prompt(const ZooMm& zoo, const Model& model, json::Value c,
         const std::vector<float>* pictures_given = nullptr) {
    tokens = ZooMm::Ints(c.Find("input_ids"));
    const int32_t count = static_cast<int32_t>(tokens.size());
    for (int32_t i = 0; i < count; ++i) positions.push_back(i);
    const json::Value root = model.file->config->root();
    int64_t image = -1, audio = -1;
    if (!root.Find("image_token_id").GetInt64(&image)) {
      root.Find("image_token_index").GetInt64(&image);
    }
    root.Find("audio_token_id").GetInt64(&audio);
    const std::vector<float>& pictures =
        pictures_given != nullptr ? *pictures_given : Features(zoo, c, "/after");
    const std::vector<float>& sounds = Features(zoo, c, "/audio_after");
    const size_t cols = static_cast<size_t>(model.info.hidden_size);
    size_t picture = 0, sound = 0;
    for (int32_t i = 0; i < count; ++i) {
      const int32_t token = tokens[static_cast<size_t>(i)];
      if (token != image && token != audio) continue;
      const std::vector<float>& from = token == image ? pictures : sounds;
      size_t& at = token == image ? picture : sound;
      EXPECT_LE((at + 1) * cols, from.size());
      if ((at + 1) * cols > from.size()) break;
      features.insert(features.end(), from.begin() + static_cast<int64_t>(at * cols),
                      from.begin() + static_cast<int64_t>((at + 1) * cols));
      ++at;
      given_rows.push_back(i);
      tokens[static_cast<size_t>(i)] = model.info.given_id;
    }
    EXPECT_EQ(picture * cols, pictures.size());
    EXPECT_EQ(sound * cols, sounds.size());
    SetPositions(c, count);
    if (model.info.pictures_are_blocks) SetBlocks(c);
    given.rows = given_rows;
    const int32_t width = model.info.hidden_size;
    given.embeddings = {features.data(), static_cast<int32_t>(given_rows.size()), width, width};
    step.rows = count;
    step.tokens = tokens.data();
    step.positions = positions.data();
    step.rope_positions = rope_positions.empty() ? nullptr : rope_positions.data();
    step.key_ends = key_ends.empty() ? nullptr : key_ends.data();
    step.given = &given;
  }
  Prompt(const Prompt&) = delete;

  // Of the case, or of the case that it says has the same.
  static const std::vector<float>& Features(const ZooMm& zoo, json::Value c, const char* which) {
    for (const char* const key : {"name", "pixels_as", "features_as"}) {
      std::string_view name;
      if (!c.Find(key).GetString(&name)) continue;
      const std::vector<float>& found = zoo.Values(std::string(name) + which);
      if (!found.empty()) return found;
    }
    return zoo.Values("");
  }

  void SetPositions(json::Value c, int32_t count) {
    const json::Value axes = c.Find("mrope_position_ids");
    if (!axes.is_array()) return;
    rope_positions.resize(3 * static_cast<size_t>(count));
    for (size_t axis = 0; axis < 3; ++axis) {
      const std::vector<int32_t> of_axis = ZooMm::Ints(axes.At(axis));
      ASSERT_EQ(of_axis.size(), static_cast<size_t>(count));
      for (size_t i = 0; i < of_axis.size(); ++i) rope_positions[3 * i + axis] = of_axis[i];
    }
    int64_t value = 0;
    c.Find("mrope_delta").GetInt64(&value);
    delta = static_cast<int32_t>(value);
  }

  // Runs of token type 1 are blocks.
  void SetBlocks(json::Value c) {
    const std::vector<int32_t> types = ZooMm::Ints(c.Find("token_type_ids"));
    ASSERT_EQ(types.size(), tokens.size());
    key_ends.resize(types.size());
    int32_t end = static_cast<int32_t>(types.size());
    for (size_t i = types.size(); i-- > 0;) {
      const int32_t own = static_cast<int32_t>(i) + 1;
      if (types[i] != 1 || i + 1 == types.size() || types[i + 1] != 1) end = own;
      key_ends[i] = end;
    }
  }
};

struct TextModel {
  kernels::ChosenKernels kernels;
  std::unique_ptr<platform::ThreadPool> pool;
  std::unique_ptr<CpuBackend> backend;
  std::shared_ptr<const Model> model;

  explicit TextModel(const ZooMm& zoo) {
    kernels = kernels::ChooseKernels("").value();
    pool = std::move(platform::ThreadPool::Create(2)).value();
    backend = std::make_unique<CpuBackend>(kernels.table, *pool, ActivationMode::kFloat32);
    auto file = format::OpenModelFile(platform::SystemFiles(), zoo.folder);
    EXPECT_TRUE(file.ok()) << file.status().message();
    if (!file.ok()) return;
    auto loaded = LoadModel(std::move(file).value(), *backend, SystemAllocator(), LogSink());
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    if (loaded.ok()) model = std::move(loaded).value();
  }
};

class MediaPrompts : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Zoo, MediaPrompts,
                         ::testing::Values("smolvlm", "lfm2_vl", "qwen3_5", "gemma3", "gemma4"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(MediaPrompts, LogitsAndGreedyTokensAreTheReferences) {
  CELLM_SKIP_WITHOUT_SHARED(folder, "zoo-mm");
  const ZooMm zoo(GetParam());
  const TextModel setup(zoo);
  ASSERT_NE(setup.model, nullptr);
  const size_t vocab = static_cast<size_t>(setup.model->info.vocab_size);
  const json::Value cases = zoo.description->root().Find("cases");
  double worst = 0.0;
  for (json::Value c = cases.First(); c.exists(); c = cases.Next(c)) {
    std::string_view name;
    c.Find("name").GetString(&name);
    const Prompt prompt(zoo, *setup.model, c);
    const int32_t count = prompt.step.rows;
    PlainSequence sequence(*setup.model, *setup.backend, count + 16);
    const std::vector<float> logits = sequence.Run(prompt.step, 0, count);
    const std::vector<float>& expected = zoo.Values(std::string(name) + "/logits");
    const std::vector<int32_t> rows = ZooMm::Ints(c.Find("logit_positions"));
    ASSERT_EQ(expected.size(), rows.size() * vocab) << name;
    for (size_t i = 0; i < rows.size(); ++i) {
      for (size_t t = 0; t < vocab; ++t) {
        const float got = logits[static_cast<size_t>(rows[i]) * vocab + t];
        const double difference =
            std::fabs(static_cast<double>(got) - static_cast<double>(expected[i * vocab + t]));
        if (!(difference <= worst)) worst = difference;
        ASSERT_LE(difference, 1e-3) << name << ", row " << rows[i] << ", token " << t;
      }
    }
    // Greedy tokens up to the first step that is not clear.
    const std::vector<int32_t> greedy = ZooMm::Ints(c.Find("greedy"));
    std::vector<float> last(logits.end() - static_cast<int64_t>(vocab), logits.end());
    for (size_t i = 0; i < greedy.size(); ++i) {
      double gap = 0.0;
      c.Find("greedy_gap").At(i).GetDouble(&gap);
      if (gap < 5e-3) break;
      const int32_t token =
          static_cast<int32_t>(std::max_element(last.begin(), last.end()) - last.begin());
      ASSERT_EQ(token, greedy[i]) << name << ", step " << i;
      const int32_t position = count + static_cast<int32_t>(i);
      const int32_t rope = position + prompt.delta;
      const int32_t axes[3] = {rope, rope, rope};
      StepContext next;
      next.rows = 1;
      next.tokens = &token;
      next.positions = &position;
      next.rope_positions = axes;
      last = sequence.RunRows(next, position);
    }
  }
  RecordProperty("worst", std::to_string(worst));
}

// Cut anywhere outside a block: the same bits as whole.
TEST_P(MediaPrompts, ChunksGiveTheSameBits) {
  CELLM_SKIP_WITHOUT_SHARED(folder, "zoo-mm");
  const ZooMm zoo(GetParam());
  const TextModel setup(zoo);
  ASSERT_NE(setup.model, nullptr);
  const Prompt prompt(zoo, *setup.model, zoo.CaseOf("two"));
  const int32_t count = prompt.step.rows;
  PlainSequence sequence(*setup.model, *setup.backend, count);
  const std::vector<float> whole = sequence.Run(prompt.step, 0, count);
  for (const int32_t chunk : {1, 7, 30}) {
    PlainSequence cut(*setup.model, *setup.backend, count);
    std::vector<float> logits;
    for (int32_t begin = 0; begin < count;) {
      int32_t end = std::min(begin + chunk, count);
      // To the end of the block that the last row is in.
      if (!prompt.key_ends.empty()) end = prompt.key_ends[static_cast<size_t>(end - 1)];
      const std::vector<float> part = cut.Run(prompt.step, begin, end);
      logits.insert(logits.end(), part.begin(), part.end());
      begin = end;
    }
    ASSERT_EQ(logits.size(), whole.size());
    EXPECT_EQ(std::memcmp(logits.data(), whole.data(), whole.size() * sizeof(float)), 0) << chunk;
  }
}

// With the tower's weights in 8 bits, one scale a row, the last logits move by less than so much of
// their spread (root mean square over standard deviation); the text model stays as it is. Random
// weights a few dozen columns wide are hard on a row's one scale, and gemma4's text model makes
// eight times as much of a change as its features have.
struct Int8Bound {
  const char* family;
  double most;
};
constexpr Int8Bound kInt8Bounds[] = {
    {"smolvlm", 0.08}, {"lfm2_vl", 0.02}, {"qwen3_5", 0.03}, {"gemma3", 0.05}, {"gemma4", 0.30}};

TEST_P(MediaPrompts, Int8TowersMoveTheLastLogitsLittle) {
  CELLM_SKIP_WITHOUT_SHARED(folder, "zoo-mm");
  const ZooMm zoo(GetParam());
  const TextModel text(zoo);
  ASSERT_NE(text.model, nullptr);
  auto file = format::OpenModelFile(platform::SystemFiles(), zoo.folder);
  ASSERT_TRUE(file.ok());
  testing::QuantiseTower(file->get(), 8);
  CpuBackend backend(text.kernels.table, *text.pool, ActivationMode::kInt8);
  auto model = LoadModel(std::move(file).value(), backend, SystemAllocator(), LogSink());
  ASSERT_TRUE(model.ok());
  auto tower = LoadTower(**model, media::MediaKind::kPicture, backend, SystemAllocator());
  ASSERT_TRUE(tower.ok());
  double sum = 0.0, worst = 0.0;
  int cases = 0;
  for (const testing::ZooMmCase& c : zoo.Pictures()) {
    auto features = RunTower(**tower, backend, SystemAllocator(), c.input);
    ASSERT_TRUE(features.ok());
    const std::vector<float> rows(features->values.begin(), features->values.end());
    const Prompt prompt(zoo, *text.model, zoo.CaseOf(c.name), &rows);
    PlainSequence sequence(*text.model, *text.backend, prompt.step.rows);
    const std::vector<float> logits = sequence.Run(prompt.step, 0, prompt.step.rows);
    const std::vector<float>& reference = zoo.Values(c.name + "/logits");
    const size_t vocab = static_cast<size_t>(text.model->info.vocab_size);
    double mean = 0.0, squares = 0.0, moved = 0.0;
    for (size_t t = 0; t < vocab; ++t) {
      const double expected = static_cast<double>(reference[reference.size() - vocab + t]);
      const double difference = static_cast<double>(logits[logits.size() - vocab + t]) - expected;
      mean += expected / static_cast<double>(vocab);
      squares += expected * expected / static_cast<double>(vocab);
      moved += difference * difference / static_cast<double>(vocab);
    }
    const double share = std::sqrt(moved / (squares - mean * mean));
    RecordProperty(c.name, std::to_string(share));
    worst = std::max(worst, share);
    sum += share;
    ++cases;
  }
  ASSERT_EQ(cases, 3);
  EXPECT_GT(sum, 0.0);
  for (const Int8Bound& bound : kInt8Bounds) {
    if (zoo.family == bound.family) {
      EXPECT_LT(worst, bound.most);
    }
  }
}

}  // namespace
}  // namespace cellm
