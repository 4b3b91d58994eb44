#include "format/convert_plan.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/limits.h"
#include "format/cellm_file.h"
#include "format/gguf_metadata.h"
#include "format/tensor_index.h"
#include "tensor/half.h"
#include "tensor/quantize.h"

namespace cellm::format {
namespace {

std::string BaseOf(const Tensor& tensor) {
  constexpr std::string_view kWeight = ".weight";
  return tensor.name.ends_with(kWeight) ? tensor.name.substr(0, tensor.name.size() - kWeight.size())
                                        : tensor.name;
}

bool IsMatrixShape(const Tensor& tensor) {
  const size_t rank = tensor.shape.size();
  if (rank != 2 && rank != 3) return false;
  return std::all_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t dimension) {
    return dimension >= 1 && dimension <= limits::kMaxDimension;
  });
}

std::string DtypeOf(const Tensor& tensor) {
  if (tensor.format == Format::kPacked) return PackedName(tensor.packed);
  // Version 1 knows this one by its longer name.
  if (tensor.format == Format::kQ1_0) return "q1_0_g128";
  return std::string(GetFormatInfo(tensor.format).name);
}

class Planner {
 public:
  Planner(const ModelFile& in, const ConvertOptions& options, ConvertReport* report)
      : in_(in), options_(options), report_(report) {}

  Result<std::vector<Item>> Run() {
    CELLM_RETURN_IF_ERROR(CheckOptions());
    for (const Tensor& tensor : in_.tensors) {
      if (tensor.name.starts_with(kTextPrefix)) continue;
      if (options_.text_only && IsTowerTensor(tensor.name)) {
        ++dropped_;
        continue;
      }
      CELLM_RETURN_IF_ERROR(Plan(tensor));
    }
    RemoveConsumed();
    if (options_.layout == ConvertLayout::kKernel) PlanTexts();
    if (items_.empty()) return Unsupported("%s: no tensors to convert", in_.path.c_str());
    Explain();
    std::sort(items_.begin(), items_.end(),
              [](const Item& a, const Item& b) { return a.plan.name < b.plan.name; });
    return std::move(items_);
  }

 private:
  Status CheckOptions() const {
    if (options_.dtype != Format::kCount && !IsDenseFloat(options_.dtype)) {
      return InvalidArgument("floats can be stored as f32, f16 or bf16");
    }
    for (const QuantScheme& scheme :
         {options_.attention, options_.mlp, options_.embedding, options_.head}) {
      CELLM_RETURN_IF_ERROR(CheckScheme(scheme));
    }
    for (const QuantRule& rule : options_.recipe.rules) {
      CELLM_RETURN_IF_ERROR(CheckScheme(rule.scheme));
    }
    return OkStatus();
  }

  Status CheckScheme(const QuantScheme& scheme) const {
    if (scheme.bits == 0) return OkStatus();
    if (options_.layout == ConvertLayout::kKernel) {
      return QuantLayout(scheme, 1, limits::kMaxDimension).status();
    }
    const bool known_group = scheme.group == 0 || scheme.group == 32 || scheme.group == 64 ||
                             scheme.group == 128 || scheme.group == 256;
    if (scheme.kind != QuantKind::kSymmetric ||
        (scheme.bits != 4 && !(scheme.bits == 8 && scheme.group == 0))) {
      return InvalidArgument(
          "layout v1 holds 8 bits with one scale a row, or 4 bits, both symmetric; asked for %s",
          QuantSchemeName(scheme).c_str());
    }
    if (!known_group) {
      return InvalidArgument("layout v1 has groups of 32, 64, 128 or 256; asked for %d",
                             scheme.group);
    }
    return OkStatus();
  }

  QuantScheme SchemeOf(const Item& item) const {
    if (item.role == TensorRole::kKept) return {};
    const QuantScheme* const scheme = options_.recipe.Find(item.source->name, RoleName(item.role));
    return scheme != nullptr ? *scheme : SchemeOf(item.role);
  }

  QuantScheme SchemeOf(TensorRole role) const {
    switch (role) {
      case TensorRole::kAttention:
      case TensorRole::kOtherMatrix:
        return options_.attention;
      case TensorRole::kMlp:
        return options_.mlp;
      case TensorRole::kEmbedding:
        return options_.embedding;
      case TensorRole::kHead:
        return options_.head;
      default:
        return {};
    }
  }

  Item NewItem(const Tensor& tensor) const {
    Item item;
    item.source = &tensor;
    item.raw = tensor.data;
    item.base = BaseOf(tensor);
    item.role = RoleOf(tensor.name, tensor.shape.size());
    item.plan = {tensor.name, DtypeOf(tensor), tensor.shape, tensor.data.size()};
    return item;
  }

