#include "tokenizer/golden.h"

#include <stdio.h>

#include "platform/file.h"
#include "support/paths.h"

namespace cellm::testing {

const char* const kFamilies[20] = {
    "qwen3",      "gemma3",       "gemma2",      "llama3",         "llama3_1",
    "mistral_7b", "mistral_nemo", "deepseek_v3", "gpt2",           "gpt35turbo",
    "gpt4o",      "gptoss",       "claude",      "command_r_plus", "minicpm_v4_5",
    "yi",         "internlm2",    "baichuan2",   "t5_small",       "bert_base_uncased"};

std::string ReadFile(const std::string& path) {
  if (path.ends_with(".gz")) {
    std::string text;
    FILE* pipe = ::popen(("gzip -dc '" + path + "'").c_str(), "r");
    if (pipe == nullptr) return text;
    char buffer[65536];
    for (size_t got = 0; (got = ::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
      text.append(buffer, got);
    }
    EXPECT_EQ(::pclose(pipe), 0) << path;
    return text;
  }
  Result<std::string> text = platform::SystemFiles().Read(path, 1 << 28);
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? std::move(*text) : std::string();
}

std::vector<std::unique_ptr<json::Document>> ReadLines(const std::string& path) {
  std::vector<std::unique_ptr<json::Document>> lines;
  const std::string text = ReadFile(path);
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find('\n', at);
    if (end == std::string::npos) end = text.size();
    auto line = json::Document::Parse(std::string_view(text).substr(at, end - at), path);
    EXPECT_TRUE(line.ok()) << path << ": " << line.status().message();
    if (line.ok()) lines.push_back(std::move(*line));
    at = end + 1;
  }
  return lines;
}

std::string Text(json::Value value) {
  std::string_view text;
  EXPECT_TRUE(value.GetString(&text));
  return std::string(text);
}

std::vector<int32_t> Ids(json::Value value) {
  EXPECT_TRUE(value.is_array());
  std::vector<int32_t> ids;
  for (json::Value v = value.First(); v.exists(); v = value.Next(v)) {
    int64_t id = 0;
    EXPECT_TRUE(v.GetInt64(&id));
    // The reference's ids are unsigned; all beyond int32 are outside any vocabulary.
    ids.push_back(id > INT32_MAX ? INT32_MAX : static_cast<int32_t>(id));
  }
  return ids;
}

std::unique_ptr<tokenizer::Tokenizer> LoadTokenizer(const std::string& path) {
  const std::string text = ReadFile(path);
  auto loaded = tokenizer::Tokenizer::FromJson(text, {});
  EXPECT_TRUE(loaded.ok()) << path << ": " << loaded.status().message();
  return loaded.ok() ? std::move(*loaded) : nullptr;
}

std::string FamilyPath(std::string_view family) {
  const std::string mini =
      SharedData("golden-text/mini/" + std::string(family) + ".tokenizer.json.gz");
  return mini.empty() ? TestTokenizer(std::string(family) + ".json") : mini;
}

}  // namespace cellm::testing
