// What a model wrote, as the server takes it apart into reasoning, content and tool calls.
//
// The first byte says which options are on and how the text is cut. Whatever comes, the pieces are
// the same as of the whole text, calls that are shown before they are whole included, and arguments
// are JSON objects.
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

// What is shown, in order: a kind that goes on is not named again, since cuts differ and the text
// does not. Whole calls have arguments that are JSON objects; a call that is open ends.
std::string Parse(const ReplyFormat& format, std::string_view text, size_t step) {
  ReplyParser parser(format);
  std::vector<ReplyPiece> pieces;
  for (size_t at = 0; at < text.size(); at += step) parser.Feed(text.substr(at, step), &pieces);
  parser.Finish(&pieces);
  std::string out;
  std::string last;
  std::vector<std::string> arguments;
  size_t open = 0;
  for (const ReplyPiece& piece : pieces) {
    const std::string head = std::string(1, static_cast<char>(1 + static_cast<int>(piece.kind))) +
                             std::to_string(piece.call) + ":";
    if (head != last) out += head;
    last = head;
    out += piece.tool_name + piece.text;
    switch (piece.kind) {
      case ReplyPiece::Kind::kCallBegin:
        Check(piece.call == arguments.size());
        arguments.emplace_back();
        ++open;
        break;
      case ReplyPiece::Kind::kCallArguments:
        arguments[piece.call] += piece.text;
        break;
      case ReplyPiece::Kind::kCallEnd: {
        const auto parsed = cellm::json::Document::Parse(arguments[piece.call], "arguments");
        Check(parsed.ok() && (*parsed)->root().is_object());
        --open;
        break;
      }
      case ReplyPiece::Kind::kCallBroken:
        --open;
        break;
      case ReplyPiece::Kind::kContent:
      case ReplyPiece::Kind::kReasoning:
        break;
    }
  }
  Check(open == 0);
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
