#ifndef CELLM_SRC_BACKEND_BACKEND_H_
#define CELLM_SRC_BACKEND_BACKEND_H_

// The named operations that model families are written in.
//
// A family calls them in the order of its paper; a Backend runs them: CpuBackend (cpu_backend.h)
// over the kernel table and the thread pool, MeasureBackend (measure_backend.h) to learn how much
// scratch a forward pass needs, others later. Rules for all of them:
//   - Activations are float Rows; x and out may be the same Rows only where said.
//   - A row's result depends on that row (and, for ops that take a StepContext, on its own
//     sequence's state), never on other rows, chunking or threads. Bit for bit.
//   - No op allocates or fails. Shapes are the family's responsibility: it checked them at load.
//   - Families never touch Rows::data themselves; it is null while measuring.
//
// Formulas are those of the published model definitions; the numbers in brackets, e.g. [R1], are
// variants that docs/models.md lists with the families that use them.

#include <cstdint>
#include <span>

#include "backend/rope.h"
#include "backend/rows.h"
#include "backend/step_context.h"
#include "backend/weight.h"
#include "base/status.h"

namespace cellm {

enum class Activation : uint8_t {
  kNone,
  kSilu,       // x * sigmoid(x)
  kGelu,       // 0.5 x (1 + erf(x / sqrt 2))
  kGeluTanh,   // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  kQuickGelu,  // x * sigmoid(1.702 x)
  kRelu,
  kRelu2,  // max(x, 0)^2
  kSigmoid,
  kTanh,
};

// What a matrix will be used for.
enum class WeightUse : uint8_t {
  kLinear,  // products (and row lookup): quantised matrices are brought into kernel layout
  kLookup,  // Embed() only: stays as stored
};

// One product of Linear(): out = x w^T + bias.
struct LinearPart {
  const Weight* weight = nullptr;  // [out.cols, x.cols]
  const float* bias = nullptr;     // [out.cols] or null
  Rows out;
};

struct AttendSpec {
  int32_t heads = 0, kv_heads = 0;  // query head h reads kv head h / (heads / kv_heads)
  int32_t head_dim = 0, head_dim_v = 0;
  int32_t window = 0;            // 0: all earlier tokens; w: the last w, the query's own included
  float scale = 1.0f;            // on q . k
  float softcap = 0.0f;          // c: c * tanh(s / c) after the scale; 0: none
  const float* sinks = nullptr;  // [heads]: a logit that joins the denominator only; or null
  // A row sees the keys up to StepContext::key_ends of it instead of up to its own, where that is
  // set: the patches of a tile see each other, and so do the rows of a picture in some text models.
  bool two_way = false;
};

// Attention over the last `window` rows, with a vector a head and distance added to the key.
struct RelativeAttendSpec {
  int32_t heads = 0, head_dim = 0;
  int32_t window = 0;    // a row sees the last so many, its own included
  float softcap = 0.0f;  // c: c * tanh(s / c); 0: none
};

// Windows of a picture or a spectrogram, one a row. Element (channel, row, col) of the input is at
// channel * channel_stride + row * row_stride + col * col_stride.
struct WindowsSpec {
  int32_t channels = 0, rows = 0, cols = 0;
  int64_t channel_stride = 0, row_stride = 0, col_stride = 0;
  int32_t side = 0, step = 0;  // of a window, and from one to the next, both ways
  int32_t padding = 0;         // zeros around the input

  int32_t out_rows() const { return (rows + 2 * padding - side) / step + 1; }
  int32_t out_cols() const { return (cols + 2 * padding - side) / step + 1; }
};

struct ShortConvSpec {
  int32_t channels = 0, taps = 0;
  const float* weight = nullptr;  // [channels][taps], tap taps - 1 multiplies the newest sample
  const float* bias = nullptr;    // [channels] or null
  Activation activation = Activation::kNone;  // kNone or kSilu, after the bias
};

struct DeltaRuleSpec {
  int32_t k_heads = 0, v_heads = 0;  // v head h uses k head h / (v_heads / k_heads)
  int32_t k_dim = 0, v_dim = 0;
  const float* a_log = nullptr;    // [v_heads]
  const float* dt_bias = nullptr;  // [v_heads]
};

struct SelectiveStateSpec {                                     // Mamba2
  int32_t heads = 0, head_dim = 0, state_size = 0, groups = 0;  // head h: group h/(heads/groups)
  const float* a_log = nullptr;                                 // [heads]
  const float* dt_bias = nullptr;                               // [heads]
  const float* d = nullptr;                                     // [heads]
};

enum class RouterKind : uint8_t {
  kSoftmaxAll,   // [R1, R4] softmax over all experts, then the top_k of it
  kSoftmaxTopK,  // [R2] top_k logits, softmax over those
  kSigmoid,      // [R3] sigmoid; chosen by value + bias, weighted by the value alone
};

struct RouterSpec {
  RouterKind kind = RouterKind::kSoftmaxAll;
  int32_t experts = 0, top_k = 0;
  bool normalise = false;             // divide the chosen weights by their sum + normalise_eps
  float normalise_eps = 0.0f;         // [R3] 1e-6
  float scale = 1.0f;                 // then multiply by this
  const float* bias = nullptr;        // [experts], kSigmoid only; or null
  const float* per_expert = nullptr;  // [experts], [R4] multiplies the final weight; or null
};

// Chosen experts: row r goes to ids[r * top_k + i] with weights[r * top_k + i], ids ascending.
struct Routing {
  int32_t* ids = nullptr;
  float* weights = nullptr;
  int32_t rows = 0, top_k = 0;
};

struct ExpertSpec {
  std::span<const Weight> gate, up;  // [experts] of [inner, x.cols]
  std::span<const Weight> down;      // [experts] of [out.cols, inner]
  Activation activation = Activation::kSilu;
  int32_t inner = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Makes `matrix` (validated; its bytes must outlive the Weight) ready. Dense floats and packed
  // tiles are used where they lie; other quantised formats are packed without loss into memory of
  // `allocator`, in parallel. After that the source bytes are needed no more (weight.owned is not
  // empty). OutOfMemory, Unsupported. One thread at a time.
  virtual Result<Weight> Prepare(const Matrix& matrix, WeightUse use, Allocator& allocator) = 0;

