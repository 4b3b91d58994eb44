#ifndef CELLM_SRC_TOKENIZER_TOKENIZER_H_
#define CELLM_SRC_TOKENIZER_TOKENIZER_H_

// Text into token ids and back.
//
//   text -> added tokens -> normalizer -> added tokens -> pre-tokenizer -> model -> ids
//           (raw text)                    (normalized)     (words)
//
// Behaviour is that of the Rust library `tokenizers` for the same tokenizer.json, with one
// addition: provenance. Text of which a user may be the author is marked as not trusted, and in it
// control tokens (special ones and those that end a turn) are ordinary characters.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/allocator.h"
#include "base/status.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/decoder.h"
#include "tokenizer/model.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/spec.h"

namespace cellm::tokenizer {

struct EncodeOptions {
  // Adds what the post-processor adds: BOS, [CLS] ... [SEP].
  bool add_special = false;
  // Recognises every added token that is spelled out in the text. When false, control tokens are
  // not recognised and ordinary added tokens are.
  bool parse_special = false;
  // Applies the truncation and padding that the file asks for. The reference's bare library does,
  // the programs that use it switch both off.
  bool truncate_and_pad = false;
};

// A stretch of a text with one author.
struct Segment {
  std::string_view text;
  bool trusted = false;
};

class Tokenizer {
 public:
  // From the texts of tokenizer.json and, where there is one, tokenizer_config.json (else empty).
  //   Corrupt, OutOfRange  names the field that is wrong
  //   Unsupported          names the component that is unknown
  //   OutOfMemory          the tables are refused by `allocator`, which must outlive the tokenizer
  static Result<std::unique_ptr<Tokenizer>> FromJson(std::string_view tokenizer_json,
                                                     std::string_view tokenizer_config_json,
                                                     Allocator& allocator = SystemAllocator());
  // From what a GGUF header holds.
  static Result<std::unique_ptr<Tokenizer>> FromSpec(const TokenizerSpec& spec,
                                                     Allocator& allocator = SystemAllocator());

  // The ids of a text. Ill-formed UTF-8 becomes U+FFFD first. Time is linear in the text up to a
  // logarithm, memory linear; no recursion. Any thread.
  Result<std::vector<int32_t>> Encode(std::string_view text, const EncodeOptions& options) const;

  // The ids of the segments' concatenation, cut and normalized as one text. Control tokens are
  // recognised only where every character is trusted; options.parse_special is not looked at. When
  // no control token is spelled in segments that are not trusted, the result is that of Encode()
  // with parse_special.
  Result<std::vector<int32_t>> Encode(std::span<const Segment> segments,
                                      const EncodeOptions& options) const;

  // The text of ids. Ids outside the vocabulary are dropped, and with `skip_special` special
  // tokens are, too.
  Result<std::string> Decode(std::span<const int32_t> ids, bool skip_special) const;

  // One more than the largest id, added tokens included.
  int32_t vocab_size() const { return vocab_size_; }
  // -1 when there is no such piece. `piece` is as in the file (byte-level alphabet, U+2581).
  int32_t TokenToId(std::string_view piece) const;
  // The piece as in the file; empty for gaps and ids outside. Lives as long as the tokenizer.
  std::string_view IdToToken(int32_t id) const;
  bool IsSpecial(int32_t id) const;
  // Special, or marked by MarkControl().
  bool IsControl(int32_t id) const;
  const std::vector<AddedToken>& added_tokens() const { return added_.tokens(); }

  // The bytes that a token stands for in the middle of a text; may be part of a character. For
  // constrained output and log-probabilities. Empty for gaps.
  std::string TokenBytes(int32_t id) const;

  // Declares an id as one that ends a turn or otherwise controls the model, so that text without
  // trust cannot spell it. Call for every end token before sharing the tokenizer between threads.
  void MarkControl(int32_t id);

  // What add_special puts before and after a text.
  const std::vector<int32_t>& prefix_ids() const { return prefix_ids_; }
  const std::vector<int32_t>& suffix_ids() const { return suffix_ids_; }
  // As named by tokenizer_config.json or GGUF; -1 when they are not.
  int32_t bos_id() const { return bos_id_; }
  int32_t eos_id() const { return eos_id_; }
  int32_t pad_id() const { return pad_id_; }

  // For decoders: the piece to decode, empty when the id adds nothing.
  std::string_view DecodedPiece(int32_t id, bool skip_special) const;
  const Decoder& decoder() const { return decoder_; }

 private:
  struct Truncation {
    bool enabled = false;
    bool left = false;
    int64_t max_length = 0;
  };
  struct Padding {
    bool enabled = false;
    bool left = false;
    int64_t fixed = 0;  // 0: to the longest of a batch, which is the text itself
    int64_t multiple_of = 0;
    int32_t id = 0;
  };
  friend class TokenizerLoader;
  friend class SpecLoader;

  Tokenizer(Model model, Allocator& allocator) : model_(std::move(model)), added_(allocator) {}
  Status EncodeInto(const TrackedText& text, bool allow_control, EncodeScratch* scratch,
                    std::vector<int32_t>* out) const;
  Status EncodeSection(TrackedText section, bool at_start, bool allow_control,
                       EncodeScratch* scratch, std::vector<int32_t>* out) const;
  Status EncodeWords(TrackedText text, bool at_start, bool allow_control, EncodeScratch* scratch,
                     std::vector<int32_t>* out) const;
  Result<std::vector<int32_t>> Finish(std::vector<int32_t> ids, const EncodeOptions& options) const;

  Model model_;
  AddedTokens added_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  Decoder decoder_;
  std::vector<int32_t> prefix_ids_;
  std::vector<int32_t> suffix_ids_;
  Truncation truncation_;
  Padding padding_;
  int32_t vocab_size_ = 0;
  int32_t bos_id_ = -1;
  int32_t eos_id_ = -1;
  int32_t pad_id_ = -1;
};

}  // namespace cellm::tokenizer

#endif  // CELLM_SRC_TOKENIZER_TOKENIZER_H_
