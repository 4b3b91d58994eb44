#ifndef CELLM_SRC_FORMAT_TENSOR_INDEX_H_
#define CELLM_SRC_FORMAT_TENSOR_INDEX_H_

// Checks that every container's index needs: shapes, sizes, ranges, names.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/model_file.h"
#include "json/json.h"

namespace cellm::format {

// shape from a JSON list of non-negative integers. Corrupt, with `where` in front.
Status ReadShape(json::Value list, const std::string& where, std::vector<int64_t>* shape);

// Product of the dimensions; 1 for no dimensions. False when it exceeds 2^63 - 1.
bool ElementCount(const std::vector<int64_t>& shape, uint64_t* count);

// Bytes of a tensor of this format and shape; for kPacked `packed` has bits, group and so on.
// InvalidArgument says why there is no answer.
Result<uint64_t> TensorBytes(Format format, const PackedLayout& packed,
                             const std::vector<int64_t>& shape);

// "[2, 3]".
std::string ShapeText(const std::vector<int64_t>& shape);

// Sorts by name. Corrupt: a name twice, or two tensors of one file that share bytes.
Status SortAndCheckTensors(const std::string& path, std::vector<Tensor>* tensors);

// "path: tensor "name"", the beginning of every message about a tensor.
std::string TensorPlace(const std::string& path, std::string_view name);

// Fails with the standard message when [offset, offset + bytes) does not lie inside `file_bytes`.
Status CheckRange(const std::string& where, uint64_t offset, uint64_t bytes, uint64_t file_bytes);

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_TENSOR_INDEX_H_