  // out[r] = scale * table[tokens[r]]. Tokens are in [0, table.rows). Any kind of weight.
  virtual void Embed(const Weight& table, std::span<const int32_t> tokens, float scale,
                     Rows out) = 0;
  // out[r] = sum over i < taps, ascending, of weights[r * taps + i] * table[ids[r * taps + i]]: a
  // table of positions resized, or several of them added up. Any kind of weight.
  virtual void EmbedTaps(const Weight& table, std::span<const int32_t> ids, const float* weights,
                         int32_t taps, Rows out) = 0;
  // out[i] = x[indices[i]].
  virtual void GatherRows(Rows x, std::span<const int32_t> indices, Rows out) = 0;
  // out[indices[i]] = x[i], or with `add` that much more. No index twice.
  virtual void ScatterRows(Rows x, std::span<const int32_t> indices, bool add, Rows out) = 0;
  // out[r] = (sum over i < group, ascending, of x[indices[r * group + i]]) / group.
  virtual void MeanRows(Rows x, std::span<const int32_t> indices, int32_t group, Rows out) = 0;
  // out[r][c] = values[r * out.cols + c]: numbers from outside become activations.
  virtual void Input(const float* values, Rows out) = 0;
  // Windows [first, first + out.rows) of `values`, counted row by row, with columns
  // [channels][side][side]: a convolution is a product with them.
  virtual void Windows(const float* values, const WindowsSpec& spec, int32_t first, Rows out) = 0;

  // y = x / sqrt(mean(x^2) + eps) * (weight + offset); weight [x.cols] or null for 1. y may be x.
  virtual void RmsNorm(Rows x, const float* weight, float offset, float eps, Rows y) = 0;
  // y = (x - mean) / sqrt(var + eps) * weight + bias, biased variance; no bias when null. y may be
  // x.
  virtual void LayerNorm(Rows x, const float* weight, const float* bias, float eps, Rows y) = 0;
  // Gated norms, in groups of `group` columns with statistics of their own; weight [x.cols], or
  // [group] with weight_per_group. out may be x.
  //   gate_first false [G1]: y = norm(x) * weight * silu(z)
  //   gate_first true  [G2]: y = norm(x * silu(z)) * weight
  virtual void GatedRmsNorm(Rows x, Rows z, const float* weight, bool weight_per_group,
                            int32_t group, float eps, bool gate_first, Rows out) = 0;

  // Products that share one input (and one quantisation of it), e.g. q, k and v.
  virtual void Linear(Rows x, std::span<const LinearPart> parts) = 0;
  // One product.
  void Linear(Rows x, const Weight& weight, const float* bias, Rows out) {
    const LinearPart part{&weight, bias, out};
    Linear(x, std::span<const LinearPart>(&part, 1));
  }
  // Linear() on RoundToInt8(x): with quantised weights the products are those of the integers. x
  // may be left rounded.
  virtual void LinearInt8(Rows x, std::span<const LinearPart> parts) = 0;
  // out = act(x gate^T + gate.bias) * (x up^T + up.bias); the `out` of the parts is ignored.
  virtual void GatedLinear(Rows x, const LinearPart& gate, const LinearPart& up,
                           Activation activation, Rows out) = 0;

