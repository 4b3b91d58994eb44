#include "cellm/serve/reply_parser.h"

#include <algorithm>
#include <utility>

namespace cellm::tools::serve {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
// No call is longer; what is goes on as content, so that a reply never waits for ever.
constexpr size_t kMaxCallBytes = 64 << 10;
constexpr size_t kMaxChannelHeadBytes = 512;

struct ReasoningMarks {
  std::string_view open, close;
};
constexpr ReasoningMarks kReasoning[] = {
    {"<think>", "</think>"},
    {"<|channel>thought", "<channel|>"},
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"[THINK]", "[/THINK]"},
    {"<|inner_prefix|>", "<|inner_suffix|>"},
};

// gpt-oss: <|start|>assistant<|channel|>NAME to=functions.F<|message|> TEXT <|end|>
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kStartMessage = "<|start|>";
constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kMessageEnds[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>",
                                             "<|channel|>"};
constexpr std::string_view kFunctions = "to=functions.";

// Keys that a call written as bare JSON may begin with.
constexpr std::string_view kFirstKeys[] = {"name", "function",  "type",
                                           "id",   "arguments", "parameters",
                                           "tool", "tool_name", "tool_call_id"};

size_t SkipSpace(std::string_view text, size_t from) {
  return std::min(text.find_first_not_of(kSpace, from), text.size());
}

enum class BareJson : uint8_t { kNeedMore, kMayBeCall, kOther };

// Whether JSON that begins like this can be a call: so that an answer in JSON is not held back.
BareJson LookAtBareJson(std::string_view text, const std::vector<Tool>& tools) {
  size_t at = SkipSpace(text, 0);
  if (at < text.size() && text[at] == '[') at = SkipSpace(text, at + 1);
  if (at == text.size()) return BareJson::kNeedMore;
  if (text[at] != '{') return BareJson::kOther;
  at = SkipSpace(text, at + 1);
  if (at == text.size()) return BareJson::kNeedMore;
  if (text[at] != '"') return BareJson::kOther;
  const size_t end = text.find('"', at + 1);
  const std::string_view key =
      text.substr(at + 1, end == std::string_view::npos ? end : end - at - 1);
  const auto fits = [&](std::string_view name) {
    return end == std::string_view::npos ? name.starts_with(key) : name == key;
  };
  bool known = std::any_of(std::begin(kFirstKeys), std::end(kFirstKeys), fits);
  for (const Tool& tool : tools) known = known || fits(tool.name);
  if (!known) return BareJson::kOther;
  return end == std::string_view::npos ? BareJson::kNeedMore : BareJson::kMayBeCall;
}

}  // namespace

bool IsMark(std::string_view text) {
  for (const ReasoningMarks& marks : kReasoning) {
    // A mark of two tokens ("<|channel>" and "thought") begins with the first.
    if (marks.open.starts_with(text) || marks.close == text) return true;
  }
  for (const CallMarker& marker : CallMarkers()) {
    if (marker.open == text || marker.close == text) return true;
  }
  for (const std::string_view inside : {"[ARGS]", "[CALL_ID]", "<|\"|>", "<|constrain|>"}) {
    if (inside == text) return true;
  }
  return text == kMessage || std::find(std::begin(kMessageEnds), std::end(kMessageEnds), text) !=
                                 std::end(kMessageEnds);
}

void ReadPromptEnd(std::string_view prompt, ReplyFormat* format) {
  format->channels = prompt.find(kStartMessage) != std::string_view::npos &&
                     prompt.find(kMessage) != std::string_view::npos;
  const size_t end = prompt.find_last_not_of(kSpace);
  const std::string_view text = prompt.substr(0, end == std::string_view::npos ? 0 : end + 1);
  for (const ReasoningMarks& marks : kReasoning) {
    if (text.ends_with(marks.open)) format->open_reasoning = marks.open;
  }
}

ReplyParser::ReplyParser(ReplyFormat format) : format_(std::move(format)) {
  for (const ReasoningMarks& marks : kReasoning) {
    if (!format_.split_reasoning || marks.open != format_.open_reasoning) continue;
    reasoning_close_ = marks.close;
    state_ = State::kReasoning;
  }
}

