#include "capi/generation.h"

#include <algorithm>
#include <utility>

#include "base/allocator.h"
#include "capi/generation_config.h"
#include "capi/session_journal.h"
#include "platform/clock.h"
#include "platform/entropy.h"

namespace cellm::capi {
namespace {

constexpr uint32_t kMaxTopLogprobs = 64;

int64_t NowNs() { return platform::MonotonicClock().NowNs(); }

// A seed of our own choice: few enough bits to survive JSON readers that hold numbers in doubles.
uint64_t DrawSeed() { return platform::RandomBits() >> 12; }

// How far a step may run ahead of the owner.
constexpr int32_t kTokensAhead = 4;

}  // namespace

Status ReadRequestOptions(const cellm_request_options* given, const ModelState& model,
                          int32_t vocabulary, RequestSettings* out) {
  cellm_request_options options;
  CELLM_RETURN_IF_ERROR(ReadSized(given, "request options", &options));
  if ((options.flags & ~kKnownRequestFlags) != 0) {
    return Unsupported("request options: unknown flags 0x%x", options.flags & ~kKnownRequestFlags);
  }
  if (options.top_logprobs > kMaxTopLogprobs) {
    return InvalidArgument("top_logprobs is %u; at most %u are given", options.top_logprobs,
                           kMaxTopLogprobs);
  }
  cellm_sampling sampling;
  CELLM_RETURN_IF_ERROR(ReadSized(options.sampling, "sampling", &sampling));
  CELLM_ASSIGN_OR_RETURN(out->sampling, ApplySampling(model.sampling, sampling, vocabulary));
  out->has_seed = (sampling.given & CELLM_SAMPLING_SEED) != 0;
  out->seed = sampling.seed;
  if (options.stop_count > 0 && options.stops == nullptr) {
    return InvalidArgument("stops is null but has %zu entries", options.stop_count);
  }
  if (options.stop_count > sample::kMaxStopStrings) {
    return InvalidArgument("%zu stop strings; at most %zu are taken", options.stop_count,
                           sample::kMaxStopStrings);
  }
  for (size_t i = 0; i < options.stop_count; ++i) {
    std::string_view stop;
    CELLM_RETURN_IF_ERROR(ReadText(options.stops[i], "a stop string", &stop));
    out->stops.emplace_back(stop);
  }
  if (options.stop_id_count > 0 && options.stop_ids == nullptr) {
    return InvalidArgument("stop_ids is null but has %zu entries", options.stop_id_count);
  }
  if (options.stop_id_count > static_cast<size_t>(vocabulary)) {
    return InvalidArgument("%zu stop ids, the vocabulary has %d", options.stop_id_count,
                           vocabulary);
  }
  for (size_t i = 0; i < options.stop_id_count; ++i) {
    if (options.stop_ids[i] < 0 || options.stop_ids[i] >= vocabulary) {
      return InvalidArgument("stop id %zu is %d; the vocabulary has %d", i, options.stop_ids[i],
                             vocabulary);
    }
  }
  out->stop_ids.assign(options.stop_ids, options.stop_ids + options.stop_id_count);
  out->flags = options.flags;
  out->max_tokens = options.max_tokens;
  out->top_logprobs = options.top_logprobs;
  out->progress = options.progress;
  out->progress_user = options.progress_user;
  out->stop_flag = options.stop_flag;
  std::string_view constraint;
  CELLM_RETURN_IF_ERROR(ReadText(options.constraint_text, "constraint_text", &constraint));
  out->constraint_kind = options.constraint;
  out->constraint_text = constraint;
  return OkStatus();
}

namespace {

// The length to plan for: the whole context, unless the session is made for one request.
int32_t PlannedTokens(const SessionState& session, size_t prompt_tokens,
                      const RequestSettings& settings) {
  const int32_t context = session.engine->engine->context_tokens();
  if ((session.flags & CELLM_SESSION_PLAN_FIRST_REQUEST) == 0) return context;
  const bool prompt_only = (settings.flags & CELLM_REQUEST_PROMPT_ONLY) != 0;
  if (!prompt_only && settings.max_tokens == 0) return context;
  const uint64_t total = prompt_tokens + (prompt_only ? 0 : settings.max_tokens);
  return static_cast<int32_t>(std::min<uint64_t>(total, static_cast<uint64_t>(context)));
}

Status CheckIds(std::span<const int32_t> ids, int32_t vocabulary) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocabulary) {
      return InvalidArgument("token %zu of the prompt is %d; the vocabulary has %d", i, ids[i],
                             vocabulary);
    }
  }
  return OkStatus();
}

}  // namespace

