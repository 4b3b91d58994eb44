#ifndef CELLM_SRC_TOKENIZER_STREAM_DECODER_H_
#define CELLM_SRC_TOKENIZER_STREAM_DECODER_H_

// Text that becomes visible token by token.
//
// A character may be spread over several tokens; its bytes are held back until it is complete or
// cannot become so. What was shown is never taken back. The pieces joined equal Decode() of all
// ids, with one exception that taking back would need: a run of SentencePiece byte tokens that
// turns out not to be UTF-8 after complete characters of it were shown (Decode() would replace
// these, too).

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "tokenizer/tokenizer.h"

namespace cellm::tokenizer {

class StreamDecoder {
 public:
  // `tokenizer` must outlive the decoder. One thread. `goes_on`: the text continues one before it,
  // so the first token is shown as any other (Tokenizer::TokenBytes()): a space at its start stays.
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special, bool goes_on = false);

  // True when what is shown is TokenBytes() of each token, one after the other: all decoders but
  // those that look at whole texts.
  static bool KnowsTokenTexts(const Tokenizer& tokenizer) {
    return ModeFor(tokenizer.decoder()) != Mode::kWhole;
  }

  // The text that this id adds; may be empty. Ids outside the vocabulary add nothing.
  Result<std::string> Push(int32_t id);
  // What is still held back: the end of a broken character becomes U+FFFD. Then starts anew.
  Result<std::string> Flush();

 private:
  enum class Mode : uint8_t {
    kBytes,   // byte-level: tokens are bytes
    kTokens,  // steps that look at one token, then perhaps byte tokens, Fuse and Strip
    kWhole,   // anything else: decode all ids each time (quadratic; no published decoder)
  };
  static Mode ModeFor(const Decoder& decoder);
  void TakeBytes(std::string* out);
  void TakeRunByte(uint8_t byte, std::string* out);
  void EndRun(std::string* out);
  void EmitStripped(std::string_view text, std::string* out);
  Result<std::string> PushToken(int32_t id);
  Result<std::string> PushWhole(bool flush);

  const Tokenizer& tokenizer_;
  const bool skip_special_;
  const bool goes_on_;
  const Mode mode_;
  bool byte_fallback_ = false;
  bool fuses_ = false;
  std::string strip_content_;
  uint32_t strip_start_ = 0;

  size_t index_ = 0;         // of the next token among those that count
  std::string held_;         // bytes that wait
  bool run_broken_ = false;  // this run of byte tokens is not UTF-8
  uint32_t strip_left_ = 0;
  std::vector<int32_t> ids_;  // kWhole
  std::string shown_;         // kWhole
};

}  // namespace cellm::tokenizer

#endif  // CELLM_SRC_TOKENIZER_STREAM_DECODER_H_
