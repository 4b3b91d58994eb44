#include "cellm/bench/bench_serve.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <utility>

#include "cellm/bench/bench_text.h"
#include "platform/clock.h"
#include "platform/file.h"

namespace cellm::tools {
namespace {

constexpr int64_t kChatPrompt = 128;        // of the interactive conversation
constexpr int64_t kBackgroundPrompt = 512;  // of each piece of background work
constexpr int64_t kNewTokens = 32;          // behind a cached beginning
constexpr int64_t kTurnSessions = 8;        // that take turns; memory holds three of them
constexpr int64_t kTurnPrompt = 16, kTurnReply = 8, kMostTurns = 4;
constexpr double kSampleSeconds = 0.02;

double Seconds() { return static_cast<double>(platform::MonotonicClock().NowNs()) / 1e9; }

Status Check(cellm_status status, const cellm_error& error) {
  return status == CELLM_OK ? OkStatus() : ToStatus(error);
}

// A conversation and its reply under way.
struct Talk {
  SessionHandle session;
  RequestHandle request;                       // null between replies
  std::vector<double> times;                   // when each token of the reply came, in seconds
  cellm_receipt receipt = CELLM_RECEIPT_INIT;  // of the last reply

  bool open() const { return request != nullptr; }
};

// The distances between neighbours, in milliseconds.
std::vector<double> Gaps(const std::vector<double>& times) {
  std::vector<double> gaps;
  for (size_t i = 1; i < times.size(); ++i) gaps.push_back(1e3 * (times[i] - times[i - 1]));
  return gaps;
}

void Append(const std::vector<double>& more, std::vector<double>* all) {
  all->insert(all->end(), more.begin(), more.end());
}

double Milliseconds(uint64_t ns) { return static_cast<double>(ns) / 1e6; }

class Serve {
 public:
  Serve(const ServePlan& plan, Opener* opener, BenchRun* run)
      : plan_(plan), opener_(opener), run_(run), begin_(Seconds()) {}

  Status Run() {
    const struct {
      const char* name;
      bool on;
      Status (Serve::*test)();
    } tests[] = {{"latency", plan_.latency, &Serve::Latency},
                 {"throughput", plan_.throughput, &Serve::Throughput},
                 {"first-token", plan_.first_token, &Serve::FirstToken},
                 {"resume", plan_.resume, &Serve::Resume},
                 {"turns", plan_.turns, &Serve::Turns}};
    for (const auto& test : tests) {
      if (!test.on) continue;
      phase_ = test.name;
      Note(plan_.bench.quiet,
           StrFormat("%s %s: serving, %s", run_->model.c_str(), run_->format.c_str(), test.name));
      engine_.reset();
      model_.reset();
      CELLM_RETURN_IF_ERROR(opener_->Open(&model_, &engine_));
      CELLM_RETURN_IF_ERROR(MakeIds());
      CELLM_RETURN_IF_ERROR((this->*test.test)());
      CELLM_RETURN_IF_ERROR(Sample(true));
    }
    return OkStatus();
  }

 private:
  // ---- conversations ----

  Status MakeIds() {
    if (!ids_.empty()) return OkStatus();
    const int64_t needed = plan_.ContextNeeded() + kShift * (plan_.SequencesNeeded() + 1);
    CELLM_ASSIGN_OR_RETURN(ids_, BenchIds(model_.get(), plan_.bench.text, needed));
    return OkStatus();
  }

  Result<Talk> Open(int32_t latency_class, uint32_t flags = 0) {
    cellm_session_options options = CELLM_SESSION_OPTIONS_INIT;
    options.latency_class = latency_class;
    options.flags = flags;
    cellm_error error = CELLM_ERROR_INIT;
    cellm_session* session = nullptr;
    CELLM_RETURN_IF_ERROR(
        Check(cellm_session_open(engine_.get(), &options, &session, &error), error));
    Talk talk;
    talk.session.reset(session);
    return talk;
  }