Status PrepareReply(RequestState* request, std::span<const int32_t> ids,
                    std::span<const int32_t> chat_end_ids) {
  EngineState& engine = *request->session->engine;
  const RequestSettings& settings = request->settings;
  const int32_t vocabulary = engine.weights->model->info.vocab_size;
  CELLM_ASSIGN_OR_RETURN(
      request->sampler,
      sample::Sampler::Create(settings.sampling, vocabulary,
                              settings.has_seed ? settings.seed : DrawSeed(),
                              *engine.memory->allocator, settings.constraint != nullptr));
  for (const int32_t id : ids) request->sampler->Accept(id);
  CELLM_ASSIGN_OR_RETURN(request->stops, sample::StopMatcher::Create(settings.stops));
  if ((settings.flags & CELLM_REQUEST_IGNORE_END) == 0) {
    for (const int32_t id : engine.end_ids.ids()) request->end_ids.Add(id);
    for (const int32_t id : chat_end_ids) request->end_ids.Add(id);
  }
  for (const int32_t id : settings.stop_ids) request->end_ids.Add(id);
  const bool skip_special = (settings.flags & CELLM_REQUEST_SHOW_SPECIAL) == 0;
  if (engine.model->tokenizer != nullptr) {
    request->decoder = std::make_unique<tokenizer::StreamDecoder>(
        *engine.model->tokenizer, skip_special, settings.constrained);
  }
  if (settings.constraint != nullptr) {
    CELLM_ASSIGN_OR_RETURN(request->constrained,
                           ConstrainedReply::Create(settings.constraint, *engine.model->tokenizer,
                                                    vocabulary, *engine.memory->allocator));
  }
  if ((settings.flags & CELLM_REQUEST_LOGPROBS) != 0) {
    request->top.resize(settings.top_logprobs);
    request->scratch.resize(std::min<size_t>(2 * static_cast<size_t>(settings.top_logprobs),
                                             static_cast<size_t>(vocabulary)));
  }
  return OkStatus();
}

