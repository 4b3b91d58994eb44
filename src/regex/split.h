#ifndef CELLM_SRC_REGEX_SPLIT_H_
#define CELLM_SRC_REGEX_SPLIT_H_

// The regular expressions by which tokenizers cut text into words.
//
// Three ways, tried in this order:
//   1. A published split pattern, recognised by its exact text, runs as a hand-written scanner:
//      linear time, no recursion, nothing to build. These are nearly all that exist.
//   2. A pattern that is one run of one kind of character (`\p{N}{1,3}`) runs as such.
//   3. Anything else goes to PCRE2 where this build has it, with limits on steps and memory, and
//      is refused by name where it has not.
// The dialect is Oniguruma's (Ruby syntax), which is what tokenizer.json files are written for:
// \s is White_Space, \d is Nd, ^ and $ match at line ends. The three ways agree; tests hold the
// scanners equal to PCRE2.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "regex/char_set.h"

namespace cellm::regex {

// Bytes [begin, end) of a text below 4 GB.
struct Span {
  uint32_t begin;
  uint32_t end;
};

enum class Scanner : uint8_t { kGpt2, kCl100k, kO200k, kDeepSeek, kClassRun, kPcre2 };

// How a scanner's variants differ.
struct ScannerOptions {
  enum class Contractions : uint8_t { kNone, kLower, kAnyCase, kAnyCaseAscii };
  Contractions contractions = Contractions::kNone;
  uint32_t max_digits = 1;         // \p{N} or \p{N}{1,3}
  bool marks_are_letters = false;  // [\p{L}\p{M}]+ in place of \p{L}+
};

class SplitPattern {
 public:
  // Unsupported names the pattern when nothing here can run it.
  static Result<SplitPattern> Compile(std::string_view pattern);
  // The pattern must be valid for PCRE2; used by tests as the second opinion. Unsupported where
  // this build has no PCRE2.
  static Result<SplitPattern> CompileWithPcre2(std::string_view pattern);

  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;
  ~SplitPattern();

  // Appends the matches in `text` (valid UTF-8, below 4 GB), left to right. Never fails for a
  // scanner; OutOfRange when PCRE2 passes its limits. Any thread.
  Status FindAll(std::string_view text, std::vector<Span>* out) const;

  Scanner scanner() const { return scanner_; }

 private:
  SplitPattern();
  Scanner scanner_ = Scanner::kClassRun;
  ScannerOptions options_;
  ClassRun run_;
  struct Pcre2;
  std::unique_ptr<Pcre2> pcre2_;
};

// True when this build runs patterns through PCRE2.
bool HasPcre2();

}  // namespace cellm::regex

#endif  // CELLM_SRC_REGEX_SPLIT_H_
