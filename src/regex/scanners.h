#ifndef CELLM_SRC_REGEX_SCANNERS_H_
#define CELLM_SRC_REGEX_SCANNERS_H_

// The scanners behind SplitPattern, and the table of the patterns that they replace.

#include <string_view>
#include <vector>

#include "regex/split.h"

namespace cellm::regex {

struct KnownPattern {
  std::string_view text;  // with \r and \n written as escapes
  Scanner scanner;
  ScannerOptions options;
};

// Null when the pattern is not a known one.
const KnownPattern* FindKnownPattern(std::string_view pattern);

void ScanKnown(Scanner scanner, const ScannerOptions& options, std::string_view text,
               std::vector<Span>* out);
void ScanClassRun(const ClassRun& run, std::string_view text, std::vector<Span>* out);

}  // namespace cellm::regex

#endif  // CELLM_SRC_REGEX_SCANNERS_H_
