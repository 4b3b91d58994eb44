// Any bytes as a safetensors file, and as a sharded one's index.

#include <cstdint>

#include "support/model_exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cellm::fuzz::ExerciseModel({data, size}, "model.safetensors", "{\"model_type\":\"llama\"}");
  return 0;
}
