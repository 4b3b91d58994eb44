// The one place that sees simdjson.
#include <simdjson.h>

#include "base/limits.h"
#include "json/tape.h"

namespace cellm::json {

namespace {

// Is there an escape \uD800 to \uDFFF? A backslash that is itself escaped starts none, and
// vocabularies have pieces such as "\\ud".
bool HasSurrogateEscape(std::string_view text) {
  for (size_t at = text.find("\\u"); at != std::string_view::npos; at = text.find("\\u", at + 2)) {
    if (at + 2 >= text.size() || (text[at + 2] | 0x20) != 'd') continue;
    size_t first = at;
    while (first > 0 && text[first - 1] == '\\') --first;
    if ((at - first) % 2 == 0) return true;
  }
  return false;
}

}  // namespace

FastResult ParseFast(std::string_view text, Tape* out) {
  // simdjson turns a lone low surrogate escape into ill-formed UTF-8. Such escapes are rare in
  // small texts and absent from large ones, so every text that has a surrogate escape goes the
  // strict road.
  if (HasSurrogateEscape(text)) {
    return FastResult::kRefused;
  }
  simdjson::dom::parser parser;
  simdjson::dom::document document;
  if (parser.allocate(text.size(), limits::kMaxJsonDepth) != simdjson::SUCCESS ||
      document.allocate(text.size()) != simdjson::SUCCESS) {
    return FastResult::kOutOfMemory;
  }
  const simdjson::error_code error =
      parser.parse_into_document(document, text.data(), text.size()).error();
  if (error == simdjson::MEMALLOC) return FastResult::kOutOfMemory;
  if (error != simdjson::SUCCESS) return FastResult::kRefused;
  out->words = std::move(document.tape);
  out->strings = std::move(document.string_buf);
  return FastResult::kParsed;
}

}  // namespace cellm::json
