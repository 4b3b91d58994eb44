// Any bytes as JSON schemas. What is finished is JSON.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "json/json.h"
#include "support/constrain_exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 4096) return 0;
  std::string reply;
  cellm::fuzz::ExerciseConstraint(cellm::constrain::ConstraintKind::kJsonSchema,
                                  std::string_view(reinterpret_cast<const char*>(data), size),
                                  &reply);
  if (reply.empty()) return 0;
  CELLM_CHECK(cellm::json::Document::Parse(reply, "a reply").ok(), "a finished reply is no JSON");
  return 0;
}
