// GGUF version 3, little-endian: header, keys, tensor index, then tensors at multiples of 32 bytes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "cellm/bench/synthetic_model.h"
#include "cellm/bench/synthetic_noise.h"
#include "cellm/bench/synthetic_vocabulary.h"
#include "platform/file.h"
#include "tensor/half.h"

namespace cellm::tools {
namespace {

constexpr uint64_t kAlignment = 32;

// A number format: a block of `weights` weights in `bytes` bytes, drawn by filling it with random
// bits and then setting its factors. `d_at` is the place of the f16 factor d, `min_at` of the f16
// that scales minimums (-1: none). `spread` is the deviation of a weight with d = 1, `center` what
// min must be, in terms of d, to put the middle at 0.
struct Type {
  std::string_view name;
  uint32_t id;
  uint32_t file_type;
  uint32_t weights, bytes;
  int32_t d_at, min_at;
  float spread, center;
};
constexpr Type kTypes[] = {
    {"f32", 0, 0, 1, 4, -1, -1, 0, 0},
    {"f16", 1, 1, 1, 2, -1, -1, 0, 0},
    {"bf16", 30, 32, 1, 2, -1, -1, 0, 0},
    {"q8_0", 8, 7, 32, 34, 0, -1, 73.9f, 0},
    {"q4_0", 2, 2, 32, 18, 0, -1, 4.61f, 0},
    {"q4_1", 3, 3, 32, 20, 0, 2, 4.61f, -7.5f},
    {"q5_0", 6, 8, 32, 22, 0, -1, 9.23f, 0},
    {"q5_1", 7, 9, 32, 24, 0, 2, 9.23f, -15.5f},
    {"q2_k", 10, 10, 256, 84, 80, 82, 13.0f, 1.5f},
    {"q3_k", 11, 12, 256, 110, 108, -1, 42.4f, 0},
    {"q4_k", 12, 14, 256, 144, 0, 2, 263.0f, 7.5f},
    {"q5_k", 13, 16, 256, 176, 0, 2, 525.0f, 15.5f},
    {"q6_k", 14, 18, 256, 210, 208, -1, 1365.0f, 0},
};
constexpr uint32_t kMixtureFileType = 15;  // "Q4_K - Medium"

const Type& TypeNamed(std::string_view name) {
  for (const Type& type : kTypes) {
    if (type.name == name) return type;
  }
  CELLM_CHECK(false, "a type that is not in the table");
  return kTypes[0];
}

Status CheckType(std::string_view name) {
  if (name == "q4_k_m") return OkStatus();
  std::string names;
  for (const Type& type : kTypes) {
    if (type.name == name) return OkStatus();
    names += std::string(type.name) + ", ";
  }
  return InvalidArgument("--gguf: '%s' is not one of %sq4_k_m", std::string(name).c_str(),
                         names.c_str());
}

// What a type gives way to where rows have `cols` weights.
const Type& Fitting(std::string_view name, int64_t cols) {
  const Type& type = TypeNamed(name);
  if (cols % type.weights == 0) return type;
  if (name == "q2_k" || name == "q3_k") return Fitting("q4_k", cols);
  if (name == "q4_k") return TypeNamed("q5_0");
  if (name == "q5_k") return TypeNamed("q5_1");
  return TypeNamed("q8_0");
}

const Type& TypeFor(const SyntheticShape& shape, const SyntheticTensor& tensor,
                    std::string_view wanted) {
  if (!tensor.quantised) return TypeNamed("f32");
  const int64_t cols = tensor.shape.back();
  const bool mixture = wanted == "q4_k_m";
  if (tensor.is_embedding) {
    const bool few_bits = mixture || (wanted[0] == 'q' && wanted != "q8_0");
    return Fitting(few_bits ? "q6_k" : wanted, cols);
  }
  if (!mixture) return Fitting(wanted, cols);
  // The mixture gives more bits to the values and down projections of some layers: the first and
  // last eighth, and every third between.
  const std::string& name = tensor.gguf_name;
  const bool watched =
      name.find("attn_v") != std::string::npos || name.find("ffn_down") != std::string::npos;
  if (!watched) return Fitting("q4_k", cols);
  const int layer = std::atoi(name.c_str() + std::string_view("blk.").size());
  const int eighth = shape.layers / 8;
  const bool more = layer < eighth || layer >= 7 * shape.layers / 8 || (layer - eighth) % 3 == 2;
  return Fitting(more ? "q6_k" : "q4_k", cols);
}

int64_t Elements(const SyntheticTensor& tensor) {
  int64_t count = 1;
  for (const int64_t size : tensor.shape) count *= size;
  return count;
}

uint64_t BytesOf(const Type& type, const SyntheticTensor& tensor) {
  return static_cast<uint64_t>(Elements(tensor)) / type.weights * type.bytes;
}

// ---- the header

enum class Key : uint32_t { kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9 };

class Header {
 public:
  void Raw(const void* data, size_t bytes) { out_.append(static_cast<const char*>(data), bytes); }
  template <typename T>
  void Number(T value) {
    uint8_t bytes[sizeof(T)];
    StoreLe<T>(bytes, value);
    Raw(bytes, sizeof(T));
  }
  void Text(std::string_view text) {
    Number<uint64_t>(text.size());
    Raw(text.data(), text.size());
  }
  void Begin(std::string_view key, Key kind) {
    ++keys;
    Text(key);
    Number(static_cast<uint32_t>(kind));
  }
  void U32(std::string_view key, int64_t value) {
    Begin(key, Key::kU32);
    Number(static_cast<uint32_t>(value));
  }
  void F32(std::string_view key, double value) {
    Begin(key, Key::kF32);
    Number(static_cast<float>(value));
  }
  void Bool(std::string_view key, bool value) {
    Begin(key, Key::kBool);
    Number(static_cast<uint8_t>(value ? 1 : 0));
  }
  void String(std::string_view key, std::string_view text) {
    Begin(key, Key::kString);
    Text(text);
  }
  void Array(std::string_view key, Key kind, size_t count) {
    Begin(key, Key::kArray);
    Number(static_cast<uint32_t>(kind));
    Number<uint64_t>(count);
  }
  void Strings(std::string_view key, const std::vector<std::string>& texts) {
    Array(key, Key::kString, texts.size());
    for (const std::string& text : texts) Text(text);
  }

