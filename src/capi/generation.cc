#include "capi/generation.h"

#include <algorithm>
#include <utility>

#include "base/allocator.h"
#include "capi/generation_config.h"
#include "platform/clock.h"
#include "platform/entropy.h"

namespace cellm::capi {
namespace {

constexpr uint32_t kMaxTopLogprobs = 64;

int64_t NowNs() { return platform::MonotonicClock().NowNs(); }

// A seed of our own choice: few enough bits to survive JSON readers that hold numbers in doubles.
uint64_t DrawSeed() { return platform::RandomBits() >> 12; }

size_t Position(const SessionState& session) {
  if (!session.has_sequence) return 0;
  const Result<int32_t> position = session.engine->engine->Position(session.sequence);
  return position.ok() ? static_cast<size_t>(position.value()) : 0;
}

}  // namespace

SessionState::~SessionState() {
  if (has_sequence) (void)engine->engine->FreeSequence(sequence).ok();
}

Status ReadRequestOptions(const cellm_request_options* given, const ModelState& model,
                          int32_t vocabulary, RequestSettings* out) {
  cellm_request_options options;
  CELLM_RETURN_IF_ERROR(ReadSized(given, "request options", &options));
  constexpr uint32_t kKnownFlags = CELLM_REQUEST_IGNORE_END | CELLM_REQUEST_PROMPT_ONLY |
                                   CELLM_REQUEST_PARSE_SPECIAL | CELLM_REQUEST_NO_SPECIAL |
                                   CELLM_REQUEST_LOGPROBS | CELLM_REQUEST_SHOW_SPECIAL;
  if ((options.flags & ~kKnownFlags) != 0) {
    return Unsupported("request options: unknown flags 0x%x", options.flags & ~kKnownFlags);
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
  out->stop_ids.assign(options.stop_ids, options.stop_ids + options.stop_id_count);
  out->flags = options.flags;
  out->max_tokens = options.max_tokens;
  out->top_logprobs = options.top_logprobs;
  out->progress = options.progress;
  out->progress_user = options.progress_user;
  return OkStatus();
}

namespace {

// The sequence of the session, planned for at least `total` tokens, holding the longest beginning
// of `ids` that it can keep. Returns how many tokens that is; always less than ids.size().
Result<size_t> KeepPrefix(SessionState* session, std::span<const int32_t> ids, int32_t planned) {
  Engine& engine = *session->engine->engine;
  const std::vector<int32_t>& known = session->transcript.ids();
  if (session->has_sequence && planned > session->planned_tokens) {
    // Rotary factors may depend on the planned length, so what is there cannot be kept.
    CELLM_RETURN_IF_ERROR(engine.FreeSequence(session->sequence));
    session->has_sequence = false;
  }
  if (!session->has_sequence) {
    CELLM_ASSIGN_OR_RETURN(session->sequence, engine.CreateSequence(planned));
    session->has_sequence = true;
    session->planned_tokens = planned;
    return size_t{0};
  }
  const size_t position = Position(*session);
  const size_t most = std::min({position, known.size(), ids.size() - 1});
  size_t common = 0;
  while (common < most && known[common] == ids[common]) ++common;
  if (common == position) return common;
  const Status rewound = engine.Rewind(session->sequence, static_cast<int32_t>(common));
  if (rewound.ok()) return common;
  if (rewound.code() != StatusCode::kUnsupported) return rewound;
  CELLM_RETURN_IF_ERROR(engine.Rewind(session->sequence, 0));
  return size_t{0};
}

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

// Sampler, stop matcher and decoder for the ids that the reply follows.
Status PrepareReply(RequestState* request, std::span<const int32_t> ids,
                    std::span<const int32_t> chat_end_ids) {
  EngineState& engine = *request->session->engine;
  const RequestSettings& settings = request->settings;
  const int32_t vocabulary = engine.weights->model->info.vocab_size;
  CELLM_ASSIGN_OR_RETURN(request->sampler,
                         sample::Sampler::Create(settings.sampling, vocabulary,
                                                 settings.has_seed ? settings.seed : DrawSeed(),
                                                 *engine.memory->allocator));
  for (const int32_t id : ids) request->sampler->Accept(id);
  CELLM_ASSIGN_OR_RETURN(request->stops, sample::StopMatcher::Create(settings.stops));
  if ((settings.flags & CELLM_REQUEST_IGNORE_END) == 0) {
    for (const int32_t id : engine.end_ids.ids()) request->end_ids.Add(id);
    for (const int32_t id : chat_end_ids) request->end_ids.Add(id);
  }
  for (const int32_t id : settings.stop_ids) request->end_ids.Add(id);
  const bool skip_special = (settings.flags & CELLM_REQUEST_SHOW_SPECIAL) == 0;
  if (engine.model->tokenizer != nullptr) {
    request->decoder =
        std::make_unique<tokenizer::StreamDecoder>(*engine.model->tokenizer, skip_special);
  }
  if ((settings.flags & CELLM_REQUEST_LOGPROBS) != 0) {
    request->top.resize(settings.top_logprobs);
    request->top_out.resize(settings.top_logprobs);
    request->scratch.resize(std::min<size_t>(2 * static_cast<size_t>(settings.top_logprobs),
                                             static_cast<size_t>(vocabulary)));
  }
  return OkStatus();
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

Result<std::unique_ptr<RequestState>> StartRequest(const std::shared_ptr<SessionState>& session,
                                                   Prompt prompt, RequestSettings settings,
                                                   ErrorDetails* details) {
  EngineState& engine = *session->engine;
  if (session->open_request != nullptr) return Busy("the session has an open request");
  if (prompt.ids.empty()) {
    return InvalidArgument("the prompt is empty and the model has no token to begin with");
  }
  CELLM_RETURN_IF_ERROR(CheckIds(prompt.ids, engine.weights->model->info.vocab_size));
  const size_t context = static_cast<size_t>(engine.engine->context_tokens());
  if (prompt.ids.size() > context) {
    *details = {CELLM_REASON_CONTEXT_LENGTH, prompt.ids.size(), context, {}};
    return OutOfRange("the prompt needs %zu tokens, the context has %zu", prompt.ids.size(),
                      context);
  }
  auto request = std::make_unique<RequestState>();
  request->session = session;
  request->settings = std::move(settings);
  request->is_chat = prompt.is_chat;
  request->submit_ns = NowNs();
  CELLM_RETURN_IF_ERROR(PrepareReply(request.get(), prompt.ids, prompt.end_ids));
  const int32_t planned = PlannedTokens(*session, prompt.ids.size(), request->settings);
  CELLM_ASSIGN_OR_RETURN(request->reused_tokens, KeepPrefix(session.get(), prompt.ids, planned));
  request->prompt_tokens = prompt.ids.size();
  if (prompt.is_chat) {
    session->transcript.SetPrompt(prompt.mark, prompt.rendering, prompt.ids);
  } else {
    session->transcript.AppendIds(
        std::span<const int32_t>(prompt.ids).subspan(session->transcript.ids().size()));
  }
  session->open_request = request.get();
  return request;
}

namespace {

// Evaluates what is known but not evaluated yet. With `want_row` *row is the last token's logits.
// *stopped: the caller or a cancellation ended it between two chunks.
Status Evaluate(RequestState* request, bool want_row, std::span<const float>* row, bool* stopped) {
  SessionState& session = *request->session;
  EngineState& engine = *session.engine;
  const std::vector<int32_t>& ids = session.transcript.ids();
  size_t position = Position(session);
  while (position < ids.size()) {
    if (request->cancelled.load(std::memory_order_relaxed)) {
      *stopped = true;
      return OkStatus();
    }
    const size_t count = std::min<size_t>(engine.chunk_tokens, ids.size() - position);
    const bool last = position + count == ids.size();
    StepItem item;
    item.sequence = session.sequence;
    item.tokens = std::span<const int32_t>(ids).subspan(position, count);
    item.logits = last && want_row ? LogitRows::kLast : LogitRows::kNone;
    CELLM_ASSIGN_OR_RETURN(const StepOutput output, engine.engine->Step({&item, 1}));
    position += count;
    if (item.logits == LogitRows::kLast) {
      const StepItemResult& result = output.items[0];
      *row = {output.logits.row(result.first_row),
              static_cast<size_t>(engine.weights->model->info.vocab_size)};
    }
    if (!request->prompt_done && request->settings.progress != nullptr &&
        request->settings.progress(position, ids.size(), request->settings.progress_user) != 0) {
      *stopped = true;
      return OkStatus();
    }
  }
  return OkStatus();
}

// Ends the reply: what was held back is shown, and the session learns what was said.
void FinishReply(RequestState* request, int32_t finish) {
  request->finish = finish;
  SessionState& session = *request->session;
  if (session.open_request == request) session.open_request = nullptr;
  std::string rest;
  if (request->decoder != nullptr) {
    Result<std::string> flushed = request->decoder->Flush();
    if (flushed.ok()) rest = std::move(flushed).value();
  }
  request->reply_text += rest;
  if (finish != CELLM_FINISH_STOP) {
    (void)request->stops.Push(rest, &request->visible);
    if (!request->stops.matched()) request->stops.Flush(&request->visible);
  }
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

void FillLogprobs(RequestState* request, std::span<const float> row, int32_t id, cellm_token* out) {
  if ((request->settings.flags & CELLM_REQUEST_LOGPROBS) == 0) return;
  const double log_sum = sample::LogSumExp(row);
  out->logprob = static_cast<float>(static_cast<double>(row[static_cast<size_t>(id)]) - log_sum);
  const size_t count = sample::TopLogProbs(row, log_sum, request->scratch, request->top);
  for (size_t i = 0; i < count; ++i) {
    request->top_out[i] = {request->top[i].id, request->top[i].log_prob};
  }
  out->top = request->top_out.data();
  out->top_count = count;
}

// Samples from `row` and takes the token in: text, stop rules, transcript.
Status TakeToken(RequestState* request, std::span<const float> row, cellm_token* out) {
  SessionState& session = *request->session;
  CELLM_ASSIGN_OR_RETURN(const int32_t id, request->sampler->Sample(row));
  const int64_t now = NowNs();
  if (request->reply.empty()) request->first_ns = now;
  request->last_ns = now;
  request->sampler->Accept(id);
  out->token_id = id;
  FillLogprobs(request, row, id, out);
  request->reply.push_back(id);
  session.transcript.AppendIds({&id, 1});

  const bool ends = request->end_ids.Contains(id);
  const bool shown = !ends || (request->settings.flags & CELLM_REQUEST_SHOW_SPECIAL) != 0;
  if (shown && request->decoder != nullptr) {
    request->reply_has_special |= session.engine->model->tokenizer->IsSpecial(id);
    CELLM_ASSIGN_OR_RETURN(const std::string text, request->decoder->Push(id));
    request->reply_text += text;
    if (request->stops.Push(text, &request->visible)) {
      FinishReply(request, CELLM_FINISH_STOP);
      return OkStatus();
    }
  }
  const size_t context = static_cast<size_t>(session.engine->engine->context_tokens());
  if (ends) {
    FinishReply(request, CELLM_FINISH_END);
  } else if (request->settings.max_tokens > 0 &&
             request->reply.size() >= request->settings.max_tokens) {
    FinishReply(request, CELLM_FINISH_LENGTH);
  } else if (session.transcript.ids().size() >= context) {
    FinishReply(request, CELLM_FINISH_CONTEXT);
  }
  return OkStatus();
}

Status Advance(RequestState* request, cellm_token* out) {
  SessionState& session = *request->session;
  const bool first = !request->prompt_done;
  if (first) request->prompt_begin_ns = NowNs();
  const bool prompt_only = (request->settings.flags & CELLM_REQUEST_PROMPT_ONLY) != 0;
  const size_t context = static_cast<size_t>(session.engine->engine->context_tokens());
  const bool full = session.transcript.ids().size() >= context;
  std::span<const float> row;
  bool stopped = false;
  CELLM_RETURN_IF_ERROR(Evaluate(request, !prompt_only && !full, &row, &stopped));
  if (first) request->prompt_end_ns = NowNs();
  request->prompt_done = true;
  if (stopped || request->cancelled.load(std::memory_order_relaxed)) {
    FinishReply(request, CELLM_FINISH_CANCELLED);
    return OkStatus();
  }
  if (prompt_only || full) {
    FinishReply(request, prompt_only ? CELLM_FINISH_LENGTH : CELLM_FINISH_CONTEXT);
    return OkStatus();
  }
  return TakeToken(request, row, out);
}

}  // namespace

Status NextToken(RequestState* request, cellm_token* out) {
  cellm_token token = CELLM_TOKEN_INIT;
  token.token_id = -1;
  request->visible.clear();
  const Status status = Advance(request, &token);
  if (!status.ok()) {
    FinishReply(request, CELLM_FINISH_ERROR);
    return status;
  }
  token.text = request->visible.data();
  token.text_bytes = request->visible.size();
  token.finish = request->finish;
  *out = token;
  return OkStatus();
}

RequestState::~RequestState() {
  if (session != nullptr && session->open_request == this) {
    FinishReply(this, CELLM_FINISH_CANCELLED);
  }
}

void FillMemory(const EngineState& engine, cellm_memory* memory) {
  const BudgetAllocator& budget = *engine.memory->allocator;
  const uint64_t tokenizer = engine.model->tokenizer_memory.used_bytes();
  *memory = CELLM_MEMORY_INIT;
  memory->weights = budget.used_bytes(MemoryClass::kWeights);
  memory->cache = budget.used_bytes(MemoryClass::kCache);
  memory->activations = budget.used_bytes(MemoryClass::kActivations);
  memory->tokenizer = tokenizer + budget.used_bytes(MemoryClass::kTokenizer);
  memory->other = budget.used_bytes(MemoryClass::kOther);
  memory->used = budget.used_bytes() + tokenizer;
  memory->peak = budget.peak_bytes() + engine.model->tokenizer_memory.peak_bytes();
}

void FillReceipt(const RequestState& request, cellm_receipt* receipt) {
  *receipt = CELLM_RECEIPT_INIT;
  receipt->finish = request.finish;
  receipt->prompt_tokens = request.prompt_tokens;
  receipt->reused_tokens = request.reused_tokens;
  receipt->generated_tokens = request.reply.size();
  receipt->seed = request.sampler->seed();
  receipt->prompt_ns = static_cast<uint64_t>(request.prompt_end_ns - request.prompt_begin_ns);
  const uint64_t evaluated = request.prompt_tokens - request.reused_tokens;
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
