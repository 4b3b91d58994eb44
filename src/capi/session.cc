// cellm_session and cellm_request: conversations and their replies.
#include <memory>
#include <utility>

#include "base/limits.h"
#include "capi/chat.h"
#include "capi/convert_args.h"
#include "capi/generation.h"
#include "capi/handles.h"
#include "capi/session_journal.h"
#include "engine/session_file.h"
#include "platform/file.h"

namespace cellm::capi {
namespace {

Status ReadSessionOptions(const cellm_session_options* given, cellm_session_options* out) {
  CELLM_RETURN_IF_ERROR(ReadSized(given, "session options", out));
  constexpr uint32_t kKnownFlags =
      CELLM_SESSION_PLAN_FIRST_REQUEST | CELLM_SESSION_PRIVATE | CELLM_SESSION_KEEP_JOURNAL;
  if ((out->flags & ~kKnownFlags) != 0) {
    return Unsupported("session options: unknown flags 0x%x", out->flags & ~kKnownFlags);
  }
  if (out->overflow < CELLM_OVERFLOW_STOP || out->overflow > CELLM_OVERFLOW_SLIDE) {
    return InvalidArgument("overflow is %d, which is no CELLM_OVERFLOW_ constant", out->overflow);
  }
  if (out->keep_tokens > static_cast<uint32_t>(limits::kMaxContext)) {
    return InvalidArgument("keep_tokens is %u; no context is longer than %d", out->keep_tokens,
                           limits::kMaxContext);
  }
  return OkStatus();
}

// InvalidArgument: not a class, or a weight or deadline out of bounds.
Status SetClass(SessionState* session, int32_t latency_class, uint32_t weight, uint32_t token_ms) {
  if (latency_class != CELLM_CLASS_INTERACTIVE && latency_class != CELLM_CLASS_BACKGROUND) {
    return InvalidArgument("latency_class is %d, which is no CELLM_CLASS_ constant", latency_class);
  }
  if (weight > 1000) return InvalidArgument("weight is %u; at most 1000 is taken", weight);
  session->latency_class = latency_class == CELLM_CLASS_BACKGROUND ? LatencyClass::kBackground
                                                                   : LatencyClass::kInteractive;
  session->weight = weight == 0 ? 1 : weight;
  session->token_interval_ns = int64_t{token_ms} * 1'000'000;
  return OkStatus();
}

ErrorDetails WithMemory(const Status& status, ErrorDetails details) {
  if (status.code() == StatusCode::kOutOfMemory) details.reason = CELLM_REASON_MEMORY;
  return details;
}

using SubmitResult = Result<std::shared_ptr<RequestState>>;

// The common end of the submit functions.
SubmitResult Submit(Serving::Lock& lock, const std::shared_ptr<SessionState>& session,
                    Prompt prompt, const cellm_request_options* options,
                    std::shared_ptr<constrain::Constraint> constraint, ErrorDetails* details) {
  RequestSettings settings;
  settings.constraint = std::move(constraint);
  settings.constrained = settings.constraint != nullptr;
  CELLM_RETURN_IF_ERROR(ReadRequestOptions(options, *session->engine->model,
                                           session->engine->weights->model->info.vocab_size,
                                           &settings));
  return StartRequest(lock, session, std::move(prompt), std::move(settings), details);
}

// Runs `submit(lock, session, constraint, details)` under the lock and hands the request out. The
// constraint is compiled before: it may take a while.
template <typename SubmitOne>
cellm_status SubmitAndDeliver(cellm_session* session, const cellm_request_options* options,
                              cellm_request** out, cellm_error* error, const SubmitOne& submit) {
  const std::shared_ptr<SessionState> state = Find(session);
  if (state == nullptr) return Report(NotOpen("session", session), error);
  if (out == nullptr) return Report(InvalidArgument("out is null"), error);
  ErrorDetails details;
  EngineState& engine = *state->engine;
  Result<std::shared_ptr<constrain::Constraint>> constraint =
      engine.constraints->Get(options, engine.model->tokenizer.get(), engine.end_ids,
                              engine.weights->model->info.vocab_size);
  if (!constraint.ok()) {
    return Report(constraint.status(), error, WithMemory(constraint.status(), details));
  }
  SubmitResult request = InvalidArgument("nothing was submitted");
  SessionMemory before;
  {
    Serving::Lock lock = engine.serving->Acquire();
    if (!engine.journal_folder.empty()) before = *state;
    request = submit(lock, state, std::move(constraint).value(), &details);
  }
  if (request.ok()) {
    // Nobody has heard of the request yet: when it cannot be journaled, it never was.
    const Status journaled = FlushJournal(state.get(), true);
    if (!journaled.ok()) {
      Serving::Lock lock = state->engine->serving->Acquire();
      FailRequest(lock, request.value().get());
      static_cast<SessionMemory&>(*state) = std::move(before);
      request = journaled;
    }
  }
  if (!request.ok()) return Report(request.status(), error, WithMemory(request.status(), details));
  cellm_request* const handle = Requests().Open(std::move(request).value());
  if (handle == nullptr) return Report(Busy("too many requests are open"), error);
  *out = handle;
  return CELLM_OK;
}

// The session's ids, ready for more to be added.
Prompt Continue(const SessionState& session) {
  Prompt prompt;
  prompt.ids = session.transcript.ids();
  return prompt;
}

SubmitResult SubmitText(Serving::Lock& lock, const std::shared_ptr<SessionState>& session,
                        const char* text, size_t text_bytes, const cellm_request_options* options,
                        std::shared_ptr<constrain::Constraint> constraint, ErrorDetails* details) {
  std::string_view view;
  CELLM_RETURN_IF_ERROR(ReadText(text, text_bytes, "text", &view));
  if (session->engine->model->tokenizer == nullptr) {
    return NotFound("%s has no tokenizer: give one, or use token ids",
                    session->engine->model->path.c_str());
  }
  cellm_request_options known;
  CELLM_RETURN_IF_ERROR(ReadSized(options, "request options", &known));
  Prompt prompt = Continue(*session);
  tokenizer::EncodeOptions encode;
  encode.parse_special = (known.flags & CELLM_REQUEST_PARSE_SPECIAL) != 0;
  encode.add_special = prompt.ids.empty() && (known.flags & CELLM_REQUEST_NO_SPECIAL) == 0;
  CELLM_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                         session->engine->model->tokenizer->Encode(view, encode));
  if (ids.empty()) {
    return InvalidArgument("the prompt is empty and the model has no token to begin with");
  }
  prompt.ids.insert(prompt.ids.end(), ids.begin(), ids.end());
  return Submit(lock, session, std::move(prompt), options, std::move(constraint), details);
}

SubmitResult SubmitTokens(Serving::Lock& lock, const std::shared_ptr<SessionState>& session,
                          const int32_t* ids, size_t count, const cellm_request_options* options,
                          std::shared_ptr<constrain::Constraint> constraint,
                          ErrorDetails* details) {
  if (ids == nullptr || count == 0) return InvalidArgument("the prompt has no tokens");
  if (count > static_cast<size_t>(limits::kMaxContext)) {
    return OutOfRange("the prompt has %zu tokens; no context is longer than %d", count,
                      limits::kMaxContext);
  }
  Prompt prompt = Continue(*session);
  prompt.ids.insert(prompt.ids.end(), ids, ids + count);
  return Submit(lock, session, std::move(prompt), options, std::move(constraint), details);
}

SubmitResult SubmitChat(Serving::Lock& lock, const std::shared_ptr<SessionState>& session,
                        const cellm_chat* chat, const cellm_request_options* options,
                        std::shared_ptr<constrain::Constraint> constraint, ErrorDetails* details) {
  const ModelState& model = *session->engine->model;
  cellm_chat known_chat;
  CELLM_RETURN_IF_ERROR(ReadSized(chat, "chat", &known_chat));
  std::string_view messages;
  CELLM_RETURN_IF_ERROR(ReadText(known_chat.messages, "messages", &messages));
  CELLM_ASSIGN_OR_RETURN(MarkedText rendering, RenderChat(model, chat, details));
  const Transcript& transcript = session->transcript;
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
  prompt.messages = messages;
  prompt.end_ids = model.chat_template.end_ids;
  return Submit(lock, session, std::move(prompt), options, std::move(constraint), details);
}

Result<std::shared_ptr<SessionState>> NewSession(const std::shared_ptr<EngineState>& engine,
                                                 const cellm_session_options* options) {
  cellm_session_options known;
  CELLM_RETURN_IF_ERROR(ReadSessionOptions(options, &known));
  auto state = std::make_shared<SessionState>();
  state->engine = engine;
  CELLM_RETURN_IF_ERROR(SetClass(state.get(), known.latency_class, known.weight, known.token_ms));
  state->flags = known.flags;
  state->overflow = known.overflow;
  state->keep_tokens = known.keep_tokens;
  if (engine->private_pasts || (known.flags & CELLM_SESSION_PRIVATE) != 0) {
    state->share_owner = std::make_shared<PrivatePasts>();
    state->share_owner->engine = engine;
    const Serving::Lock lock = engine->serving->Acquire();
    state->share_key = state->share_owner->share_key = engine->next_share_key++;
  }
  return state;
}

Status ReadPath(const char* path, size_t path_bytes, std::string_view* out) {
  CELLM_RETURN_IF_ERROR(ReadText(path, path_bytes, "path", out));
  if (out->empty() || out->find('\0') != std::string_view::npos) {
    return InvalidArgument("the path is empty or has a NUL byte");
  }
  return OkStatus();
}

Status Suspend(SessionState* session, const std::string& path, uint32_t flags) {
  EngineState& engine = *session->engine;
  Serving::Lock lock = engine.serving->Acquire();
  if (session->open_request != nullptr) return Busy("the session has an open request");
  SessionImage image;
  image.model_hash = ModelHash(*engine.weights->model);
  image.planned_tokens = session->planned_tokens;
  image.numerics = Numerics(*engine.engine, session->planned_tokens);
  image.tokens = session->transcript.ids();
  for (const Transcript::Mark& mark : session->transcript.marks()) {
    image.marks.push_back({mark.text_end, mark.id_count});
  }
  image.text = session->transcript.text().bytes;
  image.origins = session->transcript.text().trusted;
  image.overflow = session->overflow;
  image.keep_tokens = session->keep_tokens;
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<platform::FileWriter> out,
                         platform::SystemFiles().CreatePrivate(path));
  if ((flags & CELLM_SAVE_TOKENS_ONLY) != 0 || image.tokens.empty()) {
    CELLM_RETURN_IF_ERROR(WriteSession(*out, image, {}));
  } else {
    CELLM_RETURN_IF_ERROR(
        engine.serving->WithPast(lock, session->share_key, session->planned_tokens, image.tokens,
                                 [&](int32_t count, std::span<const std::span<uint8_t>> contents) {
                                   image.kept_tokens = count;
                                   return WriteSession(*out, image, contents);
                                 }));
  }
  return out->Commit();
}

