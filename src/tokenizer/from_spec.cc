// Builds a tokenizer from GGUF's lists.
//
//   "gpt2"    byte-level BPE; tokenizer.ggml.pre names the split patterns
//   "llama"   SentencePiece BPE: pieces with scores; the neighbours whose joined piece has the best
//             score are joined first. Every way to cut a piece into two pieces becomes a merge, all
//             with the rank of the piece's score.
//   "gemma4"  SentencePiece writing with a list of merges
//   "bert"    WordPiece, with U+2581 before words in place of "##" before what continues one
//
// Types decide the rest: control pieces are special added tokens, user-defined ones ordinary added
// tokens. Facts about the names are those of llama.cpp's vocabulary loader; where the published
// tokenizer.json of a family normalizes its text (NFC), so do we.

#include <algorithm>
#include <string>
#include <utility>

#include "base/limits.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

namespace cellm::tokenizer {
namespace {

constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581

#define CELLM_ANY "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define CELLM_TAIL "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CELLM_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define CELLM_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CELLM_O200K(contractions, digits)                                           \
  "[^\\r\\n\\p{L}\\p{N}]?" CELLM_UPPER "*" CELLM_LOWER "+" contractions             \
  "|[^\\r\\n\\p{L}\\p{N}]?" CELLM_UPPER "+" CELLM_LOWER "*" contractions "|" digits \
  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" CELLM_TAIL

constexpr const char* kGpt2 =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
constexpr const char* kLlama3 = CELLM_ANY
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" CELLM_TAIL;
constexpr const char* kQwen2 =
    CELLM_ANY "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" CELLM_TAIL;
constexpr const char* kQwen35 = CELLM_ANY
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
    "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" CELLM_TAIL;
constexpr const char* kGpt4o = CELLM_O200K(CELLM_ANY "?", "\\p{N}{1,3}");
constexpr const char* kTekken = CELLM_O200K("", "\\p{N}");
constexpr const char* kDeepSeek3 =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" CELLM_TAIL;
constexpr const char* kHanAndKana = "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+";
constexpr const char* kHanAndHangul = "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+";

// One pre-tokenizer name: up to five patterns, applied one after the other.
struct PreName {
  std::string_view name;
  const char* patterns[5];
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;
};

constexpr PreName kPreNames[] = {
    {"default", {"[\\p{P}\\$\\+<=>\\^~\\|]+", kGpt2, "\\p{N}+", "[0-9]{3}"}},
    {"gpt-2", {kGpt2}},
    {"phi-2", {kGpt2}},
    {"olmo", {kGpt2}},
    {"mpt", {kGpt2}},
    {"jais", {kGpt2}},
    {"exaone4", {kGpt2}},
    {"modern-bert", {kGpt2}},
    {"granite-docling", {kGpt2}},
    {"trillion", {kGpt2}},
    {"smollm", {"\\p{N}", kGpt2}},
    {"starcoder", {"\\p{N}", kGpt2}},
    {"refact", {"\\p{N}", kGpt2}},
    {"codeshell", {"\\p{N}", kGpt2}},
    {"exaone", {"\\p{N}", kGpt2}},
    {"minerva-7b", {"\\p{N}", kGpt2}},
    {"command-r", {"\\p{N}", kGpt2}, true},
    {"falcon", {"[\\p{P}\\$\\+<=>\\^~\\|`]+", kGpt2, "[0-9]{3}"}},
    {"llama3", {kLlama3}, false, true, true},
    {"llama-v3", {kLlama3}, false, true, true},
    {"llama-bpe", {kLlama3}, false, true, true},
    {"falcon3", {kLlama3}, false, true, true},
    {"falcon-h1", {kLlama3}, false, true, true},
    {"pixtral", {kLlama3}, false, true, true},
    {"midm-2.0", {kLlama3}, false, true, true},
    {"lfm2", {kLlama3}, false, true, true},
    {"dbrx", {kLlama3}},
    {"smaug-bpe", {kLlama3}},
    {"glm4", {kLlama3}},
    {"chatglm-bpe", {kLlama3}},
    {"qwen2", {kQwen2}, true},
    {"deepseek-r1-qwen", {kQwen2}, true},
    {"megrez", {kQwen2}, true},
    {"hunyuan", {kQwen2}},
    {"stablelm2", {kQwen2}},
    {"grok-2", {kQwen2}},
    {"solar-open", {kQwen2}},
    {"qwen35", {kQwen35}, true},
    {"gpt-4o", {kGpt4o}},
    {"llama4", {kGpt4o}},
    {"kanana2", {kGpt4o}},
    {"tekken", {kTekken}, false, true, true},
    {"deepseek-v3", {"\\p{N}{1,3}", kHanAndKana, kDeepSeek3}},
    {"hunyuan-dense", {"\\p{N}{1,3}", kHanAndKana, kDeepSeek3}},
    {"joyai-llm", {"\\p{N}{1,3}", kHanAndKana, kDeepSeek3}},
    {"deepseek-coder", {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", kHanAndHangul, "\\p{N}"}},
};

const PreName* FindPreName(std::string_view name) {
  for (const PreName& known : kPreNames) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

TokenType TypeOf(const TokenizerSpec& spec, size_t id) {
  return spec.token_types.empty() ? TokenType::kNormal
                                  : static_cast<TokenType>(spec.token_types[id]);
}

// Merges written "left right"; the first character belongs to the left piece even if a space. What
// they name is looked up many at a time.
Status ReadMerges(const TokenizerSpec& spec, ModelParts* parts) {
  constexpr size_t kBlock = 32;
  std::string joined[kBlock];
  std::string_view pieces[3 * kBlock];
  int32_t ids[3 * kBlock];
  parts->merges.reserve(spec.merges.size());
  for (size_t begin = 0; begin < spec.merges.size(); begin += kBlock) {
    const size_t count = std::min(kBlock, spec.merges.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      const std::string_view text = spec.merges[begin + i];
      const size_t space = text.find(' ', 1);
      if (space == std::string_view::npos) {
        return Corrupt("tokenizer.ggml.merges[%zu]: \"%.60s\" is not two pieces and a space",
                       begin + i, std::string(text).c_str());
      }
      pieces[3 * i] = text.substr(0, space);
      pieces[3 * i + 1] = text.substr(space + 1);
      joined[i].assign(pieces[3 * i]);
      joined[i].append(pieces[3 * i + 1]);
      pieces[3 * i + 2] = joined[i];
    }
    parts->vocabulary.FindMany({pieces, 3 * count}, ids);
    for (size_t i = 0; i < count; ++i) {
      const MergeTable::Merge merge{ids[3 * i], ids[3 * i + 1], ids[3 * i + 2]};
      if (merge.left < 0 || merge.right < 0 || merge.result < 0) {
        return Corrupt("tokenizer.ggml.merges[%zu]: \"%.60s\" names pieces that are not there",
                       begin + i, std::string(spec.merges[begin + i]).c_str());
      }
      parts->merges.push_back(merge);
    }
  }
  return Status();
}

// All cuts of all ordinary pieces, best score first; cuts of equal score have equal rank, so that
// the leftmost goes first.
Status MergesFromScores(const TokenizerSpec& spec, ModelParts* parts) {
  if (spec.scores.size() != spec.tokens.size()) {
    return Corrupt("tokenizer.ggml.scores: %zu for %zu tokens", spec.scores.size(),
                   spec.tokens.size());
  }
  const auto ordinary = [&](int32_t id) {
    const TokenType type = TypeOf(spec, static_cast<size_t>(id));
    return type == TokenType::kNormal || type == TokenType::kUserDefined;
  };
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string_view piece = spec.tokens[id];
    if (!ordinary(static_cast<int32_t>(id)) || piece.size() > 256) continue;
    if (!(spec.scores[id] - spec.scores[id] == 0)) {
      return Corrupt("tokenizer.ggml.scores[%zu]: not a finite number", id);
    }
    for (size_t at = 1; at < piece.size(); ++at) {
      if ((static_cast<uint8_t>(piece[at]) & 0xC0) == 0x80) continue;
      const int32_t left = parts->vocabulary.Find(piece.substr(0, at));
      if (left < 0 || !ordinary(left)) continue;
      const int32_t right = parts->vocabulary.Find(piece.substr(at));
      if (right < 0 || !ordinary(right)) continue;
      parts->merges.push_back({left, right, static_cast<int32_t>(id)});
    }
  }
  const auto score = [&](const MergeTable::Merge& merge) {
    return spec.scores[static_cast<size_t>(merge.result)];
  };
  std::stable_sort(
      parts->merges.begin(), parts->merges.end(),
      [&](const MergeTable::Merge& a, const MergeTable::Merge& b) { return score(a) > score(b); });
  parts->ranks.resize(parts->merges.size());
  uint32_t rank = 0;
  for (size_t i = 0; i < parts->merges.size(); ++i) {
    if (i > 0 && score(parts->merges[i]) < score(parts->merges[i - 1])) ++rank;
    parts->ranks[i] = rank;
  }
  return Status();
}

// Pieces of a "bert" vocabulary in the writing of WordPiece.
std::vector<std::string> WordPieces(const TokenizerSpec& spec) {
  std::vector<std::string> pieces;
  pieces.reserve(spec.tokens.size());
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string_view token = spec.tokens[id];
    const bool ordinary = TypeOf(spec, id) == TokenType::kNormal;
    if (token.substr(0, kMark.size()) == kMark) {
      pieces.emplace_back(token.substr(kMark.size()));
    } else if (ordinary && !(token.size() > 2 && token.front() == '[' && token.back() == ']')) {
      pieces.push_back("##" + std::string(token));
    } else {
      pieces.emplace_back(token);
    }
  }
  return pieces;
}

Status CheckId(const char* key, int32_t id, size_t count) {
  if (id < -1 || (id >= 0 && static_cast<size_t>(id) >= count)) {
    return OutOfRange("tokenizer.ggml.%s: %d, there are %zu tokens", key, id, count);
  }
  return Status();
}

Status CheckSpec(const TokenizerSpec& spec) {
  const size_t count = spec.tokens.size();
  if (count == 0) return Corrupt("tokenizer.ggml.tokens: there are none");
  if (count > static_cast<size_t>(limits::kMaxVocabulary)) {
    return OutOfRange("tokenizer.ggml.tokens: %zu; %d at most", count, limits::kMaxVocabulary);
  }
  if (!spec.token_types.empty() && spec.token_types.size() != count) {
    return Corrupt("tokenizer.ggml.token_type: %zu for %zu tokens", spec.token_types.size(), count);
  }
  CELLM_RETURN_IF_ERROR(CheckId("bos_token_id", spec.bos_id, count));
  CELLM_RETURN_IF_ERROR(CheckId("eos_token_id", spec.eos_id, count));
  CELLM_RETURN_IF_ERROR(CheckId("unknown_token_id", spec.unknown_id, count));
  CELLM_RETURN_IF_ERROR(CheckId("seperator_token_id", spec.separator_id, count));
  CELLM_RETURN_IF_ERROR(CheckId("padding_token_id", spec.padding_id, count));
  return CheckId("cls_token_id", spec.cls_id, count);
}

}  // namespace

// Fills a Tokenizer's private parts.
class SpecLoader {
 public:
  static Result<std::unique_ptr<Tokenizer>> Load(const TokenizerSpec& spec, Allocator& allocator) {
    CELLM_RETURN_IF_ERROR(CheckSpec(spec));
    const bool sentence_piece = spec.model == "llama" || spec.model == "gemma4";
    const bool bert = spec.model == "bert";
    if (!sentence_piece && !bert && spec.model != "gpt2") {
      return Unsupported("tokenizer.ggml.model: unknown name \"%.60s\"", spec.model.c_str());
    }
    const std::string_view pre_name = spec.pre.empty() ? "default" : std::string_view(spec.pre);
    const PreName* pre = FindPreName(pre_name);
    if (spec.model == "gpt2" && pre == nullptr) {
      return Unsupported("tokenizer.ggml.pre: unknown name \"%.60s\"", spec.pre.c_str());
    }
    ModelParts parts;
    std::vector<std::string> owned;
    CELLM_RETURN_IF_ERROR(BuildVocabulary(spec, bert, &owned, allocator, &parts));
    parts.kind = bert ? ModelKind::kWordPiece : ModelKind::kBpe;
    if (spec.unknown_id >= 0) {
      parts.unknown_piece = parts.vocabulary.Piece(spec.unknown_id);
    }
    if (bert) {
      parts.continuing_prefix = std::string("##");
    } else if (spec.model == "llama") {
      CELLM_RETURN_IF_ERROR(MergesFromScores(spec, &parts));
    } else {
      CELLM_RETURN_IF_ERROR(ReadMerges(spec, &parts));
    }
    parts.byte_fallback = parts.fuse_unknown = sentence_piece;
    parts.ignore_merges = spec.model == "gpt2" && pre->ignore_merges;
    CELLM_ASSIGN_OR_RETURN(Model model, Model::Build(std::move(parts), allocator));
    std::unique_ptr<Tokenizer> tokenizer(new Tokenizer(std::move(model), allocator));
    if (bert) {
      tokenizer->normalizer_.AddBert(true, true, true, true);
      tokenizer->pre_tokenizer_.AddBert();
      tokenizer->decoder_.AddWordPiece();
    } else if (sentence_piece) {
      const bool prefix = spec.add_space_prefix != 0 && spec.model == "llama";
      if (prefix) tokenizer->normalizer_.AddPrepend(kMark);
      tokenizer->normalizer_.AddReplace(" ", kMark);
      tokenizer->decoder_.AddSentencePiece(prefix);
    } else {
      CELLM_RETURN_IF_ERROR(AddByteLevel(*pre, tokenizer.get()));
    }
    CELLM_RETURN_IF_ERROR(AddTokens(spec, tokenizer.get()));
    AddAffixes(spec, pre, bert, sentence_piece, tokenizer.get());
    return tokenizer;
  }

