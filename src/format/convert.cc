#include "format/convert.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/limits.h"
#include "format/cellm_file.h"
#include "format/cellm_writer.h"
#include "format/tensor_index.h"
#include "tensor/quantize.h"

namespace cellm::format {
namespace {

constexpr int64_t kChunkValues = 64 << 10;
constexpr size_t kChunkBytes = size_t{1} << 20;

// How one tensor of the output comes about.
struct Item {
  enum class Kind {
    kRaw,       // bytes as they are
    kFloats,    // values to another float format, in order
    kRows,      // values row by row: the source has another order
    kPack,      // codes of the source, packed without loss
    kQuantise,  // values to packed codes
    kV1Codes,   // values to version-1 codes; the scales are kept for kV1Scales
    kV1Scales,
  };
  Kind kind = Kind::kRaw;
  CellmTensorPlan plan;
  std::span<const uint8_t> raw;
  const Tensor* source = nullptr;  // null for texts
  std::string base;                // for FindMatrix()
  Format to = Format::kCount;      // kFloats, kRows
  PackedLayout layout;             // kPack, kQuantise: of one matrix
  QuantScheme scheme;              // kV1Codes
  TensorRole role = TensorRole::kKept;
};

std::string BaseOf(const Tensor& tensor) {
  constexpr std::string_view kWeight = ".weight";
  return tensor.name.ends_with(kWeight) ? tensor.name.substr(0, tensor.name.size() - kWeight.size())
                                        : tensor.name;
}

// The matrices inside a tensor: experts of a fused one, or one.
int32_t MatrixCount(const Tensor& tensor) {
  return tensor.shape.size() == 3 ? static_cast<int32_t>(tensor.shape[0]) : 1;
}

Result<Matrix> SourceMatrix(const ModelFile& in, const Item& item, int32_t index) {
  const std::vector<int64_t>& shape = item.source->shape;
  const size_t rank = shape.size();
  return FindMatrix(in, item.base, static_cast<int32_t>(shape[rank - 2]),
                    static_cast<int32_t>(shape[rank - 1]), rank == 3 ? index : -1);
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
      if (scheme.bits == 0) continue;
      if (options_.layout == ConvertLayout::kKernel) {
        PackedLayout layout = LayoutFor(scheme, 1, limits::kMaxDimension);
        CELLM_RETURN_IF_ERROR(ValidatePackedLayout(layout));
        if (scheme.bits < 2) return InvalidArgument("1 bit a weight is not offered");
        continue;
      }
      const bool known_group = scheme.group == 0 || scheme.group == 32 || scheme.group == 64 ||
                               scheme.group == 128 || scheme.group == 256;
      if (scheme.bits != 4 && !(scheme.bits == 8 && scheme.group == 0)) {
        return InvalidArgument(
            "layout v1 holds 8 bits with one scale a row, or 4 bits; asked for %d with a group "
            "of %d",
            scheme.bits, scheme.group);
      }
      if (!known_group) {
        return InvalidArgument("layout v1 has groups of 32, 64, 128 or 256; asked for %d",
                               scheme.group);
      }
    }
    return OkStatus();
  }

