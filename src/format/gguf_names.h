#ifndef CELLM_SRC_FORMAT_GGUF_NAMES_H_
#define CELLM_SRC_FORMAT_GGUF_NAMES_H_

// GGUF architectures: what each tensor is called in a Hugging Face checkpoint of the family, and
// what was done to it on the way, so that it can be undone.
//
// Sources: the published converter of llama.cpp (conversion/, names only) and the families'
// checkpoints; the reorderings are stated with each Step.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace cellm::format {

// What separates a stored tensor from the checkpoint's.
enum class Step : uint8_t {
  kNone,
  kIgnore,   // known, and not needed: readers compute it, or it belongs to a part that we skip
  kNorm,     // 1 was added, in architectures with norms_plus_one
  kQuery,    // rows of each head interleaved, in architectures with interleaved_heads:
  kKey,      //   checkpoint row r of a head of h rows is stored as row 2r, or 2(r - h/2) + 1
  kConv,     // [channels, taps], where the checkpoint has [channels, 1, taps]
  kScalar,   // one number, whatever its shape
  kFlat,     // a vector, whatever its shape
  kDecay,    // -exp(A_log), and its heads are value heads: see kValueHeads
  kExperts,  // [experts, rows, columns]: one tensor an expert; '*' in the name is its index
  // qwen35 stores value heads tiled where the checkpoint groups them: with n key heads and m value
  // heads for each, checkpoint head g * m + i is stored as head i * n + g.
  kValueHeads,    // a vector of one entry a value head
  kValueRows,     // a matrix: value_dim rows a value head
  kValueGates,    // a matrix: one row a value head
  kValueColumns,  // a matrix: value_dim columns a value head
  kMixedRows,     // a matrix: rows of q and k, then value rows
  kMixedConv,     // kConv whose channels are those of kMixedRows
};

struct NameRule {
  std::string_view gguf;  // after "blk.N."; without ".weight" or ".bias" unless it has another end
  std::string_view hf;    // after "model.layers.N."
  Step step = Step::kNone;
};

struct GgufArch {
  std::string_view name;            // general.architecture
  std::string_view model_type;      // config.json
  std::string_view architecture;    // config.json
  std::span<const NameRule> rules;  // before those that all share
  bool interleaved_heads = false;
  bool norms_plus_one = false;
};

// Null when we do not run it.
const GgufArch* FindGgufArch(std::string_view name);
// "llama, qwen2, ...": for messages.
std::string GgufArchNames();

// N of "blk.N.", -1 for other names.
int32_t GgufLayerOf(std::string_view name);

struct MappedName {
  std::string name;  // the checkpoint's; with '*' for Step::kExperts
  Step step = Step::kNone;
  int32_t layer = -1;  // -1: none
};
// The checkpoint's name of a GGUF tensor; nothing when the architecture has no such tensor.
std::optional<MappedName> MapGgufName(const GgufArch& arch, std::string_view name);

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_GGUF_NAMES_H_
