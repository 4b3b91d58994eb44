#ifndef CELLM_SRC_FORMAT_PYTORCH_PICKLE_H_
#define CELLM_SRC_FORMAT_PYTORCH_PICKLE_H_

// A reader of the pickles inside PyTorch checkpoints that can build tensors and nothing else.
//
// A pickle is a program for a stack machine that may call any function of Python. This machine
// knows the opcodes that a dictionary of tensors needs, and these callables, by name:
//   collections.OrderedDict, torch._utils._rebuild_tensor_v2, torch._utils._rebuild_parameter,
//   torch.FloatStorage and its like (as names of element types)
// Anything else is refused by name. Nothing is executed.
// Sources: the pickle protocol as documented with Python's pickletools; PyTorch's serialization
// notes.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/format.h"

namespace cellm::format {

struct PickledTensor {
  std::string name;  // key in the dictionary
  Format format = Format::kF32;
  std::string_view storage;     // key of the storage: the entry "data/<key>"
  uint64_t storage_count = 0;   // elements that the storage claims to have
  uint64_t storage_offset = 0;  // in elements
  std::vector<int64_t> shape;
  std::vector<int64_t> stride;  // in elements
};

// The tensors of a pickled state dictionary: the dictionary itself, or the one under "state_dict"
// or "model" in it. Other values in it are counted in *skipped. Views of `pickle`.
//   Corrupt      a program that breaks the rules of the stack machine
//   Unsupported  an opcode or callable outside the list; a dictionary without tensors
// Messages start with `file_name`. Memory is bounded: a pickle of at most 16 MiB, 2^21 values.
Result<std::vector<PickledTensor>> ReadPickledTensors(std::span<const uint8_t> pickle,
                                                      std::string_view file_name, int* skipped);

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_PYTORCH_PICKLE_H_
