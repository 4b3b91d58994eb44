#ifndef CELLM_TESTS_SUPPORT_JSONL_H_
#define CELLM_TESTS_SUPPORT_JSONL_H_

#include <string>
#include <vector>

#include "json/json.h"

namespace cellm::testing {

// The lines of a file, split at "\n" only (strings in them may hold other line ends), without the
// empty one at the end. A file that cannot be read fails the test.
std::vector<std::string> ReadLines(const std::string& path);

// The whole file, likewise.
std::string ReadText(const std::string& path);

// The text of a JSON string; fails the test for anything else.
std::string StringOf(json::Value value);

}  // namespace cellm::testing

#endif  // CELLM_TESTS_SUPPORT_JSONL_H_
