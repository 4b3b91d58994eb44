// The one place that includes stb_image.
//
// stb_image asks for memory through macros without a context, so the context of the running call is
// a thread's own pointer. Blocks are chained: whatever a failing decode leaves behind is given back
// at its end.

#include "media/stb_decoder.h"

#include <algorithm>
#include <cstring>
#include <limits>

#if defined(CELLM_HAVE_STB)

namespace cellm::media {
namespace {

// Stands before each block; its size keeps what follows aligned to 16.
struct alignas(16) Block {
  Block* previous;
  Block* next;
  size_t bytes;  // with this
};

struct Memory {
  Allocator& allocator;
  uint64_t limit;
  uint64_t used = 0;
  Block* first = nullptr;
  bool refused = false;  // by the allocator
  bool limited = false;  // by `limit`
};

constinit thread_local Memory* current_memory = nullptr;

void* StbAllocate(size_t bytes) {
  Memory& memory = *current_memory;
  if (bytes > memory.limit || bytes + sizeof(Block) > memory.limit - memory.used) {
    memory.limited = true;
    return nullptr;
  }
  const size_t total = bytes + sizeof(Block);
  void* place = memory.allocator.Allocate(total, alignof(Block), MemoryClass::kActivations);
  if (place == nullptr) {
    memory.refused = true;
    return nullptr;
  }
  memory.used += total;
  Block* block = new (place) Block{nullptr, memory.first, total};
  if (memory.first != nullptr) memory.first->previous = block;
  memory.first = block;
  return block + 1;
}

void StbFree(void* pointer) {
  if (pointer == nullptr) return;
  Memory& memory = *current_memory;
  Block* block = static_cast<Block*>(pointer) - 1;
  if (block->previous != nullptr) block->previous->next = block->next;
  if (block->next != nullptr) block->next->previous = block->previous;
  if (memory.first == block) memory.first = block->next;
  memory.used -= block->bytes;
  memory.allocator.Free(block, block->bytes, MemoryClass::kActivations);
}

void* StbReallocate(void* pointer, size_t bytes) {
  void* grown = StbAllocate(bytes);
  if (grown == nullptr || pointer == nullptr) return grown;
  const size_t held = (static_cast<Block*>(pointer) - 1)->bytes - sizeof(Block);
  std::memcpy(grown, pointer, std::min(held, bytes));
  StbFree(pointer);
  return grown;
}

}  // namespace
}  // namespace cellm::media

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_NO_HDR
#define STBI_ONLY_PNG
#define STBI_ONLY_JPEG
#define STBI_ONLY_BMP
#define STBI_ONLY_GIF
#define STBI_MAX_DIMENSIONS 65535
// Its assertions are about bytes, and bytes must not end the program.
#define STBI_ASSERT(condition) static_cast<void>(0)
#define STBI_MALLOC(bytes) ::cellm::media::StbAllocate(bytes)
#define STBI_REALLOC(pointer, bytes) ::cellm::media::StbReallocate(pointer, bytes)
#define STBI_FREE(pointer) ::cellm::media::StbFree(pointer)
// Casts of its style come with the macros above.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
#include <stb_image.h>
#pragma GCC diagnostic pop

namespace cellm::media {
namespace {

const char* Name(PictureFormat format) {
  switch (format) {
    case PictureFormat::kPng:
      return "PNG";
    case PictureFormat::kJpeg:
      return "JPEG";
    case PictureFormat::kBmp:
      return "BMP";
    case PictureFormat::kGif:
      return "GIF";
    case PictureFormat::kWebp:
      return "WebP";
  }
  return "picture";
}

// More than any kind of file takes a pixel: 16 bits of four colours twice and the result come to 20
// bytes, coefficients of a progressive JPEG with its planes to 18.
constexpr uint64_t kBytesPerPixel = 32;
constexpr uint64_t kFixedBytes = 1 << 20;

Result<Picture> Decode(std::span<const uint8_t> bytes, const PictureHeader& header,
                       Memory* memory) {
  int width = 0;
  int height = 0;
  int channels = 0;
  stbi_uc* pixels = stbi_load_from_memory(bytes.data(), static_cast<int>(bytes.size()), &width,
                                          &height, &channels, 3);
  const char* name = Name(header.format);
  if (pixels == nullptr) {
    if (memory->refused) return OutOfMemory("%s: memory for decoding was refused", name);
    if (memory->limited) {
      return Corrupt("%s: the file expands to more than a picture of %lld x %lld pixels can need",
                     name, static_cast<long long>(header.width),
                     static_cast<long long>(header.height));
    }
    const char* reason = stbi_failure_reason();
    return Corrupt("%s: %s", name, reason != nullptr ? reason : "the file is damaged");
  }
  if (width != header.width || height != header.height) {
    return Corrupt("%s: %d x %d pixels were decoded, the header says %lld x %lld", name, width,
                   height, static_cast<long long>(header.width),
                   static_cast<long long>(header.height));
  }
  CELLM_ASSIGN_OR_RETURN(Picture picture,
                         NewPicture(width, height, memory->allocator, "decoded picture"));
  std::memcpy(picture.rgb.data(), pixels, picture.rgb.size());
  return picture;
}

}  // namespace

bool HaveStbDecoder() { return true; }

Result<Picture> DecodeWithStb(std::span<const uint8_t> bytes, const PictureHeader& header,
                              Allocator& allocator) {
  bytes = bytes.first(header.end);
  if (bytes.size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    return OutOfRange("an encoded picture of %zu bytes; 2 GB is the most", bytes.size());
  }
  // stb_image leaves transparent pixels of a GIF blank; alpha is to be dropped, so they get their
  // colour: the flag is cleared in a copy.
  Array<uint8_t> copy;
  if (header.transparency != 0) {
    CELLM_ASSIGN_OR_RETURN(copy, Array<uint8_t>::Uninitialised(allocator, bytes.size(),
                                                               MemoryClass::kActivations, "GIF"));
    std::memcpy(copy.data(), bytes.data(), bytes.size());
    copy[header.transparency] &= 0xFE;
    bytes = copy.span();
  }
  Memory memory = {allocator, kFixedBytes + 4 * uint64_t{bytes.size()} +
                                  kBytesPerPixel * static_cast<uint64_t>(header.width) *
                                      static_cast<uint64_t>(header.height) +
                                  64 * static_cast<uint64_t>(header.height + header.width)};
  current_memory = &memory;
  Result<Picture> picture = Decode(bytes, header, &memory);
  while (memory.first != nullptr) StbFree(memory.first + 1);
  current_memory = nullptr;
  return picture;
}

}  // namespace cellm::media

#else

namespace cellm::media {

bool HaveStbDecoder() { return false; }

Result<Picture> DecodeWithStb(std::span<const uint8_t>, const PictureHeader&, Allocator&) {
  return Unsupported(
      "this build reads no encoded pictures: build it with stb_image (Debian "
      "libstb-dev)");
}

}  // namespace cellm::media

#endif
