#include "tokenizer/byte_level.h"

#include "base/utf8.h"

namespace cellm::tokenizer {
namespace {

constexpr bool StandsForItself(unsigned byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

struct Alphabet {
  uint16_t character[256];
  uint8_t byte[256 + 68];
  bool known[256 + 68];
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet{};
  uint16_t next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const uint16_t character = StandsForItself(byte) ? static_cast<uint16_t>(byte) : next++;
    alphabet.character[byte] = character;
    alphabet.byte[character] = static_cast<uint8_t>(byte);
    alphabet.known[character] = true;
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

void AppendByteLevel(uint8_t byte, std::string* out) {
  const uint16_t character = kAlphabet.character[byte];
  if (character < 0x80) {
    out->push_back(static_cast<char>(character));
  } else {
    out->push_back(static_cast<char>(0xC0 | (character >> 6)));
    out->push_back(static_cast<char>(0x80 | (character & 0x3F)));
  }
}

bool ByteOfByteLevel(char32_t code_point, uint8_t* out) {
  if (code_point >= 256 + 68 || !kAlphabet.known[code_point]) return false;
  *out = kAlphabet.byte[code_point];
  return true;
}

bool AppendByteLevelBytes(std::string_view piece, std::string* out) {
  const size_t size_before = out->size();
  for (size_t at = 0; at < piece.size();) {
    const Utf8Char c = DecodeUtf8(piece.substr(at));
    uint8_t byte = 0;
    if (!c.valid || !ByteOfByteLevel(c.code_point, &byte)) {
      out->resize(size_before);
      out->append(piece);
      return false;
    }
    out->push_back(static_cast<char>(byte));
    at += c.byte_count;
  }
  return true;
}

bool ByteOfFallbackPiece(std::string_view piece, uint8_t* out) {
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return false;
  // "+F" reads as a number, too, in the reference.
  const int high = piece[3] == '+' ? 0 : HexDigit(piece[3]);
  const int low = HexDigit(piece[4]);
  if (high < 0 || low < 0) return false;
  *out = static_cast<uint8_t>(high * 16 + low);
  return true;
}

}  // namespace cellm::tokenizer
