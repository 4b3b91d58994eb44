#ifndef CELLM_SRC_CAPI_CHAT_H_
#define CELLM_SRC_CAPI_CHAT_H_

// From a conversation to ids: template, variables, provenance.

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "capi/convert_args.h"
#include "capi/handles.h"
#include "capi/transcript.h"
#include "cellm/cellm.h"
#include "jinja/chat_template.h"

namespace cellm::capi {

// The conversation as text, each byte marked with its origin. On failure *details has the kind of a
// template error. InvalidArgument, OutOfRange; Internal never.
Result<MarkedText> RenderChat(const ModelState& model, const cellm_chat* chat,
                              ErrorDetails* details);

// A template with exactly the variables of a JSON object, and the special tokens that it does not
// name. What the reference always defines in a chat is added when there are messages. With
// `continue_final` the rendering ends where the last message does.
Result<MarkedText> RenderFromJson(const jinja::ChatTemplate& parsed, std::string_view variables,
                                  std::string_view now, bool continue_final, ErrorDetails* details);

// The ids of rendering[begin, end of text). Only trusted bytes may become control tokens.
Result<std::vector<int32_t>> EncodeMarked(const ModelState& model, const MarkedText& rendering,
                                          size_t begin);

}  // namespace cellm::capi

#endif  // CELLM_SRC_CAPI_CHAT_H_
