#include "model/tower.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/checked.h"
#include "base/limits.h"

namespace cellm {
namespace {

constexpr const TowerFamily* kTowers[] = {
    // One a line, by name.
    &kGemma3Tower,         //
    &kGemma4AudioTower,    //
    &kGemma4VisionTower,   //
    &kQwenTower,           //
    &kSiglip2Tower,        //
    &kSiglipShuffleTower,  //
};

const char* NameOf(media::MediaKind kind) {
  return kind == media::MediaKind::kPicture ? "pictures" : "sounds";
}

const TowerFamily* FindTower(std::string_view model_type, media::MediaKind kind) {
  for (const TowerFamily* tower : kTowers) {
    const auto& types = tower->model_types;
    if (tower->kind == kind && std::find(types.begin(), types.end(), model_type) != types.end()) {
      return tower;
    }
  }
  return nullptr;
}

// Tiles [begin, end) go through the weights together.
struct Batch {
  size_t begin = 0, end = 0;
  int32_t first_feature = 0, features = 0;
};

struct Plan {
  std::vector<TowerTile> tiles;
  std::vector<Batch> batches;
  int32_t features = 0;
  size_t arena_bytes = 0;
  ScratchNeeds scratch;
};

Status FindTiles(const Tower& tower, const media::TowerInput& input, Plan* plan) {
  if (input.kind != tower.family->kind) {
    return InvalidArgument("this tower takes %s", NameOf(tower.family->kind));
  }
  uint64_t count = 1;
  for (const int64_t dimension : input.shape) {
    if (dimension < 1 || dimension > limits::kMaxDimension ||
        !CheckedMul(count, static_cast<uint64_t>(dimension), &count)) {
      return InvalidArgument("a tower's input has a dimension of %lld",
                             static_cast<long long>(dimension));
    }
  }
  if (count != input.values().size()) {
    return InvalidArgument("a tower's input has %zu values where its shape says %llu",
                           input.values().size(), static_cast<unsigned long long>(count));
  }
  CELLM_RETURN_IF_ERROR(tower.family->tiles(tower.weights.get(), input, &plan->tiles));
  int64_t rows = 0;
  for (const TowerTile& tile : plan->tiles) rows += std::max(tile.rows, tile.features);
  if (plan->tiles.empty() || rows > limits::kMaxDimension) {
    return InvalidArgument("a tower's input of %zu tiles and %lld rows", plan->tiles.size(),
                           static_cast<long long>(rows));
  }
  return OkStatus();
}

// The part of `plan` that one pass works on, with null in place of memory.
TowerStep StepOf(const Tower& tower, const Plan& plan, const Batch& batch, Arena* arena) {
  TowerStep step;
  step.tiles = std::span(plan.tiles).subspan(batch.begin, batch.end - batch.begin);
  const int32_t hidden = tower.info.hidden_size;
  step.out = {nullptr, batch.features, hidden, hidden};
  for (int32_t i = 0; i < tower.info.deep_count; ++i) step.deep[i] = step.out;
  step.arena = arena;
  return step;
}

Result<Plan> MakePlan(const Tower& tower, const media::TowerInput& input) {
  Plan plan;
  CELLM_RETURN_IF_ERROR(FindTiles(tower, input, &plan));
  int32_t rows = 0;
  for (size_t i = 0; i < plan.tiles.size(); ++i) {
    const TowerTile& tile = plan.tiles[i];
    if (plan.batches.empty() || rows + tile.rows > kTowerBatchRows) {
      plan.batches.push_back({i, i, plan.features, 0});
      rows = 0;
    }
    rows += tile.rows;
    plan.features += tile.features;
    plan.batches.back().end = i + 1;
    plan.batches.back().features += tile.features;
  }
  MeasureBackend measure;
  for (const Batch& batch : plan.batches) {
    Arena arena;
    tower.family->forward(tower.weights.get(), measure, StepOf(tower, plan, batch, &arena));
    plan.arena_bytes = std::max(plan.arena_bytes, arena.used_bytes());
  }
  plan.scratch = measure.needs();
  return plan;
}

}  // namespace

void TowerStep::Note(std::vector<float> TowerTrace::*part, Rows rows_along) const {
  if (trace == nullptr || rows_along.data == nullptr) return;
  std::vector<float>& to = trace->*part;
  for (int32_t r = 0; r < rows_along.rows; ++r) {
    to.insert(to.end(), rows_along.row(r), rows_along.row(r) + rows_along.cols);
  }
}

Result<std::unique_ptr<const Tower>> LoadTower(const Model& model, media::MediaKind kind,
                                               Backend& backend, Allocator& allocator,
                                               const HoldingOptions& holding) {
  const std::string& path = model.file->path;
  const json::Value root = model.file->config->root();
  std::string_view type;
  root.Find("model_type").GetString(&type);
  const TowerFamily* const family = FindTower(type, kind);
  const json::Value config =
      root.Find(kind == media::MediaKind::kPicture ? "vision_config" : "audio_config");
  if (family == nullptr || !config.is_object()) {
    return NotFound("%s: a \"%s\" model without a part for %s", path.c_str(),
                    std::string(type).c_str(), NameOf(kind));
  }
  auto tower = std::make_unique<Tower>();
  tower->family = family;
  tower->info.family = family->name;
  tower->info.kind = kind;
  tower->info.hidden_size = model.info.hidden_size;
  HoldingOptions options = holding;
  options.embedding_on_flash = FlashTable::kNo;
  WeightHolder holder(*model.file, options, allocator);
  const TowerContext context{
      {*model.file, config, backend, allocator, holder}, root, model.info.hidden_size};
  Status loaded = family->load(context, tower.get());
  if (!loaded.ok() && loaded.message().compare(0, path.size(), path) == 0) return loaded;
  CELLM_RETURN_IF_ERROR(std::move(loaded).WithContext(path));
  CELLM_RETURN_IF_ERROR(holder.Finish());
  tower->info.holding = holder.report();
  return std::unique_ptr<const Tower>(std::move(tower));
}

Result<TowerNeeds> TowerMemory(const Tower& tower, const media::TowerInput& input) {
  CELLM_ASSIGN_OR_RETURN(const Plan plan, MakePlan(tower, input));
  TowerNeeds needs;
  needs.activations = plan.arena_bytes;
  needs.features = uint64_t{sizeof(float)} * static_cast<uint64_t>(plan.features) *
                   static_cast<uint64_t>(tower.info.hidden_size) *
                   static_cast<uint64_t>(1 + tower.info.deep_count);
  needs.scratch = plan.scratch;
  return needs;
}

Result<TowerFeatures> RunTower(const Tower& tower, CpuBackend& backend, Allocator& allocator,
                               const media::TowerInput& input, TowerTrace* trace) {
  CELLM_ASSIGN_OR_RETURN(const Plan plan, MakePlan(tower, input));
  TowerFeatures features;
  features.rows = plan.features;
  features.cols = tower.info.hidden_size;
  const size_t count = static_cast<size_t>(features.rows) * static_cast<size_t>(features.cols);
  const auto take = [&](Array<float>* array) -> Status {
    CELLM_ASSIGN_OR_RETURN(*array,
                           Array<float>::Uninitialised(allocator, count, MemoryClass::kActivations,
                                                       "rows of a picture or sound"));
    return OkStatus();
  };
  CELLM_RETURN_IF_ERROR(take(&features.values));
  features.deep.resize(static_cast<size_t>(tower.info.deep_count));
  for (Array<float>& deep : features.deep) CELLM_RETURN_IF_ERROR(take(&deep));
  CELLM_ASSIGN_OR_RETURN(
      Array<std::byte> block,
      Array<std::byte>::Uninitialised(allocator, plan.arena_bytes, MemoryClass::kActivations,
                                      "activations of a tower"));
  CELLM_RETURN_IF_ERROR(backend.Reserve(plan.scratch, allocator));
  for (const Batch& batch : plan.batches) {
    Arena arena(block.data(), block.size());
    TowerStep step = StepOf(tower, plan, batch, &arena);
    step.values = input.values().data();
    step.trace = trace;
    const int64_t first = int64_t{batch.first_feature} * features.cols;
    step.out.data = features.values.data() + first;
    for (size_t i = 0; i < features.deep.size(); ++i) {
      step.deep[i].data = features.deep[i].data() + first;
    }
    tower.family->forward(tower.weights.get(), backend, step);
  }
  return features;
}

}  // namespace cellm
