#ifndef CELLM_TOOLS_CELLM_HELP_H_
#define CELLM_TOOLS_CELLM_HELP_H_

#include <span>
#include <string>
#include <string_view>

#include "cellm/flags.h"

namespace cellm::tools {

// `cellm --help`: all commands, a line each.
std::string OverviewText(std::span<const Command> commands);
// `cellm COMMAND --help`, wrapped at 80 columns.
std::string HelpText(const Command& command);
// cellm(1) in man(7) macros.
std::string ManPage(std::span<const Command> commands, std::string_view version);
// A completion script for "bash", "zsh" or "fish"; empty for another shell.
std::string CompletionScript(std::span<const Command> commands, std::string_view shell);

}  // namespace cellm::tools

#endif  // CELLM_TOOLS_CELLM_HELP_H_
