#ifndef CELLM_SRC_FORMAT_CONVERT_H_
#define CELLM_SRC_FORMAT_CONVERT_H_

// Any ModelFile to a .cellm file: what `cellm convert` and `cellm quantize` do.
//
// Which tensors are quantised: linear matrices (attention, MLP, others), the embedding table and
// the head. Norms, biases, convolutions, recurrence parameters, expert routers and the towers of
// multimodal models stay as floats. Float weights that are ternary already (every row, or group, is
// -s, 0 or s) are found and stored in two bits without loss when quantising was asked for.
//
// Weights that the source already holds as integers are packed without loss. A scheme of fewer bits
// than they have is refused unless `requantize` is set; one of as many or more changes nothing.
//
// Memory: a tile of 16 rows at a time; with a calibration two or three cols x cols matrices; with
// ConvertLayout::kV1 also the scales of one matrix.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/calibration.h"
#include "format/model_file.h"
#include "format/quant_recipe.h"
#include "platform/file.h"
#include "tensor/plain_formats.h"

namespace cellm::format {

enum class ConvertLayout {
  kKernel,  // our dtype names, checksums, texts inside
  kV1,      // plain version 1: f16, i8 a row, i4 a row or group; no texts; old readers run it
};

enum class TensorRole { kAttention, kMlp, kEmbedding, kHead, kOtherMatrix, kKept, kCount };

// Called now and then with input bytes done and in all, and the tensor at work. False: stop.
struct ConvertProgress {
  bool (*report)(void* user, uint64_t done, uint64_t total, std::string_view tensor) = nullptr;
  void* user = nullptr;
};

// Called when everything is written, with the path under which it can be read before it has its
// name. An error refuses the conversion: no file appears.
struct ConvertCheck {
  Status (*check)(void* user, const std::string& draft_path) = nullptr;
  void* user = nullptr;
};

struct ConvertOptions {
  // Of the floats: kF32, kF16, kBF16; kCount: each as in the source (kV1: always kF16).
  Format dtype = Format::kCount;
  QuantScheme attention, mlp, embedding, head;  // other matrices: as attention
  QuantRecipe recipe;                           // comes before the four above
  ConvertLayout layout = ConvertLayout::kKernel;
  // What is known of the matrices' inputs, borrowed; null: nothing, weights are rounded one by one.
  const Calibration* calibration = nullptr;
  double damping = 0.01;  // see error_feedback.h
  int sweeps = 2;         // likewise
  bool requantize = false;
  bool keep_description = false;  // the source's own account of its quantisation is copied
  std::string quality_json;       // an object for the file's ledger (docs/format.md), or empty
  bool text_only = false;         // leave out the towers of a multimodal model
  std::string version;            // of the program, for the file's header
  ConvertProgress progress;
  ConvertCheck check;
};

// The schemes behind the flags of the command line. Eight bits: one scale a row. Four bits: `group`
// columns a scale, embedding at eight bits a row (a lookup table feels every error in every token).
ConvertOptions Int8Options();
ConvertOptions Int4Options(int32_t group);

// One line of the report.
struct RoleReport {
  int64_t tensors = 0;
  uint64_t weights = 0;
  uint64_t bytes = 0;        // in the file
  double squared_error = 0;  // of the values that the file's bytes decode to
  double squared_weights = 0;
  double RelativeError() const;  // sqrt of the quotient; 0 without weights
};

struct ConvertReport {
  RoleReport roles[static_cast<int>(TensorRole::kCount)];
  uint64_t file_bytes = 0;
  FloatLosses losses;        // of conversions between float formats
  int64_t uncalibrated = 0;  // tensors quantised without knowing inputs, though some are known
  std::vector<std::string> notes;  // what a user should know
  double BitsPerWeight() const;    // over all tensors
};

// "attention", "mlp", "embedding", "head", "other matrices", "kept".
const char* RoleName(TensorRole role);
// By the tensor's name and rank. Towers and everything that is no text matrix: kKept.
TensorRole RoleOf(std::string_view name, size_t rank);
// Part of a vision or audio tower or of its projector.
bool IsTowerTensor(std::string_view name);

// The file that `in` is, with `quality_json` as its ledger and nothing else changed.
//   InvalidArgument  `in` is no .cellm file of ours
Result<ConvertReport> RewriteWithQuality(const ModelFile& in, std::string version,
                                         std::string quality_json, ConvertCheck check,
                                         platform::FileWriter* out);

// Writes `in` to `out` and commits it; on failure nothing is committed.
//   InvalidArgument  options that contradict each other
//   Unsupported      source or options that the layout cannot hold
//   Corrupt          weights that are not finite where they should be quantised, or a bad source
//   Cancelled, Io, OutOfRange
Result<ConvertReport> ConvertModel(const ModelFile& in, const ConvertOptions& options,
                                   platform::FileWriter* out);

// The header's members for version-1 readers, from a Hugging Face configuration: JSON members
// without braces. With `required`, a key that those readers need and the configuration lacks is
// Unsupported; else it is left out.
Result<std::string> V1HeaderMembers(const ModelFile& in, bool required);

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_CONVERT_H_
