// Any bytes through the UTF-8 door: decoding always advances, repair yields valid text, keeps valid
// text as it is, and is decoding followed by encoding.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::string encoded;
  bool valid = true;
  size_t at = 0;
  while (at < text.size()) {
    const cellm::Utf8Char next = cellm::DecodeUtf8(text.substr(at));
    CELLM_CHECK(next.byte_count >= 1 && next.byte_count <= text.size() - at,
                "a decoded character does not lie inside the text");
    CELLM_CHECK(!next.truncated || (!next.valid && at + next.byte_count == text.size()),
                "only an ill-formed end can be completed by more bytes");
    valid = valid && next.valid;
    cellm::AppendUtf8(next.code_point, &encoded);
    at += next.byte_count;
  }
  const std::string repaired = cellm::ReplaceInvalidUtf8(text);
  CELLM_CHECK(repaired == encoded, "repair differs from decode and encode");
  CELLM_CHECK(cellm::IsValidUtf8(repaired), "repaired text is not valid");
  CELLM_CHECK(cellm::IsValidUtf8(text) == valid, "the two ways to judge a text differ");
  CELLM_CHECK(!valid || repaired == text, "valid text was changed");
  return 0;
}
