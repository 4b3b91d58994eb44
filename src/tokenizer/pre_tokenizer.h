#ifndef CELLM_SRC_TOKENIZER_PRE_TOKENIZER_H_
#define CELLM_SRC_TOKENIZER_PRE_TOKENIZER_H_

// The "pre_tokenizer" of a tokenizer.json: cuts a text into words that the model then encodes one
// by one. Nested Sequences are one flat list of steps.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "json/json.h"
#include "regex/split.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/tracked_text.h"

namespace cellm::tokenizer {

// A text and the words in it, in order. Words are not empty and do not overlap; what lies between
// them is dropped.
struct CutText {
  TrackedText text;
  std::vector<regex::Span> words;
  // True when the words are still raw bytes whose byte-level writing was left to the model.
  bool raw_bytes = false;
};

class PreTokenizer {
 public:
  // `config` is the "pre_tokenizer" value; missing and null mean one word.
  static Result<PreTokenizer> FromJson(json::Value config);

  // Cuts cut->text (valid UTF-8) and fills cut->words.
  //   at_start        the text is the very start of what is encoded (Metaspace "first")
  //   defer_bytes     a ByteLevel step that is the last one leaves its rewriting out and sets
  //                   cut->raw_bytes
  // Fails only when a regular expression does.
  Status Apply(CutText* cut, bool at_start, bool defer_bytes) const;

  // True when the last step writes bytes in the GPT-2 alphabet.
  bool ends_in_byte_level() const {
    return !steps_.empty() && steps_.back().kind == Kind::kByteLevel;
  }

  // Building blocks for formats that have no pre_tokenizer section.
  void AddSplit(regex::SplitPattern pattern);
  void AddByteLevel(bool add_prefix_space, bool use_regex);
  void AddDigits();
  void AddBert();

 private:
  enum class Kind : uint8_t {
    kWhitespace,
    kWhitespaceSplit,
    kBert,
    kUnicodeScripts,
    kDigits,
    kPunctuation,
    kSplit,
    kByteLevel,
    kMetaspace,
    kFixedLength,
  };
  enum class Behavior : uint8_t {
    kRemoved,
    kIsolated,
    kMergedWithPrevious,
    kMergedWithNext,
    kContiguous,
  };
  enum class Prepend : uint8_t { kNever, kFirst, kAlways };
  struct Step {
    Kind kind = Kind::kSplit;
    Pattern pattern;  // kSplit; kMetaspace: literal is the replacement
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;
    bool individual = false;             // kDigits
    bool add_prefix_space = true;        // kByteLevel
    bool use_regex = true;               // kByteLevel
    bool split = true;                   // kMetaspace
    Prepend prepend = Prepend::kAlways;  // kMetaspace
    uint32_t length = 5;                 // kFixedLength
  };

  Status AddFromJson(json::Value config);
  static Status ReadMetaspace(json::Value config, Step* step);
  static Status ReadBehavior(json::Value config, Behavior* out);
  static Status ApplyStep(const Step& step, bool at_start, bool defer_bytes, CutText* cut);
  static Status ApplySplit(const Step& step, CutText* cut);
  static Status ApplyByteLevel(const Step& step, bool defer_bytes, CutText* cut);
  static Status ApplyMetaspace(const Step& step, bool at_start, CutText* cut);
  static void ApplyScripts(CutText* cut);
  static void CutAround(const std::vector<regex::Span>& matches, regex::Span word,
                        Behavior behavior, bool invert, std::vector<regex::Span>* out);

  std::vector<Step> steps_;
};

}  // namespace cellm::tokenizer

#endif  // CELLM_SRC_TOKENIZER_PRE_TOKENIZER_H_
