#ifndef CELLM_TESTS_SUPPORT_WEIGHT_FORMATS_H_
#define CELLM_TESTS_SUPPORT_WEIGHT_FORMATS_H_

// A model's matrices in every format that a file may hold, for tests that ask whether something is
// true of all of them. The weights become noise: what they say does not matter to such tests.

#include <cstdint>
#include <string>
#include <vector>

#include "format/model_file.h"
#include "format/quant_recipe.h"

namespace cellm::testing {

struct WeightFormat {
  enum class Kind {
    kFloats,    // f32 f16 bf16 and OCP's 8 bits, of random numbers
    kScheme,    // what `convert` writes: packed tiles of random codes
    kBlocks,    // GGUF: blocks of testdata/gguf_blocks in random order
    kVersion1,  // i8 i4 i2 with scales in a tensor of their own
    kMlx,       // the checkpoints of other projects; `bits` and, for GPTQ, activation order
    kGptq,
    kGptqOrdered,
    kAwq,
    kCompressed,
    kCompressedInt8,
    kBitnet,
  };
  Kind kind = Kind::kFloats;
  std::string name;
  Format format = Format::kF32;
  format::QuantScheme scheme;
  int32_t bits = 0;
};

// Every one of them, in a fixed order.
std::vector<WeightFormat> AllWeightFormats();

// Replaces the matrices of attention, feed-forward and experts, the embedding and the head of
// `file` by noise in that format, as far as the format holds matrices of their shape (and of that
// role: GPTQ and its like never hold an embedding). Returns how many.
int Reformat(const WeightFormat& format, uint64_t seed, format::ModelFile* file);

}  // namespace cellm::testing

#endif  // CELLM_TESTS_SUPPORT_WEIGHT_FORMATS_H_
