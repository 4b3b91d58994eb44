// cellm_session and cellm_request: conversations and their replies.
#include <memory>
#include <utility>

#include "base/limits.h"
#include "capi/chat.h"
#include "capi/convert_args.h"
#include "capi/generation.h"
#include "capi/handles.h"

struct cellm_request {
  std::unique_ptr<cellm::capi::RequestState> state;
};

namespace cellm::capi {
namespace {

Status ReadSessionOptions(const cellm_session_options* given, cellm_session_options* out) {
  CELLM_RETURN_IF_ERROR(ReadSized(given, "session options", out));
  if ((out->flags & ~CELLM_SESSION_PLAN_FIRST_REQUEST) != 0) {
    return Unsupported("session options: unknown flags 0x%x", out->flags);
  }
  return OkStatus();
}

ErrorDetails WithMemory(const Status& status, ErrorDetails details) {
  if (status.code() == StatusCode::kOutOfMemory) details.reason = CELLM_REASON_MEMORY;
  return details;
}

// The common end of the submit functions.
Result<std::unique_ptr<RequestState>> Submit(cellm_session* session, Prompt prompt,
                                             const cellm_request_options* options,
                                             ErrorDetails* details) {
  const std::shared_ptr<SessionState>& state = session->state;
  RequestSettings settings;
  CELLM_RETURN_IF_ERROR(ReadRequestOptions(
      options, *state->engine->model, state->engine->weights->model->info.vocab_size, &settings));
  return StartRequest(state, std::move(prompt), std::move(settings), details);
}

cellm_status Deliver(Result<std::unique_ptr<RequestState>> request, const ErrorDetails& details,
                     cellm_request** out, cellm_error* error) {
  if (!request.ok()) return Report(request.status(), error, WithMemory(request.status(), details));
  *out = new cellm_request{std::move(request).value()};
  return CELLM_OK;
}

// The session's ids, ready for more to be added.
Prompt Continue(const SessionState& session) {
  Prompt prompt;
  prompt.ids = session.transcript.ids();
  return prompt;
}

Result<std::unique_ptr<RequestState>> SubmitText(cellm_session* session, const char* text,
                                                 size_t text_bytes,
                                                 const cellm_request_options* options,
                                                 ErrorDetails* details) {
  std::string_view view;
  CELLM_RETURN_IF_ERROR(ReadText(text, text_bytes, "text", &view));
  if (session->state->engine->model->tokenizer == nullptr) {
    return NotFound("%s has no tokenizer: give one, or use token ids",
                    session->state->engine->model->path.c_str());
  }
  cellm_request_options known;
  CELLM_RETURN_IF_ERROR(ReadSized(options, "request options", &known));
  Prompt prompt = Continue(*session->state);
  tokenizer::EncodeOptions encode;
  encode.parse_special = (known.flags & CELLM_REQUEST_PARSE_SPECIAL) != 0;
  encode.add_special = prompt.ids.empty() && (known.flags & CELLM_REQUEST_NO_SPECIAL) == 0;
  CELLM_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                         session->state->engine->model->tokenizer->Encode(view, encode));
  if (ids.empty()) {
    return InvalidArgument("the prompt is empty and the model has no token to begin with");
  }
  prompt.ids.insert(prompt.ids.end(), ids.begin(), ids.end());
  return Submit(session, std::move(prompt), options, details);
}

Result<std::unique_ptr<RequestState>> SubmitTokens(cellm_session* session, const int32_t* ids,
                                                   size_t count,
                                                   const cellm_request_options* options,
                                                   ErrorDetails* details) {
  if (ids == nullptr || count == 0) return InvalidArgument("the prompt has no tokens");
  if (count > static_cast<size_t>(limits::kMaxContext)) {
    return OutOfRange("the prompt has %zu tokens; no context is longer than %d", count,
                      limits::kMaxContext);
  }
  Prompt prompt = Continue(*session->state);
  prompt.ids.insert(prompt.ids.end(), ids, ids + count);
  return Submit(session, std::move(prompt), options, details);
}

Result<std::unique_ptr<RequestState>> SubmitChat(cellm_session* session, const cellm_chat* chat,
                                                 const cellm_request_options* options,
                                                 ErrorDetails* details) {
  const ModelState& model = *session->state->engine->model;
  CELLM_ASSIGN_OR_RETURN(MarkedText rendering, RenderChat(model, chat, details));
  const Transcript& transcript = session->state->transcript;
  Prompt prompt;
  prompt.is_chat = true;
  prompt.mark = transcript.Match(rendering);
  // What the tokenizer makes of the whole is the truth where it agrees with what is held; else the
  // ids up to the mark are spliced in and only the rest is encoded.
  CELLM_ASSIGN_OR_RETURN(prompt.ids, EncodeMarked(model, rendering, 0));
  const std::vector<int32_t>& known = transcript.ids();
  const size_t held = prompt.mark.id_count;
  const bool agrees = prompt.ids.size() >= held &&
                      std::equal(known.begin(), known.begin() + static_cast<std::ptrdiff_t>(held),
                                 prompt.ids.begin());
  if (!agrees) {
    CELLM_ASSIGN_OR_RETURN(const std::vector<int32_t> rest,
                           EncodeMarked(model, rendering, prompt.mark.text_end));
    prompt.ids.assign(known.begin(), known.begin() + static_cast<std::ptrdiff_t>(held));
    prompt.ids.insert(prompt.ids.end(), rest.begin(), rest.end());
  }
  prompt.rendering = std::move(rendering);
  prompt.end_ids = model.chat_template.end_ids;
  return Submit(session, std::move(prompt), options, details);
}

}  // namespace
}  // namespace cellm::capi

