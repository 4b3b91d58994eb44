#include "engine/session_file.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/hash.h"
#include "base/limits.h"

namespace cellm {
namespace {

constexpr char kMagic[8] = {'C', 'E', 'L', 'L', 'M', 'S', 'E', 'S'};
constexpr uint32_t kVersion = 1;
constexpr size_t kFixedBytes = 80;
constexpr size_t kSampleBytes = 256;  // of each end of a tensor, for models without an identity

std::span<const uint8_t> BytesOf(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Bytes go to the file and into the hash.
class HashedWriter {
 public:
  explicit HashedWriter(platform::FileWriter& out) : out_(out) {}
  Status Write(std::span<const uint8_t> bytes) {
    hash_.Update(bytes);
    return out_.Write(bytes);
  }
  uint64_t hash() const { return hash_.Digest(); }

 private:
  platform::FileWriter& out_;
  Xxh3Stream hash_;
};

}  // namespace

uint64_t ModelHash(const Model& model) {
  const format::ModelFile& file = *model.file;
  if (!file.identity.empty()) return HashXxh3(file.identity);
  Xxh3Stream hash;
  hash.Update(BytesOf(json::Serialize(file.config->root())));
  for (const format::Tensor& tensor : file.tensors) {
    hash.Update(BytesOf(tensor.name));
    hash.Update({reinterpret_cast<const uint8_t*>(tensor.shape.data()),
                 tensor.shape.size() * sizeof(int64_t)});
    const size_t sample = std::min(kSampleBytes, tensor.data.size());
    hash.Update(tensor.data.first(sample));
    hash.Update(tensor.data.last(sample));
  }
  return hash.Digest();
}

std::string Numerics(const Engine& engine, int32_t planned_tokens) {
  const EngineOptions& options = engine.options();
  // Kernels of classes E and O give the same bits in every tier, so the tier is not part of this.
  return StrFormat(
      "keys and values %s in pages of %d tokens, activations %s, kernels of order 1, "
      "length class %lld",
      KvStorageName(options.storage()).c_str(), options.page_tokens,
      options.activations == ActivationMode::kInt8 ? "i8" : "f32",
      static_cast<long long>(engine.LengthClass(planned_tokens)));
}

Status WriteSession(platform::FileWriter& out, const SessionImage& image,
                    std::span<const std::span<uint8_t>> contents) {
  uint8_t fixed[kFixedBytes] = {};
  std::memcpy(fixed, kMagic, sizeof(kMagic));
  StoreLe(fixed + 8, kVersion);
  StoreLe(fixed + 16, image.model_hash);
  StoreLe(fixed + 24, HashXxh3(image.numerics));
  StoreLe(fixed + 32, static_cast<uint32_t>(image.tokens.size()));
  StoreLe(fixed + 36, static_cast<uint32_t>(image.marks.size()));
  StoreLe(fixed + 40, static_cast<uint64_t>(image.text.size()));
  StoreLe(fixed + 48, static_cast<uint32_t>(image.numerics.size()));
  StoreLe(fixed + 52, image.planned_tokens);
  StoreLe(fixed + 56, image.overflow);
  StoreLe(fixed + 60, image.keep_tokens);
  StoreLe(fixed + 64, image.kept_tokens);
  uint64_t bytes = 0;
  for (const std::span<uint8_t> piece : contents) bytes += piece.size();
  StoreLe(fixed + 72, bytes);

  HashedWriter writer(out);
  CELLM_RETURN_IF_ERROR(writer.Write(fixed));
  CELLM_RETURN_IF_ERROR(writer.Write({reinterpret_cast<const uint8_t*>(image.tokens.data()),
                                      image.tokens.size() * sizeof(int32_t)}));
  for (const SessionImage::Mark& mark : image.marks) {
    uint8_t pair[16];
    StoreLe(pair, mark.text_end);
    StoreLe(pair + 8, mark.token_count);
    CELLM_RETURN_IF_ERROR(writer.Write(pair));
  }
  CELLM_RETURN_IF_ERROR(writer.Write(BytesOf(image.text)));
  CELLM_RETURN_IF_ERROR(writer.Write(BytesOf(image.origins)));
  CELLM_RETURN_IF_ERROR(writer.Write(BytesOf(image.numerics)));
  for (const std::span<uint8_t> piece : contents) CELLM_RETURN_IF_ERROR(writer.Write(piece));
  uint8_t hash[8];
  StoreLe(hash, writer.hash());
  return out.Write(hash);
}

Result<SessionImage> ReadSession(std::span<const uint8_t> file, std::string_view name,
                                 std::span<const uint8_t>* contents) {
  const std::string path(name);
  if (file.size() < kFixedBytes + 8 || std::memcmp(file.data(), kMagic, sizeof(kMagic)) != 0) {
    return Corrupt("%s: not a suspended session", path.c_str());
  }
  const uint8_t* const fixed = file.data();
  const uint32_t version = LoadLe32(fixed + 8);
  if (version != kVersion) {
    return Unsupported("%s: a session file of version %u; this build reads version %u",
                       path.c_str(), version, kVersion);
  }
  // All sizes are below 2^40, so their sum does not overflow.
  const uint64_t tokens = LoadLe32(fixed + 32);
  const uint64_t marks = LoadLe32(fixed + 36);
  const uint64_t text = LoadLe64(fixed + 40);
  const uint64_t numerics = LoadLe32(fixed + 48);
  const uint64_t bytes = LoadLe64(fixed + 72);
  const uint64_t size = file.size();
  if (text > size || bytes > size ||
      kFixedBytes + 4 * tokens + 16 * marks + 2 * text + numerics + bytes + 8 != size) {
    return Corrupt("%s: %llu bytes, which is not what its header says (cut short?)", path.c_str(),
                   static_cast<unsigned long long>(size));
  }
  if (HashXxh3(file.first(size - 8)) != LoadLe64(file.data() + size - 8)) {
    return Corrupt("%s: changed since it was written", path.c_str());
  }
  SessionImage image;
  image.model_hash = LoadLe64(fixed + 16);
  image.planned_tokens = LoadLe<int32_t>(fixed + 52);
  image.overflow = LoadLe<int32_t>(fixed + 56);
  image.keep_tokens = LoadLe32(fixed + 60);
  image.kept_tokens = LoadLe<int32_t>(fixed + 64);
  image.contents_bytes = bytes;
  const uint8_t* at = fixed + kFixedBytes;
  image.tokens.resize(tokens);
  if (tokens > 0) std::memcpy(image.tokens.data(), at, 4 * tokens);
  at += 4 * tokens;
  uint64_t last_text = 0;
  uint64_t last_token = 0;
  for (uint64_t i = 0; i < marks; ++i, at += 16) {
    const SessionImage::Mark mark = {LoadLe64(at), LoadLe64(at + 8)};
    if (mark.text_end < last_text || mark.text_end > text || mark.token_count < last_token ||
        mark.token_count > tokens) {
      return Corrupt("%s: mark %llu is out of order or range", path.c_str(),
                     static_cast<unsigned long long>(i));
    }
    last_text = mark.text_end;
    last_token = mark.token_count;
    image.marks.push_back(mark);
  }
  image.text.assign(reinterpret_cast<const char*>(at), text);
  at += text;
  image.origins.assign(reinterpret_cast<const char*>(at), text);
  at += text;
  image.numerics.assign(reinterpret_cast<const char*>(at), numerics);
  at += numerics;
  const bool bad_origin = std::any_of(image.origins.begin(), image.origins.end(),
                                      [](char origin) { return origin != 0 && origin != 1; });
  if (bad_origin || HashXxh3(image.numerics) != LoadLe64(fixed + 24) || image.kept_tokens < 0 ||
      static_cast<uint64_t>(image.kept_tokens) > tokens || image.planned_tokens < 0 ||
      (image.kept_tokens == 0) != (bytes == 0)) {
    return Corrupt("%s: a field contradicts another", path.c_str());
  }
  *contents = {at, bytes};
  return image;
}

}  // namespace cellm