  // A reply of `reply` tokens (0: the prompt is only evaluated) to `count` ids from `begin` on.
  Status Submit(Talk* talk, int64_t begin, int64_t count, int64_t reply, uint32_t flags = 0) {
    cellm_sampling sampling = CELLM_SAMPLING_INIT;
    sampling.given = CELLM_SAMPLING_TEMPERATURE | CELLM_SAMPLING_SEED;
    cellm_request_options options = CELLM_REQUEST_OPTIONS_INIT;
    options.flags = CELLM_REQUEST_IGNORE_END | flags;
    if (reply == 0) options.flags |= CELLM_REQUEST_PROMPT_ONLY;
    options.max_tokens = static_cast<uint32_t>(reply);
    options.sampling = &sampling;
    cellm_error error = CELLM_ERROR_INIT;
    cellm_request* request = nullptr;
    CELLM_RETURN_IF_ERROR(
        Check(cellm_session_submit_tokens(talk->session.get(), ids_.data() + begin,
                                          static_cast<size_t>(count), &options, &request, &error),
              error));
    talk->request.reset(request);
    talk->times.clear();
    return OkStatus();
  }

  // What the last step made of the reply.
  Status Collect(Talk* talk) {
    while (talk->open()) {
      cellm_token token = CELLM_TOKEN_INIT;
      cellm_error error = CELLM_ERROR_INIT;
      int32_t ready = 0;
      CELLM_RETURN_IF_ERROR(
          Check(cellm_request_poll(talk->request.get(), &token, &ready, &error), error));
      if (ready == 0) return OkStatus();
      if (token.token_id >= 0) talk->times.push_back(Seconds());
      if (token.finish == CELLM_FINISH_NONE) continue;
      talk->receipt = CELLM_RECEIPT_INIT;
      CELLM_RETURN_IF_ERROR(
          Check(cellm_request_get_receipt(talk->request.get(), &talk->receipt, &error), error));
      talk->request.reset();
    }
    return OkStatus();
  }

  // One step for everybody. Internal: nothing could be done though somebody waits.
  Status Step() {
    cellm_error error = CELLM_ERROR_INIT;
    int32_t ran = 0;
    CELLM_RETURN_IF_ERROR(Check(cellm_engine_step(engine_.get(), &ran, &error), error));
    idle_steps_ = ran != 0 ? 0 : idle_steps_ + 1;
    if (idle_steps_ > 1000) return Internal("the engine does nothing though a request waits");
    return Sample(false);
  }

  Status FinishAll(std::vector<Talk>* talks) {
    for (;;) {
      bool open = false;
      for (Talk& talk : *talks) {
        CELLM_RETURN_IF_ERROR(Collect(&talk));
        open = open || talk.open();
      }
      if (!open) return OkStatus();
      CELLM_RETURN_IF_ERROR(Step());
    }
  }
  Status Finish(Talk* talk) {
    for (;;) {
      CELLM_RETURN_IF_ERROR(Collect(talk));
      if (!talk->open()) return OkStatus();
      CELLM_RETURN_IF_ERROR(Step());
    }
  }

  // ---- figures ----

  Status Sample(bool force) {
    const double now = Seconds() - begin_;
    if (!force && now - last_sample_ < kSampleSeconds) return OkStatus();
    last_sample_ = now;
    MemorySample sample;
    cellm_engine_stats stats = CELLM_ENGINE_STATS_INIT;
    cellm_error error = CELLM_ERROR_INIT;
    CELLM_RETURN_IF_ERROR(
        Check(cellm_engine_get_memory(engine_.get(), &sample.memory, &error), error));
    CELLM_RETURN_IF_ERROR(Check(cellm_engine_get_stats(engine_.get(), &stats, &error), error));
    sample.phase = phase_;
    sample.seconds = now;
    sample.past_bytes = stats.past_bytes;
    sample.swapped_bytes = stats.swapped_bytes;
    run_->samples.push_back(std::move(sample));
    return OkStatus();
  }

  Measured& Add(const std::string& test, const std::string& detail, const char* unit,
                std::vector<double> values) {
    Measured row;
    row.test = test;
    row.detail = detail;
    row.unit = unit;
    row.value = Summarise(std::move(values));
    run_->rows.push_back(std::move(row));
    return run_->rows.back();
  }
  // Median of `above` over that of `below`.
  void AddRatio(const std::string& test, const std::string& detail, double above, double below) {
    if (below > 0) Add(test, detail, "x", {above / below});
  }

