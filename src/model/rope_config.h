#ifndef CELLM_SRC_MODEL_ROPE_CONFIG_H_
#define CELLM_SRC_MODEL_ROPE_CONFIG_H_

// From a configuration's rotary keys to a RopeSpec.

#include <array>
#include <cstdint>
#include <string_view>

#include "backend/rope.h"
#include "base/status.h"
#include "model/config.h"

namespace cellm {

struct RopeDefaults {
  int32_t head_dim = 0;
  int32_t max_position_embeddings = 0;
  double theta = 10000.0;        // the family's, when the file has none
  double partial_factor = 1.0;   // the family's default partial_rotary_factor
  bool partial_allowed = false;  // families that do not honour another value than 1 refuse it
  // In the nested form, the key of this layer type ("full_attention"); empty: the flat form only.
  std::string_view layer_type;
  bool legacy_yarn_is_longrope = false;  // phi3
  bool query_growth_allowed = false;     // ministral3 reads "llama_4_scaling_beta"
  // Families whose positions have three axes (time, row, column): the family's "mrope_section". The
  // pairs' axes take turns; kinds default and yarn only. Zeros: one axis, and the key means
  // nothing.
  std::array<int32_t, 3> mrope_section = {0, 0, 0};
};

// Reads rope_scaling (old) or rope_parameters (new), rope_theta, partial_rotary_factor and
// original_max_position_embeddings of `config` and builds the frequencies. Kinds: default, linear,
// dynamic, llama3, yarn, longrope (su), proportional. Unsupported names the kind, key or value that
// is not one of these; errors are also recorded in `config`.
// Formulas: the reference implementation's (docs/models.md, "Rotary embedding").
Result<RopeSpec> ReadRope(Config& config, const RopeDefaults& defaults);

// The same for a rope dictionary that the caller found (null: default kind with `theta`).
Result<RopeSpec> RopeFromDictionary(json::Value dictionary, Config& config,
                                    const RopeDefaults& defaults);

}  // namespace cellm

#endif  // CELLM_SRC_MODEL_ROPE_CONFIG_H_
