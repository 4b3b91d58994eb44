// Reads tokenizer.json.
//
// Nothing is believed: every id is bounded, every piece that a merge names must exist, and what
// this file does not know is refused by its name. Ids of added tokens follow the reference: a
// token that the vocabulary has keeps its id there; the others are numbered on from the end, in
// the order of the file, whatever the file says.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "base/limits.h"
#include "base/numbers.h"
#include "json/json.h"
#include "tokenizer/tokenizer.h"

namespace cellm::tokenizer {
namespace {

std::string Shown(std::string_view text) { return std::string(text.substr(0, 60)); }

Status ReadId(json::Value value, const std::string& field, int32_t* out) {
  int64_t id = -1;
  if (!value.GetInt64(&id)) return Corrupt("%s: expected an integer", field.c_str());
  if (id < 0 || id >= limits::kMaxVocabulary) {
    return OutOfRange("%s: id %lld; 0 to %d are possible", field.c_str(),
                      static_cast<long long>(id), limits::kMaxVocabulary - 1);
  }
  *out = static_cast<int32_t>(id);
  return Status();
}

Status ReadVocabularyObject(json::Value vocab, Allocator& allocator, Vocabulary* out) {
  if (!vocab.is_object()) return Corrupt("model.vocab: expected an object");
  std::vector<PieceEntry> entries;
  entries.reserve(vocab.size());
  for (json::Value v = vocab.First(); v.exists(); v = vocab.Next(v)) {
    PieceEntry entry{vocab.KeyOf(v), -1};
    int64_t id = -1;
    if (!v.GetInt64(&id) || id < 0 || id >= limits::kMaxVocabulary) {
      CELLM_RETURN_IF_ERROR(ReadId(v, "model.vocab[\"" + Shown(entry.piece) + "\"]", &entry.id));
    }
    entry.id = static_cast<int32_t>(id);
    entries.push_back(entry);
  }
  CELLM_ASSIGN_OR_RETURN(*out, Vocabulary::Build(entries, "model.vocab", allocator));
  return Status();
}

// The two sides of a merge, written "left right" or ["left", "right"].
Status ReadMergeSides(json::Value merge, size_t index, std::string_view* left,
                      std::string_view* right) {
  std::string_view text;
  if (merge.GetString(&text)) {
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      return Corrupt("model.merges[%zu]: \"%s\" is not two pieces and a space", index,
                     Shown(text).c_str());
    }
    *left = text.substr(0, space);
    *right = text.substr(space + 1);
    return Status();
  }
  const json::Value first = merge.is_array() ? merge.First() : json::Value();
  const json::Value second = first.exists() ? merge.Next(first) : json::Value();
  if (!first.GetString(left) || !second.GetString(right) || merge.Next(second).exists()) {
    return Corrupt("model.merges[%zu]: expected a string or a pair of strings", index);
  }
  return Status();
}

// Ids of merges, looked up in the vocabulary.
class MergeResolver {
 public:
  MergeResolver(const Vocabulary& vocabulary, size_t prefix_bytes)
      : vocabulary_(vocabulary), prefix_bytes_(prefix_bytes) {}

  // A merge whose sides have been looked up: out->left, out->right.
  Status Resolve(std::string_view left, std::string_view right, size_t index,
                 MergeTable::Merge* out) {
    if (out->left < 0) return Missing(index, left);
    if (out->right < 0) return Missing(index, right);
    const std::string_view tail = right.substr(std::min(prefix_bytes_, right.size()));
    // Results mostly come in the order of the merges, one or several merges to each.
    for (const int32_t guess : {last_result_ + 1, last_result_}) {
      const std::string_view piece = vocabulary_.Piece(guess);
      if (piece.size() == left.size() + tail.size() && piece.substr(left.size()) == tail &&
          piece.substr(0, left.size()) == left) {
        out->result = last_result_ = guess;
        return Status();
      }
    }
    joined_.assign(left);
    joined_.append(tail);
    out->result = vocabulary_.Find(joined_);
    if (out->result < 0) return Missing(index, joined_);
    last_result_ = out->result;
    return Status();
  }

