// The one place that sees simdjson.
#include <simdjson.h>

#include "base/limits.h"
#include "json/tape.h"

namespace cellm::json {

FastResult ParseFast(std::string_view text, Tape* out) {
  // simdjson turns a lone low surrogate escape into ill-formed UTF-8. Such escapes are rare in
  // small texts and absent from large ones, so every text that has a surrogate escape goes the
  // strict road.
  if (text.find("\\ud") != std::string_view::npos || text.find("\\uD") != std::string_view::npos) {
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
