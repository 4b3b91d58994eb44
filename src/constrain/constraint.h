#ifndef CELLM_SRC_CONSTRAIN_CONSTRAINT_H_
#define CELLM_SRC_CONSTRAIN_CONSTRAINT_H_

// What a reply must look like, and following one reply through it.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/allocator.h"
#include "base/status.h"
#include "constrain/automaton.h"
#include "constrain/machine.h"
#include "constrain/token_trie.h"

namespace cellm::constrain {

// Numbers of the C API's CELLM_CONSTRAINT_....
enum class ConstraintKind : int32_t {
  kNone = 0,
  kJsonSchema = 1,
  kGrammar = 2,
  kRegex = 3,
  kChoices = 4,
  kStructural = 5,
};
// "JSON schema", "grammar", ...
const char* ConstraintKindName(ConstraintKind kind);

// Longest text that is compiled.
inline constexpr size_t kMaxConstraintBytes = size_t{1} << 20;

// The grammar of a text. `controls` are the vocabulary's control tokens, whose texts a structural
// constraint may name.
//   InvalidArgument  the text is wrong or allows nothing (message: where, what)
//   Unsupported      it asks for something that cannot be ensured (message: the keyword, its place)
//   OutOfRange       it is larger than a limit
Result<Grammar> CompileGrammar(ConstraintKind kind, std::string_view text,
                               std::span<const TokenTrie::Control> controls);

// A compiled constraint and its tables, for one vocabulary. Shared by requests; one thread at a
// time.
class Constraint {
 public:
  // As CompileGrammar(), Automaton::Build(); `trie` and `memory` must outlive the constraint.
  static Result<std::unique_ptr<Constraint>> Compile(ConstraintKind kind, std::string_view text,
                                                     const TokenTrie& trie, Allocator& memory,
                                                     const AutomatonLimits& limits = {},
                                                     const MachineLimits& machine_limits = {});
  Machine& machine() { return machine_; }

 private:
  Constraint(std::unique_ptr<Automaton> automaton, const TokenTrie& trie,
             const MachineLimits& limits, Allocator& memory)
      : automaton_(std::move(automaton)), machine_(*automaton_, trie, limits, memory) {}
  std::unique_ptr<Automaton> automaton_;
  Machine machine_;
};

// One reply on its way through a constraint. The constraint must outlive it.
class Matcher {
 public:
  explicit Matcher(Constraint& constraint) : machine_(constraint.machine()) {}

  // Sets bit i of `words` for every token i that may come next; clears the others. End tokens are
  // the caller's: they may come when MayEnd(). OutOfRange, OutOfMemory: see Machine.
  Status FillAllowed(std::span<uint64_t> words);
  Result<bool> MayEnd();
  // True when nothing but the end may follow.
  Result<bool> MustEnd();
  // The token came. Internal when it was not allowed.
  Status Accept(int32_t id);
  // The bytes that must follow whatever is chosen, at most `max_bytes`, and some of the ASCII
  // characters that may follow them, at most `max_followers`, spread over all. *followers is empty
  // when nothing may follow.
  Status ForcedText(size_t max_bytes, std::string* out, size_t max_followers,
                    std::vector<uint8_t>* followers);

 private:
  Result<int32_t> State();
  Result<int32_t> After(int32_t state, int32_t id);
  void Enter(int32_t state);

  Machine& machine_;
  bool begun_ = false;
  int32_t state_ = 0;
  uint32_t generation_ = 0;
  uint32_t epoch_ = 0;
  // For when the machine's tables begin anew: the places of the state, and the tokens so far.
  std::vector<Place> places_;
  std::vector<int32_t> tokens_;
  bool may_end_ = false;
};

}  // namespace cellm::constrain

#endif  // CELLM_SRC_CONSTRAIN_CONSTRAINT_H_
