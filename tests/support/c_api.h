#ifndef CELLM_TESTS_SUPPORT_C_API_H_
#define CELLM_TESTS_SUPPORT_C_API_H_

// Handles of the C API that close themselves, for tests through the interface of a program.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "cellm/cellm.h"

namespace cellm::testing {

struct CloseHandle {
  void operator()(cellm_model* handle) const { cellm_model_close(handle); }
  void operator()(cellm_engine* handle) const { cellm_engine_close(handle); }
  void operator()(cellm_session* handle) const { cellm_session_close(handle); }
  void operator()(cellm_request* handle) const { cellm_request_close(handle); }
};
using ModelPtr = std::unique_ptr<cellm_model, CloseHandle>;
using EnginePtr = std::unique_ptr<cellm_engine, CloseHandle>;
using SessionPtr = std::unique_ptr<cellm_session, CloseHandle>;
using RequestPtr = std::unique_ptr<cellm_request, CloseHandle>;

inline cellm_text TextOf(const std::string& text) { return {text.data(), text.size()}; }

// Null and a failed test when it cannot be opened.
inline ModelPtr OpenModelAt(const std::string& path, const char* chat_format = nullptr) {
  cellm_model_options options = CELLM_MODEL_OPTIONS_INIT;
  if (chat_format != nullptr) options.chat_format = {chat_format, std::string(chat_format).size()};
  cellm_model* model = nullptr;
  cellm_error error = CELLM_ERROR_INIT;
  EXPECT_EQ(cellm_model_open(path.data(), path.size(), &options, &model, &error), CELLM_OK)
      << error.message;
  return ModelPtr(model);
}
inline EnginePtr OpenEngineOf(const ModelPtr& model, const cellm_engine_options& options) {
  cellm_engine* engine = nullptr;
  cellm_error error = CELLM_ERROR_INIT;
  EXPECT_EQ(cellm_engine_open(model.get(), &options, &engine, &error), CELLM_OK) << error.message;
  return EnginePtr(engine);
}
inline SessionPtr OpenSessionOf(const EnginePtr& engine,
                                const cellm_session_options* options = nullptr) {
  cellm_session* session = nullptr;
  cellm_error error = CELLM_ERROR_INIT;
  EXPECT_EQ(cellm_session_open(engine.get(), options, &session, &error), CELLM_OK) << error.message;
  return SessionPtr(session);
}

}  // namespace cellm::testing

#endif  // CELLM_TESTS_SUPPORT_C_API_H_