 private:
  static Status Missing(size_t index, std::string_view piece) {
    return Corrupt("model.merges[%zu]: \"%s\" is not in the vocabulary", index,
                   Shown(piece).c_str());
  }
  const Vocabulary& vocabulary_;
  const size_t prefix_bytes_;
  int32_t last_result_ = -2;
  std::string joined_;
};

Status ReadBpe(json::Value model, Allocator& allocator, ModelParts* parts) {
  parts->kind = ModelKind::kBpe;
  CELLM_RETURN_IF_ERROR(ReadVocabularyObject(model.Find("vocab"), allocator, &parts->vocabulary));
  CELLM_RETURN_IF_ERROR(ReadString(model, "unk_token", &parts->unknown_piece));
  CELLM_RETURN_IF_ERROR(ReadString(model, "continuing_subword_prefix", &parts->continuing_prefix));
  CELLM_RETURN_IF_ERROR(ReadString(model, "end_of_word_suffix", &parts->end_of_word_suffix));
  CELLM_RETURN_IF_ERROR(ReadBool(model, "fuse_unk", &parts->fuse_unknown));
  CELLM_RETURN_IF_ERROR(ReadBool(model, "byte_fallback", &parts->byte_fallback));
  CELLM_RETURN_IF_ERROR(ReadBool(model, "ignore_merges", &parts->ignore_merges));
  double dropout = 0;
  const json::Value dropout_value = model.Find("dropout");
  if (dropout_value.has_value() && (!dropout_value.GetDouble(&dropout) || dropout != 0)) {
    return Unsupported("model.dropout: random merges are for training");
  }
  const json::Value merges = model.Find("merges");
  if (!merges.is_array()) return Corrupt("model.merges: expected a list");
  parts->merges.reserve(merges.size());
  MergeResolver resolver(parts->vocabulary, parts->continuing_prefix.size());
  // Sides are looked up many at a time.
  constexpr size_t kBlock = 32;
  std::string_view sides[2 * kBlock];
  int32_t ids[2 * kBlock];
  size_t index = 0;
  for (json::Value v = merges.First(); v.exists();) {
    size_t count = 0;
    for (; v.exists() && count < kBlock; v = merges.Next(v), ++count) {
      CELLM_RETURN_IF_ERROR(
          ReadMergeSides(v, index + count, &sides[2 * count], &sides[2 * count + 1]));
    }
    parts->vocabulary.FindMany({sides, 2 * count}, ids);
    for (size_t i = 0; i < count; ++i, ++index) {
      MergeTable::Merge merge{ids[2 * i], ids[2 * i + 1], -1};
      CELLM_RETURN_IF_ERROR(resolver.Resolve(sides[2 * i], sides[2 * i + 1], index, &merge));
      parts->merges.push_back(merge);
    }
  }
  return Status();
}

// The reference reads a score as its digits, one integer rounded to double, divided by a power of
// ten rounded again: for 17 digits that can miss the nearest double by one unit, and ties between
// paths of equal pieces are decided by just that. Scores are written in the shortest form that
// reads back, so the digits of the file are those of the double.
double ScoreOfReference(double score) {
  std::string text;
  AppendDouble(std::fabs(score), &text);
  const size_t mark = std::min(text.find_first_of("eE"), text.size());
  const size_t point = std::min(text.find('.'), mark);
  uint64_t digits = 0;
  for (const char c : std::string_view(text).substr(0, mark)) {
    if (c != '.') digits = digits * 10 + static_cast<uint64_t>(c - '0');
  }
  double written = 0;
  if (mark < text.size() && !ParseDouble(std::string_view(text).substr(mark + 1), &written)) {
    return score;
  }
  const int64_t fraction = point < mark ? static_cast<int64_t>(mark - point - 1) : 0;
  const int64_t exponent = static_cast<int64_t>(written) - fraction;
  // Beyond these powers, which are exact as doubles, no score is found.
  if (exponent < -22 || exponent > 22) return score;
  double power = 1;
  for (int64_t i = std::abs(exponent); i > 0; --i) power *= 10;
  const double magnitude =
      exponent < 0 ? static_cast<double>(digits) / power : static_cast<double>(digits) * power;
  return std::signbit(score) ? -magnitude : magnitude;
}

Status ReadUnigram(json::Value model, Allocator& allocator, ModelParts* parts) {
  parts->kind = ModelKind::kUnigram;
  const json::Value vocab = model.Find("vocab");
  if (!vocab.is_array() || vocab.size() == 0) return Corrupt("model.vocab: expected a list");
  if (vocab.size() > static_cast<size_t>(limits::kMaxVocabulary)) {
    return OutOfRange("model.vocab: %zu pieces", vocab.size());
  }
  std::vector<PieceEntry> entries;
  entries.reserve(vocab.size());
  for (json::Value v = vocab.First(); v.exists(); v = vocab.Next(v)) {
    std::string_view piece;
    double score = 0;
    const json::Value first = v.is_array() ? v.First() : json::Value();
    if (!first.GetString(&piece) || !v.Next(first).GetDouble(&score) || !(score - score == 0)) {
      return Corrupt("model.vocab[%zu]: expected [piece, score]", entries.size());
    }
    entries.push_back({piece, static_cast<int32_t>(entries.size())});
    parts->scores.push_back(ScoreOfReference(score));
  }
  CELLM_ASSIGN_OR_RETURN(parts->vocabulary, Vocabulary::Build(entries, "model.vocab", allocator));
  CELLM_RETURN_IF_ERROR(ReadBool(model, "byte_fallback", &parts->byte_fallback));
  if (model.Find("unk_id").has_value()) {
    CELLM_RETURN_IF_ERROR(ReadId(model.Find("unk_id"), "model.unk_id", &parts->unknown_id));
    if (static_cast<size_t>(parts->unknown_id) >= entries.size()) {
      return OutOfRange("model.unk_id: %d, the vocabulary has %zu pieces", parts->unknown_id,
                        entries.size());
    }
  }
  return Status();
}

Status ReadWordModel(json::Value model, ModelKind kind, Allocator& allocator, ModelParts* parts) {
  parts->kind = kind;
  CELLM_RETURN_IF_ERROR(ReadVocabularyObject(model.Find("vocab"), allocator, &parts->vocabulary));
  parts->unknown_piece = kind == ModelKind::kWordPiece ? "[UNK]" : "<unk>";
  CELLM_RETURN_IF_ERROR(ReadString(model, "unk_token", &parts->unknown_piece));
  if (kind == ModelKind::kWordLevel) return Status();
  parts->continuing_prefix = std::string("##");
  CELLM_RETURN_IF_ERROR(ReadString(model, "continuing_subword_prefix", &parts->continuing_prefix));
  const json::Value limit = model.Find("max_input_chars_per_word");
  int64_t max_chars = 100;
  if (limit.has_value() && (!limit.GetInt64(&max_chars) || max_chars < 0)) {
    return Corrupt("model.max_input_chars_per_word: expected a number of 0 or more");
  }
  parts->max_word_chars = static_cast<size_t>(max_chars);
  return Status();
}

Status ReadModel(json::Value model, Allocator& allocator, ModelParts* parts) {
  if (!model.is_object()) return Corrupt("model: expected an object");
  std::string type;
  CELLM_RETURN_IF_ERROR(ReadString(model, "type", &type));
  if (type.empty()) {  // older files: the fields tell
    if (model.Find("merges").exists()) {
      type = std::string("BPE");
    } else if (model.Find("vocab").is_array()) {
      type = std::string("Unigram");
    } else if (model.Find("max_input_chars_per_word").exists() ||
               model.Find("continuing_subword_prefix").exists()) {
      type = std::string("WordPiece");
    } else {
      type = std::string("WordLevel");
    }
  }
  if (type == "BPE") return ReadBpe(model, allocator, parts);
  if (type == "Unigram") return ReadUnigram(model, allocator, parts);
  if (type == "WordPiece") return ReadWordModel(model, ModelKind::kWordPiece, allocator, parts);
  if (type == "WordLevel") return ReadWordModel(model, ModelKind::kWordLevel, allocator, parts);
  return Unsupported("model: unknown type \"%s\"", Shown(type).c_str());
}

// What a post-processor puts around a text; later steps of a Sequence go around earlier ones.
struct Affixes {
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
};

Status ReadTemplate(json::Value config, Affixes* out) {
  const json::Value list = config.Find("single");
  if (!list.is_array()) return Corrupt("post_processor.single: expected a list");
  bool seen_text = false;
  for (json::Value v = list.First(); v.exists(); v = list.Next(v)) {
    std::string_view name;
    if (v.Find("Sequence").Find("id").GetString(&name)) {
      if (seen_text || name != "A") {
        return Unsupported("post_processor.single: needs the text once and no second text");
      }
      seen_text = true;
      continue;
    }
    if (!v.Find("SpecialToken").Find("id").GetString(&name)) {
      return Corrupt("post_processor.single: expected SpecialToken or Sequence");
    }
    const json::Value ids = config.Find("special_tokens").Find(name).Find("ids");
    if (!ids.is_array()) {
      return Corrupt("post_processor.special_tokens: no ids for \"%s\"", Shown(name).c_str());
    }
    for (json::Value id_value = ids.First(); id_value.exists(); id_value = ids.Next(id_value)) {
      int32_t id = -1;
      CELLM_RETURN_IF_ERROR(ReadId(id_value, "post_processor.special_tokens", &id));
      (seen_text ? out->suffix : out->prefix).push_back(id);
    }
  }
  if (!seen_text) return Unsupported("post_processor.single: leaves the text out");
  return Status();
}

Status ReadPostProcessor(json::Value config, Affixes* out) {
  if (!config.has_value()) return Status();
  CELLM_ASSIGN_OR_RETURN(const std::string type, ReadType(config, "post_processor"));
  if (type == "ByteLevel") return Status();  // only moves offsets
  if (type == "Sequence") {
    const json::Value list = config.Find("processors");
    if (!list.is_array()) return Corrupt("post_processor.processors: expected a list");
    for (json::Value v = list.First(); v.exists(); v = list.Next(v)) {
      CELLM_RETURN_IF_ERROR(ReadPostProcessor(v, out));
    }
    return Status();
  }
  Affixes around;
  if (type == "TemplateProcessing") {
    CELLM_RETURN_IF_ERROR(ReadTemplate(config, &around));
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    int32_t cls = -1, sep = -1;
    CELLM_RETURN_IF_ERROR(ReadId(config.Find("cls").At(1), "post_processor.cls", &cls));
    CELLM_RETURN_IF_ERROR(ReadId(config.Find("sep").At(1), "post_processor.sep", &sep));
    around.prefix.push_back(cls);
    around.suffix.push_back(sep);
  } else {
    return Unsupported("post_processor: unknown type \"%s\"", Shown(type).c_str());
  }
  out->prefix.insert(out->prefix.begin(), around.prefix.begin(), around.prefix.end());
  out->suffix.insert(out->suffix.end(), around.suffix.begin(), around.suffix.end());
  return Status();
}

// Gives added tokens their ids as the reference does (see the top of this file).
Status NumberAddedTokens(const Vocabulary& vocabulary, std::vector<AddedToken>* tokens) {
  std::vector<size_t> order(tokens->size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return (*tokens)[a].content < (*tokens)[b].content; });
  std::vector<size_t> first_of(order.size());  // the first token with the same content
  for (size_t i = 0; i < order.size(); ++i) {
    const bool same = i > 0 && (*tokens)[order[i]].content == (*tokens)[order[i - 1]].content;
    first_of[order[i]] = same ? first_of[order[i - 1]] : order[i];
  }
  int32_t highest = -1;
  for (size_t i = 0; i < tokens->size(); ++i) {
    AddedToken& token = (*tokens)[i];
    token.id = vocabulary.Find(token.content);
    if (token.id < 0 && first_of[i] != i) token.id = (*tokens)[first_of[i]].id;
    if (token.id < 0) token.id = highest >= vocabulary.size() ? highest + 1 : vocabulary.size();
    if (token.id >= limits::kMaxVocabulary) return OutOfRange("added_tokens: too many ids");
    highest = std::max(highest, token.id);
  }
  return Status();
}

