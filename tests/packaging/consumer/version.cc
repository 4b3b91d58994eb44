// The header from C++, and that library and header are of one version.
#include <cellm/cellm.h>

#include <cstdio>
#include <string>

int main() {
  const std::string header = std::to_string(CELLM_VERSION_MAJOR) + "." +
                             std::to_string(CELLM_VERSION_MINOR) + "." +
                             std::to_string(CELLM_VERSION_PATCH);
  std::printf("%s\n", cellm_version_string());
  return header == cellm_version_string() ? 0 : 1;
}