namespace {

void FillLogprobs(RequestState* request, std::span<const float> row, Shown* shown) {
  if ((request->settings.flags & CELLM_REQUEST_LOGPROBS) == 0) return;
  const double log_sum = sample::LogSumExp(row);
  shown->logprob =
      static_cast<float>(static_cast<double>(row[static_cast<size_t>(shown->id)]) - log_sum);
  const size_t count = sample::TopLogProbs(row, log_sum, request->scratch, request->top);
  for (size_t i = 0; i < count; ++i) {
    shown->top.push_back({request->top[i].id, request->top[i].log_prob});
  }
}

// What was held back is shown at the end.
void FlushText(RequestState* request, Shown* shown) {
  if (request->decoder == nullptr) return;
  Result<std::string> flushed = request->decoder->Flush();
  const std::string rest = flushed.ok() ? std::move(flushed).value() : std::string();
  shown->raw += rest;
  if (request->stops.matched()) return;
  if (!request->stops.Push(rest, &shown->text)) request->stops.Flush(&shown->text);
}

// What the choice of `id` does to sampler, decoder and stop strings, and what of it can be shown.
Result<Shown> Follow(RequestState* request, int32_t id) {
  request->sampler->Accept(id);
  Shown shown;
  shown.id = id;
  ++request->chosen;
  ++request->context_used;
  const bool visible =
      !request->end_ids.Contains(id) || (request->settings.flags & CELLM_REQUEST_SHOW_SPECIAL) != 0;
  if (visible && request->decoder != nullptr) {
    shown.special = request->session->engine->model->tokenizer->IsSpecial(id);
    CELLM_ASSIGN_OR_RETURN(shown.raw, request->decoder->Push(id));
    if (request->stops.Push(shown.raw, &shown.text)) shown.finish = CELLM_FINISH_STOP;
  }
  return shown;
}

// Decides about a token that was chosen: text, stop rules, limits. `row` is what it was chosen
// from, empty when it needed no choice. `more_follow`: the constraint is ahead of this token. True
// when it is the last.
Result<bool> StageToken(RequestState* request, int32_t id, std::span<const float> row,
                        bool more_follow) {
  CELLM_ASSIGN_OR_RETURN(Shown shown, Follow(request, id));
  request->chosen_ids.push_back(id);
  shown.chosen_ns = NowNs();
  if (!row.empty()) FillLogprobs(request, row, &shown);
  const SessionState& session = *request->session;
  const bool ends = request->end_ids.Contains(id);
  // Without end ids nobody can say that a constrained text is over.
  bool complete = false;
  if (request->constrained != nullptr && request->end_ids.ids().empty() && !more_follow) {
    CELLM_ASSIGN_OR_RETURN(complete, request->constrained->IsComplete());
  }
  const size_t context = static_cast<size_t>(session.engine->engine->context_tokens());
  if (shown.finish == CELLM_FINISH_STOP) {
    // Nothing that comes after it matters.
  } else if (ends) {
    shown.finish = CELLM_FINISH_END;
  } else if (complete) {
    shown.finish = CELLM_FINISH_STOP;
  } else if (request->settings.max_tokens > 0 && request->chosen >= request->settings.max_tokens) {
    shown.finish = CELLM_FINISH_LENGTH;
  } else if (request->context_used >= context) {
    shown.overflows =
        session.overflow == CELLM_OVERFLOW_SHIFT || session.overflow == CELLM_OVERFLOW_SLIDE;
    if (!shown.overflows) shown.finish = CELLM_FINISH_CONTEXT;
  }
  const bool last = shown.finish != CELLM_FINISH_NONE || shown.overflows;
  if (shown.finish != CELLM_FINISH_NONE) FlushText(request, &shown);
  request->staged.push_back(std::move(shown));
  return last;
}

// How many tokens may be added before a limit is reached.
size_t TokensLeft(const RequestState& request) {
  const size_t context = static_cast<size_t>(request.session->engine->engine->context_tokens());
  size_t left = context > request.context_used ? context - request.context_used : 0;
  const size_t most = request.settings.max_tokens;
  if (most > 0) left = std::min(left, most > request.chosen ? most - request.chosen : 0);
  return left;
}

// The tokens that a constraint makes certain. With log-probabilities every token is evaluated by
// itself, as each needs its row.
Result<std::span<const int32_t>> TakeCertain(RequestState* request) {
  if ((request->settings.flags & CELLM_REQUEST_LOGPROBS) != 0) return std::span<const int32_t>();
  return request->constrained->TakeCertain(TokensLeft(*request), request->end_ids);
}

// Adds them. True when one of them is the last.
Result<bool> StageCertain(RequestState* request) {
  const std::vector<int32_t> repeated = std::exchange(request->certain, {});
  std::span<const int32_t> certain(repeated);
  if (certain.empty()) {
    CELLM_ASSIGN_OR_RETURN(certain, TakeCertain(request));
  }
  for (size_t i = 0; i < certain.size(); ++i) {
    CELLM_ASSIGN_OR_RETURN(const bool last,
                           StageToken(request, certain[i], {}, i + 1 < certain.size()));
    if (last) return true;
  }
  return false;
}

// The tokens of one step: one from `row`, and around it those that are certain.
Result<Choice> ChooseTokens(RequestState* request, std::span<const float> row) {
  request->chosen_ids.clear();
  bool last = false;
  ConstrainedReply* const constrained = request->constrained.get();
  if (constrained != nullptr) {
    CELLM_ASSIGN_OR_RETURN(last, StageCertain(request));
  }
  if (request->chosen_ids.empty()) {
    CELLM_ASSIGN_OR_RETURN(
        const int32_t id, constrained == nullptr
                              ? request->sampler->Sample(row)
                              : constrained->Sample(request->sampler.get(), row, request->end_ids));
    CELLM_ASSIGN_OR_RETURN(last, StageToken(request, id, row, false));
    if (constrained != nullptr && !last) {
      CELLM_ASSIGN_OR_RETURN(last, StageCertain(request));
    }
  }
  const std::span<const int32_t> ids(request->chosen_ids);
  return Choice{ids[0], last, ids.subspan(1)};
}

Result<Choice> Choose(void* user, std::span<const float> row) {
  return ChooseTokens(static_cast<RequestState*>(user), row);
}

bool IsCancelled(void* user) { return static_cast<RequestState*>(user)->cancelled(); }

// Under the lock: what was chosen goes to the owner; an end that nobody chose too.
void Publish(void* user) {
  RequestState& request = *static_cast<RequestState*>(user);
  for (Shown& shown : request.staged) request.queue.push_back(std::move(shown));
  request.staged.clear();
}

bool BrokenOff(int32_t finish) {
  return finish == CELLM_FINISH_CANCELLED || finish == CELLM_FINISH_ERROR;
}

// The text of what was said, from its ids.
std::string TextOfReply(const RequestState& request) {
  std::string text;
  if (request.decoder == nullptr) return text;
  const bool shows_special = (request.settings.flags & CELLM_REQUEST_SHOW_SPECIAL) != 0;
  tokenizer::StreamDecoder decoder(*request.session->engine->model->tokenizer, !shows_special,
                                   request.settings.constrained);
  for (const int32_t id : request.reply) {
    if (request.end_ids.Contains(id) && !shows_special) continue;
    const Result<std::string> piece = decoder.Push(id);
    if (piece.ok()) text += piece.value();
  }
  const Result<std::string> rest = decoder.Flush();
  return rest.ok() ? text + rest.value() : text;
}

// The end of a request whose last token did not say so: cancelled, failed, or only evaluated.
Shown EndWithoutToken(RequestState* request, const RequestProgress& progress) {
  Shown shown;
  const bool prompt_only = (request->settings.flags & CELLM_REQUEST_PROMPT_ONLY) != 0;
  switch (progress.end) {
    case RequestEnd::kCancelled:
      shown.finish = CELLM_FINISH_CANCELLED;
      break;
    case RequestEnd::kFailed:
      shown.finish = CELLM_FINISH_ERROR;
      request->failure = progress.status;
      break;
    default:
      shown.finish = prompt_only ? CELLM_FINISH_LENGTH : CELLM_FINISH_CONTEXT;
  }
  // Of a reply that was broken off the decoder may hold more than was said: it is ahead.
  if (!BrokenOff(shown.finish)) FlushText(request, &shown);
  return shown;
}

// Of ids that do not fit: how many stay of their beginning and of their end.
struct KeptParts {
  size_t begin = 0, end = 0;
};
// The first `keep`, and the later half of the rest.
KeptParts PartsToKeep(size_t count, size_t keep, size_t context) {
  keep = std::min(keep, context / 2);
  const size_t rest = std::max<size_t>(1, (context - keep) / 2);
  if (count <= keep + rest) return {count, 0};
  return {keep, rest};
}
std::vector<int32_t> Keep(std::span<const int32_t> ids, KeptParts parts) {
  std::vector<int32_t> kept(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(parts.begin));
  kept.insert(kept.end(), ids.end() - static_cast<std::ptrdiff_t>(parts.end), ids.end());
  return kept;
}

// How many ids of the beginning a session keeps when it forgets.
size_t KeptTokens(const SessionState& session, std::span<const int32_t> ids) {
  const EngineState& engine = *session.engine;
  if (session.overflow == CELLM_OVERFLOW_SLIDE) {
    const int32_t bos = engine.weights->model->info.bos_id;
    return !ids.empty() && bos >= 0 && ids[0] == bos ? 1 : 0;
  }
  return session.keep_tokens;
}

// The length that the request itself may reach, so that it is let in when that fits, even if a
// whole context would not; the session's plan where that decides how positions are computed.
int32_t PlanOf(const RequestState& request, size_t held) {
  const int32_t planned = request.session->planned_tokens;
  const Engine& engine = *request.session->engine->engine;
  const bool prompt_only = (request.settings.flags & CELLM_REQUEST_PROMPT_ONLY) != 0;
  if (!prompt_only && request.settings.max_tokens == 0) return planned;
  const uint64_t more = prompt_only || request.chosen >= request.settings.max_tokens
                            ? 0
                            : request.settings.max_tokens - request.chosen;
  const uint64_t needed = held + more;
  if (needed >= static_cast<uint64_t>(planned)) return planned;
  const int32_t own = static_cast<int32_t>(needed);
  return engine.LengthClass(own) == engine.LengthClass(planned) ? own : planned;
}

Status Hand(Serving::Lock& lock, RequestState* request, std::vector<int32_t> ids) {
  SessionState& session = *request->session;
  const EngineState& engine = *session.engine;
  const size_t context = static_cast<size_t>(engine.engine->context_tokens());
  request->context_used = ids.size();
  RequestSpec spec;
  spec.planned_tokens = PlanOf(*request, ids.size());
  // A prompt that fills the context is evaluated, but nothing can follow it.
  spec.wants_logits =
      (request->settings.flags & CELLM_REQUEST_PROMPT_ONLY) == 0 && ids.size() < context;
  spec.tokens = std::move(ids);
  spec.latency_class = session.latency_class;
  spec.weight = session.weight;
  spec.token_interval_ns = session.token_interval_ns;
  spec.share_key = session.share_key;
  spec.keep_past = (request->settings.flags & CELLM_REQUEST_KEEP_NOTHING) == 0;
  spec.hooks = {request, &IsCancelled, &Choose, &Publish};
  CELLM_ASSIGN_OR_RETURN(request->id, engine.serving->Submit(lock, std::move(spec)));
  return OkStatus();
}

void NoteProgress(const Serving::Lock& lock, RequestState* request) {
  if (request->id == 0) return;
  const RequestProgress& progress = request->session->engine->serving->progress(lock, request->id);
  request->reused_tokens = static_cast<size_t>(progress.reused);
  request->preemptions = static_cast<uint64_t>(progress.preemptions);
  request->demoted_tokens =
      static_cast<size_t>(request->session->engine->engine->DemotedTokens(progress.evaluated));
  if (request->forgotten_tokens > 0) return;  // the receipt is about the prompt that was given
  request->prompt_begin_ns = progress.prompt_begin_ns;
  request->prompt_end_ns = progress.prompt_end_ns;
}

// The reply is over: the session learns what was said.
void FinishReply(RequestState* request, int32_t finish) {
  request->finish = finish;
  SessionState& session = *request->session;
  if (session.open_request == request) session.open_request = nullptr;
  session.said = request->said;
  session.has_said = request->chosen > 0;
  if (request->forgotten_tokens > 0) return;  // the transcript was rebuilt; its texts are gone
  if (BrokenOff(finish)) request->reply_text = TextOfReply(*request);
  // The ids went to the transcript one by one; now that the text is complete, mark its end.
  const bool ended = finish == CELLM_FINISH_END;
  const size_t said = request->reply.size() - (ended ? 1 : 0);
  session.transcript.Truncate(session.transcript.ids().size() - request->reply.size());
  const std::span<const int32_t> ids(request->reply);
  if (request->is_chat && said > 0 && !request->reply_has_special) {
    session.transcript.AppendReply(request->reply_text, ids.first(said));
  } else {
    session.transcript.AppendIds(ids.first(said));
  }
  session.transcript.AppendIds(ids.subspan(said));
}

void LetGo(Serving::Lock& lock, RequestState* request) {
  NoteProgress(lock, request);
  const uint64_t id = std::exchange(request->id, 0);
  if (id != 0) request->session->engine->serving->Close(lock, id);
}

// The current token becomes part of the session.
void Say(RequestState* request) {
  const Shown& shown = request->current;
  if (shown.id >= 0) {
    if (request->reply.empty()) request->first_ns = shown.chosen_ns;
    request->last_ns = shown.chosen_ns;
    request->reply.push_back(shown.id);
    request->session->transcript.AppendIds({&shown.id, 1});
    request->reply_has_special |= shown.special;
  }
  request->reply_text += shown.raw;
  request->said += shown.text;
}

// The context is full and the session forgets: the request goes on with what is left.
Status GoOnShorter(Serving::Lock& lock, RequestState* request) {
  SessionState& session = *request->session;
  const size_t context = static_cast<size_t>(session.engine->engine->context_tokens());
  LetGo(lock, request);
  const std::vector<int32_t>& ids = session.transcript.ids();
  const KeptParts kept = PartsToKeep(ids.size(), KeptTokens(session, ids), context);
  JournalToken(&session, request->current.id, CELLM_FINISH_NONE, kept.begin, kept.end);
  Forget(request, kept.begin, kept.end);
  return Hand(lock, request, session.transcript.ids());
}

// The front of the queue becomes the current token and part of the session.
Status TakeFront(Serving::Lock& lock, RequestState* request) {
  request->current = std::move(request->queue.front());
  request->queue.pop_front();
  const Shown& shown = request->current;
  Say(request);
  if (shown.overflows) return GoOnShorter(lock, request);
  const bool overflow =
      shown.finish == CELLM_FINISH_CONTEXT && request->session->overflow == CELLM_OVERFLOW_ERROR;
  const int32_t finish = overflow ? CELLM_FINISH_ERROR : shown.finish;
  JournalToken(request->session.get(), shown.id, finish, 0, 0);
  if (finish == CELLM_FINISH_NONE) return OkStatus();
  LetGo(lock, request);
  FinishReply(request, finish);
  if (overflow) {
    const int32_t context = request->session->engine->engine->context_tokens();
    return OutOfRange("the reply needs more than the context of %d tokens", context);
  }
  return shown.finish == CELLM_FINISH_ERROR ? request->failure : OkStatus();
}

}  // namespace

