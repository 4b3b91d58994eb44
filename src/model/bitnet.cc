// BitNet b1.58: ternary weights, activations rounded to 8 bits a row, norms inside the blocks.
//
//   layer:  n = norm(h);  q, k, v = Wq [n], Wk [n], Wv [n];  q, k = rope(q), rope(k)
//           h += Wo [ norm(attend(q, k, v)) ]
//           n = norm(h);  h += Wdown [ norm( relu(Wgate [n])^2 * (Wup [n]) ) ]
//   logits = head(norm(h))
// [x] is x with each row rounded to a grid of 255 values; embedding and head are not rounded.
// Weights are -1, 0, 1 times one factor a matrix.
//
// Sources: Ma et al. 2024 (The Era of 1-bit LLMs), and the published configuration and model
// definition of bitnet.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/families.h"
#include "model/parts.h"

namespace cellm {
namespace {

constexpr SizeDefaults kDefaults = {.vocab = 128256,
                                    .hidden = 2560,
                                    .inner = 6912,
                                    .layers = 30,
                                    .heads = 20,
                                    .kv_heads = 5,
                                    .max_context = 2048,
                                    .eps = 1e-5,
                                    .tied = false};

struct Layer {
  Vector attention_norm, attention_sub_norm, mlp_norm, mlp_sub_norm;
  Attention attention;
  GatedMlp mlp;
};

struct BitNet {
  Sizes sizes;
  Activation activation = Activation::kRelu2;
  AttendSpec attend;
  RopeSpec rope;
  bool round = true;  // activations, as the model was trained