void ReplyParser::Drop(const std::string& text) {
  if (text.empty() || std::find(dropped_.begin(), dropped_.end(), text) != dropped_.end()) return;
  dropped_.push_back(text);
}

// Moves bytes from the front of what is held to a piece.
void ReplyParser::Emit(ReplyPiece::Kind kind, size_t bytes, std::vector<ReplyPiece>* out) {
  if (bytes == 0) return;
  if (out->empty() || out->back().kind != kind) out->push_back({kind, {}, {}, 0});
  out->back().text.append(held_, 0, bytes);
  held_.erase(0, bytes);
}

// Content, with blanks at its end kept back where calls may follow, and dropped before and after
// them: they are layout between a call and its neighbours.
void ReplyParser::EmitContent(size_t bytes, std::vector<ReplyPiece>* out) {
  if (trim_) {
    const size_t blank = std::min(SkipSpace(held_, 0), bytes);
    held_.erase(0, blank);
    bytes -= blank;
    if (bytes == 0) return;
    trim_ = false;
  }
  if (format_.tools.empty()) {
    Emit(ReplyPiece::Kind::kContent, bytes, out);
    return;
  }
  size_t end = bytes;
  while (end > 0 && kSpace.find(held_[end - 1]) != std::string_view::npos) --end;
  if (end > 0) {
    any_content_ = true;
    held_.insert(0, space_);
    end += space_.size();
    bytes += space_.size();
    space_.clear();
    Emit(ReplyPiece::Kind::kContent, end, out);
    bytes -= end;
  }
  space_.append(held_, 0, bytes);
  held_.erase(0, bytes);
}

void ReplyParser::ShowArguments(size_t call, std::string_view text, std::vector<ReplyPiece>* out) {
  if (text.empty()) return;
  const ReplyPiece::Kind kind = ReplyPiece::Kind::kCallArguments;
  if (out->empty() || out->back().kind != kind || out->back().call != call) {
    out->push_back({kind, {}, {}, call});
  }
  out->back().text += text;
}

void ReplyParser::ShowCalls(size_t end, std::vector<ReplyPiece>* out) {
  if (end > previewed_) {
    preview_.Read(std::string_view(held_).substr(previewed_, end - previewed_), format_.tools);
    previewed_ = end;
  }
  const std::vector<ToolCall>& calls = preview_.calls();
  for (size_t i = 0; i < calls.size() && !calls[i].name.empty(); ++i) {
    if (format_.one_call && calls_ + i > 0) return;
    if (i == shown_.size()) {
      shown_.push_back({begun_, 0});
      out->push_back({ReplyPiece::Kind::kCallBegin, {}, calls[i].name, begun_++});
    }
    Shown& shown = shown_[i];
    ShowArguments(shown.call, std::string_view(calls[i].arguments).substr(shown.bytes), out);
    shown.bytes = calls[i].arguments.size();
  }
}

// Takes back what was shown of calls that are none: those of the preview from the first on.
void ReplyParser::BreakCalls(size_t first, std::vector<ReplyPiece>* out) {
  for (size_t i = first; i < shown_.size(); ++i) {
    out->push_back({ReplyPiece::Kind::kCallBroken, {}, {}, shown_[i].call});
  }
  shown_.resize(std::min(first, shown_.size()));
}

