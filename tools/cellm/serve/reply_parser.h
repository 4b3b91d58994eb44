#ifndef CELLM_TOOLS_CELLM_SERVE_REPLY_PARSER_H_
#define CELLM_TOOLS_CELLM_SERVE_REPLY_PARSER_H_

// What a model wrote, split into what the API tells apart: reasoning, content and tool calls. Pure
// functions over text: the same pieces come out however the text is cut on its way in.
//
//   <think> ... </think>  text for the user  <tool_call>{"name": ..., "arguments": ...}</tool_call>
//        reasoning             content                          a call
//
// Text is shown as soon as it cannot be the beginning of a mark any more. A call is shown while it
// is written: its name as soon as that is known, then its arguments as far as they can no longer
// change (call_preview.h). When it is whole, all of its arguments have been shown, and they are
// JSON for certain:
//
//   kCallBegin "f"   kCallArguments {"city":"Zu   kCallArguments rich"}   kCallEnd
//
// What turns out not to be a call (broken JSON, cut short by a limit) is content, to the last byte;
// where something of it was shown as a call, kCallBroken takes that back first. So content and
// whole calls are the same whether or not somebody looks at the pieces before the end. Work is
// linear in the text.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cellm/serve/call_preview.h"
#include "cellm/serve/tool_syntax.h"

namespace cellm::tools::serve {

struct ReplyPiece {
  enum class Kind : uint8_t {
    kContent,
    kReasoning,
    kCallBegin,      // tool_name
    kCallArguments,  // text: what follows of the JSON object
    kCallEnd,        // the arguments are whole
    kCallBroken      // it was none
  };
  Kind kind = Kind::kContent;
  std::string text;
  std::string tool_name;
  // Which call of the reply, counted as they begin. Several may be open at once: those of a list
  // are calls only when the list is closed.
  size_t call = 0;
};

struct ReplyFormat {
  std::vector<Tool> tools;      // empty: no calls are looked for
  bool one_call = false;        // parallel_tool_calls: false; further calls are dropped
  bool split_reasoning = true;  // false: reasoning is content like everything else
  bool channels = false;        // gpt-oss: messages with <|channel|> heads
  // The prompt ends with this opening mark ("<think>"), so the reply begins inside; "": it does
  // not.
  std::string open_reasoning;
};
// What the end of a prompt says about the reply that follows.
void ReadPromptEnd(std::string_view prompt, ReplyFormat* format);
// Marks of reasoning and of channels, which a model may write as special tokens.
bool IsMark(std::string_view text);

class ReplyParser {
 public:
  explicit ReplyParser(ReplyFormat format);
  void Feed(std::string_view text, std::vector<ReplyPiece>* out);
  // The end of the text: what was held is decided now.
  void Finish(std::vector<ReplyPiece>* out);
  // From now on this text (a special token that is no mark) is left out of the content.
  void Drop(const std::string& text);

 private:
  enum class State : uint8_t {
    kStart,
    kReasoning,
    kContent,
    kCall,
    kChannelHead,
    kChannelReasoning,
    kChannelCall
  };
  bool Advance(bool at_end, std::vector<ReplyPiece>* out);
  bool AdvanceStart(bool at_end);
  bool AdvanceReasoning(bool at_end, std::vector<ReplyPiece>* out);
  bool AdvanceContent(bool at_end, std::vector<ReplyPiece>* out);
  bool AdvanceCall(bool at_end, std::vector<ReplyPiece>* out);
  bool AdvanceChannel(bool at_end, std::vector<ReplyPiece>* out);
  enum class CallOutcome : uint8_t { kNeedMore, kCalls, kNoCall };
  CallOutcome ReadCall(bool at_end, size_t* consumed, std::vector<ToolCall>* calls);
  CallOutcome ReadMarkedCall(size_t* consumed, std::vector<ToolCall>* calls);
  CallOutcome ReadNamedCall(size_t name_at, size_t* consumed, std::vector<ToolCall>* calls);
  CallOutcome ReadValueCall(bool at_end, size_t* consumed, std::vector<ToolCall>* calls);
  bool SkipClose(bool at_end, size_t* consumed) const;
  void BeginCall(const CallMarker* marker, size_t body_at);
  // Shows what can be known of the call whose body reaches to held_[end].
  void ShowCalls(size_t end, std::vector<ReplyPiece>* out);
  void ShowArguments(size_t call, std::string_view text, std::vector<ReplyPiece>* out);
  void EmitCalls(const std::vector<ToolCall>& calls, std::vector<ReplyPiece>* out);
  void BreakCalls(size_t first, std::vector<ReplyPiece>* out);
  void Emit(ReplyPiece::Kind kind, size_t bytes, std::vector<ReplyPiece>* out);
  void EmitContent(size_t bytes, std::vector<ReplyPiece>* out);

  ReplyFormat format_;
  State state_ = State::kStart;
  std::string held_;
  std::string space_;  // blanks that are content only if more content follows
  std::string reasoning_close_;
  std::vector<std::string> dropped_;
  bool any_content_ = false;
  bool trim_ = false;        // blanks at the front of the content are dropped
  size_t calls_ = 0;         // that were whole
  size_t begun_ = 0;         // that were shown
  bool bare_calls_ = false;  // the last one had no marks around it
  std::string channel_tool_;
  // Of the call that is held.
  const CallMarker* marker_ = nullptr;
  size_t body_at_ = 0;   // its body begins here in held_
  size_t value_at_ = 0;  // the JSON in it, 0: not found yet
  size_t searched_ = 0;  // no closing mark before this
  size_t body_end_ = 0;  // nothing before this can be what ends the body
  ValueExtent extent_;
  CallPreview preview_;
  size_t previewed_ = 0;  // it has read held_ up to here
  struct Shown {
    size_t call;   // its number
    size_t bytes;  // of its arguments
  };
  std::vector<Shown> shown_;  // the first calls of preview_
};

}  // namespace cellm::tools::serve

#endif  // CELLM_TOOLS_CELLM_SERVE_REPLY_PARSER_H_
