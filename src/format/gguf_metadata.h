#ifndef CELLM_SRC_FORMAT_GGUF_METADATA_H_
#define CELLM_SRC_FORMAT_GGUF_METADATA_H_

// The texts of a GGUF model: tokenizer arrays, chat template, generation defaults.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "format/gguf_reader.h"
#include "format/gguf_tokenizer.h"
#include "format/model_file.h"

namespace cellm::format {

// Fills gguf_tokenizer, tokenizer_json (when the file carries one), chat_template and
// generation_config_json of *model from the pairs of `file`. Corrupt when ids or array lengths do
// not agree with each other or with `vocabulary`, the rows of the embedding.
Status AddGgufTexts(const GgufFile& file, int32_t vocabulary, ModelFile* model);

// A tokenizer as a GGUF file of its own, with the pairs that describe it and no tensors: what a
// .cellm file carries when its source had no tokenizer.json. Reading it back gives the same lists.
std::string WriteGgufTokenizer(const GgufTokenizer& tokenizer);
// Views of `bytes`. Corrupt when it is no such file; `name` begins messages.
Result<std::unique_ptr<GgufTokenizer>> ReadGgufTokenizer(std::string_view bytes,
                                                         std::string_view name);

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_GGUF_METADATA_H_
