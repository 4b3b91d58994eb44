#include "format/gguf_tensors.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "format/gguf_keys.h"
#include "tensor/gguf_blocks.h"
#include "tensor/plain_formats.h"

namespace cellm::format {
namespace {

// Row r of a head of `rows` rows lies at 2r in the first half of the head, at 2(r - h/2) + 1 in the
// second.
std::vector<int32_t> InterleavedHeads(int32_t rows, int32_t heads) {
  std::vector<int32_t> order(static_cast<size_t>(rows));
  const int32_t size = rows / heads;
  for (int32_t row = 0; row < rows; ++row) {
    const int32_t in_head = row % size;
    const int32_t half = size / 2;
    order[static_cast<size_t>(row)] =
        row - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
  }
  return order;
}

// Where the checkpoint's value heads lie: head g * each + i at i * groups + g.
std::vector<int32_t> TiledHeads(int32_t groups, int32_t each) {
  std::vector<int32_t> order;
  for (int32_t g = 0; g < groups; ++g) {
    for (int32_t i = 0; i < each; ++i) order.push_back(i * groups + g);
  }
  return order;
}

// The order of single rows: `fixed` rows that stay, then units of `unit` rows in `order`.
std::vector<int32_t> OrderOfRows(int32_t fixed, std::span<const int32_t> order, int32_t unit) {
  std::vector<int32_t> rows;
  for (int32_t row = 0; row < fixed; ++row) rows.push_back(row);
  for (const int32_t stored : order) {
    for (int32_t row = 0; row < unit; ++row) rows.push_back(fixed + stored * unit + row);
  }
  return rows;
}

class TensorBuilder {
 public:
  TensorBuilder(const GgufArch& arch, const GgufIndex& index, const GgufShape& shape,
                int32_t experts, ModelFile* model)
      : arch_(arch), index_(index), shape_(shape), experts_(experts), model_(model) {
    if (shape.linear_key_heads != shape.linear_value_heads) {
      value_heads_ =
          TiledHeads(shape.linear_key_heads, shape.linear_value_heads / shape.linear_key_heads);
    }
  }

  Status Add(const GgufFile& part, uint32_t file_index, const GgufTensor& stored);
  Status AddXielu(const GgufFile& part);
  Status Finish(std::string_view file_name);

 private:
  Status Apply(Step step, int32_t layer, Tensor tensor);
  Status AddExperts(Tensor tensor);
  Status Reorder(std::vector<int32_t> rows, Tensor tensor);
  Status ReorderValueRows(int32_t fixed, Tensor tensor);
  Status ReorderColumns(Tensor tensor);
  Result<std::vector<float>> Load(const Tensor& tensor) const;
  Status AddRewritten(std::span<const float> values, Tensor tensor);
  Status Push(Tensor tensor);
  std::span<const int32_t> Own(std::vector<int32_t> order);
  Status Wrong(const char* what) const {
    return Corrupt("%.*s: tensor \"%.*s\" %s", static_cast<int>(part_name_.size()),
                   part_name_.data(), static_cast<int>(stored_name_.size()), stored_name_.data(),
                   what);
  }

