#include "capi/session_journal.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "platform/clock.h"
#include "platform/entropy.h"
#include "platform/file.h"

namespace cellm::capi {
namespace {

// Numbers in files: never changed, only added.
enum RecordKind : uint32_t {
  kSessionRecord = 1,
  kRequestRecord = 2,
  kTokenRecord = 3,
  kRewindRecord = 4,
  kClassRecord = 5,
};

// Whether a request has a constraint.
enum ConstraintForm : uint8_t {
  kNoConstraint = 0,
  kConstraintLost = 1,   // the record does not hold it (written by 0.1.0 before its release)
  kConstraintGiven = 2,  // kind and text follow
};

// How the ids of a prompt follow from what the session held.
enum PromptForm : uint8_t {
  kAppended = 0,  // after all of it
  kChat = 1,      // after a mark of the transcript, with the rendering from there on
  kWhole = 2,     // instead of it: something was forgotten
};

constexpr uint32_t kMaxTopLogprobs = 64;

// ---- writing ----

void PutClass(PayloadWriter* out, const SessionState& session) {
  out->Put(static_cast<int32_t>(session.latency_class));
  out->Put(session.weight);
  out->Put(session.token_interval_ns);
}

void PutSampling(PayloadWriter* out, const sample::SamplingOptions& sampling) {
  for (const float value :
       {sampling.temperature, sampling.top_p, sampling.min_p, sampling.typical_p,
        sampling.repetition_penalty, sampling.frequency_penalty, sampling.presence_penalty}) {
    out->Put(value);
  }
  out->Put(sampling.top_k);
  out->Put(sampling.penalty_window);
  out->Put(static_cast<uint64_t>(sampling.logit_bias.size()));
  for (const sample::LogitBias& entry : sampling.logit_bias) {
    out->Put(entry.id);
    out->Put(entry.bias);
  }
}

void PutSettings(PayloadWriter* out, const RequestState& request) {
  const RequestSettings& settings = request.settings;
  out->Put(settings.flags);
  out->Put(settings.max_tokens);
  out->Put(settings.top_logprobs);
  PutSampling(out, settings.sampling);
  out->Put(request.sampler->seed());
  out->Put(static_cast<uint64_t>(settings.stops.size()));
  for (const std::string& stop : settings.stops) out->PutBytes(stop);
  out->PutIds(settings.stop_ids);
}

}  // namespace

void BeginJournal(SessionState* session) {
  EngineState& engine = *session->engine;
  if (engine.journal_folder.empty() || (session->flags & CELLM_SESSION_PRIVATE) != 0) return;
  if (session->journal != nullptr && !session->journal->failed()) return;
  const std::string name =
      StrFormat("%016llx.cellm-journal", static_cast<unsigned long long>(platform::RandomBits()));
  if (session->replaced_journal == nullptr) session->replaced_journal = session->journal;
  session->journal =
      std::make_shared<Journal>(platform::JoinPath(engine.journal_folder, name), engine.model_hash);
  PayloadWriter out;
  out.Put(session->flags);
  PutClass(&out, *session);
  out.Put(session->overflow);
  out.Put(session->keep_tokens);
  out.Put(session->planned_tokens);
  const Transcript& transcript = session->transcript;
  out.PutIds(transcript.ids());
  out.PutBytes(transcript.text().bytes);
  out.PutBytes(transcript.text().trusted);
  out.Put(static_cast<uint64_t>(transcript.marks().size()));
  for (const Transcript::Mark& mark : transcript.marks()) {
    out.Put(static_cast<uint64_t>(mark.text_end));
    out.Put(static_cast<uint64_t>(mark.id_count));
  }
  out.PutBytes(session->messages);
  out.Put(static_cast<uint8_t>(session->has_said ? 1 : 0));
  out.PutBytes(session->said);
  session->journal->Stage(kSessionRecord, out.bytes());
}

void JournalRequest(SessionState* session, const RequestState& request, const Prompt& prompt,
                    std::span<const int32_t> ids) {
  if (session->journal == nullptr) return;
  PayloadWriter out;
  PutSettings(&out, request);
  out.PutIds(prompt.end_ids);
  out.Put(static_cast<uint8_t>(prompt.is_chat ? 1 : 0));
  const RequestSettings& settings = request.settings;
  out.Put(static_cast<uint8_t>(settings.constrained ? kConstraintGiven : kNoConstraint));
  if (settings.constrained) {
    out.Put(settings.constraint_kind);
    out.PutBytes(settings.constraint_text);
  }
  out.Put(session->planned_tokens);
  out.Put(session->keep_tokens);
  out.Put(static_cast<uint64_t>(request.prompt_tokens));
  out.Put(static_cast<uint64_t>(request.forgotten_tokens));
  // Most of a conversation's messages are those of the last request.
  const auto parted = std::mismatch(prompt.messages.begin(), prompt.messages.end(),
                                    session->messages.begin(), session->messages.end());
  const size_t same = static_cast<size_t>(parted.first - prompt.messages.begin());
  out.Put(static_cast<uint64_t>(same));
  out.PutBytes(std::string_view(prompt.messages).substr(same));
  if (request.forgotten_tokens > 0) {
    out.Put(static_cast<uint8_t>(kWhole));
    out.PutIds(ids);
  } else if (prompt.is_chat) {
    out.Put(static_cast<uint8_t>(kChat));
    out.Put(static_cast<uint64_t>(prompt.mark.text_end));
    out.Put(static_cast<uint64_t>(prompt.mark.id_count));
    out.PutBytes(std::string_view(prompt.rendering.bytes).substr(prompt.mark.text_end));
    out.PutBytes(std::string_view(prompt.rendering.trusted).substr(prompt.mark.text_end));
    out.PutIds(ids.subspan(prompt.mark.id_count));
  } else {
    out.Put(static_cast<uint8_t>(kAppended));
    out.PutIds(ids.subspan(session->transcript.ids().size()));
  }
  session->journal->Stage(kRequestRecord, out.bytes());
}

void JournalToken(SessionState* session, int32_t id, int32_t finish, size_t kept_begin,
                  size_t kept_end) {
  if (session->journal == nullptr) return;
  PayloadWriter out;
  out.Put(id);
  out.Put(finish);
  out.Put(static_cast<uint64_t>(kept_begin));
  out.Put(static_cast<uint64_t>(kept_end));
  session->journal->Stage(kTokenRecord, out.bytes());
}

void JournalRewind(SessionState* session, size_t position) {
  if (session->journal == nullptr) return;
  PayloadWriter out;
  out.Put(static_cast<uint64_t>(position));
  session->journal->Stage(kRewindRecord, out.bytes());
}

void JournalClass(SessionState* session) {
  if (session->journal == nullptr) return;
  PayloadWriter out;
  PutClass(&out, *session);
  session->journal->Stage(kClassRecord, out.bytes());
}

Status FlushJournal(SessionState* session, bool sync) {
  EngineState& engine = *session->engine;
  if (engine.journal_folder.empty()) return OkStatus();
  std::shared_ptr<Journal> journal;
  std::shared_ptr<Journal> replaced;
  {
    const Serving::Lock lock = engine.serving->Acquire();
    journal = session->journal;
    replaced = session->replaced_journal;
  }
  if (journal == nullptr) return OkStatus();
  CELLM_RETURN_IF_ERROR(journal->Flush(sync || engine.journal_sync));
  if (replaced == nullptr) return OkStatus();
  // What it held is in the new one.
  (void)replaced->Remove().ok();
  const Serving::Lock lock = engine.serving->Acquire();
  if (session->replaced_journal == replaced) session->replaced_journal = nullptr;
  return OkStatus();
}

SessionState::~SessionState() {
  if (journal != nullptr && (flags & CELLM_SESSION_KEEP_JOURNAL) == 0) {
    (void)journal->Remove().ok();
    if (replaced_journal != nullptr) (void)replaced_journal->Remove().ok();
  }
}

// ---- reading ----

namespace {

class Replay {
 public:
  Replay(const std::shared_ptr<EngineState>& engine, const std::string& name, bool goes_on)
      : engine_(*engine), name_(name), goes_on_(goes_on) {
    session_ = std::make_shared<SessionState>();
    session_->engine = engine;
  }

