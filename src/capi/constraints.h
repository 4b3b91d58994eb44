#ifndef CELLM_SRC_CAPI_CONSTRAINTS_H_
#define CELLM_SRC_CAPI_CONSTRAINTS_H_

// The constraints that an engine has compiled.
//
// Clients send the same schema with every request, so what was compiled is kept, by its text: the
// automaton, and the states and masks that replies have met so far. The vocabulary's trie is made
// by the first request that has a constraint.
//
// Get() may be called from any thread and does its work outside of the engine's lock. What it gives
// is then used by the thread that drives the engine alone.

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/allocator.h"
#include "base/status.h"
#include "cellm/cellm.h"
#include "constrain/constraint.h"
#include "constrain/token_trie.h"
#include "sample/stop.h"
#include "tokenizer/tokenizer.h"

namespace cellm::capi {

class ConstraintCache {
 public:
  // `memory` outlives the cache and what it gave.
  explicit ConstraintCache(BudgetAllocator& memory) : memory_(memory) {}

  // The constraint of a request; null when it has none. alone: compiled for this caller and not
  // kept, to be used before others know the request.
  //   InvalidArgument, Unsupported, OutOfRange  see constrain::CompileGrammar()
  //   NotFound     the model has no tokenizer       OutOfMemory  refused by the budget
  Result<std::shared_ptr<constrain::Constraint>> Get(const cellm_request_options* options,
                                                     const tokenizer::Tokenizer* tokenizer,
                                                     const sample::StopIds& end_ids,
                                                     int32_t columns, bool alone = false);

 private:
  struct Entry {
    constrain::ConstraintKind kind;
    std::string text;
    std::shared_ptr<constrain::Constraint> constraint;
  };
  Status BuildTrie(const tokenizer::Tokenizer& tokenizer, const sample::StopIds& end_ids,
                   int32_t columns);
  Result<std::shared_ptr<constrain::Constraint>> Compile(constrain::ConstraintKind kind,
                                                         std::string_view text);

  BudgetAllocator& memory_;
  std::mutex mutex_;
  std::unique_ptr<constrain::TokenTrie> trie_;
  std::list<Entry> entries_;  // the one used last comes first
};

}  // namespace cellm::capi

#endif  // CELLM_SRC_CAPI_CONSTRAINTS_H_
