#ifndef CELLM_SRC_BASE_BYTES_H_
#define CELLM_SRC_BASE_BYTES_H_

// Little-endian loads and stores from unaligned bytes. All file formats here are little-endian,
// and so are all machines that we run on (checked below), so these compile to plain moves.

#include <bit>
#include <cstdint>
#include <cstring>

namespace cellm {

static_assert(std::endian::native == std::endian::little, "cellm needs a little-endian machine");

template <typename T>
T LoadLe(const void* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}
inline uint16_t LoadLe16(const void* bytes) { return LoadLe<uint16_t>(bytes); }
inline uint32_t LoadLe32(const void* bytes) { return LoadLe<uint32_t>(bytes); }
inline uint64_t LoadLe64(const void* bytes) { return LoadLe<uint64_t>(bytes); }

template <typename T>
void StoreLe(void* bytes, T value) {
  std::memcpy(bytes, &value, sizeof(T));
}

}  // namespace cellm

#endif  // CELLM_SRC_BASE_BYTES_H_
