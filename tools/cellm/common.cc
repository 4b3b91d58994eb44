#include "cellm/common.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/limits.h"
#include "json/json.h"
#include "platform/file.h"
#include "tensor/kv_type.h"

namespace cellm::tools {
namespace {

constexpr uint64_t kMaxInputBytes = uint64_t{256} << 20;
constexpr const char* kBundledName = "cellm-nano-int8.cellm";

}  // namespace

// ---- messages
// -------------------------------------------------------------------------------------

Status ToStatus(const cellm_error& error) {
  std::string message = error.message;
  const std::string kind = error.kind[0] != '\0' ? std::string(error.kind) + ": " : "";
  if (message.find(kind) == std::string::npos) message.insert(0, kind);  // some say it themselves
  return Status(static_cast<StatusCode>(error.status == CELLM_OK ? CELLM_INTERNAL : error.status),
                std::move(message));
}

int Fail(const Status& status) {
  // One line, whatever the message has in it.
  std::string line = status.message();
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::fflush(stdout);
  std::fprintf(stderr, "cellm: %s\n", line.c_str());
  if (status.code() == StatusCode::kCancelled) return InterruptExitCode();
  return status.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailure;
}

void Note(bool quiet, const std::string& text) {
  if (quiet) return;
  std::fflush(stdout);  // where both go to one place, they come in the order of writing
  std::fprintf(stderr, "%s\n", text.c_str());
}

bool Print(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
}

int Finish(int exit_code) {
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (written || exit_code != kExitOk) return exit_code;  // an error has been named already
  std::fprintf(stderr, "cellm: standard output cannot be written\n");
  return kExitFailure;
}

// ---- input
// ----------------------------------------------------------------------------------------

namespace {

// Everything that a pipe or terminal gives. `name` is for messages.
Result<std::string> ReadStream(FILE* stream, const char* name) {
  std::string text;
  char buffer[65536];
  size_t count = 0;
  while ((count = std::fread(buffer, 1, sizeof(buffer), stream)) > 0) {
    text.append(buffer, count);
    if (text.size() > kMaxInputBytes) {
      return OutOfRange("%s has more than %" PRIu64 " bytes", name, kMaxInputBytes);
    }
  }
  if (std::ferror(stream) != 0) return IoError("%s cannot be read", name);
  return text;
}

// <(command) and /dev/stdin: read once, in order, unlike files.
bool IsPipe(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode));
}

}  // namespace

Result<std::string> ReadInput(const std::string& path) {
  if (path == "-") return ReadStream(stdin, "standard input");
  if (!IsPipe(path)) return platform::SystemFiles().Read(path, kMaxInputBytes);
  FILE* const stream = std::fopen(path.c_str(), "rb");
  if (stream == nullptr) return IoError("%s: cannot be opened", path.c_str());
  Result<std::string> text = ReadStream(stream, path.c_str());
  std::fclose(stream);
  return text;
}

Result<std::vector<int32_t>> ReadTokenIds(const std::string& text) {
  std::string list = text;
  const bool in_file = !text.empty() && text[0] == '@';
  const std::string source = in_file ? text.substr(1) : "token ids";
  if (in_file) {
    CELLM_ASSIGN_OR_RETURN(list, ReadInput(source));
  }
  std::vector<int32_t> ids;
  size_t at = 0;
  constexpr const char* kSeparators = " ,\t\r\n[]";
  while ((at = list.find_first_not_of(kSeparators, at)) != std::string::npos) {
    const size_t end = std::min(list.find_first_of(kSeparators, at), list.size());
    const std::string word = list.substr(at, end - at);
    int64_t value = 0;
    if (!ParseInteger(word, &value) || value < 0 || value > INT32_MAX) {
      const std::string shown = word.substr(0, 40);
      return in_file ? Corrupt("%s: '%s' is not a token id", source.c_str(), shown.c_str())
                     : InvalidArgument("token ids: '%s' is not an id", shown.c_str());
    }
    ids.push_back(static_cast<int32_t>(value));
    at = end;
  }
  if (in_file && ids.empty()) return Corrupt("%s: no token ids", source.c_str());
  return ids;
}

