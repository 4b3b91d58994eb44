#ifndef CELLM_SRC_TENSOR_GGUF_BLOCKS_H_
#define CELLM_SRC_TENSOR_GGUF_BLOCKS_H_

// The block formats of GGUF files, each in its one definition: how a block becomes integer codes.
//
// A row is a run of blocks. A block yields `weights` codes and, for every `group` of them, a scale
// and (some formats) a minimum, such that
//   value = (2 code - zero2) * scale / 2 [+ min]
// in float arithmetic, in that order, is the value that the format defines, bit for bit: scales
// are products of a half and a small integer, and so exact in float; the product of code and scale
// rounds at most once; with a minimum the product is exact and the sum rounds once. Code books
// (the IQ formats) are signed values with a zero point like any other. Hence the same integers
// serve the float reading, the kernels' packed layout, and the tests.
//
// Layouts: the published descriptions of the ggml tensor types. Vectors: testdata/gguf_blocks.

#include <cstdint>
#include <span>

#include "tensor/format.h"
#include "tensor/packed.h"

namespace cellm {

struct GgufBlock {
  Format format;
  uint16_t type_id;  // the number in a GGUF file
  int16_t weights;   // weights in a block: a multiple of group
  int16_t bytes;
  int8_t bits;    // of a code
  int16_t group;  // weights that share a scale
  int16_t zero2;
  ScaleType scale_type;  // the narrowest that holds every scale and min (but see kQ1_0 below)
  bool has_min;
  // codes [weights], scales and mins [weights / group]; mins untouched without has_min.
  void (*decode)(const uint8_t* block, uint8_t* codes, float* scales, float* mins);
  // Blocks of small integer scales times one super-scale (and super-min): how they are packed, and
  // the one super-scale and super-min of a block.
  SubScale sub = SubScale::kNone;
  ScaleType super_type = ScaleType::kF16;
  void (*supers)(const uint8_t* block, float* super, float* super_min) = nullptr;
  CodeBook book = CodeBook::kNone;  // codes take few values: the book that has them
  int8_t book_bits = 0;             // of an index into it
};

// All of them, in the order of the enumerators.
std::span<const GgufBlock> GgufBlocks();
// Null for formats that are not GGUF blocks (plain floats included).
const GgufBlock* FindGgufBlock(Format format);
// The format of a GGUF type number, plain ones included; Format::kCount for any other number.
Format FormatOfGgufType(uint32_t type_id);

// One row of `cols` weights (a multiple of block.weights) at `row`, which holds
// cols / block.weights * block.bytes bytes. codes [cols], scales and mins [cols / block.group].
void DecodeGgufRowCodes(const GgufBlock& block, const uint8_t* row, int32_t cols, uint8_t* codes,
                        float* scales, float* mins);
// The super-scales and super-mins of such a row, one a block: [cols / block.weights]. Only for
// blocks with `sub`; mins are left alone without has_min.
void DecodeGgufRowSupers(const GgufBlock& block, const uint8_t* row, int32_t cols, float* supers,
                         float* super_mins);
// The same row as values: out [cols].
void DecodeGgufRow(const GgufBlock& block, const uint8_t* row, int32_t cols, float* out);

// The packed layout that holds a matrix of this format without loss, in about the bits of the file.
// `data` are its rows: a 1-bit matrix has scale 2 d, which in rare files is too large for a half,
// and then takes floats.
PackedLayout GgufPackedLayout(const GgufBlock& block, int32_t rows, int32_t cols,
                              std::span<const uint8_t> data);

// The decoders of the other files of this group; the table in gguf_blocks.cc names them.
namespace gguf {
void DecodeQ2K(const uint8_t* block, uint8_t* codes, float* scales, float* mins);
void DecodeQ3K(const uint8_t* block, uint8_t* codes, float* scales, float* mins);
void DecodeQ4K(const uint8_t* block, uint8_t* codes, float* scales, float* mins);
void DecodeQ5K(const uint8_t* block, uint8_t* codes, float* scales, float* mins);
void DecodeQ6K(const uint8_t* block, uint8_t* codes, float* scales, float* mins);
void DecodeIq1S(const uint8_t* block, uint8_t* codes, float* scales, float* mins);
void DecodeIq1M(const uint8_t* block, uint8_t* codes, float* scales, float* mins);
void DecodeIq2Xxs(const uint8_t* block, uint8_t* codes, float* scales, float* mins);
void DecodeIq2Xs(const uint8_t* block, uint8_t* codes, float* scales, float* mins);
void DecodeIq2S(const uint8_t* block, uint8_t* codes, float* scales, float* mins);
void DecodeIq3Xxs(const uint8_t* block, uint8_t* codes, float* scales, float* mins);
void DecodeIq3S(const uint8_t* block, uint8_t* codes, float* scales, float* mins);
void DecodeIq4Nl(const uint8_t* block, uint8_t* codes, float* scales, float* mins);
void DecodeIq4Xs(const uint8_t* block, uint8_t* codes, float* scales, float* mins);
}  // namespace gguf

}  // namespace cellm

#endif  // CELLM_SRC_TENSOR_GGUF_BLOCKS_H_
