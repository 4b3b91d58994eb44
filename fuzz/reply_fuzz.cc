// What a model wrote, as the server takes it apart into reasoning, content and tool calls.
//
// The first byte says which options are on and how the text is cut. Whatever comes, the pieces are
// the same as of the whole text, and arguments are JSON objects.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "cellm/serve/reply_parser.h"
#include "json/json.h"

namespace {

using cellm::tools::serve::ReplyFormat;
using cellm::tools::serve::ReplyParser;
using cellm::tools::serve::ReplyPiece;

void Check(bool good) {
  if (!good) std::abort();
}

std::string Parse(const ReplyFormat& format, std::string_view text, size_t step) {
  ReplyParser parser(format);
  std::string out;
  const auto take = [&](const std::vector<ReplyPiece>& pieces) {
    for (const ReplyPiece& piece : pieces) {
      // A kind that goes on is not named again: cuts differ, the text does not.
      const std::string kind(1, static_cast<char>(1 + static_cast<int>(piece.kind)));
      const bool call = piece.kind == ReplyPiece::Kind::kToolCall;
      const size_t last = out.find_last_of("\x01\x02\x03");
      if (call || last == std::string::npos || out[last] != kind[0]) out += kind;
      if (call) {
        const auto arguments = cellm::json::Document::Parse(piece.text, "arguments");
        Check(arguments.ok() && (*arguments)->root().is_object());
        out += piece.tool_name + " ";
      }
      for (const char c : piece.text) out += c >= 1 && c <= 3 ? ' ' : c;
    }
  };
  std::vector<ReplyPiece> pieces;
  for (size_t at = 0; at < text.size(); at += step) parser.Feed(text.substr(at, step), &pieces);
  parser.Finish(&pieces);
  take(pieces);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > 4096) return 0;
  ReplyFormat format;
  if ((data[0] & 1) != 0) format.tools = {{"f", R"({"properties": {"k": {"type": "string"}}})"}};
  format.split_reasoning = (data[0] & 2) != 0;
  format.channels = (data[0] & 4) != 0;
  format.one_call = (data[0] & 8) != 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string whole = Parse(format, text, size);
  Check(Parse(format, text, 1 + (data[0] >> 4)) == whole);
  return 0;
}