Result<uint64_t> ParseSize(const std::string& name, const std::string& text) {
  double value = 0;
  double unit = 1;
  std::string digits = text;
  const std::string_view units = "KMG";
  if (!digits.empty() && (digits.back() == 'B' || digits.back() == 'b')) digits.pop_back();
  if (!digits.empty() && (digits.back() == 'i')) digits.pop_back();
  if (!digits.empty()) {
    const char last = static_cast<char>(std::toupper(static_cast<unsigned char>(digits.back())));
    const size_t power = units.find(last);
    if (power != std::string_view::npos) {
      unit = std::ldexp(1.0, 10 * (static_cast<int>(power) + 1));
      digits.pop_back();
    }
  }
  if (!ParseNumber(digits, &value) || !(value >= 0) || value * unit > 1e18) {
    return InvalidArgument("--%s: '%s' is not a size such as 256M or 1G", name.c_str(),
                           text.c_str());
  }
  return static_cast<uint64_t>(value * unit);
}

std::vector<std::string_view> SplitLines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// ---- output
// ---------------------------------------------------------------------------------------

JsonObject& JsonObject::AddRaw(std::string_view key, std::string_view json) {
  if (body_.size() > 1) body_ += ", ";
  body_ += json::Quote(key);
  body_ += ": ";
  body_ += json;
  return *this;
}
JsonObject& JsonObject::Add(std::string_view key, std::string_view text) {
  return AddRaw(key, json::Quote(text));
}
JsonObject& JsonObject::Add(std::string_view key, int64_t value) {
  return AddRaw(key, std::to_string(value));
}
JsonObject& JsonObject::Add(std::string_view key, uint64_t value) {
  return AddRaw(key, std::to_string(value));
}
JsonObject& JsonObject::Add(std::string_view key, double value) {
  return AddRaw(key, std::isfinite(value) ? StrFormat("%.9g", value) : "null");
}
JsonObject& JsonObject::Add(std::string_view key, bool value) {
  return AddRaw(key, value ? "true" : "false");
}

std::string JsonIds(const std::vector<int32_t>& ids) {
  std::string out = "[";
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ", ";
    out += std::to_string(ids[i]);
  }
  return out + "]";
}

// ---- model and engine from flags
// ------------------------------------------------------------------

std::string BundledModelPath() {
  platform::FileSystem& files = platform::SystemFiles();
  std::vector<std::string> places;
  // Beside the binary in an installed prefix (bin/cellm, share/cellm/models), or the source tree
  // that holds the build folder. The prefix may have been moved, so the binary's own place counts.
  char binary[4096];
  const ssize_t length = ::readlink("/proc/self/exe", binary, sizeof(binary));
  if (length > 0 && static_cast<size_t>(length) < sizeof(binary)) {
    const std::string folder =
        platform::ParentPath(std::string_view(binary, static_cast<size_t>(length)));
    places.push_back(folder + "/../share/cellm/models/");
    places.push_back(folder + "/" CELLM_SOURCE_FROM_BINARY "/models/");
  }
  for (const std::string& place : places) {
    if (files.IsFile(place + kBundledName)) return place + kBundledName;
  }
  return "";
}

Result<std::string> FindModelPath(const std::string& given) {
  if (!given.empty()) return given;
  const char* variable = std::getenv("CELLM_MODEL");
  if (variable != nullptr && *variable != '\0') {
    Note(false, std::string("model: ") + variable + " (from CELLM_MODEL)");
    return std::string(variable);
  }
  const std::string bundled = BundledModelPath();
  if (bundled.empty()) {
    return NotFound("no model: give --model PATH or set CELLM_MODEL (the bundled %s was not found)",
                    kBundledName);
  }
  Note(false, std::string("model: the bundled ") + kBundledName +
                  " (choose another with --model or CELLM_MODEL)");
  return bundled;
}

namespace {

void WriteLog(int32_t level, cellm_text component, cellm_text text, void*) {
  if (level < CELLM_LOG_WARNING) return;
  std::fprintf(stderr, "%.*s: %.*s\n", static_cast<int>(component.bytes), component.data,
               static_cast<int>(text.bytes), text.data);
}

}  // namespace

Result<LoadedModel> OpenModel(const Arguments& arguments, bool has_chat_flags) {
  CELLM_ASSIGN_OR_RETURN(const std::string path, FindModelPath(arguments.Text("model")));
  return OpenModelAt(arguments, path, has_chat_flags);
}

