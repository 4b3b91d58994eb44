#include "cellm/help.h"

#include <algorithm>
#include <initializer_list>
#include <vector>

namespace cellm::tools {
namespace {

constexpr size_t kWidth = 80;

// Joins texts. Spelled out because gcc 12 sees an overlap in "a" + b + "c" that is not there.
std::string Cat(std::initializer_list<std::string_view> parts) {
  std::string out;
  for (const std::string_view part : parts) out.append(part);
  return out;
}

// `text` broken into lines of at most kWidth columns, each indented by `indent`; blank lines of the
// text stay.
void Wrap(std::string_view text, size_t indent, std::string* out) {
  while (!text.empty()) {
    size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty()) {
      out->push_back('\n');
      continue;
    }
    size_t column = 0;
    while (!line.empty()) {
      const size_t length = std::min(line.find(' '), line.size());
      if (column == 0) {
        out->append(indent, ' ');
        column = indent;
      } else if (column + 1 + length > kWidth) {
        out->push_back('\n');
        out->append(indent, ' ');
        column = indent;
      } else {
        out->push_back(' ');
        ++column;
      }
      out->append(line.substr(0, length));
      column += length;
      line.remove_prefix(std::min(length + 1, line.size()));
    }
    out->push_back('\n');
  }
}

// "-o, --output FILE"
std::string FlagHead(const Flag& flag) {
  std::string head;
  if (flag.short_name != 0) head += std::string("-") + flag.short_name + ", ";
  head += "--" + std::string(flag.name);
  if (flag.kind != FlagKind::kSwitch) head += Cat({" ", flag.value_name});
  return head;
}

std::string FlagText(const Flag& flag) {
  std::string text(flag.help);
  if (flag.repeatable) text += " May be given several times.";
  if (!flag.default_text.empty()) text += Cat({" Default: ", flag.default_text, "."});
  return text;
}

std::string UsageLine(const Command& command) {
  std::string line = "cellm " + std::string(command.name);
  if (!command.groups.empty()) line += " [OPTION]...";
  if (!command.positional.empty()) line += Cat({" ", command.positional});
  return line;
}

// Text for man(7): backslashes and dashes escaped, no line starts with a control character.
std::string ManEscape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c == '.' || c == '\'') && (i == 0 || text[i - 1] == '\n')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out.push_back(c);
    }
  }
  return out;
}

void ManParagraphs(std::string_view text, std::string* out) {
  while (!text.empty()) {
    const size_t end = text.find("\n\n");
    *out += ManEscape(text.substr(0, end)) + "\n";
    if (end == std::string_view::npos) break;
    *out += ".PP\n";
    text.remove_prefix(end + 2);
  }
}

std::string ShellQuote(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out.push_back(c);
    }
  }
  return out + "'";
}

std::string FirstSentence(std::string_view text) {
  const size_t end = text.find(". ");
  std::string sentence(text.substr(0, end));
  while (!sentence.empty() && sentence.back() == '.') sentence.pop_back();
  return sentence;
}

template <typename Visit>
void ForEachFlag(const Command& command, const Visit& visit) {
  for (const FlagGroup& group : command.groups) {
    for (const Flag& flag : group.flags) visit(flag);
  }
}

std::string BashScript(std::span<const Command> commands) {
  std::string names;
  std::string cases;
  for (const Command& command : commands) {
    if (!names.empty()) names += ' ';
    names += command.name;
    std::string flags = "--help";
    std::string choices;
    ForEachFlag(command, [&](const Flag& flag) {
      flags += Cat({" --", flag.name});
      std::string words(flag.value_name);
      std::replace(words.begin(), words.end(), '|', ' ');
      if (flag.kind == FlagKind::kChoice) {
        choices += "        --" + std::string(flag.name) + ") words=" + ShellQuote(words) +
                   "; flags= ;;\n";
      } else if (flag.kind != FlagKind::kSwitch && flag.kind != FlagKind::kFile) {
        choices += "        --" + std::string(flag.name) + ") return ;;\n";
      }
    });
    cases += "    " + std::string(command.name) + ")\n      flags=" + ShellQuote(flags) +
             "\n      case $previous in\n" + choices + "      esac ;;\n";
  }
  return "# bash completion for cellm; made by: cellm completions bash\n"
         "_cellm() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  local command=${COMP_WORDS[1]} words= flags=\n"
         "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
         "    COMPREPLY=($(compgen -W '" +
         names +
         " --help --version' -- \"$word\"))\n"
         "    return\n"
         "  fi\n"
         "  case $command in\n" +
         cases +
         "  esac\n"
         "  if [ -n \"$words\" ]; then\n"
         "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "  elif [[ $word == -* ]]; then\n"
         "    COMPREPLY=($(compgen -W \"$flags\" -- \"$word\"))\n"
         "  else\n"
         "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
         "  fi\n"
         "}\n"
         "complete -o filenames -F _cellm cellm\n";
}

