// cellm perplexity: how well a model predicts a text, alone or beside another model.
#include <cinttypes>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "cellm/commands.h"
#include "cellm/common.h"
#include "cellm/convert_ledger.h"
#include "cellm/progress.h"
#include "cellm/quality.h"
#include "tensor/kv_type.h"

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

// What --kv is compared with: --against-kv, for --store else f16.
std::string ReferenceKv(const Arguments& arguments) {
  return arguments.Text("against-kv", arguments.Switch("store") ? "f16" : "");
}

// The same in the place of --kv and --kv-demote; the flag's value was checked.
void UseReferenceKv(cellm_engine_options* options, const Arguments& arguments) {
  const std::string name = ReferenceKv(arguments);
  if (name.empty()) return;
  const Result<int32_t> kv = ReadKv(name);
  if (!kv.ok()) return;
  options->kv = *kv;
  options->kv_demote = 0;
  options->kv_demote_after = 0;
}

// What --store needs, before anything is measured.
Status CheckStore(const Arguments& arguments, const std::string& path) {
  if (!arguments.Has("kv")) return InvalidArgument("--store needs --kv FORMAT");
  if (arguments.Has("kv-demote")) {
    return InvalidArgument("--store and --kv-demote exclude each other: it is about one format");
  }
  if (arguments.Has("against")) {
    return InvalidArgument("--store and --against exclude each other: it is about one model");
  }
  return CheckLedger(path);
}

// The entry of the ledger (docs/format.md).
Status Store(const Arguments& arguments, const std::string& path, const std::string& text,
             const TextQuality& quality, size_t window) {
  CELLM_ASSIGN_OR_RETURN(const KvTypes kv, ParseKvTypes(arguments.Text("kv")));
  CELLM_ASSIGN_OR_RETURN(const KvTypes against, ParseKvTypes(ReferenceKv(arguments)));
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  const std::string entry = JsonObject()
                                .Add("against", KvTypesName(against))
                                .Add("text_xxh3", StrFormat("%016" PRIx64, HashXxh3(bytes)))
                                .Add("window", static_cast<uint64_t>(window))
                                .Add("predicted_tokens", quality.predicted)
                                .Add("perplexity", quality.perplexity)
                                .Add("reference_perplexity", quality.reference_perplexity)
                                .Add("kl_divergence", quality.divergence)
                                .Add("same_top", quality.same_top)
                                .Finish();
  CELLM_RETURN_IF_ERROR(StoreKvMeasurement(path, KvTypesName(kv), entry));
  Note(arguments.Switch("quiet"), StrFormat("%s: what K/V format %s costs is in its ledger now",
                                            path.c_str(), KvTypesName(kv).c_str()));
  return OkStatus();
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
  if (arguments.Switch("store")) CELLM_RETURN_IF_ERROR(CheckStore(arguments, loaded.path));
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
  if (arguments.Has("against") || !ReferenceKv(arguments).empty()) {
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
  if (arguments.Switch("store")) {
    return Store(arguments, loaded.path, text, *quality, window);
  }
  return OkStatus();
}

}  // namespace

int RunPerplexity(const Arguments& arguments) {
  const Status status = Measure(arguments);
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace cellm::tools
