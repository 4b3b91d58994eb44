#ifndef CELLM_SRC_SAMPLE_STOP_H_
#define CELLM_SRC_SAMPLE_STOP_H_

// When a reply ends by what it says: stop strings in its text, stop ids among its tokens.
//
// A stop string may arrive in pieces, over many tokens. The matcher passes text on as soon as it
// can no longer be the beginning of a stop string and holds the rest back, so nothing of a stop
// string ever reaches the caller. Which stop matches, and what was passed on before it, depends on
// the text alone and not on how it was cut: the match that ends first wins, and of several that
// end together the longest.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cellm::sample {

inline constexpr size_t kMaxStopStrings = 64;
inline constexpr size_t kMaxStopBytes = 4096;  // of one stop string

class StopMatcher {
 public:
  StopMatcher() = default;
  // InvalidArgument: an empty string, more than kMaxStopStrings, one longer than kMaxStopBytes.
  static Result<StopMatcher> Create(std::vector<std::string> stops);

  // Appends to *out what may be shown after `text` came in. True once a stop string is complete;
  // from then on nothing more is passed on. O(text x stops).
  bool Push(std::string_view text, std::string* out);

  // The end of the text: what was held back cannot become a stop string any more.
  void Flush(std::string* out);

  bool matched() const { return matched_ >= 0; }
  // The stop string that matched; requires matched().
  const std::string& match() const { return stops_[static_cast<size_t>(matched_)]; }

 private:
  std::vector<std::string> stops_;
  // Knuth-Morris-Pratt, one automaton a stop: progress_[i] is the length of the longest prefix of
  // stops_[i] that the text so far ends with; fallback_[i][n] the next shorter one after n + 1.
  std::vector<std::vector<uint16_t>> fallback_;
  std::vector<size_t> progress_;
  std::string held_;  // the end of the text; its length is the largest progress
  int matched_ = -1;
};

// A set of token ids that end a reply.
class StopIds {
 public:
  void Add(int32_t id);
  bool Contains(int32_t id) const;
  const std::vector<int32_t>& ids() const { return ids_; }

 private:
  std::vector<int32_t> ids_;  // sorted, unique
};

}  // namespace cellm::sample

#endif  // CELLM_SRC_SAMPLE_STOP_H_