Status ReadAddedTokens(json::Value list, const Vocabulary& vocabulary,
                       std::vector<AddedToken>* out) {
  if (!list.has_value()) return Status();
  if (!list.is_array()) return Corrupt("added_tokens: expected a list");
  if (list.size() > static_cast<size_t>(limits::kMaxVocabulary)) {
    return OutOfRange("added_tokens: %zu tokens", list.size());
  }
  for (json::Value v = list.First(); v.exists(); v = list.Next(v)) {
    AddedToken token;
    int32_t declared = -1;
    CELLM_RETURN_IF_ERROR(ReadId(v.Find("id"), "added_tokens.id", &declared));
    std::string_view content;
    if (!v.Find("content").GetString(&content)) {
      return Corrupt("added_tokens: id %d has no content", declared);
    }
    token.content = content;
    if (token.content.empty()) continue;  // the reference ignores it, too
    CELLM_RETURN_IF_ERROR(ReadBool(v, "single_word", &token.single_word));
    CELLM_RETURN_IF_ERROR(ReadBool(v, "lstrip", &token.lstrip));
    CELLM_RETURN_IF_ERROR(ReadBool(v, "rstrip", &token.rstrip));
    CELLM_RETURN_IF_ERROR(ReadBool(v, "normalized", &token.normalized));
    CELLM_RETURN_IF_ERROR(ReadBool(v, "special", &token.special));
    token.control = token.special;
    out->push_back(std::move(token));
  }
  return NumberAddedTokens(vocabulary, out);
}

