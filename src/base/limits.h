#ifndef CELLM_SRC_BASE_LIMITS_H_
#define CELLM_SRC_BASE_LIMITS_H_

// Every cap on what a file or a request may ask for, each with its reason. Sizes that a file
// claims are checked against the file's own length first; these bound what is left.

#include <cstddef>
#include <cstdint>

namespace cellm::limits {

// A JSON document: the largest published tokenizer.json has 35 MB.
inline constexpr size_t kMaxJsonBytes = size_t{256} << 20;
// Nesting of JSON and of template values; real files stay below 20.
inline constexpr int kMaxJsonDepth = 128;
// A model file's header or index: 50,000 tensors at 1 kB each.
inline constexpr uint64_t kMaxHeaderBytes = uint64_t{64} << 20;
inline constexpr uint64_t kMaxTensors = 1 << 18;
inline constexpr int kMaxTensorRank = 8;
inline constexpr size_t kMaxTensorNameBytes = 1024;
// Vocabularies go to 262k today; four times that leaves room, and ids stay far from int32's end.
inline constexpr int32_t kMaxVocabulary = 1 << 20;
// Widths and layer counts beyond any small model's; products of two stay inside int64.
inline constexpr int32_t kMaxDimension = 1 << 22;
inline constexpr int32_t kMaxLayers = 1024;
// Experts of a layer; published models reach 512.
inline constexpr int32_t kMaxExperts = 1024;
// Positions are int32 and rotary angles lose precision long before this.
inline constexpr int32_t kMaxContext = 1 << 24;

}  // namespace cellm::limits

#endif  // CELLM_SRC_BASE_LIMITS_H_
