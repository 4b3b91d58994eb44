// cellm infer: one prompt, one reply.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "cellm/commands.h"
#include "cellm/common.h"
#include "cellm/journals.h"
#include "cellm/progress.h"
#include "json/json.h"

namespace cellm::tools {
namespace {

// What the callback collects for --json, or prints as it comes.
struct Reply {
  bool stream = false;
  bool logprobs = false;
  bool broken = false;  // stdout is gone
  std::string text;
  std::vector<int32_t> ids;
  std::string logprobs_json;
};

std::string LogProbJson(const cellm_token& token) {
  JsonObject object;
  object.Add("id", int64_t{token.token_id}).Add("logprob", static_cast<double>(token.logprob));
  std::string top = "[";
  for (size_t i = 0; i < token.top_count; ++i) {
    JsonObject entry;
    entry.Add("id", int64_t{token.top[i].token_id})
        .Add("logprob", static_cast<double>(token.top[i].logprob));
    if (i > 0) top += ", ";
    top += entry.Finish();
  }
  return object.AddRaw("top", top + "]").Finish();
}

int32_t OnProgress(uint64_t done, uint64_t total, void* user) {
  Progress& progress = *static_cast<Progress*>(user);
  if (done < total) {
    progress.Update(done, total);
  } else {
    progress.Clear();
  }
  return 0;
}

int32_t OnToken(const cellm_token* token, void* user) {
  Reply& reply = *static_cast<Reply*>(user);
  const std::string_view text(token->text, token->text_bytes);
  if (reply.stream) {
    if (!text.empty() && (!Print(text) || std::fflush(stdout) != 0)) reply.broken = true;
  } else {
    reply.text += text;
  }
  if (token->token_id >= 0) {
    reply.ids.push_back(token->token_id);
    if (reply.logprobs) {
      if (!reply.logprobs_json.empty()) reply.logprobs_json += ", ";
      reply.logprobs_json += LogProbJson(*token);
      if (reply.stream) std::fprintf(stderr, "%s\n", LogProbJson(*token).c_str());
    }
  }
  return reply.broken ? 1 : 0;
}

// The prompt in one of its forms. Exactly one of the flags must be given.
struct Prompt {
  bool is_ids = false;
  std::string text;
  std::vector<int32_t> ids;
  std::string file;  // where it was read from, "" for the command line
};

Result<Prompt> ReadPrompt(const Arguments& arguments) {
  const char* given = nullptr;
  for (const char* name : {"prompt", "prompt-file", "tokens", "seq"}) {
    if (!arguments.Has(name)) continue;
    if (given != nullptr) return InvalidArgument("--%s and --%s exclude each other", given, name);
    given = name;
  }
  if (given == nullptr) {
    return InvalidArgument("no prompt: give --prompt TEXT, --prompt-file FILE or --tokens IDS");
  }
  Prompt prompt;
  prompt.is_ids = arguments.Has("tokens") || arguments.Has("seq");
  if (arguments.Has("prompt")) prompt.text = arguments.Text("prompt");
  if (arguments.Has("prompt-file")) {
    prompt.file = arguments.Text("prompt-file");
    CELLM_ASSIGN_OR_RETURN(prompt.text, ReadInput(prompt.file));
  }
  if (arguments.Has("tokens")) {
    const std::string tokens = arguments.Text("tokens");
    if (tokens.starts_with('@')) prompt.file = tokens.substr(1);
    CELLM_ASSIGN_OR_RETURN(prompt.ids, ReadTokenIds(tokens));
  }
  if (arguments.Has("seq")) {
    const int64_t count = arguments.Integer("seq");
    if (count < 1 || count > (1 << 24)) {
      return InvalidArgument("--seq: '%s' is not a count of tokens", arguments.Text("seq").c_str());
    }
    for (int64_t i = 0; i < count; ++i) prompt.ids.push_back(static_cast<int32_t>(i));
  }
  if (prompt.is_ids && arguments.Switch("chat")) {
    return InvalidArgument("--chat needs a prompt of text, not --%s", given);
  }
  return prompt;
}

Status CheckUnsupported(const Arguments& arguments) {
  if (arguments.Has("max-layers")) {
    return InvalidArgument(
        "--max-layers is not supported: a model cut short computes nothing of "
        "use");
  }
  if (arguments.Has("system") && !arguments.Switch("chat")) {
    return InvalidArgument("--system needs --chat");
  }
  const int64_t logprobs = arguments.Integer("logprobs", 0);
  if (logprobs < 0 || logprobs > 64) {
    return InvalidArgument("--logprobs is %s; it must be from 0 to 64",
                           arguments.Text("logprobs").c_str());
  }
  return OkStatus();
}

// Whether the prompt itself cannot be evaluated by a model of `vocabulary` tokens.
bool AtFault(const Prompt& prompt, int32_t vocabulary) {
  if (!prompt.is_ids) return prompt.text.empty();
  return prompt.ids.empty() || std::any_of(prompt.ids.begin(), prompt.ids.end(),
                                           [vocabulary](int32_t id) { return id >= vocabulary; });
}

Status Submit(const Arguments& arguments, const Prompt& prompt, int32_t vocabulary,
              cellm_session* session, const cellm_request_options& options, RequestHandle* out) {
  cellm_error error = CELLM_ERROR_INIT;
  cellm_request* request = nullptr;
  cellm_status status = CELLM_OK;
  if (arguments.Switch("chat")) {
    std::string messages = "[";
    if (arguments.Has("system")) {
      messages +=
          R"({"role": "system", "content": )" + json::Quote(arguments.Text("system")) + "}, ";
    }
    messages += R"({"role": "user", "content": )" + json::Quote(prompt.text) + "}]";
    CELLM_ASSIGN_OR_RETURN(const std::string template_args, ReadTemplateArgs(arguments));
    cellm_chat chat = CELLM_CHAT_INIT;
    chat.messages = ToText(messages);
    chat.template_args = ToText(template_args);
    status = cellm_session_submit_chat(session, &chat, &options, &request, &error);
  } else if (prompt.is_ids) {
    status = cellm_session_submit_tokens(session, prompt.ids.data(), prompt.ids.size(), &options,
                                         &request, &error);
  } else {
    status = cellm_session_submit_text(session, prompt.text.data(), prompt.text.size(), &options,
                                       &request, &error);
  }
  if (status == CELLM_INVALID_ARGUMENT && !prompt.file.empty() && AtFault(prompt, vocabulary)) {
    // What a file holds is an error of that file, not of the command line.
    const char* name = prompt.file == "-" ? "standard input" : prompt.file.c_str();
    return Corrupt("%s: %s", name, error.message);
  }
  if (status != CELLM_OK) return ToStatus(error);
  out->reset(request);
  return OkStatus();
}

Status Infer(const Arguments& arguments, int* exit_code) {
  CELLM_RETURN_IF_ERROR(CheckUnsupported(arguments));
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<SamplingFlags> sampling, ReadSampling(arguments));
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<ReplyFlags> reply_flags,
                         ReadReply(arguments, &sampling->sampling));
  CELLM_RETURN_IF_ERROR(ReadTemplateArgs(arguments).status());
  CELLM_ASSIGN_OR_RETURN(cellm_session_options session_options, ReadSession(arguments));
  session_options.flags = CELLM_SESSION_PLAN_FIRST_REQUEST;
  CELLM_ASSIGN_OR_RETURN(const Prompt prompt, ReadPrompt(arguments));
  cellm_request_options& options = reply_flags->options;
  if (arguments.Switch("parse-special")) options.flags |= CELLM_REQUEST_PARSE_SPECIAL;
  if (arguments.Switch("show-special")) options.flags |= CELLM_REQUEST_SHOW_SPECIAL;
  if (arguments.Has("logprobs")) {
    options.flags |= CELLM_REQUEST_LOGPROBS;
    options.top_logprobs = static_cast<uint32_t>(arguments.Integer("logprobs"));
  }