  // out = act(gate) * up. out may be gate or up.
  virtual void GatedAct(Activation activation, Rows gate, Rows up, Rows out) = 0;
  // out = act(x). out may be x.
  virtual void Act(Activation activation, Rows x, Rows out) = 0;
  // xIELU with a_p = softplus(alpha_p), a_n = beta + softplus(alpha_n) (given as a_p, a_n):
  //   x > 0: a_p x^2 + beta x;   else: a_n (expm1(min(x, eps)) - x) + beta x. In place.
  virtual void Xielu(float a_p, float a_n, float beta, float eps, Rows x) = 0;
  // x += scale * y (one rounding of the product and the sum each).
  virtual void Add(Rows x, Rows y, float scale) = 0;
  virtual void Scale(Rows x, float scale) = 0;
  // out = a * b elementwise. out may be either.
  virtual void Mul(Rows a, Rows b, Rows out) = 0;
  // x *= vector[col], the same vector for every row.
  virtual void MulVector(Rows x, const float* vector) = 0;
  // x += vector[col], the same vector for every row.
  virtual void AddVector(Rows x, const float* vector) = 0;
  // out = min(max(x, low), high). out may be x. NaN stays.
  virtual void Clamp(Rows x, float low, float high, Rows out) = 0;
  // x = cap * tanh(x / cap).
  virtual void SoftCap(Rows x, float cap) = 0;
  // x *= sigmoid(gate); gate has x.cols columns, or one that serves the whole row.
  virtual void SigmoidGate(Rows x, Rows gate) = 0;
  // x[r] *= 1 + beta * ln(1 + floor(position / original)), the query factor of ministral3.
  virtual void ScaleByPosition(const StepContext& step, float beta, int32_t original, Rows x) = 0;
  // Per row: a = 127 / max(max|x|, 1e-5); x = clamp(round_half_even(x * a), -128, 127) / a.
  virtual void RoundToInt8(Rows x) = 0;

  // cos and sin of every row of the step into cos_sin [step.rows, rotary_dim]. Once a step and
  // spec.
  virtual void RopeTable(const StepContext& step, const RopeSpec& spec, Rows cos_sin) = 0;
  // Rotates x [step.rows, heads * head_dim] in place by RopeTable() of the same spec.
  virtual void Rope(const RopeSpec& spec, Rows cos_sin, int32_t heads, Rows x) = 0;

  // Writes keys [rows, kv_heads * head_dim] and values [rows, kv_heads * head_dim_v] of the step
  // into the pages of `layer`, in the cache's element type.
  virtual void StoreKv(const StepContext& step, int32_t layer, const AttendSpec& spec, Rows k,
                       Rows v) = 0;
  // Attention of q [rows, heads * head_dim] over the pages of `layer` (after StoreKv: a token sees
  // itself) into out [rows, heads * head_dim_v]. Causal unless spec.two_way.
  virtual void AttendPages(const StepContext& step, int32_t layer, const AttendSpec& spec, Rows q,
                           Rows out) = 0;

  // Row i of q, k, v and out [rows, heads * head_dim] sees rows j in (i - window, i]:
  //   s_j = q_i . k_j + q_i . distances[i - j], capped;  out_i = sum softmax(s)_j v_j
  // distances [window, heads * head_dim]. All rows are one sequence from its start.
  virtual void AttendRelative(const RelativeAttendSpec& spec, Rows q, Rows k, Rows v,
                              Rows distances, Rows out) = 0;

  // Causal depthwise convolution over each sequence, continuing from LayerState::conv (null: from
  // zeros, and nothing is kept):
  //   y_t[c] = act(bias[c] + sum_m weight[c][m] * x_{t - taps + 1 + m}[c]). y may be x.
  virtual void ShortConv(const StepContext& step, int32_t layer, const ShortConvSpec& spec, Rows x,
                         Rows y) = 0;
  // Gated delta rule, token by token, state S [v_heads][k_dim][v_dim] in LayerState::recurrent:
  //   q, k L2-normalised (x / sqrt(sum x^2 + 1e-6)), q *= k_dim^-0.5, beta = sigmoid(b),
  //   g = -exp(a_log) * softplus(a + dt_bias);
  //   S *= exp(g); delta = beta (v - S^T k); S += k delta^T; out = S^T q.
  // qkv [rows, 2 * k_heads * k_dim + v_heads * v_dim] as [q | k | v]; b, a [rows, v_heads];
  // out [rows, v_heads * v_dim].
  virtual void DeltaRule(const StepContext& step, int32_t layer, const DeltaRuleSpec& spec,
                         Rows qkv, Rows b, Rows a, Rows out) = 0;
  // Mamba2 state update, token by token, S [heads][head_dim][state_size] in LayerState::recurrent:
  //   dt = softplus(dt + dt_bias); S = exp(-exp(a_log) dt) S + dt x B^T; y = S C + d x.
  // xbc [rows, heads * head_dim + 2 * groups * state_size] as [x | B | C]; dt [rows, heads].
  virtual void SelectiveState(const StepContext& step, int32_t layer,
                              const SelectiveStateSpec& spec, Rows xbc, Rows dt, Rows out) = 0;

  // logits [rows, experts] -> routing. Of equal values the lower expert wins.
  virtual void RouteExperts(const RouterSpec& spec, Rows logits, const Routing& routing) = 0;
  // out = sum over the row's experts, ascending, of weight * down(act(gate x) * up x). Reads the
  // chosen experts' bytes only.
  virtual void ExpertMlp(Rows x, const ExpertSpec& spec, const Routing& routing, Rows out) = 0;
};

}  // namespace cellm

#endif  // CELLM_SRC_BACKEND_BACKEND_H_
