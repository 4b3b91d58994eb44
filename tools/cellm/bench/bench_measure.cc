#include "cellm/bench/bench_measure.h"

#include <algorithm>
#include <utility>

#include "cellm/bench/bench_text.h"
#include "cellm/cellm_experimental.h"
#include "platform/clock.h"
#include "platform/cores.h"

namespace cellm::tools {
namespace {

double Seconds() { return static_cast<double>(platform::MonotonicClock().NowNs()) / 1e9; }

Status Check(cellm_status status, const cellm_error& error) {
  return status == CELLM_OK ? OkStatus() : ToStatus(error);
}

// A sequence that is freed however the measurement ends.
class Sequence {
 public:
  Sequence(cellm_engine* engine, cellm_sequence id) : engine_(engine), id_(id) {}
  Sequence(Sequence&& other) noexcept
      : engine_(std::exchange(other.engine_, nullptr)), id_(other.id_) {}
  Sequence& operator=(Sequence&&) = delete;
  ~Sequence() {
    if (engine_ != nullptr) (void)cellm_sequence_free(engine_, id_, nullptr);
  }
  cellm_sequence id() const { return id_; }

  static Result<Sequence> Create(cellm_engine* engine) {
    cellm_error error = CELLM_ERROR_INIT;
    cellm_sequence id{};
    CELLM_RETURN_IF_ERROR(Check(cellm_sequence_create(engine, 0, &id, &error), error));
    return Sequence(engine, id);
  }
  Result<Sequence> Fork() const {
    cellm_error error = CELLM_ERROR_INIT;
    cellm_sequence id{};
    CELLM_RETURN_IF_ERROR(Check(cellm_sequence_fork(engine_, id_, &id, &error), error));
    return Sequence(engine_, id);
  }

 private:
  cellm_engine* engine_;
  cellm_sequence id_;
};

// The largest logit of every item, as a greedy reply would take it; also keeps the work honest.
struct Largest {
  std::vector<int32_t> ids;
};
int32_t OnLogits(size_t list, size_t, const float* logits, int32_t vocabulary, void* user) {
  std::vector<int32_t>& ids = static_cast<Largest*>(user)->ids;
  if (ids.size() <= list) ids.resize(list + 1);
  ids[list] = static_cast<int32_t>(std::max_element(logits, logits + vocabulary) - logits);
  return 0;
}

// Sequences that run together begin this many tokens apart in the text.
constexpr int64_t kShift = 7;

int32_t OnToken(const cellm_token*, void*) { return 0; }

class Bench {
 public:
  Bench(const BenchPlan& plan, const Ceilings& ceilings, cellm_model* model, cellm_engine* engine,
        BenchRun* run)
      : plan_(plan), ceilings_(ceilings), model_(model), engine_(engine), run_(run) {}

  Status Run() {
    CELLM_RETURN_IF_ERROR(MakeIds());
    if (plan_.prefill) CELLM_RETURN_IF_ERROR(Prefill());
    if (plan_.decode) {
      for (const int64_t depth : plan_.depths) CELLM_RETURN_IF_ERROR(Decode("decode", depth));
    }
    if (plan_.batch) CELLM_RETURN_IF_ERROR(Batches());
    if (plan_.long_context) CELLM_RETURN_IF_ERROR(LongContext());
    if (plan_.first_token) CELLM_RETURN_IF_ERROR(FirstToken());
    if (plan_.encode && encodes_) CELLM_RETURN_IF_ERROR(Encode());
    if (plan_.memory) CELLM_RETURN_IF_ERROR(Memory());
    return OkStatus();
  }

 private:
  void Say(const std::string& what) const {
    Note(plan_.quiet,
         StrFormat("%s %s: %s", run_->model.c_str(), run_->format.c_str(), what.c_str()));
  }

