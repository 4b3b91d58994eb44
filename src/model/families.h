#ifndef CELLM_SRC_MODEL_FAMILIES_H_
#define CELLM_SRC_MODEL_FAMILIES_H_

// One line a family file.

#include "model/model.h"

namespace cellm {

extern const Family kLlamaFamily;     // llama.cc
extern const Family kMistralFamily;   // llama.cc
extern const Family kQwen2Family;     // qwen.cc
extern const Family kQwen3Family;     // qwen.cc
extern const Family kQwen3MoeFamily;  // qwen.cc
extern const Family kGemma2Family;    // gemma.cc
extern const Family kGemma3Family;    // gemma.cc

}  // namespace cellm

#endif  // CELLM_SRC_MODEL_FAMILIES_H_