Result<std::shared_ptr<RequestState>> StartRequest(Serving::Lock& lock,
                                                   const std::shared_ptr<SessionState>& session,
                                                   Prompt prompt, RequestSettings settings,
                                                   ErrorDetails* details) {
  EngineState& engine = *session->engine;
  if (session->open_request != nullptr) return Busy("the session has an open request");
  BeginJournal(session.get());
  if (prompt.ids.empty()) {
    return InvalidArgument("the prompt is empty and the model has no token to begin with");
  }
  CELLM_RETURN_IF_ERROR(CheckIds(prompt.ids, engine.weights->model->info.vocab_size));
  const size_t context = static_cast<size_t>(engine.engine->context_tokens());
  auto request = std::make_shared<RequestState>();
  std::vector<int32_t> ids = prompt.ids;
  if (ids.size() > context) {
    const bool forgets =
        session->overflow == CELLM_OVERFLOW_SHIFT || session->overflow == CELLM_OVERFLOW_SLIDE;
    if (!forgets) {
      *details = {CELLM_REASON_CONTEXT_LENGTH, ids.size(), context, {}};
      return OutOfRange("the prompt needs %zu tokens, the context has %zu", ids.size(), context);
    }
    ids = Keep(ids, PartsToKeep(ids.size(), KeptTokens(*session, ids), context));
    request->forgotten_tokens = prompt.ids.size() - ids.size();
  } else if (session->overflow == CELLM_OVERFLOW_SHIFT && session->keep_tokens == 0) {
    session->keep_tokens = static_cast<uint32_t>(std::min(ids.size(), context / 2));
  }
  request->session = session;
  request->settings = std::move(settings);
  request->is_chat = prompt.is_chat;
  request->submit_ns = NowNs();
  const int32_t planned = session->planned_tokens;
  Status started = PrepareReply(request.get(), ids, prompt.end_ids);
  if (started.ok()) {
    session->planned_tokens =
        std::max(session->planned_tokens, PlannedTokens(*session, ids.size(), request->settings));
    request->prompt_tokens = prompt.ids.size();
    started = Hand(lock, request.get(), ids);
  }
  if (!started.ok()) {
    session->planned_tokens = planned;
    request->finish = CELLM_FINISH_ERROR;  // it has nothing to give back when it goes, here
    return started;
  }
  JournalRequest(session.get(), *request, prompt, ids);
  session->messages = prompt.messages;
  session->has_said = false;
  if (request->forgotten_tokens > 0) {
    session->transcript.Clear();
    session->transcript.AppendIds(ids);
  } else if (prompt.is_chat) {
    session->transcript.SetPrompt(prompt.mark, prompt.rendering, prompt.ids);
  } else {
    session->transcript.AppendIds(
        std::span<const int32_t>(prompt.ids).subspan(session->transcript.ids().size()));
  }
  session->open_request = request.get();
  return request;
}

