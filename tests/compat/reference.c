/* What the new interface answers to the same prompt: the oracle of compat_test.c. */
#include "reference.h"

#include <cellm/cellm.h>
#include <string.h>

size_t reference_reply(const char* path, const uint32_t* prompt, size_t prompt_count,
                       uint32_t* reply, size_t capacity) {
  cellm_model* model = NULL;
  cellm_engine* engine = NULL;
  cellm_session* session = NULL;
  cellm_request* request = NULL;
  cellm_sampling sampling = CELLM_SAMPLING_INIT;
  cellm_request_options options = CELLM_REQUEST_OPTIONS_INIT;
  int32_t ids[256];
  size_t count = 0;
  if (prompt_count > 256) return 0;
  for (size_t i = 0; i < prompt_count; ++i) ids[i] = (int32_t)prompt[i];
  sampling.given = CELLM_SAMPLING_TEMPERATURE | CELLM_SAMPLING_REPETITION_PENALTY;
  sampling.repetition_penalty = 1.0f;
  options.sampling = &sampling;
  options.max_tokens = (uint32_t)capacity;
  if (!cellm_model_open(path, strlen(path), NULL, &model, NULL) &&
      !cellm_engine_open(model, NULL, &engine, NULL) &&
      !cellm_session_open(engine, NULL, &session, NULL) &&
      !cellm_session_submit_tokens(session, ids, prompt_count, &options, &request, NULL)) {
    for (;;) {
      cellm_token token = CELLM_TOKEN_INIT;
      if (cellm_request_next(request, &token, NULL)) break;
      if (token.token_id >= 0 && count < capacity) reply[count++] = (uint32_t)token.token_id;
      if (token.finish != CELLM_FINISH_NONE) break;
    }
  }
  cellm_request_close(request);
  cellm_session_close(session);
  cellm_engine_close(engine);
  cellm_model_close(model);
  return count;
}