  Vocabulary vocabulary;
  Vector norm;
  std::vector<Layer> layers;
};

// Only weights that are stored as ternary. "online" files hold float weights that every product
// would have to round anew.
void ReadQuantization(Config& config, BitNet* m, ModelInfo* info) {
  const json::Value value = config.Raw("quantization_config");
  if (!value.has_value()) {
    m->round = false;
    info->notes.push_back(
        "bitnet without quantization_config: plain products on the stored weights, which is not "
        "what such a model was trained for");
    return;
  }
  std::string_view method;
  std::string_view mode;
  value.Find("quant_method").GetString(&method);
  value.Find("quantization_mode").GetString(&mode);
  bool norm = false;
  value.Find("use_rms_norm").GetBool(&norm);
  if (method != "bitnet" || mode == "online" || norm) {
    config.Fail(Unsupported(
        "config: \"quantization_config\": method \"%s\", mode \"%s\"%s is not supported; a file "
        "with packed ternary weights (mode \"offline\") is",
        std::string(method).c_str(), std::string(mode).c_str(), norm ? ", use_rms_norm" : ""));
  }
}

Status ReadConfig(json::Value object, BitNet* m, ModelInfo* info) {
  Config config(object);
  // Before ReadSizes(), which knows the methods of other families.
  ReadQuantization(config, m, info);
  m->sizes = ReadSizesOf(config, kDefaults);
  m->activation = config.ActivationOf("hidden_act", "relu2");
  config.RefuseTrue("attention_bias", "bitnet has none");
  m->attend = m->sizes.Attend();
  m->rope = ReadOneRope(config, m->sizes, 500000.0);
  return FinishConfig(config, m->sizes, {}, info);
}

Status BindWeights(const LoadContext& context, BitNet* m, Model* model) {
  Binder bind(context);
  bind.FindPrefix("embed_tokens");
  const Sizes& s = m->sizes;
  m->rope.interleaved = context.file.rope_interleaved;
  m->vocabulary = BindVocabulary(bind, s);
  for (int32_t l = 0; l < s.layers && bind.status().ok(); ++l) {
    const std::string at = "layers." + std::to_string(l) + ".";
    Layer layer;
    layer.attention_norm = bind.Floats(at + "input_layernorm.weight", s.hidden);
    layer.attention = BindAttention(bind, at + "self_attn.", s, false, false);
    layer.attention_sub_norm = bind.Floats(at + "self_attn.attn_sub_norm.weight", s.q_width());
    layer.mlp_norm = bind.Floats(at + "post_attention_layernorm.weight", s.hidden);
    layer.mlp = BindGatedMlp(bind, at + "mlp.", s.hidden, s.inner, false);
    layer.mlp_sub_norm = bind.Floats(at + "mlp.ffn_sub_norm.weight", s.inner);
    m->layers.push_back(std::move(layer));
  }
  m->norm = bind.Floats("norm.weight", s.hidden);
  bind.Finish(model);
  return bind.status();
}

Status Load(const LoadContext& context, Model* model) {
  auto m = std::make_unique<BitNet>();
  CELLM_RETURN_IF_ERROR(ReadConfig(context.config, m.get(), &model->info));
  CELLM_RETURN_IF_ERROR(BindWeights(context, m.get(), model));
  model->weights = FamilyWeights(std::move(m));
  return OkStatus();
}

void Forward(const void* weights, Backend& backend, const StepContext& step) {
  const BitNet& m = *static_cast<const BitNet*>(weights);
  const Sizes& s = m.sizes;
  const DecoderRows d = TakeDecoderRows(*step.arena, step.rows, s);
  const Rows up = step.arena->TakeRows(step.rows, s.inner);
  const Rows cos_sin = step.arena->TakeRows(step.rows, m.rope.rotary_dim);
  const auto product = [&](Rows x, std::span<const LinearPart> parts) {
    if (m.round) {
      backend.LinearInt8(x, parts);
    } else {
      backend.Linear(x, parts);
    }
  };

  backend.Embed(m.vocabulary.embedding, step.token_ids(), 1.0f, d.h);
  backend.RopeTable(step, m.rope, cos_sin);
  for (size_t l = 0; l < m.layers.size(); ++l) {
    const Layer& layer = m.layers[l];
    const int32_t index = static_cast<int32_t>(l);
    backend.RmsNorm(d.h, layer.attention_norm.data(), 0.0f, s.eps, d.normed);
    const LinearPart qkv[] = {{&layer.attention.q, nullptr, d.q},
                              {&layer.attention.k, nullptr, d.k},
                              {&layer.attention.v, nullptr, d.v}};
    product(d.normed, qkv);
    backend.Rope(m.rope, cos_sin, s.heads, d.q);
    backend.Rope(m.rope, cos_sin, s.kv_heads, d.k);
    backend.StoreKv(step, index, m.attend, d.k, d.v);
    backend.AttendPages(step, index, m.attend, d.q, d.attended);
    backend.RmsNorm(d.attended, layer.attention_sub_norm.data(), 0.0f, s.eps, d.attended);
    const LinearPart o[] = {{&layer.attention.o, nullptr, d.out}};
    product(d.attended, o);
    backend.Add(d.h, d.out, 1.0f);

    backend.RmsNorm(d.h, layer.mlp_norm.data(), 0.0f, s.eps, d.normed);
    const LinearPart gate_up[] = {{&layer.mlp.gate, nullptr, d.inner},
                                  {&layer.mlp.up, nullptr, up}};
    product(d.normed, gate_up);
    backend.GatedAct(m.activation, d.inner, up, d.inner);
    backend.RmsNorm(d.inner, layer.mlp_sub_norm.data(), 0.0f, s.eps, d.inner);
    const LinearPart down[] = {{&layer.mlp.down, nullptr, d.out}};
    product(d.inner, down);
    backend.Add(d.h, d.out, 1.0f);
  }
  RunHead(backend, step, d.h, m.norm, 0.0f, s.eps, m.vocabulary);
}

constexpr std::string_view kTypes[] = {"bitnet"};

}  // namespace

constinit const Family kBitNetFamily = {"bitnet", kTypes, &Load, &Forward};

}  // namespace cellm
