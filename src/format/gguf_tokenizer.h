#ifndef CELLM_SRC_FORMAT_GGUF_TOKENIZER_H_
#define CELLM_SRC_FORMAT_GGUF_TOKENIZER_H_

// The tokenizer of a GGUF file as it is stored: arrays and ids, not yet a tokenizer. Views are of
// the file's mapping.
//
// What has been checked: there is at least one token; scores and types have as many entries as
// tokens or none; every id is -1 or the index of a token. What has not: that texts are UTF-8, that
// merges have two parts that are tokens, that `model` and `pre` are names that we know.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace cellm::format {

enum class GgufTokenType : int32_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct GgufTokenizer {
  std::string_view model;  // "gpt2" (byte BPE), "llama" (merges by score), "gemma4", ...
  std::string_view pre;    // name of the split rule, "llama-bpe", "qwen2", ...; empty when absent
  std::vector<std::string_view> tokens;  // text of id i; byte BPE texts are in its own alphabet
  std::vector<float> scores;
  std::vector<int32_t> types;            // GgufTokenType; other numbers may occur
  std::vector<std::string_view> merges;  // "left right", best first

  int32_t bos_id = -1;
  int32_t eos_id = -1;
  int32_t eot_id = -1;  // end of turn
  int32_t eom_id = -1;  // end of message
  int32_t unknown_id = -1;
  int32_t separator_id = -1;
  int32_t padding_id = -1;
  int32_t mask_id = -1;

  // Absent: the default of `model`.
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_space_prefix;
  std::optional<bool> remove_extra_whitespaces;

  std::string_view precompiled_charsmap;  // SentencePiece normaliser, bytes
  std::string_view huggingface_json;      // a whole tokenizer.json, in a few files

  // The pairs of the header that say all this, as they lie in the file.
  std::vector<std::string_view> pairs;
};

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_GGUF_TOKENIZER_H_
