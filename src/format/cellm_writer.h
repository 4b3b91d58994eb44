#ifndef CELLM_SRC_FORMAT_CELLM_WRITER_H_
#define CELLM_SRC_FORMAT_CELLM_WRITER_H_

// Writes a .cellm container (cellm_file.h), one tensor after the other, in bounded memory.
//
// The header comes first in the file but holds checksums that are known last. So the header is
// written twice: at Begin() with zeros in their place, at Finish() with the numbers, which have the
// same width.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "platform/file.h"

namespace cellm::format {

struct CellmTensorPlan {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  uint64_t byte_count = 0;
};

class CellmWriter {
 public:
  // `members`: the header's members besides ours and "tensors", as JSON text without braces
  // ("\"model_type\":\"llama\",..."). `tensors` are sorted by name here; their bytes follow in that
  // order. `plain`: no identity and no checksums, for version-1 readers. `out` must outlive the
  // writer. InvalidArgument: a name twice. OutOfRange: the header would pass its limit. Io.
  static Result<std::unique_ptr<CellmWriter>> Begin(platform::FileWriter* out, std::string members,
                                                    std::vector<CellmTensorPlan> tensors,
                                                    bool plain);

  const std::vector<CellmTensorPlan>& tensors() const { return tensors_; }
  // The next bytes of the tensor whose turn it is; it ends when its byte_count is reached. Bytes
  // past the end of the last tensor, or of two tensors in one call, are a bug of the caller.
  Status Append(std::span<const uint8_t> bytes);
  // The tensor whose bytes come next, and how many of them it has so far.
  size_t current_tensor() const { return current_; }

  // Writes the header. Requires that all tensors are complete. Does not commit `out`.
  Status Finish();

 private:
  CellmWriter(platform::FileWriter* out, std::string members, std::vector<CellmTensorPlan> tensors,
              bool plain)
      : out_(out), members_(std::move(members)), tensors_(std::move(tensors)), plain_(plain) {}
  Status LayOut();
  std::string HeaderText(uint64_t data_start) const;
  Status BeginTensor();
  void SkipEmptyTensors();

  platform::FileWriter* out_;
  std::string members_;
  std::vector<CellmTensorPlan> tensors_;
  bool plain_;
  uint64_t data_start_ = 0;
  size_t header_bytes_ = 0;
  std::vector<uint64_t> checksums_;
  size_t current_ = 0;
  uint64_t written_ = 0;  // of the current tensor
  std::unique_ptr<Xxh3Stream> hash_;
};

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_CELLM_WRITER_H_