  Status Plan(const Tensor& tensor) {
    Item item = NewItem(tensor);
    const FormatInfo& info = GetFormatInfo(tensor.format);
    if (IsPlain(tensor.format) && info.is_float) return PlanFloats(std::move(item));
    if (IsPlain(tensor.format)) return PlanIntegers(std::move(item));
    return PlanQuantised(std::move(item));
  }

  // Experts' gate and up projections in one tensor are used as its two halves, and packed rows can
  // only be taken from where a tile begins.
  bool HalvesCutATile(const Tensor& tensor) const {
    const bool gate_and_up = tensor.name.find("gate_up_proj") != std::string::npos ||
                             tensor.name.find("input_linear") != std::string::npos;
    return options_.layout == ConvertLayout::kKernel && tensor.shape.size() == 3 && gate_and_up &&
           tensor.shape[1] % (2 * kTileRows) != 0;
  }

  Status PlanFloats(Item item) {
    const Tensor& tensor = *item.source;
    const QuantScheme scheme = SchemeOf(item);
    if (scheme.bits != 0 && IsMatrixShape(tensor) && !HalvesCutATile(tensor)) {
      if (options_.layout == ConvertLayout::kKernel) return PlanPacked(std::move(item), scheme);
      if (tensor.shape.size() == 2) return PlanV1(std::move(item), scheme);
    }
    if (scheme.bits != 0) ++unquantised_;
    const bool v1 = options_.layout == ConvertLayout::kV1;
    item.to = v1 ? Format::kF16 : options_.dtype;
    const bool reordered = !tensor.row_order.empty() || !tensor.column_order.empty();
    if (item.to == Format::kCount && reordered) {
      item.to = IsDenseFloat(tensor.format) ? tensor.format : Format::kF32;
    }
    if ((item.to == Format::kCount || item.to == tensor.format) && !reordered) {
      items_.push_back(std::move(item));
      return OkStatus();
    }
    // Old readers know no factor beside the tensor.
    const bool scaled = v1 && tensor.shape.size() == 2 && HasTensorScale(item);
    item.kind = reordered || scaled ? Item::Kind::kRows : Item::Kind::kFloats;
    if (item.kind == Item::Kind::kRows) ConsumeTensorScale(item);
    uint64_t count = 0;
    CELLM_CHECK(ElementCount(tensor.shape, &count), "an open file's shape overflows");
    item.plan.dtype = GetFormatInfo(item.to).name;
    if (!CheckedMul(count, static_cast<uint64_t>(GetFormatInfo(item.to).block_bytes),
                    &item.plan.byte_count)) {
      return Corrupt("%s: too large", TensorPlace(in_.path, tensor.name).c_str());
    }
    items_.push_back(std::move(item));
    return OkStatus();
  }

  bool HasTensorScale(const Item& item) const {
    return in_.Find(item.base + ".weight_scale") != nullptr ||
           in_.Find(item.base + ".weight_scale_inv") != nullptr;
  }

  // The one factor of a whole matrix is in the values that its rows decode to.
  void ConsumeTensorScale(const Item& item) {
    consumed_[item.base + ".weight_scale"] = true;
    consumed_[item.base + ".weight_scale_inv"] = true;
  }

  Status PlanPacked(Item item, QuantScheme scheme) {
    ConsumeTensorScale(item);
    const std::vector<int64_t>& shape = item.source->shape;
    const size_t rank = shape.size();
    item.kind = Item::Kind::kQuantise;
    const int32_t rows = static_cast<int32_t>(shape[rank - 2]);
    const int32_t cols = static_cast<int32_t>(shape[rank - 1]);
    CELLM_ASSIGN_OR_RETURN(item.layout, QuantLayout(scheme, rows, cols));
    CELLM_RETURN_IF_ERROR(FindTernary(&item));
    if (item.exact) ++ternary_;
    item.plan.dtype = PackedName(item.layout);
    if (!CheckedMul(uint64_t{item.layout.total_bytes()},
                    static_cast<uint64_t>(MatrixCount(*item.source)), &item.plan.byte_count)) {
      return Corrupt("%s: too large", TensorPlace(in_.path, item.source->name).c_str());
    }
    items_.push_back(std::move(item));
    return OkStatus();
  }