  Progress progress("prompt", arguments.Switch("quiet"));
  options.progress = OnProgress;
  options.progress_user = &progress;
  options.flags |= CELLM_REQUEST_KEEP_NOTHING;
  // Ctrl-C ends the reply at the next chunk or token; what there is of it is still printed and
  // accounted for.
  const CancelOnInterrupt guard;
  options.stop_flag = CancelOnInterrupt::flag();
  CELLM_ASSIGN_OR_RETURN(const LoadedModel loaded, OpenModel(arguments, true));
  const std::string journal = arguments.Text("journal");
  CELLM_ASSIGN_OR_RETURN(
      const EngineHandle engine,
      OpenEngineWith(arguments, loaded.model.get(), [&journal](cellm_engine_options* options_out) {
        options_out->journal_folder = ToText(journal);
      }));
  cellm_error error = CELLM_ERROR_INIT;
  cellm_session* session_pointer = nullptr;
  if (cellm_session_open(engine.get(), &session_options, &session_pointer, &error) != CELLM_OK) {
    return ToStatus(error);
  }
  SessionHandle session(session_pointer);
  cellm_engine_info info = CELLM_ENGINE_INFO_INIT;
  if (cellm_engine_get_info(engine.get(), &info, &error) != CELLM_OK) return ToStatus(error);
  RequestHandle request;
  CELLM_RETURN_IF_ERROR(
      Submit(arguments, prompt, info.vocabulary, session.get(), options, &request));

