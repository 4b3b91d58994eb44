#include "format/cellm_writer.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/limits.h"
#include "format/cellm_file.h"
#include "json/json.h"

namespace cellm::format {
namespace {

std::span<const uint8_t> AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

Status WriteZeros(uint64_t count, platform::FileWriter* out) {
  static constexpr uint8_t kZeros[kCellmAlignment] = {};
  while (count > 0) {
    const uint64_t part = std::min(count, kCellmAlignment);
    CELLM_RETURN_IF_ERROR(out->Write({kZeros, static_cast<size_t>(part)}));
    count -= part;
  }
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<CellmWriter>> CellmWriter::Begin(platform::FileWriter* out,
                                                        std::string members,
                                                        std::vector<CellmTensorPlan> tensors,
                                                        bool plain) {
  std::sort(tensors.begin(), tensors.end(),
            [](const CellmTensorPlan& a, const CellmTensorPlan& b) { return a.name < b.name; });
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].name == tensors[i - 1].name) {
      return InvalidArgument("two tensors are named \"%s\"", tensors[i].name.c_str());
    }
  }
  std::unique_ptr<CellmWriter> writer(
      new CellmWriter(out, std::move(members), std::move(tensors), plain));
  CELLM_RETURN_IF_ERROR(writer->LayOut());
  return writer;
}

// Offsets are digits in the header, so the header's length depends on where the data starts, and
// the start on the length. From the smallest start upwards both only grow, so this ends.
Status CellmWriter::LayOut() {
  checksums_.assign(tensors_.size(), 0);
  std::string header;
  for (int pass = 0;; ++pass) {
    header = HeaderText(data_start_);
    const uint64_t start = RoundUp(kCellmPreludeBytes + header.size(), kCellmAlignment);
    if (start == data_start_) break;
    if (pass == 30) return Internal("the header's length does not settle");
    data_start_ = start;
  }
  if (header.size() > limits::kMaxHeaderBytes) {
    return OutOfRange("a header of %zu bytes, expected at most %llu", header.size(),
                      static_cast<unsigned long long>(limits::kMaxHeaderBytes));
  }
  header_bytes_ = header.size();
  uint8_t prelude[kCellmPreludeBytes] = {'C', 'E', 'L', 'L', 'M', 1};
  StoreLe(prelude + 6, static_cast<uint32_t>(header_bytes_));
  CELLM_RETURN_IF_ERROR(out_->Write(prelude));
  CELLM_RETURN_IF_ERROR(out_->Write(AsBytes(header)));
  CELLM_RETURN_IF_ERROR(WriteZeros(data_start_ - kCellmPreludeBytes - header_bytes_, out_));
  SkipEmptyTensors();
  return OkStatus();
}

std::string CellmWriter::HeaderText(uint64_t data_start) const {
  std::string text;
  if (plain_) {
    text = "{";
  } else {
    text = std::string(kCellmIdentityStart) +
           "0000000000000000\",\"cellm_revision\":" + std::to_string(kCellmRevision) + ",";
  }
  text += members_;
  if (!members_.empty()) text += ',';
  text += "\"tensors\":[";
  uint64_t offset = data_start;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const CellmTensorPlan& tensor = tensors_[i];
    if (i != 0) text += ',';
    text += "{\"name\":" + json::Quote(tensor.name) +
            ",\"offset_bytes\":" + std::to_string(offset) +
            ",\"nbytes\":" + std::to_string(tensor.byte_count) + ",\"shape\":[";
    for (size_t d = 0; d < tensor.shape.size(); ++d) {
      if (d != 0) text += ',';
      text += std::to_string(tensor.shape[d]);
    }
    text += "],\"dtype\":" + json::Quote(tensor.dtype);
    if (!plain_) text += ",\"xxh3\":\"" + HexOf(checksums_[i]) + "\"";
    text += '}';
    offset = RoundUp(offset + tensor.byte_count, kCellmAlignment);
  }
  return text + "]}";
}

// Empty tensors have no bytes to wait for; their checksum is that of nothing.
void CellmWriter::SkipEmptyTensors() {
  while (current_ < tensors_.size() && tensors_[current_].byte_count == 0) {
    checksums_[current_++] = HashXxh3(std::span<const uint8_t>());
  }
}

Status CellmWriter::BeginTensor() {
  const uint64_t position = out_->position();
  CELLM_RETURN_IF_ERROR(WriteZeros(RoundUp(position, kCellmAlignment) - position, out_));
  hash_ = std::make_unique<Xxh3Stream>();
  return OkStatus();
}

Status CellmWriter::Append(std::span<const uint8_t> bytes) {
  if (bytes.empty()) return OkStatus();
  CELLM_CHECK(current_ < tensors_.size(), "bytes after the last tensor");
  if (written_ == 0) CELLM_RETURN_IF_ERROR(BeginTensor());
  CELLM_CHECK(bytes.size() <= tensors_[current_].byte_count - written_,
              "more bytes than the tensor's plan has");
  CELLM_RETURN_IF_ERROR(out_->Write(bytes));
  hash_->Update(bytes);
  written_ += bytes.size();
  if (written_ == tensors_[current_].byte_count) {
    checksums_[current_++] = hash_->Digest();
    written_ = 0;
    SkipEmptyTensors();
  }
  return OkStatus();
}

Status CellmWriter::Finish() {
  CELLM_CHECK(current_ == tensors_.size(), "Finish() before the last tensor's bytes");
  std::string header = HeaderText(data_start_);
  CELLM_CHECK(header.size() == header_bytes_, "the header changed its length");
  if (plain_) return OkStatus();  // as Begin() wrote it
  header.replace(kCellmIdentityStart.size(), 16, CellmIdentity(header));
  return out_->WriteAt(kCellmPreludeBytes, AsBytes(header));
}

}  // namespace cellm::format
