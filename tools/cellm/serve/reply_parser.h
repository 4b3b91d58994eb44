#ifndef CELLM_TOOLS_CELLM_SERVE_REPLY_PARSER_H_
#define CELLM_TOOLS_CELLM_SERVE_REPLY_PARSER_H_

// What a model wrote, split into what the API tells apart: reasoning, content and tool calls. Pure
// functions over text: the same pieces come out however the text is cut on its way in.
//
//   <think> ... </think>  text for the user  <tool_call>{"name": ..., "arguments": ...}</tool_call>
//        reasoning             content                          a call
//
// Text is shown as early as it cannot be the beginning of a marker any more. A call is held until
// it is whole, then handed out with arguments that are JSON for certain; what turns out not to be a
// call (broken JSON, cut short by a limit) is content, to the last byte. Nothing is lost.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cellm::tools::serve {

struct ReplyPiece {
  enum class Kind : uint8_t { kContent, kReasoning, kToolCall };
  Kind kind = Kind::kContent;
  std::string text;       // of a call: its arguments, a JSON object
  std::string tool_name;  // of a call
};

// How a model marks its reasoning.
struct ReasoningFormat {
  std::string open = "<think>";
  std::string close = "</think>";
  bool split = true;         // false: reasoning is content like everything else
  bool starts_open = false;  // the prompt ends with the opening mark
};

class ReplyParser {
 public:
  explicit ReplyParser(ReasoningFormat reasoning);
  void Feed(std::string_view text, std::vector<ReplyPiece>* out);
  // The end of the text: what was held is decided now.
  void Finish(std::vector<ReplyPiece>* out);

 private:
  enum class State : uint8_t { kStart, kReasoning, kAfterReasoning, kContent };
  bool Advance(bool at_end, std::vector<ReplyPiece>* out);
  void Emit(ReplyPiece::Kind kind, size_t bytes, std::vector<ReplyPiece>* out);

  ReasoningFormat reasoning_;
  State state_ = State::kStart;
  std::string held_;
};

// How many bytes at the end of `text` could be the beginning of `marker` (not all of it).
size_t PartialMarker(std::string_view text, std::string_view marker);

}  // namespace cellm::tools::serve

#endif  // CELLM_TOOLS_CELLM_SERVE_REPLY_PARSER_H_
