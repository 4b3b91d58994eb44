#ifndef CELLM_SRC_MODEL_MODEL_H_
#define CELLM_SRC_MODEL_MODEL_H_

// A model: what a configuration says, weights bound to roles, and the forward pass of its family.
//
// Families are rows of a table (families.cc), not classes. A family file (llama.cc is the pattern)
// has three parts in this order: the configuration it accepts, the binding of tensor names to roles
// with shapes checked, and the forward pass in straight lines over the ops of backend.h.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/allocator.h"
#include "base/log.h"
#include "base/status.h"
#include "format/model_file.h"
#include "kv/layer_state.h"
#include "model/holding.h"

namespace cellm {

struct ModelInfo {
  std::string family;      // "llama"
  std::string model_type;  // as in the file
  int32_t vocab_size = 0;  // rows of the head: columns of logits
  int32_t hidden_size = 0;
  int32_t layer_count = 0;
  // Tokens that the model was made for; > 0. The engine's context never exceeds it.
  int32_t max_context = 0;
  int32_t bos_id = -1;                 // -1: none
  std::vector<int32_t> eos_ids;        // of generation_config.json, else of the configuration
  std::vector<LayerStateSpec> layers;  // what each layer remembers; size need not be layer_count
  // How rows of pictures and sounds stand in a prompt (StepContext::given).
  int32_t given_id = 0;              // the token id at their rows
  bool pictures_are_blocks = false;  // a picture's rows see each other: StepContext::key_ends
  bool axial_positions = false;      // StepContext::rope_positions is to be set after a picture
  int64_t parameter_count = 0;       // elements of all bound tensors
  uint64_t weight_bytes = 0;         // bytes of all bound tensors as they are held
  HoldingReport holding;
  std::vector<std::string> notes;  // things a user should know
};

struct Model;

// How a family sees the file that it is loaded from.
struct LoadContext {
  const format::ModelFile& file;
  // The text model's object: the root, or its text_config with the wrapper's tie_word_embeddings
  // (the text_config's own is not looked at) and quantization_config. Valid during the call.
  json::Value config;
  Backend& backend;  // prepares weights
  Allocator& allocator;
  WeightHolder& holder;  // sees every matrix
};

struct Family {
  std::string_view name;
  std::span<const std::string_view> model_types;  // values of "model_type" that it takes
  // Fills model->info and model->weights. Unsupported names the key and value that is refused;
  // NotFound and Corrupt name the tensor.
  Status (*load)(const LoadContext& context, Model* model);
  // One pass: reads step.tokens, writes step.logits and the layers' states. Calls ops only.
  void (*forward)(const void* weights, Backend& backend, const StepContext& step);
};

// The weights of one family, of a type that only its file knows.
class FamilyWeights {
 public:
  FamilyWeights() = default;
  template <typename T>
  explicit FamilyWeights(std::unique_ptr<T> weights)
      : data_(weights.release()), destroy_([](void* data) { delete static_cast<T*>(data); }) {}
  FamilyWeights(FamilyWeights&& other) noexcept : data_(other.data_), destroy_(other.destroy_) {
    other.data_ = nullptr;
  }
  FamilyWeights& operator=(FamilyWeights&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(destroy_, other.destroy_);
    return *this;
  }
  ~FamilyWeights() {
    if (data_ != nullptr) destroy_(data_);
  }
  const void* get() const { return data_; }

 private:
  void* data_ = nullptr;
  void (*destroy_)(void*) = nullptr;
};

// Immutable after LoadModel(); any number of engines and threads may use it. Owns the file, to
// whose mapping its weights point.
struct Model {
  std::unique_ptr<format::ModelFile> file;
  const Family* family = nullptr;
  ModelInfo info;
  FamilyWeights weights;
};

// All families, and the one that takes a model_type (null: none).
std::span<const Family* const> AllFamilies();
const Family* FindFamily(std::string_view model_type);

// Binds the weights of `file`. `backend` is used during the call only; weights that must be
// repacked or loaded come from `allocator`, which must outlive the model.
//   Unsupported  unknown model_type, a configuration key or value that we do not run (by name)
//   NotFound, Corrupt  a tensor that is missing or has the wrong shape (by name)
//   others             of WeightHolder
Result<std::shared_ptr<const Model>> LoadModel(std::unique_ptr<format::ModelFile> file,
                                               Backend& backend, Allocator& allocator,
                                               const LogSink& log,
                                               const HoldingOptions& holding = {});

}  // namespace cellm

#endif  // CELLM_SRC_MODEL_MODEL_H_
