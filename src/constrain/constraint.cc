#include "constrain/constraint.h"

#include <algorithm>
#include <utility>

#include "constrain/choices.h"
#include "constrain/gbnf.h"
#include "constrain/json_schema.h"
#include "constrain/regex.h"
#include "constrain/structural.h"

namespace cellm::constrain {

const char* ConstraintKindName(ConstraintKind kind) {
  switch (kind) {
    case ConstraintKind::kNone:
      return "no constraint";
    case ConstraintKind::kJsonSchema:
      return "JSON schema";
    case ConstraintKind::kGrammar:
      return "grammar";
    case ConstraintKind::kRegex:
      return "regex";
    case ConstraintKind::kChoices:
      return "choices";
    case ConstraintKind::kStructural:
      return "structural constraint";
  }
  return "unknown constraint";
}

Result<Grammar> CompileGrammar(ConstraintKind kind, std::string_view text,
                               std::span<const TokenTrie::Control> controls) {
  if (text.size() > kMaxConstraintBytes) {
    return OutOfRange("the %s has %zu bytes; at most %zu are taken", ConstraintKindName(kind),
                      text.size(), kMaxConstraintBytes);
  }
  switch (kind) {
    case ConstraintKind::kJsonSchema:
      return JsonSchemaGrammar(text);
    case ConstraintKind::kRegex:
      return RegexGrammar(text);
    case ConstraintKind::kChoices:
      return ChoicesGrammar(text);
    case ConstraintKind::kGrammar:
      return GbnfGrammar(text);
    case ConstraintKind::kStructural:
      return StructuralGrammar(text, controls);
    case ConstraintKind::kNone:
      break;
  }
  return InvalidArgument("constraint kind %d is not known", static_cast<int>(kind));
}

Result<std::unique_ptr<Constraint>> Constraint::Compile(ConstraintKind kind, std::string_view text,
                                                        const TokenTrie& trie, Allocator& memory,
                                                        const AutomatonLimits& limits,
                                                        const MachineLimits& machine_limits) {
  const auto explain = [&](const Status& status) {
    return Status(status).WithContext(ConstraintKindName(kind));
  };
  const Result<Grammar> grammar = CompileGrammar(kind, text, trie.controls());
  if (!grammar.ok()) return explain(grammar.status());
  Result<std::unique_ptr<Automaton>> automaton =
      Automaton::Build(grammar.value(), trie.bytes(), limits, memory);
  if (!automaton.ok()) return explain(automaton.status());
  std::unique_ptr<Constraint> constraint(
      new Constraint(std::move(automaton).value(), trie, machine_limits, memory));
  // What is too ambiguous to begin with is refused here and not when the reply begins.
  const Result<int32_t> start = constraint->machine().StartState();
  if (!start.ok()) return explain(start.status());
  return constraint;
}

void Matcher::Enter(int32_t state) {
  const std::span<const Place> places = machine_.StatePlaces(state);
  places_.assign(places.begin(), places.end());
  may_end_ = machine_.MayEnd(state);
  state_ = state;
  generation_ = machine_.generation();
  epoch_ = machine_.epoch();
}

Result<int32_t> Matcher::State() {
  machine_.Tidy();
  if (!begun_ || epoch_ != machine_.epoch()) {
    CELLM_ASSIGN_OR_RETURN(int32_t state, machine_.StartState());
    for (const int32_t id : tokens_) {
      CELLM_ASSIGN_OR_RETURN(state, After(state, id));
    }
    Enter(state);
    begun_ = true;
  } else if (generation_ != machine_.generation()) {
    CELLM_ASSIGN_OR_RETURN(state_, machine_.StateOf(places_, may_end_));
    generation_ = machine_.generation();
  }
  return state_;
}

Status Matcher::FillAllowed(std::span<uint64_t> words) {
  CELLM_ASSIGN_OR_RETURN(const int32_t state, State());
  Result<std::span<const uint64_t>> mask = machine_.Mask(state);
  if (!mask.ok() && mask.status().code() == StatusCode::kOutOfMemory) {
    // The tables may be what fills the budget: once more with empty ones.
    machine_.Tidy(true);
    CELLM_ASSIGN_OR_RETURN(const int32_t again, State());
    mask = machine_.Mask(again);
  }
  if (!mask.ok()) return mask.status();
  const std::span<const uint64_t> bits = mask.value();
  std::copy(bits.begin(), bits.end(), words.begin());
  return OkStatus();
}

Result<bool> Matcher::MayEnd() {
  CELLM_RETURN_IF_ERROR(State().status());
  return may_end_;
}

Result<bool> Matcher::MustEnd() {
  CELLM_RETURN_IF_ERROR(State().status());
  return places_.empty();
}

// The state behind a token; kDead when it is not allowed.
Result<int32_t> Matcher::After(int32_t state, int32_t id) {
  const TokenTrie& trie = machine_.trie();
  const Automaton& automaton = machine_.automaton();
  const std::string_view text = trie.text(id);
  if (text.empty()) {
    const int32_t symbol = trie.is_control(id) ? automaton.symbol_of_token(id) : -1;
    if (symbol < 0) return Machine::kDead;
    return machine_.Next(state, symbol);
  }
  for (const char c : text) {
    if (state == Machine::kDead) break;
    const int32_t symbol = automaton.symbol_of(static_cast<uint8_t>(c));
    CELLM_ASSIGN_OR_RETURN(state, machine_.Next(state, symbol));
  }
  return state;
}

Status Matcher::Accept(int32_t id) {
  CELLM_ASSIGN_OR_RETURN(const int32_t state, State());
  CELLM_ASSIGN_OR_RETURN(const int32_t next, After(state, id));
  if (next == Machine::kDead) return Internal("token %d is outside of the constraint", id);
  tokens_.push_back(id);
  Enter(next);
  return OkStatus();
}

Status Matcher::ForcedText(size_t max_bytes, std::string* out, size_t max_followers,
                           std::vector<uint8_t>* followers) {
  out->clear();
  followers->clear();
  const Automaton& automaton = machine_.automaton();
  CELLM_ASSIGN_OR_RETURN(int32_t state, State());
  while (out->size() < max_bytes) {
    CELLM_ASSIGN_OR_RETURN(const int32_t byte, machine_.OnlyByte(state));
    if (byte < 0) break;
    out->push_back(static_cast<char>(byte));
    const int32_t symbol = automaton.symbol_of(static_cast<uint8_t>(byte));
    CELLM_ASSIGN_OR_RETURN(state, machine_.Next(state, symbol));
  }
  if (out->empty() || machine_.IsFinal(state)) return OkStatus();
  for (int32_t byte = 0; byte < 128; ++byte) {
    const int32_t symbol = automaton.symbol_of(static_cast<uint8_t>(byte));
    CELLM_ASSIGN_OR_RETURN(const int32_t next, machine_.Next(state, symbol));
    if (next != Machine::kDead) followers->push_back(static_cast<uint8_t>(byte));
  }
  // Where only other characters may follow, none of them is tried, but something does follow.
  if (followers->empty()) followers->push_back('x');
  const size_t count = followers->size();
  if (count <= max_followers) return OkStatus();
  for (size_t i = 0; i < max_followers; ++i) {
    (*followers)[i] = (*followers)[i * count / max_followers];
  }
  followers->resize(max_followers);
  return OkStatus();
}

}  // namespace cellm::constrain