Result<LoadedModel> OpenModelAt(const Arguments& arguments, const std::string& path,
                                bool has_chat_flags) {
  LoadedModel loaded;
  loaded.path = path;
  cellm_model_options options = CELLM_MODEL_OPTIONS_INIT;
  const std::string tokenizer = arguments.Text("tokenizer");
  const std::string weights = arguments.Text("weights", "auto");
  const std::string format = has_chat_flags ? arguments.Text("chat-format") : "";
  options.tokenizer = ToText(tokenizer);
  options.chat_format = ToText(format);
  options.weights = weights == "map"    ? CELLM_WEIGHTS_MAP
                    : weights == "load" ? CELLM_WEIGHTS_LOAD
                                        : CELLM_WEIGHTS_AUTO;
  if (arguments.Switch("mlock")) options.flags |= CELLM_MODEL_LOCK_WEIGHTS;
  if (arguments.Has("embedding-on-flash")) {
    options.flags |= arguments.Switch("embedding-on-flash") ? CELLM_MODEL_EMBEDDING_ON_FLASH
                                                            : CELLM_MODEL_EMBEDDING_RESIDENT;
  }
  options.log = WriteLog;
  cellm_error error = CELLM_ERROR_INIT;
  cellm_model* model = nullptr;
  if (cellm_model_open(loaded.path.data(), loaded.path.size(), &options, &model, &error) !=
      CELLM_OK) {
    return ToStatus(error);
  }
  loaded.model.reset(model);
  return loaded;
}

namespace {

// A count from a flag: 0 when not given. InvalidArgument outside [least, 2^31).
Result<uint32_t> ReadCount(const Arguments& arguments, const char* name, int64_t least) {
  if (!arguments.Has(name)) return uint32_t{0};
  const int64_t value = arguments.Integer(name);
  if (value < least) {
    return InvalidArgument("--%s is %" PRId64 "; it must be %" PRId64 " or more", name, value,
                           least);
  }
  if (value > INT32_MAX) {
    return InvalidArgument("--%s is %" PRId64 "; at most %d is taken", name, value, INT32_MAX);
  }
  return static_cast<uint32_t>(value);
}

}  // namespace

Result<int32_t> ReadKv(const std::string& text) {
  Result<KvTypes> types = ParseKvTypes(text);
  if (!types.ok()) return types.status();
  const auto constant = [](KvType type) {
    switch (type) {
      case KvType::kF32:
        return CELLM_KV_F32;
      case KvType::kF16:
        return CELLM_KV_F16;
      case KvType::kQ8:
        return CELLM_KV_Q8;
      case KvType::kQ4:
        return CELLM_KV_Q4;
      case KvType::kTq2_5:
        return CELLM_KV_TQ2_5;
      case KvType::kTq3_5:
        return CELLM_KV_TQ3_5;
      case KvType::kTq4:
        return CELLM_KV_TQ4;
    }
    return CELLM_KV_DEFAULT;
  };
  return CELLM_KV_PAIR(constant(types->k), constant(types->v));
}

Status ReadKvDemote(const std::string& text, cellm_engine_options* options) {
  const size_t at = text.find('@');
  CELLM_ASSIGN_OR_RETURN(options->kv_demote, ReadKv(text.substr(0, at)));
  if (at == std::string::npos) return OkStatus();
  int64_t after = 0;
  if (!ParseInteger(text.substr(at + 1), &after) || after < 1 || after > limits::kMaxContext) {
    return InvalidArgument("'%s': what follows '@' must be a number of tokens, 1 to %d",
                           text.c_str(), limits::kMaxContext);
  }
  options->kv_demote_after = static_cast<uint32_t>(after);
  return OkStatus();
}

Result<EngineHandle> OpenEngine(const Arguments& arguments, cellm_model* model,
                                void (*adjust)(cellm_engine_options*, const Arguments&)) {
  return OpenEngineWith(arguments, model, [&](cellm_engine_options* options) {
    if (adjust != nullptr) adjust(options, arguments);
  });
}