  Status MakeIds() {
    cellm_model_info info = CELLM_MODEL_INFO_INIT;
    cellm_error error = CELLM_ERROR_INIT;
    CELLM_RETURN_IF_ERROR(Check(cellm_model_get_info(model_, &info, &error), error));
    encodes_ = info.tokenizer_size > 0;
    const int64_t needed = plan_.ContextNeeded() + kShift * plan_.SequencesNeeded() + 1;
    CELLM_ASSIGN_OR_RETURN(ids_, BenchIds(model_, plan_.text, needed));
    return OkStatus();
  }

  Status Step(const std::vector<cellm_step_item>& items, bool logits) {
    cellm_error error = CELLM_ERROR_INIT;
    return Check(cellm_sequences_step(engine_, items.data(), items.size(),
                                      logits ? OnLogits : nullptr, &largest_, &error),
                 error);
  }

  // Appends ids [begin, end) of the text in chunks; logits of the last one when asked.
  Status Feed(const Sequence& sequence, int64_t begin, int64_t end, bool logits) {
    const int64_t chunk = chunk_tokens();
    for (int64_t at = begin; at < end; at += chunk) {
      const int64_t count = std::min(chunk, end - at);
      CELLM_RETURN_IF_ERROR(Step({{sequence.id(), ids_.data() + at, static_cast<size_t>(count)}},
                                 logits && at + count == end));
    }
    return OkStatus();
  }
  int64_t chunk_tokens() const { return std::min(plan_.chunk_tokens, plan_.ContextNeeded()); }

  // Repeats `once`, which returns a value, until there are enough or time is up.
  template <typename Once>
  Result<std::vector<double>> Repeat(const Once& once) {
    std::vector<double> values;
    const double begin = Seconds();
    for (int64_t i = 0; i < plan_.warmups + plan_.repeats; ++i) {
      const bool over = Seconds() - begin > plan_.seconds;
      if (over && !values.empty()) break;
      CELLM_ASSIGN_OR_RETURN(const double value, once());
      if (i >= plan_.warmups || over) values.push_back(value);
    }
    return values;
  }

  Result<cellm_token_work> Work(int64_t depth) const {
    cellm_token_work work = CELLM_TOKEN_WORK_INIT;
    cellm_error error = CELLM_ERROR_INIT;
    CELLM_RETURN_IF_ERROR(
        Check(cellm_engine_get_work(engine_, static_cast<uint32_t>(depth), &work, &error), error));
    return work;
  }
  size_t CeilingIndex() const { return run_->threads >= 2 ? 1 : 0; }

  // Operations a second as a share of the peak that the format allows.
  void ShareOfPeak(const cellm_token_work& work, double operations, Measured* row) const {
    // Two bytes a weight and more are floats.
    const bool floats = work.body_bytes >= 2 * work.body_products;
    const double bf16 = ceilings_.bf16_ops[CeilingIndex()];
    const double f32 = ceilings_.f32_ops[CeilingIndex()];
    const double int8 = ceilings_.int8_ops[CeilingIndex()];
    const double peak = !floats ? int8 : bf16 > 0 ? bf16 : f32;
    row->share_of = !floats ? "int8" : bf16 > 0 ? "bf16" : "f32";
    if (peak > 0) row->share = operations / peak;
  }

  Status Prefill() {
    const int64_t count = plan_.prefill_tokens;
    Say(StrFormat("prefill of %lld tokens", static_cast<long long>(count)));
    CELLM_ASSIGN_OR_RETURN(const std::vector<double> rates, Repeat([&]() -> Result<double> {
                             CELLM_ASSIGN_OR_RETURN(const Sequence sequence,
                                                    Sequence::Create(engine_));
                             const double begin = Seconds();
                             CELLM_RETURN_IF_ERROR(Feed(sequence, 0, count, true));
                             return static_cast<double>(count) / (Seconds() - begin);
                           }));
    Measured row;
    row.test = "prefill";
    row.detail = StrFormat("prefill %lld", static_cast<long long>(count));
    row.tokens = count;
    row.unit = "tokens/s";
    row.value = Summarise(rates);
    CELLM_ASSIGN_OR_RETURN(const cellm_token_work work, Work(0));
    ShareOfPeak(work, 2 * static_cast<double>(work.body_products) * row.value.median, &row);
    run_->rows.push_back(std::move(row));
    return OkStatus();
  }

