#ifndef CELLM_SRC_FORMAT_SAFETENSORS_H_
#define CELLM_SRC_FORMAT_SAFETENSORS_H_

// Safetensors, single or sharded.
//
//   offset  size  meaning
//   0       8     N, length of the header, u64
//   8       N     one JSON object: name -> {"dtype", "shape", "data_offsets": [begin, end]};
//                 "__metadata__" -> text to text
//   8+N     -     payloads; data_offsets count from here
//
// Sources: the format's published description (Hugging Face).

#include <memory>
#include <string>

#include "base/status.h"
#include "format/model_file.h"

namespace cellm::format {

// Adds the tensors of `mapping` to model->tensors (not sorted yet) and the mapping to model->files.
//   Corrupt      a length, offset, shape or name breaks a rule
//   Unsupported  an element type that we do not know
// O(header).
Status AppendSafetensors(platform::FileMapping mapping, ModelFile* model);

// A folder of a Hugging Face checkpoint: config.json, weights and texts. Weights are the files of
// model.safetensors.index.json, else model.safetensors, else every *.safetensors in it.
Result<std::unique_ptr<ModelFile>> OpenHuggingFaceFolder(platform::FileSystem& files,
                                                         const std::string& folder);
// One .safetensors file (already mapped), with the texts that lie beside it. Without a config.json
// the configuration is {}.
Result<std::unique_ptr<ModelFile>> OpenSafetensorsFile(platform::FileSystem& files,
                                                       const std::string& path,
                                                       platform::FileMapping mapping);
// An index file (its text is in `mapping`) and the shards beside it.
Result<std::unique_ptr<ModelFile>> OpenSafetensorsIndex(platform::FileSystem& files,
                                                        const std::string& path,
                                                        platform::FileMapping mapping);

// config.json of `folder` and ReadLooseTexts(). A missing config.json is NotFound when
// `need_config`, else the configuration is {}. Shared with other readers of loose files.
Status ReadTexts(platform::FileSystem& files, const std::string& folder, bool need_config,
                 ModelFile* model);
// tokenizer.json, chat_template.jinja and so on of `folder` into *model; absent ones stay empty.
Status ReadLooseTexts(platform::FileSystem& files, const std::string& folder, ModelFile* model);

// The chat template inside tokenizer_config.json: its string, or of a list the entry named
// "default". Empty when there is none.
Result<std::string> TemplateOfTokenizerConfig(std::string_view tokenizer_config_json,
                                              const std::string& place);

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_SAFETENSORS_H_