// A text inside the [..] of a zsh _arguments specification.
std::string ZshEscape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out.push_back('\\');
    out.push_back(c);
  }
  return out;
}

std::string ZshScript(std::span<const Command> commands) {
  std::string names;
  std::string cases;
  for (const Command& command : commands) {
    names += "    " +
             ShellQuote(std::string(command.name) + ":" + ZshEscape(std::string(command.summary))) +
             "\n";
    cases += "    " + std::string(command.name) + ")\n      _arguments -s '*:file:_files'";
    ForEachFlag(command, [&](const Flag& flag) {
      std::string spec = flag.repeatable ? "*--" : "--";
      spec += flag.name;
      if (flag.kind != FlagKind::kSwitch) spec += "=";
      spec += Cat({"[", ZshEscape(FirstSentence(flag.help)), "]"});
      std::string words(flag.value_name);
      std::replace(words.begin(), words.end(), '|', ' ');
      if (flag.kind == FlagKind::kChoice) spec += ":value:(" + words + ")";
      if (flag.kind == FlagKind::kFile) spec += ":file:_files";
      if (flag.kind == FlagKind::kText || flag.kind == FlagKind::kInteger ||
          flag.kind == FlagKind::kNumber) {
        spec += ":" + words + ": ";
      }
      cases += " \\\n        " + ShellQuote(spec);
    });
    cases += " ;;\n";
  }
  return "#compdef cellm\n"
         "# zsh completion for cellm; made by: cellm completions zsh\n"
         "_cellm() {\n"
         "  local -a commands=(\n" +
         names +
         "  )\n"
         "  if (( CURRENT == 2 )); then\n"
         "    _describe command commands\n"
         "    return\n"
         "  fi\n"
         "  local command=$words[2]\n"
         "  shift words\n"
         "  (( CURRENT-- ))\n"
         "  case $command in\n" +
         cases +
         "  esac\n"
         "}\n"
         "compdef _cellm cellm\n";
}

std::string FishScript(std::span<const Command> commands) {
  std::string out = "# fish completion for cellm; made by: cellm completions fish\n";
  for (const Command& command : commands) {
    const std::string name(command.name);
    out += "complete -c cellm -n __fish_use_subcommand -f -a " + name + " -d " +
           ShellQuote(command.summary) + "\n";
    ForEachFlag(command, [&](const Flag& flag) {
      out += "complete -c cellm -n '__fish_seen_subcommand_from " + name + "' -l " +
             std::string(flag.name);
      if (flag.short_name != 0) out += std::string(" -s ") + flag.short_name;
      std::string words(flag.value_name);
      std::replace(words.begin(), words.end(), '|', ' ');
      if (flag.kind == FlagKind::kChoice) {
        out += " -x -a " + ShellQuote(words);
      } else if (flag.kind == FlagKind::kFile) {
        out += " -r -F";
      } else if (flag.kind != FlagKind::kSwitch) {
        out += " -x";
      }
      out += " -d " + ShellQuote(FirstSentence(flag.help)) + "\n";
    });
  }
  return out;
}

}  // namespace

std::string OverviewText(std::span<const Command> commands) {
  std::string out =
      "cellm: small language models on the device itself.\n\n"
      "usage: cellm COMMAND [OPTION]...\n\ncommands:\n";
  for (const Command& command : commands) {
    out += "  " + std::string(command.name);
    out.append(command.name.size() < 16 ? 16 - command.name.size() : 1, ' ');
    out += std::string(command.summary) + "\n";
  }
  out +=
      "\n  cellm COMMAND --help   what a command takes, with examples\n"
      "  cellm help --man       the manual page\n"
      "  cellm --version        the version\n\n"
      "Without --model the commands use $CELLM_MODEL, else the model that comes with cellm.\n"
      "Text goes to stdout, everything else to stderr. Exit codes: 1 files and run time,\n2 usage, "
      "130 Ctrl-C, 143 SIGTERM.\n";
  return out;
}