Status NextToken(Serving::Lock& lock, RequestState* request, bool wait, cellm_token* out,
                 bool* ready) {
  Serving& serving = *request->session->engine->serving;
  serving.AllowTokens(lock, request->id, kTokensAhead);
  const bool reports = request->settings.progress != nullptr;
  const auto something = [&] {
    if (!request->queue.empty() || request->cancelled()) return true;
    const RequestProgress& progress = serving.progress(lock, request->id);
    return progress.end != RequestEnd::kNone ||
           (reports && progress.evaluated > request->progress_shown &&
            request->progress_shown < progress.prompt_tokens);
  };
  for (;;) {
    if (wait) {
      CELLM_RETURN_IF_ERROR(serving.WaitUntil(lock, something));
    } else if (!something()) {
      *ready = false;
      return OkStatus();
    }
    const RequestProgress progress = serving.progress(lock, request->id);
    const bool cancelled = request->cancelled();
    if (reports && !cancelled && progress.evaluated > request->progress_shown &&
        request->progress_shown < progress.prompt_tokens) {
      request->progress_shown = progress.evaluated;
      const int32_t done = std::min(progress.evaluated, progress.prompt_tokens);
      lock.unlock();
      const bool stop = request->settings.progress(static_cast<uint64_t>(done),
                                                   static_cast<uint64_t>(progress.prompt_tokens),
                                                   request->settings.progress_user) != 0;
      lock.lock();
      if (stop) request->cancel.store(true, std::memory_order_relaxed);
      continue;
    }
    // What was computed ahead when the owner said stop was never said.
    if (cancelled) {
      request->queue.clear();
      LetGo(lock, request);
      RequestProgress end;
      end.end = RequestEnd::kCancelled;
      request->queue.push_back(EndWithoutToken(request, end));
    }
    if (request->queue.empty()) {
      if (progress.end == RequestEnd::kNone) continue;
      request->queue.push_back(EndWithoutToken(request, progress));
    }
    break;
  }
  *ready = true;
  const Status taken = TakeFront(lock, request);
  if (!taken.ok()) {
    FailRequest(lock, request);
    return taken;
  }
  const Shown& shown = request->current;
  *out = CELLM_TOKEN_INIT;
  out->token_id = shown.id;
  out->text = shown.text.data();
  out->text_bytes = shown.text.size();
  out->finish = shown.finish;
  out->logprob = shown.logprob;
  out->top = shown.top.data();
  out->top_count = shown.top.size();
  return OkStatus();
}

