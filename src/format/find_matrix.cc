#include "format/find_matrix.h"

#include <algorithm>

#include "base/checked.h"
#include "base/limits.h"
#include "format/import.h"
#include "format/tensor_index.h"
#include "tensor/plain_formats.h"

namespace cellm::format {
namespace {

// A weight's part for one expert: the whole of it without experts.
std::span<const uint8_t> ExpertPart(const MatrixQuery& query, const Tensor& tensor) {
  if (query.expert < 0) return tensor.data;
  const size_t part = tensor.data.size() / static_cast<size_t>(query.weight->shape[0]);
  return tensor.data.subspan(part * static_cast<size_t>(query.expert), part);
}

// A convolution's kernel [rows, channels, side, ...] is a matrix of windows laid out one after
// another.
bool IsKernel(const MatrixQuery& query) {
  const Tensor& tensor = *query.weight;
  if (query.expert >= 0 || tensor.shape.size() < 3 || !IsDenseFloat(tensor.format)) return false;
  int64_t cols = 1;
  for (size_t d = 1; d < tensor.shape.size(); ++d) {
    if (tensor.shape[d] < 1 || cols > limits::kMaxDimension / tensor.shape[d]) return false;
    cols *= tensor.shape[d];
  }
  return tensor.shape[0] == query.rows && cols == query.cols;
}

Status CheckShape(const MatrixQuery& query, int64_t stored_cols) {
  const Tensor& tensor = *query.weight;
  if (IsKernel(query)) return OkStatus();
  const size_t rank = query.expert < 0 ? 2 : 3;
  if (tensor.shape.size() != rank || tensor.shape[rank - 2] != query.rows ||
      tensor.shape[rank - 1] != stored_cols) {
    return WrongShape(query, tensor);
  }
  if (query.expert >= 0 && query.expert >= tensor.shape[0]) {
    return OutOfRange("%s: expert %d, there are %lld",
                      TensorPlace(query.file.path, tensor.name).c_str(), query.expert,
                      static_cast<long long>(tensor.shape[0]));
  }
  return OkStatus();
}

// Scales (or biases) of `tensor` for the wanted rows; sets group and scale_format from them.
Status TakeScales(const MatrixQuery& query, const Tensor& tensor, Matrix* matrix,
                  std::span<const uint8_t>* out) {
  const std::string where = TensorPlace(query.file.path, tensor.name);
  if (!IsDenseFloat(tensor.format)) {
    return Corrupt("%s: scales are f16, bf16 or f32, found \"%s\"", where.c_str(),
                   std::string(GetFormatInfo(tensor.format).name).c_str());
  }
  // By bytes, not by shape: some writers state the weight's shape here.
  const uint64_t item = static_cast<uint64_t>(GetFormatInfo(tensor.format).block_bytes);
  const uint64_t experts = query.expert < 0 ? 1 : static_cast<uint64_t>(query.weight->shape[0]);
  const uint64_t rows = static_cast<uint64_t>(matrix->rows) * experts;
  const uint64_t count = tensor.data.size() / item;
  if (count == 0 || count % rows != 0) {
    return Corrupt("%s: %llu scales for %llu rows", where.c_str(),
                   static_cast<unsigned long long>(count), static_cast<unsigned long long>(rows));
  }
  const int32_t group = InferGroup(matrix->cols, static_cast<int64_t>(count / rows));
  if (group < 0) {
    return Corrupt("%s: %llu scales a row, which fits no group size of %d columns", where.c_str(),
                   static_cast<unsigned long long>(count / rows), matrix->cols);
  }
  matrix->group = group;
  matrix->scale_format = tensor.format;
  *out = ExpertPart(query, tensor);
  return OkStatus();
}

// int8, int4, int2 of version 1: "<weight>.qscale", or "<weight>.scales" in some files.
Result<Resolved> ResolveV1(const MatrixQuery& query, Matrix* matrix) {
  if (query.weight == nullptr) return Resolved::kNo;
  const Format format = query.weight->format;
  if (format != Format::kI8V1 && format != Format::kI4V1 && format != Format::kI2V1) {
    return Resolved::kNo;
  }
  CELLM_RETURN_IF_ERROR(CheckShape(query, query.cols));
  const Tensor* scales = query.file.Find(query.weight->name + ".qscale");
  if (scales == nullptr) scales = query.file.Find(query.weight->name + ".scales");
  if (scales == nullptr) scales = query.file.Find(query.stem + ".scales");
  if (scales == nullptr) {
    return Corrupt("%s: no scales; expected a tensor \"%s.qscale\"",
                   TensorPlace(query.file.path, query.weight->name).c_str(),
                   query.weight->name.c_str());
  }
  matrix->format = format;
  matrix->data = ExpertPart(query, *query.weight);
  CELLM_RETURN_IF_ERROR(TakeScales(query, *scales, matrix, &matrix->scales));
  return Resolved::kYes;
}

// Words of packed codes with "<stem>.scales" and "<stem>.biases" (MLX), in safetensors and .cellm.
Result<Resolved> ResolveAffine(const MatrixQuery& query, Matrix* matrix) {
  if (query.weight == nullptr || query.weight->format != Format::kU32) return Resolved::kNo;
  const Tensor& weight = *query.weight;
  const Tensor* scales = query.file.Find(query.stem + ".scales");
  const Tensor* biases = query.file.Find(query.stem + ".biases");
  if (scales == nullptr || biases == nullptr) {
    scales = query.file.Find(weight.name + ".scales");
    biases = query.file.Find(weight.name + ".biases");
  }
  if (scales == nullptr || biases == nullptr) return Resolved::kNo;
  const size_t rank = query.expert < 0 ? 2 : 3;
  if (weight.shape.size() != rank || weight.shape[rank - 2] != query.rows) {
    return WrongShape(query, weight);
  }
  const int64_t words = weight.shape[rank - 1];
  // Wanted columns and stored words give the width: 3.2 bits a weight are three, ten to a word.
  const int64_t bits = words * 32 / query.cols;
  matrix->format = Format::kMlxAffine;
  matrix->bits = static_cast<int32_t>(std::min<int64_t>(bits, 99));
  CELLM_RETURN_IF_ERROR(CheckShape(query, words));
  matrix->data = ExpertPart(query, weight);
  CELLM_RETURN_IF_ERROR(TakeScales(query, *scales, matrix, &matrix->scales));
  const Format scale_format = matrix->scale_format;
  const int32_t group = matrix->group;
  CELLM_RETURN_IF_ERROR(TakeScales(query, *biases, matrix, &matrix->biases));
  if (matrix->scale_format != scale_format || matrix->group != group) {
    return Corrupt("%s: not the type and count of \"%s\"",
                   TensorPlace(query.file.path, biases->name).c_str(), scales->name.c_str());
  }
  return Resolved::kYes;
}

// Everything whose bytes speak for themselves: floats, GGUF blocks, packed.
Result<Resolved> ResolveWhole(const MatrixQuery& query, Matrix* matrix) {
  if (query.weight == nullptr) return Resolved::kNo;
  const Tensor& weight = *query.weight;
  CELLM_RETURN_IF_ERROR(CheckShape(query, query.cols));
  if (IsPlain(weight.format) && !GetFormatInfo(weight.format).is_float) {
    return Unsupported("%s: \"%s\" without side tensors that would give it a scale",
                       TensorPlace(query.file.path, weight.name).c_str(),
                       std::string(GetFormatInfo(weight.format).name).c_str());
  }
  matrix->format = weight.format;
  matrix->data = ExpertPart(query, weight);
  if (weight.format == Format::kPacked) {
    matrix->packed = weight.packed;
    matrix->packed.rows = query.rows;
    matrix->packed.cols = query.cols;
  }
  matrix->row_order = weight.row_order;
  matrix->column_order = weight.column_order;
  matrix->column_unit = weight.column_unit;
  CELLM_RETURN_IF_ERROR(TakeTensorScale(query, matrix));
  return Resolved::kYes;
}

constexpr MatrixResolver kResolvers[] = {
    ResolveV1,    ResolveAffine, ResolveGptq, ResolveBitnet, ResolveCompressed,
    ResolveWhole,  // last: it takes what is left
};

// What a multimodal checkpoint may put in place of the first word of a text model's names.
struct Renaming {
  std::string_view from, to;
};
constexpr Renaming kRenamings[] = {
    {"model.", "model.language_model."},
    {"model.", "language_model.model."},
    {"model.", "model.text_model."},
    {"model.", "language_model."},
    {"model.", ""},
    {"lm_head.", "language_model.lm_head."},
    {"lm_head.", "model.language_model.lm_head."},
    {"lm_head.", "model.lm_head."},
};

// Calls `take` with each spelling of `name` until it says true.
template <typename Take>
bool TrySpellings(std::string_view name, Take take) {
  if (take(std::string(name))) return true;
  for (const Renaming& renaming : kRenamings) {
    if (!name.starts_with(renaming.from)) continue;
    if (take(std::string(renaming.to).append(name.substr(renaming.from.size())))) return true;
  }
  return false;
}

const Tensor* FindSpelt(const ModelFile& file, const std::string& name) {
  const Tensor* tensor = file.Find(name);
  if (tensor == nullptr && name.ends_with(".weight")) {
    tensor = file.Find(name.substr(0, name.size() - 6) + "linear.weight");
  }
  return tensor;
}

// The weight of `base` and the stem of its side tensors; false when there is neither a weight nor
// any tensor whose name begins with the stem.
bool FindWeight(const ModelFile& file, std::string_view base, const Tensor** weight,
                std::string* stem) {
  *weight = nullptr;
  if (TrySpellings(base, [&](const std::string& name) {
        const Tensor* tensor = FindSpelt(file, name + ".weight");
        *stem = tensor == nullptr ? name : tensor->name.substr(0, tensor->name.size() - 7);
        if (tensor == nullptr) tensor = file.Find(name);
        *weight = tensor;
        return tensor != nullptr;
      })) {
    return true;
  }
  // Checkpoints without a ".weight" at all ("qweight", "weight_packed").
  return TrySpellings(base, [&](const std::string& name) {
    const std::string start = name + ".";
    auto found = std::lower_bound(
        file.tensors.begin(), file.tensors.end(), start,
        [](const Tensor& tensor, const std::string& wanted) { return tensor.name < wanted; });
    *stem = name;
    // A bias may come before them.
    for (; found != file.tensors.end() && found->name.starts_with(start); ++found) {
      const std::string_view rest = std::string_view(found->name).substr(start.size());
      if (rest == "qweight" || rest == "g_idx" || rest == "qzeros" || rest == "weight_packed" ||
          rest == "scales" || rest.starts_with("weight_")) {
        return true;
      }
    }
    return false;
  });
}

}  // namespace

Status WrongShape(const MatrixQuery& query, const Tensor& tensor) {
  return Corrupt("%s: shape %s, expected %s[%d, %d]",
                 TensorPlace(query.file.path, tensor.name).c_str(), ShapeText(tensor.shape).c_str(),
                 query.expert < 0 ? "" : "experts x ", query.rows, query.cols);
}

int32_t InferGroup(int32_t cols, int64_t scales) {
  if (scales == 1) return 0;
  for (const int32_t group : {32, 64, 128, 256}) {
    if (CeilDiv(cols, group) == scales) return group;
  }
  if (scales < 1 || scales > cols || cols % scales != 0) return -1;
  return static_cast<int32_t>(cols / scales);
}

const Tensor* FindByRole(const ModelFile& file, std::string_view name) {
  const Tensor* tensor = nullptr;
  TrySpellings(name, [&](const std::string& spelt) {
    tensor = FindSpelt(file, spelt);
    return tensor != nullptr;
  });
  return tensor;
}

bool HasMatrix(const ModelFile& file, std::string_view base) {
  const Tensor* weight = nullptr;
  std::string stem;
  return FindWeight(file, base, &weight, &stem);
}

Result<Matrix> FindMatrix(const ModelFile& file, std::string_view base, int32_t rows, int32_t cols,
                          int32_t expert) {
  const Tensor* weight = nullptr;
  std::string stem;
  if (!FindWeight(file, base, &weight, &stem)) {
    return NotFound("%s: no such weight",
                    TensorPlace(file.path, std::string(base) + ".weight").c_str());
  }
  if (rows < 1 || cols < 1 || rows > limits::kMaxDimension || cols > limits::kMaxDimension) {
    return InvalidArgument("%s: wanted as %d x %d", TensorPlace(file.path, base).c_str(), rows,
                           cols);
  }
  const MatrixQuery query{file, stem, weight, rows, cols, expert};
  for (const MatrixResolver resolve : kResolvers) {
    Matrix matrix;
    matrix.rows = rows;
    matrix.cols = cols;
    CELLM_ASSIGN_OR_RETURN(const Resolved resolved, resolve(query, &matrix));
    if (resolved == Resolved::kNo) continue;
    const Status status = ValidateMatrix(matrix);
    if (status.ok()) return matrix;
    return Status(
        status.code() == StatusCode::kInvalidArgument ? StatusCode::kCorrupt : status.code(),
        TensorPlace(file.path, weight == nullptr ? stem : weight->name) + ": " + status.message());
  }
  return Unsupported("%s: weights stored in a way that is not supported",
                     TensorPlace(file.path, stem).c_str());
}

Result<std::vector<float>> FindVector(const ModelFile& file, std::string_view name, int64_t count) {
  const Tensor* tensor = FindByRole(file, name);
  if (tensor == nullptr)
    return NotFound("%s: no such tensor", TensorPlace(file.path, name).c_str());
  const std::string where = TensorPlace(file.path, tensor->name);
  if (!IsPlain(tensor->format) || !GetFormatInfo(tensor->format).is_float) {
    return Unsupported("%s: stored as \"%s\", expected floats", where.c_str(),
                       std::string(GetFormatInfo(tensor->format).name).c_str());
  }
  uint64_t found = 0;
  if (!ElementCount(tensor->shape, &found) || found != static_cast<uint64_t>(count)) {
    return Corrupt("%s: shape %s, expected %lld values", where.c_str(),
                   ShapeText(tensor->shape).c_str(), static_cast<long long>(count));
  }
  std::vector<float> values(static_cast<size_t>(count));
  DecodePlain(tensor->format, tensor->data.data(), count, values.data());
  return values;
}

}  // namespace cellm::format
