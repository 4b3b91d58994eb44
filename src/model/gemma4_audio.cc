// The ears of Gemma 4: a conformer over mel frames, one row out for four frames in.
//
//   twice:   x = relu( norm( conv 3x3, stride 2 ) )         over frames and bins, then W flatten(x)
//   layers:  h += f norm( W2 silu( W1 norm(h) ) )
//            h += norm( Wo attend(...) of norm(h) )
//              s_ij = q_i . (k_j + r_{i-j}), capped, over the last rows of a window
//              q *= width^-0.5 / ln 2 * softplus(per_dim_scale);  k *= ln(1 + e) / ln 2
//            h += W2 silu( norm( conv( a * sigmoid(b) ) ) ),  [a | b] = W1 norm(h), conv causal
//            h += f norm( W2 silu( W1 norm(h) ) )
//            h = norm(h)
//   out = W vnorm( Wout h + b )
// Products hold their inputs and outputs in bounds where the file has them.
//
// Frames that are not valid come last and are left out: they would be zeros for the convolutions,
// which is what stands beyond the edge anyway, and no row looks ahead.
//
// Source: the published configuration and model definition of gemma4.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <utility>

#include "base/limits.h"
#include "model/clipped_linear.h"
#include "model/config.h"
#include "model/vit.h"

namespace cellm {
namespace {

// Rows out of a convolution over windows that are held at a time.
constexpr int32_t kWindowRows = 1024;

struct FeedForward {
  Vector norm, out_norm;
  ClippedLinear up, down;
};

struct Layer {
  FeedForward first, second;
  Vector attention_norm, attention_out_norm, q_scale;  // q_scale [head_dim]
  ClippedLinear q, k, v, post;
  Weight distance;
  Vector conv_in_norm, conv, conv_norm, out_norm;
  ClippedLinear conv_start, conv_end;
};

struct Gemma4Audio {
  int32_t hidden = 0, layer_count = 0, heads = 0, bins = 0, channels = 0, taps = 0;
  int32_t window = 0;  // rows that a row sees, its own included
  int32_t out_cols = 0;
  float eps = 1e-6f, residual = 0.5f, cap = 50.0f;
  Activation activation = Activation::kSilu;
  bool clipped = true;

  Weight conv0, conv1, input;
  Vector conv0_norm, conv1_norm;
  Array<float> distances;  // [window, hidden]: sine and cosine of each distance
  std::vector<Layer> layers;
  Weight output, projection;
  Vector output_bias;