  const std::string& bytes() const { return out_; }
  uint64_t keys = 0;

 private:
  std::string out_;
};

// Kinds of tokens.
constexpr int32_t kNormal = 1;
constexpr int32_t kUnknown = 2;
constexpr int32_t kControl = 3;
constexpr int32_t kByte = 6;

void AddTypes(const std::vector<int32_t>& types, Header* header) {
  header->Array("tokenizer.ggml.token_type", Key::kI32, types.size());
  for (const int32_t type : types) header->Number(type);
}

void AddByteVocabulary(const SyntheticShape& shape, Header* header) {
  SyntheticVocabulary vocabulary = MakeVocabulary(shape.vocab);
  std::vector<int32_t> types(vocabulary.pieces.size(), kNormal);
  for (const std::string& text : vocabulary.special) {
    vocabulary.pieces.push_back(text);
    types.push_back(kControl);
  }
  header->String("tokenizer.ggml.model", "gpt2");
  header->String("tokenizer.ggml.pre", shape.gguf_pre);
  header->Strings("tokenizer.ggml.tokens", vocabulary.pieces);
  AddTypes(types, header);
  header->Strings("tokenizer.ggml.merges", vocabulary.merges);
  header->U32("tokenizer.ggml.bos_token_id", shape.vocab - 3);
  header->U32("tokenizer.ggml.eos_token_id", shape.vocab - 2);
  header->U32("tokenizer.ggml.padding_token_id", shape.vocab - 1);
  header->Bool("tokenizer.ggml.add_bos_token", false);
}

// Pieces with scores: control tokens, bytes, letter strings, single characters.
void AddPieceVocabulary(const SyntheticShape& shape, Header* header) {
  std::vector<std::string> pieces = {"<pad>", "<eos>", "<bos>", "<unk>"};
  std::vector<int32_t> types = {kControl, kControl, kControl, kUnknown};
  for (unsigned byte = 0; byte < 256; ++byte) {
    pieces.push_back(StrFormat("<0x%02X>", byte));
    types.push_back(kByte);
  }
  std::vector<std::string> single = {"\xE2\x96\x81"};
  for (char c = 33; c < 127; ++c) single.emplace_back(1, c);
  std::vector<std::string> words;
  std::vector<std::string> layer;
  for (char c = 'a'; c <= 'z'; ++c) layer.emplace_back(1, c);
  const size_t wanted = static_cast<size_t>(shape.vocab) - pieces.size() - single.size();
  while (words.size() < wanted) {
    std::vector<std::string> longer;
    for (const std::string& left : layer) {
      for (char c = 'a'; c <= 'z' && words.size() < wanted; ++c) {
        longer.push_back(left + c);
        words.push_back(longer.back());
      }
    }
    layer = std::move(longer);
  }
  const size_t first_scored = pieces.size();
  pieces.insert(pieces.end(), words.begin(), words.end());
  pieces.insert(pieces.end(), single.begin(), single.end());
  types.resize(pieces.size(), kNormal);
  header->String("tokenizer.ggml.model", "llama");
  header->Strings("tokenizer.ggml.tokens", pieces);
  header->Array("tokenizer.ggml.scores", Key::kF32, pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    header->Number(i < first_scored ? 0.0f : -static_cast<float>(i - first_scored));
  }
  AddTypes(types, header);
  header->U32("tokenizer.ggml.bos_token_id", 2);
  header->U32("tokenizer.ggml.eos_token_id", 1);
  header->U32("tokenizer.ggml.unknown_token_id", 3);
  header->U32("tokenizer.ggml.padding_token_id", 0);
  header->Bool("tokenizer.ggml.add_bos_token", true);
  header->Bool("tokenizer.ggml.add_eos_token", false);
}

void AddKeys(const SyntheticShape& shape, std::string_view type, Header* header) {
  const std::string a(shape.gguf_architecture);
  header->String("general.architecture", a);
  header->String("general.name", "random " + std::string(shape.name));
  header->U32("general.file_type", type == "q4_k_m" ? kMixtureFileType : TypeNamed(type).file_type);
  header->U32("general.quantization_version", 2);
  header->U32(a + ".context_length", shape.context);
  header->U32(a + ".embedding_length", shape.hidden);
  header->U32(a + ".block_count", shape.layers);
  header->U32(a + ".feed_forward_length", shape.inner);
  header->U32(a + ".attention.head_count", shape.heads);
  header->U32(a + ".attention.head_count_kv", shape.kv_heads);
  header->U32(a + ".attention.key_length", shape.head_dim);
  header->U32(a + ".attention.value_length", shape.head_dim);
  header->F32(a + ".attention.layer_norm_rms_epsilon", shape.eps);
  header->F32(a + ".rope.freq_base", shape.theta);
  header->U32(a + ".rope.dimension_count", shape.head_dim);
  header->U32(a + ".vocab_size", shape.vocab);
  if (shape.window > 0) header->U32(a + ".attention.sliding_window", shape.window);
  if (shape.gguf_pre.empty()) {
    AddPieceVocabulary(shape, header);
  } else {
    AddByteVocabulary(shape, header);
  }
}

// ---- the weights

// Llama 3: long waves are divided by 32, short ones stay, those between change over.
float RopeFactor(const SyntheticShape& shape, int64_t index) {
  const double exponent = 2.0 * static_cast<double>(index) / shape.head_dim;
  const double wave = 2.0 * 3.14159265358979323846 * std::pow(shape.theta, exponent);
  const double mix = std::clamp((8192.0 / wave - 1.0) / 3.0, 0.0, 1.0);
  return static_cast<float>(1.0 / ((1.0 - mix) / 32.0 + mix));
}

void FillBlock(const Type& type, float deviation, Noise* noise, uint8_t* block) {
  for (uint32_t i = 0; i < type.bytes; i += 8) {
    const uint64_t bits = noise->Bits();
    std::memcpy(block + i, &bits, std::min<size_t>(8, type.bytes - i));
  }
  const float d = deviation / type.spread;
  StoreLe<uint16_t>(block + type.d_at, FloatToF16(d));
  if (type.min_at >= 0) StoreLe<uint16_t>(block + type.min_at, FloatToF16(d * type.center));
}

Status WriteTensor(const SyntheticShape& shape, const SyntheticTensor& tensor, const Type& type,
                   platform::FileWriter* file) {
  Noise noise(tensor.gguf_name, kSyntheticSeed);
  constexpr size_t kBufferBytes = size_t{1} << 20;
  std::vector<uint8_t> buffer;
  buffer.reserve(kBufferBytes + 256);
  const int64_t blocks = Elements(tensor) / type.weights;
  for (int64_t b = 0; b < blocks; ++b) {
    const size_t at = buffer.size();
    buffer.resize(at + type.bytes);
    uint8_t* const block = buffer.data() + at;
    if (type.d_at >= 0) {
      FillBlock(type, tensor.deviation, &noise, block);
    } else {
      const float value = tensor.fill == Fill::kNoise         ? tensor.deviation * noise.Normal()
                          : tensor.fill == Fill::kRopeFactors ? RopeFactor(shape, b)
                          : tensor.fill == Fill::kNorm        ? 1.0f
                                                              : tensor.deviation;
      if (type.bytes == 4) {
        StoreLe<float>(block, value);
      } else {
        StoreLe<uint16_t>(block, type.name == "f16" ? FloatToF16(value) : FloatToBf16(value));
      }
    }
    if (buffer.size() < kBufferBytes && b + 1 < blocks) continue;
    CELLM_RETURN_IF_ERROR(file->Write(buffer));
    buffer.clear();
  }
  return OkStatus();
}

Status Pad(platform::FileWriter* file) {
  constexpr uint8_t kZeros[kAlignment] = {};
  const uint64_t over = file->position() % kAlignment;
  return over == 0 ? OkStatus() : file->Write({kZeros, static_cast<size_t>(kAlignment - over)});
}

Result<std::vector<SyntheticTensor>> GgufTensors(const SyntheticShape& shape,
                                                 std::string_view type) {
  if (shape.gguf_architecture.empty()) {
    return InvalidArgument("--gguf: %s can only be written as .cellm",
                           std::string(shape.name).c_str());
  }
  CELLM_RETURN_IF_ERROR(CheckType(type));
  std::vector<SyntheticTensor> tensors = shape.Tensors();
  std::erase_if(tensors, [](const SyntheticTensor& t) { return t.gguf_name.empty(); });
  return tensors;
}

}  // namespace

Result<uint64_t> SyntheticGgufBytes(const SyntheticShape& shape, std::string_view type) {
  CELLM_ASSIGN_OR_RETURN(const std::vector<SyntheticTensor> tensors, GgufTensors(shape, type));
  uint64_t bytes = 0;
  for (const SyntheticTensor& tensor : tensors) {
    bytes += BytesOf(TypeFor(shape, tensor, type), tensor);
  }
  return bytes;
}

Status WriteSyntheticGguf(const SyntheticShape& shape, std::string_view type,
                          const std::string& path) {
  CELLM_ASSIGN_OR_RETURN(const std::vector<SyntheticTensor> tensors, GgufTensors(shape, type));
  Header keys;
  AddKeys(shape, type, &keys);
  Header header;
  header.Raw("GGUF", 4);
  header.Number<uint32_t>(3);
  header.Number<uint64_t>(tensors.size());
  header.Number<uint64_t>(keys.keys);
  header.Raw(keys.bytes().data(), keys.bytes().size());
  uint64_t offset = 0;
  for (const SyntheticTensor& tensor : tensors) {
    const Type& chosen = TypeFor(shape, tensor, type);
    header.Text(tensor.gguf_name);
    header.Number(static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) {
      header.Number(static_cast<uint64_t>(tensor.shape[i]));
    }
    header.Number(chosen.id);
    header.Number(offset);
    offset += (BytesOf(chosen, tensor) + kAlignment - 1) / kAlignment * kAlignment;
  }
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<platform::FileWriter> file,
                         platform::SystemFiles().Create(path));
  CELLM_RETURN_IF_ERROR(file->Write(
      {reinterpret_cast<const uint8_t*>(header.bytes().data()), header.bytes().size()}));
  CELLM_RETURN_IF_ERROR(Pad(file.get()));
  for (const SyntheticTensor& tensor : tensors) {
    CELLM_RETURN_IF_ERROR(WriteTensor(shape, tensor, TypeFor(shape, tensor, type), file.get()));
    CELLM_RETURN_IF_ERROR(Pad(file.get()));
  }
  return file->Commit();
}

}  // namespace cellm::tools
