#include "constrain/machine.h"

#include <algorithm>

namespace cellm::constrain {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 32);
}

uint64_t HashPlace(const Place& place) {
  return Mix(0x8F1BBCDC, (static_cast<uint64_t>(static_cast<uint32_t>(place.node)) << 32) |
                             static_cast<uint32_t>(place.memory));
}

uint64_t HashPlaces(std::span<const Place> places, bool may_end) {
  uint64_t hash = may_end ? 1 : 2;
  for (const Place& place : places) hash = Mix(hash, HashPlace(place));
  return hash;
}

}  // namespace

Machine::Machine(const Automaton& automaton, const TokenTrie& trie, const MachineLimits& limits,
                 Allocator& memory)
    : automaton_(automaton),
      trie_(trie),
      limits_(limits),
      memory_(memory),
      states_(memory, "states of a constraint"),
      places_(memory, "states of a constraint"),
      next_(memory, "transitions of a constraint"),
      state_slots_(memory, "states of a constraint"),
      calls_(memory, "calls of a constraint"),
      call_slots_(memory, "calls of a constraint"),
      seen_(memory, "scratch of a constraint") {}

size_t Machine::table_bytes() const {
  return states_.bytes() + places_.bytes() + next_.bytes() + state_slots_.bytes();
}

// The first entries of each table: the dead state and the empty memory.
Status Machine::Prepare() {
  if (!states_.empty()) return OkStatus();
  CELLM_RETURN_IF_ERROR(states_.Push({0, 0, -1, 0}));
  CELLM_RETURN_IF_ERROR(next_.Append(static_cast<size_t>(automaton_.symbol_count()), kDead));
  if (calls_.empty()) CELLM_RETURN_IF_ERROR(calls_.Push({-1, -1, 0}));
  if (seen_.empty()) {
    size_t slots = 64;
    while (slots < 4 * limits_.places) slots *= 2;
    CELLM_RETURN_IF_ERROR(seen_.Append(slots, Seen{{0, 0}, 0}));
  }
  walk_.resize(trie_.max_depth() + 1);
  return OkStatus();
}

void Machine::Tidy(bool always) {
  const bool many_calls = calls_.size() > limits_.memory_entries / 2;
  if (!always && !many_calls && table_bytes() <= limits_.table_bytes) return;
  if (many_calls) {
    calls_.Release();
    call_slots_.Release();
    ++epoch_;
  }
  states_.Release();
  places_.Release();
  next_.Release();
  state_slots_.Release();
  for (MaskSlot& slot : masks_) slot.state = -1;
  ++generation_;
}

void Machine::ForgetMasks() {
  for (MaskSlot& slot : masks_) {
    if (slot.state >= 0) states_[static_cast<size_t>(slot.state)].mask = -1;
    slot.state = -1;
  }
}

// A table of numbers twice as large as `count` needs, all free. Zero is a free slot.
Status Machine::GrowSlots(Buffer<int32_t>* slots, size_t count) {
  size_t size = 256;
  while (size < 4 * count) size *= 2;
  slots->Clear();
  return slots->Append(size, 0);
}

Result<int32_t> Machine::Remember(int32_t target, int32_t below) {
  const auto hash = [](int32_t a, int32_t b) { return HashPlace({a, b}); };
  if (2 * calls_.size() >= call_slots_.size()) {
    CELLM_RETURN_IF_ERROR(GrowSlots(&call_slots_, calls_.size()));
    for (size_t i = 1; i < calls_.size(); ++i) {
      size_t at = hash(calls_[i].target, calls_[i].below) & (call_slots_.size() - 1);
      while (call_slots_[at] != 0) at = (at + 1) & (call_slots_.size() - 1);
      call_slots_[at] = static_cast<int32_t>(i);
    }
  }
  size_t at = hash(target, below) & (call_slots_.size() - 1);
  for (; call_slots_[at] != 0; at = (at + 1) & (call_slots_.size() - 1)) {
    const Call& call = calls_[static_cast<size_t>(call_slots_[at])];
    if (call.target == target && call.below == below) return call_slots_[at];
  }
  if (calls_.size() >= limits_.memory_entries) {
    return OutOfRange("the constraint is too ambiguous: it nests in more than %zu ways at once",
                      limits_.memory_entries);
  }
  const int32_t depth = calls_[static_cast<size_t>(below)].depth + 1;
  CELLM_RETURN_IF_ERROR(calls_.Push({target, below, depth}));
  call_slots_[at] = static_cast<int32_t>(calls_.size() - 1);
  return call_slots_[at];
}

Status Machine::Visit(const Place& place, bool* is_new) {
  size_t at = HashPlace(place) & (seen_.size() - 1);
  for (; seen_[at].round == seen_round_; at = (at + 1) & (seen_.size() - 1)) {
    if (seen_[at].place == place) {
      *is_new = false;
      return OkStatus();
    }
  }
  if (++seen_count_ > 2 * limits_.places) {
    return OutOfRange(
        "the constraint is too ambiguous: more than %zu places at once. Write repetitions so that "
        "a text fits them in one way only",
        limits_.places);
  }
  seen_[at] = {place, seen_round_};
  *is_new = true;
  return OkStatus();
}

