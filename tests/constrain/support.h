#ifndef CELLM_TESTS_CONSTRAIN_SUPPORT_H_
#define CELLM_TESTS_CONSTRAIN_SUPPORT_H_

// Vocabularies and random decoding for the tests of constrained output.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/allocator.h"
#include "base/rng.h"
#include "constrain/constraint.h"
#include "constrain/token_trie.h"

namespace cellm::constrain {

// All 256 bytes (ids 0 to 255), then `more`.
inline std::vector<TokenText> ByteVocabulary(const std::vector<std::string>& more = {}) {
  std::vector<TokenText> tokens;
  for (int byte = 0; byte < 256; ++byte)
    tokens.push_back({std::string(1, static_cast<char>(byte))});
  for (const std::string& text : more) tokens.push_back({text});
  return tokens;
}

// Bytes and pieces as they occur in JSON and in text, with ends in the middle of characters.
inline std::vector<TokenText> TextVocabulary() {
  return ByteVocabulary(
      {"{\"",          "\":",      "\": ",         "\",",          "\", \"",   "\"}",
       "}}",           "]}",       "[]",           "{}",           "],",       "[{\"",
       "}, {\"",       "true",     "false",        "null",         "tr",       "nul",
       "10",           "000",      "123",          "-1",           "0.",       ".5",
       "e+",           "name",     "value",        "na",           "me",       "abc",
       "the",          " the",     " a",           "  ",           "\n  ",     "\n",
       "\xC3\xA9",     "\xE2\x82", "\xE2\x82\xAC", "\xF0\x9F\x98", "\x98\x80", "a\xC3",
       "\\n",          "\\u",      "\\u00",        "\\\"",         "id",       "items",
       "\"items\": [", "\"id\":",  "Aa",           "zz",           "2024-",    "-01-",
       "T00:"});
}

inline std::unique_ptr<TokenTrie> MakeTrie(const std::vector<TokenText>& tokens) {
  Result<std::unique_ptr<TokenTrie>> trie =
      TokenTrie::Build(tokens, static_cast<int32_t>(tokens.size()), SystemAllocator());
  EXPECT_TRUE(trie.ok()) << trie.status().message();
  return std::move(trie).value();
}

inline Result<std::unique_ptr<Constraint>> Compile(ConstraintKind kind, std::string_view text,
                                                   const TokenTrie& trie) {
  return Constraint::Compile(kind, text, trie, SystemAllocator());
}

struct Decoded {
  Status status;
  std::string text;
  bool finished = false;  // the text may end here and was ended
  std::vector<int32_t> ids;
};

// Follows the constraint with random choices: of the allowed tokens, or the end with `end_chance`
// where it may come. Gives up (not finished) after `most` tokens.
inline Decoded DecodeRandomly(Constraint& constraint, const TokenTrie& trie, Rng& rng, size_t most,
                              double end_chance = 0.3) {
  Decoded out;
  Matcher matcher(constraint);
  std::vector<uint64_t> words(trie.mask_words());
  std::vector<int32_t> allowed;
  while (out.ids.size() <= most) {
    out.status = matcher.FillAllowed(words);
    if (!out.status.ok()) return out;
    allowed.clear();
    for (size_t id = 0; id < 64 * words.size(); ++id) {
      if ((words[id / 64] >> (id % 64) & 1) != 0) allowed.push_back(static_cast<int32_t>(id));
    }
    const Result<bool> may_end = matcher.MayEnd();
    if (allowed.empty() || (may_end.value() && rng.NextDouble() < end_chance)) {
      out.finished = may_end.value();
      if (!out.finished) out.status = Internal("nothing may follow, and the text may not end");
      return out;
    }
    const int32_t id = allowed[rng.NextBelow(allowed.size())];
    out.status = matcher.Accept(id);
    if (!out.status.ok()) return out;
    out.ids.push_back(id);
    out.text += trie.text(id);
  }
  return out;
}

// True when the automaton accepts exactly this text, byte by byte.
inline bool Accepts(Constraint& constraint, std::string_view text) {
  Machine& machine = constraint.machine();
  Result<int32_t> state = machine.StartState();
  for (const char c : text) {
    if (!state.ok() || state.value() == Machine::kDead) return false;
    state = machine.Next(state.value(), machine.automaton().symbol_of(static_cast<uint8_t>(c)));
  }
  return state.ok() && state.value() != Machine::kDead && machine.MayEnd(state.value());
}

}  // namespace cellm::constrain

#endif  // CELLM_TESTS_CONSTRAIN_SUPPORT_H_
