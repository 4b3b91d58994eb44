#ifndef CELLM_TOOLS_CELLM_BENCH_SYNTHETIC_SHAPES_H_
#define CELLM_TOOLS_CELLM_BENCH_SYNTHETIC_SHAPES_H_

// The shapes of well-known small models: configuration, and every tensor with its name and size.
//
// Speed and memory depend on shapes and formats, not on what a model has learned. A file of random
// weights at a true shape is as good as the model for measuring, and needs no download.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cellm::tools {

enum class Fill : uint8_t {
  kNoise,        // normal, of `deviation`
  kNorm,         // a norm's weights: 1 in effect; `deviation` (0 where the family adds 1) in a
                 // checkpoint, 1 in GGUF
  kConstant,     // `deviation` everywhere
  kRopeFactors,  // GGUF only: divisors of the rotary frequencies of llama 3
};

struct SyntheticTensor {
  std::string name;       // as in a Hugging Face checkpoint
  std::string gguf_name;  // empty: the shape has no GGUF form here, or the tensor is not in it
  std::vector<int64_t> shape;
  Fill fill = Fill::kNoise;
  float deviation = 0;
  bool quantised = false;  // a matrix that formats apply to; else floats
  bool is_embedding = false;
};

struct SyntheticShape {
  std::string_view name;
  std::string_view gguf_architecture;  // empty: no GGUF form here
  std::string_view gguf_pre;           // name of the split rule; empty: SentencePiece pieces
  int32_t hidden, inner, layers, heads, kv_heads, head_dim, vocab, context;
  double theta, eps;
  int32_t window;  // 0: none

  std::string ConfigJson() const;
  std::vector<SyntheticTensor> Tensors() const;
};

std::span<const SyntheticShape> SyntheticShapes();
// By name, in any case of letters. InvalidArgument lists the names.
Result<const SyntheticShape*> FindSyntheticShape(std::string_view name);
// Names, separated by `separator`.
std::string SyntheticNames(std::string_view separator);

}  // namespace cellm::tools

#endif  // CELLM_TOOLS_CELLM_BENCH_SYNTHETIC_SHAPES_H_