Status Machine::Close() {
  closed_.clear();
  ends_ = false;
  seen_count_ = 0;
  if (++seen_round_ == 0) {  // rounds of long ago must not look like this one
    std::fill_n(seen_.data(), seen_.size(), Seen{{0, 0}, 0});
    seen_round_ = 1;
  }
  while (!pending_.empty()) {
    const Place place = pending_.back();
    pending_.pop_back();
    bool is_new = false;
    CELLM_RETURN_IF_ERROR(Visit(place, &is_new));
    if (!is_new) continue;
    ++work_;
    const Call call = calls_[static_cast<size_t>(place.memory)];
    if (automaton_.is_end(place.node)) {
      if (place.memory == 0) {
        ends_ = true;
      } else {
        pending_.push_back({call.target, call.below});
      }
      continue;
    }
    bool reads = false;
    for (const Automaton::Edge& edge : automaton_.edges(place.node)) {
      if (!Fits(edge.target, call.depth)) continue;
      if (edge.kind == Automaton::EdgeKind::kNothing) {
        pending_.push_back({edge.target, place.memory});
      } else if (edge.kind == Automaton::EdgeKind::kCall) {
        const int32_t start = automaton_.rule_start(edge.data);
        if (!Fits(start, edge.tail ? call.depth : call.depth + 1)) continue;
        int32_t memory = place.memory;
        if (!edge.tail) {
          CELLM_ASSIGN_OR_RETURN(memory, Remember(edge.target, place.memory));
        }
        pending_.push_back({start, memory});
      } else {
        reads = true;
      }
    }
    if (reads) closed_.push_back(place);
  }
  if (closed_.size() > limits_.places) {
    return OutOfRange("the constraint is too ambiguous: more than %zu places at once",
                      limits_.places);
  }
  std::sort(closed_.begin(), closed_.end());
  return OkStatus();
}

Result<int32_t> Machine::StateOf(std::span<const Place> places, bool may_end) {
  CELLM_RETURN_IF_ERROR(Prepare());
  if (places.empty() && !may_end) return kDead;
  if (2 * states_.size() >= state_slots_.size()) {
    CELLM_RETURN_IF_ERROR(GrowSlots(&state_slots_, states_.size()));
    for (size_t i = 1; i < states_.size(); ++i) {
      const int32_t state = static_cast<int32_t>(i);
      size_t at = HashPlaces(StatePlaces(state), MayEnd(state)) & (state_slots_.size() - 1);
      while (state_slots_[at] != 0) at = (at + 1) & (state_slots_.size() - 1);
      state_slots_[at] = state;
    }
  }
  size_t at = HashPlaces(places, may_end) & (state_slots_.size() - 1);
  for (; state_slots_[at] != 0; at = (at + 1) & (state_slots_.size() - 1)) {
    const int32_t state = state_slots_[at];
    const std::span<const Place> known = StatePlaces(state);
    if (MayEnd(state) == may_end &&
        std::equal(known.begin(), known.end(), places.begin(), places.end())) {
      return state;
    }
  }
  const uint32_t first = static_cast<uint32_t>(places_.size());
  for (const Place& place : places) CELLM_RETURN_IF_ERROR(places_.Push(place));
  CELLM_RETURN_IF_ERROR(next_.Append(static_cast<size_t>(automaton_.symbol_count()), -1));
  const Status pushed = states_.Push(
      {first, static_cast<uint32_t>(places.size()), -1, static_cast<uint8_t>(may_end ? 1 : 0)});
  if (!pushed.ok()) {
    next_.Shrink(Row(static_cast<int32_t>(states_.size())));
    return pushed;
  }
  state_slots_[at] = static_cast<int32_t>(states_.size() - 1);
  return state_slots_[at];
}

std::span<const Place> Machine::StatePlaces(int32_t state) const {
  const State& s = states_[static_cast<size_t>(state)];
  return places_.span().subspan(s.first_place, s.place_count);
}

Result<int32_t> Machine::StartState() {
  CELLM_RETURN_IF_ERROR(Prepare());
  pending_ = {{automaton_.start(), 0}};
  CELLM_RETURN_IF_ERROR(Close());
  return StateOf(closed_, ends_);
}

