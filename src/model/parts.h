#ifndef CELLM_SRC_MODEL_PARTS_H_
#define CELLM_SRC_MODEL_PARTS_H_

// Parts that most decoder families share word for word: the usual sizes of a configuration, and the
// binding of an attention block and a gated MLP under their usual names. What a family does with
// them, and in which order, stays in the family's file.

#include <cstdint>
#include <string>
#include <vector>

#include "model/binder.h"
#include "model/config.h"
#include "model/rope_config.h"

namespace cellm {

// What a class assumes when a key is absent.
struct SizeDefaults {
  int32_t vocab, hidden, inner, layers, heads;
  int32_t kv_heads;  // 0: as many as heads
  int32_t max_context;
  double eps;
  bool tied;
};

struct Sizes {
  int32_t vocab = 0, hidden = 0, inner = 0, layers = 0;
  int32_t heads = 0, kv_heads = 0, head_dim = 0;
  int32_t max_context = 0;
  float eps = 0.0f;
  bool tied = false;

  int32_t q_width() const { return heads * head_dim; }
  int32_t kv_width() const { return kv_heads * head_dim; }
  // Scores scaled by head_dim^-0.5, no window.
  AttendSpec Attend() const;
};

// vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads,
// num_key_value_heads, head_dim, max_position_embeddings, rms_norm_eps, tie_word_embeddings. Errors
// are recorded in `config`.
Sizes ReadSizesOf(Config& config, const SizeDefaults& defaults);
// The same, and CheckQuantization().
Sizes ReadSizes(Config& config, const SizeDefaults& defaults);

// "layer_types" as one window a layer: `width` where the type is "sliding_attention", 0 where it is
// "full_attention". Empty when the key is absent. Refuses other names and a wrong length.
std::vector<int32_t> WindowsOfLayerTypes(Config& config, int32_t layers, int32_t width);

// The rotary table of a family that has one, with the usual defaults.
RopeSpec ReadOneRope(Config& config, const Sizes& sizes, double theta = 10000.0);

// Finishes `config` and fills sizes, ids and one K/V state a layer (`windows` empty: no windows).
Status FinishConfig(Config& config, const Sizes& sizes, const std::vector<int32_t>& windows,
                    ModelInfo* info);

struct Attention {
  Weight q, k, v, o;
  Vector q_bias, k_bias, v_bias, o_bias;
  Vector q_norm, k_norm;
};
// q_proj, k_proj, v_proj, o_proj under `at` ("layers.0.self_attn."), with biases if asked for.
Attention BindAttention(Binder& bind, const std::string& at, const Sizes& sizes, bool qkv_bias,
                        bool o_bias);

struct GatedMlp {
  Weight gate, up, down;
  Vector gate_bias, up_bias, down_bias;
};
// gate_proj, up_proj, down_proj under `at` ("layers.0.mlp.").
GatedMlp BindGatedMlp(Binder& bind, const std::string& at, int32_t hidden, int32_t inner,
                      bool bias);

// embed_tokens and lm_head. The head is absent when tied: the embedding serves.
struct Vocabulary {
  Weight embedding, head;
  const Weight& output() const { return head.exists() ? head : embedding; }
};
Vocabulary BindVocabulary(Binder& bind, const Sizes& sizes);

// A router and its experts.
struct Experts {
  Weight router;
  std::vector<Weight> gate, up, down;  // [experts]
  std::vector<Weight> fused;           // gate and up in one matrix; `gate` and `up` point into it

  bool exists() const { return router.exists(); }
  ExpertSpec Spec(Activation activation, int32_t inner) const {
    return {gate, up, down, activation, inner};
  }
};
// How a family names what is under `at`. Files have one matrix an expert, at + "experts.E." + part,
// or fused tensors of all: gate_up [experts, 2 inner, hidden] (gate rows first), down [experts,
// hidden, inner].
struct ExpertNames {
  const char* router;
  const char *gate, *up, *down;       // of one expert
  const char *fused_up, *fused_down;  // of all
};
inline constexpr ExpertNames kUsualExpertNames = {
    "gate", "gate_proj", "up_proj", "down_proj", "experts.gate_up_proj", "experts.down_proj"};
Experts BindExperts(Binder& bind, const std::string& at, const ExpertNames& names, int32_t count,
                    int32_t hidden, int32_t inner);

// The activations of a step's routing.
struct RouterRows {
  Rows logits;
  Routing routing;
};
RouterRows TakeRouterRows(Arena& arena, int32_t rows, const RouterSpec& router);
// out = the weighted sum of the chosen experts on x.
void RunExperts(Backend& backend, const Experts& experts, const RouterSpec& router,
                Activation activation, int32_t inner, Rows x, const RouterRows& r, Rows out);

// The activations of a plain decoder's step.
struct DecoderRows {
  Rows h, normed, out, q, k, v, attended, inner;
};
DecoderRows TakeDecoderRows(Arena& arena, int32_t rows, const Sizes& sizes);

// The embeddings of the step's tokens times `scale` into `h`; rows that are given take what they
// are given, unscaled.
void EmbedStep(Backend& backend, const StepContext& step, const Weight& table, float scale, Rows h);
// What is given to be added after layer `layer`, if anything.
void AddDeep(Backend& backend, const StepContext& step, int32_t layer, Rows h);

// q, k and v of `x` in one product.
void ProjectQkv(Backend& backend, const Attention& a, Rows x, Rows q, Rows k, Rows v);
// out = Wdown( act(Wgate x) * (Wup x) ), by way of `inner`.
void RunGatedMlp(Backend& backend, const GatedMlp& mlp, Activation activation, Rows x, Rows inner,
                 Rows out);
// Logits of the rows that asked, head(norm(h)), and norm(h) of all rows when step.states asks. `h`
// is not to be used afterwards.
void RunHead(Backend& backend, const StepContext& step, Rows h, const Vector& norm, float offset,
             float eps, const Weight& head);
inline void RunHead(Backend& backend, const StepContext& step, Rows h, const Vector& norm,
                    float offset, float eps, const Vocabulary& vocabulary) {
  RunHead(backend, step, h, norm, offset, eps, vocabulary.output());
}

}  // namespace cellm

#endif  // CELLM_SRC_MODEL_PARTS_H_
