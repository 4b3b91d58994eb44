#ifndef CELLM_SRC_FORMAT_CONVERT_H_
#define CELLM_SRC_FORMAT_CONVERT_H_

// Any ModelFile to a .cellm file: what `cellm convert` and `cellm quantize` do.
//
// Which tensors are quantised: linear matrices (attention, MLP, others), the embedding table and
// the head. Norms, biases, convolutions, recurrence parameters, expert routers and the towers of
// multimodal models stay as floats. Weights that the source already holds as integers are packed
// without loss, whatever scheme is asked for: quantising twice only loses.
//
// Memory: a tile of 16 rows at a time; with ConvertLayout::kV1 also the scales of one matrix.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/model_file.h"
#include "platform/file.h"
#include "tensor/plain_formats.h"

namespace cellm::format {

// How the matrices of one role are stored.
struct QuantScheme {
  int32_t bits = 0;   // 0: floats; 2 to 6 or 8
  int32_t group = 0;  // columns that share a scale; 0: the whole row
};

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

struct ConvertOptions {
  // Of the floats: kF32, kF16, kBF16; kCount: each as in the source (kV1: always kF16).
  Format dtype = Format::kCount;
  QuantScheme attention, mlp, embedding, head;  // other matrices: as attention
  ConvertLayout layout = ConvertLayout::kKernel;
  bool text_only = false;  // leave out the towers of a multimodal model
  std::string version;     // of the program, for the file's header
  ConvertProgress progress;
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
  FloatLosses losses;              // of conversions between float formats
  std::vector<std::string> notes;  // what a user should know
  double BitsPerWeight() const;    // over all tensors
};

const char* RoleName(TensorRole role);
// By the tensor's name and rank. Towers and everything that is no text matrix: kKept.
TensorRole RoleOf(std::string_view name, size_t rank);
// Part of a vision or audio tower or of its projector.
bool IsTowerTensor(std::string_view name);

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
