#ifndef CELLM_SRC_CONSTRAIN_MACHINE_H_
#define CELLM_SRC_CONSTRAIN_MACHINE_H_

// An automaton made deterministic while it is used, and which tokens may come next.
//
// A place is a node together with what the calls around it remember; a state is the set of all
// places that the text so far can have led to. States, their transitions and their masks are made
// when they are first needed and kept, so that a regular grammar becomes an ordinary table of
// states, shared by all requests with the same constraint.
//
//   memory of calls   a tree, each entry made once: (where to come back to, the entry below)
//   state             sorted places, found again by hash; may the text end here?
//   transition        [state][symbol], filled in as bytes are met
//   mask              one bit a token: its bytes, one after the other, lead somewhere
//
// A mask is made by one walk over the vocabulary's trie; masks beyond a limit give way to newer
// ones. When the tables pass their limit they are dropped whole and begin anew; who is inside a
// text keeps its own places, or goes through its text again when the memory of calls is dropped,
// too.
//
// One thread at a time.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/allocator.h"
#include "base/status.h"
#include "constrain/automaton.h"
#include "constrain/buffer.h"
#include "constrain/token_trie.h"

namespace cellm::constrain {

struct MachineLimits {
  size_t table_bytes = size_t{48} << 20;  // of states and transitions, before they begin anew
  size_t mask_bytes = size_t{16} << 20;   // at 150k tokens a mask has 19 kB
  size_t places = 16384;                  // of one state
  uint64_t work = 100'000'000;            // places looked at for one mask: under a second
  size_t memory_entries = 2'000'000;      // of calls
};

// Where a text stands. Plain data of one request; see Matcher.
struct Place {
  int32_t node = 0;
  int32_t memory = 0;  // 0: nothing is remembered
  bool operator==(const Place&) const = default;
  auto operator<=>(const Place&) const = default;
};

class Machine {
 public:
  // Both must outlive the machine.
  Machine(const Automaton& automaton, const TokenTrie& trie, const MachineLimits& limits,
          Allocator& memory);

  // The state of a set of places (sorted, as StatePlaces() gave them), of the empty text, or after
  // one more symbol; kDead when nothing leads there. Numbers are valid until generation() changes,
  // which only Tidy() does.
  //   OutOfRange   the state has more places, or took more work, than the limits allow
  //   OutOfMemory  refused
  static constexpr int32_t kDead = 0;
  Result<int32_t> StartState();
  Result<int32_t> StateOf(std::span<const Place> places, bool may_end);
  Result<int32_t> Next(int32_t state, int32_t symbol) {
    const int32_t known = next_[Row(state) + static_cast<size_t>(symbol)];
    if (known >= 0) return known;
    return ComputeNext(state, symbol);
  }
  std::span<const Place> StatePlaces(int32_t state) const;
  bool MayEnd(int32_t state) const { return states_[static_cast<size_t>(state)].may_end != 0; }
  // True when no byte and no token may follow.
  bool IsFinal(int32_t state) const { return states_[static_cast<size_t>(state)].place_count == 0; }
  // Bit i: token i may come next. End tokens are not looked at. Valid until the next call.
  Result<std::span<const uint64_t>> Mask(int32_t state);
  // The only byte that may follow, or -1 when there are several, none, or the text may end.
  Result<int32_t> OnlyByte(int32_t state);

  // Between two uses: drops the tables when they are past their limit, or `always`.
  void Tidy(bool always = false);
  // Masks are made again when they are next asked for; for measurements.
  void ForgetMasks();
  uint32_t generation() const { return generation_; }
  // Places are valid until epoch() changes; Tidy() does that when too many calls are remembered.
  uint32_t epoch() const { return epoch_; }

  const Automaton& automaton() const { return automaton_; }
  const TokenTrie& trie() const { return trie_; }
  size_t state_count() const { return states_.size(); }
  size_t table_bytes() const;
  uint64_t masks_made() const { return masks_made_; }

 private:
  struct State {
    uint32_t first_place;
    uint32_t place_count;
    int32_t mask;  // slot, or -1
    uint8_t may_end;
  };
  struct Call {
    int32_t target;
    int32_t below;
    int32_t depth;
  };
  struct MaskSlot {
    int32_t state = -1;
    Array<uint64_t> words;
  };
  size_t Row(int32_t state) const {
    return static_cast<size_t>(state) * static_cast<size_t>(automaton_.symbol_count());
  }
  bool Fits(int32_t node, int32_t depth) const {
    return automaton_.has_way(node) && depth + automaton_.need(node) <= automaton_.max_depth();
  }
  Status Prepare();
  Result<int32_t> ComputeNext(int32_t state, int32_t symbol);
  // pending_ and all that is reached from it without reading: closed_ and ends_.
  Status Close();
  Status Visit(const Place& place, bool* is_new);
  Result<int32_t> Remember(int32_t target, int32_t below);
  Status GrowSlots(Buffer<int32_t>* slots, size_t count);
  Status WalkTrie(int32_t state, std::span<uint64_t> words);
  Status AllowControls(int32_t state, std::span<uint64_t> words);
  Result<int32_t> TakeMaskSlot();

  const Automaton& automaton_;
  const TokenTrie& trie_;
  const MachineLimits limits_;
  Allocator& memory_;
  uint32_t generation_ = 1;
  uint32_t epoch_ = 1;

  Buffer<State> states_;
  Buffer<Place> places_;
  Buffer<int32_t> next_;         // [states][symbols]; -1: not known yet
  Buffer<int32_t> state_slots_;  // hash of places -> state
  Buffer<Call> calls_;
  Buffer<int32_t> call_slots_;  // hash of (target, below) -> entry
  std::vector<MaskSlot> masks_;
  size_t next_mask_ = 0;
  uint64_t masks_made_ = 0;
  uint64_t work_ = 0;

  // Scratch.
  std::vector<Place> pending_;
  std::vector<Place> closed_;
  bool ends_ = false;
  struct Seen {
    Place place;
    uint32_t round;
  };
  Buffer<Seen> seen_;  // open addressing
  uint32_t seen_round_ = 0;
  size_t seen_count_ = 0;
  std::vector<int32_t> walk_;  // state before each byte of the trie's path
};

}  // namespace cellm::constrain

#endif  // CELLM_SRC_CONSTRAIN_MACHINE_H_