  // Weights that are -s, 0 or s already need two bits, whatever was asked for, and lose nothing.
  // One scale a row, or, where rows have several, the scheme's groups. Stops at the first row that
  // is not so, which nearly always is the first.
  Status FindTernary(Item* item) const {
    PackedLayout layout = item->layout;
    layout.bits = 2;
    layout.zero2 = 2;
    layout.has_min = false;
    std::vector<float> values(static_cast<size_t>(layout.cols));
    for (const int32_t group : {0, item->layout.group}) {
      const int32_t width = group == 0 ? layout.cols : group;
      bool ternary = true;
      bool half = true;  // all scales are f16 numbers
      for (int32_t index = 0; ternary && index < MatrixCount(*item->source); ++index) {
        CELLM_ASSIGN_OR_RETURN(const Matrix matrix, SourceMatrix(in_, *item, index));
        for (int32_t row = 0; ternary && row < matrix.rows; ++row) {
          DecodeRow(matrix, row, values.data());
          for (int32_t begin = 0; ternary && begin < layout.cols; begin += width) {
            float scale = 0;
            ternary =
                TernaryScale(values.data() + begin, std::min(width, layout.cols - begin), &scale);
            half = half && F16ToFloat(FloatToF16(scale)) == scale;
          }
        }
      }
      if (ternary) {
        layout.group = group;
        layout.scale_type = half ? ScaleType::kF16 : ScaleType::kF32;
        item->layout = layout;
        item->exact = true;
        break;
      }
      if (item->layout.group == 0) break;
    }
    return OkStatus();
  }

  Status PlanV1(Item item, QuantScheme scheme) {
    ConsumeTensorScale(item);
    const uint64_t rows = static_cast<uint64_t>(item.source->shape[0]);
    const int64_t cols = item.source->shape[1];
    // Old readers divide to find the group, which is right only when it divides the row.
    if (scheme.group != 0 && cols % scheme.group != 0) scheme.group = 0;
    const uint64_t groups = scheme.group == 0 ? 1 : static_cast<uint64_t>(cols / scheme.group);
    item.kind = Item::Kind::kV1Codes;
    item.scheme = scheme;
    item.plan.dtype = scheme.bits == 8 ? "i8" : "i4";
    const uint64_t row_bytes = static_cast<uint64_t>(cols);
    item.plan.byte_count = rows * (scheme.bits == 8 ? row_bytes : CeilDiv(row_bytes, 2));
    Item scales = item;
    scales.kind = Item::Kind::kV1Scales;
    scales.plan.name += ".qscale";
    scales.plan.dtype = "f16";
    scales.plan.byte_count = rows * groups * 2;
    scales.plan.shape = {static_cast<int64_t>(rows)};
    if (scheme.group != 0) scales.plan.shape.push_back(static_cast<int64_t>(groups));
    items_.push_back(std::move(item));
    items_.push_back(std::move(scales));
    return OkStatus();
  }

  // Indices and weights packed in ways that stay as they are. Version-1 readers know none of them.
  Status PlanIntegers(Item item) {
    if (options_.layout == ConvertLayout::kV1 && item.source->format != Format::kU32) {
      const std::string_view name = item.source->name;
      if (name.ends_with("position_ids") || name.ends_with("num_batches_tracked")) {
        ++dropped_;
        return OkStatus();
      }
      return Unsupported("%s: layout v1 cannot hold \"%s\"", TensorPlace(in_.path, name).c_str(),
                         item.plan.dtype.c_str());
    }
    items_.push_back(std::move(item));
    return OkStatus();
  }

  // Whether a quantised tensor is to be quantised anew: only to fewer bits than it has (more would
  // only lose), and only when that was asked for.
  Result<bool> QuantiseAgain(const Item& item, const QuantScheme& scheme) const {
    CELLM_ASSIGN_OR_RETURN(const Matrix matrix, SourceMatrix(in_, item, 0));
    const auto layout = LosslessPackedLayout(matrix);
    const int32_t bits = layout.ok() ? layout->bits : 8;
    if (scheme.bits >= bits) return false;
    if (!options_.requantize || options_.layout == ConvertLayout::kV1) {
      return InvalidArgument(
          "%s: has %d bits already (\"%s\"), and %s would lose a second time; quantise the "
          "original "
          "weights, or ask for it (--requantize)",
          TensorPlace(in_.path, item.source->name).c_str(), bits, item.plan.dtype.c_str(),
          QuantSchemeName(scheme).c_str());
    }
    return true;
  }