 private:
  static Status BuildVocabulary(const TokenizerSpec& spec, bool bert,
                                std::vector<std::string>* owned, Allocator& allocator,
                                ModelParts* parts) {
    if (bert) *owned = WordPieces(spec);
    std::vector<PieceEntry> entries;
    entries.reserve(spec.tokens.size());
    for (size_t id = 0; id < spec.tokens.size(); ++id) {
      const std::string_view piece = bert ? std::string_view((*owned)[id]) : spec.tokens[id];
      if (!IsValidUtf8(piece)) {
        return Corrupt("tokenizer.ggml.tokens[%zu]: not UTF-8", id);
      }
      entries.push_back({piece, static_cast<int32_t>(id)});
    }
    CELLM_ASSIGN_OR_RETURN(parts->vocabulary,
                           Vocabulary::Build(entries, "tokenizer.ggml.tokens", allocator));
    return Status();
  }

  static Status AddByteLevel(const PreName& pre, Tokenizer* tokenizer) {
    if (pre.nfc) tokenizer->normalizer_.AddForm(unicode::Form::kNfc);
    for (const char* pattern : pre.patterns) {
      if (pattern == nullptr) break;
      CELLM_ASSIGN_OR_RETURN(auto compiled, regex::SplitPattern::Compile(pattern));
      tokenizer->pre_tokenizer_.AddSplit(std::move(compiled));
    }
    tokenizer->pre_tokenizer_.AddByteLevel(false, false);
    tokenizer->decoder_.AddByteLevel();
    return Status();
  }

