#ifndef CELLM_TOOLS_CELLM_FLAGS_H_
#define CELLM_TOOLS_CELLM_FLAGS_H_

// One table a command: its flags, from which parsing, --help, the man page and the shell
// completions are all made, so that they cannot disagree.
//
// Syntax: --name VALUE, --name=VALUE, --switch, -x VALUE, "--" ends the flags. A switch can be
// turned off again as --no-name. Underscores in names are read as dashes. Names that an older
// tool used are aliases: accepted, not shown.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cellm::tools {

enum class FlagKind : uint8_t {
  kSwitch,   // no value
  kText,     // any text
  kFile,     // a path to complete
  kInteger,  // 64-bit
  kNumber,   // floating
  kChoice,   // one of `choices`
};

struct Flag {
  std::string_view name = {};
  FlagKind kind = FlagKind::kSwitch;
  std::string_view value_name = {};  // "N" in "--gen N"; for kChoice the choices "a|b|c"
  std::string_view help = {};        // one sentence or two
  std::string_view default_text = {};
  std::string_view aliases = {};  // space-separated older names
  char short_name = 0;
  bool repeatable = false;
  // The value when none follows (the next word is a flag, not a number, or missing). Empty: a value
  // is required.
  std::string_view implied = {};
  // kChoice: what is taken besides the shown choices; InvalidArgument without the flag's name.
  Status (*check)(const std::string& value) = nullptr;
};

// Flags under one heading of --help.
struct FlagGroup {
  std::string_view title = {};
  std::span<const Flag> flags = {};
};

class Arguments;

struct Command {
  std::string_view name = {};
  std::string_view summary = {};      // one line
  std::string_view positional = {};   // "FILE..." after the flags; empty: none are taken
  std::string_view description = {};  // paragraphs, separated by blank lines
  std::string_view examples = {};     // lines
  std::span<const FlagGroup> groups = {};
  int (*run)(const Arguments& arguments) = nullptr;
};

// What was given on a command line. Getters return what the flag table promises, so that a name
// that is not in the table is a fault of ours.
class Arguments {
 public:
  // InvalidArgument: unknown flag (with the nearest known one), missing or malformed value, a
  // value-less flag with a value, a flag given twice that is not repeatable.
  static Result<Arguments> Parse(const Command& command, std::span<const std::string_view> words);

  bool Has(std::string_view name) const;  // it was given
  // The command takes it. What several commands share is read only where it can be given.
  bool Knows(std::string_view name) const;
  bool Switch(std::string_view name, bool otherwise = false) const;
  std::string Text(std::string_view name, std::string_view otherwise = {}) const;
  int64_t Integer(std::string_view name, int64_t otherwise = 0) const;
  double Number(std::string_view name, double otherwise = 0) const;
  const std::vector<std::string>& All(std::string_view name) const;
  const std::vector<std::string>& positional() const { return positional_; }
  bool help_asked() const { return help_asked_; }

 private:
  const Command* command_ = nullptr;
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
  std::vector<std::string> positional_;
  bool help_asked_ = false;
};

// A decimal integer or a number that fills the whole text; false otherwise.
bool ParseInteger(std::string_view text, int64_t* out);
bool ParseNumber(std::string_view text, double* out);

}  // namespace cellm::tools

#endif  // CELLM_TOOLS_CELLM_FLAGS_H_