void ReplyParser::EmitCalls(const std::vector<ToolCall>& calls, std::vector<ReplyPiece>* out) {
  // What was shown differs from what was meant where a call names things twice: {"name": ...,
  // "name": ...}. From there on the calls begin anew.
  size_t good = 0;
  while (good < std::min(shown_.size(), calls.size()) &&
         preview_.calls()[good].name == calls[good].name &&
         calls[good].arguments.starts_with(
             std::string_view(preview_.calls()[good].arguments).substr(0, shown_[good].bytes))) {
    ++good;
  }
  BreakCalls(good, out);
  for (size_t i = 0; i < calls.size(); ++i) {
    ++calls_;
    if (format_.one_call && calls_ > 1) continue;
    if (i >= shown_.size()) {
      shown_.push_back({begun_, 0});
      out->push_back({ReplyPiece::Kind::kCallBegin, {}, calls[i].name, begun_++});
    }
    const Shown& shown = shown_[i];
    ShowArguments(shown.call, std::string_view(calls[i].arguments).substr(shown.bytes), out);
    out->push_back({ReplyPiece::Kind::kCallEnd, {}, {}, shown.call});
  }
  shown_.clear();
  space_.clear();
  trim_ = true;
}

void ReplyParser::BeginCall(const CallMarker* marker, size_t body_at) {
  marker_ = marker;
  body_at_ = body_at;
  value_at_ = 0;
  searched_ = body_at;
  body_end_ = body_at;
  previewed_ = body_at;
  preview_.Begin(marker->body);
  shown_.clear();
  extent_ = ValueExtent(marker->body == CallBody::kPython ? "\"'" : "\"");
  state_ = State::kCall;
}

// One move from the front of what is held. False: more text is needed.
bool ReplyParser::Advance(bool at_end, std::vector<ReplyPiece>* out) {
  switch (state_) {
    case State::kStart:
      return AdvanceStart(at_end);
    case State::kReasoning:
      return AdvanceReasoning(at_end, out);
    case State::kContent:
      return AdvanceContent(at_end, out);
    case State::kCall:
      return AdvanceCall(at_end, out);
    case State::kChannelHead:
    case State::kChannelReasoning:
    case State::kChannelCall:
      return AdvanceChannel(at_end, out);
  }
  return false;
}

// Reasoning is the first thing of a reply, or there is none.
bool ReplyParser::AdvanceStart(bool at_end) {
  const size_t text = SkipSpace(held_, 0);
  const std::string_view rest = std::string_view(held_).substr(text);
  bool maybe = rest.empty();
  for (const ReasoningMarks& marks : kReasoning) {
    if (!format_.split_reasoning) continue;
    if (rest.starts_with(marks.open)) {
      reasoning_close_ = marks.close;
      held_.erase(0, text + marks.open.size());
      state_ = State::kReasoning;
      return true;
    }
    maybe = maybe || marks.open.starts_with(rest);
  }
  if (maybe && format_.split_reasoning && !at_end) return false;
  state_ = State::kContent;
  return true;
}

bool ReplyParser::AdvanceReasoning(bool at_end, std::vector<ReplyPiece>* out) {
  const size_t close = held_.find(reasoning_close_);
  if (close != std::string::npos) {
    Emit(ReplyPiece::Kind::kReasoning, close, out);
    held_.erase(0, reasoning_close_.size());
    state_ = State::kContent;
    trim_ = true;  // the blank lines between reasoning and content belong to neither
    return true;
  }
  const size_t keep = at_end ? 0 : PartialMarker(held_, reasoning_close_);
  Emit(ReplyPiece::Kind::kReasoning, held_.size() - keep, out);
  return false;
}