  static Status AddTokens(const TokenizerSpec& spec, Tokenizer* tokenizer) {
    std::vector<AddedToken> added;
    for (size_t id = 0; id < spec.tokens.size(); ++id) {
      const TokenType type = TypeOf(spec, id);
      const bool control = type == TokenType::kControl || type == TokenType::kUnknown;
      if ((!control && type != TokenType::kUserDefined) || spec.tokens[id].empty()) continue;
      AddedToken token;
      token.content = spec.tokens[id];
      token.id = static_cast<int32_t>(id);
      token.special = token.control = control;
      added.push_back(std::move(token));
    }
    CELLM_RETURN_IF_ERROR(tokenizer->added_.Build(std::move(added), tokenizer->normalizer_));
    for (const AddedToken& token : tokenizer->added_.tokens()) {
      if (token.control) tokenizer->model_.MarkControl(token.id);
    }
    tokenizer->vocab_size_ = static_cast<int32_t>(spec.tokens.size());
    tokenizer->bos_id_ = spec.bos_id;
    tokenizer->eos_id_ = spec.eos_id;
    tokenizer->pad_id_ = spec.padding_id;
    return Status();
  }

  static void AddAffixes(const TokenizerSpec& spec, const PreName* pre, bool bert,
                         bool sentence_piece, Tokenizer* tokenizer) {
    if (bert) {
      if (spec.cls_id >= 0) tokenizer->prefix_ids_.push_back(spec.cls_id);
      if (spec.separator_id >= 0) tokenizer->suffix_ids_.push_back(spec.separator_id);
      return;
    }
    const bool implied = sentence_piece || (pre != nullptr && pre->add_bos);
    const bool add_bos = spec.add_bos < 0 ? implied : spec.add_bos != 0;
    if (add_bos && spec.bos_id >= 0) tokenizer->prefix_ids_.push_back(spec.bos_id);
    if (spec.add_eos > 0 && spec.eos_id >= 0) tokenizer->suffix_ids_.push_back(spec.eos_id);
  }
};

Result<std::unique_ptr<Tokenizer>> Tokenizer::FromSpec(const TokenizerSpec& spec,
                                                       Allocator& allocator) {
  return SpecLoader::Load(spec, allocator);
}

}  // namespace cellm::tokenizer