// A token named in tokenizer_config.json: a string, or an object with "content".
std::string TokenName(json::Value value) {
  std::string_view text;
  if (value.is_object()) value = value.Find("content");
  return value.GetString(&text) ? std::string(text) : std::string();
}

}  // namespace

// Fills a Tokenizer's private parts.
class TokenizerLoader {
 public:
  static Result<std::unique_ptr<Tokenizer>> Load(std::string_view text, std::string_view config,
                                                 Allocator& allocator) {
    CELLM_ASSIGN_OR_RETURN(auto document, json::Document::Parse(text, "tokenizer.json"));
    const json::Value root = document->root();
    if (!root.is_object()) return Corrupt("tokenizer.json: expected an object");
    ModelParts parts;
    CELLM_RETURN_IF_ERROR(ReadModel(root.Find("model"), allocator, &parts));
    CELLM_ASSIGN_OR_RETURN(Model model, Model::Build(std::move(parts), allocator));
    std::unique_ptr<Tokenizer> tokenizer(new Tokenizer(std::move(model), allocator));
    CELLM_ASSIGN_OR_RETURN(tokenizer->normalizer_, Normalizer::FromJson(root.Find("normalizer")));
    CELLM_ASSIGN_OR_RETURN(tokenizer->pre_tokenizer_,
                           PreTokenizer::FromJson(root.Find("pre_tokenizer")));
    CELLM_ASSIGN_OR_RETURN(tokenizer->decoder_, Decoder::FromJson(root.Find("decoder")));
    std::vector<AddedToken> added;
    CELLM_RETURN_IF_ERROR(
        ReadAddedTokens(root.Find("added_tokens"), tokenizer->model_.vocabulary(), &added));
    CELLM_RETURN_IF_ERROR(tokenizer->added_.Build(std::move(added), tokenizer->normalizer_));
    Affixes affixes;
    CELLM_RETURN_IF_ERROR(ReadPostProcessor(root.Find("post_processor"), &affixes));
    tokenizer->prefix_ids_ = std::move(affixes.prefix);
    tokenizer->suffix_ids_ = std::move(affixes.suffix);
    CELLM_RETURN_IF_ERROR(ReadTruncation(root.Find("truncation"), tokenizer.get()));
    CELLM_RETURN_IF_ERROR(ReadPadding(root.Find("padding"), tokenizer.get()));
    FinishIds(tokenizer.get());
    if (!config.empty()) CELLM_RETURN_IF_ERROR(ReadConfig(config, tokenizer.get()));
    return tokenizer;
  }

