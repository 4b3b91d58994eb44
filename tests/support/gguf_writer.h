#ifndef CELLM_TESTS_SUPPORT_GGUF_WRITER_H_
#define CELLM_TESTS_SUPPORT_GGUF_WRITER_H_

// Writes small GGUF files, right ones and wrong ones.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace cellm::testing {

class GgufWriter {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;
  // When not negative, written instead of the true number.
  int64_t tensor_count = -1;
  int64_t pair_count = -1;

  template <typename T>
  static void Put(T value, std::string* out) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out->append(bytes, sizeof(T));
  }
  static void PutString(std::string_view text, std::string* out) {
    Put<uint64_t>(text.size(), out);
    out->append(text);
  }

  void Int(std::string_view key, uint32_t value) { Begin(key, 4), Put(value, &pairs_); }
  void Float(std::string_view key, float value) { Begin(key, 6), Put(value, &pairs_); }
  void Bool(std::string_view key, bool value) { Begin(key, 7), Put<uint8_t>(value, &pairs_); }
  void Text(std::string_view key, std::string_view value) {
    Begin(key, 8);
    PutString(value, &pairs_);
  }
  void Texts(std::string_view key, const std::vector<std::string>& values) {
    BeginArray(key, 8, values.size());
    for (const std::string& value : values) PutString(value, &pairs_);
  }
  void Ints(std::string_view key, const std::vector<int32_t>& values) {
    BeginArray(key, 5, values.size());
    for (const int32_t value : values) Put(value, &pairs_);
  }
  void Floats(std::string_view key, const std::vector<float>& values) {
    BeginArray(key, 6, values.size());
    for (const float value : values) Put(value, &pairs_);
  }
  // Any bytes after the key.
  void Raw(std::string_view key, std::string_view bytes) {
    PutString(key, &pairs_);
    pairs_.append(bytes);
    ++pair_total_;
  }

  // `dims` fastest first.
  void Tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
              std::string_view data, int64_t offset = -1) {
    PutString(name, &tensors_);
    Put(static_cast<uint32_t>(dims.size()), &tensors_);
    for (const uint64_t dim : dims) Put(dim, &tensors_);
    Put(type, &tensors_);
    Put(offset >= 0 ? static_cast<uint64_t>(offset) : static_cast<uint64_t>(data_.size()),
        &tensors_);
    data_.append(data);
    Pad(&data_);
    ++tensor_total_;
  }
  void FloatTensor(std::string_view name, const std::vector<uint64_t>& dims,
                   const std::vector<float>& values) {
    std::string bytes;
    for (const float value : values) Put(value, &bytes);
    Tensor(name, dims, 0, bytes);
  }

  std::string Take() const {
    std::string out = "GGUF";
    Put(version, &out);
    Put(tensor_count >= 0 ? static_cast<uint64_t>(tensor_count) : tensor_total_, &out);
    Put(pair_count >= 0 ? static_cast<uint64_t>(pair_count) : pair_total_, &out);
    out += pairs_ + tensors_;
    Pad(&out);
    return out + data_;
  }

 private:
  void Begin(std::string_view key, uint32_t type) {
    PutString(key, &pairs_);
    Put(type, &pairs_);
    ++pair_total_;
  }
  void BeginArray(std::string_view key, uint32_t item, uint64_t count) {
    Begin(key, 9);
    Put(item, &pairs_);
    Put(count, &pairs_);
  }
  void Pad(std::string* out) const {
    while (out->size() % alignment != 0) out->push_back('\0');
  }

  std::string pairs_, tensors_, data_;
  uint64_t pair_total_ = 0;
  uint64_t tensor_total_ = 0;
};

}  // namespace cellm::testing

#endif  // CELLM_TESTS_SUPPORT_GGUF_WRITER_H_