  bool Enough(int64_t repeat, double began) const {
    return repeat > 0 && (repeat >= plan_.bench.repeats || Seconds() - began > plan_.bench.seconds);
  }

  // ---- latency ----

  // Where the next piece of background work begins in the text.
  int64_t NextBegin() { return 1 + kShift * (pieces_++ % std::max<int64_t>(1, plan_.background)); }

  Status NewPiece(Talk* talk) {
    CELLM_ASSIGN_OR_RETURN(*talk, Open(CELLM_CLASS_BACKGROUND));
    return Submit(talk, NextBegin(), kBackgroundPrompt, plan_.bench.decode_tokens,
                  CELLM_REQUEST_KEEP_NOTHING);
  }

  // The reply of an interactive conversation while `background` others work without end. Adds its
  // gaps to *gaps and what the others said meanwhile, in tokens a second, to *others.
  Status Chat(int64_t background, std::vector<double>* gaps, std::vector<double>* others) {
    std::vector<Talk> pieces(static_cast<size_t>(background));
    for (Talk& piece : pieces) CELLM_RETURN_IF_ERROR(NewPiece(&piece));
    const auto all_talk = [&pieces] {
      return std::all_of(pieces.begin(), pieces.end(),
                         [](const Talk& piece) { return !piece.times.empty(); });
    };
    int64_t said = 0;
    // Pieces that are done make room for new ones, so prompts keep coming.
    const auto step = [&]() -> Status {
      CELLM_RETURN_IF_ERROR(Step());
      for (Talk& piece : pieces) {
        const size_t before = piece.times.size();
        CELLM_RETURN_IF_ERROR(Collect(&piece));
        said += static_cast<int64_t>(piece.times.size() - before);
        if (!piece.open()) CELLM_RETURN_IF_ERROR(NewPiece(&piece));
      }
      return OkStatus();
    };
    for (int64_t i = 0; !all_talk() && i < 10000; ++i) CELLM_RETURN_IF_ERROR(step());
    CELLM_ASSIGN_OR_RETURN(Talk chat, Open(CELLM_CLASS_INTERACTIVE));
    CELLM_RETURN_IF_ERROR(
        Submit(&chat, 0, kChatPrompt, plan_.bench.decode_tokens, CELLM_REQUEST_KEEP_NOTHING));
    said = 0;
    const double began = Seconds();
    for (;;) {
      CELLM_RETURN_IF_ERROR(Collect(&chat));
      if (!chat.open()) break;
      CELLM_RETURN_IF_ERROR(step());
    }
    if (others != nullptr) {
      others->push_back(static_cast<double>(said) / (Seconds() - began));
    }
    Append(Gaps(chat.times), gaps);
    return OkStatus();
  }

  Status Latency() {
    std::vector<double> alone, beside, others;
    CELLM_RETURN_IF_ERROR(Chat(0, &alone, nullptr));  // warm-up
    alone.clear();
    // In turns, so that whatever else the machine does meets both.
    const double began = Seconds();
    for (int64_t i = 0; !Enough(i, began); ++i) {
      CELLM_RETURN_IF_ERROR(Chat(0, &alone, nullptr));
      CELLM_RETURN_IF_ERROR(Chat(plan_.background, &beside, &others));
    }
    const double p95_alone = Summarise(alone).p95;
    const double p95_beside = Summarise(beside).p95;
    const std::string in_background =
        StrFormat("beside %" PRId64 " in the background", plan_.background);
    Add("serve-alone", "token to token, alone", "ms", alone);
    Add("serve-alone-p95", "token to token, alone: 95th percentile", "ms", {p95_alone});
    Add("serve-beside", "token to token, " + in_background, "ms", beside).sequences =
        1 + plan_.background;
    Add("serve-beside-p95", in_background + ": 95th percentile", "ms", {p95_beside});
    AddRatio("serve-p95-ratio", "95th percentiles, beside over alone", p95_beside, p95_alone);
    Add("serve-background", "the background meanwhile", "tokens/s", others);
    return OkStatus();
  }

  // ---- throughput ----

