#ifndef CELLM_SRC_FORMAT_MODEL_FILE_H_
#define CELLM_SRC_FORMAT_MODEL_FILE_H_

// One view of a model, whatever it came in.
//
// Open() looks at the magic (never at the suffix) and yields a ModelFile: tensors by their Hugging
// Face names, the configuration as JSON in Hugging Face spelling, and the texts that belong to a
// model (tokenizer, templates, generation defaults). Opening reads headers and indexes only;
// payloads stay in the mapping. Readers: cellm_file (.cellm), safetensors (file, folder, shards),
// and later gguf, pytorch, which all fill the same struct.
//
// Payloads may begin at any byte (safetensors promises no alignment): read them with LoadLe() or
// unaligned loads. Packed tensors of .cellm files begin at multiples of 64.
//
// A ModelFile owns its mappings; tensors and Matrix views borrow from it. Immutable after Open(),
// so any number of threads may read.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/gguf_tokenizer.h"
#include "json/json.h"
#include "platform/file.h"
#include "tensor/matrix.h"

namespace cellm::format {

struct Tensor {
  std::string name;
  Format format = Format::kF32;
  PackedLayout packed;  // for kPacked: without rows and cols, which are the last two dimensions
  std::vector<int64_t> shape;
  std::span<const uint8_t> data;
  uint32_t file_index = 0;   // into ModelFile::files
  uint64_t file_offset = 0;  // of data in that file
  uint64_t checksum = 0;     // XXH3-64 of data; meaningful when has_checksum
  bool has_checksum = false;
  // GGUF only: see Matrix. Views of ModelFile::owned_orders.
  std::span<const int32_t> row_order;
  std::span<const int32_t> column_order;
  int32_t column_unit = 0;
};

struct ModelFile {
  std::string path;       // as given
  std::string container;  // "cellm", "safetensors", "gguf", "pytorch"
  std::vector<platform::FileMapping> files;
  std::vector<Tensor> tensors;  // sorted by name, names unique

  // config.json as Hugging Face writes it (possibly rebuilt from a container's own keys). Never
  // null.
  std::unique_ptr<json::Document> config;
  // Texts; empty when the model has none. For .cellm they are views of u8 tensors.
  std::string_view tokenizer_json;
  std::string_view tokenizer_config_json;
  std::string_view generation_config_json;
  std::string_view chat_template;  // chat_template.jinja, or the template in tokenizer_config
  // .cellm files made from GGUF: what is in gguf_tokenizer of those, as bytes that
  // ReadGgufTokenizer() reads. Opening does not, so gguf_tokenizer stays null.
  std::string_view tokenizer_gguf;
  std::string_view processor_config_json;     // processor_config.json
  std::string_view preprocessor_config_json;  // preprocessor_config.json
  // What a .cellm file of ours says about itself; empty for other files.
  std::string identity;                // 16 hex digits: hash of the header, checksums included
  std::string_view quantization_json;  // how each tensor was quantised, from what (docs/format.md)
  std::string_view quality_json;       // what quantising cost, measured (docs/format.md)
  std::vector<std::unique_ptr<std::string>> owned_texts;  // what the views above may point to
  std::vector<std::unique_ptr<std::vector<uint8_t>>> owned_bytes;  // rewritten tensors, if any
  std::vector<std::unique_ptr<std::vector<int32_t>>> owned_orders;
  // The tokenizer of a GGUF file, whose tokenizer_json is empty; null for other containers.
  std::unique_ptr<GgufTokenizer> gguf_tokenizer;
  std::vector<std::string> notes;  // things a user should know: "vision tensors are ignored", ...
  bool rope_interleaved =
      false;  // q/k rows stored for neighbouring-pair rotary (v1 GGUF conversions)

  const Tensor* Find(std::string_view name) const;  // null when absent; O(log n)
};

// Opens a file or folder. `path` may be a .cellm/.cellmd/.safetensors/.gguf/.bin file, a folder
// with safetensors and config.json, or an index file. Errors name the file and what is wrong with
// it.
Result<std::unique_ptr<ModelFile>> OpenModelFile(platform::FileSystem& files,
                                                 const std::string& path);

// The tensor of this name, or of the name that a multimodal checkpoint gives to the same part of
// its text model: "model.x" is also looked for as "model.language_model.x",
// "language_model.model.x", "model.text_model.x" and "x"; "lm_head.x" as "language_model.lm_head.x"
// and so on; "x.weight" as "x.linear.weight". Null when there is none.
const Tensor* FindByRole(const ModelFile& file, std::string_view name);

// The matrix stored under `base` + ".weight" (or `base` itself for fused expert tensors), with its
// side tensors resolved, checked to be [rows, cols]. Names as FindByRole(). NotFound, Corrupt
// (wrong shape: message has both), Unsupported. For rank-3 tensors `expert` picks the leading
// index; without it, floats of rank 3 and more are taken as [rows, all the rest].
Result<Matrix> FindMatrix(const ModelFile& file, std::string_view base, int32_t rows, int32_t cols,
                          int32_t expert = -1);
bool HasMatrix(const ModelFile& file, std::string_view base);

// A float vector or small tensor of exactly `count` elements in any plain float format. Names as
// FindByRole(). NotFound, Corrupt (another count), Unsupported (not plain floats).
Result<std::vector<float>> FindVector(const ModelFile& file, std::string_view name, int64_t count);

// Recomputes every checksum that the file carries, and for .cellm files of ours everything else, so
// that no changed bit stays unseen. Corrupt names the first tensor that differs. Ok for files
// without checksums (see Tensor::has_checksum).
Status VerifyChecksums(const ModelFile& file);

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_MODEL_FILE_H_
