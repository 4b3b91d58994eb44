// cellm bench: how fast a model runs here, beside what the machine can do.
#include <sys/stat.h>

#include <algorithm>
#include <cinttypes>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cellm/bench/bench_flags.h"
#include "cellm/bench/bench_measure.h"
#include "cellm/bench/bench_report.h"
#include "cellm/bench/bench_serve.h"
#include "cellm/bench/synthetic_model.h"
#include "cellm/commands.h"
#include "cellm/common.h"
#include "platform/cores.h"
#include "platform/file.h"

namespace cellm::tools {
namespace {

std::vector<std::string> SplitWords(const std::string& text) {
  std::vector<std::string> words;
  size_t at = 0;
  while ((at = text.find_first_not_of(", ", at)) != std::string::npos) {
    const size_t end = std::min(text.find_first_of(", ", at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

// "1,2,4" of numbers from `least` on. InvalidArgument.
Result<std::vector<int64_t>> ReadCounts(const Arguments& arguments, const char* name,
                                        std::vector<int64_t> otherwise, int64_t least) {
  if (!arguments.Has(name)) return otherwise;
  std::vector<int64_t> counts;
  for (const std::string& word : SplitWords(arguments.Text(name))) {
    int64_t value = 0;
    if (!ParseInteger(word, &value) || value < least || value > (1 << 20)) {
      return InvalidArgument("--%s: '%s' is not a number from %" PRId64 " on", name, word.c_str(),
                             least);
    }
    counts.push_back(value);
  }
  if (counts.empty()) return InvalidArgument("--%s: no numbers", name);
  return counts;
}

struct NamedTest {
  const char* name;
  bool* on;
};

// Switches on what the flag lists, and nothing else. InvalidArgument.
Status ChooseTests(const Arguments& arguments, const char* flag, std::span<const NamedTest> tests) {
  std::string names;
  for (const NamedTest& test : tests) {
    *test.on = false;
    names += names.empty() ? "" : ", ";
    names += test.name;
  }
  for (const std::string& word : SplitWords(arguments.Text(flag))) {
    const auto found = std::find_if(tests.begin(), tests.end(),
                                    [&word](const NamedTest& test) { return word == test.name; });
    if (found == tests.end()) {
      return InvalidArgument("--%s: '%s' is not one of %s", flag, word.c_str(), names.c_str());
    }
    *found->on = true;
  }
  return OkStatus();
}

Result<BenchPlan> ReadPlan(const Arguments& arguments) {
  BenchPlan plan;
  plan.quiet = arguments.Switch("quiet");
  const struct {
    const char* name;
    int64_t* value;
    int64_t least;
  } numbers[] = {{"prefill", &plan.prefill_tokens, 1}, {"decode", &plan.decode_tokens, 1},
                 {"long", &plan.long_tokens, 1},       {"prompt", &plan.prompt_tokens, 1},
                 {"reply", &plan.reply_tokens, 2},     {"batch-depth", &plan.batch_depth, 1},
                 {"chunk", &plan.chunk_tokens, 1},     {"repeats", &plan.repeats, 1},
                 {"warmup", &plan.warmups, 0}};
  for (const auto& number : numbers) {
    *number.value = arguments.Integer(number.name, *number.value);
    if (*number.value < number.least || *number.value > (1 << 20)) {
      return InvalidArgument("--%s is %" PRId64 "; it must be %" PRId64 " or more", number.name,
                             *number.value, number.least);
    }
  }
  if (arguments.Has("text")) {
    CELLM_ASSIGN_OR_RETURN(plan.text, ReadInput(arguments.Text("text")));
    if (plan.text.empty()) return InvalidArgument("--text: the file is empty");
  }
  plan.seconds = arguments.Number("seconds", plan.seconds);
  if (!(plan.seconds > 0)) return InvalidArgument("--seconds must be above 0");
  CELLM_ASSIGN_OR_RETURN(plan.depths, ReadCounts(arguments, "depths", plan.depths, 0));
  CELLM_ASSIGN_OR_RETURN(plan.batches, ReadCounts(arguments, "batches", plan.batches, 1));
  if (arguments.Has("tests")) {
    const NamedTest tests[] = {{"prefill", &plan.prefill}, {"decode", &plan.decode},
                               {"batch", &plan.batch},     {"long", &plan.long_context},
                               {"load", &plan.load},       {"first-token", &plan.first_token},
                               {"encode", &plan.encode},   {"memory", &plan.memory}};
    CELLM_RETURN_IF_ERROR(ChooseTests(arguments, "tests", tests));
  }
  return plan;
}

std::string CacheFolder(const Arguments& arguments) {
  if (arguments.Has("cache-dir")) return arguments.Text("cache-dir");
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return platform::JoinPath(cache, "cellm");
  const char* const home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? platform::JoinPath(home, ".cache/cellm")
                                         : ".cellm-cache";
}

Result<ServePlan> ReadServePlan(const Arguments& arguments, const BenchPlan& bench) {
  ServePlan plan;
  plan.bench = bench;
  const struct {
    const char* name;
    int64_t* value;
    int64_t least;
  } numbers[] = {{"background", &plan.background, 1},
                 {"system-tokens", &plan.system_tokens, 1},
                 {"context-tokens", &plan.context_tokens, 1},
                 {"turn-tokens", &plan.turn_tokens, 64}};
  for (const auto& number : numbers) {
    *number.value = arguments.Integer(number.name, *number.value);
    if (*number.value < number.least || *number.value > (1 << 20)) {
      return InvalidArgument("--%s is %" PRId64 "; it must be %" PRId64 " or more", number.name,
                             *number.value, number.least);
    }
  }
  CELLM_ASSIGN_OR_RETURN(plan.sessions, ReadCounts(arguments, "sessions", plan.sessions, 1));
  if (arguments.Text("class") == "background") plan.throughput_class = CELLM_CLASS_BACKGROUND;
  if (!arguments.Has("serve-tests")) return plan;
  const NamedTest tests[] = {{"latency", &plan.latency},
                             {"throughput", &plan.throughput},
                             {"first-token", &plan.first_token},
                             {"resume", &plan.resume},
                             {"turns", &plan.turns},
                             {"memory", &plan.memory}};
  CELLM_RETURN_IF_ERROR(ChooseTests(arguments, "serve-tests", tests));
  return plan;
}

// The folder and those above it. Io.
Status MakeFolders(const std::string& path) {
  for (size_t at = 1; at <= path.size(); ++at) {
    if (at < path.size() && path[at] != '/') continue;
    const std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), 0777) != 0 && !platform::SystemFiles().IsDirectory(part)) {
      return IoError("%s: the folder cannot be made; give another with --cache-dir", part.c_str());
    }
  }
  return OkStatus();
}

// The file of a shape in a format, written when it is not there yet.
Result<std::string> SyntheticFile(const Arguments& arguments, const SyntheticShape& shape,
                                  const std::string& format, bool gguf) {
  const std::string folder = CacheFolder(arguments);
  std::string word = format;
  std::replace(word.begin(), word.end(), ':', '-');
  std::replace(word.begin(), word.end(), '/', '+');
  for (const char* flag : {"layers", "vocabulary"}) {
    if (arguments.Has(flag)) word += StrFormat("-%s-%" PRId64, flag, arguments.Integer(flag));
  }
  const std::string path =
      platform::JoinPath(folder, StrFormat("%s-%s.%s", std::string(shape.name).c_str(),
                                           word.c_str(), gguf ? "gguf" : "cellm"));
  Result<uint64_t> bytes =
      gguf ? SyntheticGgufBytes(shape, format) : SyntheticCellmBytes(shape, format);
  if (!bytes.ok()) return bytes.status();
  if (platform::SystemFiles().IsFile(path)) return path;
  CELLM_RETURN_IF_ERROR(MakeFolders(folder));
  Note(arguments.Switch("quiet"),
       StrFormat("writing %.0f MB of random weights to %s (kept for the next time)",
                 static_cast<double>(*bytes) / 1e6, path.c_str()));
  CELLM_RETURN_IF_ERROR(gguf ? WriteSyntheticGguf(shape, format, path)
                             : WriteSyntheticCellm(shape, format, path));
  return path;
}

// One model file in one format.
struct Subject {
  std::string name, format, path;
};

Result<std::vector<Subject>> FindSubjects(const Arguments& arguments) {
  std::vector<Subject> subjects;
  if (!arguments.Has("synthetic")) {
    for (const char* flag : {"format", "gguf", "cache-dir", "write-only", "layers", "vocabulary"}) {
      const bool used = flag == std::string_view("cache-dir") && arguments.Switch("serve");
      if (arguments.Has(flag) && !used) return InvalidArgument("--%s needs --synthetic", flag);
    }
    CELLM_ASSIGN_OR_RETURN(const std::string path, FindModelPath(arguments.Text("model")));
    subjects.push_back({platform::BaseName(path), "file", path});
    return subjects;
  }
  if (arguments.Has("model")) {
    return InvalidArgument("--model and --synthetic exclude each other");
  }
  if (arguments.Has("gguf") && arguments.Has("format")) {
    return InvalidArgument("--gguf and --format exclude each other");
  }
  const bool gguf = arguments.Has("gguf");
  const std::vector<std::string> formats =
      SplitWords(arguments.Text(gguf ? "gguf" : "format", "i8"));
  if (formats.size() > 1 && !arguments.Switch("matrix")) {
    return InvalidArgument("several formats need --matrix");
  }
  for (const std::string& name : SplitWords(arguments.Text("synthetic"))) {
    CELLM_ASSIGN_OR_RETURN(const SyntheticShape* known, FindSyntheticShape(name));
    SyntheticShape cut = *known;
    const SyntheticShape* const shape = &cut;
    const int64_t layers = arguments.Integer("layers", known->layers);
    const int64_t vocabulary = arguments.Integer("vocabulary", known->vocab);
    if (layers < 1 || layers > 1000 || vocabulary < 1024 || vocabulary > (1 << 20) ||
        vocabulary % 16 != 0) {
      return InvalidArgument(
          "--layers must be from 1 to 1000, --vocabulary a multiple of 16 from 1024 to 1048576");
    }
    cut.layers = static_cast<int32_t>(layers);
    cut.vocab = static_cast<int32_t>(vocabulary);
    for (const std::string& format : formats) {
      CELLM_ASSIGN_OR_RETURN(const std::string path,
                             SyntheticFile(arguments, *shape, format, gguf));
      std::string shown = gguf ? "gguf " : "";
      shown += format;
      subjects.push_back({std::string(shape->name), std::move(shown), path});
    }
  }
  if (subjects.empty()) return InvalidArgument("--synthetic and --format: nothing is named");
  return subjects;
}

// What the engine's options take from here and not from flags.
struct Setting {
  int threads = 0;  // 0: as the flags say
  BenchPlan plan;
  std::optional<ServePlan> serve;  // of --serve

  int64_t ContextNeeded() const { return serve ? serve->ContextNeeded() : plan.ContextNeeded(); }
  int64_t SequencesNeeded() const {
    return serve ? serve->SequencesNeeded() : plan.SequencesNeeded();
  }
};

class FileOpener final : public Opener {
 public:
  FileOpener(const Arguments& arguments, const Subject& subject, const Setting& setting)
      : arguments_(arguments), subject_(subject), setting_(setting) {}

  Status Open(ModelHandle* model, EngineHandle* engine) override {
    CELLM_ASSIGN_OR_RETURN(LoadedModel loaded, OpenModelAt(arguments_, subject_.path, false));
    *model = std::move(loaded.model);
    cellm_model_info info = CELLM_MODEL_INFO_INIT;
    cellm_error error = CELLM_ERROR_INIT;
    if (cellm_model_get_info(model->get(), &info, &error) != CELLM_OK) return ToStatus(error);
    const int64_t needed = setting_.ContextNeeded();
    if (info.max_context > 0 && needed > info.max_context) {
      return InvalidArgument("%s was made for %d tokens, the measurements need %" PRId64
                             "; give smaller %s",
                             subject_.path.c_str(), info.max_context, needed,
                             setting_.serve ? "--context-tokens, --system-tokens, --turn-tokens"
                                            : "--depths, --long, --prompt");
    }
    const int64_t sequences = setting_.SequencesNeeded();
    Result<EngineHandle> opened =
        OpenEngineWith(arguments_, model->get(), [&](cellm_engine_options* options) {
          if (setting_.threads > 0) options->threads = setting_.threads;
          if (options->context_tokens == 0) options->context_tokens = static_cast<uint32_t>(needed);
          options->max_sessions = static_cast<uint32_t>(sequences) + 1;
          options->logit_rows = static_cast<uint32_t>(sequences) + 2;  // all of them in every step
          if (setting_.serve && options->swap_folder.bytes == 0) {
            options->swap_folder = ToText(setting_.serve->folder);
          }
        });
    if (!opened.ok()) return opened.status();
    *engine = std::move(opened).value();
    return OkStatus();
  }

 private:
  const Arguments& arguments_;
  const Subject& subject_;
  const Setting& setting_;
};

Result<BenchRun> MeasureOne(const Arguments& arguments, const Subject& subject,
                            const Setting& setting, const Ceilings& ceilings) {
  BenchRun run;
  run.model = subject.name;
  run.format = subject.format;
  run.kv = arguments.Text("kv", "f16");
  FileOpener opener(arguments, subject, setting);
  if (setting.plan.load && !setting.serve)
    CELLM_RETURN_IF_ERROR(MeasureLoad(setting.plan, &opener, &run));
  ModelHandle model;
  EngineHandle engine;
  CELLM_RETURN_IF_ERROR(opener.Open(&model, &engine));
  cellm_error error = CELLM_ERROR_INIT;
  cellm_engine_info info = CELLM_ENGINE_INFO_INIT;
  cellm_model_info about = CELLM_MODEL_INFO_INIT;
  if (cellm_engine_get_info(engine.get(), &info, &error) != CELLM_OK ||
      cellm_model_get_info(model.get(), &about, &error) != CELLM_OK) {
    return ToStatus(error);
  }
  run.threads = info.threads;
  run.kernels = info.kernels;
  run.weights = info.weights == CELLM_WEIGHTS_LOAD ? "loaded" : "mapped";
  run.weight_bytes = about.weight_bytes;
  run.parameters = about.parameters;
  struct stat file = {};
  if (::stat(subject.path.c_str(), &file) == 0) {
    run.file_bytes = static_cast<uint64_t>(file.st_size);
  }
  if (setting.serve) {
    engine.reset();
    model.reset();
    CELLM_RETURN_IF_ERROR(MeasureServe(*setting.serve, &opener, &run));
  } else {
    CELLM_RETURN_IF_ERROR(MeasureEngine(setting.plan, ceilings, model.get(), engine.get(), &run));
  }
  return run;
}

Status WriteOut(const std::string& path, const std::string& text) {
  if (path == "-") {
    Print(text);
    return OkStatus();
  }
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<platform::FileWriter> file,
                         platform::SystemFiles().Create(path));
  CELLM_RETURN_IF_ERROR(file->Write({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
  return file->Commit();
}

Status Run(const Arguments& arguments) {
  Setting setting;
  CELLM_ASSIGN_OR_RETURN(setting.plan, ReadPlan(arguments));
  const bool serves = arguments.Switch("serve");
  for (const Flag& flag : kBenchServeFlags) {
    if (arguments.Has(flag.name) && !serves) {
      return InvalidArgument("--%s needs --serve", std::string(flag.name).c_str());
    }
  }
  if (serves) {
    CELLM_ASSIGN_OR_RETURN(setting.serve, ReadServePlan(arguments, setting.plan));
  }
  std::vector<int64_t> threads = {0};
  if (arguments.Has("thread-list")) {
    if (!arguments.Switch("matrix")) return InvalidArgument("--thread-list needs --matrix");
    if (arguments.Has("threads")) {
      return InvalidArgument("--threads and --thread-list exclude each other");
    }
    CELLM_ASSIGN_OR_RETURN(threads, ReadCounts(arguments, "thread-list", {}, 1));
  } else if (arguments.Switch("matrix") && !arguments.Has("threads")) {
    threads = {1};
    if (platform::UsableCores() > 1) threads.push_back(platform::UsableCores());
  }
  CELLM_ASSIGN_OR_RETURN(const std::vector<Subject> subjects, FindSubjects(arguments));
  if (arguments.Switch("write-only")) {
    for (const Subject& subject : subjects) Print(subject.path + "\n");
    return OkStatus();
  }
  if (setting.serve) {
    setting.serve->folder = CacheFolder(arguments);
    CELLM_RETURN_IF_ERROR(MakeFolders(setting.serve->folder));
  }
  const bool json_to_stdout = arguments.Text("json") == "-";
  const bool csv_to_stdout = arguments.Text("csv") == "-";
  const bool table = !json_to_stdout && !csv_to_stdout;
  Ceilings ceilings;
  if (arguments.Switch("ceilings", true)) {
    Note(setting.plan.quiet, "measuring the machine");
    ceilings = MeasureCeilings(platform::UsableCores() > 1);
    if (table) Print(CeilingsTable(ceilings));
  }
  std::vector<BenchRun> runs;
  for (const Subject& subject : subjects) {
    for (const int64_t count : threads) {
      setting.threads = static_cast<int>(count);
      CELLM_ASSIGN_OR_RETURN(BenchRun run, MeasureOne(arguments, subject, setting, ceilings));
      if (table) {
        Print("\n");
        Print(BenchTable(run));
        if (setting.serve && setting.serve->memory) Print(MemoryTable(run));
      }
      runs.push_back(std::move(run));
    }
  }
  if (arguments.Has("json")) {
    CELLM_RETURN_IF_ERROR(WriteOut(arguments.Text("json"), BenchJson(ceilings, runs)));
  }
  if (arguments.Has("csv")) {
    CELLM_RETURN_IF_ERROR(WriteOut(arguments.Text("csv"), BenchCsv(runs)));
  }
  return OkStatus();
}

}  // namespace

int RunBench(const Arguments& arguments) {
  const Status status = Run(arguments);
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace cellm::tools