namespace {

// The end of a reply that no token brings.
void EndRequest(Serving::Lock& lock, RequestState* request, int32_t finish) {
  LetGo(lock, request);
  if (request->finish != CELLM_FINISH_NONE) return;
  JournalToken(request->session.get(), -1, finish, 0, 0);
  FinishReply(request, finish);
}

}  // namespace

void FailRequest(Serving::Lock& lock, RequestState* request) {
  EndRequest(lock, request, CELLM_FINISH_ERROR);
}

void CloseRequest(Serving::Lock& lock, RequestState* request) {
  EndRequest(lock, request, CELLM_FINISH_CANCELLED);
}

RequestState::~RequestState() {
  if (session == nullptr || (id == 0 && finish != CELLM_FINISH_NONE)) return;
  {
    Serving::Lock lock = session->engine->serving->Acquire();
    CloseRequest(lock, this);
  }
  // Nobody waits to hear that a reply was given up, so a failure waits for the next request.
  (void)FlushJournal(session.get(), false).ok();
}

// What ChooseTokens() did to the constraint when it came to `id`. True when it was drawn.
static Result<bool> RepeatChoice(RequestState* request, int32_t id) {
  if (request->constrained == nullptr) return true;
  std::vector<int32_t>& certain = request->certain;
  if (certain.empty()) {
    CELLM_ASSIGN_OR_RETURN(const std::span<const int32_t> now, TakeCertain(request));
    certain.assign(now.begin(), now.end());
  }
  if (certain.empty()) {
    CELLM_RETURN_IF_ERROR(request->constrained->Follow(id, request->end_ids));
    return true;
  }
  if (certain.front() != id) {
    return InvalidArgument("token %d, where the constraint makes %d certain", id, certain.front());
  }
  certain.erase(certain.begin());
  return false;
}

