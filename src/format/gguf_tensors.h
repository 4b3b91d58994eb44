#ifndef CELLM_SRC_FORMAT_GGUF_TENSORS_H_
#define CELLM_SRC_FORMAT_GGUF_TENSORS_H_

// The tensors of a GGUF model as the checkpoint's: names, shapes, orders, rewritten vectors.

#include <span>

#include "base/status.h"
#include "format/gguf_config.h"
#include "format/gguf_names.h"
#include "format/gguf_reader.h"
#include "format/model_file.h"

namespace cellm::format {

// Fills tensors (sorted, names unique), owned_bytes, owned_orders and notes of *model. parts[i]
// becomes file_index i. Unsupported names a tensor that the architecture does not have.
Status AddGgufTensors(const GgufArch& arch, std::span<const GgufFile> parts, const GgufIndex& index,
                      const GgufShape& shape, ModelFile* model);

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_GGUF_TENSORS_H_
