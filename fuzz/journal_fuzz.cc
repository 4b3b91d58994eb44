// Any bytes as a session's journal. The chain of hashes survives no mutation, so the records are
// also gone through as if their hashes were right: what they say must be refused or make a session
// that can go on.

#include <cstdint>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "capi/generation.h"
#include "capi/handles.h"
#include "capi/session_journal.h"
#include "cellm/cellm.h"
#include "engine/journal.h"

namespace {

using namespace cellm;        // NOLINT: a program of one function
using namespace cellm::capi;  // NOLINT

// A small model with a tokenizer, so that replies are decoded.
std::shared_ptr<EngineState> OpenEngine() {
  const std::string path = CELLM_SOURCE_DIR "/testdata/zoo/llama";
  cellm_model* model = nullptr;
  CELLM_CHECK(cellm_model_open(path.data(), path.size(), nullptr, &model, nullptr) == CELLM_OK,
              "the model of the tests opens");
  cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
  options.threads = 1;
  options.context_tokens = 64;
  cellm_engine* engine = nullptr;
  CELLM_CHECK(cellm_engine_open(model, &options, &engine, nullptr) == CELLM_OK,
              "and makes an engine");
  return Find(engine);
}

// The records as their lengths say, whatever their hashes are.
JournalImage Unhashed(std::span<const uint8_t> file, uint64_t model_hash) {
  JournalImage image;
  image.model_hash = model_hash;
  file = file.subspan(std::min<size_t>(file.size(), 32));
  while (file.size() >= 16) {
    const size_t bytes = std::min<size_t>(LoadLe32(file.data()), file.size() - 16);
    image.records.push_back({LoadLe32(file.data() + 4), file.subspan(16, bytes)});
    file = file.subspan(16 + bytes);
  }
  return image;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::shared_ptr<EngineState> engine = OpenEngine();
  const std::span<const uint8_t> file(data, size);
  const Result<JournalImage> read = ReadJournal(file, "f");
  if (read.ok()) {
    CELLM_CHECK(read.value().good_bytes <= size, "the good part lies inside the file");
    (void)ReplayJournal(engine, read.value(), "f", true).ok();
  }
  Result<Replayed> replayed = ReplayJournal(engine, Unhashed(file, engine->model_hash), "f", true);
  if (!replayed.ok()) return 0;
  const std::shared_ptr<SessionState> session = replayed.value().session;
  CELLM_CHECK(session->transcript.ids().size() <= 64, "a session fits its context");
  if (replayed.value().request != nullptr) {
    Serving::Lock lock = engine->serving->Acquire();
    if (GoOn(lock, replayed.value().request.get()).ok()) {
      (void)engine->serving->DriveOnce(lock).ok();
    }
  }
  replayed = InvalidArgument("closed");  // the reply that was under way
  // Another turn, from whatever mark fits.
  cellm_session* const handle = Sessions().Open(session);
  const std::string messages = R"([{"role": "user", "content": "a"}])";
  cellm_chat chat = CELLM_CHAT_INIT;
  chat.messages = {messages.data(), messages.size()};
  cellm_request* request = nullptr;
  if (cellm_session_submit_chat(handle, &chat, nullptr, &request, nullptr) == CELLM_OK) {
    cellm_request_close(request);
  }
  cellm_session_close(handle);
  return 0;
}
