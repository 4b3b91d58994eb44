// Any bytes as JSON. Both parsers must agree where the fast one accepts; what is read can be walked
// and written, and what is written reads back as the same text.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/check.h"
#include "json/json.h"
#include "json/tape.h"

namespace {

using cellm::json::Document;
using cellm::json::FastResult;
using cellm::json::kPayloadMask;
using cellm::json::Tape;
using cellm::json::Value;

// Ends only if every tape is well-formed; counts what it sees so that nothing is optimised away.
size_t Walk(Value value) {
  int64_t integer = 0;
  uint64_t natural = 0;
  double real = 0;
  std::string_view text;
  size_t seen = 1;
  if (value.GetInt64(&integer) || value.GetUint64(&natural)) ++seen;
  if (value.is_number()) CELLM_CHECK(value.GetDouble(&real), "a number has no double");
  if (value.GetString(&text)) seen += text.size();
  size_t members = 0;
  for (Value member = value.First(); member.exists(); member = value.Next(member), ++members) {
    seen += value.KeyOf(member).size() + Walk(member);
    if (value.is_object()) {
      CELLM_CHECK(value.Find(value.KeyOf(member)).exists(), "a key is not found");
      if (members > 64) return seen;  // Find() is linear
    }
  }
  CELLM_CHECK(members == value.size() || members > 64, "size() is not the number of members");
  return seen;
}

void CompareParsers(std::string_view text) {
  Tape fast;
  Tape strict;
  if (ParseFast(text, &fast) != FastResult::kParsed) return;
  CELLM_CHECK(ParseStrict(text, "fuzz", &strict).ok(), "the strict parser refuses valid JSON");
  const uint64_t count = fast.words[0] & kPayloadMask;
  CELLM_CHECK((strict.words[0] & kPayloadMask) == count, "the tapes differ in length");
  for (uint64_t i = 1; i + 1 < count; ++i) {
    const uint64_t type = fast.words[i] >> 56;
    CELLM_CHECK(strict.words[i] >> 56 == type, "the tapes differ in type");
    if (type == '"') {
      const uint8_t* a = fast.strings.get() + (fast.words[i] & kPayloadMask);
      const uint8_t* b = strict.strings.get() + (strict.words[i] & kPayloadMask);
      uint32_t length = 0;
      std::memcpy(&length, a, 4);
      CELLM_CHECK(std::memcmp(a, b, length + 5) == 0, "the tapes differ in a string");
    } else {
      CELLM_CHECK(strict.words[i] == fast.words[i], "the tapes differ");
      if (type == 'l' || type == 'u' || type == 'd') {
        ++i;
        CELLM_CHECK(strict.words[i] == fast.words[i], "the tapes differ in a number");
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  CompareParsers(text);
  auto document = Document::Parse(text, "fuzz");
  if (!document.ok()) return 0;
  Walk((*document)->root());
  const std::string written = Serialize((*document)->root());
  auto again = Document::Parse(written, "written");
  CELLM_CHECK(again.ok(), "what was written does not parse");
  CELLM_CHECK(Serialize((*again)->root()) == written, "writing is not stable");
  return 0;
}
