#ifndef CELLM_TOOLS_CELLM_SERVE_MESSAGES_H_
#define CELLM_TOOLS_CELLM_SERVE_MESSAGES_H_

// The messages of the OpenAI API brought into the form that chat templates are written for:
//   - content parts become one text; what is no text is refused by name
//   - "developer" is "system"
//   - arguments of earlier tool calls become objects, as templates expect; those that are no JSON
//     stay the text that they are, because the client cannot change what a model once wrote

#include <string>

#include "cellm/serve/api_error.h"
#include "json/json.h"

namespace cellm::tools::serve {

// `messages` is the array of the request, `param` its name for errors.
ApiError NormalizeMessages(json::Value messages, const std::string& param, std::string* out);

// A string, or an array of text parts, as one text.
ApiError ReadContent(json::Value content, const std::string& param, std::string* out);

}  // namespace cellm::tools::serve

#endif  // CELLM_TOOLS_CELLM_SERVE_MESSAGES_H_
