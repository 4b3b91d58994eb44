#ifndef CELLM_TOOLS_CELLM_COMMANDS_H_
#define CELLM_TOOLS_CELLM_COMMANDS_H_

#include <span>

#include "cellm/flags.h"

namespace cellm::tools {

// Every command with its flag table, in the order of --help.
std::span<const Command> AllCommands();

// What they run; each returns the exit code. One file a command.
int RunBench(const Arguments& arguments);
int RunInfer(const Arguments& arguments);
int RunChat(const Arguments& arguments);
int RunConvert(const Arguments& arguments);
int RunQuantize(const Arguments& arguments);
int RunInspect(const Arguments& arguments);
int RunPerplexity(const Arguments& arguments);
int RunLogits(const Arguments& arguments);
int RunEmbed(const Arguments& arguments);
int RunServe(const Arguments& arguments);
int RunTokenize(const Arguments& arguments);
int RunRender(const Arguments& arguments);
int RunCommitMessage(const Arguments& arguments);
int RunCompletions(const Arguments& arguments);
int RunHelp(const Arguments& arguments);

}  // namespace cellm::tools

#endif  // CELLM_TOOLS_CELLM_COMMANDS_H_