  // Tokens/s of `sequences` together at `depth`, one token a step each.
  Status Decode(const char* test, int64_t depth, int64_t sequences = 1) {
    Say(StrFormat("%s at depth %lld, %lld at once", test, static_cast<long long>(depth),
                  static_cast<long long>(sequences)));
    // Every sequence has a past of its own, as conversations do.
    std::vector<Sequence> bases;
    for (int64_t s = 0; s < sequences; ++s) {
      CELLM_ASSIGN_OR_RETURN(Sequence base, Sequence::Create(engine_));
      CELLM_RETURN_IF_ERROR(Feed(base, kShift * s, kShift * s + depth, false));
      bases.push_back(std::move(base));
    }
    std::vector<double> steps;
    CELLM_ASSIGN_OR_RETURN(
        const std::vector<double> rates, Repeat([&]() -> Result<double> {
          std::vector<Sequence> forks;
          for (const Sequence& base : bases) {
            CELLM_ASSIGN_OR_RETURN(Sequence fork, base.Fork());
            forks.push_back(std::move(fork));
          }
          // Different tokens a sequence, from the text.
          std::vector<int32_t> next;
          for (int64_t s = 0; s < sequences; ++s) {
            next.push_back(ids_[static_cast<size_t>(depth + kShift * s)]);
          }
          double total = 0;
          for (int64_t k = 0; k < plan_.decode_tokens; ++k) {
            std::vector<cellm_step_item> items;
            for (size_t s = 0; s < forks.size(); ++s) {
              items.push_back({forks[s].id(), &next[s], 1});
            }
            const double begin = Seconds();
            CELLM_RETURN_IF_ERROR(Step(items, true));
            const double took = Seconds() - begin;
            total += took;
            steps.push_back(1e3 * took);
            // The text goes on; what random weights would say repeats itself soon.
            for (size_t s = 0; s < forks.size(); ++s) {
              next[s] = ids_[static_cast<size_t>(depth + k + 1 + kShift * static_cast<int64_t>(s))];
            }
          }
          return static_cast<double>(sequences * plan_.decode_tokens) / total;
        }));
    Measured row;
    row.test = test;
    row.detail = StrFormat("decode at %lld", static_cast<long long>(depth));
    if (row.test == "batch") {
      row.detail += StrFormat(", %lld at once", static_cast<long long>(sequences));
    }
    row.tokens = plan_.decode_tokens;
    row.depth = depth;
    row.sequences = sequences;
    row.unit = "tokens/s";
    row.value = Summarise(rates);
    row.step_ms = Summarise(steps);
    CELLM_ASSIGN_OR_RETURN(const cellm_token_work work, Work(depth + plan_.decode_tokens / 2));
    const double read = ceilings_.read_bytes[CeilingIndex()];
    if (read > 0) {
      // Weights once a step, the rest once a sequence.
      const double own =
          static_cast<double>(sequences) * static_cast<double>(work.cache_bytes + work.state_bytes);
      const double bytes = static_cast<double>(work.body_bytes + work.head_bytes) + own;
      row.share = bytes * row.value.median / static_cast<double>(sequences) / read;
      row.share_of = "read";
    }
    run_->rows.push_back(std::move(row));
    return OkStatus();
  }

  Status Batches() {
    for (const int64_t sequences : plan_.batches) {
      CELLM_RETURN_IF_ERROR(Decode("batch", plan_.batch_depth, sequences));
    }
    return OkStatus();
  }

