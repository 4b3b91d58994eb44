#ifndef CELLM_TESTS_SUPPORT_PATHS_H_
#define CELLM_TESTS_SUPPORT_PATHS_H_

#include <string>
#include <string_view>

namespace cellm::testing {

// testdata/<name> of the source tree.
std::string TestData(std::string_view name);

// Reference data <name>: testdata/<name> where the project has it, else <name> in the folder of
// what is too large or not ours to commit, which is $CELLM_SHARED when set, else ../shared beside
// the source tree. Empty when it is in neither; the caller then skips with
// CELLM_SKIP_WITHOUT_SHARED.
std::string SharedData(std::string_view name);

// Where scripts/fetch_test_tokenizers.sh put published tokenizers: $CELLM_TEST_TOKENIZERS when set,
// else build/test-tokenizers of the source tree. The file <name>, or empty when it is absent.
std::string TestTokenizer(std::string_view name);

// A new, empty folder for this test, removed at process end.
std::string TempFolder();

}  // namespace cellm::testing

// Skips the test, loudly, when the reference file or folder is not on this machine.
#define CELLM_SKIP_WITHOUT_SHARED(variable, name)                  \
  const std::string variable = ::cellm::testing::SharedData(name); \
  if (variable.empty())                                            \
  GTEST_SKIP() << "SKIPPED: reference data " << (name)             \
               << " is not on this machine (set CELLM_SHARED)"

#endif  // CELLM_TESTS_SUPPORT_PATHS_H_
