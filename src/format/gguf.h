#ifndef CELLM_SRC_FORMAT_GGUF_H_
#define CELLM_SRC_FORMAT_GGUF_H_

// GGUF model files as a ModelFile: tensors under their Hugging Face names and in their Hugging Face
// meaning, configuration, tokenizer arrays, chat template, end-of-text ids.
//
// Weights stay in the mapping as they are stored. Where the file reorders the rows or columns of a
// matrix, the Tensor says so (row_order, column_order) and readers undo it; small vectors that were
// changed (norms plus one, decay rates, biases of reordered rows) are rewritten in memory. Stacked
// experts become one tensor an expert.
//
// Tensors that we do not know are an error, by name: a bias left out would be a silent fault.
// Layers that predict further tokens, and vision or audio parts, are left out with a note.

#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "format/model_file.h"
#include "platform/file.h"

namespace cellm::format {

// Opens a GGUF file, or all parts of a split one when `path` is any of them (their names end in
// "-00001-of-00003.gguf"). Errors as ReadGguf(), plus Unsupported for an architecture that we do
// not run, NotFound for a missing part, key or tensor.
// `mapping` is that of `path`.
Result<std::unique_ptr<ModelFile>> OpenGguf(platform::FileSystem& files, const std::string& path,
                                            platform::FileMapping mapping);

// One part of a model in memory.
struct GgufPart {
  std::string name;  // for messages
  std::span<const uint8_t> bytes;
};

// The same from bytes that are already there and outlive *model: part i is model->files[i] to
// Tensor::file_index. Fills everything but path and files.
Status LoadGguf(std::span<const GgufPart> parts, ModelFile* model);

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_GGUF_H_
