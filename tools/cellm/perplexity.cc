// cellm perplexity: how well a model predicts a text, alone or beside another model.
#include <cinttypes>
#include <string>
#include <vector>

#include "cellm/commands.h"
#include "cellm/common.h"
#include "cellm/progress.h"
#include "cellm/quality.h"

namespace cellm::tools {
namespace {

void PrintJson(const TextQuality& quality, size_t window) {
  JsonObject object;
  object.Add("perplexity", quality.perplexity)
      .Add("predicted_tokens", quality.predicted)
      .Add("windows", quality.windows)
      .Add("window", static_cast<uint64_t>(window));
  if (quality.compared) {
    object.Add("reference_perplexity", quality.reference_perplexity)
        .Add("kl_divergence", quality.divergence)
        .Add("same_top", quality.same_top);
  }
  Print(object.Finish() + "\n");
}

void PrintText(const TextQuality& quality, size_t window) {
  Print(StrFormat("perplexity %.4f over %" PRIu64 " predicted tokens (%" PRIu64
                  " windows of %zu)\n",
                  quality.perplexity, quality.predicted, quality.windows, window));
  if (!quality.compared) return;
  Print(StrFormat("reference  %.4f; KL divergence %.5f nats, same top token at %.2f %%\n",
                  quality.reference_perplexity, quality.divergence, 100 * quality.same_top));
}

// --against-kv in the place of --kv; the flag's value was checked.
void UseReferenceKv(cellm_engine_options* options, const Arguments& arguments) {
  if (!arguments.Has("against-kv")) return;
  const Result<int32_t> kv = ReadKv(arguments.Text("against-kv"));
  if (kv.ok()) options->kv = *kv;
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
  CELLM_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, TokenizeText(loaded.model.get(), text));
  const size_t window = static_cast<size_t>(window_tokens);
  if (ids.size() < window) {
    return OutOfRange("%s: the text has %zu tokens, a window needs %zu", path.c_str(), ids.size(),
                      window);
  }
  LoadedModel other;
  EngineHandle reference;
  if (arguments.Has("against")) {
    CELLM_ASSIGN_OR_RETURN(other, OpenModelAt(arguments, arguments.Text("against"), false));
    CELLM_ASSIGN_OR_RETURN(const std::vector<int32_t> other_ids,
                           TokenizeText(other.model.get(), text));
    if (other_ids != ids) {
      return Unsupported("the two models cut the text into different tokens");
    }
  }
  if (arguments.Has("against") || arguments.Has("against-kv")) {
    cellm_model* const model = other.model != nullptr ? other.model.get() : loaded.model.get();
    CELLM_ASSIGN_OR_RETURN(reference, OpenEngine(arguments, model, &UseReferenceKv));
  }
  CELLM_ASSIGN_OR_RETURN(const EngineHandle engine, OpenEngine(arguments, loaded.model.get()));
  Progress progress("perplexity", arguments.Switch("quiet") || arguments.Switch("json"));
  const Result<TextQuality> quality =
      MeasureText(engine.get(), reference.get(), ids, window, static_cast<size_t>(most_windows),
                  [&progress](uint64_t done, uint64_t all) { progress.Update(done, all); });
  progress.Clear();
  if (!quality.ok()) return quality.status();
  if (arguments.Switch("json")) {
    PrintJson(*quality, window);
  } else {
    PrintText(*quality, window);
  }
  return OkStatus();
}

}  // namespace

int RunPerplexity(const Arguments& arguments) {
  const Status status = Measure(arguments);
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace cellm::tools