Result<std::shared_ptr<SessionState>> Resume(const std::shared_ptr<EngineState>& engine,
                                             const std::string& path,
                                             const cellm_session_options* options,
                                             size_t* restored) {
  CELLM_ASSIGN_OR_RETURN(const platform::FileMapping file, platform::SystemFiles().Map(path));
  std::span<const uint8_t> contents;
  CELLM_ASSIGN_OR_RETURN(SessionImage image, ReadSession(file.bytes(), path, &contents));
  const Model& model = *engine->weights->model;
  if (image.model_hash != ModelHash(model)) {
    return Unsupported("%s: suspended on another model than %s", path.c_str(),
                       engine->model->path.c_str());
  }
  const size_t context = static_cast<size_t>(engine->engine->context_tokens());
  if (image.tokens.size() > context) {
    return OutOfRange("%s: %zu tokens, the context has %zu", path.c_str(), image.tokens.size(),
                      context);
  }
  for (const int32_t id : image.tokens) {
    if (id >= 0 && id < model.info.vocab_size) continue;
    return Corrupt("%s: id %d is outside the vocabulary of %d", path.c_str(), id,
                   model.info.vocab_size);
  }
  if (image.overflow < CELLM_OVERFLOW_STOP || image.overflow > CELLM_OVERFLOW_SLIDE) {
    return Corrupt("%s: overflow policy %d", path.c_str(), image.overflow);
  }
  CELLM_ASSIGN_OR_RETURN(std::shared_ptr<SessionState> session, NewSession(engine, options));
  session->overflow = image.overflow;
  session->keep_tokens = image.keep_tokens;
  session->planned_tokens = std::min(image.planned_tokens, static_cast<int32_t>(context));
  std::vector<Transcript::Mark> marks;
  for (const SessionImage::Mark& mark : image.marks) {
    marks.push_back({mark.text_end, mark.token_count});
  }
  const std::span<const int32_t> kept =
      std::span<const int32_t>(image.tokens).first(static_cast<size_t>(image.kept_tokens));
  const std::string mine = Numerics(*engine->engine, session->planned_tokens);
  if (image.kept_tokens > 0 && image.numerics != mine) {
    engine->model->log.Write(LogLevel::kWarning, "session",
                             path + ": written with " + image.numerics + "; this engine has " +
                                 mine + ": its tokens are evaluated again");
  } else if (image.kept_tokens > 0) {
    Serving::Lock lock = engine->serving->Acquire();
    const Status added =
        engine->serving->AddPast(lock, session->share_key, session->planned_tokens, kept, contents);
    if (added.ok()) {
      *restored = kept.size();
    } else if (added.code() != StatusCode::kOutOfMemory) {
      return Corrupt("%s: %s", path.c_str(), added.message().c_str());
    }
  }
  session->transcript = Transcript::Restore({std::move(image.text), std::move(image.origins)},
                                            std::move(image.tokens), std::move(marks));
  return session;
}