  Status Throughput() {
    double one = 0;
    for (const int64_t count : plan_.sessions) {
      std::vector<double> rates;
      const double began = Seconds();
      // The first time is the warm-up.
      for (int64_t i = -1; i < 0 || !Enough(i, began); ++i) {
        std::vector<Talk> talks;
        for (int64_t s = 0; s < count; ++s) {
          CELLM_ASSIGN_OR_RETURN(Talk talk, Open(plan_.throughput_class));
          CELLM_RETURN_IF_ERROR(Submit(&talk, kShift * s, plan_.bench.batch_depth, 0));
          talks.push_back(std::move(talk));
        }
        CELLM_RETURN_IF_ERROR(FinishAll(&talks));
        const double replies_begin = Seconds();
        for (int64_t s = 0; s < count; ++s) {
          CELLM_RETURN_IF_ERROR(Submit(&talks[static_cast<size_t>(s)],
                                       kShift * s + plan_.bench.batch_depth, 1,
                                       plan_.bench.decode_tokens, CELLM_REQUEST_KEEP_NOTHING));
        }
        CELLM_RETURN_IF_ERROR(FinishAll(&talks));
        const double rate =
            static_cast<double>(count * plan_.bench.decode_tokens) / (Seconds() - replies_begin);
        if (i >= 0) rates.push_back(rate);
      }
      Measured& row = Add("serve-throughput", StrFormat("%" PRId64 " at once, all together", count),
                          "tokens/s", rates);
      row.sequences = count;
      row.depth = plan_.bench.batch_depth;
      row.tokens = plan_.bench.decode_tokens;
      if (count == 1) one = row.value.median;
      const double median = row.value.median;
      if (count > 1) {
        AddRatio("serve-throughput-ratio", StrFormat("%" PRId64 " at once over one", count), median,
                 one);
        run_->rows.back().sequences = count;
      }
    }
    return OkStatus();
  }

  // ---- a cached beginning ----

  Status FirstToken() {
    const int64_t system = plan_.system_tokens;
    CELLM_ASSIGN_OR_RETURN(Talk cold, Open(CELLM_CLASS_INTERACTIVE));
    CELLM_RETURN_IF_ERROR(Submit(&cold, 0, system + kNewTokens, 1, CELLM_REQUEST_KEEP_NOTHING));
    CELLM_RETURN_IF_ERROR(Finish(&cold));
    CELLM_ASSIGN_OR_RETURN(Talk base, Open(CELLM_CLASS_INTERACTIVE));
    CELLM_RETURN_IF_ERROR(Submit(&base, 0, system, 0));
    CELLM_RETURN_IF_ERROR(Finish(&base));
    std::vector<double> first, allowed, reused, ratios;
    const double began = Seconds();
    for (int64_t i = -1; i < 0 || !Enough(i, began); ++i) {
      // The new tokens alone, behind the beginning that its own session holds.
      cellm_error error = CELLM_ERROR_INIT;
      cellm_session* fork = nullptr;
      CELLM_RETURN_IF_ERROR(Check(cellm_session_fork(base.session.get(), &fork, &error), error));
      Talk behind;
      behind.session.reset(fork);
      CELLM_RETURN_IF_ERROR(Submit(&behind, system, kNewTokens, 0, CELLM_REQUEST_KEEP_NOTHING));
      CELLM_RETURN_IF_ERROR(Finish(&behind));
      CELLM_ASSIGN_OR_RETURN(Talk other, Open(CELLM_CLASS_INTERACTIVE));
      CELLM_RETURN_IF_ERROR(Submit(&other, 0, system + kNewTokens, 16, CELLM_REQUEST_KEEP_NOTHING));
      CELLM_RETURN_IF_ERROR(Finish(&other));
      if (i < 0) continue;
      const double step = Summarise(Gaps(other.times)).median;
      first.push_back(Milliseconds(other.receipt.first_token_ns));
      allowed.push_back(2 * step + Milliseconds(behind.receipt.prompt_ns));
      ratios.push_back(first.back() / allowed.back());
      reused.push_back(static_cast<double>(other.receipt.reused_tokens));
    }
    const std::string about =
        StrFormat("%" PRId64 " tokens and %" PRId64 " new", system, kNewTokens);
    Add("serve-first-cold", "first token, " + about + ", cold", "ms",
        {Milliseconds(cold.receipt.first_token_ns)});
    Add("serve-first-cached", "first token, " + about + ", cached", "ms", first);
    Add("serve-first-allowed", "two decode steps and the new tokens", "ms", allowed);
    Add("serve-first-ratio", "first token, cached, over those", "x", ratios);
    Add("serve-first-reused", "tokens reused", "tokens", reused);
    return OkStatus();
  }

