#include "base/hash.h"

#include <new>

#define XXH_INLINE_ALL
#define XXH_VECTOR 0  // scalar: the vector paths include intrinsics, which stay in src/kernels
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wold-style-cast"
#pragma GCC diagnostic ignored "-Wundef"
#include "../../third_party/xxhash/xxhash.h"
#pragma GCC diagnostic pop

namespace cellm {

uint64_t HashXxh3(std::span<const uint8_t> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}
uint64_t HashXxh3(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Xxh3Stream::Xxh3Stream() {
  static_assert(sizeof(XXH3_state_t) <= sizeof(state_) && alignof(XXH3_state_t) <= 64);
  XXH3_64bits_reset(new (state_) XXH3_state_t);
}
Xxh3Stream::~Xxh3Stream() = default;

void Xxh3Stream::Update(std::span<const uint8_t> bytes) {
  XXH3_64bits_update(reinterpret_cast<XXH3_state_t*>(state_), bytes.data(), bytes.size());
}
uint64_t Xxh3Stream::Digest() const {
  return XXH3_64bits_digest(reinterpret_cast<const XXH3_state_t*>(state_));
}

}  // namespace cellm
