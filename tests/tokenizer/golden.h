#ifndef CELLM_TESTS_TOKENIZER_GOLDEN_H_
#define CELLM_TESTS_TOKENIZER_GOLDEN_H_

// Helpers of the tokenizer tests: JSON lines, files, ids in messages.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "json/json.h"
#include "tokenizer/tokenizer.h"

namespace cellm::testing {

// The whole file; ".gz" is unpacked. Fails the test when it cannot be read.
std::string ReadFile(const std::string& path);

// One document a line (lines end at \n only).
std::vector<std::unique_ptr<json::Document>> ReadLines(const std::string& path);

std::string Text(json::Value value);
std::vector<int32_t> Ids(json::Value value);

// The tokenizer of a file; fails the test and gives null when it cannot be read.
std::unique_ptr<tokenizer::Tokenizer> LoadTokenizer(const std::string& path);

// "path" of a family's tokenizer.json: fetched, or in the reference folder; empty when absent.
std::string FamilyPath(std::string_view family);

// All families that the reference folder has data for.
extern const char* const kFamilies[20];

}  // namespace cellm::testing

#endif  // CELLM_TESTS_TOKENIZER_GOLDEN_H_