Status RepeatToken(RequestState* request, int32_t id, int32_t finish) {
  if (id >= 0) {
    CELLM_ASSIGN_OR_RETURN(const bool drawn, RepeatChoice(request, id));
    if (drawn) request->sampler->SkipDraw();
    CELLM_ASSIGN_OR_RETURN(request->current, Follow(request, id));
  } else {
    request->current = Shown();
  }
  const bool was_flushed = finish != CELLM_FINISH_NONE && (id >= 0 || !BrokenOff(finish));
  if (was_flushed) FlushText(request, &request->current);
  request->current.finish = finish;
  Say(request);
  if (finish != CELLM_FINISH_NONE) FinishReply(request, finish);
  return OkStatus();
}

void Forget(RequestState* request, size_t begin, size_t end) {
  Transcript& transcript = request->session->transcript;
  const std::vector<int32_t> kept = Keep(transcript.ids(), {begin, end});
  request->forgotten_tokens += transcript.ids().size() - kept.size();
  transcript.Clear();
  transcript.AppendIds(kept);
}

Status GoOn(Serving::Lock& lock, RequestState* request) {
  return Hand(lock, request, request->session->transcript.ids());
}

void FillMemory(const EngineState& engine, cellm_memory* memory) {
  const BudgetAllocator& budget = *engine.memory->allocator;
  *memory = CELLM_MEMORY_INIT;
  memory->weights = budget.used_bytes(MemoryClass::kWeights);
  memory->cache = budget.used_bytes(MemoryClass::kCache);
  memory->activations = budget.used_bytes(MemoryClass::kActivations);
  memory->tokenizer = budget.used_bytes(MemoryClass::kTokenizer);
  memory->other = budget.used_bytes(MemoryClass::kOther);
  memory->used = budget.used_bytes();
  memory->peak = budget.peak_bytes();
}

