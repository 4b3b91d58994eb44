#ifndef CELLM_TOOLS_CELLM_LINE_EDITOR_H_
#define CELLM_TOOLS_CELLM_LINE_EDITOR_H_

#include <memory>
#include <string>

namespace cellm::tools {

// Lines from the user: with editing and history on a terminal where libedit was found at build
// time, plainly otherwise.
class LineEditor {
 public:
  enum class Outcome { kLine, kInterrupted, kEnd };

  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // The prompt is shown only on a terminal. The line comes without its line end. Ctrl-C drops what
  // was typed and gives kInterrupted; Ctrl-D on an empty line and the end of the input give kEnd.
  Outcome Read(const char* prompt, std::string* line);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cellm::tools

#endif  // CELLM_TOOLS_CELLM_LINE_EDITOR_H_
