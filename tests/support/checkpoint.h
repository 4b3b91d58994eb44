#ifndef CELLM_TESTS_SUPPORT_CHECKPOINT_H_
#define CELLM_TESTS_SUPPORT_CHECKPOINT_H_

// A plain reading of safetensors files for tests, apart from the library's own reader: what a
// checkpoint holds, as floats.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cellm::testing {

struct CheckpointTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<float> values;   // F32, F16 and BF16; U8 and I8 as numbers; empty otherwise
  std::vector<uint8_t> bytes;  // as stored
};

// All tensors of one file. Empty when it cannot be read.
std::map<std::string, CheckpointTensor> ReadSafetensors(const std::string& path);
// All tensors of the *.safetensors in a folder whose name starts with "model".
std::map<std::string, CheckpointTensor> ReadCheckpoint(const std::string& folder);

}  // namespace cellm::testing

#endif  // CELLM_TESTS_SUPPORT_CHECKPOINT_H_