  static PackedLayout LayoutFor(QuantScheme scheme, int32_t rows, int32_t cols) {
    PackedLayout layout;
    layout.rows = rows;
    layout.cols = cols;
    layout.bits = scheme.bits;
    layout.group = scheme.group >= cols ? 0 : scheme.group;
    layout.zero2 = scheme.bits >= 1 && scheme.bits <= 8 ? 1 << scheme.bits : 0;
    return layout;
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

  Status PlanFloats(Item item) {
    const Tensor& tensor = *item.source;
    const QuantScheme scheme = SchemeOf(item.role);
    if (scheme.bits != 0 && tensor.shape.size() == 2 && IsMatrixShape(tensor)) {
      return options_.layout == ConvertLayout::kV1 ? PlanV1(std::move(item), scheme)
                                                   : PlanPacked(std::move(item), scheme);
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
    item.kind = reordered ? Item::Kind::kRows : Item::Kind::kFloats;
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

  Status PlanPacked(Item item, QuantScheme scheme) {
    const std::vector<int64_t>& shape = item.source->shape;
    item.kind = Item::Kind::kQuantise;
    item.layout = LayoutFor(scheme, static_cast<int32_t>(shape[0]), static_cast<int32_t>(shape[1]));
    CELLM_RETURN_IF_ERROR(ValidatePackedLayout(item.layout));
    item.plan.dtype = PackedName(item.layout);
    item.plan.byte_count = item.layout.total_bytes();
    items_.push_back(std::move(item));
    return OkStatus();
  }

  Status PlanV1(Item item, QuantScheme scheme) {
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

  Status PlanQuantised(Item item) {
    const Tensor& tensor = *item.source;
    if (SchemeOf(item.role).bits != 0) ++already_;
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

  void PlanTexts() {
    for (const TextSlot& slot : kTextSlots) {
      const std::string_view text = in_.*slot.view;
      if (text.empty()) continue;
      Item item;
      item.raw = {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
      item.plan = {std::string(kTextPrefix).append(slot.name),
                   "u8",
                   {static_cast<int64_t>(text.size())},
                   text.size()};
      items_.push_back(std::move(item));
    }
    if (in_.tokenizer_json.empty()) {
      report_->notes.push_back("the source has no tokenizer.json, so the file has none");
    }
  }

  void Explain() {
    if (dropped_ != 0) {
      report_->notes.push_back(std::to_string(dropped_) + " tensors are left out");
    }
    if (already_ != 0) {
      report_->notes.push_back(std::to_string(already_) +
                               " tensors are quantised in the source and keep their values");
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
  int64_t unquantised_ = 0;
};

// Writes the items in order.
class Producer {
 public:
  Producer(const ModelFile& in, const ConvertOptions& options, CellmWriter* writer,
           ConvertReport* report)
      : in_(in), options_(options), writer_(writer), report_(report) {}

  Status Run(const std::vector<Item>& items) {
    for (const Item& item : items) {
      if (item.kind != Item::Kind::kV1Scales) total_ += item.raw.size();
    }
    for (const Item& item : items) {
      item_ = &item;
      CELLM_RETURN_IF_ERROR(Produce(item).WithContext(item.plan.name));
      Count(item);
    }
    return OkStatus();
  }

 private:
  Status Produce(const Item& item) {
    switch (item.kind) {
      case Item::Kind::kRaw:
        return ProduceRaw(item);
      case Item::Kind::kFloats:
        return ProduceFloats(item);
      case Item::Kind::kRows:
        return ForEachRow(item, [&](const Matrix& matrix, int32_t row) {
          DecodeRow(matrix, row, values_.data());
          bytes_.resize(values_.size() * static_cast<size_t>(GetFormatInfo(item.to).block_bytes));
          EncodeDenseFloat(item.to, values_.data(), matrix.cols, bytes_.data(), &report_->losses);
          return writer_->Append(bytes_);
        });
      case Item::Kind::kPack:
      case Item::Kind::kQuantise:
        return ProducePacked(item);
      case Item::Kind::kV1Codes:
        v1_scales_.clear();
        return ForEachRow(item, [&](const Matrix& matrix, int32_t row) {
          return ProduceV1Row(item, matrix, row);
        });
      case Item::Kind::kV1Scales:
        return writer_->Append(v1_scales_);
    }
    return Internal("an item of no kind");
  }

  Status Advance(uint64_t source_bytes) {
    done_ += source_bytes;
    if (options_.progress.report == nullptr ||
        options_.progress.report(options_.progress.user, done_, total_, item_->plan.name)) {
      return OkStatus();
    }
    return Cancelled("stopped");
  }

  // The source's pages are not needed again: without this a large model would fill memory.
  void Release(const Item& item) const {
    if (item.source == nullptr || item.source->file_index >= in_.files.size()) return;
    in_.files[item.source->file_index].Release(item.source->file_offset, item.raw.size());
  }

  Status ProduceRaw(const Item& item) {
    for (size_t at = 0; at < item.raw.size(); at += kChunkBytes) {
      const auto part = item.raw.subspan(at, std::min(kChunkBytes, item.raw.size() - at));
      CELLM_RETURN_IF_ERROR(writer_->Append(part));
      CELLM_RETURN_IF_ERROR(Advance(part.size()));
    }
    return OkStatus();
  }

  Status ProduceFloats(const Item& item) {
    const int64_t from_bytes = GetFormatInfo(item.source->format).block_bytes;
    const int64_t to_bytes = GetFormatInfo(item.to).block_bytes;
    const int64_t count = static_cast<int64_t>(item.raw.size()) / from_bytes;
    values_.resize(static_cast<size_t>(kChunkValues));
    bytes_.resize(static_cast<size_t>(kChunkValues * to_bytes));
    for (int64_t at = 0; at < count; at += kChunkValues) {
      const int64_t part = std::min(kChunkValues, count - at);
      DecodePlain(item.source->format, item.raw.data() + at * from_bytes, part, values_.data());
      EncodeDenseFloat(item.to, values_.data(), part, bytes_.data(), &report_->losses);
      CELLM_RETURN_IF_ERROR(writer_->Append({bytes_.data(), static_cast<size_t>(part * to_bytes)}));
      CELLM_RETURN_IF_ERROR(Advance(static_cast<uint64_t>(part * from_bytes)));
    }
    return OkStatus();
  }

  // `body`(matrix, row) for every row of every matrix of the tensor; values_ has a row's size.
  template <typename Body>
  Status ForEachRow(const Item& item, Body body) {
    const int32_t matrices = MatrixCount(*item.source);
    for (int32_t index = 0; index < matrices; ++index) {
      CELLM_ASSIGN_OR_RETURN(const Matrix matrix, SourceMatrix(in_, item, index));
      values_.resize(static_cast<size_t>(matrix.cols));
      const uint64_t row_bytes = matrix.data.size() / static_cast<uint64_t>(matrix.rows);
      for (int32_t row = 0; row < matrix.rows; ++row) {
        CELLM_RETURN_IF_ERROR(body(matrix, row));
        if (row % kTileRows == 0) {
          CELLM_RETURN_IF_ERROR(
              Advance(row_bytes * static_cast<uint64_t>(std::min(kTileRows, matrix.rows - row))));
        }
      }
    }
    return OkStatus();
  }

  Status ProducePacked(const Item& item) {
    // A tile is a packed matrix of 16 rows: the same layout with other rows.
    PackedLayout tile_layout = item.layout;
    tile_layout.rows = kTileRows;
    Matrix tile;
    tile.format = Format::kPacked;
    tile.rows = kTileRows;
    tile.cols = item.layout.cols;
    tile.packed = tile_layout;
    const size_t groups = static_cast<size_t>(item.layout.groups());
    codes_.resize(static_cast<size_t>(item.layout.cols));
    scales_.resize(groups);
    mins_.resize(groups);
    bytes_.assign(item.layout.tile_bytes(), 0);
    tile.data = bytes_;
    return ForEachRow(item, [&](const Matrix& matrix, int32_t row) -> Status {
      if (item.kind == Item::Kind::kPack) {
        DecodeRowCodes(matrix, row, codes_.data(), scales_.data(), mins_.data());
      } else {
        DecodeRow(matrix, row, values_.data());
        CELLM_RETURN_IF_ERROR(CheckFinite(row));
        QuantizeRow(item.layout, values_.data(), nullptr, codes_.data(), scales_.data());
      }
      const int32_t lane = row % kTileRows;
      PackRow(tile_layout, lane, codes_.data(), scales_.data(), mins_.data(), bytes_.data());
      if (item.kind == Item::Kind::kQuantise) MeasureRow(item.role, tile, lane);
      if (lane != kTileRows - 1 && row != matrix.rows - 1) return OkStatus();
      CELLM_RETURN_IF_ERROR(writer_->Append(bytes_));
      std::fill(bytes_.begin(), bytes_.end(), uint8_t{0});
      return OkStatus();
    });
  }

  Status CheckFinite(int32_t row) const {
    if (IsAllFinite(values_.data(), static_cast<int64_t>(values_.size()))) return OkStatus();
    return Corrupt("row %d has a value that is not finite and cannot be quantised", row);
  }

  Status ProduceV1Row(const Item& item, const Matrix& matrix, int32_t row) {
    DecodeRow(matrix, row, values_.data());
    CELLM_RETURN_IF_ERROR(CheckFinite(row));
    const size_t cols = static_cast<size_t>(matrix.cols);
    const size_t groups =
        item.scheme.group == 0 ? 1 : cols / static_cast<size_t>(item.scheme.group);
    half_scales_.resize(groups);
    bytes_.resize(item.scheme.bits == 8 ? cols : CeilDiv(cols, 2));
    if (item.scheme.bits == 8) {
      EncodeV1I8Row(values_.data(), matrix.cols, bytes_.data(), half_scales_.data());
    } else {
      EncodeV1I4Row(values_.data(), matrix.cols, item.scheme.group, bytes_.data(),
                    half_scales_.data());
    }
    const size_t begin = v1_scales_.size();
    v1_scales_.resize(begin + 2 * groups);
    for (size_t g = 0; g < groups; ++g) StoreLe(&v1_scales_[begin + 2 * g], half_scales_[g]);
    Matrix written;
    written.format = item.scheme.bits == 8 ? Format::kI8V1 : Format::kI4V1;
    written.rows = 1;
    written.cols = matrix.cols;
    written.group = item.scheme.group;
    written.data = bytes_;
    written.scales = std::span<const uint8_t>(v1_scales_).subspan(begin);
    MeasureRow(item.role, written, 0);
    return writer_->Append(bytes_);
  }

  // values_ against what the written bytes decode to.
  void MeasureRow(TensorRole role, const Matrix& written, int32_t row) {
    decoded_.resize(values_.size());
    DecodeRow(written, row, decoded_.data());
    RoleReport& report = report_->roles[static_cast<int>(role)];
    for (size_t i = 0; i < values_.size(); ++i) {
      const double difference = double{decoded_[i]} - double{values_[i]};
      report.squared_error += difference * difference;
      report.squared_weights += double{values_[i]} * double{values_[i]};
    }
  }

  void Count(const Item& item) {
    Release(item);
    if (item.source == nullptr) return;
    RoleReport& report = report_->roles[static_cast<int>(item.role)];
    report.bytes += item.plan.byte_count;
    if (item.kind == Item::Kind::kV1Scales || item.plan.name.ends_with(".qscale")) return;
    uint64_t count = 0;
    if (ElementCount(item.source->shape, &count)) report.weights += count;
    ++report.tensors;
  }

  const ModelFile& in_;
  const ConvertOptions& options_;
  CellmWriter* writer_;
  ConvertReport* report_;
  const Item* item_ = nullptr;
  uint64_t done_ = 0;
  uint64_t total_ = 0;
  std::vector<float> values_, decoded_, scales_, mins_;
  std::vector<uint8_t> codes_, bytes_, v1_scales_;
  std::vector<uint16_t> half_scales_;
};

std::string SchemeText(const QuantScheme& scheme) {
  if (scheme.bits == 0) return "null";
  return StrFormat("{\"bits\":%d,\"group\":%d}", scheme.bits, scheme.group);
}

// The header's members of ours: where the model comes from and how it was quantised.
std::string OwnMembers(const ModelFile& in, const ConvertOptions& options) {
  const std::string dtype = options.dtype == Format::kCount
                                ? std::string("as in the source")
                                : std::string(GetFormatInfo(options.dtype).name);
  std::string text = "\"cellm_version\":" + json::Quote(options.version);
  text += ",\"cellm_quantization\":{\"method\":\"scale search for the least squared error\"";
  text += ",\"source\":" + json::Quote(in.container);
  text += ",\"floats\":" + json::Quote(dtype);
  text += ",\"attention\":" + SchemeText(options.attention);
  text += ",\"mlp\":" + SchemeText(options.mlp);
  text += ",\"embedding\":" + SchemeText(options.embedding);
  text += ",\"head\":" + SchemeText(options.head);
  if (!in.quantization_json.empty()) {
    text += ",\"of_source\":" + std::string(in.quantization_json);
  }
  text += "},\"cellm_source_config\":" + json::Serialize(in.config->root());
  return text;
}

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

double RoleReport::RelativeError() const {
  return squared_weights == 0 ? 0 : std::sqrt(squared_error / squared_weights);
}

double ConvertReport::BitsPerWeight() const {
  uint64_t bytes = 0;
  uint64_t weights = 0;
  for (const RoleReport& role : roles) {
    bytes += role.bytes;
    weights += role.weights;
  }
  return weights == 0 ? 0 : static_cast<double>(bytes) * 8 / static_cast<double>(weights);
}

ConvertOptions Int8Options() {
  ConvertOptions options;
  options.attention = options.mlp = options.embedding = options.head = {8, 0};
  return options;
}

ConvertOptions Int4Options(int32_t group) {
  ConvertOptions options = Int8Options();
  options.attention = options.mlp = options.head = {4, group};
  return options;
}

const char* RoleName(TensorRole role) {
  switch (role) {
    case TensorRole::kAttention:
      return "attention";
    case TensorRole::kMlp:
      return "mlp";
    case TensorRole::kEmbedding:
      return "embedding";
    case TensorRole::kHead:
      return "head";
    case TensorRole::kOtherMatrix:
      return "other matrices";
    default:
      return "kept";
  }
}

bool IsTowerTensor(std::string_view name) {
  for (const std::string_view part :
       {"vision_tower", "vision_model", "visual.", "vision_embed", "embed_vision", "audio_tower",
        "audio_model", "audio_encoder", "embed_audio", "multi_modal_projector", "mm_projector",
        "connector.", "image_newline"}) {
    if (Contains(name, part)) return true;
  }
  return false;
}

TensorRole RoleOf(std::string_view name, size_t rank) {
  if (rank < 2 || rank > 3 || IsTowerTensor(name)) return TensorRole::kKept;
  const bool is_weight = name.ends_with(".weight") || (rank == 3 && Contains(name, ".experts."));
  // Routers and the gates of a recurrence are small, and every later number hangs on them.
  if (!is_weight || Contains(name, "norm") || Contains(name, "conv1d") ||
      Contains(name, ".conv.conv.") || Contains(name, "router") || Contains(name, "position") ||
      name.ends_with(".gate.weight") || Contains(name, "shared_expert_gate") ||
      Contains(name, "in_proj_a.") || Contains(name, "in_proj_b.") ||
      Contains(name, "in_proj_ba.")) {
    return TensorRole::kKept;
  }
  if (Contains(name, "lm_head")) return TensorRole::kHead;
  if (Contains(name, "embed_tokens") || Contains(name, "word_embeddings") ||
      Contains(name, "wte.") || Contains(name, "per_layer_token_embd")) {
    return TensorRole::kEmbedding;
  }
  for (const std::string_view part :
       {".mlp.", ".feed_forward.", "shared_mlp.", ".experts.", ".ffn.", ".block_sparse_moe."}) {
    if (Contains(name, part)) return TensorRole::kMlp;
  }
  for (const std::string_view part : {"attn.", ".attention."}) {
    if (Contains(name, part)) return TensorRole::kAttention;
  }
  return TensorRole::kOtherMatrix;
}

Result<ConvertReport> ConvertModel(const ModelFile& in, const ConvertOptions& options,
                                   platform::FileWriter* out) {
  ConvertReport report;
  const bool plain = options.layout == ConvertLayout::kV1;
  CELLM_ASSIGN_OR_RETURN(const std::vector<Item> items, Planner(in, options, &report).Run());
  CELLM_ASSIGN_OR_RETURN(std::string members, V1HeaderMembers(in, plain));
  if (!plain) members = OwnMembers(in, options) + "," + members;
  std::vector<CellmTensorPlan> plans;
  for (const Item& item : items) plans.push_back(item.plan);
  CELLM_ASSIGN_OR_RETURN(const auto writer,
                         CellmWriter::Begin(out, std::move(members), std::move(plans), plain));
  CELLM_RETURN_IF_ERROR(Producer(in, options, writer.get(), &report).Run(items));
  CELLM_RETURN_IF_ERROR(writer->Finish());
  report.file_bytes = out->position();
  CELLM_RETURN_IF_ERROR(out->Commit());
  if (report.losses.overflowed != 0) {
    report.notes.push_back(std::to_string(report.losses.overflowed) +
                           " values are too large for the float type and became infinite");
  }
  if (report.losses.underflowed != 0) {
    report.notes.push_back(std::to_string(report.losses.underflowed) +
                           " values are too small for the float type and became zero");
  }
  return report;
}

}  // namespace cellm::format