  Status Apply(const JournalRecord& record, bool first) {
    PayloadReader in(record.payload);
    if ((record.kind == kSessionRecord) != first) return Contradiction("the session's record");
    Status status;
    switch (record.kind) {
      case kSessionRecord:
        status = ReadSession(&in);
        break;
      case kRequestRecord:
        status = ReadRequest(&in);
        break;
      case kTokenRecord:
        status = ReadToken(&in);
        break;
      case kRewindRecord:
        status = ReadRewind(&in);
        break;
      case kClassRecord:
        status = ReadClass(&in);
        break;
      default:
        return Unsupported("%s: a record of kind %u, of a newer version", name_.c_str(),
                           record.kind);
    }
    CELLM_RETURN_IF_ERROR(status);
    if (!in.ok()) return Contradiction("a record that is too short");
    if (!in.done()) {
      return Unsupported("%s: a record with more than this version knows", name_.c_str());
    }
    return OkStatus();
  }

  Result<Replayed> Finish() {
    const size_t context = static_cast<size_t>(engine_.engine->context_tokens());
    const size_t tokens = session_->transcript.ids().size();
    if (tokens > context) {
      return OutOfRange("%s: %zu tokens, the context has %zu", name_.c_str(), tokens, context);
    }
    session_->planned_tokens = std::min(session_->planned_tokens, static_cast<int32_t>(context));
    return Replayed{session_, request_};
  }

