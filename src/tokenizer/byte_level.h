#ifndef CELLM_SRC_TOKENIZER_BYTE_LEVEL_H_
#define CELLM_SRC_TOKENIZER_BYTE_LEVEL_H_

// The byte alphabet of GPT-2: every byte is written as one printable character, so that pieces of
// arbitrary bytes can stand in a text file. Bytes 33..126, 161..172 and 174..255 stand for
// themselves; the other 68 are, in order, U+0100 and up (space is U+0120).

#include <cstdint>
#include <string>
#include <string_view>

namespace cellm::tokenizer {

// Appends the character of `byte` as UTF-8 (one or two bytes).
void AppendByteLevel(uint8_t byte, std::string* out);

// True, and *out set, when the character stands for a byte.
bool ByteOfByteLevel(char32_t code_point, uint8_t* out);

// Appends what the piece stands for: its bytes when every character is of the alphabet, else the
// piece itself. Returns whether it was of the alphabet.
bool AppendByteLevelBytes(std::string_view piece, std::string* out);

// "<0x0A>": true, and *out set, when the piece is written as a byte of SentencePiece.
bool ByteOfFallbackPiece(std::string_view piece, uint8_t* out);

}  // namespace cellm::tokenizer

#endif  // CELLM_SRC_TOKENIZER_BYTE_LEVEL_H_
