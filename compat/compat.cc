// The functions of the Rust system's C API, over include/cellm/cellm.h and nothing else.
//
// A handle is generation * 2^16 + slot + 1 of a table in this file, so that an old one is found
// out. The table is the only state of the process; the lock of a table is held while a slot is read
// or written, never during work. Work on an engine holds the engine's own lock; whoever works on it
// keeps it alive, so destroying it in another thread is safe.
#include <cellm/cellm.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cmath>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cellm_compat/cellm.h"

namespace {

constexpr uint32_t kSlots = 1024;   // engines, and tokenizers, that exist at once
constexpr uint32_t kPageUnit = 16;  // cellm.h: pages are multiples of it
constexpr uint32_t kMaxPage = 4096;
constexpr size_t kMaxPromptTokens = 1 << 24;  // beyond any context

// ---- errors -----------------------------------------------------------------------------------

thread_local char last_error[1024];

// The largest count of bytes, at most `most`, at which `text` may be cut without breaking a
// character.
size_t CutAt(const char* text, size_t bytes, size_t most) {
  if (bytes <= most) return bytes;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;
  return most;
}

size_t CopyText(const char* text, size_t bytes, char* out, size_t capacity) {
  if (out == nullptr || capacity == 0) return 0;
  const size_t count = CutAt(text, bytes, capacity - 1);
  if (count > 0) memcpy(out, text, count);
  out[count] = '\0';
  return count;
}

__attribute__((format(printf, 1, 2))) void SetError(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int written = vsnprintf(last_error, sizeof(last_error), format, arguments);
  va_end(arguments);
  if (written >= static_cast<int>(sizeof(last_error))) {
    last_error[CutAt(last_error, sizeof(last_error), sizeof(last_error) - 1)] = '\0';
  }
}

void SetError(const char* what, const cellm_error& error) {
  SetError("%s: %s", what, error.message[0] ? error.message : cellm_status_name(error.status));
}

// ---- objects ----------------------------------------------------------------------------------

struct Session {
  cellm_session_t id = 0;
  cellm_session* session = nullptr;
  cellm_request* request = nullptr;  // while it has more tokens
  bool suspended = false;
  uint64_t turns = 0;
  std::vector<int32_t> last_prompt;

  Session() = default;
  Session(Session&& other) noexcept { *this = std::move(other); }
  Session& operator=(Session&& other) noexcept {
    std::swap(id, other.id);
    std::swap(session, other.session);
    std::swap(request, other.request);
    std::swap(suspended, other.suspended);
    std::swap(turns, other.turns);
    std::swap(last_prompt, other.last_prompt);
    return *this;
  }
  ~Session() {
    cellm_request_close(request);
    cellm_session_close(session);
  }
  void EndRequest() {
    cellm_request_close(request);
    request = nullptr;
  }
};

struct Engine {
  std::mutex mutex;
  std::condition_variable cooled;  // the level or the sessions changed
  cellm_model* model = nullptr;
  cellm_engine* engine = nullptr;
  cellm_sampling sampling = CELLM_SAMPLING_INIT;
  uint32_t tokens_per_block = 0, total_blocks = 0;
  cellm_session_t next_id = 1;
  cellm_session_t last_served = 0;
  std::vector<Session> sessions;  // by id

  ~Engine() {
    sessions.clear();
    cellm_engine_close(engine);
    cellm_model_close(model);
  }
  Session* Find(cellm_session_t id) {
    for (Session& s : sessions) {
      if (s.id == id) return &s;
    }
    SetError("session %llu: there is no such session in this engine",
             static_cast<unsigned long long>(id));
    return nullptr;
  }
};

struct Tokenizer {
  cellm_model* model = nullptr;
  ~Tokenizer() { cellm_model_close(model); }
};

template <typename T>
class Table {
 public:
  constexpr explicit Table(const char* noun) : noun_(noun) {}

  uint64_t Add(std::shared_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    for (uint32_t i = 0; i < kSlots; ++i) {
      if (slots_[i].object != nullptr) continue;
      slots_[i].object = std::move(object);
      return ((++slots_[i].generation) << 16) + i + 1;
    }
    SetError("%s: there are %u already", noun_, kSlots);
    return 0;
  }
  std::shared_ptr<T> Get(uint64_t handle) {
    const std::lock_guard lock(mutex_);
    const Slot* slot = Find(handle);
    return slot != nullptr ? slot->object : nullptr;
  }
  // What was there; it ends when whoever still uses it has finished.
  std::shared_ptr<T> Take(uint64_t handle) {
    const std::lock_guard lock(mutex_);
    Slot* slot = Find(handle);
    return slot != nullptr ? std::move(slot->object) : nullptr;
  }

