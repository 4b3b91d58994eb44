// cellm perplexity: how well a model predicts a text.
//
// The ids of the whole text are cut into windows; each is evaluated from an empty state, and the
// negative log-likelihood of all its tokens but the first is averaged over all windows.
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "cellm/commands.h"
#include "cellm/common.h"
#include "cellm/progress.h"

namespace cellm::tools {
namespace {

struct Window {
  const int32_t* ids = nullptr;
  size_t count = 0;
  double sum = 0;  // of -log p
  bool finite = true;
};

int32_t OnLogits(size_t, size_t position, const float* logits, int32_t vocabulary, void* user) {
  Window& window = *static_cast<Window*>(user);
  if (position + 1 >= window.count) return 0;
  float best = logits[0];
  for (int32_t i = 1; i < vocabulary; ++i) best = std::max(best, logits[i]);
  double sum = 0;
  for (int32_t i = 0; i < vocabulary; ++i) {
    sum += std::exp(static_cast<double>(logits[i]) - static_cast<double>(best));
  }
  const int32_t next = window.ids[position + 1];
  const double surprise =
      static_cast<double>(best) + std::log(sum) - static_cast<double>(logits[next]);
  window.finite &= std::isfinite(surprise);
  window.sum += surprise;
  return 0;
}

Status Measure(const Arguments& arguments) {
  if (!arguments.Has("text")) return InvalidArgument("perplexity: give --text FILE");
  const int64_t window_tokens = arguments.Integer("window", 256);
  const int64_t most_windows = arguments.Integer("windows", 40);
  if (window_tokens < 2 || window_tokens > (1 << 24)) {
    return InvalidArgument("--window is %" PRId64 "; it must be 2 or more", window_tokens);
  }
  if (most_windows < 0) {
    return InvalidArgument("--windows is %" PRId64 "; it must be 0 (all) or more", most_windows);
  }
  const std::string path = arguments.Text("text");
  CELLM_ASSIGN_OR_RETURN(const std::string text, ReadInput(path));
  CELLM_ASSIGN_OR_RETURN(const LoadedModel loaded, OpenModel(arguments, false));
  cellm_error error = CELLM_ERROR_INIT;
  size_t count = 0;
  std::vector<int32_t> ids(text.size() + 16);
  if (cellm_model_tokenize(loaded.model.get(), text.data(), text.size(),
                           CELLM_TOKENIZE_ADD_SPECIAL | CELLM_TOKENIZE_PARSE_SPECIAL, ids.data(),
                           ids.size(), &count, &error) != CELLM_OK) {
    return ToStatus(error);
  }
  const size_t size = static_cast<size_t>(window_tokens);
  size_t windows = count / size;
  if (most_windows > 0) windows = std::min(windows, static_cast<size_t>(most_windows));
  if (windows == 0) {
    return OutOfRange("%s: the text has %zu tokens, a window needs %zu", path.c_str(), count, size);
  }

  CELLM_ASSIGN_OR_RETURN(const EngineHandle engine, OpenEngine(arguments, loaded.model.get()));
  Progress progress("perplexity", arguments.Switch("quiet") || arguments.Switch("json"));
  double sum = 0;
  for (size_t w = 0; w < windows; ++w) {
    Window window;
    window.ids = ids.data() + w * size;
    window.count = size;
    cellm_token_list list = CELLM_TOKEN_LIST_INIT;
    list.ids = window.ids;
    list.count = size;
    if (cellm_engine_evaluate(engine.get(), &list, 1, OnLogits, &window, &error) != CELLM_OK) {
      return ToStatus(error);
    }
    if (!window.finite) return Internal("window %zu: the logits are not finite", w);
    sum += window.sum;
    progress.Update(w + 1, windows);
  }
  progress.Clear();
  const size_t predicted = windows * (size - 1);
  const double perplexity = std::exp(sum / static_cast<double>(predicted));
  if (arguments.Switch("json")) {
    Print(JsonObject()
              .Add("perplexity", perplexity)
              .Add("predicted_tokens", static_cast<uint64_t>(predicted))
              .Add("windows", static_cast<uint64_t>(windows))
              .Add("window", static_cast<uint64_t>(size))
              .Finish() +
          "\n");
  } else {
    Print(StrFormat("perplexity %.4f over %zu predicted tokens (%zu windows of %zu)\n", perplexity,
                    predicted, windows, size));
  }
  return OkStatus();
}

}  // namespace

int RunPerplexity(const Arguments& arguments) {
  const Status status = Measure(arguments);
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace cellm::tools
