#ifndef CELLM_SRC_BASE_HASH_H_
#define CELLM_SRC_BASE_HASH_H_

#include <cstdint>
#include <span>
#include <string_view>

namespace cellm {

// XXH3-64 (xxHash 0.8 specification), seed 0: checksums in .cellm files and prefix-cache keys.
// Not cryptographic.
uint64_t HashXxh3(std::span<const uint8_t> bytes);
uint64_t HashXxh3(std::string_view bytes);

// The same over pieces: Update() in order gives the hash of the concatenation. One thread.
class Xxh3Stream {
 public:
  Xxh3Stream();
  ~Xxh3Stream();
  Xxh3Stream(const Xxh3Stream&) = delete;
  Xxh3Stream& operator=(const Xxh3Stream&) = delete;
  void Update(std::span<const uint8_t> bytes);
  uint64_t Digest() const;

 private:
  alignas(64) unsigned char state_[576];
};

}  // namespace cellm

#endif  // CELLM_SRC_BASE_HASH_H_
