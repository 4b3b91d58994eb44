/* An app written against the Rust system's header: two sessions that take turns. */
#include <stdio.h>

#include "cellm.h"

int main(int argc, char** argv) {
  const char* path = argc > 1 ? argv[1] : "";
  char message[512];
  uint32_t ids[64], token = 0;
  int turns = 0;
  cellm_tokenizer_t tokenizer = cellm_tokenizer_create(path);
  cellm_engine_t engine = cellm_engine_create_v4(path, 16, 64, 40, 0.0f, 1.1f, 64, 1,
                                                 CELLM_BACKEND_CPU, CELLM_KV_ENCODING_F16, 1, 1);
  size_t count = cellm_tokenizer_encode(tokenizer, "Once upon a time", ids, 64);
  for (int i = 0; i < 2; ++i) {
    cellm_session_t session = cellm_session_create(engine);
    if (count == 0 || cellm_submit_tokens(engine, session, ids, count, &token) != 0) {
      cellm_last_error_message(message, sizeof(message));
      printf("%s\n", message);
      return 1;
    }
  }
  while (turns < 8) {
    cellm_session_t session = 0;
    if (cellm_step_decode(engine, &session, &token) != 1) break;
    if (session != (cellm_session_t)(turns % 2 + 1)) break;
    ++turns;
  }
  printf("turns: %d\n", turns);
  cellm_engine_destroy(engine);
  cellm_tokenizer_destroy(tokenizer);
  return 0;
}