void FillReceipt(const RequestState& request, cellm_receipt* receipt) {
  *receipt = CELLM_RECEIPT_INIT;
  receipt->finish = request.finish;
  receipt->prompt_tokens = request.prompt_tokens;
  receipt->reused_tokens = request.reused_tokens;
  receipt->generated_tokens = request.reply.size();
  receipt->seed = request.sampler->seed();
  if (request.prompt_end_ns > 0) {
    receipt->prompt_ns = static_cast<uint64_t>(request.prompt_end_ns - request.prompt_begin_ns);
  }
  const uint64_t evaluated =
      request.prompt_tokens - std::min(request.reused_tokens, request.prompt_tokens);
  receipt->preemptions = request.preemptions;
  receipt->forgotten_tokens = request.forgotten_tokens;
  receipt->demoted_tokens = request.demoted_tokens;
  if (request.prompt_begin_ns > 0) {
    receipt->queue_ns = static_cast<uint64_t>(request.prompt_begin_ns - request.submit_ns);
  }
  if (receipt->prompt_ns > 0) {
    receipt->prompt_tokens_per_second =
        static_cast<double>(evaluated) * 1e9 / static_cast<double>(receipt->prompt_ns);
  }
  if (!request.reply.empty()) {
    receipt->first_token_ns = static_cast<uint64_t>(request.first_ns - request.submit_ns);
    receipt->decode_ns = static_cast<uint64_t>(request.last_ns - request.first_ns);
  }
  if (receipt->decode_ns > 0) {
    receipt->decode_tokens_per_second = static_cast<double>(request.reply.size() - 1) * 1e9 /
                                        static_cast<double>(receipt->decode_ns);
  }
  FillMemory(*request.session->engine, &receipt->memory);
}

}  // namespace cellm::capi
