#ifndef CELLM_SRC_JINJA_ERROR_H_
#define CELLM_SRC_JINJA_ERROR_H_

#include <string>
#include <string_view>

namespace cellm::jinja {

// What went wrong in a template, by the name that the reference gives its exception. kLimit is
// ours: a bound of Limits was reached (the message names it).
enum class ErrorKind {
  kNone,
  kTemplateError,  // raise_exception(); the message is exactly what the template said
  kTemplateSyntaxError,
  kTemplateAssertionError,  // an unknown filter or test
  kTemplateRuntimeError,
  kUndefinedError,
  kSecurityError,
  kFilterArgumentError,
  kRuntimeError,
  kTypeError,
  kValueError,
  kIndexError,
  kKeyError,
  kOverflowError,
  kZeroDivisionError,
  kRecursionError,
  kLimit,
};

// "TemplateError", "TypeError", ...; "LimitError" for kLimit, "" for kNone.
std::string_view ErrorKindName(ErrorKind kind);

struct Error {
  ErrorKind kind = ErrorKind::kNone;
  std::string message;  // without place or kind in front
  int line = 0;         // in the template, from 1; 0 when unknown
};

}  // namespace cellm::jinja

#endif  // CELLM_SRC_JINJA_ERROR_H_