  int32_t head_dim() const { return hidden / heads; }
};

// Sides of a convolution's output.
int32_t Halved(int32_t count) { return (count + 1) / 2; }

Status ReadConfig(json::Value object, Gemma4Audio* m) {
  Config config(object);
  m->hidden = config.Int("hidden_size", 1024);
  m->layer_count = config.Int("num_hidden_layers", 12);
  m->heads = config.Int("num_attention_heads", 8);
  std::vector<int32_t> channels = config.IntList("subsampling_conv_channels");
  if (channels.empty()) channels = {128, 32};
  m->taps = config.Int("conv_kernel_size", 5);
  m->residual = static_cast<float>(config.Float("residual_weight", 0.5));
  m->window = config.Int("attention_context_left", 13, 2) - 1;
  m->cap = static_cast<float>(config.Float("attention_logit_cap", 50.0));
  m->eps = static_cast<float>(config.Float("rms_norm_eps", 1e-6));
  m->out_cols = config.Int("output_proj_dims", 1536);
  m->clipped = config.Bool("use_clipped_linears", true);
  m->activation = config.ActivationOf("hidden_act", "silu");
  // How the reference cuts its work; a masked score, which is as good as none.
  config.Ignore({"attention_chunk_size", "attention_invalid_logits_value"});
  if (config.Int("attention_context_right", 0, 0) != 0) {
    config.Fail(Unsupported("config: \"attention_context_right\" other than 0"));
  }
  if (config.Float("gradient_clipping", 1e10) < 1e9) {
    config.Fail(Unsupported("config: \"gradient_clipping\" below 1e9 would change values"));
  }
  CELLM_RETURN_IF_ERROR(config.Finish());
  if (channels.size() != 2 || channels[0] < 4 || channels[0] > 4096 || channels[0] % 4 != 0 ||
      channels[1] < 1 || channels[1] > 4096) {
    return Unsupported(
        "config: \"subsampling_conv_channels\" are two numbers, the first the mel "
        "bins");
  }
  m->bins = channels[0];
  m->channels = channels[1];
  if (m->hidden % m->heads != 0 || m->hidden % 2 != 0 || m->hidden < 4 || m->taps > 64 ||
      m->window > 4096 || m->layer_count > limits::kMaxLayers || m->hidden > (1 << 16)) {
    return Unsupported("config: %d layers of width %d with %d heads, convolution of %d",
                       m->layer_count, m->hidden, m->heads, m->taps);
  }
  return OkStatus();
}

// Vector of a distance: sines, then cosines, at frequencies from 1 down to 1/10000.
void FillDistances(Gemma4Audio* m) {
  const int32_t half = m->hidden / 2;
  const double step = std::log(10000.0) / std::max(half - 1, 1);
  for (int32_t distance = 0; distance < m->window; ++distance) {
    float* const row = m->distances.data() + int64_t{distance} * m->hidden;
    for (int32_t j = 0; j < half; ++j) {
      const double angle = distance * std::exp(-j * step);
      row[j] = static_cast<float>(std::sin(angle));
      row[half + j] = static_cast<float>(std::cos(angle));
    }
  }
}

FeedForward BindFeedForward(Binder& bind, const std::string& at, const Gemma4Audio& m) {
  FeedForward f;
  f.norm = bind.Floats(at + "pre_layer_norm.weight", m.hidden);
  f.up = BindClipped(bind, at + "ffw_layer_1", 4 * m.hidden, m.hidden, m.clipped);
  f.down = BindClipped(bind, at + "ffw_layer_2", m.hidden, 4 * m.hidden, m.clipped);
  f.out_norm = bind.Floats(at + "post_layer_norm.weight", m.hidden);
  return f;
}

Layer BindLayer(Binder& bind, const std::string& at, const Gemma4Audio& m) {
  const auto clipped = [&](const char* name, int32_t rows, int32_t cols) {
    return BindClipped(bind, at + name, rows, cols, m.clipped);
  };
  Layer layer;
  layer.first = BindFeedForward(bind, at + "feed_forward1.", m);
  layer.attention_norm = bind.Floats(at + "norm_pre_attn.weight", m.hidden);
  layer.q = clipped("self_attn.q_proj", m.hidden, m.hidden);
  layer.k = clipped("self_attn.k_proj", m.hidden, m.hidden);
  layer.v = clipped("self_attn.v_proj", m.hidden, m.hidden);
  layer.distance = bind.Linear(at + "self_attn.relative_k_proj", m.hidden, m.hidden);
  layer.q_scale = bind.Floats(at + "self_attn.per_dim_scale", m.head_dim());
  const double factor = 1.0 / (std::sqrt(static_cast<double>(m.head_dim())) * std::numbers::ln2);
  for (float& scale : layer.q_scale) {
    const double x = static_cast<double>(scale);
    const double softplus = x > 20.0 ? x : std::log1p(std::exp(x));
    scale = static_cast<float>(factor * softplus);
  }
  layer.post = clipped("self_attn.post", m.hidden, m.hidden);
  layer.attention_out_norm = bind.Floats(at + "norm_post_attn.weight", m.hidden);
  layer.conv_in_norm = bind.Floats(at + "lconv1d.pre_layer_norm.weight", m.hidden);
  layer.conv_start = clipped("lconv1d.linear_start", 2 * m.hidden, m.hidden);
  layer.conv = bind.Floats(at + "lconv1d.depthwise_conv1d.weight", int64_t{m.hidden} * m.taps);
  layer.conv_norm = bind.Floats(at + "lconv1d.conv_norm.weight", m.hidden);
  layer.conv_end = clipped("lconv1d.linear_end", m.hidden, m.hidden);
  layer.second = BindFeedForward(bind, at + "feed_forward2.", m);
  layer.out_norm = bind.Floats(at + "norm_out.weight", m.hidden);
  return layer;
}

Status Load(const TowerContext& context, Tower* tower) {
  auto m = std::make_unique<Gemma4Audio>();
  CELLM_RETURN_IF_ERROR(ReadConfig(context.load.config, m.get()));
  constexpr std::string_view kPrefixes[] = {"model.audio_tower.", "audio_tower."};
  constexpr std::string_view kProjectorPrefixes[] = {"model.embed_audio.", "embed_audio."};
  Binder bind(context.load);
  bind.FindPrefix(kPrefixes, "output_proj");
  const std::string convolutions = "subsample_conv_projection.";
  m->conv0 = bind.Linear(convolutions + "layer0.conv", m->bins, 9);
  m->conv0_norm = bind.Floats(convolutions + "layer0.norm.weight", m->bins);
  m->conv1 = bind.Linear(convolutions + "layer1.conv", m->channels, 9 * m->bins);
  m->conv1_norm = bind.Floats(convolutions + "layer1.norm.weight", m->channels);
  m->input = bind.Linear(convolutions + "input_proj_linear", m->hidden,
                         Halved(Halved(m->bins)) * m->channels);
  CELLM_ASSIGN_OR_RETURN(
      m->distances,
      Array<float>::Zeroed(context.load.allocator,
                           static_cast<size_t>(m->window) * static_cast<size_t>(m->hidden),
                           MemoryClass::kWeights, "a table of distances"));
  FillDistances(m.get());
  for (int32_t l = 0; l < m->layer_count && bind.status().ok(); ++l) {
    m->layers.push_back(BindLayer(bind, "layers." + std::to_string(l) + ".", *m));
  }
  m->output = bind.Linear("output_proj", m->out_cols, m->hidden);
  m->output_bias = bind.Floats("output_proj.bias", m->out_cols);
  bind.FindPrefix(kProjectorPrefixes, "embedding_projection");
  m->projection = bind.Linear("embedding_projection", context.text_hidden, m->out_cols);
  CELLM_RETURN_IF_ERROR(Status(bind.status()));
  tower->info.parameter_count = bind.parameter_count();
  tower->info.weight_bytes = bind.weight_bytes();
  tower->weights = FamilyWeights(std::move(m));
  return OkStatus();
}

Status FindTiles(const void* weights, const media::TowerInput& input,
                 std::vector<TowerTile>* tiles) {
  const Gemma4Audio& m = *static_cast<const Gemma4Audio*>(weights);
  if (input.shape.size() != 2 || input.shape[1] != m.bins || input.shape[0] > (1 << 20) ||
      input.frame_valid.size() != static_cast<size_t>(input.shape[0])) {
    return InvalidArgument("this tower takes frames of %d mel bins, each said to be valid or not",
                           m.bins);
  }
  const auto begin = input.frame_valid.begin();
  const auto end = std::find(begin, input.frame_valid.end(), uint8_t{0});
  if (std::find_if(end, input.frame_valid.end(), [](uint8_t v) { return v != 0; }) !=
      input.frame_valid.end()) {
    return InvalidArgument("frames that are not valid must be the last ones");
  }
  const int32_t frames = static_cast<int32_t>(end - begin);
  if (frames < 1) return InvalidArgument("a sound without a valid frame");
  const int32_t rows = Halved(Halved(frames));
  tiles->push_back({{frames, m.bins}, rows, rows, 0});
  return OkStatus();
}

struct LayerRows {
  Rows h, normed, out, q, k, v, attended;
  Rows wide;       // [rows, 4 hidden]
  Rows room;       // [rows, 4 hidden]: clipped inputs
  Rows distances;  // [window, hidden], and what a layer makes of it
  Rows projected;
};

// x = relu(norm(conv x)) of `rows` x `cols` positions of `channels` floats, into `out`.
void Convolve(const Gemma4Audio& m, Backend& backend, Arena& arena, const float* values,
              const WindowsSpec& spec, const Weight& conv, const Vector& norm, Rows out) {
  const Rows windows = arena.TakeRows(std::min(out.rows, kWindowRows), conv.cols);
  for (int32_t first = 0; first < out.rows; first += kWindowRows) {
    const int32_t count = std::min(kWindowRows, out.rows - first);
    backend.Windows(values, spec, first, windows.Some(0, count));
    backend.Linear(windows.Some(0, count), conv, nullptr, out.Some(first, count));
  }
  backend.LayerNorm(out, norm.data(), nullptr, m.eps, out);
  backend.Act(Activation::kRelu, out, out);
}

void Subsample(const Gemma4Audio& m, Backend& backend, const TowerStep& step, Rows h) {
  Arena& arena = *step.arena;
  const TowerTile& tile = step.tiles.front();
  const int32_t frames = Halved(tile.grid.rows);
  const int32_t bins = Halved(m.bins);
  const Rows first = arena.TakeRows(frames * bins, m.bins);
  const Rows second = arena.TakeRows(h.rows * Halved(bins), m.channels);
  const WindowsSpec outer{1, tile.grid.rows, m.bins, 0, m.bins, 1, 3, 2, 1};
  Convolve(m, backend, arena, step.ValuesOf(tile), outer, m.conv0, m.conv0_norm, first);
  const WindowsSpec inner{m.bins, frames, bins, 1, int64_t{bins} * m.bins, m.bins, 3, 2, 1};
  Convolve(m, backend, arena, first.data, inner, m.conv1, m.conv1_norm, second);
  backend.Linear(second.Joined(Halved(bins)), m.input, nullptr, h);
}

void RunFeedForward(const Gemma4Audio& m, const FeedForward& f, Backend& backend,
                    const LayerRows& r) {
  backend.RmsNorm(r.h, f.norm.data(), 0.0f, m.eps, r.normed);
  RunClipped(backend, f.up, r.normed, r.room.Front(m.hidden), r.wide);
  backend.Act(m.activation, r.wide, r.wide);
  RunClipped(backend, f.down, r.wide, r.room, r.out);
  backend.RmsNorm(r.out, f.out_norm.data(), 0.0f, m.eps, r.out);
  backend.Add(r.h, r.out, m.residual);
}

void RunAttention(const Gemma4Audio& m, const Layer& layer, Backend& backend, const LayerRows& r) {
  const RelativeAttendSpec attend{m.heads, m.head_dim(), m.window, m.cap};
  const float k_scale = static_cast<float>(std::log1p(std::numbers::e) / std::numbers::ln2);
  const Rows room = r.room.Front(m.hidden);
  backend.RmsNorm(r.h, layer.attention_norm.data(), 0.0f, m.eps, r.normed);
  RunClipped(backend, layer.q, r.normed, room, r.q);
  RunClipped(backend, layer.k, r.normed, room, r.k);
  RunClipped(backend, layer.v, r.normed, room, r.v);
  backend.MulVector(r.q.Heads(m.heads), layer.q_scale.data());
  backend.Scale(r.k, k_scale);
  backend.Linear(r.distances, layer.distance, nullptr, r.projected);
  backend.AttendRelative(attend, r.q, r.k, r.v, r.projected, r.attended);
  RunClipped(backend, layer.post, r.attended, room, r.out);
  backend.RmsNorm(r.out, layer.attention_out_norm.data(), 0.0f, m.eps, r.out);
  backend.Add(r.h, r.out, 1.0f);
}

void RunConvolution(const Gemma4Audio& m, const Layer& layer, Backend& backend,
                    const StepContext& clip, const LayerRows& r) {
  const ShortConvSpec conv{m.hidden, m.taps, layer.conv.data(), nullptr, Activation::kNone};
  const Rows both = r.wide.Front(2 * m.hidden);
  const Rows gated = both.Cols(0, m.hidden);
  backend.RmsNorm(r.h, layer.conv_in_norm.data(), 0.0f, m.eps, r.normed);
  RunClipped(backend, layer.conv_start, r.normed, r.room.Front(m.hidden), both);
  backend.SigmoidGate(gated, both.Cols(m.hidden, m.hidden));
  backend.ShortConv(clip, 0, conv, gated, r.normed);
  backend.RmsNorm(r.normed, layer.conv_norm.data(), 0.0f, m.eps, r.normed);
  backend.Act(m.activation, r.normed, r.normed);
  RunClipped(backend, layer.conv_end, r.normed, r.room.Front(m.hidden), r.out);
  backend.Add(r.h, r.out, 1.0f);
}

void Forward(const void* weights, Backend& backend, const TowerStep& step) {
  const Gemma4Audio& m = *static_cast<const Gemma4Audio*>(weights);
  Arena& arena = *step.arena;
  const int32_t rows = step.rows();
  const auto take = [&](int32_t cols) { return arena.TakeRows(rows, cols); };
  const LayerRows r = {take(m.hidden),
                       take(m.hidden),
                       take(m.hidden),
                       take(m.hidden),
                       take(m.hidden),
                       take(m.hidden),
                       take(m.hidden),
                       take(4 * m.hidden),
                       take(4 * m.hidden),
                       arena.TakeRows(m.window, m.hidden),
                       arena.TakeRows(m.window, m.hidden)};
  const Rows output = take(m.out_cols);
  // One sequence from its start, which remembers nothing.
  LayerState no_state;
  const SequenceSlice sequence{0, rows, 0, rows, &no_state};
  StepContext clip;
  clip.rows = rows;
  clip.sequences = {&sequence, 1};
  Subsample(m, backend, step, r.h);
  step.Note(&TowerTrace::embeddings, r.h);
  backend.Input(m.distances.data(), r.distances);
  for (size_t l = 0; l < m.layers.size(); ++l) {
    const Layer& layer = m.layers[l];
    RunFeedForward(m, layer.first, backend, r);
    RunAttention(m, layer, backend, r);
    RunConvolution(m, layer, backend, clip, r);
    RunFeedForward(m, layer.second, backend, r);
    backend.RmsNorm(r.h, layer.out_norm.data(), 0.0f, m.eps, r.h);
    if (l == 0) step.Note(&TowerTrace::layer0, r.h);
  }
  backend.Linear(r.h, m.output, m.output_bias.data(), output);
  step.Note(&TowerTrace::before, output);
  backend.RmsNorm(output, nullptr, 0.0f, m.eps, output);
  backend.Linear(output, m.projection, nullptr, step.out);
}

constexpr std::string_view kTypes[] = {"gemma4"};

}  // namespace

constinit const TowerFamily kGemma4AudioTower = {
    "gemma4_audio", media::MediaKind::kSound, kTypes, &Load, &FindTiles, &Forward};

}  // namespace cellm
