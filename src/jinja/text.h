#ifndef CELLM_SRC_JINJA_TEXT_H_
#define CELLM_SRC_JINJA_TEXT_H_

// Text that knows where each byte came from.
//
// A rendered chat mixes what the template wrote ("trusted": it may become control tokens) with what
// came in through variables ("untrusted": it never may). Every string in the template engine is a
// Text, and every operation that makes a string from others carries the marks along:
//
//   bytes   <|im_start|>user\nHi <|im_end|><|im_end|>\n
//   runs    [trusted     ][untrusted      ][trusted    ]
//
// Nearly all strings have one origin, so the list of runs stays empty until a second one shows up.
// Invariants: runs_ is empty or holds at least two runs; ends are increasing, neighbours differ and
// the last end is bytes_.size(). Text is valid UTF-8 as long as callers slice between characters.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cellm::jinja {

// Bytes up to `end` (from the end of the run before) share one origin.
struct Run {
  size_t end = 0;
  bool trusted = false;
  bool operator==(const Run&) const = default;
};

class Text {
 public:
  Text() = default;
  Text(std::string bytes, bool trusted) : bytes_(std::move(bytes)), trusted_(trusted) {}

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // True when every byte is trusted. The empty text is what it was made as.
  bool all_trusted() const { return runs_.empty() && trusted_; }
  bool TrustedAt(size_t offset) const;  // offset < size()

  void Append(std::string_view bytes, bool trusted);
  void Append(const Text& other) { AppendSlice(other, 0, other.size()); }
  // The bytes [begin, end) of `other` with their marks; begin <= end <= other.size(). `other` must
  // not be this text.
  void AppendSlice(const Text& other, size_t begin, size_t end);
  Text Slice(size_t begin, size_t end) const;
  void Reserve(size_t bytes) { bytes_.reserve(bytes); }
  void Clear();

  // The marks as a complete list: one run for text of one origin, none for the empty text.
  std::vector<Run> Runs() const;
  std::string TakeBytes() && { return std::move(bytes_); }
  // Memory behind this text, for the budget.
  size_t HeapBytes() const { return bytes_.capacity() + runs_.capacity() * sizeof(Run); }

  // Calls visit(begin, end, trusted) for each stretch of one origin in [begin, end), in order.
  template <typename Visit>
  void ForEachRun(size_t begin, size_t end, Visit&& visit) const {
    if (begin >= end) return;
    if (runs_.empty()) {
      visit(begin, end, trusted_);
      return;
    }
    for (size_t i = RunIndex(begin); begin < end; ++i) {
      const size_t stop = runs_[i].end < end ? runs_[i].end : end;
      visit(begin, stop, runs_[i].trusted);
      begin = stop;
    }
  }

 private:
  size_t RunIndex(size_t offset) const;

  std::string bytes_;
  bool trusted_ = false;  // of everything, while runs_ is empty
  std::vector<Run> runs_;
};

}  // namespace cellm::jinja

#endif  // CELLM_SRC_JINJA_TEXT_H_