  // ---- contexts on disk ----

  // Writes the file's pages out and has the system forget them, so that they are read again.
  static Result<uint64_t> DropFromCache(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat info = {};
    if (file < 0 || ::fstat(file, &info) != 0 || ::fsync(file) != 0 ||
        ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0) {
      if (file >= 0) ::close(file);
      return IoError("%s: cannot be taken out of the cache", path.c_str());
    }
    ::close(file);
    return static_cast<uint64_t>(info.st_size);
  }

  Status Resume() {
    const std::string path = platform::JoinPath(plan_.folder, "bench.session");
    std::vector<double> prefill, save, resume, ratios;
    uint64_t bytes = 0;
    size_t restored = 0;
    cellm_error error = CELLM_ERROR_INIT;
    const double began = Seconds();
    for (int64_t i = 0; !Enough(i, began); ++i) {
      // Private: nothing of it stays in memory once the session is closed.
      CELLM_ASSIGN_OR_RETURN(Talk talk, Open(CELLM_CLASS_INTERACTIVE, CELLM_SESSION_PRIVATE));
      CELLM_RETURN_IF_ERROR(Submit(&talk, 0, plan_.context_tokens, 1));
      CELLM_RETURN_IF_ERROR(Finish(&talk));
      prefill.push_back(Milliseconds(talk.receipt.first_token_ns));
      double mark = Seconds();
      CELLM_RETURN_IF_ERROR(Check(
          cellm_session_save(talk.session.get(), path.data(), path.size(), 0, &error), error));
      save.push_back(1e3 * (Seconds() - mark));
      talk.session.reset();
      CELLM_ASSIGN_OR_RETURN(bytes, DropFromCache(path));
      cellm_session_options options = CELLM_SESSION_OPTIONS_INIT;
      options.flags = CELLM_SESSION_PRIVATE;
      cellm_session* session = nullptr;
      mark = Seconds();
      CELLM_RETURN_IF_ERROR(Check(cellm_session_restore(engine_.get(), path.data(), path.size(),
                                                        &options, &session, &restored, &error),
                                  error));
      Talk again;
      again.session.reset(session);
      CELLM_RETURN_IF_ERROR(Submit(&again, plan_.context_tokens, 1, 1));
      CELLM_RETURN_IF_ERROR(Finish(&again));
      resume.push_back(1e3 * (Seconds() - mark));
      ratios.push_back(prefill.back() / resume.back());
    }
    (void)::unlink(path.c_str());
    const std::string of = StrFormat(" of %" PRId64 " tokens", plan_.context_tokens);
    Add("serve-prefill", "evaluation" + of + " and a token", "ms", prefill);
    Add("serve-save", "saving them", "ms", save);
    Add("serve-file", "file", "MB", {static_cast<double>(bytes) / 1e6});
    Add("serve-restored", "tokens restored", "tokens", {static_cast<double>(restored)});
    Add("serve-resume", "resuming from disk and a token", "ms", resume);
    Add("serve-resume-ratio", "evaluation over resuming", "x", ratios);
    return OkStatus();
  }

  // ---- turns ----

  Result<cellm_memory> Memory() const {
    cellm_memory memory = CELLM_MEMORY_INIT;
    cellm_error error = CELLM_ERROR_INIT;
    CELLM_RETURN_IF_ERROR(Check(cellm_engine_get_memory(engine_.get(), &memory, &error), error));
    return memory;
  }

