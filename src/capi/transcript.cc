#include "capi/transcript.h"

#include <algorithm>
#include <utility>

namespace cellm::capi {

Transcript::Mark Transcript::Match(const MarkedText& rendering) const {
  // Where the two part, in bytes or in origin.
  const size_t most = std::min(text_.bytes.size(), rendering.bytes.size());
  size_t equal = 0;
  while (equal < most && text_.bytes[equal] == rendering.bytes[equal] &&
         text_.trusted[equal] == rendering.trusted[equal]) {
    ++equal;
  }
  for (size_t i = marks_.size(); i-- > 0;) {
    if (marks_[i].text_end <= equal) return marks_[i];
  }
  return {};
}

void Transcript::SetPrompt(const Mark& mark, const MarkedText& rendering,
                           std::span<const int32_t> ids) {
  while (!marks_.empty() && marks_.back().text_end > mark.text_end) marks_.pop_back();
  text_ = rendering;
  ids_.assign(ids.begin(), ids.end());
  marks_.push_back({rendering.bytes.size(), ids.size()});
}

void Transcript::AppendReply(std::string_view text, std::span<const int32_t> ids) {
  AppendIds(ids);
  text_.Append(text, false);
  marks_.push_back({text_.bytes.size(), ids_.size()});
}

void Transcript::Truncate(size_t count) {
  if (count < ids_.size()) ids_.resize(count);
  while (!marks_.empty() && marks_.back().id_count > count) marks_.pop_back();
  const size_t text_end = marks_.empty() ? 0 : marks_.back().text_end;
  text_.bytes.resize(text_end);
  text_.trusted.resize(text_end);
}

Transcript Transcript::Restore(MarkedText text, std::vector<int32_t> ids, std::vector<Mark> marks) {
  Transcript transcript;
  transcript.text_ = std::move(text);
  transcript.ids_ = std::move(ids);
  transcript.marks_ = std::move(marks);
  return transcript;
}

void Transcript::Clear() { *this = Transcript(); }

}  // namespace cellm::capi
