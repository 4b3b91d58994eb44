#ifndef CELLM_SRC_REGEX_CHAR_SET_H_
#define CELLM_SRC_REGEX_CHAR_SET_H_

// Patterns of the form "a run of characters of one kind": `\p{N}{1,3}`, `[a-z]+`, `\s?\p{L}+`.

#include <cstdint>
#include <string_view>
#include <vector>

namespace cellm::regex {

// A set of characters: general categories, ranges, or the complement of both.
struct CharSet {
  uint32_t mask = 0;  // over unicode::CharMask()
  bool negated = false;
  struct Range {
    char32_t first;
    char32_t last;
  };
  std::vector<Range> ranges;

  bool Contains(char32_t code_point) const;
};

// An optional lead character, then min to max characters of the set, as many as there are.
struct ClassRun {
  bool has_lead = false;
  CharSet lead;
  CharSet set;
  uint32_t min_count = 1;
  uint32_t max_count = 1;  // UINT32_MAX: no limit
};

// True, and *out filled, when the pattern is such a run and nothing else.
bool ParseClassRun(std::string_view pattern, ClassRun* out);

}  // namespace cellm::regex

#endif  // CELLM_SRC_REGEX_CHAR_SET_H_