namespace {

// A size from a flag: 0 when not given. InvalidArgument for one of 0 bytes.
Result<uint64_t> ReadSize(const Arguments& arguments, const char* name) {
  if (!arguments.Has(name)) return uint64_t{0};
  CELLM_ASSIGN_OR_RETURN(const uint64_t bytes, ParseSize(name, arguments.Text(name)));
  if (bytes == 0) return InvalidArgument("--%s is 0; it must be 1 byte or more", name);
  return bytes;
}

// The flags of engines for many conversations. The swap folder's name goes into `swap`, which must
// outlive the use of `options`.
Status ReadServing(const Arguments& arguments, cellm_engine_options* options, std::string* swap) {
  if (arguments.Text("policy") == "round-robin") options->policy = CELLM_POLICY_ROUND_ROBIN;
  CELLM_ASSIGN_OR_RETURN(options->step_ms, ReadCount(arguments, "step-ms", 1));
  CELLM_ASSIGN_OR_RETURN(options->past_bytes, ReadSize(arguments, "past-memory"));
  CELLM_ASSIGN_OR_RETURN(options->swap_bytes, ReadSize(arguments, "swap-size"));
  if (options->swap_bytes > 0 && !arguments.Has("swap")) {
    return InvalidArgument("--swap-size needs --swap FOLDER");
  }
  *swap = arguments.Text("swap");
  options->swap_folder = ToText(*swap);
  if (arguments.Switch("private-sessions")) options->flags |= CELLM_ENGINE_PRIVATE_SESSIONS;
  return OkStatus();
}

}  // namespace

Result<EngineHandle> OpenEngineWith(const Arguments& arguments, cellm_model* model,
                                    const std::function<void(cellm_engine_options*)>& adjust) {
  cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
  CELLM_ASSIGN_OR_RETURN(const uint32_t threads, ReadCount(arguments, "threads", 1));
  options.threads = static_cast<int32_t>(threads);
  CELLM_ASSIGN_OR_RETURN(options.context_tokens, ReadCount(arguments, "context", 1));
  CELLM_ASSIGN_OR_RETURN(options.chunk_tokens, ReadCount(arguments, "chunk", 1));
  CELLM_ASSIGN_OR_RETURN(options.page_tokens, ReadCount(arguments, "page-tokens", 1));
  CELLM_ASSIGN_OR_RETURN(options.max_pages, ReadCount(arguments, "max-pages", 1));
  if (arguments.Has("memory")) {
    CELLM_ASSIGN_OR_RETURN(options.memory_bytes, ParseSize("memory", arguments.Text("memory")));
    if (options.memory_bytes == 0) return InvalidArgument("--memory is 0; nothing runs in that");
  }
  if (arguments.Has("kv")) {
    CELLM_ASSIGN_OR_RETURN(options.kv, ReadKv(arguments.Text("kv")));
  }
  if (arguments.Has("kv-demote")) {
    CELLM_RETURN_IF_ERROR(ReadKvDemote(arguments.Text("kv-demote"), &options));
  }
  if (arguments.Has("activations")) {
    options.activations =
        arguments.Text("activations") == "f32" ? CELLM_ACTIVATIONS_F32 : CELLM_ACTIVATIONS_I8;
  }
  const std::string kernels = arguments.Text("kernels");
  if (arguments.Has("kernels") && kernels.empty()) {
    return InvalidArgument("--kernels: the name is empty");
  }
  options.kernels = ToText(kernels);
  std::string swap;
  if (arguments.Knows("policy")) {
    CELLM_RETURN_IF_ERROR(ReadServing(arguments, &options, &swap));
  }
  adjust(&options);
  cellm_error error = CELLM_ERROR_INIT;
  cellm_engine* engine = nullptr;
  if (cellm_engine_open(model, &options, &engine, &error) != CELLM_OK) return ToStatus(error);
  return EngineHandle(engine);
}

Result<cellm_session_options> ReadSession(const Arguments& arguments) {
  cellm_session_options options = CELLM_SESSION_OPTIONS_INIT;
  const std::string overflow = arguments.Text("overflow", "stop");
  options.overflow = overflow == "error"   ? CELLM_OVERFLOW_ERROR
                     : overflow == "shift" ? CELLM_OVERFLOW_SHIFT
                     : overflow == "slide" ? CELLM_OVERFLOW_SLIDE
                                           : CELLM_OVERFLOW_STOP;
  CELLM_ASSIGN_OR_RETURN(options.keep_tokens, ReadCount(arguments, "keep", 1));
  if (options.keep_tokens > 0 && options.overflow != CELLM_OVERFLOW_SHIFT) {
    return InvalidArgument("--keep needs --overflow shift");
  }
  return options;
}

