// Any bytes as a text for three tiny tokenizers. The first byte picks the tokenizer, the second
// where a segment border falls.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "json/json.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace cellm::tokenizer;  // NOLINT: a fuzz target is one file

constexpr std::string_view kAdded =
    R"("added_tokens":[{"id":900,"content":"<s>","special":true},)"
    R"({"id":901,"content":"<think>","special":false},)"
    R"({"id":902,"content":"<l>","special":true,"lstrip":true,"rstrip":true}],)";

std::string ByteLevelJson() {
  std::string vocab;
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string piece;
    AppendByteLevel(static_cast<uint8_t>(byte), &piece);
    vocab += cellm::json::Quote(piece) + ":" + std::to_string(byte) + ",";
  }
  vocab += R"("he":256,"ll":257,"hell":258,"aa":259,"aaaa":260,"ab":261)";
  return "{" + std::string(kAdded) +
         R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},)"
         R"("decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{)" +
         vocab + R"(},"merges":["h e","l l","he ll","a a","aa aa","a b"]}})";
}

std::string SentencePieceJson(bool unigram) {
  std::string head = "{" + std::string(kAdded);
  head +=
      R"("normalizer":{"type":"Replace","pattern":{"String":" "},"content":"\u2581"},)"
      R"("decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"\u2581"},)"
      R"("content":" "},{"type":"ByteFallback"},{"type":"Fuse"}]},"model":{)";
  static const char* const kPieces[] = {"<unk>", "\\u2581",  "a",  "b",
                                        "aa",    "\\u2581a", "ab", "\\u2581\\u2581"};
  std::string vocab;
  int id = 0;
  const auto add = [&](const std::string& piece) {
    if (id > 0) vocab += ",";
    vocab += unigram ? "[\"" + piece + "\"," + std::to_string(-id % 7 - 1) + "]"
                     : "\"" + piece + "\":" + std::to_string(id);
    ++id;
  };
  for (const char* piece : kPieces) add(piece);
  for (unsigned byte = 0; byte < 256; ++byte) add(cellm::StrFormat("<0x%02X>", byte));
  if (unigram) {
    return head + R"("type":"Unigram","unk_id":0,"byte_fallback":true,"vocab":[)" + vocab + "]}}";
  }
  return head + R"("type":"BPE","unk_token":"<unk>","byte_fallback":true,"fuse_unk":true,)" +
         R"("vocab":{)" + vocab +
         R"(},"merges":[["a","a"],["\u2581","a"],["a","b"],["\u2581","\u2581"]]}})";
}

std::unique_ptr<Tokenizer> Make(const std::string& json) {
  auto loaded = Tokenizer::FromJson(json, {});
  CELLM_CHECK(loaded.ok(), loaded.status().message().c_str());
  return std::move(*loaded);
}

// A byte piece spelled out, such as "<0x0A>". To Unigram, here as in the library that such
// tokenizers are made with, it is a piece like any other, so that it comes back as the byte; and
// where that leaves ill-formed UTF-8, a stream has shown what a whole decoding would replace.
bool SpellsByte(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (size_t at = 0; (at = text.find("<0x", at)) != std::string_view::npos; ++at) {
    if (at + 6 <= text.size() && kHex.find(text[at + 3]) != std::string_view::npos &&
        kHex.find(text[at + 4]) != std::string_view::npos && text[at + 5] == '>') {
      return true;
    }
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<Tokenizer> kTokenizers[] = {
      Make(ByteLevelJson()), Make(SentencePieceJson(false)), Make(SentencePieceJson(true))};
  if (size < 2) return 0;
  const Tokenizer& tokenizer = *kTokenizers[data[0] % 3];
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const auto ids = tokenizer.Encode(text, EncodeOptions());
  CELLM_CHECK(ids.ok(), "a text of any bytes can be encoded");
  std::string bytes;
  for (const int32_t id : *ids) {
    CELLM_CHECK(!tokenizer.IsControl(id), "text without trust has no control tokens");
    bytes += tokenizer.TokenBytes(id);
  }
  // U+2581 stands for a space in two of the three; and <l> swallows spaces where it is parsed.
  std::string expected = cellm::ReplaceInvalidUtf8(text);
  if (data[0] % 3 != 0) {
    for (size_t at; (at = expected.find("\xE2\x96\x81")) != std::string::npos;) {
      expected.replace(at, 3, 1, ' ');
    }
  }
  const bool comes_back = data[0] % 3 != 2 || !SpellsByte(expected);
  if (comes_back) CELLM_CHECK(bytes == expected, "the bytes of the tokens are the text");
  const auto decoded = tokenizer.Decode(*ids, false);
  CELLM_CHECK(decoded.ok(), "what was encoded can be decoded");
  if (comes_back) CELLM_CHECK(*decoded == expected, "decoding gives the text back");
  StreamDecoder stream(tokenizer, false);
  std::string streamed;
  for (const int32_t id : *ids) streamed += *stream.Push(id);
  streamed += *stream.Flush();
  if (comes_back) CELLM_CHECK(streamed == expected, "the stream ends at the text");

  const size_t border = data[1] % (text.size() + 1);
  const Segment untrusted[] = {{text.substr(0, border), false}, {text.substr(border), false}};
  const auto cut = tokenizer.Encode(untrusted, EncodeOptions());
  CELLM_CHECK(cut.ok(), "segments of any bytes can be encoded");
  if (cellm::IsValidUtf8(text)) CELLM_CHECK(*cut == *ids, "borders change nothing");
  const Segment mixed[] = {{text.substr(0, border), false}, {text.substr(border), true}};
  const auto half = tokenizer.Encode(mixed, EncodeOptions());
  CELLM_CHECK(half.ok(), "segments of two authors can be encoded");
  EncodeOptions parse;
  parse.parse_special = true;
  const Segment trusted[] = {{text.substr(0, border), true}, {text.substr(border), true}};
  const auto whole = tokenizer.Encode(text, parse);
  const auto all = tokenizer.Encode(trusted, EncodeOptions());
  CELLM_CHECK(whole.ok() && all.ok(), "trusted text can be encoded");
  if (cellm::IsValidUtf8(text)) CELLM_CHECK(*whole == *all, "trusted text is parsed");
  return 0;
}
