#ifndef CELLM_SRC_MODEL_FAMILIES_H_
#define CELLM_SRC_MODEL_FAMILIES_H_

// One line a family file.

#include "model/model.h"

namespace cellm {

extern const Family kApertusFamily;        // apertus.cc
extern const Family kBitNetFamily;         // bitnet.cc
extern const Family kExaone4Family;        // olmo.cc
extern const Family kGemma2Family;         // gemma.cc
extern const Family kGemma3Family;         // gemma.cc
extern const Family kGemma4Family;         // gemma4.cc
extern const Family kGraniteFamily;        // granite.cc
extern const Family kGraniteHybridFamily;  // granite_moe.cc
extern const Family kGraniteMoeFamily;     // granite_moe.cc
extern const Family kGraniteSharedFamily;  // granite_moe.cc
extern const Family kHunyuanFamily;        // hunyuan.cc
extern const Family kLfm2Family;           // lfm2.cc
extern const Family kLfm2MoeFamily;        // lfm2.cc
extern const Family kLlamaFamily;          // llama.cc
extern const Family kMiniCpmFamily;        // granite.cc
extern const Family kMinistral3Family;     // llama.cc
extern const Family kMistralFamily;        // llama.cc
extern const Family kMobileLlmFamily;      // llama.cc
extern const Family kOlmo2Family;          // olmo.cc
extern const Family kOlmo3Family;          // olmo.cc
extern const Family kPhi3Family;           // phi3.cc
extern const Family kQwen2Family;          // qwen.cc
extern const Family kQwen3Family;          // qwen.cc
extern const Family kQwen35Family;         // qwen3_5.cc
extern const Family kQwen35MoeFamily;      // qwen3_5.cc
extern const Family kQwen3MoeFamily;       // qwen.cc
extern const Family kSmolLm3Family;        // smollm3.cc

}  // namespace cellm

#endif  // CELLM_SRC_MODEL_FAMILIES_H_
