#ifndef CELLM_SRC_FORMAT_CELLM_FILE_H_
#define CELLM_SRC_FORMAT_CELLM_FILE_H_

// The .cellm container; docs/format.md is the specification.
//
//   offset  size  meaning
//   0       5     "CELLM"
//   5       1     version, always 1
//   6       4     H, length of the header, u32
//   10      H     one JSON object
//   10+H    -     zeros; then payloads, each at a multiple of 64 from the start of the file
//
// Two kinds share these bytes. Plain version-1 files describe a model by some twenty header keys;
// files of ours add keys that begin with "cellm_", a checksum a tensor, and texts as u8 tensors
// whose names begin with "cellm/".

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/model_file.h"
#include "json/json.h"

namespace cellm::format {

inline constexpr std::string_view kCellmMagic = "CELLM";
inline constexpr uint64_t kCellmPreludeBytes = 10;
inline constexpr uint64_t kCellmAlignment = 64;
// Our additions are numbered; a reader refuses a larger number than it knows.
inline constexpr int64_t kCellmRevision = 1;
// The first member of a header of ours: the identity's 16 digits follow at once.
inline constexpr std::string_view kCellmIdentityStart = "{\"cellm_file_hash\":\"";

// The texts that a file can carry: their names as loose files, and where they hang in a ModelFile.
struct TextSlot {
  std::string_view name;
  std::string_view ModelFile::*view;
};
inline constexpr TextSlot kTextSlots[] = {
    {"chat_template.jinja", &ModelFile::chat_template},
    {"generation_config.json", &ModelFile::generation_config_json},
    {"preprocessor_config.json", &ModelFile::preprocessor_config_json},
    {"processor_config.json", &ModelFile::processor_config_json},
    {"tokenizer.gguf", &ModelFile::tokenizer_gguf},
    {"tokenizer.json", &ModelFile::tokenizer_json},
    {"tokenizer_config.json", &ModelFile::tokenizer_config_json},
};
inline constexpr std::string_view kTextPrefix = "cellm/";

// Opens a mapped .cellm file. For files of ours the header's hash is checked, so any change to the
// header is found here; payloads are not read.
//   Corrupt      a length, offset, shape, name or hash breaks a rule
//   Unsupported  another version, a newer revision, or an element type that we do not know
Result<std::unique_ptr<ModelFile>> OpenCellmFile(platform::FileSystem& files,
                                                 const std::string& path,
                                                 platform::FileMapping mapping);

// The configuration that Hugging Face would write for a version-1 header: its own keys renamed,
// source_text_config's members first (where both speak, the source is right: converters lost parts
// of it). `file` has the tensors, for what the header leaves out (head_dim). *rope_interleaved and
// notes are set as ModelFile says.
Result<std::string> ConfigOfV1Header(json::Value header, const std::string& path, ModelFile* file);

// The hash of a header whose identity field is zeroed: 16 hex digits.
std::string CellmIdentity(std::string_view header);

// For VerifyChecksums(): the header's hash again, the zeros between payloads, and the file's end.
Status VerifyCellmStructure(const ModelFile& file);

// 16 lower-case hex digits of `value`, and back. False unless exactly such digits.
std::string HexOf(uint64_t value);
bool ParseHex(std::string_view digits, uint64_t* value);

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_CELLM_FILE_H_
