#ifndef CELLM_SRC_FORMAT_GGUF_METADATA_H_
#define CELLM_SRC_FORMAT_GGUF_METADATA_H_

// The texts of a GGUF model: tokenizer arrays, chat template, generation defaults.

#include <cstdint>

#include "base/status.h"
#include "format/gguf_reader.h"
#include "format/model_file.h"

namespace cellm::format {

// Fills gguf_tokenizer, tokenizer_json (when the file carries one), chat_template and
// generation_config_json of *model from the pairs of `file`. Corrupt when ids or array lengths do
// not agree with each other or with `vocabulary`, the rows of the embedding.
Status AddGgufTexts(const GgufFile& file, int32_t vocabulary, ModelFile* model);

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_GGUF_METADATA_H_