using cellm::InvalidArgument;
using cellm::Result;
using cellm::Status;
using namespace cellm::capi;  // NOLINT: the C functions stand outside of namespaces

extern "C" {

cellm_status cellm_session_open(cellm_engine* engine, const cellm_session_options* options,
                                cellm_session** out, cellm_error* error) {
  if (engine == nullptr || out == nullptr) {
    return Report(InvalidArgument("cellm_session_open: engine or out is null"), error);
  }
  cellm_session_options known;
  const Status status = ReadSessionOptions(options, &known);
  if (!status.ok()) return Report(status, error);
  auto state = std::make_shared<SessionState>();
  state->engine = engine->state;
  state->flags = known.flags;
  *out = new cellm_session{std::move(state)};
  return CELLM_OK;
}

void cellm_session_close(cellm_session* session) { delete session; }

cellm_status cellm_session_clear(cellm_session* session, cellm_error* error) {
  if (session == nullptr) return Report(InvalidArgument("session is null"), error);
  SessionState& state = *session->state;
  if (state.open_request != nullptr) {
    return Report(cellm::Busy("the session has an open request"), error);
  }
  if (state.has_sequence) {
    const Status status = state.engine->engine->FreeSequence(state.sequence);
    if (!status.ok()) return Report(status, error);
  }
  state.has_sequence = false;
  state.transcript.Clear();
  return CELLM_OK;
}

cellm_status cellm_session_get_tokens(const cellm_session* session, int32_t* ids, size_t capacity,
                                      size_t* count, cellm_error* error) {
  if (session == nullptr) return Report(InvalidArgument("session is null"), error);
  const std::vector<int32_t>& known = session->state->transcript.ids();
  return Report(WriteIds(known.data(), known.size(), ids, capacity, count), error);
}

cellm_status cellm_session_submit_tokens(cellm_session* session, const int32_t* ids, size_t count,
                                         const cellm_request_options* options, cellm_request** out,
                                         cellm_error* error) {
  if (session == nullptr || out == nullptr) {
    return Report(InvalidArgument("cellm_session_submit_tokens: session or out is null"), error);
  }
  ErrorDetails details;
  Result<std::unique_ptr<RequestState>> request =
      SubmitTokens(session, ids, count, options, &details);
  return Deliver(std::move(request), details, out, error);
}

cellm_status cellm_session_submit_text(cellm_session* session, const char* text, size_t text_bytes,
                                       const cellm_request_options* options, cellm_request** out,
                                       cellm_error* error) {
  if (session == nullptr || out == nullptr) {
    return Report(InvalidArgument("cellm_session_submit_text: session or out is null"), error);
  }
  ErrorDetails details;
  Result<std::unique_ptr<RequestState>> request =
      SubmitText(session, text, text_bytes, options, &details);
  return Deliver(std::move(request), details, out, error);
}

cellm_status cellm_session_submit_chat(cellm_session* session, const cellm_chat* chat,
                                       const cellm_request_options* options, cellm_request** out,
                                       cellm_error* error) {
  if (session == nullptr || chat == nullptr || out == nullptr) {
    return Report(InvalidArgument("cellm_session_submit_chat: session, chat or out is null"),
                  error);
  }
  ErrorDetails details;
  Result<std::unique_ptr<RequestState>> request = SubmitChat(session, chat, options, &details);
  return Deliver(std::move(request), details, out, error);
}

cellm_status cellm_request_next(cellm_request* request, cellm_token* token, cellm_error* error) {
  if (request == nullptr) return Report(InvalidArgument("request is null"), error);
  RequestState& state = *request->state;
  if (state.finish != CELLM_FINISH_NONE) {
    return Report(InvalidArgument("the reply has ended (%s)", cellm_finish_name(state.finish)),
                  error);
  }
  cellm_token filled;
  Status status = CheckSized(token, "token");
  if (status.ok()) status = NextToken(&state, &filled);
  if (!status.ok()) return Report(status, error, WithMemory(status, {}));
  return Report(WriteSized(filled, "token", token), error);
}

cellm_status cellm_request_run(cellm_request* request, cellm_token_fn callback, void* user,
                               cellm_error* error) {
  if (request == nullptr || callback == nullptr) {
    return Report(InvalidArgument("cellm_request_run: request or callback is null"), error);
  }
  for (;;) {
    cellm_token token = CELLM_TOKEN_INIT;
    const cellm_status status = cellm_request_next(request, &token, error);
    if (status != CELLM_OK) return status;
    // Nothing to say: a prompt that was only evaluated.
    const bool empty = token.token_id < 0 && token.text_bytes == 0;
    if (!empty && callback(&token, user) != 0) cellm_request_cancel(request);
    if (token.finish != CELLM_FINISH_NONE) return CELLM_OK;
  }
}

void cellm_request_cancel(cellm_request* request) {
  if (request != nullptr) request->state->cancelled.store(true, std::memory_order_relaxed);
}

void cellm_request_close(cellm_request* request) { delete request; }

cellm_status cellm_request_get_receipt(const cellm_request* request, cellm_receipt* receipt,
                                       cellm_error* error) {
  if (request == nullptr) return Report(InvalidArgument("request is null"), error);
  cellm_receipt filled;
  FillReceipt(*request->state, &filled);
  if (receipt != nullptr) filled.memory.struct_size = receipt->memory.struct_size;
  return Report(WriteSized(filled, "receipt", receipt), error);
}

}  // extern "C"
