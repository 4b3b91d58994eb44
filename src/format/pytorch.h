#ifndef CELLM_SRC_FORMAT_PYTORCH_H_
#define CELLM_SRC_FORMAT_PYTORCH_H_

// PyTorch checkpoints (.bin, .pt, .pth): a ZIP archive with a pickled dictionary of tensors,
// "<any>/data.pkl", and their storages, "<any>/data/<key>". Sharded ones have an index,
// pytorch_model.bin.index.json, like safetensors. Tensors are views of the mapping.
//
// The older form (before PyTorch 1.6), which is a row of pickles, is refused by name.

#include <memory>
#include <string>

#include "base/status.h"
#include "format/model_file.h"

namespace cellm::format {

// One file (already mapped), with config.json and the other texts that lie beside it.
Result<std::unique_ptr<ModelFile>> OpenPyTorchFile(platform::FileSystem& files,
                                                   const std::string& path,
                                                   platform::FileMapping mapping);

// The shards that `index_path` names, with the texts beside it.
Result<std::unique_ptr<ModelFile>> OpenPyTorchIndex(platform::FileSystem& files,
                                                    const std::string& index_path);

// Adds the tensors of one archive to *model (not sorted yet) under this file_index. `bytes` must
// outlive *model.
//   Corrupt      a broken archive or pickle, a tensor outside its storage
//   Unsupported  what the pickle reader refuses; tensors that are not stored row by row
Status AppendPyTorch(std::span<const uint8_t> bytes, const std::string& file_name,
                     uint32_t file_index, ModelFile* model);

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_PYTORCH_H_