bool ReplyParser::AdvanceContent(bool at_end, std::vector<ReplyPiece>* out) {
  const bool wants_calls = !format_.tools.empty();
  if (held_.empty()) return false;
  // A reply that is nothing but JSON may be a call without any mark, or several with ';' between.
  if (wants_calls && !any_content_ && (calls_ == 0 || bare_calls_)) {
    size_t text = SkipSpace(held_, 0);
    const bool goes_on = bare_calls_ && text < held_.size() && held_[text] == ';';
    if (goes_on) text = SkipSpace(held_, text + 1);
    if (text == held_.size() && !at_end) return false;
    if (goes_on && text < held_.size() && held_[text] == '{') {
      held_.erase(0, text);
      text = 0;
    }
    if (text < held_.size() && (held_[text] == '{' || held_[text] == '[') &&
        !std::string_view(held_).substr(text).starts_with("[T")) {
      const BareJson look = LookAtBareJson(held_, format_.tools);
      if (look == BareJson::kNeedMore && !at_end) return false;
      if (look == BareJson::kMayBeCall) {
        static constexpr CallMarker kBare = {"", "", CallBody::kBareJson};
        BeginCall(&kBare, 0);
        return true;
      }
    }
  }
  size_t first = std::string::npos;
  size_t mark_bytes = 0;
  size_t keep = 0;
  const CallMarker* call = nullptr;
  bool channel = false;
  const auto look_for = [&](std::string_view mark, const CallMarker* marker, bool is_channel) {
    const size_t place = held_.find(mark);
    if (place < first ||
        (place == first && place != std::string::npos && mark.size() > mark_bytes)) {
      first = place;
      mark_bytes = mark.size();
      call = marker;
      channel = is_channel;
    }
    if (place == std::string::npos) keep = std::max(keep, PartialMarker(held_, mark));
  };
  for (const std::string& text : dropped_) look_for(text, nullptr, false);
  if (wants_calls) {
    for (const CallMarker& marker : CallMarkers()) look_for(marker.open, &marker, false);
  }
  if (format_.channels) {
    look_for(kChannel, nullptr, true);
    look_for(kStartMessage, nullptr, true);
    for (const std::string_view end : {"<|end|>", "<|return|>", "<|call|>"}) {
      look_for(end, nullptr, false);
    }
  }
  if (first == std::string::npos) {
    EmitContent(held_.size() - (at_end ? 0 : keep), out);
    return false;
  }
  EmitContent(first, out);
  if (channel) {
    state_ = State::kChannelHead;
  } else if (call != nullptr) {
    BeginCall(call, call->open.size());
  } else {
    held_.erase(0, mark_bytes);
  }
  return true;
}

bool ReplyParser::AdvanceCall(bool at_end, std::vector<ReplyPiece>* out) {
  std::vector<ToolCall> calls;
  size_t consumed = 0;
  CallOutcome outcome = ReadCall(at_end, &consumed, &calls);
  ShowCalls(std::min(body_end_, kMaxCallBytes), out);
  if (outcome != CallOutcome::kNeedMore && consumed > kMaxCallBytes) {
    outcome = CallOutcome::kNoCall;
    consumed = kMaxCallBytes;
  } else if (outcome == CallOutcome::kNeedMore) {
    if (held_.size() > kMaxCallBytes) {
      outcome = CallOutcome::kNoCall;
      consumed = kMaxCallBytes;
    } else if (!at_end) {
      return false;
    } else {
      // Cut short, or never closed. What stands behind a closing mark may still be read.
      outcome = CallOutcome::kNoCall;
      const size_t close =
          marker_->close.empty() ? std::string::npos : held_.find(marker_->close, body_at_);
      consumed = close == std::string::npos ? held_.size() : close + marker_->close.size();
    }
  }
  state_ = State::kContent;
  if (outcome == CallOutcome::kCalls) {
    held_.erase(0, consumed);
    bare_calls_ = marker_->close.empty() && marker_->body != CallBody::kMistral;
    EmitCalls(calls, out);
  } else {
    BreakCalls(0, out);
    any_content_ = true;  // what follows is no bare JSON
    EmitContent(consumed, out);
  }
  return true;
}

// After a body: blanks and the closing mark, if it is there. False: it may still come.
bool ReplyParser::SkipClose(bool at_end, size_t* consumed) const {
  if (marker_->close.empty()) return true;
  const size_t text = SkipSpace(held_, *consumed);
  const std::string_view rest = std::string_view(held_).substr(text);
  if (rest.starts_with(marker_->close)) {
    *consumed = text + marker_->close.size();
    return true;
  }
  return at_end || !marker_->close.starts_with(rest);
}