  // The whole prompt, its last chunk alone, and decode behind it.
  Status LongContext() {
    const int64_t count = plan_.long_tokens;
    Say(StrFormat("prefill of %lld tokens", static_cast<long long>(count)));
    std::vector<double> last;
    const int64_t tail = std::min(count, chunk_tokens());
    CELLM_ASSIGN_OR_RETURN(const std::vector<double> rates, Repeat([&]() -> Result<double> {
                             CELLM_ASSIGN_OR_RETURN(const Sequence sequence,
                                                    Sequence::Create(engine_));
                             const double begin = Seconds();
                             CELLM_RETURN_IF_ERROR(Feed(sequence, 0, count - tail, false));
                             const double middle = Seconds();
                             CELLM_RETURN_IF_ERROR(Feed(sequence, count - tail, count, true));
                             const double end = Seconds();
                             last.push_back(static_cast<double>(tail) / (end - middle));
                             return static_cast<double>(count) / (end - begin);
                           }));
    Measured row;
    row.test = "long-prefill";
    row.detail = StrFormat("prefill %lld", static_cast<long long>(count));
    row.tokens = count;
    row.unit = "tokens/s";
    row.value = Summarise(rates);
    run_->rows.push_back(row);
    row.test = "long-prefill-tail";
    row.detail = StrFormat("prefill of the last %lld of %lld", static_cast<long long>(tail),
                           static_cast<long long>(count));
    row.tokens = tail;
    row.depth = count - tail;
    row.value = Summarise(last);
    run_->rows.push_back(row);
    return Decode("long-decode", count);
  }

  // A reply as a program would ask for it: prompt, then tokens one by one with sampling (greedy).
  Status FirstToken() {
    Say(StrFormat("reply of %lld tokens to a prompt of %lld",
                  static_cast<long long>(plan_.reply_tokens),
                  static_cast<long long>(plan_.prompt_tokens)));
    std::vector<double> first, whole;
    CELLM_ASSIGN_OR_RETURN(
        const std::vector<double> rates, Repeat([&]() -> Result<double> {
          cellm_error error = CELLM_ERROR_INIT;
          cellm_session* session = nullptr;
          CELLM_RETURN_IF_ERROR(
              Check(cellm_session_open(engine_, nullptr, &session, &error), error));
          const SessionHandle owned_session(session);
          cellm_sampling sampling = CELLM_SAMPLING_INIT;
          sampling.given = CELLM_SAMPLING_TEMPERATURE | CELLM_SAMPLING_SEED;
          cellm_request_options options = CELLM_REQUEST_OPTIONS_INIT;
          options.flags = CELLM_REQUEST_IGNORE_END;
          options.max_tokens = static_cast<uint32_t>(plan_.reply_tokens);
          options.sampling = &sampling;
          cellm_request* request = nullptr;
          CELLM_RETURN_IF_ERROR(
              Check(cellm_session_submit_tokens(session, ids_.data(),
                                                static_cast<size_t>(plan_.prompt_tokens), &options,
                                                &request, &error),
                    error));
          const RequestHandle owned_request(request);
          CELLM_RETURN_IF_ERROR(Check(cellm_request_run(request, OnToken, nullptr, &error), error));
          cellm_receipt receipt = CELLM_RECEIPT_INIT;
          CELLM_RETURN_IF_ERROR(Check(cellm_request_get_receipt(request, &receipt, &error), error));
          first.push_back(static_cast<double>(receipt.first_token_ns) / 1e6);
          whole.push_back(static_cast<double>(receipt.first_token_ns + receipt.decode_ns) / 1e6);
          return receipt.decode_tokens_per_second;
        }));
    // The first values are those of the warm-ups.
    const auto keep = [&](std::vector<double> values) {
      values.erase(values.begin(), values.end() - static_cast<std::ptrdiff_t>(rates.size()));
      return Summarise(std::move(values));
    };
    const std::string in_out =
        StrFormat("%lld in, %lld out: ", static_cast<long long>(plan_.prompt_tokens),
                  static_cast<long long>(plan_.reply_tokens));
    const auto add = [&](const char* test, const char* detail, const char* unit, Statistics value) {
      Measured row;
      row.test = test;
      row.detail = in_out + detail;
      row.tokens = plan_.prompt_tokens + plan_.reply_tokens;
      row.unit = unit;
      row.value = value;
      run_->rows.push_back(std::move(row));
    };
    add("first-token", "first token", "ms", keep(first));
    add("reply", "whole reply", "ms", keep(whole));
    add("reply-decode", "decode", "tokens/s", Summarise(rates));
    return OkStatus();
  }

