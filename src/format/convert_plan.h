#ifndef CELLM_SRC_FORMAT_CONVERT_PLAN_H_
#define CELLM_SRC_FORMAT_CONVERT_PLAN_H_

// The two halves of ConvertModel(): what every tensor of the output will be, and making it.

#include <memory>
#include <string>
#include <vector>

#include "format/cellm_writer.h"
#include "format/convert.h"

namespace cellm::format {

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
  std::shared_ptr<const std::string> owned;  // what `raw` shows, when it is no part of the source
  const Tensor* source = nullptr;            // null for texts
  std::string base;                          // for FindMatrix()
  Format to = Format::kCount;                // kFloats, kRows
  PackedLayout layout;                       // kPack, kQuantise: of one matrix
  QuantScheme scheme;                        // kV1Codes
  bool exact = false;                        // kQuantise: the weights are ternary already
  TensorRole role = TensorRole::kKept;
};

// The matrices inside a tensor: experts of a fused one, or one.
int32_t MatrixCount(const Tensor& tensor);
// Matrix `index` of them, as the source has it.
Result<Matrix> SourceMatrix(const ModelFile& in, const Item& item, int32_t index);

// All items, sorted by name. Notes go to `report`. Errors as ConvertModel().
Result<std::vector<Item>> PlanItems(const ModelFile& in, const ConvertOptions& options,
                                    ConvertReport* report);
// Writes the items in order.
Status ProduceItems(const ModelFile& in, const ConvertOptions& options,
                    const std::vector<Item>& items, CellmWriter* writer, ConvertReport* report);

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_CONVERT_PLAN_H_
