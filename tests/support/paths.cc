#include "support/paths.h"

#include <stdlib.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "platform/file.h"

namespace cellm::testing {

std::string TestData(std::string_view name) {
  return platform::JoinPath(CELLM_SOURCE_DIR "/testdata", name);
}

std::string SharedData(std::string_view name) {
  const std::string own = TestData(name);
  if (::access(own.c_str(), R_OK) == 0) return own;
  const char* root = std::getenv("CELLM_SHARED");
  const std::string path =
      platform::JoinPath(root != nullptr ? root : CELLM_SOURCE_DIR "/../shared", name);
  return ::access(path.c_str(), R_OK) == 0 ? path : std::string();
}

std::string TestTokenizer(std::string_view name) {
  const char* root = std::getenv("CELLM_TEST_TOKENIZERS");
  const std::string path =
      platform::JoinPath(root != nullptr ? root : CELLM_SOURCE_DIR "/build/test-tokenizers", name);
  return ::access(path.c_str(), R_OK) == 0 ? path : std::string();
}

namespace {

struct TempFolders {
  std::vector<std::string> paths;
  ~TempFolders() {
    for (const std::string& path : paths) {
      const std::string command = "rm -rf '" + path + "'";
      if (std::system(command.c_str()) != 0) continue;
    }
  }
};

}  // namespace

std::string TempFolder() {
  static TempFolders folders;
  const char* base = std::getenv("TMPDIR");
  std::string pattern = std::string(base != nullptr ? base : "/tmp") + "/cellm-test-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) std::abort();
  folders.paths.push_back(pattern);
  return pattern;
}

}  // namespace cellm::testing
