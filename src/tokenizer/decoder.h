#ifndef CELLM_SRC_TOKENIZER_DECODER_H_
#define CELLM_SRC_TOKENIZER_DECODER_H_

// The "decoder" of a tokenizer.json: pieces back into text. A list of steps, each from a list of
// strings to a list of strings; what is left at the end is joined.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "json/json.h"
#include "tokenizer/normalizer.h"

namespace cellm::tokenizer {

class Decoder {
 public:
  enum class Kind : uint8_t {
    kByteLevel,
    kWordPiece,
    kMetaspace,
    kBpe,
    kCtc,
    kByteFallback,
    kFuse,
    kStrip,
    kReplace,
  };
  struct Step {
    Kind kind = Kind::kFuse;
    Pattern pattern;           // kReplace; kMetaspace: literal is the mark
    std::string content;       // kReplace, kStrip: one character; kWordPiece: prefix; kBpe: suffix
    bool cleanup = true;       // kWordPiece, kCtc
    bool strips_first = true;  // kMetaspace: the first token loses its marks
    uint32_t start = 0;        // kStrip
    uint32_t stop = 0;         // kStrip
    std::string pad;           // kCtc
    std::string delimiter;     // kCtc
  };

  // `config` is the "decoder" value; missing and null mean that tokens are joined with spaces.
  static Result<Decoder> FromJson(json::Value config);

  bool empty() const { return steps_.empty() && joins_with_spaces_; }
  bool joins_with_spaces() const { return joins_with_spaces_; }
  const std::vector<Step>& steps() const { return steps_; }
  bool is_byte_level() const { return steps_.size() == 1 && steps_[0].kind == Kind::kByteLevel; }

  // The text of a list of pieces.
  Result<std::string> Decode(std::vector<std::string> tokens) const;

  // Building blocks for formats without a decoder section.
  void AddByteLevel();
  void AddSentencePiece(bool strip_first_space);
  void AddWordPiece();

 private:
  Status AddFromJson(json::Value config);
  static Status ApplyStep(const Step& step, std::vector<std::string>* tokens);

  std::vector<Step> steps_;
  bool joins_with_spaces_ = true;
};

// What one step does to one token that is number `index` of the list; only for kWordPiece,
// kMetaspace, kStrip and kReplace, which look at one token at a time.
Status ApplyToToken(const Decoder::Step& step, size_t index, std::string* token);
// True for these.
bool WorksTokenByToken(Decoder::Kind kind);

}  // namespace cellm::tokenizer

#endif  // CELLM_SRC_TOKENIZER_DECODER_H_
