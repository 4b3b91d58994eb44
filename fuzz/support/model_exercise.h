#ifndef CELLM_FUZZ_MODEL_EXERCISE_H_
#define CELLM_FUZZ_MODEL_EXERCISE_H_

// Opens bytes as a model file and asks for everything that the engine asks for. Shared by the
// targets of the containers.

#include <cstdint>
#include <span>
#include <string>

namespace cellm::fuzz {

// `bytes` as the file `path`; `config` as the config.json beside it, unless empty.
void ExerciseModel(std::span<const uint8_t> bytes, const std::string& path,
                   const std::string& config);

}  // namespace cellm::fuzz

#endif  // CELLM_FUZZ_MODEL_EXERCISE_H_