 private:
  struct Slot {
    uint64_t generation = 0;
    std::shared_ptr<T> object;
  };
  Slot* Find(uint64_t handle) {
    const uint64_t index = (handle & 0xFFFF) - 1;
    if (index < kSlots && slots_[index].generation == handle >> 16 &&
        slots_[index].object != nullptr) {
      return &slots_[index];
    }
    SetError("%s %llu: there is no such %s; it was destroyed, or never created", noun_,
             static_cast<unsigned long long>(handle), noun_);
    return nullptr;
  }

  const char* noun_;
  std::mutex mutex_;
  Slot slots_[kSlots];
};

// Never destroyed: a thread may still be inside a call when the process ends.
template <typename T>
union Forever {
  constexpr explicit Forever(const char* noun) : table(noun) {}
  ~Forever() {}
  Table<T> table;
};
constinit Forever<Engine> engines("engine");
constinit Forever<Tokenizer> tokenizers("tokenizer");

// The seed of a session, mixed from its number and the engine's so that sessions differ.
uint64_t SessionSeed(uint64_t seed, uint64_t id, uint64_t turn) {
  uint64_t x = (id + (turn << 32)) ^ 0x9E3779B97F4A7C15u;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  x ^= x >> 31;
  return x ^ seed;
}

// The next token of the request. False when there is none, the reply being over or failed; then
// *failed says which. A reply that ends with this token gives up its request.
bool NextToken(Session& s, uint32_t* out_token, bool* failed) {
  *failed = false;
  while (s.request != nullptr) {
    cellm_token token = CELLM_TOKEN_INIT;
    cellm_error error = CELLM_ERROR_INIT;
    if (cellm_request_next(s.request, &token, &error) != CELLM_OK) {
      SetError("step", error);
      s.EndRequest();
      *failed = true;
      return false;
    }
    const int32_t id = token.token_id;
    if (token.finish != CELLM_FINISH_NONE) s.EndRequest();
    if (id < 0) continue;  // text that was held back, and no token
    *out_token = static_cast<uint32_t>(id);
    return true;
  }
  return false;
}

int32_t Submit(cellm_engine_t handle, cellm_session_t id, const uint32_t* tokens, size_t count,
               uint32_t* out_next, uint32_t* out_hit) {
  const std::shared_ptr<Engine> engine = engines.table.Get(handle);
  if (engine == nullptr) return -1;
  const std::lock_guard lock(engine->mutex);
  Session* s = engine->Find(id);
  if (s == nullptr) return -1;
  if (tokens == nullptr || count == 0 || out_next == nullptr) {
    SetError("submit: there must be at least one token, and a place for the next");
    return -1;
  }
  if (count > kMaxPromptTokens) {
    SetError("submit: %zu tokens are more than any context holds", count);
    return -1;
  }
  std::vector<int32_t> ids(count);
  for (size_t i = 0; i < count; ++i) {
    if (tokens[i] > INT32_MAX) {
      SetError("submit: token %zu is %u, which no vocabulary has", i, tokens[i]);
      return -1;
    }
    ids[i] = static_cast<int32_t>(tokens[i]);
  }
  cellm_error error = CELLM_ERROR_INIT;
  const bool again = out_hit != nullptr && ids == s->last_prompt;
  if (again) {
    s->EndRequest();
    if (cellm_session_clear(s->session, &error) != CELLM_OK) {
      SetError("submit", error);
      return -1;
    }
  } else if (s->request != nullptr) {
    if (!s->suspended) {
      SetError("submit: session %llu is decoding; suspend or reset it first",
               static_cast<unsigned long long>(id));
      return -1;
    }
    s->EndRequest();
  }
  cellm_sampling sampling = engine->sampling;
  sampling.seed = SessionSeed(engine->sampling.seed, id, s->turns);
  cellm_request_options options = CELLM_REQUEST_OPTIONS_INIT;
  options.sampling = &sampling;
  if (cellm_session_submit_tokens(s->session, ids.data(), count, &options, &s->request, &error) !=
      CELLM_OK) {
    SetError("submit", error);
    return -1;
  }
  ++s->turns;
  s->suspended = false;
  s->last_prompt = std::move(ids);
  // The receipt is asked for before the request may end.
  bool failed = false;
  cellm_request* const request = s->request;
  cellm_token token = CELLM_TOKEN_INIT;
  if (cellm_request_next(request, &token, &error) != CELLM_OK) {
    SetError("submit", error);
    s->EndRequest();
    return -1;
  }
  uint32_t hit = 0;
  cellm_receipt receipt = CELLM_RECEIPT_INIT;
  if (cellm_request_get_receipt(request, &receipt, nullptr) == CELLM_OK) {
    hit = receipt.prompt_tokens > 1 && receipt.reused_tokens + 1 >= receipt.prompt_tokens;
  }
  uint32_t next = 0;
  const int32_t first = token.token_id;
  if (token.finish != CELLM_FINISH_NONE) s->EndRequest();
  if (first >= 0) {
    next = static_cast<uint32_t>(first);
  } else if (!NextToken(*s, &next, &failed)) {
    if (!failed) SetError("submit: the reply has no token");
    return -1;
  }
  *out_next = next;
  if (out_hit != nullptr) *out_hit = hit;
  engine->last_served = id;
  return 0;
}

}  // namespace