 private:
  Status Contradiction(const char* what) const {
    return Corrupt("%s: %s is not where or what it should be", name_.c_str(), what);
  }

  Status CheckIds(std::span<const int32_t> ids) const {
    const int32_t vocabulary = engine_.weights->model->info.vocab_size;
    for (const int32_t id : ids) {
      if (id >= 0 && id < vocabulary) continue;
      return Corrupt("%s: id %d is outside the vocabulary of %d", name_.c_str(), id, vocabulary);
    }
    return OkStatus();
  }

  static bool IsOrigins(std::string_view origins, std::string_view text) {
    return origins.size() == text.size() &&
           std::all_of(origins.begin(), origins.end(), [](char c) { return c == 0 || c == 1; });
  }

  Status ReadClass(PayloadReader* in) {
    const int32_t latency_class = in->Get<int32_t>();
    session_->weight = in->Get<uint32_t>();
    session_->token_interval_ns = in->Get<int64_t>();
    if (latency_class < 0 || latency_class >= kLatencyClasses || session_->weight < 1 ||
        session_->weight > 1000 || session_->token_interval_ns < 0) {
      return Contradiction("the class of the session");
    }
    session_->latency_class = static_cast<LatencyClass>(latency_class);
    return OkStatus();
  }

  Status ReadSession(PayloadReader* in) {
    session_->flags = in->Get<uint32_t>();
    CELLM_RETURN_IF_ERROR(ReadClass(in));
    session_->overflow = in->Get<int32_t>();
    session_->keep_tokens = in->Get<uint32_t>();
    session_->planned_tokens = in->Get<int32_t>();
    std::vector<int32_t> ids = in->GetIds();
    MarkedText text;
    text.bytes = in->GetBytes();
    text.trusted = in->GetBytes();
    std::vector<Transcript::Mark> marks;
    Transcript::Mark last;
    const uint64_t count = in->Get<uint64_t>();
    for (uint64_t i = 0; i < count && in->ok(); ++i) {
      const Transcript::Mark mark = {in->Get<uint64_t>(), in->Get<uint64_t>()};
      if (mark.text_end < last.text_end || mark.text_end > text.bytes.size() ||
          mark.id_count < last.id_count || mark.id_count > ids.size()) {
        return Contradiction("a mark of the transcript");
      }
      marks.push_back(mark);
      last = mark;
    }
    session_->messages = in->GetBytes();
    session_->has_said = in->Get<uint8_t>() != 0;
    session_->said = in->GetBytes();
    constexpr uint32_t kKnownFlags = CELLM_SESSION_PLAN_FIRST_REQUEST | CELLM_SESSION_KEEP_JOURNAL;
    if ((session_->flags & ~kKnownFlags) != 0 || session_->overflow < CELLM_OVERFLOW_STOP ||
        session_->overflow > CELLM_OVERFLOW_SLIDE || session_->planned_tokens < 0 ||
        session_->keep_tokens > static_cast<uint32_t>(limits::kMaxContext) ||
        !IsOrigins(text.trusted, text.bytes)) {
      return Contradiction("a field of the session");
    }
    CELLM_RETURN_IF_ERROR(CheckIds(ids));
    session_->transcript = Transcript::Restore(std::move(text), std::move(ids), std::move(marks));
    return OkStatus();
  }