std::string HelpText(const Command& command) {
  std::string out = std::string(command.name) + ": " + std::string(command.summary) +
                    "\n\nusage: " + UsageLine(command) + "\n";
  if (!command.description.empty()) {
    out.push_back('\n');
    Wrap(command.description, 0, &out);
  }
  for (const FlagGroup& group : command.groups) {
    out += Cat({"\n", group.title, ":\n"});
    for (const Flag& flag : group.flags) {
      const std::string head = FlagHead(flag);
      std::string text;
      Wrap(FlagText(flag), 26, &text);
      out += "  ";
      out += head;
      // The help text starts beside a short head and below a long one.
      if (head.size() + 3 <= 26) {
        out.append(24 - head.size(), ' ');
        text.erase(0, 26);
      } else {
        out.push_back('\n');
      }
      out += text;
    }
  }
  if (!command.examples.empty()) {
    out += "\nexamples:\n";
    std::string_view rest = command.examples;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      out += "  " + std::string(rest.substr(0, end)) + "\n";
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  return out;
}

std::string ManPage(std::span<const Command> commands, std::string_view version) {
  std::string out =
      ".TH CELLM 1 \"\" \"cellm " + std::string(version) +
      "\" \"User Commands\"\n"
      ".SH NAME\ncellm \\- small language models on the device itself\n"
      ".SH SYNOPSIS\n.B cellm\n.I COMMAND\n[\\fIOPTION\\fR]...\n"
      ".SH DESCRIPTION\n"
      "Runs small language models on the CPU: a model file in, streamed text out.\n"
      "Without \\fB\\-\\-model\\fR the commands use $CELLM_MODEL, else the model that "
      "comes with cellm.\nText goes to standard output, everything else to standard "
      "error.\n";
  for (const Command& command : commands) {
    out += ".SH " + ManEscape(command.name) + "\n.B " + ManEscape(UsageLine(command)) + "\n.PP\n" +
           ManEscape(command.summary) + ".\n.PP\n";
    ManParagraphs(command.description, &out);
    ForEachFlag(command, [&](const Flag& flag) {
      out += ".TP\n.B " + ManEscape(FlagHead(flag)) + "\n" + ManEscape(FlagText(flag)) + "\n";
    });
    if (!command.examples.empty()) {
      out += ".PP\nExamples:\n.PP\n.nf\n" + ManEscape(command.examples) + "\n.fi\n";
    }
  }
  out +=
      ".SH ENVIRONMENT\n.TP\n.B CELLM_MODEL\nThe model that is used without \\-\\-model.\n"
      ".TP\n.B CELLM_COMMIT_MODEL\nThe model of commit\\-message.\n"
      ".TP\n.B NO_COLOR\nWhen set, no colour on a terminal either.\n"
      ".SH EXIT STATUS\n.TP\n.B 0\nSuccess.\n"
      ".TP\n.B 1\nFiles and run time: a file that cannot be read or written, is damaged, or holds "
      "what cannot be used (an empty prompt file, a token id beyond the vocabulary); a prompt that "
      "is longer than the context; a context that is longer than the model or the memory allows; "
      "an instruction set that this CPU lacks.\n"
      ".TP\n.B 2\nUsage: an option or command that does not exist, options that exclude each "
      "other, a value on the command line that is malformed, out of its range or names nothing (an "
      "unknown \\fB\\-\\-kernels\\fR tier, an empty \\fB\\-\\-prompt\\fR for a model "
      "without a token to begin with).\n"
      ".TP\n.BR 130 \", \" 143\nStopped by Ctrl\\-C or SIGTERM. What was said until then is "
      "printed, with the receipt; "
      "no half file stays.\n";
  return out;
}

std::string CompletionScript(std::span<const Command> commands, std::string_view shell) {
  if (shell == "bash") return BashScript(commands);
  if (shell == "zsh") return ZshScript(commands);
  if (shell == "fish") return FishScript(commands);
  return "";
}

}  // namespace cellm::tools
