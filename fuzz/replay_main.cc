// The main() of a fuzz target that is built as an ordinary test.
//
// Runs LLVMFuzzerTestOneInput on the empty input and on every file of the corpus folders named on
// the command line, in name order; a crash, a sanitizer report or a failed CHECK fails the test.
// Each input is copied into a buffer of exactly its size, so that AddressSanitizer sees a read past
// the end. A folder that is missing or has no file is an error: a corpus that has vanished must
// not look like a pass.

#include <dirent.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> files;
  DIR* directory = ::opendir(folder.c_str());
  if (directory == nullptr) return files;
  while (const dirent* entry = ::readdir(directory)) {
    if (entry->d_name[0] != '.') files.push_back(folder + "/" + entry->d_name);
  }
  ::closedir(directory);
  std::sort(files.begin(), files.end());
  return files;
}

bool ReadAll(const std::string& path, std::vector<uint8_t>* bytes) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  uint8_t buffer[65536];
  size_t count = 0;
  while ((count = std::fread(buffer, 1, sizeof(buffer), file)) > 0) {
    bytes->insert(bytes->end(), buffer, buffer + count);
  }
  const bool good = std::ferror(file) == 0;
  std::fclose(file);
  return good;
}

void RunOne(const std::vector<uint8_t>& bytes) {
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[bytes.size()]);
  if (!bytes.empty()) std::memcpy(exact.get(), bytes.data(), bytes.size());
  LLVMFuzzerTestOneInput(exact.get(), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  RunOne({});
  for (int i = 1; i < argc; ++i) {
    const std::vector<std::string> files = FilesIn(argv[i]);
    if (files.empty()) {
      std::fprintf(stderr, "no corpus files in %s\n", argv[i]);
      return 1;
    }
    for (const std::string& path : files) {
      // Named first, so that the last line before a crash says which input it was.
      std::fprintf(stderr, "%s\n", path.c_str());
      std::vector<uint8_t> bytes;
      if (!ReadAll(path, &bytes)) {
        std::fprintf(stderr, "cannot read %s\n", path.c_str());
        return 1;
      }
      RunOne(bytes);
    }
  }
  return 0;
}