ReplyParser::CallOutcome ReplyParser::ReadCall(bool at_end, size_t* consumed,
                                               std::vector<ToolCall>* calls) {
  const size_t text = SkipSpace(held_, body_at_);
  *consumed = body_at_;
  if (text == held_.size() && !at_end) return CallOutcome::kNeedMore;
  const char first = text < held_.size() ? held_[text] : '\0';
  const bool is_value = first == '{' || first == '[';
  const bool tagged = marker_->body == CallBody::kTagged;
  if (marker_->body == CallBody::kGemma || marker_->body == CallBody::kFunctionTag ||
      (tagged && first == '<') || (marker_->body == CallBody::kPython && !is_value)) {
    return ReadMarkedCall(consumed, calls);
  }
  if (marker_->body == CallBody::kMistral && !is_value) return ReadNamedCall(text, consumed, calls);
  if (!is_value) return CallOutcome::kNoCall;
  value_at_ = text;
  return ReadValueCall(at_end, consumed, calls);
}

// Everything up to the closing mark.
ReplyParser::CallOutcome ReplyParser::ReadMarkedCall(size_t* consumed,
                                                     std::vector<ToolCall>* calls) {
  const size_t close = held_.find(marker_->close, searched_);
  if (close == std::string::npos) {
    searched_ = std::max(searched_, held_.size() - std::min(held_.size(), marker_->close.size()));
    body_end_ = held_.size() - PartialMarker(held_, marker_->close);
    return CallOutcome::kNeedMore;
  }
  body_end_ = close;
  *consumed = close + marker_->close.size();
  const std::string_view body = std::string_view(held_).substr(body_at_, close - body_at_);
  bool good = false;
  if (marker_->body == CallBody::kGemma) {
    good = ReadGemmaCall(body, calls);
  } else if (marker_->body == CallBody::kFunctionTag) {
    good = ReadFunctionTag(std::string_view(held_).substr(0, *consumed), format_.tools, calls);
  } else if (marker_->body == CallBody::kTagged) {
    good = ReadFunctionTag(body, format_.tools, calls);
  } else {
    good = ReadPythonCalls(body, format_.tools, calls);
  }
  return good ? CallOutcome::kCalls : CallOutcome::kNoCall;
}

// NAME[CALL_ID]id[ARGS]{...} or NAME{...}
ReplyParser::CallOutcome ReplyParser::ReadNamedCall(size_t name_at, size_t* consumed,
                                                    std::vector<ToolCall>* calls) {
  constexpr size_t kMaxHeadBytes = 256;
  value_at_ = std::min(held_.find('{', body_at_), held_.size());
  body_end_ = std::min(held_.size(), body_at_ + kMaxHeadBytes);
  if (value_at_ - body_at_ > kMaxHeadBytes) return CallOutcome::kNoCall;
  if (value_at_ == held_.size()) return CallOutcome::kNeedMore;
  std::string_view name = std::string_view(held_).substr(name_at, value_at_ - name_at);
  name = name.substr(0, std::min(name.find("[ARGS]"), name.find("[CALL_ID]")));
  while (!name.empty() && kSpace.find(name.back()) != std::string_view::npos) name.remove_suffix(1);
  body_end_ = value_at_;
  if (!IsFunctionName(name)) return CallOutcome::kNoCall;
  size_t end = 0;
  const bool ends = extent_.Find(held_, value_at_, &end);
  body_end_ = ends ? end : held_.size();
  if (!ends) return CallOutcome::kNeedMore;
  *consumed = end;
  ToolCall call = {std::string(name), {}};
  if (!ReadArguments(std::string_view(held_).substr(value_at_, end - value_at_), &call.arguments)) {
    return CallOutcome::kNoCall;
  }
  calls->push_back(std::move(call));
  return CallOutcome::kCalls;
}

// A bracketed value and what closes it.
ReplyParser::CallOutcome ReplyParser::ReadValueCall(bool at_end, size_t* consumed,
                                                    std::vector<ToolCall>* calls) {
  size_t end = 0;
  const bool ends = extent_.Find(held_, value_at_, &end);
  body_end_ = ends ? end : held_.size();
  if (!ends) return CallOutcome::kNeedMore;
  *consumed = end;
  const std::string_view value = std::string_view(held_).substr(value_at_, end - value_at_);
  const bool python = marker_->body == CallBody::kPython;
  const bool bare = marker_->body == CallBody::kBareJson;
  const bool good = python ? ReadPythonCalls(value, format_.tools, calls)
                           : ReadJsonCalls(value, format_.tools, bare, calls);
  if (!good) return CallOutcome::kNoCall;
  if (!SkipClose(at_end, consumed)) {
    // Looked at again when more has come; the value's end is known then.
    calls->clear();
    extent_ = ValueExtent(python ? "\"'" : "\"");
    return CallOutcome::kNeedMore;
  }
  return CallOutcome::kCalls;
}

