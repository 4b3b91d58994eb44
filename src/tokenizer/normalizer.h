#ifndef CELLM_SRC_TOKENIZER_NORMALIZER_H_
#define CELLM_SRC_TOKENIZER_NORMALIZER_H_

// The "normalizer" of a tokenizer.json: what happens to a text before it is cut.
//
// Nested Sequences are flattened into one list of steps when the file is read; BertNormalizer
// becomes the steps it is made of.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "json/json.h"
#include "regex/split.h"
#include "tokenizer/precompiled.h"
#include "tokenizer/tracked_text.h"
#include "unicode/normalize.h"

namespace cellm::tokenizer {

// A pattern of a Replace step or a Split: a plain string or a regular expression.
struct Pattern {
  std::string literal;                         // used when regex is null
  std::unique_ptr<regex::SplitPattern> regex;  // null for a plain string

  // Appends all matches in order. An empty literal has none.
  Status FindAll(std::string_view text, std::vector<regex::Span>* out) const;
};

class Normalizer {
 public:
  // `config` is the "normalizer" value; missing and null mean no steps. Unsupported names an
  // unknown type, Corrupt a field.
  static Result<Normalizer> FromJson(json::Value config);

  bool empty() const { return steps_.empty(); }
  // Rewrites *text (valid UTF-8). Fails only when a regular expression does.
  Status Apply(TrackedText* text) const;
  // For callers without provenance.
  Result<std::string> Apply(std::string_view text) const;

  // Building blocks for formats that have no normalizer section.
  void AddReplace(std::string_view from, std::string_view to);
  void AddPrepend(std::string_view prefix);
  void AddForm(unicode::Form form);
  void AddBert(bool clean_text, bool handle_chinese_chars, bool strip_accents, bool lowercase);

 private:
  enum class Kind : uint8_t {
    kForm,
    kLowercase,
    kStripAccents,     // drops marks of all three kinds
    kStripNonSpacing,  // drops Mn only
    kNmt,
    kStrip,
    kPrepend,
    kReplace,
    kPrecompiled,
    kByteLevel,
    kBertClean,
    kBertIdeographs,
  };
  struct Step {
    Kind kind = Kind::kForm;
    unicode::Form form = unicode::Form::kNfc;
    bool left = false;    // kStrip
    bool right = false;   // kStrip
    std::string content;  // kPrepend, kReplace
    Pattern pattern;      // kReplace
    PrecompiledMap map;   // kPrecompiled
  };
  Status AddFromJson(json::Value config);
  static Status ApplyStep(const Step& step, const TrackedText& in, TrackedText* out);

  std::vector<Step> steps_;
};

// Reads {"String": ...} or {"Regex": ...}. `field` is for messages.
Result<Pattern> PatternFromJson(json::Value config, const char* field);

// Reads a member of an object: Corrupt when it is there and of another kind; the default stays
// when it is missing or null.
Status ReadBool(json::Value object, const char* key, bool* out);
Status ReadString(json::Value object, const char* key, std::string* out);
// The "type" of a component, Corrupt when there is none.
Result<std::string> ReadType(json::Value config, const char* component);

}  // namespace cellm::tokenizer

#endif  // CELLM_SRC_TOKENIZER_NORMALIZER_H_
