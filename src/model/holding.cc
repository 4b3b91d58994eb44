#include "model/holding.h"

#include <algorithm>
#include <mutex>

#include "platform/memory.h"

namespace cellm {
namespace {

// Large enough that a read costs what its bytes cost, small enough that two threads end together.
constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
constexpr uint64_t kAutoReserve = uint64_t{256} << 20;

}  // namespace

uint64_t TensorBytesOf(const format::ModelFile& file) {
  uint64_t bytes = 0;
  for (const format::Tensor& tensor : file.tensors) {
    if (tensor.format != Format::kU8) bytes += tensor.data.size();
  }
  return bytes;
}

WeightHolder::WeightHolder(const format::ModelFile& file, const HoldingOptions& options,
                           Allocator& allocator)
    : file_(file), options_(options), allocator_(allocator) {
  report_.holding = options.holding;
  if (options.holding == Holding::kAuto) {
    const uint64_t bytes = TensorBytesOf(file);
    const uint64_t needed = bytes + bytes / 4 + kAutoReserve;
    report_.holding = needed <= options.available_bytes ? Holding::kLoaded : Holding::kMapped;
  }
}

// Null for bytes that were made in memory.
const platform::FileMapping* WeightHolder::FileOf(std::span<const uint8_t> data) const {
  for (const platform::FileMapping& file : file_.files) {
    const uint8_t* const begin = file.bytes().data();
    if (data.data() >= begin && data.data() < begin + file.bytes().size()) return &file;
  }
  return nullptr;
}

Status WeightHolder::Take(bool is_table, Weight* weight) {
  if (!weight->owned.empty()) {
    report_.packed_bytes += weight->owned.size();
    to_lock_.push_back(weight->owned.span());
    return OkStatus();
  }
  const std::span<const uint8_t> data = weight->source.data;
  const platform::FileMapping* const file = FileOf(data);
  if (is_table && options_.embedding_on_flash != FlashTable::kNo && file != nullptr) {
    weight->on_flash = file;
    file->ExpectRandomReads(static_cast<uint64_t>(data.data() - file->bytes().data()), data.size());
    report_.flash_bytes += data.size();
    return OkStatus();
  }
  // A form that is decoded row by row may have scales elsewhere; it stays where it is.
  if (report_.holding != Holding::kLoaded || file == nullptr ||
      weight->kind == WeightKind::kLookup) {
    report_.mapped_bytes += data.size();
    to_lock_.push_back(data);
    return OkStatus();
  }
  CELLM_ASSIGN_OR_RETURN(
      weight->owned, Array<uint8_t>::Uninitialised(allocator_, data.size(), MemoryClass::kWeights,
                                                   "loaded weights"));
  const uint64_t offset = static_cast<uint64_t>(data.data() - file->bytes().data());
  for (uint64_t done = 0; done < data.size(); done += kPieceBytes) {
    pieces_.push_back({file, offset + done, weight->owned.data() + done,
                       std::min<uint64_t>(kPieceBytes, data.size() - done)});
  }
  if (weight->kind == WeightKind::kDense) {
    weight->dense = weight->owned.data();
  } else {
    weight->tiles.data = weight->owned.data();
  }
  report_.loaded_bytes += data.size();
  to_lock_.push_back(weight->owned.span());
  return OkStatus();
}

Status WeightHolder::Finish() {
  if (options_.embedding_on_flash == FlashTable::kYes && report_.flash_bytes == 0) {
    return InvalidArgument(
        "%s: the embedding cannot stay on flash: the model also multiplies with it (tied "
        "embedding), or it is not in the file as it is used",
        file_.path.c_str());
  }
  // In the order of the file, so that the disk reads ahead.
  std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) {
    return a.file != b.file ? a.file < b.file : a.offset < b.offset;
  });
  std::mutex mutex;
  Status first;
  const auto read = [&](int32_t index, int32_t) {
    const Piece& piece = pieces_[static_cast<size_t>(index)];
    Status status =
        piece.file->Read(piece.offset, {piece.target, static_cast<size_t>(piece.bytes)});
    if (status.ok()) return;
    const std::lock_guard<std::mutex> lock(mutex);
    if (first.ok()) first = std::move(status);
  };
  const int32_t count = static_cast<int32_t>(pieces_.size());
  if (options_.pool != nullptr) {
    options_.pool->For(count, read);
  } else {
    for (int32_t i = 0; i < count; ++i) read(i, 0);
  }
  CELLM_RETURN_IF_ERROR(std::move(first));
  pieces_.clear();
  if (!options_.lock) return OkStatus();
  for (const std::span<const uint8_t> bytes : to_lock_) {
    CELLM_RETURN_IF_ERROR(platform::LockInMemory(bytes).WithContext(file_.path));
  }
  report_.locked = true;
  return OkStatus();
}

}  // namespace cellm