extern "C" {

size_t cellm_last_error_message(char* out_buf, size_t buf_len) {
  if (out_buf == nullptr || buf_len == 0) return 0;
  const size_t written = CopyText(last_error, strlen(last_error), out_buf, buf_len);
  last_error[0] = '\0';
  return written;
}

int32_t cellm_metal_smoke_test(void) {
  SetError("metal: not part of this build");
  return -1;
}

cellm_engine_t cellm_engine_create(const char* model_path, uint32_t tokens_per_block,
                                   uint32_t total_blocks, uint32_t top_k) {
  return cellm_engine_create_v2(model_path, tokens_per_block, total_blocks, top_k, 0.0f, 1.0f, 0,
                                1);
}

cellm_engine_t cellm_engine_create_v2(const char* model_path, uint32_t tokens_per_block,
                                      uint32_t total_blocks, uint32_t top_k, float temperature,
                                      float repeat_penalty, uint32_t repeat_window, uint64_t seed) {
  return cellm_engine_create_v3(model_path, tokens_per_block, total_blocks, top_k, temperature,
                                repeat_penalty, repeat_window, seed, CELLM_BACKEND_CPU);
}

cellm_engine_t cellm_engine_create_v3(const char* model_path, uint32_t tokens_per_block,
                                      uint32_t total_blocks, uint32_t top_k, float temperature,
                                      float repeat_penalty, uint32_t repeat_window, uint64_t seed,
                                      uint32_t backend) {
  return cellm_engine_create_v4(model_path, tokens_per_block, total_blocks, top_k, temperature,
                                repeat_penalty, repeat_window, seed, backend, CELLM_KV_ENCODING_F16,
                                0, 0);
}

cellm_engine_t cellm_engine_create_v4(const char* model_path, uint32_t tokens_per_block,
                                      uint32_t total_blocks, uint32_t top_k, float temperature,
                                      float repeat_penalty, uint32_t repeat_window, uint64_t seed,
                                      uint32_t backend, uint32_t kv_encoding,
                                      uint32_t turboq_int8_dot, uint32_t turboq_qjl_corr) {
  (void)turboq_int8_dot;
  (void)turboq_qjl_corr;
  if (model_path == nullptr) {
    SetError("engine: no model path");
    return 0;
  }
  if (tokens_per_block == 0 || tokens_per_block > kMaxPage || total_blocks == 0 ||
      total_blocks > kMaxPromptTokens) {
    SetError("engine: tokens_per_block %u must be 1 to %u, total_blocks %u 1 to %zu",
             tokens_per_block, kMaxPage, total_blocks, kMaxPromptTokens);
    return 0;
  }
  if (!(temperature >= 0) || !std::isfinite(temperature) || !(repeat_penalty > 0) ||
      !std::isfinite(repeat_penalty)) {
    SetError("engine: temperature %g must be 0 or more, repeat_penalty %g more than 0",
             static_cast<double>(temperature), static_cast<double>(repeat_penalty));
    return 0;
  }
  if (backend != CELLM_BACKEND_CPU) {
    SetError(backend == CELLM_BACKEND_METAL
                 ? "engine: Metal is not part of this build; ask for CELLM_BACKEND_CPU"
                 : "engine: backend %u is unknown; CELLM_BACKEND_CPU is 0",
             backend);
    return 0;
  }
  if (kv_encoding != CELLM_KV_ENCODING_F16) {
    SetError("engine: kv_encoding %u is not part of this build; ask for CELLM_KV_ENCODING_F16",
             kv_encoding);
    return 0;
  }
  const auto engine = std::make_shared<Engine>();
  engine->tokens_per_block = tokens_per_block;
  engine->total_blocks = total_blocks;
  cellm_error error = CELLM_ERROR_INIT;
  if (cellm_model_open(model_path, strlen(model_path), nullptr, &engine->model, &error) !=
      CELLM_OK) {
    SetError("engine", error);
    return 0;
  }
  cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
  const uint64_t tokens = uint64_t{tokens_per_block} * total_blocks;
  options.page_tokens = (tokens_per_block + kPageUnit - 1) / kPageUnit * kPageUnit;
  options.max_pages = static_cast<uint32_t>(
      std::min<uint64_t>(UINT32_MAX, (tokens + options.page_tokens - 1) / options.page_tokens));
  if (cellm_engine_open(engine->model, &options, &engine->engine, &error) != CELLM_OK) {
    SetError("engine", error);
    return 0;
  }
  cellm_sampling& sampling = engine->sampling;
  sampling.given = CELLM_SAMPLING_TEMPERATURE | CELLM_SAMPLING_TOP_K | CELLM_SAMPLING_TOP_P |
                   CELLM_SAMPLING_MIN_P | CELLM_SAMPLING_TYPICAL_P |
                   CELLM_SAMPLING_REPETITION_PENALTY | CELLM_SAMPLING_FREQUENCY_PENALTY |
                   CELLM_SAMPLING_PRESENCE_PENALTY | CELLM_SAMPLING_PENALTY_WINDOW |
                   CELLM_SAMPLING_SEED;
  sampling.temperature = temperature;
  sampling.top_k = static_cast<int32_t>(std::min<uint32_t>(top_k, INT32_MAX));
  sampling.top_p = 1;
  sampling.min_p = 0;
  sampling.typical_p = 1;
  sampling.repetition_penalty = repeat_penalty;
  sampling.penalty_window = static_cast<int32_t>(std::min<uint32_t>(repeat_window, INT32_MAX));
  sampling.seed = seed;
  return engines.table.Add(engine);
}

void cellm_engine_destroy(cellm_engine_t engine) {
  if (engine != 0) engines.table.Take(engine);
}

size_t cellm_engine_backend_name(cellm_engine_t engine, char* out_buf, size_t buf_len) {
  if (engines.table.Get(engine) == nullptr) return 0;
  return CopyText("cpu", 3, out_buf, buf_len);
}

uint32_t cellm_engine_is_litert_proxy(cellm_engine_t engine) {
  engines.table.Get(engine);
  return 0;
}

size_t cellm_engine_generate_text(cellm_engine_t handle, const char* prompt, char* out_buf,
                                  size_t buf_len) {
  const std::shared_ptr<Engine> engine = engines.table.Get(handle);
  if (engine == nullptr) return 0;
  if (prompt == nullptr || out_buf == nullptr || buf_len == 0) {
    SetError("generate: no prompt or no buffer");
    return 0;
  }
  const std::lock_guard lock(engine->mutex);
  Session s;
  cellm_error error = CELLM_ERROR_INIT;
  cellm_request_options options = CELLM_REQUEST_OPTIONS_INIT;
  options.sampling = &engine->sampling;
  options.flags = CELLM_REQUEST_PARSE_SPECIAL;
  if (cellm_session_open(engine->engine, nullptr, &s.session, &error) != CELLM_OK ||
      cellm_session_submit_text(s.session, prompt, strlen(prompt), &options, &s.request, &error) !=
          CELLM_OK) {
    SetError("generate", error);
    return 0;
  }
  size_t used = 0;
  bool more = true;
  while (more) {
    cellm_token token = CELLM_TOKEN_INIT;
    if (cellm_request_next(s.request, &token, &error) != CELLM_OK) {
      SetError("generate", error);
      return 0;
    }
    const size_t written = token.text_bytes > 0 ? CopyText(token.text, token.text_bytes,
                                                           out_buf + used, buf_len - used)
                                                : 0;
    used += written;
    more = token.finish == CELLM_FINISH_NONE && written == token.text_bytes && used + 1 < buf_len;
  }
  out_buf[used] = '\0';
  return used;
}

size_t cellm_engine_generate_multimodal(cellm_engine_t engine, const char* prompt,
                                        const char* image_path, const char* audio_path,
                                        char* out_buf, size_t buf_len) {
  (void)prompt;
  (void)image_path;
  (void)audio_path;
  (void)out_buf;
  (void)buf_len;
  if (engines.table.Get(engine) != nullptr) {
    SetError("generate: images and sound are not part of this build");
  }
  return 0;
}

cellm_tokenizer_t cellm_tokenizer_create(const char* path) {
  if (path == nullptr) {
    SetError("tokenizer: no path");
    return 0;
  }
  cellm_error error = CELLM_ERROR_INIT;
  cellm_model_options options = CELLM_MODEL_OPTIONS_INIT;
  options.flags = CELLM_MODEL_TOKENIZER_ONLY;
  const auto tokenizer = std::make_shared<Tokenizer>();
  if (cellm_model_open(path, strlen(path), &options, &tokenizer->model, &error) != CELLM_OK) {
    SetError("tokenizer", error);
    return 0;
  }
  return tokenizers.table.Add(tokenizer);
}

void cellm_tokenizer_destroy(cellm_tokenizer_t tokenizer) {
  if (tokenizer != 0) tokenizers.table.Take(tokenizer);
}

size_t cellm_tokenizer_encode(cellm_tokenizer_t handle, const char* text, uint32_t* out_tokens,
                              size_t max_tokens) {
  const std::shared_ptr<Tokenizer> tokenizer = tokenizers.table.Get(handle);
  if (tokenizer == nullptr) return 0;
  if (text == nullptr) {
    SetError("encode: no text");
    return 0;
  }
  const size_t bytes = strlen(text);
  cellm_error error = CELLM_ERROR_INIT;
  size_t count = 0;
  cellm_status status = cellm_model_tokenize(
      tokenizer->model, text, bytes, CELLM_TOKENIZE_PARSE_SPECIAL, nullptr, 0, &count, &error);
  std::vector<int32_t> ids;
  if (status == CELLM_OUT_OF_RANGE && out_tokens != nullptr && max_tokens > 0) {
    ids.resize(count);
    status = cellm_model_tokenize(tokenizer->model, text, bytes, CELLM_TOKENIZE_PARSE_SPECIAL,
                                  ids.data(), count, &count, &error);
  }
  if (status != CELLM_OK && status != CELLM_OUT_OF_RANGE) {
    SetError("encode", error);
    return 0;
  }
  if (out_tokens == nullptr || max_tokens == 0) return count;
  count = std::min(ids.size(), max_tokens);
  for (size_t i = 0; i < count; ++i) out_tokens[i] = static_cast<uint32_t>(ids[i]);
  return count;
}

size_t cellm_tokenizer_decode(cellm_tokenizer_t handle, const uint32_t* tokens, size_t token_count,
                              char* out_buf, size_t buf_len) {
  const std::shared_ptr<Tokenizer> tokenizer = tokenizers.table.Get(handle);
  if (tokenizer == nullptr) return 0;
  if ((tokens == nullptr && token_count > 0) || token_count > kMaxPromptTokens) {
    SetError("decode: no tokens, or more than any context holds");
    return 0;
  }
  std::vector<int32_t> ids;
  ids.reserve(token_count);
  for (size_t i = 0; i < token_count; ++i) {
    ids.push_back(tokens[i] > INT32_MAX ? -1 : static_cast<int32_t>(tokens[i]));
  }
  cellm_error error = CELLM_ERROR_INIT;
  size_t bytes = 0;
  cellm_status status = cellm_model_detokenize(tokenizer->model, ids.data(), ids.size(), 0, nullptr,
                                               0, &bytes, &error);
  std::vector<char> text;
  if (status == CELLM_OUT_OF_RANGE && out_buf != nullptr && buf_len > 0) {
    text.resize(bytes);
    status = cellm_model_detokenize(tokenizer->model, ids.data(), ids.size(), 0, text.data(), bytes,
                                    &bytes, &error);
  }
  if (status != CELLM_OK && status != CELLM_OUT_OF_RANGE) {
    SetError("decode", error);
    return 0;
  }
  if (out_buf == nullptr || buf_len == 0) return bytes;
  return CopyText(text.data(), text.size(), out_buf, buf_len);
}

cellm_session_t cellm_session_create(cellm_engine_t handle) {
  const std::shared_ptr<Engine> engine = engines.table.Get(handle);
  if (engine == nullptr) return 0;
  const std::lock_guard lock(engine->mutex);
  cellm_error error = CELLM_ERROR_INIT;
  Session s;
  if (cellm_session_open(engine->engine, nullptr, &s.session, &error) != CELLM_OK) {
    SetError("session", error);
    return 0;
  }
  s.id = engine->next_id++;
  const cellm_session_t id = s.id;
  engine->sessions.push_back(std::move(s));
  return id;
}

int32_t cellm_session_cancel(cellm_engine_t handle, cellm_session_t session) {
  const std::shared_ptr<Engine> engine = engines.table.Get(handle);
  if (engine == nullptr) return -1;
  const std::lock_guard lock(engine->mutex);
  const Session* s = engine->Find(session);
  if (s == nullptr) return -1;
  engine->sessions.erase(engine->sessions.begin() + (s - engine->sessions.data()));
  engine->cooled.notify_all();
  return 0;
}

int32_t cellm_session_suspend(cellm_engine_t handle, cellm_session_t session) {
  const std::shared_ptr<Engine> engine = engines.table.Get(handle);
  if (engine == nullptr) return -1;
  const std::lock_guard lock(engine->mutex);
  Session* s = engine->Find(session);
  if (s == nullptr) return -1;
  s->suspended = true;
  engine->cooled.notify_all();
  return 0;
}

int32_t cellm_session_resume(cellm_engine_t handle, cellm_session_t session) {
  const std::shared_ptr<Engine> engine = engines.table.Get(handle);
  if (engine == nullptr) return -1;
  const std::lock_guard lock(engine->mutex);
  Session* s = engine->Find(session);
  if (s == nullptr) return -1;
  s->suspended = false;
  return 0;
}

int32_t cellm_session_reset(cellm_engine_t handle, cellm_session_t session) {
  const std::shared_ptr<Engine> engine = engines.table.Get(handle);
  if (engine == nullptr) return -1;
  const std::lock_guard lock(engine->mutex);
  Session* s = engine->Find(session);
  if (s == nullptr) return -1;
  s->EndRequest();
  s->suspended = false;
  cellm_error error = CELLM_ERROR_INIT;
  if (cellm_session_clear(s->session, &error) != CELLM_OK) {
    SetError("reset", error);
    return -1;
  }
  return 0;
}

int32_t cellm_engine_set_thermal_level(cellm_engine_t handle, uint32_t level) {
  const std::shared_ptr<Engine> engine = engines.table.Get(handle);
  if (engine == nullptr) return -1;
  if (level > 3) {
    SetError("thermal level %u: 0 nominal, 1 elevated, 2 critical, 3 emergency", level);
    return -1;
  }
  const std::lock_guard lock(engine->mutex);
  cellm_error error = CELLM_ERROR_INIT;
  // The caller decides about the level, up and down.
  if (cellm_engine_report_heat(engine->engine, static_cast<int32_t>(level), CELLM_POWER_NORMAL,
                               CELLM_HEAT_AT_ONCE, &error) != CELLM_OK) {
    SetError("thermal level", error);
    return -1;
  }
  engine->cooled.notify_all();
  return 0;
}

int32_t cellm_submit_tokens(cellm_engine_t engine, cellm_session_t session, const uint32_t* tokens,
                            size_t token_count, uint32_t* out_next_token) {
  return Submit(engine, session, tokens, token_count, out_next_token, nullptr);
}

int32_t cellm_submit_tokens_cached(cellm_engine_t engine, cellm_session_t session,
                                   const uint32_t* tokens, size_t token_count,
                                   uint32_t* out_next_token, uint32_t* out_cache_hit) {
  uint32_t hit = 0;
  const int32_t result = Submit(engine, session, tokens, token_count, out_next_token, &hit);
  if (result == 0 && out_cache_hit != nullptr) *out_cache_hit = hit;
  return result;
}

int32_t cellm_step_decode(cellm_engine_t handle, cellm_session_t* out_session,
                          uint32_t* out_token) {
  const std::shared_ptr<Engine> engine = engines.table.Get(handle);
  if (engine == nullptr) return -1;
  if (out_session == nullptr || out_token == nullptr) {
    SetError("step: no place for the session and the token");
    return -1;
  }
  std::unique_lock lock(engine->mutex);
  const auto ready = [](const Session& s) { return s.request != nullptr && !s.suspended; };
  // Too hot for a token yet: waits without the lock, so that others can cancel or lower the level.
  while (std::any_of(engine->sessions.begin(), engine->sessions.end(), ready)) {
    cellm_heat heat = CELLM_HEAT_INIT;
    cellm_error error = CELLM_ERROR_INIT;
    if (cellm_engine_get_heat(engine->engine, &heat, &error) != CELLM_OK) {
      SetError("step", error);
      return -1;
    }
    if (heat.wait_ns == 0) break;
    engine->cooled.wait_for(lock, std::chrono::nanoseconds(heat.wait_ns));
  }
  // The ring: the first session after the one that was served last, and round again.
  const size_t count = engine->sessions.size();
  size_t start = 0;
  while (start < count && engine->sessions[start].id <= engine->last_served) ++start;
  for (size_t i = 0; i < count; ++i) {
    Session& s = engine->sessions[(start + i) % count];
    if (!ready(s)) continue;
    engine->last_served = s.id;
    bool failed = false;
    uint32_t token = 0;
    if (NextToken(s, &token, &failed)) {
      *out_session = s.id;
      *out_token = token;
      return 1;
    }
    if (failed) {
      *out_session = s.id;
      return -1;
    }
  }
  return 0;
}

int32_t cellm_engine_kv_stats(cellm_engine_t handle, uint32_t* out_used_blocks,
                              uint32_t* out_free_blocks) {
  const std::shared_ptr<Engine> engine = engines.table.Get(handle);
  if (engine == nullptr) return -1;
  if (out_used_blocks == nullptr || out_free_blocks == nullptr) {
    SetError("kv_stats: no place for the counts");
    return -1;
  }
  const std::lock_guard lock(engine->mutex);
  uint64_t used = 0;
  for (const Session& s : engine->sessions) {
    size_t tokens = 0;
    cellm_error error = CELLM_ERROR_INIT;
    const cellm_status status = cellm_session_get_tokens(s.session, nullptr, 0, &tokens, &error);
    if (status != CELLM_OK && status != CELLM_OUT_OF_RANGE) {
      SetError("kv_stats", error);
      return -1;
    }
    used += (tokens + engine->tokens_per_block - 1) / engine->tokens_per_block;
  }
  used = std::min<uint64_t>(used, engine->total_blocks);
  *out_used_blocks = static_cast<uint32_t>(used);
  *out_free_blocks = engine->total_blocks - static_cast<uint32_t>(used);
  return 0;
}

int32_t cellm_vlm_describe_image(cellm_engine_t engine, cellm_session_t session,
                                 const uint8_t* image_bytes, size_t image_len, const char* prompt,
                                 char* out_buf, size_t buf_len) {
  (void)session;
  (void)image_bytes;
  (void)image_len;
  (void)prompt;
  (void)out_buf;
  (void)buf_len;
  if (engines.table.Get(engine) != nullptr) SetError("image: not part of this build");
  return -1;
}

int32_t cellm_vlm_last_timings_ms(double* patch_ms, double* encoder_ms, double* decode_ms,
                                  double* total_ms) {
  (void)patch_ms;
  (void)encoder_ms;
  (void)decode_ms;
  (void)total_ms;
  SetError("image timings: no image was described on this thread");
  return -1;
}

uint32_t cellm_vlm_last_encoder_layer_count(void) { return 0; }

int32_t cellm_vlm_last_encoder_layer_time_ms(uint32_t index, double* ms) {
  (void)ms;
  SetError("image timings: no layer %u; no image was described on this thread", index);
  return -1;
}

}  // extern "C"
