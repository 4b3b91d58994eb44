#include "cellm/line_editor.h"

#include <langinfo.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>

#if CELLM_WITH_LIBEDIT
#include <histedit.h>
#endif

namespace cellm::tools {
namespace {

volatile sig_atomic_t interrupted = 0;
void OnInterrupt(int) { interrupted = 1; }

// Ctrl-C interrupts the read instead of ending the program. No SA_RESTART: the read must return.
class InterruptGuard {
 public:
  InterruptGuard() {
    interrupted = 0;
    struct sigaction action = {};
    action.sa_handler = OnInterrupt;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &previous_);
  }
  ~InterruptGuard() { sigaction(SIGINT, &previous_, nullptr); }

 private:
  struct sigaction previous_;
};

LineEditor::Outcome ReadPlain(std::string* line) {
  line->clear();
  char c = 0;
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, &c, 1);
    if (count < 0 && errno == EINTR && interrupted == 0) continue;
    if (interrupted != 0) return LineEditor::Outcome::kInterrupted;
    if (count <= 0) {
      return line->empty() ? LineEditor::Outcome::kEnd : LineEditor::Outcome::kLine;
    }
    if (c == '\n') break;
    line->push_back(c);
  }
  if (!line->empty() && line->back() == '\r') line->pop_back();
  return LineEditor::Outcome::kLine;
}

}  // namespace

#if CELLM_WITH_LIBEDIT

struct LineEditor::Impl {
  EditLine* edit = nullptr;
  History* history = nullptr;
  const char* prompt = "";
};

namespace {

struct PromptHolder {
  const char* text;
};

char* ShowPrompt(EditLine* edit) {
  PromptHolder* holder = nullptr;
  el_get(edit, EL_CLIENTDATA, &holder);
  return const_cast<char*>(holder->text);
}

}  // namespace

LineEditor::LineEditor() : impl_(std::make_unique<Impl>()) {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDERR_FILENO) == 0) return;
  // libedit drops what the locale cannot read, and text here is UTF-8 whatever the locale says.
  // Only the character type is set: numbers are read and written as in the "C" locale.
  if (setlocale(LC_CTYPE, "") == nullptr || std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) {
    setlocale(LC_CTYPE, "C.UTF-8");
  }
  // The prompt and the echo go to stderr: stdout carries replies only.
  impl_->edit = el_init("cellm", stdin, stderr, stderr);
  impl_->history = history_init();
  if (impl_->edit == nullptr || impl_->history == nullptr) return;
  HistEvent event;
  history(impl_->history, &event, H_SETSIZE, 1000);
  el_set(impl_->edit, EL_PROMPT, ShowPrompt);
  el_set(impl_->edit, EL_EDITOR, "emacs");
  el_set(impl_->edit, EL_SIGNAL, 0);
  el_set(impl_->edit, EL_HIST, history, impl_->history);
}

LineEditor::~LineEditor() {
  if (impl_->edit != nullptr) el_end(impl_->edit);
  if (impl_->history != nullptr) history_end(impl_->history);
}

LineEditor::Outcome LineEditor::Read(const char* prompt, std::string* line) {
  const InterruptGuard guard;
  if (impl_->edit == nullptr || impl_->history == nullptr) {
    if (isatty(STDIN_FILENO) != 0) std::fputs(prompt, stderr);
    return ReadPlain(line);
  }
  PromptHolder holder = {prompt};
  el_set(impl_->edit, EL_CLIENTDATA, &holder);
  int count = 0;
  const char* text = el_gets(impl_->edit, &count);
  if (interrupted != 0) {
    el_reset(impl_->edit);
    std::fputc('\n', stderr);
    return Outcome::kInterrupted;
  }
  if (text == nullptr || count <= 0) {
    std::fputc('\n', stderr);
    return Outcome::kEnd;
  }
  line->assign(text, static_cast<size_t>(count));
  while (!line->empty() && (line->back() == '\n' || line->back() == '\r')) line->pop_back();
  if (!line->empty()) {
    HistEvent event;
    history(impl_->history, &event, H_ENTER, line->c_str());
  }
  return Outcome::kLine;
}

#else

struct LineEditor::Impl {};
LineEditor::LineEditor() = default;
LineEditor::~LineEditor() = default;

LineEditor::Outcome LineEditor::Read(const char* prompt, std::string* line) {
  const InterruptGuard guard;
  if (isatty(STDIN_FILENO) != 0) std::fputs(prompt, stderr);
  return ReadPlain(line);
}

#endif

}  // namespace cellm::tools