cellm_status OpenSession(std::shared_ptr<SessionState> state, cellm_session** out,
                         cellm_error* error) {
  cellm_session* const handle = Sessions().Open(std::move(state));
  if (handle == nullptr) return Report(Busy("too many sessions are open"), error);
  *out = handle;
  return CELLM_OK;
}

// The next token of a request. `for_callback`: whoever else asks is refused until EndCallback(), so
// that the token's text stays where it is while the callback looks at it.
cellm_status Advance(const std::shared_ptr<RequestState>& state, bool wait, bool for_callback,
                     cellm_token* token, int32_t* ready, cellm_error* error) {
  Status status = CheckSized(token, "token");
  if (!status.ok()) return Report(status, error);
  cellm_token filled;
  bool got = false;
  {
    Serving::Lock lock = state->session->engine->serving->Acquire();
    if (state->in_callback) {
      status = Busy("the request is in a callback of cellm_request_run");
    } else if (state->finish != CELLM_FINISH_NONE) {
      status = InvalidArgument("the reply has ended (%s)", cellm_finish_name(state->finish));
    } else if (state->waited_for) {
      status = Busy("another call waits for this request");
    } else {
      state->waited_for = true;
      status = NextToken(lock, state.get(), wait, &filled, &got);
      state->waited_for = false;
      state->in_callback = for_callback && got && status.ok();
    }
  }
  if (got || !status.ok()) {
    // What the caller is told is in the journal by then.
    const Status journaled =
        FlushJournal(state->session.get(), got && filled.finish != CELLM_FINISH_NONE);
    if (!journaled.ok()) {
      Serving::Lock lock = state->session->engine->serving->Acquire();
      FailRequest(lock, state.get());
      state->in_callback = false;
      status = journaled;
    }
  }
  if (!status.ok()) return Report(status, error, WithMemory(status, {}));
  if (ready != nullptr) *ready = got ? 1 : 0;
  if (!got) return CELLM_OK;
  return Report(WriteSized(filled, "token", token), error);
}

