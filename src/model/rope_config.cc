#include "model/rope_config.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numbers>
#include <string>
#include <vector>

#include "base/limits.h"

namespace cellm {
namespace {

// A rotary dictionary, read with the same manners as Config.
struct Reader {
  json::Value dictionary;
  Config& config;

  bool Has(std::string_view key) const { return dictionary.Find(key).has_value(); }
  double Float(std::string_view key, double fallback) const {
    const json::Value value = dictionary.Find(key);
    if (!value.has_value()) return fallback;
    double number = 0.0;
    if (!value.GetDouble(&number) || !std::isfinite(number)) {
      Fail(key, "is not a finite number");
      return fallback;
    }
    return number;
  }
  double Positive(std::string_view key, double fallback) const {
    const double number = Float(key, fallback);
    if (number <= 0.0) Fail(key, "must be above 0");
    return number > 0.0 ? number : 1.0;
  }
  void Require(std::string_view key) const {
    if (!Has(key)) Fail(key, "is missing");
  }
  void Fail(std::string_view key, const char* what) const {
    const std::string name(key);
    config.Fail(Corrupt("config: rotary scaling: \"%s\" %s", name.c_str(), what));
  }
  std::vector<double> List(std::string_view key, int32_t count) const {
    std::vector<double> list;
    const json::Value value = dictionary.Find(key);
    if (!value.is_array() || value.size() != static_cast<size_t>(count)) {
      Fail(key, StrFormat("is not a list of %d numbers", count).c_str());
      return list;
    }
    for (json::Value v = value.First(); v.exists(); v = value.Next(v)) {
      double number = 0.0;
      if (!v.GetDouble(&number) || !(number > 0.0) || !std::isfinite(number)) {
        Fail(key, "holds something that is not a number above 0");
        return {};
      }
      list.push_back(number);
    }
    return list;
  }
  // Keys that the kind does not know, and that are not null, are refused by name.
  void RefuseOthers(const std::string& kind, std::initializer_list<std::string_view> keys) const {
    constexpr std::string_view kAlways[] = {"rope_type", "type", "rope_theta",
                                            "partial_rotary_factor", "finetuned"};
    for (json::Value v = dictionary.First(); v.exists(); v = dictionary.Next(v)) {
      const std::string_view key = dictionary.KeyOf(v);
      if (!v.has_value()) continue;
      if (std::find(std::begin(kAlways), std::end(kAlways), key) != std::end(kAlways)) continue;
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
      const std::string name(key);
      config.Fail(Unsupported("config: rotary scaling of type \"%s\": key \"%s\" is not understood",
                              kind.c_str(), name.c_str()));
      return;
    }
  }
};

std::vector<double> PlainFrequencies(double base, int32_t rotary_dim) {
  std::vector<double> inverse;
  for (int32_t j = 0; j < rotary_dim / 2; ++j) {
    inverse.push_back(1.0 / std::pow(base, 2.0 * j / rotary_dim));
  }
  return inverse;
}

std::vector<float> ToFloat(const std::vector<double>& values) {
  std::vector<float> floats;
  for (const double value : values) floats.push_back(static_cast<float>(value));
  return floats;
}

// "original_max_position_embeddings": the configuration's own key, else the dictionary's, else the
// context.
int32_t OriginalMax(const Reader& reader, const RopeDefaults& defaults) {
  constexpr std::string_view kKey = "original_max_position_embeddings";
  double value = reader.Float(kKey, defaults.max_position_embeddings);
  if (defaults.layer_type.empty() && reader.config.Has(kKey)) {
    value = reader.config.Int(kKey, 1);
  }
  if (!(value >= 1.0) || value > limits::kMaxContext) {
    reader.Fail(kKey, "is out of range");
    return 1;
  }
  return static_cast<int32_t>(value);
}

// Slow frequencies are divided by `factor`, fast ones kept, those between interpolated.
std::vector<double> Llama3(const Reader& reader, const RopeDefaults& defaults,
                           std::vector<double> inverse) {
  for (const std::string_view key : {"factor", "low_freq_factor", "high_freq_factor"}) {
    reader.Require(key);
  }
  const double factor = reader.Positive("factor", 1.0);
  const double low = reader.Positive("low_freq_factor", 1.0);
  const double high = reader.Positive("high_freq_factor", 4.0);
  const double original = OriginalMax(reader, defaults);
  if (high <= low) reader.Fail("high_freq_factor", "is not above low_freq_factor");
  for (double& value : inverse) {
    const double wavelength = 2.0 * std::numbers::pi / value;
    if (wavelength > original / low) {
      value /= factor;
    } else if (wavelength >= original / high) {
      const double s = (original / wavelength - low) / (high - low);
      value = (1.0 - s) * value / factor + s * value;
    }
  }
  return inverse;
}

double YarnMagnitude(double scale, double factor) {
  return factor <= 1.0 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

std::vector<double> Yarn(const Reader& reader, const RopeDefaults& defaults, double base,
                         int32_t rotary_dim, std::vector<double> inverse, double* magnitude) {
  const double original = OriginalMax(reader, defaults);
  const double factor = reader.Positive("factor", defaults.max_position_embeddings / original);
  const auto or_default = [&reader](std::string_view key, double fallback) {
    const double value = reader.Float(key, 0.0);
    return value != 0.0 ? value : fallback;
  };
  const double fast = or_default("beta_fast", 32.0);
  const double slow = or_default("beta_slow", 1.0);
  bool truncate = true;
  reader.dictionary.Find("truncate").GetBool(&truncate);
  // The reference looks this key up beside the nested dictionaries, where it is never found.
  if (!defaults.layer_type.empty()) truncate = true;
  const double mscale = reader.Float("mscale", 0.0);
  const double mscale_all = reader.Float("mscale_all_dim", 0.0);
  if (reader.Has("attention_factor")) {
    *magnitude = reader.Float("attention_factor", 1.0);
  } else if (mscale != 0.0 && mscale_all != 0.0) {
    *magnitude = YarnMagnitude(mscale, factor) / YarnMagnitude(mscale_all, factor);
  } else {
    *magnitude = YarnMagnitude(1.0, factor);
  }
  const double r = rotary_dim;
  const auto correction = [&](double beta) {
    return r * std::log(original / (2.0 * std::numbers::pi * beta)) / (2.0 * std::log(base));
  };
  double low = correction(fast);
  double high = correction(slow);
  if (truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, r - 1.0);
  if (low == high) high += 0.001;
  for (size_t j = 0; j < inverse.size(); ++j) {
    const double ramp = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
    inverse[j] = inverse[j] / factor * ramp + inverse[j] * (1.0 - ramp);
  }
  return inverse;
}

void Longrope(const Reader& reader, const RopeDefaults& defaults,
              const std::vector<double>& inverse, RopeSpec* spec) {
  const int32_t half = spec->rotary_dim / 2;
  const double original = OriginalMax(reader, defaults);
  const double factor = reader.Positive("factor", defaults.max_position_embeddings / original);
  const std::vector<double> short_factor = reader.List("short_factor", half);
  const std::vector<double> long_factor = reader.List("long_factor", half);
  if (!reader.config.ok()) return;
  double magnitude = 1.0;
  if (reader.Has("attention_factor")) {
    magnitude = reader.Float("attention_factor", 1.0);
  } else if (factor > 1.0) {
    magnitude = std::sqrt(1.0 + std::log(factor) / std::log(original));
  }
  spec->attention_factor = static_cast<float>(magnitude);
  std::vector<double> with_short = inverse;
  std::vector<double> with_long = inverse;
  for (size_t j = 0; j < inverse.size(); ++j) {
    with_short[j] /= short_factor[j];
    with_long[j] /= long_factor[j];
  }
  spec->inv_freq = ToFloat(with_short);
  spec->long_inv_freq = ToFloat(with_long);
  spec->long_from = static_cast<int32_t>(original);
}

// Whole head width; a share of the pairs turns, the others have frequency 0.
void Proportional(const Reader& reader, double base, double partial, RopeSpec* spec) {
  const double factor = reader.Positive("factor", 1.0);
  const int32_t d = spec->head_dim;
  spec->rotary_dim = d;
  const int32_t live = static_cast<int32_t>(std::floor(partial * d / 2.0));
  spec->inv_freq.assign(static_cast<size_t>(d / 2), 0.0f);
  for (int32_t j = 0; j < live; ++j) {
    spec->inv_freq[static_cast<size_t>(j)] =
        static_cast<float>(1.0 / std::pow(base, 2.0 * j / d) / factor);
  }
}

std::string KindOf(json::Value dictionary, Config& config) {
  json::Value value = dictionary.Find("rope_type");
  if (!value.has_value()) value = dictionary.Find("type");
  if (!value.has_value()) return "default";
  std::string_view text;
  if (!value.GetString(&text)) {
    config.Fail(Corrupt("config: rotary scaling: \"rope_type\" is not a string"));
  }
  return std::string(text);
}

// Which axis each pair turns by: time, row, column in turn, a row or column only for as many pairs
// as its section has.
void ReadAxes(json::Value dictionary, Config& config, const RopeDefaults& defaults,
              RopeSpec* spec) {
  if (defaults.mrope_section[0] == 0) return;
  constexpr const char* kKey = "mrope_section";
  const Reader reader{dictionary, config};
  const int32_t pairs = spec->rotary_dim / 2;
  std::array<int32_t, 3> section = defaults.mrope_section;
  if (reader.Has(kKey)) {
    const std::vector<double> list = reader.List(kKey, 3);
    for (size_t i = 0; i < list.size(); ++i) section[i] = static_cast<int32_t>(list[i]);
    if (config.ok() && section[0] + section[1] + section[2] != pairs) {
      reader.Fail(kKey, StrFormat("does not add up to %d pairs", pairs).c_str());
    }
  } else if (section[0] + section[1] + section[2] != pairs) {
    return;  // the family's sections are for its own width: a text model
  }
  for (int32_t j = 0; j < pairs; ++j) {
    const int32_t axis = j % 3;
    const bool turns = axis > 0 && j < 3 * section[static_cast<size_t>(axis)];
    spec->axes.push_back(static_cast<uint8_t>(turns ? axis : 0));
  }
}

}  // namespace

Result<RopeSpec> RopeFromDictionary(json::Value dictionary, Config& config,
                                    const RopeDefaults& defaults) {
  const Reader reader{dictionary, config};
  RopeSpec spec;
  spec.head_dim = defaults.head_dim;
  const double base = reader.Positive("rope_theta", defaults.theta);
  const double partial = reader.Float("partial_rotary_factor", defaults.partial_factor);
  std::string kind = KindOf(dictionary, config);
  if (kind == "su" || (kind == "yarn" && defaults.legacy_yarn_is_longrope)) kind = "longrope";
  if (!(partial > 0.0) || partial > 1.0) {
    config.Fail(Corrupt("config: \"partial_rotary_factor\": %g is not in (0, 1]", partial));
  } else if (partial != 1.0 && !defaults.partial_allowed && kind != "proportional") {
    config.Fail(
        Unsupported("config: \"partial_rotary_factor\": %g is not supported here", partial));
  }
  spec.base = base;
  spec.rotary_dim = static_cast<int32_t>(defaults.head_dim * partial);
  if (config.ok() && (spec.rotary_dim < 2 || spec.rotary_dim % 2 != 0)) {
    config.Fail(Unsupported("config: rotary width %d of a head of %d is not even", spec.rotary_dim,
                            defaults.head_dim));
  }
  if (!config.ok()) return config.status();
  const std::vector<double> inverse = PlainFrequencies(base, spec.rotary_dim);
  double magnitude = 1.0;
  if (kind == "default") {
    reader.RefuseOthers(kind, {"mrope_section", "mrope_interleaved"});
    spec.inv_freq = ToFloat(inverse);
    ReadAxes(dictionary, config, defaults, &spec);
  } else if (kind == "linear") {
    reader.RefuseOthers(kind, {"factor"});
    reader.Require("factor");
    std::vector<double> scaled = inverse;
    for (double& value : scaled) value /= reader.Positive("factor", 1.0);
    spec.inv_freq = ToFloat(scaled);
  } else if (kind == "dynamic") {
    reader.RefuseOthers(kind, {"factor", "original_max_position_embeddings"});
    reader.Require("factor");
    spec.inv_freq = ToFloat(inverse);
    spec.dynamic_factor = reader.Positive("factor", 1.0);
    spec.dynamic_from = defaults.max_position_embeddings;
    if (spec.rotary_dim < 4) reader.Fail("factor", "cannot be used with a rotary width below 4");
  } else if (kind == "llama3") {
    reader.RefuseOthers(kind, {"factor", "low_freq_factor", "high_freq_factor",
                               "original_max_position_embeddings"});
    spec.inv_freq = ToFloat(Llama3(reader, defaults, inverse));
  } else if (kind == "yarn") {
    reader.RefuseOthers(
        kind, {"factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "truncate",
               "mscale", "mscale_all_dim", "attention_factor", "llama_4_scaling_beta",
               "mrope_section", "mrope_interleaved"});
    if (!defaults.query_growth_allowed && reader.Float("llama_4_scaling_beta", 0.0) != 0.0) {
      config.Fail(
          Unsupported("config: rotary scaling: \"llama_4_scaling_beta\" is not supported here"));
    }
    spec.inv_freq = ToFloat(Yarn(reader, defaults, base, spec.rotary_dim, inverse, &magnitude));
    spec.attention_factor = static_cast<float>(magnitude);
    ReadAxes(dictionary, config, defaults, &spec);
  } else if (kind == "longrope") {
    reader.RefuseOthers(kind, {"factor", "original_max_position_embeddings", "short_factor",
                               "long_factor", "attention_factor", "short_mscale", "long_mscale"});
    Longrope(reader, defaults, inverse, &spec);
  } else if (kind == "proportional") {
    reader.RefuseOthers(kind, {"factor"});
    Proportional(reader, base, partial, &spec);
  } else {
    config.Fail(
        Unsupported("config: rotary scaling of type \"%s\" is not supported", kind.c_str()));
  }
  if (!config.ok()) return config.status();
  return spec;
}

Result<RopeSpec> ReadRope(Config& config, const RopeDefaults& defaults) {
  RopeDefaults resolved = defaults;
  const json::Value parameters = config.Raw("rope_parameters");
  const json::Value scaling = config.Raw("rope_scaling");
  // The old key wins when both say something; the loser is dropped whole.
  const auto says_something = [](json::Value v) { return v.has_value() && v.size() > 0; };
  for (const json::Value value : {parameters, scaling}) {
    if (value.has_value() && !value.is_object()) {
      config.Fail(Corrupt("config: \"rope_parameters\" or \"rope_scaling\" is not an object"));
    }
  }
  if (!config.ok()) return config.status();
  json::Value dictionary = says_something(scaling) ? scaling : parameters;
  if (!defaults.layer_type.empty() && dictionary.Find(defaults.layer_type).exists()) {
    dictionary = dictionary.Find(defaults.layer_type);
  }
  resolved.theta = config.Float("rope_theta", defaults.theta);
  resolved.partial_factor = config.Float("partial_rotary_factor", defaults.partial_factor);
  config.Ignore({"original_max_position_embeddings"});
  return RopeFromDictionary(dictionary, config, resolved);
}

}  // namespace cellm