  static void FinishIds(Tokenizer* tokenizer) {
    int32_t limit = tokenizer->model_.vocabulary().id_limit();
    for (const AddedToken& token : tokenizer->added_.tokens()) {
      limit = std::max(limit, token.id + 1);
      if (token.control) tokenizer->model_.MarkControl(token.id);
    }
    tokenizer->vocab_size_ = limit;
  }

 private:
  static Status ReadTruncation(json::Value config, Tokenizer* tokenizer) {
    if (!config.has_value()) return Status();
    std::string direction;
    CELLM_RETURN_IF_ERROR(ReadString(config, "direction", &direction));
    Tokenizer::Truncation& truncation = tokenizer->truncation_;
    truncation.enabled = true;
    truncation.left = direction == "Left";
    if (!config.Find("max_length").GetInt64(&truncation.max_length) || truncation.max_length < 0) {
      return Corrupt("truncation.max_length: expected a number of 0 or more");
    }
    return Status();
  }

  static Status ReadPadding(json::Value config, Tokenizer* tokenizer) {
    if (!config.has_value()) return Status();
    std::string direction;
    CELLM_RETURN_IF_ERROR(ReadString(config, "direction", &direction));
    Tokenizer::Padding& padding = tokenizer->padding_;
    padding.enabled = true;
    padding.left = direction == "Left";
    const json::Value fixed = config.Find("strategy").Find("Fixed");
    if (fixed.has_value() && !fixed.GetInt64(&padding.fixed)) padding.fixed = -1;
    const json::Value multiple = config.Find("pad_to_multiple_of");
    if (multiple.has_value() && !multiple.GetInt64(&padding.multiple_of)) padding.multiple_of = -1;
    if (padding.fixed < 0 || padding.fixed > limits::kMaxContext || padding.multiple_of < 0 ||
        padding.multiple_of > limits::kMaxContext) {
      return OutOfRange("padding: length %lld, multiple of %lld",
                        static_cast<long long>(padding.fixed),
                        static_cast<long long>(padding.multiple_of));
    }
    return ReadId(config.Find("pad_id"), "padding.pad_id", &padding.id);
  }

