// cellm embed: texts to vectors.
#include <algorithm>
#include <string>
#include <vector>

#include "cellm/commands.h"
#include "cellm/common.h"
#include "cellm/quality.h"

namespace cellm::tools {
namespace {

// The texts of the arguments, of files, else of stdin.
Result<std::vector<std::string>> ReadTexts(const Arguments& arguments) {
  std::vector<std::string> texts;
  const std::vector<std::string>& files = arguments.All("prompt-file");
  const bool lines = arguments.Switch("lines");
  if (!arguments.positional().empty()) {
    if (!files.empty()) return InvalidArgument("--prompt-file and arguments exclude each other");
    if (lines) return InvalidArgument("--lines is for files and stdin; give each text by itself");
    return arguments.positional();
  }
  for (const std::string& path : files.empty() ? std::vector<std::string>{"-"} : files) {
    CELLM_ASSIGN_OR_RETURN(std::string content, ReadInput(path));
    if (!lines) {
      texts.push_back(std::move(content));
      continue;
    }
    for (const std::string_view line : SplitLines(content)) texts.emplace_back(line);
  }
  if (texts.empty()) return InvalidArgument("embed: the input has no lines");
  return texts;
}

// Nine digits: a float is read back as it was.
std::string Numbers(const float* vector, size_t count, const char* between) {
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) out += between;
    out += StrFormat("%.9g", static_cast<double>(vector[i]));
  }
  return out;
}

std::string JsonNumbers(const float* vector, size_t count) {
  std::string out = "[";
  out += Numbers(vector, count, ", ");
  return out + "]";
}

Status Embed(const Arguments& arguments) {
  cellm_embed_options options = CELLM_EMBED_OPTIONS_INIT;
  options.pooling =
      arguments.Text("pooling", "mean") == "last" ? CELLM_POOLING_LAST : CELLM_POOLING_MEAN;
  if (arguments.Switch("normalize")) options.flags |= CELLM_EMBED_NORMALIZE;
  CELLM_ASSIGN_OR_RETURN(const std::vector<std::string> texts, ReadTexts(arguments));
  CELLM_ASSIGN_OR_RETURN(const LoadedModel loaded, OpenModel(arguments, false));
  std::vector<std::vector<int32_t>> ids(texts.size());
  std::vector<cellm_token_list> lists(texts.size());
  uint64_t tokens = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    CELLM_ASSIGN_OR_RETURN(ids[i],
                           TokenizeText(loaded.model.get(), texts[i], CELLM_TOKENIZE_ADD_SPECIAL));
    if (ids[i].empty()) return InvalidArgument("text %zu is empty", i + 1);
    lists[i] = CELLM_TOKEN_LIST_INIT;
    lists[i].ids = ids[i].data();
    lists[i].count = ids[i].size();
    tokens += ids[i].size();
  }
  CELLM_ASSIGN_OR_RETURN(const EngineHandle engine, OpenEngine(arguments, loaded.model.get()));

  cellm_error error = CELLM_ERROR_INIT;
  cellm_model_info info = CELLM_MODEL_INFO_INIT;
  if (cellm_model_get_info(loaded.model.get(), &info, &error) != CELLM_OK) return ToStatus(error);
  const size_t hidden = static_cast<size_t>(info.hidden);
  std::vector<float> vectors(texts.size() * hidden);
  const CancelOnInterrupt interrupt;
  options.stop_flag = CancelOnInterrupt::flag();
  size_t floats = 0;
  if (cellm_engine_embed(engine.get(), lists.data(), lists.size(), &options, vectors.data(),
                         vectors.size(), &floats, &error) != CELLM_OK) {
    return ToStatus(error);
  }
  std::string json = "[";
  for (size_t i = 0; i < texts.size(); ++i) {
    const float* const vector = vectors.data() + i * hidden;
    if (!arguments.Switch("json")) {
      if (!Print(Numbers(vector, hidden, " ") + "\n")) return IoError("standard output is closed");
      continue;
    }
    if (i > 0) json += ", ";
    json += JsonObject()
                .Add("index", static_cast<uint64_t>(i))
                .Add("tokens", static_cast<uint64_t>(ids[i].size()))
                .AddRaw("embedding", JsonNumbers(vector, hidden))
                .Finish();
  }
  if (arguments.Switch("json")) {
    Print(JsonObject()
              .Add("model", loaded.path)
              .Add("pooling", arguments.Text("pooling", "mean"))
              .Add("normalized", arguments.Switch("normalize"))
              .Add("tokens", tokens)
              .AddRaw("embeddings", json + "]")
              .Finish() +
          "\n");
  }
  Note(arguments.Switch("quiet"),
       StrFormat("%zu embeddings of %zu floats, %llu tokens", texts.size(), hidden,
                 static_cast<unsigned long long>(tokens)));
  return OkStatus();
}

}  // namespace

int RunEmbed(const Arguments& arguments) {
  const Status status = Embed(arguments);
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace cellm::tools