  static void ReadSampling(PayloadReader* in, sample::SamplingOptions* sampling) {
    for (float* const value : {&sampling->temperature, &sampling->top_p, &sampling->min_p,
                               &sampling->typical_p, &sampling->repetition_penalty,
                               &sampling->frequency_penalty, &sampling->presence_penalty}) {
      *value = in->Get<float>();
    }
    sampling->top_k = in->Get<int32_t>();
    sampling->penalty_window = in->Get<int32_t>();
    const uint64_t count = in->Get<uint64_t>();
    for (uint64_t i = 0; i < count && in->ok(); ++i) {
      const int32_t id = in->Get<int32_t>();
      sampling->logit_bias.push_back({id, in->Get<float>()});
    }
  }

  Status ReadSettings(PayloadReader* in, RequestSettings* settings) {
    settings->flags = in->Get<uint32_t>();
    settings->max_tokens = in->Get<uint32_t>();
    settings->top_logprobs = in->Get<uint32_t>();
    ReadSampling(in, &settings->sampling);
    settings->seed = in->Get<uint64_t>();
    settings->has_seed = true;
    const uint64_t stops = in->Get<uint64_t>();
    for (uint64_t i = 0; i < stops && in->ok(); ++i) settings->stops.emplace_back(in->GetBytes());
    settings->stop_ids = in->GetIds();
    if ((settings->flags & ~kKnownRequestFlags) != 0 || settings->top_logprobs > kMaxTopLogprobs) {
      return Contradiction("an option of a request");
    }
    return OkStatus();
  }

  Status ReadRequest(PayloadReader* in) {
    if (Open()) return Contradiction("a request before the end of the one before");
    auto request = std::make_shared<RequestState>();
    CELLM_RETURN_IF_ERROR(ReadSettings(in, &request->settings));
    const std::vector<int32_t> end_ids = in->GetIds();
    request->is_chat = in->Get<uint8_t>() != 0;
    CELLM_RETURN_IF_ERROR(ReadConstraint(in, &request->settings));
    session_->planned_tokens = in->Get<int32_t>();
    session_->keep_tokens = in->Get<uint32_t>();
    request->prompt_tokens = in->Get<uint64_t>();
    request->forgotten_tokens = in->Get<uint64_t>();
    const uint64_t same = in->Get<uint64_t>();
    if (same > session_->messages.size()) return Contradiction("the messages of a request");
    session_->messages.resize(same);
    session_->messages += in->GetBytes();
    session_->has_said = false;
    CELLM_RETURN_IF_ERROR(ReadPrompt(in));
    if (!in->ok() || session_->planned_tokens < 0 || session_->transcript.ids().empty() ||
        session_->keep_tokens > static_cast<uint32_t>(limits::kMaxContext)) {
      return Contradiction("a field of a request");
    }
    request->session = session_;
    request->context_used = session_->transcript.ids().size();
    request->submit_ns = platform::MonotonicClock().NowNs();
    // From here on it is a reply that can be given up.
    Status status = PrepareReply(request.get(), session_->transcript.ids(), end_ids);
    if (!status.ok()) {
      request->finish = CELLM_FINISH_ERROR;
      return status.code() == StatusCode::kOutOfMemory ? status : Contradiction("an option");
    }
    request_ = std::move(request);
    session_->open_request = request_.get();
    return OkStatus();
  }

  Status ReadConstraint(PayloadReader* in, RequestSettings* settings) {
    const uint8_t form = in->Get<uint8_t>();
    if (form > kConstraintGiven) return Contradiction("the constraint of a request");
    settings->constrained = form != kNoConstraint;
    if (form != kConstraintGiven) return OkStatus();
    settings->constraint_kind = in->Get<int32_t>();
    settings->constraint_text = in->GetBytes();
    if (!goes_on_ || !in->ok()) return OkStatus();
    cellm_request_options options = CELLM_REQUEST_OPTIONS_INIT;
    options.constraint = settings->constraint_kind;
    options.constraint_text = {settings->constraint_text.data(), settings->constraint_text.size()};
    auto constraint =
        engine_.constraints->Get(&options, engine_.model->tokenizer.get(), engine_.end_ids,
                                 engine_.weights->model->info.vocab_size, true);
    if (constraint.ok()) {
      settings->constraint = std::move(constraint).value();
      return OkStatus();
    }
    if (constraint.status().code() == StatusCode::kOutOfMemory) return constraint.status();
    engine_.model->log.Write(LogLevel::kWarning, "session",
                             name_ + ": a constraint: " + constraint.status().message());
    return OkStatus();
  }

