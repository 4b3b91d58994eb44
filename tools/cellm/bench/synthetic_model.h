#ifndef CELLM_TOOLS_CELLM_BENCH_SYNTHETIC_MODEL_H_
#define CELLM_TOOLS_CELLM_BENCH_SYNTHETIC_MODEL_H_

// Files of random weights at true shapes.
//
// Nothing is quantised: codes are drawn directly and scales are set so that weights have a sensible
// deviation, so a file is written as fast as the disk takes it, in little memory.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cellm/bench/synthetic_shapes.h"

namespace cellm::tools {

inline constexpr uint64_t kSyntheticSeed = 20260115;

// A .cellm file. `format` is f32, f16, bf16 or a quantising scheme of `cellm convert --quantize`
// ("i8", "i4:64", "ternary", ...), then optionally "/" and another one for the embedding ("i4/i8").
// Without it the embedding has the same, but 8 bits beside fewer than 3.
//   InvalidArgument  the format       Io  the file
Status WriteSyntheticCellm(const SyntheticShape& shape, std::string_view format,
                           const std::string& path);
// Bytes that its tensors will take.
Result<uint64_t> SyntheticCellmBytes(const SyntheticShape& shape, std::string_view format);

// A GGUF file. `type` is f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, q6_k
// for all matrices, or q4_k_m, the common mixture. As common quantisers do: rows that no multiple
// of 256 fits fall back (q2_k to q4_k to q5_0, q5_k to q5_1, q6_k to q8_0), and the embedding,
// which is the head as well, is q6_k or q8_0 beside types of fewer than 8 bits.
//   InvalidArgument  the type, or a shape that has no GGUF form here       Io  the file
Status WriteSyntheticGguf(const SyntheticShape& shape, std::string_view type,
                          const std::string& path);
Result<uint64_t> SyntheticGgufBytes(const SyntheticShape& shape, std::string_view type);

}  // namespace cellm::tools

#endif  // CELLM_TOOLS_CELLM_BENCH_SYNTHETIC_MODEL_H_
