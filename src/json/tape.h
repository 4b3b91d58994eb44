#ifndef CELLM_SRC_JSON_TAPE_H_
#define CELLM_SRC_JSON_TAPE_H_

// A parsed document as two flat buffers, in simdjson's own encoding, so that its result is used as
// it is. Private to src/json.
//
//   words    one 64-bit word an item: type in the top byte, payload in the low 56 bits
//     'r'    first and last word; the value starts at words[1]
//     '{' '['  low 32 bits: index after the closing word; next 24 bits: members (saturated)
//     '}' ']'  closing
//     '"'    payload: offset into `strings` of a uint32 length, the bytes and a NUL
//     'l' 'u' 'd'  the next word holds an int64, uint64, double
//     't' 'f' 'n'
//     'B'    (ours) an integer beyond 64 bits: its digits, stored like a string
// In an object each value is preceded by its key's '"' word.
//
// Two parsers write tapes. simdjson is the fast road and knows strict JSON. ParseStrict() is ours:
// it takes what simdjson refuses (Infinity, NaN, big integers) and words every error with its
// byte offset, so it runs on whatever simdjson would not take.

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/status.h"

namespace cellm::json {

inline constexpr uint64_t kPayloadMask = (uint64_t{1} << 56) - 1;
inline constexpr uint64_t kCountSaturated = 0xFFFFFF;

struct Tape {
  std::unique_ptr<uint64_t[]> words;
  std::unique_ptr<uint8_t[]> strings;
};

enum class FastResult { kParsed, kRefused, kOutOfMemory };

// simdjson. kRefused says nothing about the text: it may be fine for ParseStrict().
FastResult ParseFast(std::string_view text, Tape* out);

// Ours. Corrupt, OutOfRange (depth) or OutOfMemory as Document::Parse() states.
Status ParseStrict(std::string_view text, std::string_view name, Tape* out);

}  // namespace cellm::json

#endif  // CELLM_SRC_JSON_TAPE_H_
