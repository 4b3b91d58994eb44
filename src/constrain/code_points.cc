#include "constrain/code_points.h"

#include <algorithm>

#include "base/utf8.h"

namespace cellm::constrain {
namespace {

constexpr char32_t kFirstSurrogate = 0xD800;
constexpr char32_t kLastSurrogate = 0xDFFF;
constexpr char32_t kLastCodePoint = 0x10FFFF;

}  // namespace

CodePoints CodePoints::Any() { return CodePoints(0, kLastCodePoint); }

CodePoints CodePoints::Of(std::string_view utf8) {
  CodePoints set;
  while (!utf8.empty()) {
    const Utf8Char c = DecodeUtf8(utf8);
    if (c.valid) set.Add(c.code_point);
    utf8.remove_prefix(c.byte_count);
  }
  return set;
}

void CodePoints::Add(char32_t first, char32_t last) {
  last = std::min(last, kLastCodePoint);
  if (first < kFirstSurrogate) AddScalars(first, std::min<char32_t>(last, kFirstSurrogate - 1));
  if (last > kLastSurrogate) AddScalars(std::max<char32_t>(first, kLastSurrogate + 1), last);
}

void CodePoints::AddScalars(char32_t first, char32_t last) {
  if (first > last) return;
  // The ranges that overlap or touch the new one become one with it.
  auto begin = std::lower_bound(ranges_.begin(), ranges_.end(), first,
                                [](const CodeRange& r, char32_t c) { return r.last + 1 < c; });
  auto end = begin;
  while (end != ranges_.end() && end->first <= last + 1) {
    first = std::min(first, end->first);
    last = std::max(last, end->last);
    ++end;
  }
  begin = ranges_.erase(begin, end);
  ranges_.insert(begin, {first, last});
}

void CodePoints::Add(const CodePoints& other) {
  for (const CodeRange& range : other.ranges_) AddScalars(range.first, range.last);
}

bool CodePoints::Contains(char32_t code_point) const {
  const auto at = std::lower_bound(ranges_.begin(), ranges_.end(), code_point,
                                   [](const CodeRange& r, char32_t c) { return r.last < c; });
  return at != ranges_.end() && at->first <= code_point;
}

CodePoints CodePoints::Complement() const {
  CodePoints out;
  char32_t next = 0;
  for (const CodeRange& range : ranges_) {
    if (range.first > next) out.Add(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) out.Add(next, kLastCodePoint);
  return out;
}

CodePoints CodePoints::Intersect(const CodePoints& other) const {
  CodePoints out;
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    const char32_t first = std::max(a->first, b->first);
    const char32_t last = std::min(a->last, b->last);
    if (first <= last) out.ranges_.push_back({first, last});
    if (a->last < b->last) {
      ++a;
    } else {
      ++b;
    }
  }
  return out;
}

}  // namespace cellm::constrain
