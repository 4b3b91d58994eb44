#include "format/gguf_metadata.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/limits.h"
#include "format/gguf_keys.h"
#include "format/gguf_tokenizer.h"
#include "format/json_object.h"

namespace cellm::format {
namespace {

Status WrongArray(const GgufFile& file, std::string_view key, const char* what) {
  return Corrupt("%.*s: key \"%.*s\" %s", static_cast<int>(file.name.size()), file.name.data(),
                 static_cast<int>(key.size()), key.data(), what);
}

Status ReadArrays(const GgufFile& file, GgufTokenizer* out) {
  constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
  constexpr std::string_view kScores = "tokenizer.ggml.scores";
  constexpr std::string_view kTypes = "tokenizer.ggml.token_type";
  constexpr std::string_view kMerges = "tokenizer.ggml.merges";
  const GgufValue* tokens = file.Find(kTokens);
  if (tokens == nullptr || !tokens->GetStrings(&out->tokens) || out->tokens.empty()) {
    return WrongArray(file, kTokens, "is missing or no array of strings");
  }
  if (out->tokens.size() > static_cast<size_t>(limits::kMaxVocabulary)) {
    return WrongArray(file, kTokens, "has more tokens than any vocabulary");
  }
  if (const GgufValue* scores = file.Find(kScores); scores != nullptr) {
    std::vector<double> values;
    if (!scores->GetFloats(&values) || values.size() != out->tokens.size()) {
      return WrongArray(file, kScores, "is no array of a number for each token");
    }
    for (const double value : values) {
      if (std::isnan(value)) return WrongArray(file, kScores, "has a score that is not a number");
      out->scores.push_back(static_cast<float>(value));
    }
  }
  if (const GgufValue* types = file.Find(kTypes); types != nullptr) {
    std::vector<int64_t> values;
    if (!types->GetInts(&values) || values.size() != out->tokens.size()) {
      return WrongArray(file, kTypes, "is no array of a number for each token");
    }
    for (const int64_t value : values) {
      out->types.push_back(value < 0 || value > INT32_MAX ? 0 : static_cast<int32_t>(value));
    }
  }
  if (const GgufValue* merges = file.Find(kMerges); merges != nullptr) {
    if (!merges->GetStrings(&out->merges)) {
      return WrongArray(file, kMerges, "is no array of strings");
    }
  }
  return OkStatus();
}

std::optional<bool> OptionalBool(GgufKeys& keys, std::string_view key) {
  if (!keys.Has(key)) return std::nullopt;
  return keys.Bool(key, false);
}

Status ReadIdsAndFlags(const GgufFile& file, GgufTokenizer* out) {
  GgufKeys keys(file, "tokenizer.ggml");
  struct Id {
    std::string_view key;
    int32_t* id;
  };
  const Id ids[] = {
      {"bos_token_id", &out->bos_id},         {"eos_token_id", &out->eos_id},
      {"eot_token_id", &out->eot_id},         {"eom_token_id", &out->eom_id},
      {"unknown_token_id", &out->unknown_id}, {"seperator_token_id", &out->separator_id},
      {"padding_token_id", &out->padding_id}, {"mask_token_id", &out->mask_id}};
  for (const Id& id : ids) {
    // Some converters write the number of "none", 2^32 - 1.
    const int64_t value = keys.Int(id.key, -1, -1, UINT32_MAX);
    if (value == UINT32_MAX || value == -1) continue;
    if (value >= static_cast<int64_t>(out->tokens.size())) {
      keys.Refuse(StatusCode::kCorrupt, id.key,
                  StrFormat("is beyond the %zu tokens", out->tokens.size()));
      break;
    }
    *id.id = static_cast<int32_t>(value);
  }
  out->model = keys.Text("model", "");
  out->pre = keys.Text("pre", "");
  out->add_bos = OptionalBool(keys, "add_bos_token");
  out->add_eos = OptionalBool(keys, "add_eos_token");
  out->add_space_prefix = OptionalBool(keys, "add_space_prefix");
  out->remove_extra_whitespaces = OptionalBool(keys, "remove_extra_whitespaces");
  if (const GgufValue* map = file.Find("tokenizer.ggml.precompiled_charsmap"); map != nullptr) {
    out->precompiled_charsmap = {reinterpret_cast<const char*>(map->bytes.data()),
                                 map->bytes.size()};
  }
  if (const GgufValue* text = file.Find("tokenizer.huggingface.json"); text != nullptr) {
    if (!text->GetString(&out->huggingface_json)) {
      return WrongArray(file, "tokenizer.huggingface.json", "is no string");
    }
  }
  return keys.status();
}

constexpr std::string_view kModelKey = "tokenizer.ggml.model";

// Everything that is said of the tokenizer. A tokenizer.json and templates have texts of their own.
void KeepPairs(const GgufFile& file, GgufTokenizer* out) {
  for (const GgufValue& value : file.values) {
    if (!value.key.starts_with("tokenizer.ggml.")) continue;
    out->pairs.emplace_back(reinterpret_cast<const char*>(value.pair.data()), value.pair.size());
  }
}

Result<std::unique_ptr<GgufTokenizer>> TokenizerOf(const GgufFile& file) {
  auto tokenizer = std::make_unique<GgufTokenizer>();
  CELLM_RETURN_IF_ERROR(ReadArrays(file, tokenizer.get()));
  CELLM_RETURN_IF_ERROR(ReadIdsAndFlags(file, tokenizer.get()));
  KeepPairs(file, tokenizer.get());
  return tokenizer;
}

// Texts that end an answer in the templates of today. Files name one or two ids; which of the
// others is an end as well is known by these.
constexpr std::string_view kEndTexts[] = {
    "<|eot_id|>", "<|im_end|>",    "<|end|>",       "<end_of_turn>",
    "<turn|>",    "<|endoftext|>", "<eos>",         "<|end_of_text|>",
    "<|eom_id|>", "<|return|>",    "[|endofturn|]", "</s>",
};

std::vector<int64_t> EndIds(const GgufTokenizer& tokenizer) {
  std::vector<int64_t> ids;
  const auto add = [&ids](int64_t id) {
    if (id >= 0 && std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  };
  add(tokenizer.eos_id);
  add(tokenizer.eot_id);
  add(tokenizer.eom_id);
  if (tokenizer.types.empty()) return ids;
  for (size_t i = 0; i < tokenizer.tokens.size(); ++i) {
    const GgufTokenType type = static_cast<GgufTokenType>(tokenizer.types[i]);
    if (type != GgufTokenType::kControl && type != GgufTokenType::kUserDefined) continue;
    if (std::find(std::begin(kEndTexts), std::end(kEndTexts), tokenizer.tokens[i]) !=
        std::end(kEndTexts)) {
      add(static_cast<int64_t>(i));
    }
  }
  return ids;
}

// What generation_config.json would say.
Result<std::string> GenerationConfig(const GgufFile& file, const GgufTokenizer& tokenizer) {
  JsonObject json;
  if (tokenizer.bos_id >= 0) json.Int("bos_token_id", tokenizer.bos_id);
  const std::vector<int64_t> ends = EndIds(tokenizer);
  if (!ends.empty()) json.Raw("eos_token_id", JsonInts(ends));
  GgufKeys keys(file, "general.sampling");
  if (keys.Has("temp")) {
    const double temperature = keys.Float("temp", 0.0);
    json.Bool("do_sample", temperature > 0);
    json.Float("temperature", ShortestDouble(static_cast<float>(temperature)));
  }
  if (keys.Has("top_k")) json.Int("top_k", keys.Int("top_k", 0, 0, INT32_MAX));
  for (const std::string_view key : {"top_p", "min_p"}) {
    if (keys.Has(key)) json.Float(key, ShortestDouble(static_cast<float>(keys.Float(key, 0.0))));
  }
  if (keys.Has("penalty_repeat")) {
    json.Float("repetition_penalty",
               ShortestDouble(static_cast<float>(keys.Float("penalty_repeat", 1.0))));
  }
  if (!keys.status().ok()) return keys.status();
  return json.Take();
}

}  // namespace

Status AddGgufTexts(const GgufFile& file, int32_t vocabulary, ModelFile* model) {
  if (const GgufValue* value = file.Find("tokenizer.chat_template"); value != nullptr) {
    if (!value->GetString(&model->chat_template)) {
      return WrongArray(file, "tokenizer.chat_template", "is no string");
    }
  }
  if (file.Find(kModelKey) == nullptr) {
    model->notes.push_back("the file has no tokenizer");
    return OkStatus();
  }
  CELLM_ASSIGN_OR_RETURN(std::unique_ptr<GgufTokenizer> tokenizer, TokenizerOf(file));
  if (tokenizer->tokens.size() > static_cast<size_t>(vocabulary)) {
    return Corrupt("%.*s: %zu tokens, but the embedding has %d rows",
                   static_cast<int>(file.name.size()), file.name.data(), tokenizer->tokens.size(),
                   vocabulary);
  }
  CELLM_ASSIGN_OR_RETURN(std::string generation, GenerationConfig(file, *tokenizer));
  model->owned_texts.push_back(std::make_unique<std::string>(std::move(generation)));
  model->generation_config_json = *model->owned_texts.back();
  model->tokenizer_json = tokenizer->huggingface_json;
  model->gguf_tokenizer = std::move(tokenizer);
  return OkStatus();
}

std::string WriteGgufTokenizer(const GgufTokenizer& tokenizer) {
  std::string out = "GGUF";
  const auto append = [&out](auto value) {
    uint8_t bytes[sizeof(value)];
    StoreLe(bytes, value);
    out.append(reinterpret_cast<const char*>(bytes), sizeof(value));
  };
  append(uint32_t{3});
  append(uint64_t{0});
  append(uint64_t{tokenizer.pairs.size()});
  for (const std::string_view pair : tokenizer.pairs) out.append(pair);
  return out;
}

Result<std::unique_ptr<GgufTokenizer>> ReadGgufTokenizer(std::string_view bytes,
                                                         std::string_view name) {
  CELLM_ASSIGN_OR_RETURN(
      const GgufFile file,
      ReadGguf({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, name));
  if (file.Find(kModelKey) == nullptr || !file.tensors.empty()) {
    return Corrupt("%.*s: expected a tokenizer and no tensors", static_cast<int>(name.size()),
                   name.data());
  }
  return TokenizerOf(file);
}

}  // namespace cellm::format