  // Names of the special tokens, and the BOS that tokenizers of the Llama kind take from here.
  static Status ReadConfig(std::string_view text, Tokenizer* tokenizer) {
    CELLM_ASSIGN_OR_RETURN(auto document, json::Document::Parse(text, "tokenizer_config.json"));
    const json::Value root = document->root();
    if (!root.is_object()) return Corrupt("tokenizer_config.json: expected an object");
    tokenizer->bos_id_ = tokenizer->TokenToId(TokenName(root.Find("bos_token")));
    tokenizer->eos_id_ = tokenizer->TokenToId(TokenName(root.Find("eos_token")));
    tokenizer->pad_id_ = tokenizer->TokenToId(TokenName(root.Find("pad_token")));
    bool add_bos = false;
    CELLM_RETURN_IF_ERROR(ReadBool(root, "add_bos_token", &add_bos));
    const std::string kind = TokenName(root.Find("tokenizer_class"));
    const bool reads_flag = kind.rfind("Llama", 0) == 0 || kind.rfind("Gemma", 0) == 0;
    std::vector<int32_t>& prefix = tokenizer->prefix_ids_;
    if (add_bos && reads_flag && tokenizer->bos_id_ >= 0 &&
        std::find(prefix.begin(), prefix.end(), tokenizer->bos_id_) == prefix.end()) {
      prefix.insert(prefix.begin(), tokenizer->bos_id_);
    }
    return Status();
  }
};

Result<std::unique_ptr<Tokenizer>> Tokenizer::FromJson(std::string_view tokenizer_json,
                                                       std::string_view tokenizer_config_json,
                                                       Allocator& allocator) {
  return TokenizerLoader::Load(tokenizer_json, tokenizer_config_json, allocator);
}

}  // namespace cellm::tokenizer
