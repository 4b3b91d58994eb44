#include "cellm/serve/call_preview.h"

#include <algorithm>

#include "json/json.h"

namespace cellm::tools::serve {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kGemmaCall = "call:";
// Longer ones are no names (reply_parser.cc).
constexpr size_t kMaxHeadBytes = 256;

bool IsSpace(char c) { return kSpace.find(c) != std::string_view::npos; }

bool IsOneOf(std::span<const std::string_view> keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

}  // namespace

void CallPreview::Begin(CallBody body) {
  calls_.clear();
  body_ = body;
  word_.clear();
  state_ = body == CallBody::kFunctionTag ? State::kTagName : State::kStart;
}

void CallPreview::BeginArguments(std::string_view name) {
  Begin(CallBody::kJson);
  calls_.push_back({std::string(name), {}});
  state_ = State::kMistralValue;
}

void CallPreview::Read(std::string_view text, std::span<const Tool> tools) {
  while (!text.empty() && state_ != State::kStopped) {
    if (state_ == State::kValue) {
      text.remove_prefix(ReadValue(text, tools));
    } else if (Step(text.front(), tools)) {
      text.remove_prefix(1);
    }
  }
  if (state_ != State::kParameterValue || !parameter_is_text_) return;
  // One line break before the closing tag belongs to the layout.
  const size_t keep = std::max(PartialMarker(word_, kParameterEnd),
                               PartialMarker(word_, "\n" + std::string(kParameterEnd)));
  if (!MoveQuoted(&word_, keep, &calls_.back().arguments)) (void)Stop();
}

bool CallPreview::Step(char c, std::span<const Tool> tools) {
  switch (state_) {
    case State::kStart:
      return StepStart(c);
    case State::kPythonList:
    case State::kPythonName:
    case State::kPythonBracket:
    case State::kAfterPythonCall:
    case State::kGemmaName:
    case State::kMistralName:
    case State::kMistralValue:
      return StepName(c);
    case State::kTag:
    case State::kTagName:
    case State::kTagBody:
    case State::kParameterOpen:
    case State::kParameterKey:
    case State::kParameterValue:
      return StepTag(c, tools);
    default:
      return StepJson(c, tools);
  }
}

bool CallPreview::StepStart(char c) {
  if (IsSpace(c)) return true;
  if (body_ == CallBody::kGemma) {
    state_ = State::kGemmaName;
    return false;
  }
  if (c == '{') {
    list_ = false;
    BeginElement();
    return true;
  }
  if (c == '[') {
    list_ = true;
    state_ = body_ == CallBody::kPython ? State::kPythonList : State::kElement;
    return true;
  }
  if (body_ == CallBody::kPython) {
    state_ = State::kPythonName;
  } else if (body_ == CallBody::kMistral) {
    state_ = State::kMistralName;
  } else if (body_ == CallBody::kTagged) {
    state_ = State::kTag;
  } else {
    return Stop();
  }
  return false;
}

bool CallPreview::NameIsGood(std::string_view name, std::span<const Tool> tools) const {
  return IsFunctionName(name) && (body_ != CallBody::kBareJson || FindTool(tools, name) != nullptr);
}

bool CallPreview::BeginCall(std::string_view name) {
  if (!IsFunctionName(name)) return false;
  calls_.push_back({std::string(name), {}});
  return true;
}

void CallPreview::BeginValue(Purpose purpose, State after) {
  const bool plain =
      purpose == Purpose::kKey || purpose == Purpose::kName || purpose == Purpose::kArgumentText;
  const bool gemma = body_ == CallBody::kGemma;
  value_ = ValueStream(gemma ? ValueNotation::kGemma : ValueNotation::kJson, plain);
  purpose_ = purpose;
  after_value_ = after;
  scratch_.clear();
  state_ = State::kValue;
}

size_t CallPreview::ReadValue(std::string_view text, std::span<const Tool> tools) {
  ToolCall& call = calls_.back();
  const size_t bytes =
      value_.Read(text, purpose_ == Purpose::kArguments ? &call.arguments : &scratch_);
  if (purpose_ == Purpose::kArgumentText) ReadArgumentText();
  if (value_.failed()) (void)Stop();
  if (!value_.done() || state_ != State::kValue) return bytes;
  state_ = after_value_;
  if (purpose_ == Purpose::kKey) {
    key_ = scratch_;
  } else if (purpose_ == Purpose::kName && call.name.empty() && !scratch_.empty()) {
    if (NameIsGood(scratch_, tools)) {
      call.name = scratch_;
    } else {
      (void)Stop();
    }
  }
  return bytes;
}

// Arguments in quotes: what the text says is JSON again.
void CallPreview::ReadArgumentText() {
  std::string_view text = scratch_;
  if (!inner_begun_) {
    text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    inner_begun_ = !text.empty();
    if (inner_begun_ && text.front() != '{') (void)Stop();
  }
  if (state_ != State::kStopped && !inner_.done()) {
    (void)inner_.Read(text, &calls_.back().arguments);
    if (inner_.failed()) (void)Stop();
  }
  scratch_.clear();
}

// ---- JSON -------------------------------------------------------------------------------------

void CallPreview::BeginElement() {
  calls_.push_back({});
  nested_ = false;
  has_arguments_ = false;
  first_member_ = true;
  state_ = State::kFirstKey;
}

bool CallPreview::StepJson(char c, std::span<const Tool> tools) {
  if (IsSpace(c)) return true;
  switch (state_) {
    case State::kElement:
      if (c != '{') return Stop();
      BeginElement();
      return true;
    case State::kFirstKey:
    case State::kNextKey:
      if (c == '"') {
        BeginValue(Purpose::kKey, State::kColon);
        return false;
      }
      if (c != '}' || state_ != State::kFirstKey) return Stop();
      state_ = State::kAfterMember;
      return false;
    case State::kColon:
      if (c != ':') return Stop();
      state_ = State::kMember;
      return true;
    case State::kMember:
      return StepMember(c, tools);
    case State::kAfterMember:
      first_member_ = false;
      if (c == ',') {
        state_ = State::kNextKey;
      } else if (c != '}') {
        return Stop();
      } else if (nested_) {
        nested_ = false;
      } else {
        state_ = list_ ? State::kAfterElement : State::kStopped;
      }
      return true;
    case State::kAfterElement:
      if (c != ',') return Stop();
      state_ = State::kElement;
      return true;
    default:
      return Stop();
  }
}

// The first byte of a member's value.
bool CallPreview::StepMember(char c, std::span<const Tool> tools) {
  ToolCall& call = calls_.back();
  if (key_ == "function" && c == '{' && !nested_) {
    nested_ = true;
    first_member_ = true;
    state_ = State::kFirstKey;
    return true;
  }
  Purpose purpose = Purpose::kOther;
  if (IsOneOf(kNameKeys, key_)) {
    if (c == '"') purpose = Purpose::kName;
  } else if (IsOneOf(kArgumentKeys, key_)) {
    if (!has_arguments_ && c == '{') purpose = Purpose::kArguments;
    if (!has_arguments_ && c == '"') {
      purpose = Purpose::kArgumentText;
      inner_ = ValueStream();
      inner_begun_ = false;
    }
    has_arguments_ = true;
  } else if (first_member_ && c == '{' && call.name.empty() && FindTool(tools, key_) != nullptr) {
    // {"f": {...}}
    call.name = key_;
    has_arguments_ = true;
    purpose = Purpose::kArguments;
  }
  BeginValue(purpose, State::kAfterMember);
  return false;
}

// ---- a name, then its arguments ---------------------------------------------------------------

bool CallPreview::StepName(char c) {
  switch (state_) {
    case State::kPythonList:
      state_ = State::kPythonName;
      if (c != '{') return false;
      BeginElement();
      return true;
    case State::kPythonName:
      if (IsNameByte(c)) {
        word_ += c;
        return true;
      }
      if (word_.empty()) return IsSpace(c) || Stop();
      state_ = State::kPythonBracket;
      return false;
    case State::kPythonBracket:
      if (IsSpace(c)) return true;
      if (c != '(' || !BeginCall(word_)) return Stop();
      word_.clear();
      BeginValue(Purpose::kArguments, State::kAfterPythonCall);
      value_.BeginPythonArguments(&calls_.back().arguments);
      return true;
    case State::kAfterPythonCall:
      if (IsSpace(c)) return true;
      if (c != ',') return Stop();
      state_ = State::kPythonName;
      return true;
    case State::kGemmaName:
      if (c != '{') {
        word_ += c;
        return word_.size() <= kMaxHeadBytes || Stop();
      }
      if (!word_.starts_with(kGemmaCall) ||
          !BeginCall(std::string_view(word_).substr(kGemmaCall.size()))) {
        return Stop();
      }
      BeginValue(Purpose::kArguments, State::kStopped);
      return false;
    case State::kMistralName: {
      if (c != '{') word_ += c;
      std::string_view name = word_;
      bool ends = c == '{';
      for (const std::string_view mark : {"[ARGS]", "[CALL_ID]"}) {
        if (!name.ends_with(mark)) continue;
        name.remove_suffix(mark.size());
        ends = true;
      }
      if (!ends) return word_.size() <= kMaxHeadBytes || Stop();
      name = name.substr(0, name.find_last_not_of(kSpace) + 1);
      if (!BeginCall(name)) return Stop();
      state_ = State::kMistralValue;
      return c != '{';
    }
    case State::kMistralValue:
      // Mistral has an id and a mark before it, gpt-oss nothing.
      if (c != '{') return body_ == CallBody::kMistral || IsSpace(c) || Stop();
      BeginValue(Purpose::kArguments, State::kStopped);
      return false;
    default:
      return Stop();
  }
}

// ---- tags -------------------------------------------------------------------------------------

bool CallPreview::StepTag(char c, std::span<const Tool> tools) {
  switch (state_) {
    case State::kTag:
    case State::kParameterOpen: {
      word_ += c;
      const std::string_view tag = state_ == State::kTag ? kFunctionTag : kParameterTag;
      if (!tag.starts_with(word_)) return Stop();
      if (word_.size() == tag.size()) {
        word_.clear();
        state_ = state_ == State::kTag ? State::kTagName : State::kParameterKey;
      }
      return true;
    }
    case State::kTagName:
      if (c != '>') {
        word_ += c;
        return word_.size() <= kMaxHeadBytes || Stop();
      }
      if (!BeginCall(word_)) return Stop();
      word_.clear();
      state_ = State::kTagBody;
      return true;
    case State::kTagBody:
      if (IsSpace(c)) return true;
      if (c == '{' && calls_.back().arguments.empty()) {
        BeginValue(Purpose::kArguments, State::kStopped);
      } else {
        state_ = State::kParameterOpen;
      }
      return false;
    case State::kParameterKey:
      if (c == '>') {
        BeginParameter(tools);
      } else {
        word_ += c;
      }
      return true;
    case State::kParameterValue:
      if (parameter_is_text_ && !parameter_begun_) {
        parameter_begun_ = true;
        if (c == '\n') return true;
      }
      word_ += c;
      if (word_.ends_with(kParameterEnd)) EndParameter(tools);
      return true;
    default:
      return Stop();
  }
}

void CallPreview::BeginParameter(std::span<const Tool> tools) {
  ToolCall& call = calls_.back();
  key_ = word_;
  word_.clear();
  parameter_is_text_ = IsTextParameter(FindTool(tools, call.name), key_);
  parameter_begun_ = false;
  call.arguments += call.arguments.empty() ? "{" : ", ";
  call.arguments += json::Quote(key_) + ": ";
  if (parameter_is_text_) call.arguments += '"';
  state_ = State::kParameterValue;
}

void CallPreview::EndParameter(std::span<const Tool> tools) {
  ToolCall& call = calls_.back();
  word_.resize(word_.size() - kParameterEnd.size());
  if (!parameter_is_text_) {
    call.arguments += ParameterValue(word_, FindTool(tools, call.name), key_);
  } else {
    if (word_.ends_with('\n')) word_.pop_back();
    // An unfinished character is none either.
    if (!MoveQuoted(&word_, 0, &call.arguments) || !word_.empty()) {
      (void)Stop();
      return;
    }
    call.arguments += '"';
  }
  word_.clear();
  state_ = State::kTagBody;
}

}  // namespace cellm::tools::serve
