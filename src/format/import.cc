#include "format/import.h"

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/checked.h"
#include "format/tensor_index.h"
#include "tensor/import_formats.h"
#include "tensor/plain_formats.h"

namespace cellm::format {
namespace {

json::Value QuantisationConfig(const ModelFile& file) {
  const json::Value root = file.config->root();
  const json::Value top = root.Find("quantization_config");
  return top.is_object() ? top : root.Find("text_config").Find("quantization_config");
}

std::string_view ConfigText(const MatrixQuery& query, std::string_view key) {
  std::string_view text;
  QuantisationConfig(query.file).Find(key).GetString(&text);
  return text;
}

const Tensor* Side(const MatrixQuery& query, std::string_view suffix) {
  return query.file.Find(query.stem + std::string(suffix));
}

Status NotForExperts(const MatrixQuery& query) {
  if (query.expert < 0) return OkStatus();
  return Unsupported("%s: stacked experts in this packing",
                     TensorPlace(query.file.path, query.stem).c_str());
}

Status NotKnown(const MatrixQuery& query, std::string_view key, std::string_view value) {
  return Unsupported("%s: quantization_config has \"%.*s\": \"%.*s\", which is not supported",
                     TensorPlace(query.file.path, query.stem).c_str(), static_cast<int>(key.size()),
                     key.data(), static_cast<int>(value.size() < 60 ? value.size() : 60),
                     value.data());
}

bool IsWords(const Tensor& tensor) {
  return tensor.format == Format::kI32 || tensor.format == Format::kU32;
}

// A tensor of 32-bit words that must be [rows, cols].
Status CheckWords(const MatrixQuery& query, const Tensor& tensor, int64_t rows, int64_t cols) {
  if (IsWords(tensor) && tensor.shape == std::vector<int64_t>{rows, cols}) return OkStatus();
  return Corrupt("%s: shape %s of \"%s\", expected [%lld, %lld] of 32-bit words",
                 TensorPlace(query.file.path, tensor.name).c_str(), ShapeText(tensor.shape).c_str(),
                 std::string(GetFormatInfo(tensor.format).name).c_str(),
                 static_cast<long long>(rows), static_cast<long long>(cols));
}

// Scales of `suffix`, dimension `group_dim` of which counts groups and the other rows.
Result<int64_t> TakeScales(const MatrixQuery& query, std::string_view suffix, size_t group_dim,
                           Matrix* matrix) {
  const Tensor* scales = Side(query, suffix);
  if (scales == nullptr) {
    return Corrupt("%s: no scales; expected a tensor \"%s%.*s\"",
                   TensorPlace(query.file.path, query.stem).c_str(), query.stem.c_str(),
                   static_cast<int>(suffix.size()), suffix.data());
  }
  const std::string where = TensorPlace(query.file.path, scales->name);
  if (!IsDenseFloat(scales->format)) {
    return Corrupt("%s: scales are f16, bf16 or f32, found \"%s\"", where.c_str(),
                   std::string(GetFormatInfo(scales->format).name).c_str());
  }
  if (scales->shape.size() != 2 || scales->shape[1 - group_dim] != query.rows) {
    return Corrupt("%s: shape %s, expected groups and %d rows", where.c_str(),
                   ShapeText(scales->shape).c_str(), query.rows);
  }
  const int64_t groups = scales->shape[group_dim];
  matrix->group = InferGroup(query.cols, groups);
  if (matrix->group < 0) {
    return Corrupt("%s: %lld groups, which fit no group size of %d columns", where.c_str(),
                   static_cast<long long>(groups), query.cols);
  }
  matrix->scale_format = scales->format;
  matrix->scales = scales->data;
  return groups;
}

// Drops zero points that are all the same and a group index that says nothing.
void Simplify(Matrix* matrix) {
  if (!ValidateImported(*matrix).ok()) return;  // FindMatrix() says what is wrong
  int32_t zero = 0;
  if (!matrix->biases.empty() && HaveOneZeroPoint(*matrix, &zero)) {
    matrix->biases = {};
    matrix->zero_point = zero;
  }
  if (matrix->group_index.empty()) return;
  for (int32_t col = 0; col < matrix->cols; ++col) {
    const int32_t group = matrix->group == 0 ? 0 : col / matrix->group;
    const uint32_t stated = LoadLe32(matrix->group_index.data() + 4 * static_cast<size_t>(col));
    if (stated != static_cast<uint32_t>(group)) return;
  }
  matrix->group_index = {};
}

Result<Resolved> ResolveAwq(const MatrixQuery& query, const Tensor& words, Matrix* matrix) {
  const std::string_view version = ConfigText(query, "version");
  if (!version.empty() && version != "gemm" && version != "GEMM") {
    return NotKnown(query, "version", version);
  }
  matrix->format = Format::kAwq;
  matrix->bits = 4;
  CELLM_RETURN_IF_ERROR(CheckWords(query, words, query.cols, query.rows / 8));
  matrix->data = words.data;
  CELLM_ASSIGN_OR_RETURN(const int64_t groups, TakeScales(query, ".scales", 0, matrix));
  matrix->zero_point = 8;
  if (const Tensor* zeros = Side(query, ".qzeros"); zeros != nullptr) {
    CELLM_RETURN_IF_ERROR(CheckWords(query, *zeros, groups, query.rows / 8));
    matrix->biases = zeros->data;
  }
  Simplify(matrix);
  return Resolved::kYes;
}

// One number in any float format.
bool OneNumber(const Tensor& tensor, float* out) {
  uint64_t count = 0;
  if (!IsPlain(tensor.format) || !GetFormatInfo(tensor.format).is_float) return false;
  if (!ElementCount(tensor.shape, &count) || count != 1) return false;
  DecodePlain(tensor.format, tensor.data.data(), 1, out);
  return std::isfinite(*out);
}

// An int8 weight with a scale a row or a group.
Result<Resolved> ResolveInt8(const MatrixQuery& query, Matrix* matrix) {
  if (query.weight == nullptr || query.weight->format != Format::kI8 ||
      Side(query, ".weight_scale") == nullptr) {
    return Resolved::kNo;
  }
  CELLM_RETURN_IF_ERROR(NotForExperts(query));
  if (query.weight->shape != std::vector<int64_t>{query.rows, query.cols}) {
    return WrongShape(query, *query.weight);
  }
  if (Side(query, ".weight_zero_point") != nullptr) {
    return Unsupported("%s: int8 weights with zero points",
                       TensorPlace(query.file.path, query.weight->name).c_str());
  }
  CELLM_RETURN_IF_ERROR(TakeScales(query, ".weight_scale", 1, matrix).status());
  matrix->format = Format::kI8V1;
  matrix->data = query.weight->data;
  return Resolved::kYes;
}

}  // namespace

Result<Resolved> ResolveGptq(const MatrixQuery& query, Matrix* matrix) {
  const Tensor* words = Side(query, ".qweight");
  if (words == nullptr) return Resolved::kNo;
  CELLM_RETURN_IF_ERROR(NotForExperts(query));
  const std::string_view method = ConfigText(query, "quant_method");
  if (!method.empty() && method != "gptq" && method != "awq") {
    return NotKnown(query, "quant_method", method);
  }
  const bool looks_like_awq =
      words->shape == std::vector<int64_t>{query.cols, int64_t{query.rows} / 8};
  if (method == "awq" || (method.empty() && looks_like_awq)) {
    return ResolveAwq(query, *words, matrix);
  }
  const std::string_view convention = ConfigText(query, "checkpoint_format");
  if (!convention.empty() && convention != "gptq" && convention != "gptq_v2") {
    return NotKnown(query, "checkpoint_format", convention);
  }
  if (!IsWords(*words) || words->shape.size() != 2 || words->shape[1] != query.rows ||
      words->shape[0] > query.cols || words->shape[0] * 32 % query.cols != 0) {
    return WrongShape(query, *words);
  }
  matrix->format = Format::kGptq;
  matrix->bits = static_cast<int32_t>(words->shape[0] * 32 / query.cols);
  if (matrix->bits < 2 || matrix->bits > 8) return WrongShape(query, *words);
  matrix->data = words->data;
  CELLM_ASSIGN_OR_RETURN(const int64_t groups, TakeScales(query, ".scales", 0, matrix));
  matrix->zero_point = 1 << (matrix->bits - 1);
  if (const Tensor* zeros = Side(query, ".qzeros"); zeros != nullptr) {
    CELLM_RETURN_IF_ERROR(
        CheckWords(query, *zeros, groups, int64_t{query.rows} * matrix->bits / 32));
    matrix->biases = zeros->data;
    matrix->zero_offset = convention == "gptq_v2" ? 0 : 1;
  }
  if (const Tensor* index = Side(query, ".g_idx"); index != nullptr) {
    if (index->format != Format::kI32 || index->shape != std::vector<int64_t>{query.cols}) {
      return WrongShape(query, *index);
    }
    matrix->group_index = index->data;
  }
  Simplify(matrix);
  return Resolved::kYes;
}

Result<Resolved> ResolveBitnet(const MatrixQuery& query, Matrix* matrix) {
  const Tensor* scale = Side(query, ".weight_scale");
  if (query.weight == nullptr || query.weight->format != Format::kU8 || scale == nullptr) {
    return Resolved::kNo;
  }
  CELLM_RETURN_IF_ERROR(NotForExperts(query));
  const std::string_view method = ConfigText(query, "quant_method");
  if (!method.empty() && method != "bitnet") return NotKnown(query, "quant_method", method);
  if (query.rows % 4 != 0 ||
      query.weight->shape != std::vector<int64_t>{int64_t{query.rows} / 4, query.cols}) {
    return WrongShape(query, *query.weight);
  }
  float factor = 0;
  if (!OneNumber(*scale, &factor) || factor == 0) {
    return Corrupt("%s: not one number other than 0",
                   TensorPlace(query.file.path, scale->name).c_str());
  }
  const std::string_view kind = ConfigText(query, "linear_class");
  if (!kind.empty() && kind != "autobitlinear" && kind != "bitlinear") {
    return NotKnown(query, "linear_class", kind);
  }
  matrix->format = Format::kBitnetPacked;
  matrix->bits = 2;
  matrix->data = query.weight->data;
  matrix->zero_point = 1;
  matrix->tensor_scale = kind == "autobitlinear" ? factor : 1.0f / factor;
  return Resolved::kYes;
}

Result<Resolved> ResolveCompressed(const MatrixQuery& query, Matrix* matrix) {
  const Tensor* words = Side(query, ".weight_packed");
  if (words == nullptr) return ResolveInt8(query, matrix);
  CELLM_RETURN_IF_ERROR(NotForExperts(query));
  const std::string_view format = ConfigText(query, "format");
  if (!format.empty() && format != "pack-quantized") return NotKnown(query, "format", format);
  matrix->format = Format::kCompressedInt4;
  for (const int32_t bits : {8, 4}) {
    const int64_t row_words = CeilDiv(int64_t{query.cols} * bits, 32);
    if (words->shape == std::vector<int64_t>{query.rows, row_words}) matrix->bits = bits;
  }
  if (matrix->bits == 0 || !IsWords(*words)) return WrongShape(query, *words);
  if (Side(query, ".weight_g_idx") != nullptr) {
    return Unsupported("%s: compressed weights in activation order",
                       TensorPlace(query.file.path, words->name).c_str());
  }
  matrix->data = words->data;
  CELLM_ASSIGN_OR_RETURN(const int64_t groups, TakeScales(query, ".weight_scale", 1, matrix));
  matrix->zero_point = 1 << (matrix->bits - 1);
  if (const Tensor* zeros = Side(query, ".weight_zero_point"); zeros != nullptr) {
    CELLM_RETURN_IF_ERROR(
        CheckWords(query, *zeros, CeilDiv(int64_t{query.rows} * matrix->bits, 32), groups));
    matrix->biases = zeros->data;
  }
  Simplify(matrix);
  return Resolved::kYes;
}

Status TakeTensorScale(const MatrixQuery& query, Matrix* matrix) {
  for (const std::string_view suffix : {".weight_scale", ".weight_scale_inv"}) {
    const Tensor* scale = Side(query, suffix);
    if (scale == nullptr) continue;
    if (!OneNumber(*scale, &matrix->tensor_scale)) {
      return Unsupported(
          "%s: shape %s; only one scale for a whole matrix of this format is supported",
          TensorPlace(query.file.path, scale->name).c_str(), ShapeText(scale->shape).c_str());
    }
    return OkStatus();
  }
  return OkStatus();
}

}  // namespace cellm::format
