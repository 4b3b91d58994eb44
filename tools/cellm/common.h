#ifndef CELLM_TOOLS_CELLM_COMMON_H_
#define CELLM_TOOLS_CELLM_COMMON_H_

// What the commands share: owning C API handles, saying what went wrong, reading inputs, building
// JSON, finding the model, and turning flags into the API's option structs.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cellm/cellm.h"
#include "cellm/flags.h"

namespace cellm::tools {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;  // files and run time
inline constexpr int kExitUsage = 2;
// Stopped by a signal, as shells count it: 130 for Ctrl-C, 143 for SIGTERM.
int InterruptExitCode();

// ---- handles ----

struct CloseHandle {
  void operator()(cellm_model* handle) const { cellm_model_close(handle); }
  void operator()(cellm_engine* handle) const { cellm_engine_close(handle); }
  void operator()(cellm_session* handle) const { cellm_session_close(handle); }
  void operator()(cellm_request* handle) const { cellm_request_close(handle); }
};
using ModelHandle = std::unique_ptr<cellm_model, CloseHandle>;
using EngineHandle = std::unique_ptr<cellm_engine, CloseHandle>;
using SessionHandle = std::unique_ptr<cellm_session, CloseHandle>;
using RequestHandle = std::unique_ptr<cellm_request, CloseHandle>;

// An error of the C API as a Status. Errors of templates keep their kind in front of the message.
Status ToStatus(const cellm_error& error);
inline cellm_text ToText(std::string_view text) { return {text.data(), text.size()}; }

// ---- messages ----

// "cellm: message" on stderr, and the exit code that fits: 2 for InvalidArgument,
// InterruptExitCode() for Cancelled, else 1.
int Fail(const Status& status);
// A note on stderr, unless `quiet`.
void Note(bool quiet, const std::string& text);
// Writes to stdout. False when stdout is gone (a closed pipe, a full disk).
bool Print(std::string_view text);
// Flushes stdout; an error becomes a message and exit code 1.
int Finish(int exit_code);

// ---- input ----

// The content of a file, or of stdin for "-". At most 256 MB.
Result<std::string> ReadInput(const std::string& path);
// "1,2,3" or "@file"; spaces, newlines and brackets between ids are fine. InvalidArgument; Corrupt
// for what is in a file.
Result<std::vector<int32_t>> ReadTokenIds(const std::string& text);
// "512M", "2G", "1000000" in bytes. InvalidArgument.
Result<uint64_t> ParseSize(const std::string& name, const std::string& text);
// The lines of a JSON-lines text: split at '\n' only, a last empty line dropped.
std::vector<std::string_view> SplitLines(std::string_view text);

// ---- output ----

class JsonObject {
 public:
  JsonObject& Add(std::string_view key, std::string_view text);
  JsonObject& Add(std::string_view key, const char* text) {
    return Add(key, std::string_view(text));
  }
  JsonObject& Add(std::string_view key, int64_t value);
  JsonObject& Add(std::string_view key, uint64_t value);
  JsonObject& Add(std::string_view key, int value) { return Add(key, int64_t{value}); }
  JsonObject& Add(std::string_view key, double value);  // NaN and infinities become null
  JsonObject& Add(std::string_view key, bool value);
  JsonObject& AddRaw(std::string_view key, std::string_view json);
  std::string Finish() const { return body_ + "}"; }

 private:
  std::string body_ = "{";
};
std::string JsonIds(const std::vector<int32_t>& ids);

// ---- model and engine from flags ----

// --model, else $CELLM_MODEL, else the bundled model; the latter two are named on stderr.
// NotFound: none of them.
Result<std::string> FindModelPath(const std::string& given);
// The bundled model: in the source tree that this binary was built in, or in the installed prefix.
// Empty when it is in neither.
std::string BundledModelPath();

// The constant of the C API for a name of --kv.
Result<int32_t> ReadKv(const std::string& text);
// The value of --kv-demote, FORMAT[@TOKENS].
Status ReadKvDemote(const std::string& text, cellm_engine_options* options);

struct LoadedModel {
  ModelHandle model;
  std::string path;
};
// Opens the model of --model, --tokenizer, --weights and --chat-format, where the command has them.
Result<LoadedModel> OpenModel(const Arguments& arguments, bool has_chat_flags);
// The same with a path that is already known.
Result<LoadedModel> OpenModelAt(const Arguments& arguments, const std::string& path,
                                bool has_chat_flags);
// The engine of kEngineFlags. `adjust` may change the options before the engine is made.
Result<EngineHandle> OpenEngine(const Arguments& arguments, cellm_model* model,
                                void (*adjust)(cellm_engine_options*, const Arguments&) = nullptr);
// The same with anything that can be called with the options.
Result<EngineHandle> OpenEngineWith(const Arguments& arguments, cellm_model* model,
                                    const std::function<void(cellm_engine_options*)>& adjust);

// --overflow and --keep. InvalidArgument.
Result<cellm_session_options> ReadSession(const Arguments& arguments);

// Sampling flags, checked here so that a bad value is reported before a model is read.
struct SamplingFlags {
  std::vector<cellm_logit_bias> bias;
  cellm_sampling sampling = CELLM_SAMPLING_INIT;
};
Result<std::unique_ptr<SamplingFlags>> ReadSampling(const Arguments& arguments);

// --gen, --stop, --stop-tokens, --stop-eos, and what the reply must look like. Pointers in
// `options` go to the other members.
struct ReplyFlags {
  std::vector<cellm_text> stops;
  std::string constraint;
  std::vector<int32_t> stop_ids;
  cellm_request_options options = CELLM_REQUEST_OPTIONS_INIT;
};
Result<std::unique_ptr<ReplyFlags>> ReadReply(const Arguments& arguments,
                                              const cellm_sampling* sampling);

// --template-arg and --no-think as a JSON object.
Result<std::string> ReadTemplateArgs(const Arguments& arguments);

// One line for people: "9 tokens in (0 reused), 8 out; first token 31 ms; 412 tokens/s".
std::string ReceiptLine(const cellm_receipt& receipt);
std::string ReceiptJson(const cellm_receipt& receipt);
// How the weights are held, as a JSON object.
std::string WeightsJson(const cellm_engine* engine);

// ---- signals ----

// While one of these lives, Ctrl-C (and SIGTERM, unless the program goes on after what it cancels)
// raises flag() instead of ending the program, so that no half file stays.
class CancelOnInterrupt {
 public:
  CancelOnInterrupt() : CancelOnInterrupt(true) {}
  explicit CancelOnInterrupt(bool termination_too);
  ~CancelOnInterrupt();
  CancelOnInterrupt(const CancelOnInterrupt&) = delete;
  CancelOnInterrupt& operator=(const CancelOnInterrupt&) = delete;
  bool interrupted() const;
  // Not 0 once Ctrl-C was pressed: for cellm_request_options.stop_flag. Valid for ever.
  static const volatile int32_t* flag();

 private:
  const bool termination_too_;
};

}  // namespace cellm::tools

#endif  // CELLM_TOOLS_CELLM_COMMON_H_
