// Towers against features that the reference computed for the five tiny checkpoints of
// testdata/zoo-mm (its README.md says how), and the promises that hold for all of them: the same
// bits on every tier, with any number of threads and whatever other tiles there are; memory as
// stated; nothing kept after a refusal.
#include "model/tower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "format/model_file.h"
#include "platform/file.h"
#include "support/checkpoint.h"
#include "support/paths.h"
#include "support/zoo_mm.h"

namespace cellm {
namespace {

using ::cellm::testing::QuantiseTower;
using ::cellm::testing::SharedData;
using media::MediaKind;
using media::TowerInput;

// The table of a tier, a pool and a backend over both.
struct Machine {
  kernels::ChosenKernels kernels;
  std::unique_ptr<platform::ThreadPool> pool;
  std::unique_ptr<CpuBackend> backend;

  explicit Machine(std::string_view tier = "", int32_t threads = 2,
                   ActivationMode mode = ActivationMode::kInt8) {
    kernels = kernels::ChooseKernels(tier).value();
    pool = std::move(platform::ThreadPool::Create(threads)).value();
    backend = std::make_unique<CpuBackend>(kernels.table, *pool, mode);
  }
};

using Zoo = ::cellm::testing::ZooMm;
using Case = ::cellm::testing::ZooMmCase;

struct Loaded {
  std::shared_ptr<const Model> model;
  std::unique_ptr<const Tower> tower;
};

Loaded LoadZoo(const std::string& family, MediaKind kind, CpuBackend& backend, int bits = 16) {
  Loaded loaded;
  auto file = format::OpenModelFile(platform::SystemFiles(), SharedData("zoo-mm") + "/" + family);
  EXPECT_TRUE(file.ok()) << file.status().message();
  if (!file.ok()) return loaded;
  if (bits < 16) QuantiseTower(file->get(), bits);
  auto model = LoadModel(std::move(file).value(), backend, SystemAllocator(), LogSink());
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok()) return loaded;
  loaded.model = std::move(model).value();
  auto tower = LoadTower(*loaded.model, kind, backend, SystemAllocator());
  EXPECT_TRUE(tower.ok()) << tower.status().message();
  if (tower.ok()) loaded.tower = std::move(tower).value();
  return loaded;
}

std::vector<float> FeaturesOf(const Tower& tower, CpuBackend& backend, const TowerInput& input,
                              TowerTrace* trace = nullptr) {
  auto features = RunTower(tower, backend, SystemAllocator(), input, trace);
  EXPECT_TRUE(features.ok()) << features.status().message();
  if (!features.ok()) return {};
  return {features->values.begin(), features->values.end()};
}

// Largest difference of the first expected.size() values, over the largest magnitude expected.
double Difference(const std::vector<float>& got, const std::vector<float>& expected) {
  if (expected.empty() || got.size() < expected.size()) return INFINITY;
  double worst = 0.0, largest = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double difference =
        std::fabs(static_cast<double>(got[i]) - static_cast<double>(expected[i]));
    if (!(difference <= worst)) worst = difference;  // NaN counts
    largest = std::max(largest, std::fabs(static_cast<double>(expected[i])));
  }
  return worst / largest;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && !a.empty() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

constexpr double kBound = 1e-4;  // of the reference's README

class Pictures : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Zoo, Pictures,
                         ::testing::Values("smolvlm", "lfm2_vl", "qwen3_5", "gemma3", "gemma4"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(Pictures, FeaturesAreTheReferences) {
  CELLM_SKIP_WITHOUT_SHARED(folder, "zoo-mm");
  const Zoo zoo(GetParam());
  Machine machine;
  const Loaded loaded = LoadZoo(zoo.family, MediaKind::kPicture, *machine.backend);
  ASSERT_NE(loaded.tower, nullptr);
  const std::vector<Case> cases = zoo.Pictures();
  ASSERT_EQ(cases.size(), 3u);
  for (const Case& c : cases) {
    TowerTrace trace;
    const std::vector<float> got = FeaturesOf(*loaded.tower, *machine.backend, c.input, &trace);
    ASSERT_EQ(got.size(), c.after.size()) << c.name;
    const double after = Difference(got, c.after);
    EXPECT_LE(after, kBound) << c.name;
    RecordProperty(c.name + "_after", std::to_string(after));
    if (!c.before.empty()) {
      ASSERT_EQ(trace.before.size(), c.before.size()) << c.name;
      EXPECT_LE(Difference(trace.before, c.before), kBound) << c.name;
    }
    const std::string patches = zoo.family == "qwen3_5" ? "probe_patch_embed" : "probe_embeddings";
    if (c.name == "square") {
      EXPECT_LE(Difference(trace.embeddings, zoo.Values("square/" + patches)), kBound);
      EXPECT_LE(Difference(trace.layer0, zoo.Values("square/probe_layer0")), kBound);
    }
  }
}

TEST_P(Pictures, SameBitsOnEveryTierAndThreadCount) {
  CELLM_SKIP_WITHOUT_SHARED(folder, "zoo-mm");
  const Zoo zoo(GetParam());
  const std::vector<Case> cases = zoo.Pictures();
  ASSERT_FALSE(cases.empty());
  for (const int bits : {16, 8, 4}) {
    std::vector<float> first;
    for (const kernels::Tier& tier : kernels::AllTiers()) {
      if (!tier.runs_here()) continue;
      for (const int32_t threads : {1, 3}) {
        if (bits < 16 && threads == 1) continue;
        Machine machine(tier.name, threads);
        const Loaded loaded = LoadZoo(zoo.family, MediaKind::kPicture, *machine.backend, bits);
        ASSERT_NE(loaded.tower, nullptr);
        const std::vector<float> got =
            FeaturesOf(*loaded.tower, *machine.backend, cases.front().input);
        if (first.empty()) first = got;
        EXPECT_TRUE(SameBits(first, got)) << tier.name << ", " << threads << ", " << bits;
      }
    }
  }
}

// One tile alone gives the rows that it gives among others, in whatever batches those went.
TEST_P(Pictures, TilesDoNotSeeEachOther) {
  CELLM_SKIP_WITHOUT_SHARED(folder, "zoo-mm");
  const Zoo zoo(GetParam());
  Machine machine;
  const Loaded loaded = LoadZoo(zoo.family, MediaKind::kPicture, *machine.backend);
  ASSERT_NE(loaded.tower, nullptr);
  // All three pictures as the tiles of one input, many times over: more than one batch.
  const std::vector<Case> cases = zoo.Pictures();
  TowerInput all;
  std::vector<float> expected;
  for (const Case& c : cases) {
    const std::vector<float> alone = FeaturesOf(*loaded.tower, *machine.backend, c.input);
    expected.insert(expected.end(), alone.begin(), alone.end());
  }
  const std::vector<float> once = expected;
  for (int round = 0; round < 12; ++round) {
    for (const Case& c : cases) {
      if (all.shape.empty()) {
        all.shape = c.input.shape;
        all.shape[0] = 0;
      }
      all.shape[0] += c.input.shape[0];
      all.storage.insert(all.storage.end(), c.input.storage.begin(), c.input.storage.end());
      all.grids.insert(all.grids.end(), c.input.grids.begin(), c.input.grids.end());
    }
    if (round > 0) expected.insert(expected.end(), once.begin(), once.end());
  }
  EXPECT_TRUE(SameBits(FeaturesOf(*loaded.tower, *machine.backend, all), expected));
}

// Fewer bits move features little; the numbers are those of the committed checkpoints.
TEST_P(Pictures, QuantisedWeightsStayNear) {
  CELLM_SKIP_WITHOUT_SHARED(folder, "zoo-mm");
  const Zoo zoo(GetParam());
  const std::vector<Case> cases = zoo.Pictures();
  const struct {
    int bits;
    double bound;  // root of the mean square, over that of the features
  } kinds[] = {{8, 0.05}, {4, 0.5}};
  for (const auto& kind : kinds) {
    Machine machine;
    const Loaded loaded = LoadZoo(zoo.family, MediaKind::kPicture, *machine.backend, kind.bits);
    ASSERT_NE(loaded.tower, nullptr);
    for (const Case& c : cases) {
      const std::vector<float> got = FeaturesOf(*loaded.tower, *machine.backend, c.input);
      ASSERT_EQ(got.size(), c.after.size());
      double error = 0.0, total = 0.0;
      for (size_t i = 0; i < got.size(); ++i) {
        const double difference = static_cast<double>(got[i]) - static_cast<double>(c.after[i]);
        error += difference * difference;
        total += static_cast<double>(c.after[i]) * static_cast<double>(c.after[i]);
      }
      const double moved = std::sqrt(error / total);
      RecordProperty(c.name + "_" + std::to_string(kind.bits), std::to_string(moved));
      EXPECT_LE(moved, kind.bound) << c.name << ", " << kind.bits << " bits";
      EXPECT_GT(moved, 1e-6) << "the weights were not quantised";
    }
  }
}

// All memory goes through the allocator, as much as TowerMemory() says, and comes back.
TEST_P(Pictures, MemoryIsAsStated) {
  CELLM_SKIP_WITHOUT_SHARED(folder, "zoo-mm");
  const Zoo zoo(GetParam());
  Machine machine;
  const Loaded loaded = LoadZoo(zoo.family, MediaKind::kPicture, *machine.backend);
  ASSERT_NE(loaded.tower, nullptr);
  const TowerInput input = zoo.Pictures().back().input;
  const auto needs = TowerMemory(*loaded.tower, input);
  ASSERT_TRUE(needs.ok());
  BudgetAllocator counted(SystemAllocator(), uint64_t{1} << 40);
  {
    CpuBackend backend(machine.kernels.table, *machine.pool, ActivationMode::kInt8);
    auto features = RunTower(*loaded.tower, backend, counted, input);
    ASSERT_TRUE(features.ok());
    EXPECT_EQ(counted.peak_bytes(), needs->activations + needs->features + backend.scratch_bytes());
    EXPECT_EQ(counted.used_bytes(), needs->features + backend.scratch_bytes());
  }
  EXPECT_EQ(counted.used_bytes(), 0u);
  for (uint64_t limit = 0; limit < counted.peak_bytes(); limit += counted.peak_bytes() / 40 + 1) {
    BudgetAllocator small(SystemAllocator(), limit);
    {
      CpuBackend backend(machine.kernels.table, *machine.pool, ActivationMode::kInt8);
      const auto features = RunTower(*loaded.tower, backend, small, input);
      ASSERT_FALSE(features.ok());
      EXPECT_EQ(features.status().code(), StatusCode::kOutOfMemory);
    }
    EXPECT_EQ(small.used_bytes(), 0u);
  }
}

// The formula of tower.h for SigLIP, but for a few integers a patch and the edges of cache lines.
TEST(Siglip, ActivationsAreTheFormulas) {
  CELLM_SKIP_WITHOUT_SHARED(folder, "zoo-mm");
  for (const char* const family : {"smolvlm", "gemma3"}) {
    const Zoo zoo(family);
    Machine machine;
    const Loaded loaded = LoadZoo(family, MediaKind::kPicture, *machine.backend);
    ASSERT_NE(loaded.tower, nullptr);
    const TowerInput input = zoo.Pictures().front().input;
    const auto needs = TowerMemory(*loaded.tower, input);
    ASSERT_TRUE(needs.ok());
    // 8 x 8 patches a tile, which need no rounding to 16; width 72, inner width 144.
    const uint64_t rows = 64 * static_cast<uint64_t>(input.shape[0]);
    const uint64_t floats =
        rows * (2 * 72 + std::max(3 * 72, 3 * 8 * 8)) + rows * 144 + 2 * rows * 72;
    EXPECT_GE(needs->activations, 4 * floats) << family;
    EXPECT_LE(needs->activations, 4 * floats + 12 * rows + 4096) << family;
  }
}

TEST_P(Pictures, InputThatDoesNotFitIsRefused) {
  CELLM_SKIP_WITHOUT_SHARED(folder, "zoo-mm");
  const Zoo zoo(GetParam());
  Machine machine;
  const Loaded loaded = LoadZoo(zoo.family, MediaKind::kPicture, *machine.backend);
  ASSERT_NE(loaded.tower, nullptr);
  const TowerInput good = zoo.Pictures().front().input;
  const auto refused = [&](const char* what, const auto& change) {
    TowerInput bad = good;
    change(bad);
    const auto features = RunTower(*loaded.tower, *machine.backend, SystemAllocator(), bad);
    ASSERT_FALSE(features.ok()) << what;
    EXPECT_EQ(features.status().code(), StatusCode::kInvalidArgument) << what;
  };
  refused("kind", [](TowerInput& bad) { bad.kind = MediaKind::kSound; });
  refused("no shape", [](TowerInput& bad) { bad.shape.clear(); });
  refused("zero", [](TowerInput& bad) { bad.shape[0] = 0; });
  refused("huge", [](TowerInput& bad) { bad.shape[0] = int64_t{1} << 62; });
  refused("short", [](TowerInput& bad) { bad.storage.pop_back(); });
  refused("turned", [](TowerInput& bad) { std::swap(bad.shape[0], bad.shape[1]); });
  if (good.shape.size() == 2 || zoo.family == "qwen3_5") {
    refused("no grid", [](TowerInput& bad) { bad.grids.clear(); });
    refused("odd grid", [](TowerInput& bad) { bad.grids[0].rows += 1; });
    refused("negative grid", [](TowerInput& bad) { bad.grids[0].rows *= -1; });
    refused("huge grid", [](TowerInput& bad) { bad.grids[0] = {1 << 30, 1 << 30}; });
  }
}

// -- Rows for the first text layers (qwen3_vl): no reference is stored, so by the formula

using Tensors = std::map<std::string, testing::CheckpointTensor>;

// y = W x + b of a checkpoint's matrix, in double.
std::vector<double> Product(const Tensors& tensors, const std::string& name,
                            const std::vector<double>& x) {
  const std::vector<float>& w = tensors.at(name + ".weight").values;
  const std::vector<float>& b = tensors.at(name + ".bias").values;
  std::vector<double> y;
  for (size_t r = 0; r < b.size(); ++r) {
    double sum = static_cast<double>(b[r]);
    for (size_t c = 0; c < x.size(); ++c) {
      sum += static_cast<double>(w[r * x.size() + c]) * x[c];
    }
    y.push_back(sum);
  }
  return y;
}

TEST(Deepstack, RowsOfALayerGoThroughAMergerOfTheirOwn) {
  CELLM_SKIP_WITHOUT_SHARED(folder, "zoo-mm");
  const Zoo zoo("qwen3_5");
  Machine machine;
  auto file = format::OpenModelFile(platform::SystemFiles(), zoo.folder);
  ASSERT_TRUE(file.ok());
  // The merger's matrices serve as the other's, too; its norm is over four patches.
  const std::string merger = "model.visual.merger.";
  const std::string deep = "model.visual.deepstack_merger_list.0.";
  const Tensors tensors = testing::ReadCheckpoint(zoo.folder);
  std::vector<format::Tensor> added;
  for (const char* const name :
       {"linear_fc1.weight", "linear_fc1.bias", "linear_fc2.weight", "linear_fc2.bias"}) {
    added.push_back(*(*file)->Find(merger + name));
    added.back().name = deep + name;
  }
  const size_t joined = tensors.at(merger + "linear_fc1.bias").values.size();
  std::vector<float> norms[2];
  for (size_t c = 0; c < joined; ++c) {
    norms[0].push_back(0.5f + 0.01f * static_cast<float>(c % 97));
    norms[1].push_back(0.3f - 0.02f * static_cast<float>(c % 31));
  }
  for (int i = 0; i < 2; ++i) {
    format::Tensor norm;
    norm.name = deep + (i == 0 ? "norm.weight" : "norm.bias");
    norm.format = Format::kF32;
    norm.shape = {static_cast<int64_t>(joined)};
    norm.data = {reinterpret_cast<const uint8_t*>(norms[i].data()), joined * sizeof(float)};
    added.push_back(norm);
  }
  (*file)->tensors.insert((*file)->tensors.end(), added.begin(), added.end());
  std::sort((*file)->tensors.begin(), (*file)->tensors.end(),
            [](const format::Tensor& a, const format::Tensor& b) { return a.name < b.name; });
  std::string text = json::Serialize((*file)->config->root());
  text.replace(text.find("\"depth\":2"), 9, "\"depth\":2,\"deepstack_visual_indexes\":[0]");
  (*file)->config = std::move(json::Document::Parse(text, "config.json")).value();
  auto model = LoadModel(std::move(file).value(), *machine.backend, SystemAllocator(), LogSink());
  ASSERT_TRUE(model.ok()) << model.status().message();
  auto tower = LoadTower(**model, MediaKind::kPicture, *machine.backend, SystemAllocator());
  ASSERT_TRUE(tower.ok()) << tower.status().message();
  EXPECT_EQ((*tower)->info.deep_count, 1);

  const Case c = zoo.Pictures().front();
  TowerTrace trace;
  auto features = RunTower(**tower, *machine.backend, SystemAllocator(), c.input, &trace);
  ASSERT_TRUE(features.ok());
  ASSERT_EQ(features->deep.size(), 1u);
  EXPECT_LE(Difference({features->values.begin(), features->values.end()}, c.after), kBound);
  std::vector<float> expected;
  for (size_t row = 0; row < static_cast<size_t>(features->rows); ++row) {
    std::vector<double> x(trace.layer0.begin() + static_cast<int64_t>(row * joined),
                          trace.layer0.begin() + static_cast<int64_t>((row + 1) * joined));
    double mean = 0.0, variance = 0.0;
    for (const double v : x) mean += v / static_cast<double>(joined);
    for (const double v : x) variance += (v - mean) * (v - mean) / static_cast<double>(joined);
    for (size_t i = 0; i < joined; ++i) {
      x[i] = (x[i] - mean) / std::sqrt(variance + 1e-6) * static_cast<double>(norms[0][i]) +
             static_cast<double>(norms[1][i]);
    }
    std::vector<double> inner = Product(tensors, merger + "linear_fc1", x);
    for (double& v : inner) v = 0.5 * v * (1.0 + std::erf(v / std::sqrt(2.0)));
    for (const double v : Product(tensors, merger + "linear_fc2", inner)) {
      expected.push_back(static_cast<float>(v));
    }
  }
  EXPECT_LE(Difference({features->deep[0].begin(), features->deep[0].end()}, expected), 1e-5);
}

TEST(Sounds, FeaturesAreTheReferences) {
  CELLM_SKIP_WITHOUT_SHARED(folder, "zoo-mm");
  const Zoo zoo("gemma4");
  Machine machine;
  const Loaded loaded = LoadZoo(zoo.family, MediaKind::kSound, *machine.backend);
  ASSERT_NE(loaded.tower, nullptr);
  for (const char* const name : {"audio_one", "audio_two"}) {
    for (const Case& c : zoo.Clips(name)) {
      TowerTrace trace;
      const std::vector<float> got = FeaturesOf(*loaded.tower, *machine.backend, c.input, &trace);
      ASSERT_EQ(got.size(), c.after.size()) << c.name;
      const double after = Difference(got, c.after);
      EXPECT_LE(after, kBound) << c.name;
      RecordProperty(c.name + "_after", std::to_string(after));
      ASSERT_EQ(trace.before.size(), c.before.size()) << c.name;
      EXPECT_LE(Difference(trace.before, c.before), kBound) << c.name;
      if (c.name != "audio_two 0") continue;
      // Probes have the rows that are masked later, too; ours come first.
      for (const auto& [got_rows, key] : {std::pair(&trace.embeddings, "probe_audio_subsample"),
                                          std::pair(&trace.layer0, "probe_audio_layer0")}) {
        std::vector<float> probe = zoo.Values(std::string("audio_two/") + key);
        ASSERT_GE(probe.size(), got_rows->size());
        probe.resize(got_rows->size());
        EXPECT_LE(Difference(*got_rows, probe), kBound) << key;
      }
    }
  }
}

TEST(Sounds, SameBitsOnEveryTierAndThreadCount) {
  CELLM_SKIP_WITHOUT_SHARED(folder, "zoo-mm");
  const Zoo zoo("gemma4");
  const Case clip = zoo.Clips("audio_two").back();
  for (const int bits : {16, 8}) {
    std::vector<float> first;
    for (const kernels::Tier& tier : kernels::AllTiers()) {
      if (!tier.runs_here()) continue;
      for (const int32_t threads : {1, 3}) {
        Machine machine(tier.name, threads);
        const Loaded loaded = LoadZoo(zoo.family, MediaKind::kSound, *machine.backend, bits);
        ASSERT_NE(loaded.tower, nullptr);
        const std::vector<float> got = FeaturesOf(*loaded.tower, *machine.backend, clip.input);
        if (first.empty()) first = got;
        EXPECT_TRUE(SameBits(first, got)) << tier.name << ", " << threads << ", " << bits;
      }
    }
  }
}

// What is not valid is as good as absent, whatever it holds.
TEST(Sounds, FramesThatAreNotValidCannotBeHeard) {
  CELLM_SKIP_WITHOUT_SHARED(folder, "zoo-mm");
  const Zoo zoo("gemma4");
  Machine machine;
  const Loaded loaded = LoadZoo(zoo.family, MediaKind::kSound, *machine.backend);
  ASSERT_NE(loaded.tower, nullptr);
  for (const size_t frames : {1u, 2u, 3u, 4u, 5u, 41u}) {
    Case clip = zoo.Clips("audio_one").front();
    std::fill(clip.input.frame_valid.begin() + static_cast<int64_t>(frames),
              clip.input.frame_valid.end(), uint8_t{0});
    const std::vector<float> masked = FeaturesOf(*loaded.tower, *machine.backend, clip.input);
    TowerInput cut = clip.input;
    cut.shape[0] = static_cast<int64_t>(frames);
    cut.storage.resize(frames * 128);
    cut.frame_valid.resize(frames);
    EXPECT_TRUE(SameBits(masked, FeaturesOf(*loaded.tower, *machine.backend, cut))) << frames;
    std::fill(clip.input.storage.begin() + static_cast<int64_t>(frames * 128),
              clip.input.storage.end(), 1e30f);
    EXPECT_TRUE(SameBits(masked, FeaturesOf(*loaded.tower, *machine.backend, clip.input)))
        << frames;
  }
  TowerInput hole = zoo.Clips("audio_one").front().input;
  hole.frame_valid[3] = 0;
  EXPECT_FALSE(TowerMemory(*loaded.tower, hole).ok());
  TowerInput silent = zoo.Clips("audio_one").front().input;
  std::fill(silent.frame_valid.begin(), silent.frame_valid.end(), uint8_t{0});
  EXPECT_FALSE(TowerMemory(*loaded.tower, silent).ok());
}

// -- Configurations

// The zoo folder with `config` in place of its own.
Result<std::unique_ptr<const Tower>> LoadWith(const std::string& family, MediaKind kind,
                                              CpuBackend& backend, const std::string& from,
                                              const std::string& to,
                                              std::shared_ptr<const Model>* model) {
  auto file = format::OpenModelFile(platform::SystemFiles(), SharedData("zoo-mm") + "/" + family);
  EXPECT_TRUE(file.ok());
  std::string text = json::Serialize((*file)->config->root());
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in " << text;
  text.replace(at, from.size(), to);
  (*file)->config = std::move(json::Document::Parse(text, "config.json")).value();
  auto loaded = LoadModel(std::move(file).value(), backend, SystemAllocator(), LogSink());
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  *model = std::move(loaded).value();
  return LoadTower(**model, kind, backend, SystemAllocator());
}

TEST(TowerConfig, UnknownKeysAndOtherValuesAreRefusedByName) {
  CELLM_SKIP_WITHOUT_SHARED(folder, "zoo-mm");
  constexpr struct {
    const char* family;
    MediaKind kind;
    const char *from, *to;
    const char* named;  // in the message
  } kCases[] = {
      {"smolvlm", MediaKind::kPicture, "\"image_size\":64", "\"image_size\":64,\"new_key\":3",
       "new_key"},
      {"smolvlm", MediaKind::kPicture, "\"hidden_act\":\"gelu_pytorch_tanh\"",
       "\"hidden_act\":\"mish\"", "hidden_act"},
      {"smolvlm", MediaKind::kPicture, "\"num_channels\":3", "\"num_channels\":4", "num_channels"},
      {"smolvlm", MediaKind::kPicture, "\"scale_factor\":2", "\"scale_factor\":3", "scale_factor"},
      {"smolvlm", MediaKind::kPicture, "\"image_size\":64", "\"image_size\":80",
       "position_embedding"},
      {"lfm2_vl", MediaKind::kPicture, "\"num_patches\":64", "\"num_patches\":65", "num_patches"},
      {"lfm2_vl", MediaKind::kPicture, "\"downsample_factor\":2",
       "\"downsample_factor\":2,\"vision_feature_layer\":-2", "vision_feature_layer"},
      {"qwen3_5", MediaKind::kPicture, "\"temporal_patch_size\":2", "\"temporal_patch_size\":1",
       "temporal_patch_size"},
      {"qwen3_5", MediaKind::kPicture, "\"depth\":2", "\"depth\":3", "blocks.2"},
      {"qwen3_5", MediaKind::kPicture, "\"depth\":2",
       "\"depth\":2,\"deepstack_visual_indexes\":[2]", "deepstack_visual_indexes"},
      {"gemma3", MediaKind::kPicture, "\"mm_tokens_per_image\":16", "\"mm_tokens_per_image\":15",
       "mm_tokens_per_image"},
      {"gemma4", MediaKind::kPicture, "\"standardize\":false", "\"standardize\":true", "std_bias"},
      {"gemma4", MediaKind::kPicture, "\"pooling_kernel_size\":3",
       "\"pooling_kernel_size\":3,\"pooling_kind\":[1]", "pooling_kind"},
      {"gemma4", MediaKind::kSound, "\"attention_context_right\":0",
       "\"attention_context_right\":1", "attention_context_right"},
      {"gemma4", MediaKind::kSound, "\"gradient_clipping\":10000000000.0",
       "\"gradient_clipping\":5.0", "gradient_clipping"},
  };
  Machine machine;
  for (const auto& test : kCases) {
    std::shared_ptr<const Model> model;
    const auto tower =
        LoadWith(test.family, test.kind, *machine.backend, test.from, test.to, &model);
    ASSERT_FALSE(tower.ok()) << test.to;
    EXPECT_NE(tower.status().message().find(test.named), std::string::npos)
        << tower.status().message();
  }
}

TEST(TowerConfig, AModelWithoutThePartSaysSo) {
  CELLM_SKIP_WITHOUT_SHARED(folder, "zoo-mm");
  Machine machine;
  std::shared_ptr<const Model> model;
  const auto tower = LoadWith("smolvlm", MediaKind::kSound, *machine.backend, "\"scale_factor\":2",
                              "\"scale_factor\":2", &model);
  ASSERT_FALSE(tower.ok());
  EXPECT_EQ(tower.status().code(), StatusCode::kNotFound);
  EXPECT_NE(tower.status().message().find("sounds"), std::string::npos);
}

}  // namespace
}  // namespace cellm