  Note(arguments.Switch("quiet"), StrFormat("context %u tokens, %d threads, %s kernels",
                                            info.context_tokens, info.threads, info.kernels));

  Reply reply;
  const bool json = arguments.Switch("json");
  reply.stream = !json;
  reply.logprobs = arguments.Has("logprobs");
  if (arguments.Has("journal")) {
    CELLM_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, SessionTokens(session.get()));
    CELLM_ASSIGN_OR_RETURN(Recovered recovered, RecoverNewest(engine.get(), options, ids));
    if (recovered.request != nullptr) {
      Note(arguments.Switch("quiet"),
           StrFormat("going on after %zu tokens of the reply", recovered.ids.size()));
      request = std::move(recovered.request);  // the new one was never begun
      session = std::move(recovered.session);
      reply.ids = std::move(recovered.ids);
      if (reply.stream) Print(recovered.shown);
      reply.text = recovered.shown;
    }
  }
  const cellm_status status = cellm_request_run(request.get(), OnToken, &reply, &error);
  if (status != CELLM_OK) {
    if (reply.stream && !reply.ids.empty()) Print("\n");
    return ToStatus(error);
  }
  cellm_receipt receipt = CELLM_RECEIPT_INIT;
  if (cellm_request_get_receipt(request.get(), &receipt, &error) != CELLM_OK) {
    return ToStatus(error);
  }
  if (json) {
    JsonObject object;
    object.Add("text", reply.text)
        .AddRaw("token_ids", JsonIds(reply.ids))
        .Add("finish", cellm_finish_name(receipt.finish))
        .Add("seed", receipt.seed);
    if (reply.logprobs) object.AddRaw("logprobs", "[" + reply.logprobs_json + "]");
    object.AddRaw("receipt", ReceiptJson(receipt))
        .AddRaw("weights", WeightsJson(engine.get()))
        .Add("model", loaded.path);
    Print(object.Finish() + "\n");
  } else if ((options.flags & CELLM_REQUEST_PROMPT_ONLY) == 0) {
    Print("\n");
  }
  Note(arguments.Switch("quiet"), ReceiptLine(receipt));
  *exit_code = guard.interrupted() ? InterruptExitCode() : kExitOk;
  return OkStatus();
}

}  // namespace

int RunInfer(const Arguments& arguments) {
  int exit_code = kExitOk;
  const Status status = Infer(arguments, &exit_code);
  return status.ok() ? exit_code : Fail(status);
}

}  // namespace cellm::tools
