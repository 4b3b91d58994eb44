#ifndef CELLM_SRC_CAPI_GENERATION_CONFIG_H_
#define CELLM_SRC_CAPI_GENERATION_CONFIG_H_

#include <string_view>

#include "base/status.h"
#include "cellm/cellm.h"
#include "sample/sampler.h"

namespace cellm::capi {

// The defaults of a model: what generation_config.json says, else temperature 0.8 and top-k 40 with
// everything else off. "do_sample": false means temperature 0. A key that is absent or null keeps
// its default, but once the file says how to sample, top-k is off unless it is named: 40 is ours,
// not the model's.
//   Corrupt      not JSON, or a key with a value of another type (message: which)
//   Unsupported  a value that cannot be used (message: which)
Result<sample::SamplingOptions> ReadGenerationConfig(std::string_view text);

// `defaults` with the fields that `given` overrides. InvalidArgument names the field.
Result<sample::SamplingOptions> ApplySampling(const sample::SamplingOptions& defaults,
                                              const cellm_sampling& given, int32_t vocabulary);

}  // namespace cellm::capi

#endif  // CELLM_SRC_CAPI_GENERATION_CONFIG_H_
