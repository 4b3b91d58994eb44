#ifndef CELLM_SRC_CONSTRAIN_CODE_POINTS_H_
#define CELLM_SRC_CONSTRAIN_CODE_POINTS_H_

// Sets of Unicode scalar values, as sorted ranges that neither overlap nor touch.

#include <cstddef>
#include <string_view>
#include <vector>

namespace cellm::constrain {

struct CodeRange {
  char32_t first = 0;
  char32_t last = 0;
  bool operator==(const CodeRange&) const = default;
  auto operator<=>(const CodeRange&) const = default;
};

class CodePoints {
 public:
  CodePoints() = default;
  CodePoints(char32_t first, char32_t last) { Add(first, last); }
  // Every scalar value: all but the surrogates.
  static CodePoints Any();
  // Each character of well-formed UTF-8.
  static CodePoints Of(std::string_view utf8);

  // Surrogates and what lies above U+10FFFF are left out; first > last adds nothing.
  void Add(char32_t first, char32_t last);
  void Add(char32_t code_point) { Add(code_point, code_point); }
  void Add(const CodePoints& other);

  bool Contains(char32_t code_point) const;
  bool empty() const { return ranges_.empty(); }
  CodePoints Complement() const;
  CodePoints Intersect(const CodePoints& other) const;
  CodePoints Minus(const CodePoints& other) const { return Intersect(other.Complement()); }

  const std::vector<CodeRange>& ranges() const { return ranges_; }
  bool operator==(const CodePoints&) const = default;

 private:
  void AddScalars(char32_t first, char32_t last);
  std::vector<CodeRange> ranges_;
};

}  // namespace cellm::constrain

#endif  // CELLM_SRC_CONSTRAIN_CODE_POINTS_H_
