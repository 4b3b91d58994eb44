// Any bytes as a PyTorch archive, and as the pickle inside one.

#include <cstddef>
#include <cstdint>

#include "format/pytorch.h"
#include "format/pytorch_pickle.h"
#include "support/heap_bound.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cellm;
  int skipped = 0;
  format::ModelFile model;
  {
    const fuzz::HeapBound bound(size);
    if (!format::ReadPickledTensors({data, size}, "fuzz.pkl", &skipped).ok()) skipped = 0;
    if (!format::AppendPyTorch({data, size}, "fuzz.bin", 0, &model).ok()) return 0;
  }
  // Every byte of every tensor must be readable.
  uint8_t sum = 0;
  for (const format::Tensor& tensor : model.tensors) {
    for (const uint8_t byte : tensor.data) sum = static_cast<uint8_t>(sum + byte);
  }
  volatile uint8_t sink = sum;
  static_cast<void>(sink);
  return 0;
}