Result<int32_t> Machine::ComputeNext(int32_t state, int32_t symbol) {
  pending_.clear();
  const bool is_byte = symbol < automaton_.byte_symbol_count();
  const uint8_t byte = is_byte ? automaton_.byte_of(symbol) : uint8_t{0};
  for (const Place& place : StatePlaces(state)) {
    const int32_t depth = calls_[static_cast<size_t>(place.memory)].depth;
    for (const Automaton::Edge& edge : automaton_.edges(place.node)) {
      ++work_;
      const bool reads = is_byte ? edge.kind == Automaton::EdgeKind::kBytes && edge.first <= byte &&
                                       byte <= edge.last
                                 : edge.kind == Automaton::EdgeKind::kSymbol && edge.data == symbol;
      if (reads && Fits(edge.target, depth)) pending_.push_back({edge.target, place.memory});
    }
  }
  CELLM_RETURN_IF_ERROR(Close());
  CELLM_ASSIGN_OR_RETURN(const int32_t next, StateOf(closed_, ends_));
  next_[Row(state) + static_cast<size_t>(symbol)] = next;
  return next;
}

Result<int32_t> Machine::OnlyByte(int32_t state) {
  if (MayEnd(state)) return -1;
  int32_t only = -1;
  for (int32_t byte = 0; byte < 256; ++byte) {
    CELLM_ASSIGN_OR_RETURN(const int32_t next,
                           Next(state, automaton_.symbol_of(static_cast<uint8_t>(byte))));
    if (next == kDead) continue;
    if (only >= 0) return -1;
    only = byte;
  }
  for (int32_t s = automaton_.byte_symbol_count(); s < automaton_.symbol_count(); ++s) {
    CELLM_ASSIGN_OR_RETURN(const int32_t next, Next(state, s));
    if (next != kDead) return -1;
  }
  return only;
}

Status Machine::WalkTrie(int32_t state, std::span<uint64_t> words) {
  walk_[0] = state;
  size_t node = 0;
  const size_t end = trie_.node_count();
  while (node < end) {
    const size_t depth = trie_.depth(node);
    const int32_t symbol = automaton_.symbol_of(trie_.byte(node));
    int32_t next = next_[Row(walk_[depth]) + static_cast<size_t>(symbol)];
    if (next < 0) {
      if (work_ > limits_.work) {
        return OutOfRange("the constraint is too ambiguous: one token took more than %llu steps",
                          static_cast<unsigned long long>(limits_.work));
      }
      CELLM_ASSIGN_OR_RETURN(next, ComputeNext(walk_[depth], symbol));
    }
    if (next == kDead) {
      node = trie_.end(node);
      continue;
    }
    walk_[depth + 1] = next;
    for (const int32_t id : trie_.tokens(node)) {
      words[static_cast<size_t>(id) / 64] |= uint64_t{1} << (static_cast<size_t>(id) % 64);
    }
    ++node;
  }
  return OkStatus();
}

Status Machine::AllowControls(int32_t state, std::span<uint64_t> words) {
  if (!automaton_.reads_tokens()) return OkStatus();
  for (const TokenTrie::Control& control : trie_.controls()) {
    const int32_t symbol = automaton_.symbol_of_token(control.id);
    if (symbol < 0) continue;
    CELLM_ASSIGN_OR_RETURN(const int32_t next, Next(state, symbol));
    if (next == kDead) continue;
    const size_t id = static_cast<size_t>(control.id);
    words[id / 64] |= uint64_t{1} << (id % 64);
  }
  return OkStatus();
}

// A slot for one more mask: a new one below the limit, else that of the mask made longest ago.
Result<int32_t> Machine::TakeMaskSlot() {
  const size_t words = trie_.mask_words();
  const size_t most = std::max<size_t>(8, limits_.mask_bytes / (words * sizeof(uint64_t) + 1));
  if (masks_.size() < most) {
    Result<Array<uint64_t>> array =
        Array<uint64_t>::Zeroed(memory_, words, MemoryClass::kOther, "masks of a constraint");
    if (array.ok()) {
      masks_.push_back({-1, std::move(array).value()});
      return static_cast<int32_t>(masks_.size() - 1);
    }
    if (masks_.empty()) return array.status();
  }
  const size_t slot = next_mask_ % masks_.size();
  next_mask_ = slot + 1;
  MaskSlot& taken = masks_[slot];
  if (taken.state >= 0) states_[static_cast<size_t>(taken.state)].mask = -1;
  taken.state = -1;
  std::fill(taken.words.begin(), taken.words.end(), 0);
  return static_cast<int32_t>(slot);
}

Result<std::span<const uint64_t>> Machine::Mask(int32_t state) {
  const int32_t known = states_[static_cast<size_t>(state)].mask;
  if (known >= 0) {
    return std::span<const uint64_t>(masks_[static_cast<size_t>(known)].words.span());
  }
  CELLM_ASSIGN_OR_RETURN(const int32_t slot, TakeMaskSlot());
  MaskSlot& mask = masks_[static_cast<size_t>(slot)];
  work_ = 0;
  CELLM_RETURN_IF_ERROR(WalkTrie(state, mask.words.span()));
  CELLM_RETURN_IF_ERROR(AllowControls(state, mask.words.span()));
  ++masks_made_;
  mask.state = state;
  states_[static_cast<size_t>(state)].mask = slot;
  return std::span<const uint64_t>(mask.words.span());
}

}  // namespace cellm::constrain
