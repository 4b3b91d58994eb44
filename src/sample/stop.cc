#include "sample/stop.h"

#include <algorithm>
#include <utility>

namespace cellm::sample {

Result<StopMatcher> StopMatcher::Create(std::vector<std::string> stops) {
  if (stops.size() > kMaxStopStrings) {
    return InvalidArgument("%zu stop strings; at most %zu are taken", stops.size(),
                           kMaxStopStrings);
  }
  for (const std::string& stop : stops) {
    if (stop.empty()) return InvalidArgument("a stop string is empty");
    if (stop.size() > kMaxStopBytes) {
      return InvalidArgument("a stop string has %zu bytes; at most %zu are taken", stop.size(),
                             kMaxStopBytes);
    }
  }
  StopMatcher matcher;
  for (const std::string& stop : stops) {
    std::vector<uint16_t> fallback(stop.size(), 0);
    size_t length = 0;
    for (size_t i = 1; i < stop.size(); ++i) {
      while (length > 0 && stop[i] != stop[length]) length = fallback[length - 1];
      if (stop[i] == stop[length]) ++length;
      fallback[i] = static_cast<uint16_t>(length);
    }
    matcher.fallback_.push_back(std::move(fallback));
  }
  matcher.progress_.assign(stops.size(), 0);
  matcher.stops_ = std::move(stops);
  return matcher;
}

bool StopMatcher::Push(std::string_view text, std::string* out) {
  if (matched()) return true;
  if (stops_.empty()) {
    out->append(text);
    return false;
  }
  for (const char c : text) {
    held_.push_back(c);
    size_t keep = 0;
    size_t longest = 0;
    for (size_t i = 0; i < stops_.size(); ++i) {
      const std::string& stop = stops_[i];
      size_t& length = progress_[i];
      while (length > 0 && stop[length] != c) length = fallback_[i][length - 1];
      if (stop[length] == c) ++length;
      keep = std::max(keep, length);
      if (length == stop.size() && length > longest) {
        longest = length;
        matched_ = static_cast<int>(i);
      }
    }
    if (matched()) keep = longest;
    out->append(held_, 0, held_.size() - keep);
    held_.erase(0, held_.size() - keep);
    if (matched()) {
      held_.clear();
      return true;
    }
  }
  return false;
}

void StopMatcher::Flush(std::string* out) {
  out->append(held_);
  held_.clear();
}

void StopIds::Add(int32_t id) {
  const auto place = std::lower_bound(ids_.begin(), ids_.end(), id);
  if (place == ids_.end() || *place != id) ids_.insert(place, id);
}

bool StopIds::Contains(int32_t id) const {
  return std::binary_search(ids_.begin(), ids_.end(), id);
}

}  // namespace cellm::sample