// Any 64 bits: what a receipt reports must replay, and a negative seed wraps.
Status ReadSeed(const std::string& text, uint64_t* out) {
  int64_t value = 0;
  if (ParseInteger(text, &value)) {
    *out = static_cast<uint64_t>(value);
    return OkStatus();
  }
  const char* const end = text.data() + text.size();
  const std::from_chars_result read = std::from_chars(text.data(), end, *out);
  if (read.ec == std::errc() && read.ptr == end) return OkStatus();
  return InvalidArgument("--seed: '%s' is not an integer of 64 bits", text.c_str());
}

Result<std::unique_ptr<SamplingFlags>> ReadSampling(const Arguments& arguments) {
  auto flags = std::make_unique<SamplingFlags>();
  cellm_sampling& sampling = flags->sampling;
  struct Number {
    const char* name;
    float* field;
    uint32_t bit;
    double least, most;
    bool least_allowed;
    const char* allowed;
  };
  const Number numbers[] = {
      {"temperature", &sampling.temperature, CELLM_SAMPLING_TEMPERATURE, 0, 1e30, true,
       "a finite number, 0 or more"},
      {"top-p", &sampling.top_p, CELLM_SAMPLING_TOP_P, 0, 1, false, "above 0 and at most 1"},
      {"min-p", &sampling.min_p, CELLM_SAMPLING_MIN_P, 0, 1, true, "from 0 to 1"},
      {"typical-p", &sampling.typical_p, CELLM_SAMPLING_TYPICAL_P, 0, 1, false,
       "above 0 and at most 1"},
      {"repeat-penalty", &sampling.repetition_penalty, CELLM_SAMPLING_REPETITION_PENALTY, 0, 1e30,
       false, "a finite number above 0"},
      {"frequency-penalty", &sampling.frequency_penalty, CELLM_SAMPLING_FREQUENCY_PENALTY, -1e30,
       1e30, true, "a finite number"},
      {"presence-penalty", &sampling.presence_penalty, CELLM_SAMPLING_PRESENCE_PENALTY, -1e30, 1e30,
       true, "a finite number"},
  };
  for (const Number& number : numbers) {
    if (!arguments.Has(number.name)) continue;
    const double value = arguments.Number(number.name);
    const bool above = number.least_allowed ? value >= number.least : value > number.least;
    if (!above || !(value <= number.most)) {
      return InvalidArgument("--%s is %s; it must be %s", number.name,
                             arguments.Text(number.name).c_str(), number.allowed);
    }
    *number.field = static_cast<float>(value);
    sampling.given |= number.bit;
  }
  if (arguments.Has("top-k")) {
    CELLM_ASSIGN_OR_RETURN(const uint32_t top_k, ReadCount(arguments, "top-k", 0));
    sampling.top_k = static_cast<int32_t>(top_k);
    sampling.given |= CELLM_SAMPLING_TOP_K;
  }
  if (arguments.Has("repeat-window")) {
    CELLM_ASSIGN_OR_RETURN(const uint32_t window, ReadCount(arguments, "repeat-window", -1));
    sampling.penalty_window = static_cast<int32_t>(window);  // -1 comes back as -1
    sampling.given |= CELLM_SAMPLING_PENALTY_WINDOW;
  }
  if (arguments.Has("seed")) {
    CELLM_RETURN_IF_ERROR(ReadSeed(arguments.Text("seed"), &sampling.seed));
    sampling.given |= CELLM_SAMPLING_SEED;
  }
  for (const std::string& text : arguments.All("logit-bias")) {
    const size_t split = text.find_first_of("=:");
    int64_t id = 0;
    double bias = 0;
    if (split == std::string::npos || !ParseInteger(text.substr(0, split), &id) || id < 0 ||
        id > INT32_MAX || !ParseNumber(text.substr(split + 1), &bias) || std::isnan(bias)) {
      return InvalidArgument("--logit-bias: '%s' is not ID=NUMBER", text.c_str());
    }
    flags->bias.push_back({static_cast<int32_t>(id), static_cast<float>(bias)});
  }
  sampling.logit_bias = flags->bias.data();
  sampling.logit_bias_count = static_cast<uint32_t>(flags->bias.size());
  return flags;
}