  Status ReadPrompt(PayloadReader* in) {
    Transcript& transcript = session_->transcript;
    const uint8_t form = in->Get<uint8_t>();
    if (form == kAppended || form == kWhole) {
      const std::vector<int32_t> ids = in->GetIds();
      CELLM_RETURN_IF_ERROR(CheckIds(ids));
      if (form == kWhole) transcript.Clear();
      transcript.AppendIds(ids);
      return OkStatus();
    }
    if (form != kChat) return Contradiction("the prompt of a request");
    const Transcript::Mark mark = {in->Get<uint64_t>(), in->Get<uint64_t>()};
    const auto is_mark = [&](const Transcript::Mark& known) {
      return known.text_end == mark.text_end && known.id_count == mark.id_count;
    };
    const std::vector<Transcript::Mark>& marks = transcript.marks();
    if (!is_mark({}) && std::none_of(marks.begin(), marks.end(), is_mark)) {
      return Contradiction("the mark that a prompt goes on from");
    }
    MarkedText rendering;
    rendering.bytes = transcript.text().bytes.substr(0, mark.text_end);
    rendering.trusted = transcript.text().trusted.substr(0, mark.text_end);
    rendering.bytes += in->GetBytes();
    rendering.trusted += in->GetBytes();
    if (!IsOrigins(rendering.trusted, rendering.bytes)) return Contradiction("a rendering");
    const std::vector<int32_t> rest = in->GetIds();
    CELLM_RETURN_IF_ERROR(CheckIds(rest));
    std::vector<int32_t> ids = transcript.ids();
    ids.resize(mark.id_count);
    ids.insert(ids.end(), rest.begin(), rest.end());
    transcript.SetPrompt(mark, rendering, ids);
    return OkStatus();
  }

  Status ReadToken(PayloadReader* in) {
    const int32_t id = in->Get<int32_t>();
    const int32_t finish = in->Get<int32_t>();
    const uint64_t kept_begin = in->Get<uint64_t>();
    const uint64_t kept_end = in->Get<uint64_t>();
    if (!Open() || finish < CELLM_FINISH_NONE || finish > CELLM_FINISH_ERROR ||
        (id < 0 && (id != -1 || finish == CELLM_FINISH_NONE))) {
      return Contradiction("a token");
    }
    if (id >= 0) CELLM_RETURN_IF_ERROR(CheckIds({&id, 1}));
    const Status repeated = RepeatToken(request_.get(), id, finish);
    if (repeated.code() == StatusCode::kInvalidArgument ||
        repeated.code() == StatusCode::kInternal) {
      return Contradiction("a token of a constrained reply");
    }
    CELLM_RETURN_IF_ERROR(repeated);
    if (finish != CELLM_FINISH_NONE) {
      request_ = nullptr;
      return OkStatus();
    }
    if (kept_begin == 0 && kept_end == 0) return OkStatus();
    const size_t held = session_->transcript.ids().size();
    if (kept_begin > held || kept_end > held - kept_begin) return Contradiction("what was kept");
    Forget(request_.get(), kept_begin, kept_end);
    request_->context_used = session_->transcript.ids().size();
    return OkStatus();
  }

  Status ReadRewind(PayloadReader* in) {
    const uint64_t position = in->Get<uint64_t>();
    if (Open() || position > session_->transcript.ids().size()) return Contradiction("a rewind");
    session_->Rewind(position);
    return OkStatus();
  }

  bool Open() const { return request_ != nullptr; }

  EngineState& engine_;
  const std::string& name_;
  bool goes_on_;
  std::shared_ptr<SessionState> session_;
  std::shared_ptr<RequestState> request_;  // while its reply is under way
};

}  // namespace

Result<Replayed> ReplayJournal(const std::shared_ptr<EngineState>& engine,
                               const JournalImage& image, const std::string& name, bool goes_on) {
  if (image.model_hash != engine->model_hash) {
    return Unsupported("%s: the journal of another model than %s", name.c_str(),
                       engine->model->path.c_str());
  }
  if (image.records.empty()) return Corrupt("%s: a journal without a session", name.c_str());
  Replay replay(engine, name, goes_on);
  bool first = true;
  for (const JournalRecord& record : image.records) {
    CELLM_RETURN_IF_ERROR(replay.Apply(record, first));
    first = false;
  }
  return replay.Finish();
}

}  // namespace cellm::capi
