#ifndef CELLM_SRC_TOKENIZER_SPEC_H_
#define CELLM_SRC_TOKENIZER_SPEC_H_

// A tokenizer as GGUF describes it (keys tokenizer.ggml.*): lists and a few flags, with the
// pipeline implied by two names.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cellm::tokenizer {

// tokenizer.ggml.token_type
enum class TokenType : int32_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// Views need to live through Tokenizer::FromSpec() only.
struct TokenizerSpec {
  std::string model;                     // tokenizer.ggml.model: "gpt2", "llama", "bert"
  std::string pre;                       // tokenizer.ggml.pre; empty: "default"
  std::vector<std::string_view> tokens;  // by id
  std::vector<float> scores;             // by id; needed for "llama"
  std::vector<int32_t> token_types;      // by id; empty: all normal
  std::vector<std::string_view> merges;  // "left right"; needed for "gpt2"
  int32_t bos_id = -1;
  int32_t eos_id = -1;
  int32_t unknown_id = -1;
  int32_t separator_id = -1;
  int32_t padding_id = -1;
  int32_t cls_id = -1;
  // -1: as the model name implies.
  int32_t add_bos = -1;
  int32_t add_eos = -1;
  int32_t add_space_prefix = -1;
};

}  // namespace cellm::tokenizer

#endif  // CELLM_SRC_TOKENIZER_SPEC_H_
