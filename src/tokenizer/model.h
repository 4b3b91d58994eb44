#ifndef CELLM_SRC_TOKENIZER_MODEL_H_
#define CELLM_SRC_TOKENIZER_MODEL_H_

// The "model" of a tokenizer: one word of text into ids.
//
//   BPE        starts from characters (or bytes) and joins the neighbours with the best rank
//   Unigram    the cut with the highest sum of log-probabilities
//   WordPiece  the longest piece, again and again
//   WordLevel  the whole word or nothing

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/allocator.h"
#include "base/status.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/vocabulary.h"
#include "tokenizer/word_cache.h"

namespace cellm::tokenizer {

enum class ModelKind : uint8_t { kBpe, kUnigram, kWordPiece, kWordLevel };

// What a model is made from, whatever file it came from.
struct ModelParts {
  ModelKind kind = ModelKind::kBpe;
  Vocabulary vocabulary;
  std::vector<MergeTable::Merge> merges;  // kBpe
  std::vector<uint32_t> ranks;            // kBpe: see MergeTable; empty for "rank is the index"
  std::vector<double> scores;             // kUnigram: by id
  std::string unknown_piece;              // empty: none
  int32_t unknown_id = -1;                // kUnigram; the others look unknown_piece up
  std::string continuing_prefix;          // kBpe, kWordPiece
  std::string end_of_word_suffix;         // kBpe
  bool byte_fallback = false;
  bool fuse_unknown = false;
  bool ignore_merges = false;
  size_t max_word_chars = 100;  // kWordPiece
};

// Buffers of one encode call, reused from word to word.
struct EncodeScratch {
  WordCache cache[2];     // [1]: of words in which control ids are forbidden
  size_t text_bytes = 0;  // how much text there is, for sizing the caches
  std::vector<int32_t> symbols;
  std::vector<int32_t> next;
  std::vector<int32_t> previous;
  std::vector<uint32_t> pair_rank;
  std::vector<int32_t> pair_result;
  std::vector<uint64_t> heap;
  std::string text;
  struct Path {
    double score = 0;
    int64_t start = -1;
    int32_t id = -1;
  };
  std::vector<Path> paths;
};

class Model {
 public:
  static Result<Model> Build(ModelParts parts, Allocator& allocator);

  ModelKind kind() const { return kind_; }
  const Vocabulary& vocabulary() const { return vocabulary_; }
  // True when words may be given as raw bytes in place of their byte-level writing.
  bool takes_raw_bytes() const { return takes_raw_bytes_; }

  // Appends the ids of one word (not empty, valid UTF-8, or any bytes when `raw_bytes`).
  //   allow_control  when false, no id marked by MarkControl() comes out
  // Corrupt when an unknown token is needed and the vocabulary has none. Any thread; linear up to
  // a logarithm.
  Status EncodeWord(std::string_view word, bool raw_bytes, bool allow_control,
                    EncodeScratch* scratch, std::vector<int32_t>* out) const;

  // From now on EncodeWord without allow_control avoids this id. Not while others encode.
  void MarkControl(int32_t id);
  bool has_control() const { return has_control_; }
  bool IsControl(int32_t id) const {
    return has_control_ && id >= 0 && id < vocabulary_.id_limit() &&
           control_[static_cast<size_t>(id)] != 0;
  }

 private:
  explicit Model(Allocator& allocator) : trie_(allocator) {}
  Status BuildBpe(const ModelParts& parts, Allocator& allocator);
  Status BuildTrie();
  bool MayCut(std::string_view word, size_t at) const;
  bool Allowed(int32_t id, bool allow_control) const {
    return allow_control || !has_control_ || control_[static_cast<size_t>(id)] == 0;
  }
  bool FindMerge(int32_t left, int32_t right, bool allow_control, uint32_t* rank,
                 int32_t* result) const {
    return merges_.Find(left, right, rank, result) && Allowed(*result, allow_control);
  }
  Status UnknownId(int32_t* out) const;
  Status EncodePart(std::string_view word, bool raw_bytes, bool allow_control, bool whole_word,
                    EncodeScratch* scratch, std::vector<int32_t>* out) const;
  Status EncodeUncached(std::string_view word, bool raw_bytes, bool allow_control, bool whole_word,
                        EncodeScratch* scratch, std::vector<int32_t>* out) const;
  Status StartSymbols(std::string_view word, std::vector<int32_t>* symbols) const;
  int32_t CharacterId(std::string_view character, bool first, bool last) const;
  bool FallbackIds(std::string_view text, std::vector<int32_t>* out) const;
  void MergeShort(bool allow_control, EncodeScratch* scratch, std::vector<int32_t>* out) const;
  void MergeLong(bool allow_control, EncodeScratch* scratch, std::vector<int32_t>* out) const;
  Status EncodeUnigram(std::string_view word, bool allow_control, EncodeScratch* scratch,
                       std::vector<int32_t>* out) const;
  Status AppendUnigramPiece(std::string_view piece, std::vector<int32_t>* out) const;
  Status EncodeWordPiece(std::string_view word, bool allow_control,
                         std::vector<int32_t>* out) const;

  ModelKind kind_ = ModelKind::kBpe;
  Vocabulary vocabulary_;
  MergeTable merges_;
  ByteTrie trie_;         // kUnigram, kWordPiece
  Array<double> scores_;  // kUnigram
  double unknown_score_ = 0;
  int32_t unknown_id_ = -1;
  std::string unknown_piece_;
  std::string continuing_prefix_;
  std::string end_of_word_suffix_;
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  bool takes_raw_bytes_ = false;
  bool has_control_ = false;
  bool cuts_at_marks_ = false;
  size_t max_word_chars_ = 100;
  int32_t byte_level_ids_[256] = {};  // id of the piece of each byte in the GPT-2 alphabet
  int32_t fallback_ids_[256] = {};    // id of <0xNN>
  int32_t ascii_ids_[128] = {};       // id of each ASCII character as a piece
  std::vector<char32_t> joins_mark_;  // sorted; see MayCut()
  Array<uint8_t> control_;            // by id
};

}  // namespace cellm::tokenizer

#endif  // CELLM_SRC_TOKENIZER_MODEL_H_