  // Eight conversations, memory for three of them: each turn has to bring its context back.
  Status Turns() {
    const int64_t turns = std::clamp<int64_t>(plan_.bench.repeats, 1, kMostTurns);
    CELLM_ASSIGN_OR_RETURN(const cellm_memory before, Memory());
    std::vector<Talk> talks;
    std::vector<double> evaluation, back, reused, ratios;
    uint64_t context_bytes = 0;
    for (int64_t s = 0; s < kTurnSessions; ++s) {
      // Planned for what it has: a plan for the whole context might not fit the budget alone.
      CELLM_ASSIGN_OR_RETURN(Talk talk,
                             Open(CELLM_CLASS_INTERACTIVE, CELLM_SESSION_PLAN_FIRST_REQUEST));
      CELLM_RETURN_IF_ERROR(Submit(&talk, kShift * s, plan_.turn_tokens, 1));
      CELLM_RETURN_IF_ERROR(Finish(&talk));
      evaluation.push_back(Milliseconds(talk.receipt.first_token_ns));
      talks.push_back(std::move(talk));
      if (s > 0) continue;
      CELLM_ASSIGN_OR_RETURN(const cellm_memory after, Memory());
      context_bytes = after.used - before.used;
      cellm_error error = CELLM_ERROR_INIT;
      CELLM_RETURN_IF_ERROR(Check(cellm_engine_set_memory_budget(
                                      engine_.get(), before.used + 7 * context_bytes / 2, &error),
                                  error));
    }
    for (int64_t turn = 0; turn < turns; ++turn) {
      for (int64_t s = 0; s < kTurnSessions; ++s) {
        Talk& talk = talks[static_cast<size_t>(s)];
        CELLM_RETURN_IF_ERROR(Submit(&talk, plan_.turn_tokens + kTurnPrompt * turn + kShift * s,
                                     kTurnPrompt, kTurnReply));
        CELLM_RETURN_IF_ERROR(Finish(&talk));
        back.push_back(Milliseconds(talk.receipt.first_token_ns));
        reused.push_back(static_cast<double>(talk.receipt.reused_tokens));
      }
    }
    cellm_engine_stats stats = CELLM_ENGINE_STATS_INIT;
    cellm_error error = CELLM_ERROR_INIT;
    CELLM_RETURN_IF_ERROR(Check(cellm_engine_get_stats(engine_.get(), &stats, &error), error));
    Add("turns-evaluation",
        StrFormat("a context of %" PRId64 " tokens, evaluated", plan_.turn_tokens), "ms",
        evaluation);
    Add("turns-context", "its memory", "MB", {static_cast<double>(context_bytes) / 1e6});
    Add("turns-back", "first token after coming back, 8 in the memory of 3", "ms", back);
    Add("turns-reused", "tokens that came from memory or disk", "tokens", reused);
    AddRatio("turns-ratio", "evaluation over coming back", Summarise(evaluation).median,
             Summarise(back).median);
    Add("turns-swapped", "on disk at the end", "MB",
        {static_cast<double>(stats.swapped_bytes) / 1e6});
    Add("turns-failures", "reads and writes that failed", "",
        {static_cast<double>(stats.swap_failures)});
    return OkStatus();
  }

  // Conversations that run together begin so many tokens apart in the text.
  static constexpr int64_t kShift = 7;

  const ServePlan& plan_;
  Opener* opener_;
  BenchRun* run_;
  const double begin_;
  const char* phase_ = "";
  double last_sample_ = -1;
  int idle_steps_ = 0;
  int64_t pieces_ = 0;
  std::vector<int32_t> ids_;
  ModelHandle model_;
  EngineHandle engine_;
};

}  // namespace

int64_t ServePlan::ContextNeeded() const {
  int64_t most = 1;
  const auto raise = [&most](bool used, int64_t tokens) {
    if (used) most = std::max(most, tokens);
  };
  raise(latency, std::max(kChatPrompt, kBackgroundPrompt) + bench.decode_tokens);
  raise(throughput, bench.batch_depth + 1 + bench.decode_tokens);
  raise(first_token, system_tokens + kNewTokens + 16);
  raise(resume, context_tokens + 4);
  raise(turns, turn_tokens + 1 + kMostTurns * (kTurnPrompt + kTurnReply));
  return most;
}

int64_t ServePlan::SequencesNeeded() const {
  int64_t most = std::max(background + 1, kTurnSessions);
  for (const int64_t count : sessions) most = std::max(most, count);
  return most;
}

Status MeasureServe(const ServePlan& plan, Opener* opener, BenchRun* run) {
  return Serve(plan, opener, run).Run();
}

}  // namespace cellm::tools
