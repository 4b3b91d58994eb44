#include "support/constrain_exercise.h"

#include <memory>
#include <vector>

#include "base/allocator.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/rng.h"
#include "constrain/token_trie.h"
#include "support/heap_bound.h"

namespace cellm::fuzz {
namespace {

using constrain::Constraint;
using constrain::Matcher;
using constrain::TokenText;
using constrain::TokenTrie;

// What compiling may take whatever the text says: its limits bound it, not the text's length.
constexpr size_t kCompileBytes = size_t{4} << 20;  // times HeapBound::kMultiple
constexpr uint64_t kTableBytes = uint64_t{64} << 20;

const TokenTrie& Trie() {
  static const std::unique_ptr<TokenTrie> trie = [] {
    std::vector<TokenText> tokens;
    for (int byte = 0; byte < 256; ++byte) {
      tokens.push_back({std::string(1, static_cast<char>(byte)), false});
    }
    for (const char* const text : {"{\"", "\":", "\", \"", "\"}", "true", "null", "12", "\xC3\xA9",
                                   "\xE2\x82", "ab", "\n  ", "\\u00"}) {
      tokens.push_back({text, false});
    }
    tokens.push_back({"[TOOL]", true});
    return std::move(
               TokenTrie::Build(tokens, static_cast<int32_t>(tokens.size()), SystemAllocator()))
        .value();
  }();
  return *trie;
}

// False when a limit was met on the way.
bool WriteReply(Constraint& constraint, Rng& rng, std::string* text) {
  Matcher matcher(constraint);
  std::vector<uint64_t> words(Trie().mask_words());
  std::vector<int32_t> allowed;
  for (int step = 0; step < 60; ++step) {
    const Status status = matcher.FillAllowed(words);
    if (!status.ok()) {
      CELLM_CHECK(
          status.code() == StatusCode::kOutOfRange || status.code() == StatusCode::kOutOfMemory,
          status.message().c_str());
      return false;
    }
    allowed.clear();
    for (size_t id = 0; id < 64 * words.size(); ++id) {
      if ((words[id / 64] >> (id % 64) & 1) != 0) allowed.push_back(static_cast<int32_t>(id));
    }
    const bool may_end = matcher.MayEnd().value();
    CELLM_CHECK(may_end || !allowed.empty(),
                "a reply is stuck: nothing may follow, not even the end");
    if (allowed.empty() || (may_end && rng.NextBelow(3) == 0)) return true;
    const int32_t id = allowed[rng.NextBelow(allowed.size())];
    const Status accepted = matcher.Accept(id);
    if (!accepted.ok()) {
      CELLM_CHECK(accepted.code() != StatusCode::kInternal, "an allowed token is not accepted");
      return false;
    }
    *text += Trie().text(id);
  }
  return false;
}

}  // namespace

void ExerciseConstraint(constrain::ConstraintKind kind, std::string_view text, std::string* reply) {
  const TokenTrie& trie = Trie();
  BudgetAllocator memory(SystemAllocator(), kTableBytes);
  const HeapBound bound(kCompileBytes + text.size());
  constrain::AutomatonLimits limits;
  limits.nodes = 20'000;
  limits.edges = 100'000;
  constrain::MachineLimits machine_limits;
  machine_limits.work = 2'000'000;
  const Result<std::unique_ptr<Constraint>> constraint =
      Constraint::Compile(kind, text, trie, memory, limits, machine_limits);
  if (!constraint.ok()) {
    CELLM_CHECK(constraint.status().code() != StatusCode::kInternal,
                constraint.status().message().c_str());
    return;
  }
  Rng rng(HashXxh3(text));
  for (int i = 0; i < 3; ++i) {
    std::string written;
    if (WriteReply(*constraint.value(), rng, &written)) *reply = written;
  }
}

}  // namespace cellm::fuzz
