#ifndef CELLM_TOOLS_CELLM_SERVE_REPLY_FORMAT_H_
#define CELLM_TOOLS_CELLM_SERVE_REPLY_FORMAT_H_

// Between tokens and the reply parser: replies are produced with special tokens spelled out,
// because some models mark calls and reasoning with them; those that are no marks are taken out
// again.

#include <string>
#include <string_view>

#include "cellm/serve/models.h"
#include "cellm/serve/openai_request.h"
#include "cellm/serve/reply_parser.h"
#include "cellm/serve/runner.h"

namespace cellm::tools::serve {

// How the reply to this request is to be read. Errors are those of the template.
ApiError FindReplyFormat(const OpenModelState& model, const GenerateRequest& request,
                         ReplyFormat* format);

// What of an event's text goes to the parser: without the token that ended the reply. Special
// tokens that are no marks are announced to the parser.
std::string_view VisibleText(const OpenModelState& model, const TokenEvent& event,
                             ReplyParser* parser);

// The conversation as the model sees it.
ApiError RenderPrompt(const OpenModelState& model, const GenerateRequest& request,
                      uint32_t chat_flags, std::string* prompt);

}  // namespace cellm::tools::serve

#endif  // CELLM_TOOLS_CELLM_SERVE_REPLY_FORMAT_H_
