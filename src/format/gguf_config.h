#ifndef CELLM_SRC_FORMAT_GGUF_CONFIG_H_
#define CELLM_SRC_FORMAT_GGUF_CONFIG_H_

// The configuration of a GGUF model in the words of a Hugging Face config.json.
//
// Per-family keys and their Hugging Face counterparts are in gguf_config.cc beside each family.
// What differs in kind, not only in name:
//   rope_freqs.weight      divisors of the rotary frequencies, from llama3 scaling; its parameters
//                          are not in the file, so it is written as "longrope" with the divisors as
//                          both factor lists and an attention factor of 1, which is the same thing.
//                          gemma4's (1 or 1e30) is the proportional kind with its partial factor.
//   embedding, head sizes  vocab_size is the number of rows of the embedding; head_dim is always
//                          written; tie_word_embeddings says whether output.weight is missing
//   layer kinds            patterns and arrays become layer_types

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/gguf_names.h"
#include "format/gguf_reader.h"

namespace cellm::format {

// All tensors of a model (of all its parts) by their GGUF names.
class GgufIndex {
 public:
  void Add(const GgufTensor* tensor) { tensors_.push_back(tensor); }
  void Sort();
  const GgufTensor* Find(std::string_view name) const;  // null when absent
  size_t size() const { return tensors_.size(); }

 private:
  std::vector<const GgufTensor*> tensors_;
};

// The sizes that decide how tensors were reordered. All positive unless said.
struct GgufShape {
  int32_t layers = 0;  // without the layers that predict further tokens
  int32_t hidden = 0;
  int32_t vocabulary = 0;
  int32_t heads = 0;
  std::vector<int32_t> kv_heads;  // [layers]; 0: no attention in this layer
  int32_t head_dim = 0;           // of full attention, where kinds differ
  // qwen35's linear attention; 0 elsewhere.
  int32_t linear_key_heads = 0;
  int32_t linear_value_heads = 0;
  int32_t linear_key_dim = 0;
  int32_t linear_value_dim = 0;
};

// NotFound a key that the family needs; Corrupt a value that cannot be; Unsupported a value that we
// do not run. Messages start with the file's name and have the key.
Result<GgufShape> ReadGgufShape(const GgufArch& arch, const GgufFile& file, const GgufIndex& index);
Result<std::string> GgufConfigJson(const GgufArch& arch, const GgufFile& file,
                                   const GgufIndex& index, const GgufShape& shape);

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_GGUF_CONFIG_H_
