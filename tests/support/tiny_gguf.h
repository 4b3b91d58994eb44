#ifndef CELLM_TESTS_SUPPORT_TINY_GGUF_H_
#define CELLM_TESTS_SUPPORT_TINY_GGUF_H_

// The smallest model that a GGUF file can hold, for tests that then spoil it.

#include <string>
#include <string_view>
#include <vector>

#include "support/gguf_writer.h"

namespace cellm::testing {

// One layer, two heads of four, hidden size 8, three tokens.
struct TinyGguf {
  std::string arch = "llama";
  GgufWriter writer;

  void AddPairs() {
    const std::string a = arch + ".";
    writer.Text("general.architecture", arch);
    writer.Int(a + "block_count", 1);
    writer.Int(a + "context_length", 32);
    writer.Int(a + "embedding_length", 8);
    writer.Int(a + "feed_forward_length", 8);
    writer.Int(a + "attention.head_count", 2);
    writer.Int(a + "attention.head_count_kv", 1);
    writer.Float(a + "attention.layer_norm_rms_epsilon", 1e-5f);
    writer.Float(a + "rope.freq_base", 10000.0f);
  }
  void AddTokenizer() {
    writer.Text("tokenizer.ggml.model", "gpt2");
    writer.Text("tokenizer.ggml.pre", "llama-bpe");
    writer.Texts("tokenizer.ggml.tokens", {"a", "b", "<|eot_id|>"});
    writer.Ints("tokenizer.ggml.token_type", {1, 1, 3});
    writer.Texts("tokenizer.ggml.merges", {"a b"});
    writer.Int("tokenizer.ggml.eos_token_id", 2);
  }
  void AddTensors() {
    AddFloats("token_embd.weight", {8, 3});
    AddFloats("output_norm.weight", {8});
    AddFloats("blk.0.attn_norm.weight", {8});
    AddFloats("blk.0.attn_q.weight", {8, 8});
    AddFloats("blk.0.attn_k.weight", {8, 4});
    AddFloats("blk.0.attn_v.weight", {8, 4});
    AddFloats("blk.0.attn_output.weight", {8, 8});
    AddFloats("blk.0.ffn_norm.weight", {8});
    AddFloats("blk.0.ffn_gate.weight", {8, 8});
    AddFloats("blk.0.ffn_up.weight", {8, 8});
    AddFloats("blk.0.ffn_down.weight", {8, 8});
  }
  // Values 0, 1, 2, ... so that reordered rows can be told apart.
  void AddFloats(std::string_view name, const std::vector<uint64_t>& dims) {
    uint64_t count = 1;
    for (const uint64_t dim : dims) count *= dim;
    std::vector<float> values;
    for (uint64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i));
    writer.FloatTensor(name, dims, values);
  }
  static std::string Whole(std::string_view arch = "llama") {
    TinyGguf tiny;
    tiny.arch = arch;
    tiny.AddPairs();
    tiny.AddTokenizer();
    tiny.AddTensors();
    return tiny.writer.Take();
  }
};

}  // namespace cellm::testing

#endif  // CELLM_TESTS_SUPPORT_TINY_GGUF_H_
