#include "jinja/text.h"

#include <algorithm>

namespace cellm::jinja {

size_t Text::RunIndex(size_t offset) const {
  const auto after = std::upper_bound(runs_.begin(), runs_.end(), offset,
                                      [](size_t at, const Run& run) { return at < run.end; });
  return static_cast<size_t>(after - runs_.begin());
}

bool Text::TrustedAt(size_t offset) const {
  return runs_.empty() ? trusted_ : runs_[RunIndex(offset)].trusted;
}

void Text::Append(std::string_view bytes, bool trusted) {
  if (bytes.empty()) return;
  if (bytes_.empty()) {
    trusted_ = trusted;
    runs_.clear();
  } else if (runs_.empty() && trusted != trusted_) {
    runs_.push_back({bytes_.size(), trusted_});
    runs_.push_back({bytes_.size(), trusted});
  } else if (!runs_.empty() && runs_.back().trusted != trusted) {
    runs_.push_back({bytes_.size(), trusted});
  }
  bytes_.append(bytes);
  if (!runs_.empty()) runs_.back().end = bytes_.size();
}

void Text::AppendSlice(const Text& other, size_t begin, size_t end) {
  const std::string_view bytes = other.bytes_;
  other.ForEachRun(begin, end, [&](size_t from, size_t to, bool trusted) {
    Append(bytes.substr(from, to - from), trusted);
  });
}

Text Text::Slice(size_t begin, size_t end) const {
  Text out(std::string(), trusted_);
  out.AppendSlice(*this, begin, end);
  return out;
}

void Text::Clear() {
  bytes_.clear();
  runs_.clear();
}

std::vector<Run> Text::Runs() const {
  if (bytes_.empty()) return {};
  if (runs_.empty()) return {{bytes_.size(), trusted_}};
  return runs_;
}

}  // namespace cellm::jinja
