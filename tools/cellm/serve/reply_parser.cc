#include "cellm/serve/reply_parser.h"

#include <algorithm>
#include <utility>

namespace cellm::tools::serve {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

}  // namespace

size_t PartialMarker(std::string_view text, std::string_view marker) {
  size_t length = std::min(text.size(), marker.empty() ? 0 : marker.size() - 1);
  while (length > 0 && text.substr(text.size() - length) != marker.substr(0, length)) --length;
  return length;
}

ReplyParser::ReplyParser(ReasoningFormat reasoning) : reasoning_(std::move(reasoning)) {
  if (!reasoning_.split) {
    state_ = State::kContent;
  } else if (reasoning_.starts_open) {
    state_ = State::kReasoning;
  }
}

void ReplyParser::Emit(ReplyPiece::Kind kind, size_t bytes, std::vector<ReplyPiece>* out) {
  if (bytes == 0) return;
  if (out->empty() || out->back().kind != kind || kind == ReplyPiece::Kind::kToolCall) {
    out->push_back({kind, {}, {}});
  }
  out->back().text.append(held_, 0, bytes);
  held_.erase(0, bytes);
}

// One move from the front of what is held. False: more text is needed.
bool ReplyParser::Advance(bool at_end, std::vector<ReplyPiece>* out) {
  if (state_ == State::kStart) {
    // Reasoning is the first thing of a reply or it is none.
    const size_t text = std::min(held_.find_first_not_of(kSpace), held_.size());
    const std::string_view rest = std::string_view(held_).substr(text);
    if (rest.starts_with(reasoning_.open)) {
      held_.erase(0, text + reasoning_.open.size());
      state_ = State::kReasoning;
      return true;
    }
    if (!at_end && std::string_view(reasoning_.open).starts_with(rest)) return false;
    state_ = State::kContent;
    return true;
  }
  if (state_ == State::kReasoning) {
    const size_t close = held_.find(reasoning_.close);
    if (close != std::string::npos) {
      Emit(ReplyPiece::Kind::kReasoning, close, out);
      held_.erase(0, reasoning_.close.size());
      state_ = State::kAfterReasoning;
      return true;
    }
    const size_t keep = at_end ? 0 : PartialMarker(held_, reasoning_.close);
    Emit(ReplyPiece::Kind::kReasoning, held_.size() - keep, out);
    return false;
  }
  if (state_ == State::kAfterReasoning) {
    // The blank lines between reasoning and content belong to neither.
    held_.erase(0, std::min(held_.find_first_not_of(kSpace), held_.size()));
    if (held_.empty()) return false;
    state_ = State::kContent;
  }
  Emit(ReplyPiece::Kind::kContent, held_.size(), out);
  return false;
}

void ReplyParser::Feed(std::string_view text, std::vector<ReplyPiece>* out) {
  held_ += text;
  while (Advance(false, out)) {
  }
}

void ReplyParser::Finish(std::vector<ReplyPiece>* out) {
  while (Advance(true, out)) {
  }
}

}  // namespace cellm::tools::serve