void EndCallback(RequestState* request) {
  const Serving::Lock lock = request->session->engine->serving->Acquire();
  request->in_callback = false;
}

}  // namespace
}  // namespace cellm::capi

using cellm::Busy;
using cellm::InvalidArgument;
using cellm::Result;
using cellm::Serving;
using cellm::Status;
using namespace cellm::capi;  // NOLINT: the C functions stand outside of namespaces

extern "C" {

cellm_status cellm_session_open(cellm_engine* engine, const cellm_session_options* options,
                                cellm_session** out, cellm_error* error) {
  const std::shared_ptr<EngineState> engine_state = Find(engine);
  if (engine_state == nullptr) return Report(NotOpen("engine", engine), error);
  if (out == nullptr) return Report(InvalidArgument("cellm_session_open: out is null"), error);
  Result<std::shared_ptr<SessionState>> state = NewSession(engine_state, options);
  if (!state.ok()) return Report(state.status(), error);
  return OpenSession(std::move(state).value(), out, error);
}

cellm_status cellm_session_save(cellm_session* session, const char* path, size_t path_bytes,
                                uint32_t flags, cellm_error* error) {
  const std::shared_ptr<SessionState> state = Find(session);
  if (state == nullptr) return Report(NotOpen("session", session), error);
  std::string_view view;
  Status status = ReadPath(path, path_bytes, &view);
  if (status.ok() && (flags & ~CELLM_SAVE_TOKENS_ONLY) != 0) {
    status = cellm::Unsupported("cellm_session_save: unknown flags 0x%x", flags);
  }
  if (status.ok()) status = Suspend(state.get(), std::string(view), flags);
  return Report(status, error);
}

cellm_status cellm_session_restore(cellm_engine* engine, const char* path, size_t path_bytes,
                                   const cellm_session_options* options, cellm_session** out,
                                   size_t* restored, cellm_error* error) {
  const std::shared_ptr<EngineState> engine_state = Find(engine);
  if (engine_state == nullptr) return Report(NotOpen("engine", engine), error);
  if (out == nullptr) return Report(InvalidArgument("cellm_session_restore: out is null"), error);
  std::string_view view;
  const Status status = ReadPath(path, path_bytes, &view);
  if (!status.ok()) return Report(status, error);
  size_t count = 0;
  Result<std::shared_ptr<SessionState>> state =
      Resume(engine_state, std::string(view), options, &count);
  if (!state.ok()) return Report(state.status(), error);
  {
    const Serving::Lock lock = engine_state->serving->Acquire();
    BeginJournal(state.value().get());
  }
  const Status journaled = FlushJournal(state.value().get(), true);
  if (!journaled.ok()) return Report(journaled, error);
  const cellm_status opened = OpenSession(std::move(state).value(), out, error);
  if (opened == CELLM_OK && restored != nullptr) *restored = count;
  return opened;
}

void cellm_session_close(cellm_session* session) { (void)Sessions().Close(session); }

cellm_status cellm_session_clear(cellm_session* session, cellm_error* error) {
  return cellm_session_rewind(session, 0, error);
}

cellm_status cellm_session_rewind(cellm_session* session, size_t position, cellm_error* error) {
  const std::shared_ptr<SessionState> state = Find(session);
  if (state == nullptr) return Report(NotOpen("session", session), error);
  {
    const Serving::Lock lock = state->engine->serving->Acquire();
    if (state->open_request != nullptr) {
      return Report(Busy("the session has an open request"), error);
    }
    const size_t held = state->transcript.ids().size();
    if (position > held) {
      return Report(cellm::OutOfRange("rewind to %zu: the session has %zu tokens", position, held),
                    error);
    }
    state->Rewind(position);
    JournalRewind(state.get(), position);
  }
  return Report(FlushJournal(state.get(), true), error);
}

cellm_status cellm_session_fork(cellm_session* session, cellm_session** out, cellm_error* error) {
  const std::shared_ptr<SessionState> state = Find(session);
  if (state == nullptr) return Report(NotOpen("session", session), error);
  if (out == nullptr) return Report(InvalidArgument("cellm_session_fork: out is null"), error);
  auto copy = std::make_shared<SessionState>();
  copy->engine = state->engine;
  {
    const Serving::Lock lock = state->engine->serving->Acquire();
    if (state->open_request != nullptr) {
      return Report(Busy("the session has an open request"), error);
    }
    copy->flags = state->flags;
    copy->latency_class = state->latency_class;
    copy->weight = state->weight;
    copy->token_interval_ns = state->token_interval_ns;
    copy->overflow = state->overflow;
    copy->share_key = state->share_key;
    copy->share_owner = state->share_owner;
    static_cast<SessionMemory&>(*copy) = *state;
    if (!copy->transcript.ids().empty()) BeginJournal(copy.get());
  }
  const Status journaled = FlushJournal(copy.get(), true);
  if (!journaled.ok()) return Report(journaled, error);
  return OpenSession(std::move(copy), out, error);
}

cellm_status cellm_session_set_class(cellm_session* session, int32_t latency_class, uint32_t weight,
                                     uint32_t token_ms, cellm_error* error) {
  const std::shared_ptr<SessionState> state = Find(session);
  if (state == nullptr) return Report(NotOpen("session", session), error);
  Status status;
  {
    const Serving::Lock lock = state->engine->serving->Acquire();
    status = SetClass(state.get(), latency_class, weight, token_ms);
    if (status.ok()) JournalClass(state.get());
  }
  if (status.ok()) status = FlushJournal(state.get(), true);
  return Report(status, error);
}

cellm_status cellm_session_get_tokens(const cellm_session* session, int32_t* ids, size_t capacity,
                                      size_t* count, cellm_error* error) {
  const std::shared_ptr<SessionState> state = Find(session);
  if (state == nullptr) return Report(NotOpen("session", session), error);
  const Serving::Lock lock = state->engine->serving->Acquire();
  const std::vector<int32_t>& known = state->transcript.ids();
  return Report(WriteIds(known.data(), known.size(), ids, capacity, count), error);
}

cellm_status cellm_session_submit_tokens(cellm_session* session, const int32_t* ids, size_t count,
                                         const cellm_request_options* options, cellm_request** out,
                                         cellm_error* error) {
  return SubmitAndDeliver(
      session, options, out, error,
      [&](Serving::Lock& lock, const auto& state, auto constraint, ErrorDetails* details) {
        return SubmitTokens(lock, state, ids, count, options, std::move(constraint), details);
      });
}

cellm_status cellm_session_submit_text(cellm_session* session, const char* text, size_t text_bytes,
                                       const cellm_request_options* options, cellm_request** out,
                                       cellm_error* error) {
  return SubmitAndDeliver(
      session, options, out, error,
      [&](Serving::Lock& lock, const auto& state, auto constraint, ErrorDetails* details) {
        return SubmitText(lock, state, text, text_bytes, options, std::move(constraint), details);
      });
}

cellm_status cellm_session_submit_chat(cellm_session* session, const cellm_chat* chat,
                                       const cellm_request_options* options, cellm_request** out,
                                       cellm_error* error) {
  if (chat == nullptr) return Report(InvalidArgument("chat is null"), error);
  return SubmitAndDeliver(
      session, options, out, error,
      [&](Serving::Lock& lock, const auto& state, auto constraint, ErrorDetails* details) {
        return SubmitChat(lock, state, chat, options, std::move(constraint), details);
      });
}

cellm_status cellm_request_next(cellm_request* request, cellm_token* token, cellm_error* error) {
  const std::shared_ptr<RequestState> state = Find(request);
  if (state == nullptr) return Report(NotOpen("request", request), error);
  return Advance(state, true, false, token, nullptr, error);
}

cellm_status cellm_request_poll(cellm_request* request, cellm_token* token, int32_t* ready,
                                cellm_error* error) {
  const std::shared_ptr<RequestState> state = Find(request);
  if (state == nullptr) return Report(NotOpen("request", request), error);
  if (ready == nullptr) return Report(InvalidArgument("ready is null"), error);
  return Advance(state, false, false, token, ready, error);
}

cellm_status cellm_request_run(cellm_request* request, cellm_token_fn callback, void* user,
                               cellm_error* error) {
  const std::shared_ptr<RequestState> state = Find(request);
  if (state == nullptr) return Report(NotOpen("request", request), error);
  if (callback == nullptr) return Report(InvalidArgument("callback is null"), error);
  // Not by the handle: who closes it, in the callback or elsewhere, cancels the reply.
  for (;;) {
    cellm_token token = CELLM_TOKEN_INIT;
    const cellm_status status = Advance(state, true, true, &token, nullptr, error);
    if (status != CELLM_OK) return status;
    // Nothing to say: a prompt that was only evaluated.
    const bool empty = token.token_id < 0 && token.text_bytes == 0;
    if (!empty && callback(&token, user) != 0) {
      state->cancel.store(true, std::memory_order_relaxed);
    }
    EndCallback(state.get());
    if (token.finish != CELLM_FINISH_NONE) return CELLM_OK;
  }
}

void cellm_request_cancel(cellm_request* request) {
  const std::shared_ptr<RequestState> state = Find(request);
  if (state != nullptr) state->cancel.store(true, std::memory_order_relaxed);
}

void cellm_request_close(cellm_request* request) {
  const std::shared_ptr<RequestState> state = Requests().Close(request);
  if (state == nullptr) return;
  // Another thread that waits for it learns that it was cancelled; the last one cleans up.
  state->cancel.store(true, std::memory_order_relaxed);
}

cellm_status cellm_request_get_receipt(const cellm_request* request, cellm_receipt* receipt,
                                       cellm_error* error) {
  const std::shared_ptr<RequestState> state = Find(request);
  if (state == nullptr) return Report(NotOpen("request", request), error);
  cellm_receipt filled;
  {
    const Serving::Lock lock = state->session->engine->serving->Acquire();
    FillReceipt(*state, &filled);
  }
  return Report(WriteSized(filled, "receipt", receipt), error);
}

}  // extern "C"
