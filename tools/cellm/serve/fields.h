#ifndef CELLM_TOOLS_CELLM_SERVE_FIELDS_H_
#define CELLM_TOOLS_CELLM_SERVE_FIELDS_H_

// Reading the fields of a JSON request body: what is there must be of the right type and in range,
// null counts as not given, and what nobody asked for is noted.

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cellm/serve/api_error.h"
#include "json/json.h"

namespace cellm::tools::serve {

// Keeps the first error; after it every question answers "not given", so that a parser reads
// straight through and looks at error() once.
class Fields {
 public:
  // `prefix` stands before the names in errors ("stream_options."). The value must outlive this.
  explicit Fields(json::Value object, std::string prefix = {});

  // True when the field is there and fits; *out is untouched otherwise.
  bool Bool(std::string_view name, bool* out);
  bool Integer(std::string_view name, int64_t least, int64_t most, int64_t* out);
  bool Number(std::string_view name, double least, double most, double* out);
  bool Text(std::string_view name, std::string* out);
  bool Array(std::string_view name, json::Value* out);
  bool Object(std::string_view name, json::Value* out);
  // Of any type but null.
  bool Any(std::string_view name, json::Value* out);

  void Fail(std::string_view name, std::string message, std::string code = {});
  const ApiError& error() const { return error_; }
  bool ok() const { return error_.ok(); }
  // Names of members that were never asked for.
  std::vector<std::string> Unknown() const;

 private:
  json::Value Find(std::string_view name);

  json::Value object_;
  std::string prefix_;
  std::set<std::string, std::less<>> asked_;
  ApiError error_;
};

}  // namespace cellm::tools::serve

#endif  // CELLM_TOOLS_CELLM_SERVE_FIELDS_H_
