#ifndef CELLM_TOOLS_CELLM_PROGRESS_H_
#define CELLM_TOOLS_CELLM_PROGRESS_H_

#include <cstdint>
#include <string>

namespace cellm::tools {

// A line on stderr that shows how far long work is; silent off a terminal. Drawn at most once per
// percent.
class Progress {
 public:
  Progress(std::string label, bool quiet);
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void Update(uint64_t done, uint64_t total);
  void Clear();

 private:
  std::string label_;
  bool enabled_;
  bool drawn_ = false;
  int last_percent_ = -1;
};

}  // namespace cellm::tools

#endif  // CELLM_TOOLS_CELLM_PROGRESS_H_