  Status PlanQuantised(Item item) {
    const Tensor& tensor = *item.source;
    const QuantScheme scheme = SchemeOf(item);
    if (scheme.bits != 0 && IsMatrixShape(tensor)) {
      CELLM_ASSIGN_OR_RETURN(const bool again, QuantiseAgain(item, scheme));
      if (again) {
        for (const std::string& side : {tensor.name + ".qscale", tensor.name + ".scales"}) {
          consumed_[side] = true;
        }
        ++again_;
        return PlanPacked(std::move(item), scheme);
      }
      ++already_;
    }
    const bool is_v1_format = tensor.format == Format::kI8V1 || tensor.format == Format::kI4V1 ||
                              tensor.format == Format::kI2V1 || tensor.format == Format::kQ1_0;
    if (options_.layout == ConvertLayout::kV1) {
      if (is_v1_format && tensor.row_order.empty() && tensor.column_order.empty()) {
        items_.push_back(std::move(item));
        return OkStatus();
      }
      return Unsupported(
          "%s: quantised as \"%s\"; layout v1 needs floats or version-1 types in the source",
          TensorPlace(in_.path, tensor.name).c_str(), item.plan.dtype.c_str());
    }
    if (tensor.format == Format::kPacked) {
      items_.push_back(std::move(item));
      return OkStatus();
    }
    if (!IsMatrixShape(tensor)) {
      return Unsupported("%s: shape %s of \"%s\" is no matrix",
                         TensorPlace(in_.path, tensor.name).c_str(),
                         ShapeText(tensor.shape).c_str(), item.plan.dtype.c_str());
    }
    CELLM_ASSIGN_OR_RETURN(const Matrix matrix, SourceMatrix(in_, item, 0));
    auto layout = LosslessPackedLayout(matrix);
    if (!layout.ok()) {
      if (layout.status().code() != StatusCode::kUnsupported || !is_v1_format) {
        return Status(layout.status().code(),
                      TensorPlace(in_.path, tensor.name) + ": " + layout.status().message());
      }
      report_->notes.push_back(tensor.name +
                               " keeps its stored form: " + layout.status().message());
      items_.push_back(std::move(item));
      return OkStatus();
    }
    item.kind = Item::Kind::kPack;
    ConsumeTensorScale(item);
    item.layout = *layout;
    item.plan.dtype = PackedName(*layout);
    if (!CheckedMul(uint64_t{layout->total_bytes()}, static_cast<uint64_t>(MatrixCount(tensor)),
                    &item.plan.byte_count)) {
      return Corrupt("%s: too large", TensorPlace(in_.path, tensor.name).c_str());
    }
    for (const std::string& side : {tensor.name + ".qscale", tensor.name + ".scales"}) {
      consumed_[side] = true;
    }
    items_.push_back(std::move(item));
    return OkStatus();
  }

  void RemoveConsumed() {
    std::erase_if(items_, [&](const Item& item) { return consumed_.count(item.plan.name) != 0; });
  }

  Item TextItem(std::string_view name, std::string_view text) const {
    Item item;
    item.raw = {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
    item.plan = {std::string(kTextPrefix).append(name),
                 "u8",
                 {static_cast<int64_t>(text.size())},
                 text.size()};
    return item;
  }

  void PlanTexts() {
    for (const TextSlot& slot : kTextSlots) {
      const std::string_view text = in_.*slot.view;
      if (!text.empty()) items_.push_back(TextItem(slot.name, text));
    }
    if (!in_.tokenizer_json.empty() || !in_.tokenizer_gguf.empty()) return;
    if (in_.gguf_tokenizer == nullptr) {
      report_->notes.push_back("the source has no tokenizer, so the file has none");
      return;
    }
    auto owned = std::make_shared<const std::string>(WriteGgufTokenizer(*in_.gguf_tokenizer));
    Item item = TextItem("tokenizer.gguf", *owned);
    item.owned = std::move(owned);
    items_.push_back(std::move(item));
  }

  void Explain() {
    if (dropped_ != 0) {
      report_->notes.push_back(std::to_string(dropped_) + " tensors are left out");
    }
    if (already_ != 0) {
      report_->notes.push_back(std::to_string(already_) +
                               " tensors are quantised in the source and keep their values");
    }
    if (again_ != 0) {
      report_->notes.push_back(std::to_string(again_) + " tensors were quantised before");
    }
    if (ternary_ != 0) {
      report_->notes.push_back(std::to_string(ternary_) +
                               " tensors are ternary and are stored without loss");
    }
    if (unquantised_ != 0) {
      report_->notes.push_back(std::to_string(unquantised_) + " fused tensors stay as floats");
    }
  }

  const ModelFile& in_;
  const ConvertOptions& options_;
  ConvertReport* report_;
  std::vector<Item> items_;
  std::map<std::string, bool> consumed_;
  int64_t dropped_ = 0;
  int64_t already_ = 0;
  int64_t again_ = 0;
  int64_t ternary_ = 0;
  int64_t unquantised_ = 0;
};

}  // namespace

int32_t MatrixCount(const Tensor& tensor) {
  return tensor.shape.size() == 3 ? static_cast<int32_t>(tensor.shape[0]) : 1;
}

Result<Matrix> SourceMatrix(const ModelFile& in, const Item& item, int32_t index) {
  const std::vector<int64_t>& shape = item.source->shape;
  const size_t rank = shape.size();
  return FindMatrix(in, item.base, static_cast<int32_t>(shape[rank - 2]),
                    static_cast<int32_t>(shape[rank - 1]), rank == 3 ? index : -1);
}

Result<std::vector<Item>> PlanItems(const ModelFile& in, const ConvertOptions& options,
                                    ConvertReport* report) {
  return Planner(in, options, report).Run();
}

}  // namespace cellm::format