  const GgufArch& arch_;
  const GgufIndex& index_;
  const GgufShape& shape_;
  const int32_t experts_;  // 0: the family has none
  ModelFile* model_;
  std::vector<int32_t> value_heads_;  // empty: as they are
  std::string_view part_name_;        // of the tensor that is being added, for messages
  std::string_view stored_name_;
  int32_t skipped_ahead_ = 0;
  int32_t skipped_parts_ = 0;
};

std::span<const int32_t> TensorBuilder::Own(std::vector<int32_t> order) {
  // Layers repeat the same few orders.
  for (const std::unique_ptr<std::vector<int32_t>>& known : model_->owned_orders) {
    if (*known == order) return *known;
  }
  model_->owned_orders.push_back(std::make_unique<std::vector<int32_t>>(std::move(order)));
  return *model_->owned_orders.back();
}

Status TensorBuilder::Push(Tensor tensor) {
  if (model_->tensors.size() >= limits::kMaxTensors) return Wrong("is one tensor too many");
  model_->tensors.push_back(std::move(tensor));
  return OkStatus();
}

Result<std::vector<float>> TensorBuilder::Load(const Tensor& tensor) const {
  if (!IsDenseFloat(tensor.format)) return Wrong("is not stored as floats, which a vector must be");
  const size_t item = static_cast<size_t>(GetFormatInfo(tensor.format).block_bytes);
  std::vector<float> values(tensor.data.size() / item);
  DecodePlain(tensor.format, tensor.data.data(), static_cast<int64_t>(values.size()),
              values.data());
  return values;
}

Status TensorBuilder::AddRewritten(std::span<const float> values, Tensor tensor) {
  auto bytes = std::make_unique<std::vector<uint8_t>>(values.size() * sizeof(float));
  std::memcpy(bytes->data(), values.data(), bytes->size());
  tensor.format = Format::kF32;
  tensor.data = *bytes;
  tensor.file_offset = 0;  // not in the file
  model_->owned_bytes.push_back(std::move(bytes));
  return Push(std::move(tensor));
}

// Matrices keep their bytes and get an order; vectors, and what has several taps a row, are
// rewritten, as whoever reads them expects plain floats.
Status TensorBuilder::Reorder(std::vector<int32_t> rows, Tensor tensor) {
  if (tensor.shape[0] != static_cast<int64_t>(rows.size())) {
    return Wrong("does not have the rows that its heads demand");
  }
  if (tensor.shape.size() == 2) {
    tensor.row_order = Own(std::move(rows));
    return Push(std::move(tensor));
  }
  CELLM_ASSIGN_OR_RETURN(const std::vector<float> stored, Load(tensor));
  const size_t width = stored.size() / rows.size();
  std::vector<float> values(stored.size());
  for (size_t row = 0; row < rows.size(); ++row) {
    std::copy_n(stored.data() + static_cast<size_t>(rows[row]) * width, width,
                values.data() + row * width);
  }
  return AddRewritten(values, std::move(tensor));
}

// `fixed` rows that stay, then those of the value heads. What the header says of heads is held
// against the tensor first, whose bytes are there: the order takes memory.
Status TensorBuilder::ReorderValueRows(int32_t fixed, Tensor tensor) {
  const int64_t rows = fixed + static_cast<int64_t>(value_heads_.size()) * shape_.linear_value_dim;
  if (tensor.shape[0] != rows || rows > limits::kMaxDimension) {
    return Wrong("does not have the rows that its heads demand");
  }
  return Reorder(OrderOfRows(fixed, value_heads_, shape_.linear_value_dim), std::move(tensor));
}

Status TensorBuilder::ReorderColumns(Tensor tensor) {
  if (tensor.shape.size() != 2 ||
      tensor.shape[1] != int64_t{shape_.linear_value_heads} * shape_.linear_value_dim) {
    return Wrong("does not have the columns that its heads demand");
  }
  tensor.column_order = Own(value_heads_);
  tensor.column_unit = shape_.linear_value_dim;
  return Push(std::move(tensor));
}

Status TensorBuilder::AddExperts(Tensor tensor) {
  if (tensor.shape.size() != 3 || tensor.shape[0] != experts_) {
    return Wrong("does not have as many experts as expert_count says");
  }
  const size_t star = tensor.name.find('*');
  const size_t bytes = tensor.data.size() / static_cast<size_t>(experts_);
  for (int32_t e = 0; e < experts_; ++e) {
    Tensor slice = tensor;
    slice.name.replace(star, 1, std::to_string(e));
    slice.shape.erase(slice.shape.begin());
    slice.data = tensor.data.subspan(static_cast<size_t>(e) * bytes, bytes);
    slice.file_offset = tensor.file_offset + static_cast<uint64_t>(e) * bytes;
    CELLM_RETURN_IF_ERROR(Push(std::move(slice)));
  }
  return OkStatus();
}

Status TensorBuilder::Apply(Step step, int32_t layer, Tensor tensor) {
  if (step == Step::kConv || step == Step::kMixedConv) {
    if (tensor.shape.size() == 1 && tensor.name.ends_with(".bias")) return Push(std::move(tensor));
    if (tensor.shape.size() == 2) tensor.shape.insert(tensor.shape.begin() + 1, 1);
    if (tensor.shape.size() != 3 || tensor.shape[1] != 1) return Wrong("is no short convolution");
  }
  switch (step) {
    case Step::kNone:
    case Step::kIgnore:
    case Step::kConv:
      return Push(std::move(tensor));
    case Step::kNorm: {
      if (!arch_.norms_plus_one) return Push(std::move(tensor));
      CELLM_ASSIGN_OR_RETURN(std::vector<float> values, Load(tensor));
      for (float& value : values) value -= 1.0f;
      return AddRewritten(values, std::move(tensor));
    }
    case Step::kQuery:
    case Step::kKey: {
      if (!arch_.interleaved_heads) return Push(std::move(tensor));
      const int32_t heads =
          step == Step::kQuery ? shape_.heads : shape_.kv_heads[static_cast<size_t>(layer)];
      const int64_t rows = tensor.shape[0];
      if (rows > limits::kMaxDimension || rows % (int64_t{2} * heads) != 0) {
        return Wrong("does not divide into heads of an even size");
      }
      return Reorder(InterleavedHeads(static_cast<int32_t>(rows), heads), std::move(tensor));
    }
    case Step::kScalar: {
      int64_t count = 1;
      for (const int64_t dim : tensor.shape) count *= dim;
      if (count != 1) return Wrong("is not one number");
      tensor.shape = {1};
      return Push(std::move(tensor));
    }
    case Step::kFlat: {
      int64_t count = 1;
      for (const int64_t dim : tensor.shape) count *= dim;  // the reader held it against the bytes
      tensor.shape = {count};
      return Push(std::move(tensor));
    }
    case Step::kDecay: {
      CELLM_ASSIGN_OR_RETURN(std::vector<float> values, Load(tensor));
      for (float& value : values) {
        if (!(value < 0)) return Wrong("has a decay that is not negative");
        value = static_cast<float>(std::log(-static_cast<double>(value)));
      }
      std::vector<float> ordered = values;
      if (!value_heads_.empty()) {
        if (values.size() != value_heads_.size()) return Wrong("is not one number a value head");
        for (size_t head = 0; head < values.size(); ++head) {
          ordered[head] = values[static_cast<size_t>(value_heads_[head])];
        }
      }
      return AddRewritten(ordered, std::move(tensor));
    }
    case Step::kExperts:
      return AddExperts(std::move(tensor));
    default:
      break;
  }
  // What is left concerns value heads.
  if (value_heads_.empty()) return Push(std::move(tensor));
  const int64_t mixed = int64_t{2} * shape_.linear_key_heads * shape_.linear_key_dim;
  if (mixed > limits::kMaxDimension) return Wrong("stands beside keys too wide for any model");
  switch (step) {
    case Step::kValueColumns:
      return ReorderColumns(std::move(tensor));
    case Step::kValueRows:
      return ReorderValueRows(0, std::move(tensor));
    case Step::kMixedRows:
    case Step::kMixedConv:
      return ReorderValueRows(static_cast<int32_t>(mixed), std::move(tensor));
    default:
      return Reorder(value_heads_, std::move(tensor));
  }
}

Status TensorBuilder::Add(const GgufFile& part, uint32_t file_index, const GgufTensor& stored) {
  part_name_ = part.name;
  stored_name_ = stored.name;
  for (const std::string_view prefix : {"v.", "a.", "mm."}) {  // vision, audio, projector
    if (!stored.name.starts_with(prefix)) continue;
    ++skipped_parts_;
    return OkStatus();
  }
  std::optional<MappedName> mapped = MapGgufName(arch_, stored.name);
  if (GgufLayerOf(stored.name) >= shape_.layers) {
    ++skipped_ahead_;  // layers past the last predict further tokens
    return OkStatus();
  }
  if (stored.name.ends_with(".input_scale"))
    return OkStatus();  // for engines with 4-bit activations
  if (!mapped.has_value()) {
    return Unsupported(
        "%.*s: tensor \"%.*s\" is not one that the architecture \"%.*s\" is known "
        "to have",
        static_cast<int>(part.name.size()), part.name.data(), static_cast<int>(stored.name.size()),
        stored.name.data(), static_cast<int>(arch_.name.size()), arch_.name.data());
  }
  if (mapped->step == Step::kIgnore) return OkStatus();

  Tensor tensor;
  tensor.name = std::move(mapped->name);
  tensor.format = stored.format;
  tensor.data = stored.data;
  tensor.file_index = file_index;
  tensor.file_offset = stored.file_offset;
  for (uint32_t i = stored.rank; i > 0; --i) {
    if (stored.dims[i - 1] > static_cast<uint64_t>(INT64_MAX)) return Wrong("has a huge dimension");
    tensor.shape.push_back(static_cast<int64_t>(stored.dims[i - 1]));
  }
  // gemma4 with gate and up of the experts in one tensor keeps the experts stacked.
  if (mapped->step == Step::kExperts) {
    const std::string fused = "blk." + std::to_string(mapped->layer) + ".ffn_gate_up_exps.weight";
    if (index_.Find(fused) != nullptr) {
      mapped->step = Step::kNone;
      tensor.name.erase(tensor.name.find("*."), 2);
      tensor.name.erase(tensor.name.rfind('.'));
    }
  }
  return Apply(mapped->step, mapped->layer, std::move(tensor));
}

// apertus keeps the numbers of its activation in pairs, the checkpoint in tensors.
Status TensorBuilder::AddXielu(const GgufFile& part) {
  GgufKeys keys(part, "xielu");
  for (const std::string_view name : {"alpha_p", "alpha_n", "beta", "eps"}) {
    const std::vector<double> values = keys.Floats(name, static_cast<size_t>(shape_.layers));
    if (!keys.status().ok()) return keys.status();
    for (size_t layer = 0; layer < values.size(); ++layer) {
      Tensor tensor;
      tensor.name = "model.layers." + std::to_string(layer) + ".mlp.act_fn." + std::string(name);
      tensor.shape = {1};
      const float value = static_cast<float>(values[layer]);
      CELLM_RETURN_IF_ERROR(AddRewritten({&value, 1}, std::move(tensor)));
    }
  }
  return OkStatus();
}

Status TensorBuilder::Finish(std::string_view file_name) {
  std::vector<Tensor>& tensors = model_->tensors;
  std::sort(tensors.begin(), tensors.end(),
            [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].name != tensors[i - 1].name) continue;
    return Corrupt("%.*s: two tensors mean \"%s\"", static_cast<int>(file_name.size()),
                   file_name.data(), tensors[i].name.c_str());
  }
  if (skipped_ahead_ > 0) {
    model_->notes.push_back(
        StrFormat("%d tensors of layers that predict further tokens are not used", skipped_ahead_));
  }
  if (skipped_parts_ > 0) {
    model_->notes.push_back(StrFormat("%d vision or audio tensors are not used", skipped_parts_));
  }
  return OkStatus();
}

}  // namespace

Status AddGgufTensors(const GgufArch& arch, std::span<const GgufFile> parts, const GgufIndex& index,
                      const GgufShape& shape, ModelFile* model) {
  GgufKeys keys(parts[0], arch.name);
  const int32_t experts = static_cast<int32_t>(keys.Int("expert_count", 0, 0, 4096));
  CELLM_RETURN_IF_ERROR(Status(keys.status()));
  TensorBuilder builder(arch, index, shape, experts, model);
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const GgufTensor& tensor : parts[i].tensors) {
      CELLM_RETURN_IF_ERROR(builder.Add(parts[i], static_cast<uint32_t>(i), tensor));
    }
  }
  if (arch.name == "apertus") CELLM_RETURN_IF_ERROR(builder.AddXielu(parts[0]));
  return builder.Finish(parts[0].name);
}

}  // namespace cellm::format
