#include "cellm/bench/synthetic_vocabulary.h"

#include "base/status.h"
#include "base/utf8.h"
#include "json/json.h"

namespace cellm::tools {
namespace {

// The printable stand-in of a byte, as all byte-level vocabularies have it: printable Latin-1
// stays, the others get the code points from 256 on in order.
std::vector<std::string> ByteAlphabet() {
  std::vector<std::string> out(256);
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool stays =
        (byte >= 33 && byte < 127) || (byte >= 161 && byte < 173) || (byte >= 174 && byte < 256);
    AppendUtf8(static_cast<char32_t>(stays ? byte : next++), &out[byte]);
  }
  return out;
}

}  // namespace

SyntheticVocabulary MakeVocabulary(int32_t count) {
  SyntheticVocabulary vocabulary;
  vocabulary.special = {"<|begin|>", "<|end|>", "<|pad|>"};
  vocabulary.pieces = ByteAlphabet();
  const size_t wanted = static_cast<size_t>(count - kSpecialPieces);
  // Pieces of one length come from those of the length before.
  std::vector<std::string> layer;
  for (char c = 'a'; c <= 'z'; ++c) layer.emplace_back(1, c);
  layer.push_back(vocabulary.pieces[' ']);
  while (vocabulary.pieces.size() < wanted) {
    std::vector<std::string> longer;
    for (const std::string& left : layer) {
      for (char c = 'a'; c <= 'z' && vocabulary.pieces.size() < wanted; ++c) {
        longer.push_back(left + c);
        vocabulary.pieces.push_back(longer.back());
        vocabulary.merges.push_back(left);
        vocabulary.merges.back().append(" ").push_back(c);
      }
    }
    layer = std::move(longer);
  }
  return vocabulary;
}

std::string TokenizerJson(const SyntheticVocabulary& vocabulary) {
  std::string out = "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[";
  size_t id = vocabulary.pieces.size();
  for (const std::string& text : vocabulary.special) {
    if (out.back() == '}') out += ",";
    out += StrFormat(
        "{\"id\":%zu,\"content\":%s,\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
        "\"normalized\":false,\"special\":true}",
        id++, json::Quote(text).c_str());
  }
  out +=
      "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
      "\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":null,\"decoder\":{\"type\":"
      "\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},"
      "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix"
      "\":null,\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"vocab\":{";
  id = 0;
  for (const std::string& piece : vocabulary.pieces) {
    if (id > 0) out += ",";
    out += json::Quote(piece);
    out += StrFormat(":%zu", id++);
  }
  for (const std::string& piece : vocabulary.special) {
    out += StrFormat(",%s:%zu", json::Quote(piece).c_str(), id++);
  }
  out += "},\"merges\":[";
  for (size_t i = 0; i < vocabulary.merges.size(); ++i) {
    if (i > 0) out += ",";
    out += json::Quote(vocabulary.merges[i]);
  }
  return out + "]}}";
}

}  // namespace cellm::tools
