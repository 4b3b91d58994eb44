/* Asks a model one question and prints the reply as it comes. cc hello.c -lcellm */
#include <cellm/cellm.h>
#include <stdio.h>
#include <string.h>

static int32_t show(const cellm_token* token, void* user) {
  return fwrite(token->text, 1, token->text_bytes, user) != token->text_bytes;
}

int main(int argc, char** argv) {
  const char* path = argc > 1 ? argv[1] : "models/cellm-nano-int8.cellm";
  const char* ask = "[{\"role\": \"user\", \"content\": \"What is the capital of France?\"}]";
  cellm_chat chat = CELLM_CHAT_INIT;
  cellm_error error = CELLM_ERROR_INIT;
  cellm_model* model = NULL;
  cellm_engine* engine = NULL;
  cellm_session* session = NULL;
  cellm_request* request = NULL;
  chat.messages.data = ask;
  chat.messages.bytes = strlen(ask);
  if (cellm_model_open(path, strlen(path), NULL, &model, &error) ||
      cellm_engine_open(model, NULL, &engine, &error) ||
      cellm_session_open(engine, NULL, &session, &error) ||
      cellm_session_submit_chat(session, &chat, NULL, &request, &error) ||
      cellm_request_run(request, show, stdout, &error)) {
    fprintf(stderr, "%s: %s\n", cellm_status_name(error.status), error.message);
  }
  cellm_request_close(request); /* closing null is allowed, in any order */
  cellm_session_close(session);
  cellm_engine_close(engine);
  cellm_model_close(model);
  return (int)error.status;
}