// Messages of gpt-oss: a head that says what the text is, then the text up to the next mark.
bool ReplyParser::AdvanceChannel(bool at_end, std::vector<ReplyPiece>* out) {
  if (state_ == State::kChannelHead) {
    const size_t message = held_.find(kMessage);
    if (message == std::string::npos) {
      if (!at_end && held_.size() <= kMaxChannelHeadBytes) return false;
      state_ = State::kContent;
      // Not to be found again: the mark itself goes first.
      EmitContent(std::min(held_.size(), kStartMessage.size()), out);
      return true;
    }
    const std::string_view head = std::string_view(held_).substr(0, message);
    const size_t to = head.find(kFunctions);
    channel_tool_.clear();
    if (to != std::string_view::npos) {
      const size_t name = to + kFunctions.size();
      channel_tool_ =
          head.substr(name, std::min(head.find_first_of(" <\n", name), head.size()) - name);
    }
    const bool analysis = head.find("analysis") != std::string_view::npos;
    state_ = IsFunctionName(channel_tool_)         ? State::kChannelCall
             : analysis && format_.split_reasoning ? State::kChannelReasoning
                                                   : State::kContent;
    held_.erase(0, message + kMessage.size());
    preview_.BeginArguments(channel_tool_);
    previewed_ = 0;
    shown_.clear();
    return true;
  }
  size_t end = std::string::npos;
  size_t end_bytes = 0;
  size_t keep = 0;
  for (const std::string_view mark : kMessageEnds) {
    const size_t place = held_.find(mark);
    if (place < end) {
      end = place;
      // A mark that begins the next message is read again.
      end_bytes = mark == kStartMessage || mark == kChannel ? 0 : mark.size();
    }
    if (place == std::string::npos) keep = std::max(keep, PartialMarker(held_, mark));
  }
  const bool closed = end != std::string::npos;
  if (state_ == State::kChannelReasoning) {
    Emit(ReplyPiece::Kind::kReasoning, closed ? end : held_.size() - (at_end ? 0 : keep), out);
    if (!closed) return false;
    held_.erase(0, end_bytes);
    state_ = State::kContent;
    return true;
  }
  if (!format_.tools.empty()) {
    ShowCalls(std::min(closed ? end : held_.size() - keep, kMaxCallBytes), out);
  }
  if (!closed && !at_end && held_.size() <= kMaxCallBytes) return false;
  const size_t body = std::min(closed ? end : held_.size(), kMaxCallBytes);
  ToolCall call = {channel_tool_, {}};
  state_ = State::kContent;
  if (!format_.tools.empty() &&
      ReadArguments(std::string_view(held_).substr(0, body), &call.arguments)) {
    held_.erase(0, body);
    EmitCalls({call}, out);
  } else {
    BreakCalls(0, out);
    EmitContent(body, out);
  }
  if (closed && body == end) held_.erase(0, end_bytes);
  return true;
}

void ReplyParser::Feed(std::string_view text, std::vector<ReplyPiece>* out) {
  held_ += text;
  while (Advance(false, out)) {
  }
}

void ReplyParser::Finish(std::vector<ReplyPiece>* out) {
  while (Advance(true, out)) {
  }
  // Blanks at the end of an answer are the answer's; after calls they are layout.
  if (calls_ == 0 && !space_.empty()) {
    held_ = std::move(space_);
    space_.clear();
    Emit(ReplyPiece::Kind::kContent, held_.size(), out);
  }
}

}  // namespace cellm::tools::serve
