// cellm tokenize: text to ids and back, for people and for checks from outside.
#include <cstdio>
#include <string>
#include <vector>

#include "cellm/commands.h"
#include "cellm/common.h"
#include "json/json.h"

namespace cellm::tools {
namespace {

struct Tokenizer {
  const cellm_model* model = nullptr;
  uint32_t encode_flags = 0;
  uint32_t decode_flags = 0;

  Result<std::vector<int32_t>> Encode(std::string_view text) const {
    // A token covers at least one byte but for the few that are added around the text.
    std::vector<int32_t> ids(text.size() / 2 + 16);
    cellm_error error = CELLM_ERROR_INIT;
    size_t count = 0;
    cellm_status status = cellm_model_tokenize(model, text.data(), text.size(), encode_flags,
                                               ids.data(), ids.size(), &count, &error);
    if (status == CELLM_OUT_OF_RANGE && count > ids.size()) {
      ids.resize(count);
      status = cellm_model_tokenize(model, text.data(), text.size(), encode_flags, ids.data(),
                                    ids.size(), &count, &error);
    }
    if (status != CELLM_OK) return ToStatus(error);
    ids.resize(count);
    return ids;
  }

  Result<std::string> Decode(const std::vector<int32_t>& ids) const {
    std::string text(ids.size() * 8 + 64, '\0');
    cellm_error error = CELLM_ERROR_INIT;
    size_t bytes = 0;
    cellm_status status = cellm_model_detokenize(model, ids.data(), ids.size(), decode_flags,
                                                 text.data(), text.size(), &bytes, &error);
    if (status == CELLM_OUT_OF_RANGE && bytes > text.size()) {
      text.resize(bytes);
      status = cellm_model_detokenize(model, ids.data(), ids.size(), decode_flags, text.data(),
                                      text.size(), &bytes, &error);
    }
    if (status != CELLM_OK) return ToStatus(error);
    text.resize(bytes);
    return text;
  }
};

Result<std::string> OneLine(const Tokenizer& tokenizer, json::Value object) {
  std::string_view text;
  const json::Value ids_value = object.Find("ids");
  if (object.Find("text").GetString(&text) && !ids_value.exists()) {
    CELLM_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer.Encode(text));
    return JsonObject().AddRaw("ids", JsonIds(ids)).Finish();
  }
  if (!ids_value.is_array()) {
    return Corrupt("a line must have \"text\" (a string) or \"ids\" (an array)");
  }
  std::vector<int32_t> ids;
  for (json::Value v = ids_value.First(); v.exists(); v = ids_value.Next(v)) {
    int64_t id = 0;
    if (!v.is_number() || !v.GetInt64(&id) || id < INT32_MIN || id > INT32_MAX) {
      return Corrupt("\"ids\" holds something that is not a token id");
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  CELLM_ASSIGN_OR_RETURN(const std::string decoded, tokenizer.Decode(ids));
  return JsonObject().Add("text", decoded).Finish();
}

Status Lines(const Tokenizer& tokenizer, const std::string& path) {
  CELLM_ASSIGN_OR_RETURN(const std::string content, ReadInput(path));
  size_t number = 0;
  for (const std::string_view line : SplitLines(content)) {
    ++number;
    const std::string place = path + ": line " + std::to_string(number);
    Result<std::unique_ptr<json::Document>> document = json::Document::Parse(line, place);
    if (!document.ok()) return document.status();
    Result<std::string> result = OneLine(tokenizer, (*document)->root());
    if (!result.ok()) return Status(result.status()).WithContext(place);
    if (!Print(*result + "\n")) return IoError("standard output cannot be written");
  }
  return OkStatus();
}

Result<std::string> InputOf(const Arguments& arguments) {
  if (arguments.Has("prompt-file")) {
    if (!arguments.positional().empty()) {
      return InvalidArgument("--prompt-file and an argument exclude each other");
    }
    return ReadInput(arguments.Text("prompt-file"));
  }
  if (arguments.positional().size() > 1) {
    return InvalidArgument("unexpected argument '%s' (quote a text with spaces)",
                           arguments.positional()[1].c_str());
  }
  return arguments.positional().empty() ? ReadInput("-") : arguments.positional()[0];
}

Status Tokenize(const Arguments& arguments) {
  if (arguments.Has("jsonl") && (arguments.Has("prompt-file") || !arguments.positional().empty())) {
    return InvalidArgument("--jsonl excludes --prompt-file and an argument");
  }
  cellm_model_options options = CELLM_MODEL_OPTIONS_INIT;
  options.flags = CELLM_MODEL_TOKENIZER_ONLY;
  std::string path = arguments.Text("tokenizer");
  if (path.empty()) {
    CELLM_ASSIGN_OR_RETURN(path, FindModelPath(arguments.Text("model")));
  }
  cellm_error error = CELLM_ERROR_INIT;
  cellm_model* pointer = nullptr;
  if (cellm_model_open(path.data(), path.size(), &options, &pointer, &error) != CELLM_OK) {
    return ToStatus(error);
  }
  const ModelHandle model(pointer);
  Tokenizer tokenizer;
  tokenizer.model = model.get();
  if (arguments.Switch("add-special")) tokenizer.encode_flags |= CELLM_TOKENIZE_ADD_SPECIAL;
  if (arguments.Switch("parse-special")) tokenizer.encode_flags |= CELLM_TOKENIZE_PARSE_SPECIAL;
  if (arguments.Switch("skip-special")) tokenizer.decode_flags |= CELLM_DETOKENIZE_SKIP_SPECIAL;

  if (arguments.Has("jsonl")) return Lines(tokenizer, arguments.Text("jsonl"));
  CELLM_ASSIGN_OR_RETURN(const std::string input, InputOf(arguments));
  if (arguments.Switch("decode")) {
    CELLM_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ReadTokenIds(input));
    CELLM_ASSIGN_OR_RETURN(const std::string text, tokenizer.Decode(ids));
    Print(arguments.Switch("json") ? JsonObject().Add("text", text).Finish() + "\n" : text + "\n");
    return OkStatus();
  }
  CELLM_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer.Encode(input));
  if (arguments.Switch("json")) {
    Print(JsonObject().AddRaw("ids", JsonIds(ids)).Finish() + "\n");
    return OkStatus();
  }
  std::string line;
  for (const int32_t id : ids) {
    if (!line.empty()) line += ',';
    line += std::to_string(id);
  }
  Print(line + "\n");
  return OkStatus();
}

}  // namespace

int RunTokenize(const Arguments& arguments) {
  const Status status = Tokenize(arguments);
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace cellm::tools
