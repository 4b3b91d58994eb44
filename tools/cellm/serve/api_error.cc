#include "cellm/serve/api_error.h"

#include <utility>

#include "cellm/common.h"
#include "json/json.h"

namespace cellm::tools::serve {
namespace {

constexpr const char* kInvalidRequest = "invalid_request_error";

ApiError Make(int status, const char* type, std::string code, std::string message) {
  ApiError error;
  error.status = status;
  error.type = type;
  error.code = std::move(code);
  error.message = std::move(message);
  return error;
}

}  // namespace

std::string ApiError::Body() const {
  JsonObject object;
  object.Add("message", message).Add("type", type);
  object.AddRaw("param", param.empty() ? "null" : json::Quote(param));
  object.AddRaw("code", code.empty() ? "null" : json::Quote(code));
  if (needed != 0 || available != 0) object.Add("needed", needed).Add("available", available);
  return JsonObject().AddRaw("error", object.Finish()).Finish();
}

ApiError BadField(std::string param, std::string message, std::string code) {
  ApiError error = Make(400, kInvalidRequest, std::move(code), std::move(message));
  error.param = std::move(param);
  return error;
}

ApiError NotFoundError(std::string code, std::string message) {
  return Make(404, kInvalidRequest, std::move(code), std::move(message));
}

ApiError ConflictError(std::string code, std::string message) {
  return Make(409, kInvalidRequest, std::move(code), std::move(message));
}

ApiError TooBusy(std::string message, int retry_after_s) {
  ApiError error = Make(429, "rate_limit_error", "server_busy", std::move(message));
  error.retry_after_s = retry_after_s;
  return error;
}

ApiError ServerError(std::string message) {
  return Make(500, "server_error", "internal_error", std::move(message));
}

ApiError FromCellm(const cellm_error& error, std::string_view param) {
  ApiError result = BadField(std::string(param), error.message);
  if (error.kind[0] != '\0') result.message = std::string(error.kind) + ": " + result.message;
  result.needed = error.needed;
  result.available = error.available;
  if (error.reason == CELLM_REASON_CONTEXT_LENGTH) {
    result.code = "context_length_exceeded";
    return result;
  }
  switch (error.status) {
    case CELLM_INVALID_ARGUMENT:
    case CELLM_OUT_OF_RANGE:
      return result;
    case CELLM_UNSUPPORTED:
      result.code = "unsupported";
      return result;
    case CELLM_OUT_OF_MEMORY:
      // By itself it does not fit the budget: trying again does not help.
      result.code = "memory_budget_exceeded";
      return result;
    case CELLM_BUSY:
      return TooBusy(result.message, 1);
    case CELLM_NOT_FOUND:
      return NotFoundError("not_found", result.message);
    default:
      return ServerError(result.message);
  }
}

ApiError FromStatus(int status, std::string_view message) {
  switch (status) {
    case 401:
      return Make(401, "authentication_error", "invalid_api_key", std::string(message));
    case 404:
      return NotFoundError("unknown_url", std::string(message));
    case 429:
    case 503: {
      ApiError error = TooBusy(std::string(message), 1);
      error.status = status;
      return error;
    }
    default:
      return Make(status, status >= 500 ? "server_error" : kInvalidRequest, {},
                  std::string(message));
  }
}

}  // namespace cellm::tools::serve
