#ifndef CELLM_TOOLS_CELLM_SERVE_API_ERROR_H_
#define CELLM_TOOLS_CELLM_SERVE_API_ERROR_H_

// Errors as clients of the OpenAI API read them:
//   {"error": {"message": "...", "type": "...", "param": "..." or null, "code": "..." or null}}

#include <cstdint>
#include <string>
#include <string_view>

#include "cellm/cellm.h"

namespace cellm::tools::serve {

struct ApiError {
  int status = 0;  // of HTTP; 0: no error
  std::string type;
  std::string code;   // empty: null
  std::string param;  // the field at fault; empty: null
  std::string message;
  int retry_after_s = 0;               // > 0: worth trying again
  uint64_t needed = 0, available = 0;  // tokens or bytes, for errors about room; both 0: unknown

  bool ok() const { return status == 0; }
  // {"error": {...}}
  std::string Body() const;
};

// 400 about one field.
ApiError BadField(std::string param, std::string message, std::string code = {});
ApiError NotFoundError(std::string code, std::string message);
ApiError ConflictError(std::string code, std::string message);
// 429: come back in `retry_after_s` seconds.
ApiError TooBusy(std::string message, int retry_after_s);
ApiError ServerError(std::string message);
// What an error of the C API means to a client. `param`: the field that the call was about.
ApiError FromCellm(const cellm_error& error, std::string_view param);
// A fault of the protocol or of routing, by its status.
ApiError FromStatus(int status, std::string_view message);

}  // namespace cellm::tools::serve

#endif  // CELLM_TOOLS_CELLM_SERVE_API_ERROR_H_
