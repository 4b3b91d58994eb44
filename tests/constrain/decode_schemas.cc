// Reads JSON schemas from stdin, one a line, and writes one line for each: replies that the
// constraint made, as JSON, or why there are none.
//
//   cellm_decode_schemas SAMPLES SEED [MODEL]
//   {"replies": [{"text": "...", "finished": true}, ...]}  or  {"refused": "unsupported: ..."}
//
// Without a model, tokens are drawn evenly from what is allowed; with one, its logits decide, at a
// temperature that makes random weights wander.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>

#include "cellm/cellm.h"
#include "constrain/support.h"
#include "json/json.h"

namespace cellm::constrain {
namespace {

std::string ReplyLine(const std::string& text, bool finished) {
  return "{\"text\": " + json::Quote(text) + ", \"finished\": " + (finished ? "true" : "false") +
         "}";
}

std::string Refused(const std::string& code, const std::string& message) {
  return "{\"refused\": " + json::Quote(code + ": " + message) + "}";
}

class RandomDecoder {
 public:
  RandomDecoder(int samples, uint64_t seed) : samples_(samples), rng_(seed) {}
  std::string Decode(const std::string& schema) {
    const auto compiled = Compile(ConstraintKind::kJsonSchema, schema, *trie_);
    if (!compiled.ok()) {
      return Refused(std::string(StatusCodeName(compiled.status().code())),
                     compiled.status().message());
    }
    std::string replies;
    for (int i = 0; i < samples_; ++i) {
      const Decoded decoded = DecodeRandomly(*compiled.value(), *trie_, rng_, 400);
      if (!decoded.status.ok()) return Refused("broken", decoded.status.message());
      replies += (i > 0 ? ", " : "") + ReplyLine(decoded.text, decoded.finished);
    }
    return "{\"replies\": [" + replies + "]}";
  }

 private:
  int samples_;
  Rng rng_;
  std::unique_ptr<TokenTrie> trie_ = MakeTrie(TextVocabulary());
};

class ModelDecoder {
 public:
  ModelDecoder(int samples, uint64_t seed, const std::string& path)
      : samples_(samples), seed_(seed) {
    cellm_error error = CELLM_ERROR_INIT;
    cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
    options.threads = 1;
    if (cellm_model_open(path.data(), path.size(), nullptr, &model_, &error) != CELLM_OK ||
        cellm_engine_open(model_, &options, &engine_, &error) != CELLM_OK) {
      std::cerr << error.message << '\n';
      std::exit(1);
    }
  }
  ~ModelDecoder() {
    cellm_engine_close(engine_);
    cellm_model_close(model_);
  }
  ModelDecoder(const ModelDecoder&) = delete;
  ModelDecoder& operator=(const ModelDecoder&) = delete;

  std::string Decode(const std::string& schema) {
    std::string replies;
    for (int i = 0; i < samples_; ++i) {
      cellm_error error = CELLM_ERROR_INIT;
      std::string text;
      int32_t finish = CELLM_FINISH_NONE;
      if (!Run(schema, &text, &finish, &error)) {
        return Refused(finish == CELLM_FINISH_NONE ? cellm_status_name(error.status) : "broken",
                       error.message);
      }
      replies += (i > 0 ? ", " : "") +
                 ReplyLine(text, finish == CELLM_FINISH_END || finish == CELLM_FINISH_STOP);
    }
    return "{\"replies\": [" + replies + "]}";
  }

 private:
  bool Run(const std::string& schema, std::string* text, int32_t* finish, cellm_error* error) {
    cellm_session* session = nullptr;
    cellm_request* request = nullptr;
    cellm_sampling sampling = CELLM_SAMPLING_INIT;
    sampling.given = CELLM_SAMPLING_TEMPERATURE | CELLM_SAMPLING_TOP_K | CELLM_SAMPLING_SEED;
    sampling.temperature = 3.0f;
    sampling.seed = ++seed_;
    cellm_request_options options = CELLM_REQUEST_OPTIONS_INIT;
    options.sampling = &sampling;
    options.max_tokens = 200;
    options.constraint = CELLM_CONSTRAINT_JSON_SCHEMA;
    options.constraint_text = {schema.data(), schema.size()};
    const int32_t prompt[] = {1, 5, 7};
    bool good =
        cellm_session_open(engine_, nullptr, &session, error) == CELLM_OK &&
        cellm_session_submit_tokens(session, prompt, 3, &options, &request, error) == CELLM_OK;
    while (good && *finish == CELLM_FINISH_NONE) {
      cellm_token token = CELLM_TOKEN_INIT;
      good = cellm_request_next(request, &token, error) == CELLM_OK;
      if (!good) *finish = CELLM_FINISH_ERROR;
      if (!good) break;
      text->append(token.text, token.text_bytes);
      *finish = token.finish;
    }
    cellm_request_close(request);
    cellm_session_close(session);
    return good;
  }

  int samples_;
  uint64_t seed_;
  cellm_model* model_ = nullptr;
  cellm_engine* engine_ = nullptr;
};

template <typename Decoder>
int DecodeAll(Decoder& decoder) {
  std::string schema;
  while (std::getline(std::cin, schema)) std::cout << decoder.Decode(schema) << '\n' << std::flush;
  return 0;
}

}  // namespace
}  // namespace cellm::constrain

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: cellm_decode_schemas SAMPLES SEED [MODEL] < schemas\n";
    return 2;
  }
  const int samples = std::atoi(argv[1]);
  const uint64_t seed = std::strtoull(argv[2], nullptr, 10);
  if (argc > 3) {
    cellm::constrain::ModelDecoder decoder(samples, seed, argv[3]);
    return cellm::constrain::DecodeAll(decoder);
  }
  cellm::constrain::RandomDecoder decoder(samples, seed);
  return cellm::constrain::DecodeAll(decoder);
}