namespace {

// --json-schema, --grammar, --regex, --choices: at most one of them.
Status ReadConstraint(const Arguments& arguments, ReplyFlags* flags) {
  struct Kind {
    const char* flag;
    int32_t constraint;
    const char* mark;  // what a text has and a path has not; null: always a text
    bool at_start;
  };
  constexpr Kind kKinds[] = {{"json-schema", CELLM_CONSTRAINT_JSON_SCHEMA, "{", true},
                             {"grammar", CELLM_CONSTRAINT_GRAMMAR, "::=", false},
                             {"regex", CELLM_CONSTRAINT_REGEX, nullptr, false},
                             {"choices", CELLM_CONSTRAINT_CHOICES, "[", true}};
  const char* given = nullptr;
  for (const Kind& kind : kKinds) {
    if (!arguments.Has(kind.flag)) continue;
    if (given != nullptr) {
      return InvalidArgument("--%s and --%s exclude each other", given, kind.flag);
    }
    given = kind.flag;
    flags->constraint = arguments.Text(kind.flag);
    flags->options.constraint = kind.constraint;
    if (kind.mark == nullptr) continue;
    const size_t first = flags->constraint.find_first_not_of(" \t\r\n");
    const size_t mark = flags->constraint.find(kind.mark);
    const bool is_text = mark != std::string::npos && (!kind.at_start || mark == first);
    if (is_text) continue;
    CELLM_ASSIGN_OR_RETURN(flags->constraint, ReadInput(flags->constraint));
  }
  flags->options.constraint_text = ToText(flags->constraint);
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<ReplyFlags>> ReadReply(const Arguments& arguments,
                                              const cellm_sampling* sampling) {
  auto flags = std::make_unique<ReplyFlags>();
  CELLM_ASSIGN_OR_RETURN(flags->options.max_tokens, ReadCount(arguments, "gen", 0));
  if (arguments.Has("gen") && flags->options.max_tokens == 0) {
    flags->options.flags |= CELLM_REQUEST_PROMPT_ONLY;
  }
  for (const std::string& stop : arguments.All("stop")) {
    if (stop.empty()) return InvalidArgument("--stop: the text is empty");
    flags->stops.push_back(ToText(stop));
  }
  CELLM_ASSIGN_OR_RETURN(flags->stop_ids, ReadTokenIds(arguments.Text("stop-tokens")));
  if (!arguments.Switch("stop-eos", true)) flags->options.flags |= CELLM_REQUEST_IGNORE_END;
  flags->options.stops = flags->stops.data();
  flags->options.stop_count = flags->stops.size();
  flags->options.stop_ids = flags->stop_ids.data();
  flags->options.stop_id_count = flags->stop_ids.size();
  flags->options.sampling = sampling;
  CELLM_RETURN_IF_ERROR(ReadConstraint(arguments, flags.get()));
  return flags;
}

Result<std::string> ReadTemplateArgs(const Arguments& arguments) {
  JsonObject object;
  for (const std::string& text : arguments.All("template-arg")) {
    const size_t split = text.find('=');
    if (split == std::string::npos || split == 0) {
      return InvalidArgument("--template-arg: '%s' is not NAME=VALUE", text.c_str());
    }
    if (text.substr(0, split) == "messages") {
      return InvalidArgument("--template-arg: 'messages' is the conversation itself");
    }
    const std::string value = text.substr(split + 1);
    const bool is_json = json::Document::Parse(value, "value").ok();
    object.AddRaw(text.substr(0, split), is_json ? value : json::Quote(value));
  }
  if (arguments.Switch("no-think")) object.Add("enable_thinking", false);
  return object.Finish();
}

std::string ReceiptLine(const cellm_receipt& receipt) {
  std::string line =
      StrFormat("%" PRIu64 " tokens in (%" PRIu64 " reused), %" PRIu64 " out",
                receipt.prompt_tokens, receipt.reused_tokens, receipt.generated_tokens);
  if (receipt.generated_tokens > 0) {
    line += StrFormat("; first token %.0f ms", static_cast<double>(receipt.first_token_ns) / 1e6);
  }
  if (receipt.generated_tokens > 1) {
    line += StrFormat("; %.1f tokens/s", receipt.decode_tokens_per_second);
  }
  if (receipt.demoted_tokens > 0) {
    line += StrFormat("; positions 0 to %" PRIu64 " in fewer bits", receipt.demoted_tokens - 1);
  }
  if (receipt.forgotten_tokens > 0) {
    line += StrFormat("; %" PRIu64 " tokens forgotten", receipt.forgotten_tokens);
  }
  return line + StrFormat("; peak memory %.1f MB; seed %" PRIu64 "; %s",
                          static_cast<double>(receipt.memory.peak) / 1e6, receipt.seed,
                          cellm_finish_name(receipt.finish));
}

std::string ReceiptJson(const cellm_receipt& receipt) {
  JsonObject memory;
  memory.Add("weights", receipt.memory.weights)
      .Add("cache", receipt.memory.cache)
      .Add("activations", receipt.memory.activations)
      .Add("tokenizer", receipt.memory.tokenizer)
      .Add("other", receipt.memory.other)
      .Add("used", receipt.memory.used)
      .Add("peak", receipt.memory.peak);
  JsonObject object;
  object.Add("prompt_tokens", receipt.prompt_tokens)
      .Add("reused_tokens", receipt.reused_tokens)
      .Add("generated_tokens", receipt.generated_tokens)
      .Add("seed", receipt.seed)
      .Add("demoted_tokens", receipt.demoted_tokens)
      .Add("prompt_ms", static_cast<double>(receipt.prompt_ns) / 1e6)
      .Add("first_token_ms", static_cast<double>(receipt.first_token_ns) / 1e6)
      .Add("decode_ms", static_cast<double>(receipt.decode_ns) / 1e6)
      .Add("prompt_tokens_per_second", receipt.prompt_tokens_per_second)
      .Add("decode_tokens_per_second", receipt.decode_tokens_per_second)
      .Add("queue_ms", static_cast<double>(receipt.queue_ns) / 1e6)
      .Add("preemptions", receipt.preemptions)
      .Add("forgotten_tokens", receipt.forgotten_tokens)
      .AddRaw("memory_bytes", memory.Finish());
  return object.Finish();
}

std::string WeightsJson(const cellm_engine* engine) {
  cellm_engine_info info = CELLM_ENGINE_INFO_INIT;
  if (cellm_engine_get_info(engine, &info, nullptr) != CELLM_OK) return "null";
  JsonObject object;
  object.Add("held", info.weights == CELLM_WEIGHTS_LOAD ? "loaded" : "mapped")
      .Add("locked", info.weights_locked != 0)
      .Add("mapped_bytes", info.mapped_bytes)
      .Add("loaded_bytes", info.loaded_bytes)
      .Add("packed_bytes", info.packed_bytes)
      .Add("flash_bytes", info.flash_bytes);
  return object.Finish();
}

// ---- signals
// --------------------------------------------------------------------------------------

namespace {

volatile int32_t interrupt_flag = 0;  // the number of the signal that came
struct sigaction previous_int, previous_term;

void HandleInterrupt(int signal_number) { interrupt_flag = signal_number; }

}  // namespace

CancelOnInterrupt::CancelOnInterrupt(bool termination_too) : termination_too_(termination_too) {
  interrupt_flag = 0;
  struct sigaction action = {};
  action.sa_handler = HandleInterrupt;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &previous_int);
  if (termination_too_) sigaction(SIGTERM, &action, &previous_term);
}

CancelOnInterrupt::~CancelOnInterrupt() {
  sigaction(SIGINT, &previous_int, nullptr);
  if (termination_too_) sigaction(SIGTERM, &previous_term, nullptr);
}

int InterruptExitCode() { return 128 + (interrupt_flag != 0 ? interrupt_flag : SIGINT); }

bool CancelOnInterrupt::interrupted() const { return interrupt_flag != 0; }

const volatile int32_t* CancelOnInterrupt::flag() { return &interrupt_flag; }

}  // namespace cellm::tools