  Status Encode() {
    Say("encoding text");
    const std::string text = plan_.text.empty() ? BenchText(1000000) : plan_.text;
    std::vector<int32_t> ids(text.size());
    CELLM_ASSIGN_OR_RETURN(
        const std::vector<double> rates, Repeat([&]() -> Result<double> {
          cellm_error error = CELLM_ERROR_INIT;
          size_t count = 0;
          const double begin = Seconds();
          CELLM_RETURN_IF_ERROR(Check(cellm_model_tokenize(model_, text.data(), text.size(), 0,
                                                           ids.data(), ids.size(), &count, &error),
                                      error));
          return static_cast<double>(text.size()) / 1e6 / (Seconds() - begin);
        }));
    Measured row;
    row.test = "encode";
    row.detail = StrFormat("encoding %.3g MB of text", static_cast<double>(text.size()) / 1e6);
    row.unit = "MB/s";
    row.value = Summarise(rates);
    run_->rows.push_back(std::move(row));
    return OkStatus();
  }

  Status Memory() {
    cellm_error error = CELLM_ERROR_INIT;
    cellm_memory memory = CELLM_MEMORY_INIT;
    CELLM_RETURN_IF_ERROR(Check(cellm_engine_get_memory(engine_, &memory, &error), error));
    const struct {
      const char* name;
      uint64_t bytes;
    } rows[] = {{"weights", memory.weights},
                {"cache", memory.cache},
                {"activations", memory.activations},
                {"tokenizer", memory.tokenizer},
                {"other", memory.other},
                {"peak of all", memory.peak},
                {"anonymous, as the system counts", platform::AnonymousBytes()}};
    for (const auto& entry : rows) {
      Measured row;
      row.test = "memory";
      row.detail = StrFormat("memory: %s", entry.name);
      row.unit = "MB";
      row.value = Summarise({static_cast<double>(entry.bytes) / 1e6});
      run_->rows.push_back(std::move(row));
    }
    return OkStatus();
  }

  const BenchPlan& plan_;
  const Ceilings& ceilings_;
  cellm_model* model_;
  cellm_engine* engine_;
  BenchRun* run_;
  std::vector<int32_t> ids_;
  bool encodes_ = false;
  Largest largest_;
};

}  // namespace

int64_t BenchPlan::ContextNeeded() const {
  int64_t most = 1;
  const auto raise = [&most](bool used, int64_t tokens) {
    if (used) most = std::max(most, tokens);
  };
  raise(prefill, prefill_tokens);
  for (const int64_t depth : depths) raise(decode, depth + decode_tokens);
  raise(batch, batch_depth + decode_tokens);
  raise(long_context, long_tokens + decode_tokens);
  raise(first_token, prompt_tokens + reply_tokens);
  return most;
}

int64_t BenchPlan::SequencesNeeded() const {
  int64_t most = 1;
  if (batch) {
    for (const int64_t count : batches) most = std::max(most, count);
  }
  return 2 * most;  // and those that are forked
}

Status MeasureEngine(const BenchPlan& plan, const Ceilings& ceilings, cellm_model* model,
                     cellm_engine* engine, BenchRun* run) {
  return Bench(plan, ceilings, model, engine, run).Run();
}

Status MeasureLoad(const BenchPlan& plan, Opener* opener, BenchRun* run) {
  std::vector<double> times;
  for (int64_t i = 0; i < plan.warmups + std::min<int64_t>(plan.repeats, 5); ++i) {
    ModelHandle model;
    EngineHandle engine;
    const double begin = Seconds();
    CELLM_RETURN_IF_ERROR(opener->Open(&model, &engine));
    if (i >= plan.warmups) times.push_back(1e3 * (Seconds() - begin));
  }
  Measured row;
  row.test = "load";
  row.detail = "opening model and engine, file cached";
  row.unit = "ms";
  row.value = Summarise(std::move(times));
  run->rows.push_back(std::move(row));
  return OkStatus();
}

}  // namespace cellm::tools
