// cellm: one binary, a command a file. This one finds the command and hands over.
#include <signal.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "cellm/commands.h"
#include "cellm/common.h"
#include "cellm/help.h"

namespace cellm::tools {
namespace {

const Command* FindCommand(std::string_view name) {
  for (const Command& command : AllCommands()) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

int Usage(const std::string& message, const std::string& hint) {
  std::fprintf(stderr, "cellm: %s\n%s\n", message.c_str(), hint.c_str());
  return kExitUsage;
}

int Main(int argc, char** argv) {
  // A closed pipe is an error of a write, not a reason to be killed without a word.
  signal(SIGPIPE, SIG_IGN);
  std::vector<std::string_view> words(argv + 1, argv + argc);
  if (words.empty()) {
    std::fputs(OverviewText(AllCommands()).c_str(), stderr);
    return kExitUsage;
  }
  if (words[0] == "--version" || words[0] == "-V") {
    Print(std::string("cellm ") + cellm_version_string() + "\n");
    return Finish(kExitOk);
  }
  if (words[0] == "--help" || words[0] == "-h") {
    Print(OverviewText(AllCommands()));
    return Finish(kExitOk);
  }
  const Command* command = FindCommand(words[0]);
  if (command == nullptr) {
    return Usage("unknown command '" + std::string(words[0]) + "'",
                 "'cellm --help' lists the commands.");
  }
  Result<Arguments> arguments =
      Arguments::Parse(*command, std::span<const std::string_view>(words).subspan(1));
  if (!arguments.ok()) {
    return Usage(arguments.status().message(),
                 "'cellm " + std::string(command->name) + " --help' lists the options.");
  }
  if (arguments->help_asked()) {
    Print(HelpText(*command));
    return Finish(kExitOk);
  }
  return Finish(command->run(*arguments));
}

}  // namespace

int RunHelp(const Arguments& arguments) {
  if (arguments.Switch("man")) {
    Print(ManPage(AllCommands(), cellm_version_string()));
    return kExitOk;
  }
  if (arguments.positional().empty()) {
    Print(OverviewText(AllCommands()));
    return kExitOk;
  }
  const Command* command = FindCommand(arguments.positional()[0]);
  if (command == nullptr) {
    return Fail(InvalidArgument("unknown command '%s'", arguments.positional()[0].c_str()));
  }
  Print(HelpText(*command));
  return kExitOk;
}

int RunCompletions(const Arguments& arguments) {
  if (arguments.positional().size() != 1) {
    return Fail(InvalidArgument("completions: name one shell: bash, zsh or fish"));
  }
  const std::string script = CompletionScript(AllCommands(), arguments.positional()[0]);
  if (script.empty()) {
    return Fail(InvalidArgument("completions: '%s' is not one of bash, zsh, fish",
                                arguments.positional()[0].c_str()));
  }
  Print(script);
  return kExitOk;
}

}  // namespace cellm::tools

int main(int argc, char** argv) { return cellm::tools::Main(argc, argv); }
