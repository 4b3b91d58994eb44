#include "cellm/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace cellm::tools {

Progress::Progress(std::string label, bool quiet)
    : label_(std::move(label)), enabled_(!quiet && isatty(STDERR_FILENO) != 0) {}

void Progress::Update(uint64_t done, uint64_t total) {
  if (!enabled_ || total == 0) return;
  const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const int percent = static_cast<int>(share * 100);
  if (percent == last_percent_) return;
  last_percent_ = percent;
  constexpr int kWidth = 30;
  const int filled = static_cast<int>(share * kWidth);
  const std::string bar(static_cast<size_t>(filled), '#');
  std::fprintf(stderr, "\r%s [%-*s] %3d%%", label_.c_str(), kWidth, bar.c_str(), percent);
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::Clear() {
  if (drawn_) std::fprintf(stderr, "\r\x1b[K");
  drawn_ = false;
  last_percent_ = -1;
}

}  // namespace cellm::tools
