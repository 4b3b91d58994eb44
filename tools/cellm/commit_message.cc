// cellm commit-message: a message for the staged changes.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cellm/commands.h"
#include "cellm/common.h"
#include "json/json.h"

namespace cellm::tools {
namespace {

constexpr const char* kQuestion =
    "Write a git commit message for this diff. One short line in the imperative, no quotes.\n\n";
constexpr int64_t kDefaultTokens = 80;

// The output of `git diff --cached`. Its own messages go to our stderr.
Result<std::string> StagedDiff() {
  FILE* pipe = ::popen("git diff --cached", "r");
  if (pipe == nullptr) return IoError("git cannot be started");
  std::string text;
  char buffer[65536];
  size_t count = 0;
  while ((count = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0) text.append(buffer, count);
  const int status = ::pclose(pipe);
  if (status != 0) {
    return IoError("'git diff --cached' failed with exit code %d",
                   WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }
  return text;
}

std::string MessagesJson(const std::string& system, std::string_view diff) {
  std::string out = "[";
  if (!system.empty()) {
    out += R"({"role": "system", "content": )" + json::Quote(system) + "}, ";
  }
  return out + R"({"role": "user", "content": )" + json::Quote(kQuestion + std::string(diff)) +
         "}]";
}

struct Prompt {
  const cellm_model* model;
  std::string system;
  std::string template_args;

  // Tokens of the conversation with this much of the diff.
  Result<size_t> Count(std::string_view diff) const {
    const std::string messages = MessagesJson(system, diff);
    cellm_chat chat = CELLM_CHAT_INIT;
    chat.messages = ToText(messages);
    chat.template_args = ToText(template_args);
    cellm_error error = CELLM_ERROR_INIT;
    size_t count = 0;
    const cellm_status status = cellm_model_tokenize_chat(model, &chat, nullptr, 0, &count, &error);
    if (status == CELLM_OK || (status == CELLM_OUT_OF_RANGE && count > 0)) return count;
    return ToStatus(error);
  }
};

// The longest beginning of whole lines that fits `available` tokens.
Result<std::string> CutToFit(const Prompt& prompt, const std::string& diff, size_t available) {
  CELLM_ASSIGN_OR_RETURN(const size_t whole, prompt.Count(diff));
  if (whole <= available) return diff;
  const std::vector<std::string_view> lines = SplitLines(diff);
  std::vector<size_t> ends = {0};
  for (const std::string_view line : lines) {
    ends.push_back(std::min(diff.size(), ends.back() + line.size() + 1));
  }
  size_t low = 0;  // fits, but for an empty diff perhaps
  size_t high = ends.size() - 1;
  while (low + 1 < high) {
    const size_t middle = (low + high) / 2;
    CELLM_ASSIGN_OR_RETURN(const size_t count,
                           prompt.Count(std::string_view(diff).substr(0, ends[middle])));
    (count <= available ? low : high) = middle;
  }
  if (low == 0) {
    return OutOfRange(
        "the context has room for %zu tokens, not even for the first line of the "
        "diff (--context sets it)",
        available);
  }
  std::fprintf(stderr, "note: the diff was cut to its first %zu of %zu lines to fit the context\n",
               low, lines.size());
  return diff.substr(0, ends[low]);
}

int32_t OnToken(const cellm_token* token, void* user) {
  static_cast<std::string*>(user)->append(token->text, token->text_bytes);
  return 0;
}

Status Write(const Arguments& arguments) {
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<SamplingFlags> sampling, ReadSampling(arguments));
  if ((sampling->sampling.given & CELLM_SAMPLING_TEMPERATURE) == 0) {
    sampling->sampling.temperature = 0.3f;
    sampling->sampling.given |= CELLM_SAMPLING_TEMPERATURE;
  }
  const int64_t most_tokens = arguments.Integer("gen", kDefaultTokens);
  if (most_tokens < 1 || most_tokens > (1 << 20)) {
    return InvalidArgument("--gen is %s; it must be 1 or more", arguments.Text("gen").c_str());
  }
  CELLM_ASSIGN_OR_RETURN(const std::string template_args, ReadTemplateArgs(arguments));
  CELLM_ASSIGN_OR_RETURN(std::string diff,
                         isatty(STDIN_FILENO) != 0 ? StagedDiff() : ReadInput("-"));
  if (diff.find_first_not_of(" \t\r\n") == std::string::npos) {
    return NotFound("the diff is empty: nothing is staged");
  }
  const char* variable = std::getenv("CELLM_COMMIT_MODEL");
  const bool use_variable = !arguments.Has("model") && variable != nullptr && *variable != '\0';
  CELLM_ASSIGN_OR_RETURN(const LoadedModel loaded, use_variable
                                                       ? OpenModelAt(arguments, variable, true)
                                                       : OpenModel(arguments, true));
  CELLM_ASSIGN_OR_RETURN(const EngineHandle engine, OpenEngine(arguments, loaded.model.get()));
  cellm_error error = CELLM_ERROR_INIT;
  cellm_engine_info info = CELLM_ENGINE_INFO_INIT;
  if (cellm_engine_get_info(engine.get(), &info, &error) != CELLM_OK) return ToStatus(error);
  const size_t context = info.context_tokens;
  const size_t reply = std::min(static_cast<size_t>(most_tokens), context / 2);
  const Prompt prompt = {loaded.model.get(), arguments.Text("system"), template_args};
  CELLM_ASSIGN_OR_RETURN(diff, CutToFit(prompt, diff, context - reply));

  cellm_session* session_pointer = nullptr;
  if (cellm_session_open(engine.get(), nullptr, &session_pointer, &error) != CELLM_OK) {
    return ToStatus(error);
  }
  const SessionHandle session(session_pointer);
  const std::string messages = MessagesJson(prompt.system, diff);
  cellm_chat chat = CELLM_CHAT_INIT;
  chat.messages = ToText(messages);
  chat.template_args = ToText(template_args);
  cellm_request_options options = CELLM_REQUEST_OPTIONS_INIT;
  options.flags |= CELLM_REQUEST_KEEP_NOTHING;
  options.max_tokens = static_cast<uint32_t>(reply);
  options.sampling = &sampling->sampling;
  cellm_request* request_pointer = nullptr;
  if (cellm_session_submit_chat(session.get(), &chat, &options, &request_pointer, &error) !=
      CELLM_OK) {
    return ToStatus(error);
  }
  const RequestHandle request(request_pointer);
  std::string message;
  if (cellm_request_run(request.get(), OnToken, &message, &error) != CELLM_OK) {
    return ToStatus(error);
  }
  const size_t first = message.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return Internal("the model answered with nothing");
  const size_t last = message.find_last_not_of(" \t\r\n");
  Print(message.substr(first, last - first + 1) + "\n");
  return OkStatus();
}

}  // namespace

int RunCommitMessage(const Arguments& arguments) {
  const Status status = Write(arguments);
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace cellm::tools
