#include "support/jsonl.h"

#include <gtest/gtest.h>

#include "platform/file.h"

namespace cellm::testing {

std::string ReadText(const std::string& path) {
  auto text = platform::SystemFiles().Read(path, uint64_t{1} << 30);
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? std::move(text).value() : std::string();
}

std::vector<std::string> ReadLines(const std::string& path) {
  const std::string text = ReadText(path);
  std::vector<std::string> lines;
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::string StringOf(json::Value value) {
  std::string_view text;
  EXPECT_TRUE(value.GetString(&text)) << "not a JSON string";
  return std::string(text);
}

}  // namespace cellm::testing
