#ifndef CELLM_SRC_ENGINE_SESSION_FILE_H_
#define CELLM_SRC_ENGINE_SESSION_FILE_H_

// A suspended session as a file: its tokens, the texts that they stand for, and, if it was kept,
// what the model remembers of them. All numbers little-endian.
//
//   offset  size  what
//   0       8     "CELLMSES"
//   8       4     version: 1
//   12      4     0
//   16      8     hash of the model (ModelHash)
//   24      8     hash of the numerics text
//   32      4     T: tokens
//   36      4     M: marks of the transcript
//   40      8     B: bytes of the transcript's text
//   48      4     N: bytes of the numerics text
//   52      4     planned length
//   56      4     overflow policy
//   60      4     tokens to keep when it overflows
//   64      4     K: tokens whose keys, values and states follow; 0: none
//   68      4     0
//   72      8     C: bytes of those
//   80      4 T   token ids
//           16 M  marks: end in the text, number of tokens (8 bytes each)
//           B     text
//           B     origin of each of its bytes: 1 the template, 0 a message
//           N     the numerics, in words
//           C     contents, in the order of SequenceCache::Contents()
//           8     XXH3-64 of everything before
//
// The file has exactly this size. Everything is checked before any of it is believed; the hash
// finds accidents, not forgers: a file that somebody else wrote is somebody else's conversation.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "platform/file.h"

namespace cellm {

struct SessionImage {
  struct Mark {
    uint64_t text_end = 0;
    uint64_t token_count = 0;
  };
  uint64_t model_hash = 0;
  std::string numerics;  // Numerics() of the engine that wrote the contents
  std::vector<int32_t> tokens;
  std::vector<Mark> marks;
  std::string text, origins;
  int32_t planned_tokens = 0;
  int32_t overflow = 0;
  uint32_t keep_tokens = 0;
  int32_t kept_tokens = 0;  // of `contents`
  uint64_t contents_bytes = 0;
};

// Of a model: its file's identity where it has one, else of its configuration, tensors' names,
// shapes and some of each one's bytes. Equal for the same model under another path.
uint64_t ModelHash(const Model& model);

// What the bits of keys and values depend on beside model and tokens, in words: the format and size
// of pages, how activations are multiplied, the class of the kernels' arithmetic, the length class.
std::string Numerics(const Engine& engine, int32_t planned_tokens);

// Io (message: path and why).
Status WriteSession(platform::FileWriter& out, const SessionImage& image,
                    std::span<const std::span<uint8_t>> contents);

// `contents` becomes a view of `file`. `name` is for messages.
//   Corrupt      not such a file, cut short, or changed
//   Unsupported  a newer version
Result<SessionImage> ReadSession(std::span<const uint8_t> file, std::string_view name,
                                 std::span<const uint8_t>* contents);

}  // namespace cellm

#endif  // CELLM_SRC_ENGINE_SESSION_FILE_H_
