#include <algorithm>
#include <cmath>
#include <optional>

#include "base/bytes.h"
#include "base/checked.h"
#include "format/convert_plan.h"
#include "format/tensor_index.h"
#include "tensor/error_feedback.h"
#include "tensor/quantize.h"

namespace cellm::format {
namespace {

constexpr int64_t kChunkValues = 64 << 10;
constexpr size_t kChunkBytes = size_t{1} << 20;

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
        return ForEachRow(item, [&](const Matrix& matrix, int32_t, int32_t row) {
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
        return ForEachRow(item, [&](const Matrix& matrix, int32_t, int32_t row) {
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

  // `body`(matrix, its index, row) for every row of every matrix of the tensor; values_ has a row's
  // size.
  template <typename Body>
  Status ForEachRow(const Item& item, Body body) {
    const int32_t matrices = MatrixCount(*item.source);
    for (int32_t index = 0; index < matrices; ++index) {
      CELLM_ASSIGN_OR_RETURN(const Matrix matrix, SourceMatrix(in_, item, index));
      values_.resize(static_cast<size_t>(matrix.cols));
      const uint64_t row_bytes = matrix.data.size() / static_cast<uint64_t>(matrix.rows);
      for (int32_t row = 0; row < matrix.rows; ++row) {
        CELLM_RETURN_IF_ERROR(body(matrix, index, row));
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
    const size_t cols = static_cast<size_t>(item.layout.cols);
    const size_t groups = static_cast<size_t>(item.layout.groups());
    codes_.resize(cols * kTileRows);
    scales_.resize(groups * kTileRows);
    mins_.resize(groups * kTileRows);
    tile_values_.resize(cols * kTileRows);
    packing_.resize(static_cast<size_t>(PackingFloats(item.layout)));
    bytes_.assign(item.layout.tile_bytes(), 0);
    tile.data = bytes_;
    return ForEachRow(item, [&](const Matrix& matrix, int32_t index, int32_t row) -> Status {
      const size_t lane = static_cast<size_t>(row % kTileRows);
      if (item.kind == Item::Kind::kPack) {
        PackMatrixRow(matrix, row, tile_layout, static_cast<int32_t>(lane), codes_.data(),
                      packing_.data(), bytes_.data());
      } else {
        if (row == 0) CELLM_RETURN_IF_ERROR(StartRounding(item, index));
        DecodeRow(matrix, row, &tile_values_[lane * cols]);
        CELLM_RETURN_IF_ERROR(CheckFinite(&tile_values_[lane * cols], cols, row));
      }
      if (lane != kTileRows - 1 && row != matrix.rows - 1) return OkStatus();
      const int32_t count = static_cast<int32_t>(lane) + 1;
      if (item.kind == Item::Kind::kQuantise) {
        QuantiseTile(item, count);
        for (int32_t i = 0; i < count; ++i) {
          const size_t at = static_cast<size_t>(i);
          PackRow(tile_layout, i, &codes_[at * cols], &scales_[at * groups], &mins_[at * groups],
                  bytes_.data());
          MeasureRow(item.role, &tile_values_[at * cols], tile, i);
        }
      }
      CELLM_RETURN_IF_ERROR(writer_->Append(bytes_));
      std::fill(bytes_.begin(), bytes_.end(), uint8_t{0});
      return OkStatus();
    });
  }

  // Chooses how the rows of matrix `index` are rounded: by what is known of its inputs.
  Status StartRounding(const Item& item, int32_t index) {
    rounder_.reset();
    importance_ = nullptr;
    if (item.exact || options_.calibration == nullptr) return OkStatus();
    const bool fused = item.source->shape.size() == 3;
    const InputMoments* const inputs =
        options_.calibration->Find(item.source->name, fused ? index : -1);
    if (inputs == nullptr || inputs->cols != item.layout.cols) {
      if (index == 0) ++report_->uncalibrated;
      return OkStatus();
    }
    if (inputs->moments.size() == static_cast<size_t>(inputs->cols)) {
      importance_ = inputs->moments.data();
      return OkStatus();
    }
    CELLM_ASSIGN_OR_RETURN(factors_,
                           InputFactors::Create(inputs->cols, inputs->moments, options_.damping));
    rounder_.emplace(item.layout, *factors_, options_.sweeps);
    return OkStatus();
  }

  void QuantiseTile(const Item& item, int32_t count) {
    if (rounder_.has_value()) {
      rounder_->Round(tile_values_.data(), count, codes_.data(), scales_.data(), mins_.data());
      return;
    }
    const size_t cols = static_cast<size_t>(item.layout.cols);
    const size_t groups = static_cast<size_t>(item.layout.groups());
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      QuantizeRow(item.layout, &tile_values_[i * cols], importance_, &codes_[i * cols],
                  &scales_[i * groups], &mins_[i * groups]);
    }
  }

  static Status CheckFinite(const float* values, size_t count, int32_t row) {
    if (IsAllFinite(values, static_cast<int64_t>(count))) return OkStatus();
    return Corrupt("row %d has a value that is not finite and cannot be quantised", row);
  }

  Status ProduceV1Row(const Item& item, const Matrix& matrix, int32_t row) {
    DecodeRow(matrix, row, values_.data());
    CELLM_RETURN_IF_ERROR(CheckFinite(values_.data(), values_.size(), row));
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
    MeasureRow(item.role, values_.data(), written, 0);
    return writer_->Append(bytes_);
  }

  // `values` against what the written bytes decode to.
  void MeasureRow(TensorRole role, const float* values, const Matrix& written, int32_t row) {
    decoded_.resize(static_cast<size_t>(written.cols));
    DecodeRow(written, row, decoded_.data());
    RoleReport& report = report_->roles[static_cast<int>(role)];
    for (size_t i = 0; i < decoded_.size(); ++i) {
      const double difference = double{decoded_[i]} - double{values[i]};
      report.squared_error += difference * difference;
      report.squared_weights += double{values[i]} * double{values[i]};
    }
  }

  void Count(const Item& item) {
    Release(item);
    if (item.source == nullptr) return;
    RoleReport& report = report_->roles[static_cast<int>(item.role)];
    report.bytes += item.plan.byte_count;
    if (item.kind == Item::Kind::kV1Scales || item.plan.name.ends_with(".qscale")) return;
    uint64_t count = 0;
    if (ElementCount(item.source->shape, &count)) {
      // Bitnet's bytes hold four weights each.
      const bool four = item.source->format == Format::kU8 && item.role != TensorRole::kKept &&
                        in_.Find(item.source->name + "_scale") != nullptr;
      report.weights += four ? 4 * count : count;
    }
    ++report.tensors;
  }

  const ModelFile& in_;
  const ConvertOptions& options_;
  CellmWriter* writer_;
  ConvertReport* report_;
  const Item* item_ = nullptr;
  uint64_t done_ = 0;
  uint64_t total_ = 0;
  std::vector<float> values_, tile_values_, decoded_, scales_, mins_, packing_;
  std::optional<InputFactors> factors_;  // of the matrix at work, when its inputs are known
  std::optional<FeedbackRounder> rounder_;
  const float* importance_ = nullptr;
  std::vector<uint8_t> codes_, bytes_, v1_scales_;
  std::vector<uint16_t> half_scales_;
};

}  // namespace

Status ProduceItems(const ModelFile& in, const ConvertOptions& options,
                    const std::vector<Item>& items, CellmWriter* writer, ConvertReport* report) {
  return Producer(in, options, writer, report).Run(items);
}

}  // namespace cellm::format
