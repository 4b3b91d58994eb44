#include "tokenizer/model.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "base/utf8.h"
#include "tokenizer/byte_level.h"

namespace cellm::tokenizer {
namespace {

constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581, a space in SentencePiece's writing
constexpr double kUnknownPenalty = 10.0;            // SentencePiece's kUnkPenalty
constexpr uint32_t kNoRank = UINT32_MAX;
constexpr size_t kShortWord = 64;

// The last character of a piece.
char32_t LastCharacter(std::string_view piece) {
  size_t start = piece.size();
  while (start > 0 && (static_cast<uint8_t>(piece[--start]) & 0xC0) == 0x80) {
  }
  return DecodeUtf8(piece.substr(start)).code_point;
}

}  // namespace

Result<Model> Model::Build(ModelParts parts, Allocator& allocator) {
  Model model(allocator);
  model.kind_ = parts.kind;
  model.unknown_piece_ = parts.unknown_piece;
  model.continuing_prefix_ = parts.continuing_prefix;
  model.end_of_word_suffix_ = parts.end_of_word_suffix;
  model.byte_fallback_ = parts.byte_fallback;
  model.fuse_unknown_ = parts.fuse_unknown;
  model.ignore_merges_ = parts.ignore_merges;
  model.max_word_chars_ = parts.max_word_chars;
  model.vocabulary_ = std::move(parts.vocabulary);
  model.unknown_id_ = parts.kind == ModelKind::kUnigram
                          ? parts.unknown_id
                          : model.vocabulary_.Find(parts.unknown_piece);
  for (unsigned byte = 0; byte < 256; ++byte) {
    char name[8];
    static constexpr char kHex[] = "0123456789ABCDEF";
    const char text[] = {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
    std::copy(std::begin(text), std::end(text), name);
    model.fallback_ids_[byte] = model.vocabulary_.Find({name, sizeof(text)});
  }
  if (parts.kind == ModelKind::kBpe) {
    CELLM_RETURN_IF_ERROR(model.BuildBpe(parts, allocator));
  } else if (parts.kind != ModelKind::kWordLevel) {
    CELLM_RETURN_IF_ERROR(model.BuildTrie());
  }
  if (parts.kind == ModelKind::kUnigram) {
    const size_t count = static_cast<size_t>(model.vocabulary_.id_limit());
    if (parts.scores.size() != count) return Internal("unigram: scores do not fit the pieces");
    CELLM_ASSIGN_OR_RETURN(
        model.scores_, Array<double>::Zeroed(allocator, count, MemoryClass::kTokenizer, "scores"));
    double lowest = std::numeric_limits<double>::max();
    for (size_t i = 0; i < count; ++i) {
      model.scores_[i] = parts.scores[i];
      lowest = std::min(lowest, parts.scores[i]);
    }
    model.unknown_score_ = lowest - kUnknownPenalty;
  }
  return model;
}

Status Model::BuildBpe(const ModelParts& parts, Allocator& allocator) {
  CELLM_ASSIGN_OR_RETURN(merges_, MergeTable::Build(parts.merges, parts.ranks, allocator));
  takes_raw_bytes_ = continuing_prefix_.empty() && end_of_word_suffix_.empty();
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string piece;
    AppendByteLevel(static_cast<uint8_t>(byte), &piece);
    byte_level_ids_[byte] = vocabulary_.Find(piece);
    if (byte_level_ids_[byte] < 0) takes_raw_bytes_ = false;
    if (byte < 128) {
      const char c = static_cast<char>(byte);
      ascii_ids_[byte] = vocabulary_.Find({&c, 1});
    }
  }
  // Where may a long text be cut in front of a mark (a space) without changing the result? Where
  // no merge ever joins something that ends as the left side does with something that starts with
  // the mark. joins_mark_ lists the characters for which such a merge exists.
  cuts_at_marks_ =
      continuing_prefix_.empty() && end_of_word_suffix_.empty() && vocabulary_.Find(kMark) >= 0;
  for (size_t i = 0; cuts_at_marks_ && i < merges_.size(); ++i) {
    const MergeTable::Merge& merge = merges_.merge(i);
    if (vocabulary_.Piece(merge.right).substr(0, kMark.size()) == kMark) {
      joins_mark_.push_back(LastCharacter(vocabulary_.Piece(merge.left)));
    }
  }
  std::sort(joins_mark_.begin(), joins_mark_.end());
  joins_mark_.erase(std::unique(joins_mark_.begin(), joins_mark_.end()), joins_mark_.end());
  return Status();
}

Status Model::BuildTrie() {
  for (int32_t id = 0; id < vocabulary_.id_limit(); ++id) {
    const std::string_view piece = vocabulary_.Piece(id);
    if (!piece.empty()) CELLM_RETURN_IF_ERROR(trie_.Add(piece, id, "model.vocab"));
  }
  return Status();
}

void Model::MarkControl(int32_t id) {
  if (id < 0 || id >= vocabulary_.id_limit()) return;
  if (control_.empty()) {
    Result<Array<uint8_t>> flags =
        Array<uint8_t>::Zeroed(SystemAllocator(), static_cast<size_t>(vocabulary_.id_limit()),
                               MemoryClass::kTokenizer, "control ids");
    if (!flags.ok()) return;
    control_ = std::move(*flags);
  }
  control_[static_cast<size_t>(id)] = 1;
  has_control_ = true;
}

Status Model::UnknownId(int32_t* out) const {
  if (unknown_id_ < 0) {
    return Corrupt("model.unk_token: \"%.60s\" is needed and not in the vocabulary",
                   unknown_piece_.c_str());
  }
  *out = unknown_id_;
  return Status();
}

// `at` is where a mark starts, inside the word.
bool Model::MayCut(std::string_view word, size_t at) const {
  size_t start = at;
  while (start > 0 && (static_cast<uint8_t>(word[--start]) & 0xC0) == 0x80) {
  }
  const std::string_view before = word.substr(start, at - start);
  // An unknown character on the left may be fused or written as bytes: leave it alone.
  const int32_t id = before.size() == 1 ? ascii_ids_[static_cast<uint8_t>(before[0]) & 0x7F]
                                        : vocabulary_.Find(before);
  if (id < 0) return false;
  const char32_t c = DecodeUtf8(before).code_point;
  return !std::binary_search(joins_mark_.begin(), joins_mark_.end(), c);
}

Status Model::EncodeWord(std::string_view word, bool raw_bytes, bool allow_control,
                         EncodeScratch* scratch, std::vector<int32_t>* out) const {
  if (raw_bytes || !cuts_at_marks_ || word.find(kMark, 1) == std::string_view::npos) {
    return EncodePart(word, raw_bytes, allow_control, true, scratch, out);
  }
  if (ignore_merges_) {
    const int32_t id = vocabulary_.Find(word);
    if (id >= 0 && Allowed(id, allow_control)) {
      out->push_back(id);
      return Status();
    }
  }
  size_t begin = 0;
  for (size_t at = word.find(kMark, 1); at != std::string_view::npos;
       at = word.find(kMark, at + 1)) {
    if (!MayCut(word, at)) continue;
    CELLM_RETURN_IF_ERROR(
        EncodePart(word.substr(begin, at - begin), false, allow_control, false, scratch, out));
    begin = at;
  }
  return EncodePart(word.substr(begin), false, allow_control, false, scratch, out);
}

Status Model::EncodePart(std::string_view word, bool raw_bytes, bool allow_control, bool whole_word,
                         EncodeScratch* scratch, std::vector<int32_t>* out) const {
  WordCache& cache = scratch->cache[has_control_ && !allow_control ? 1 : 0];
  if (!cache.enabled()) cache.Prepare(scratch->text_bytes);
  if (!cache.enabled() || word.size() > WordCache::kMaxWordBytes) {
    return EncodeUncached(word, raw_bytes, allow_control, whole_word, scratch, out);
  }
  uint64_t hash = 0;
  if (cache.Find(word, &hash, out)) return Status();
  const size_t before = out->size();
  CELLM_RETURN_IF_ERROR(EncodeUncached(word, raw_bytes, allow_control, whole_word, scratch, out));
  cache.Insert(word, hash, out->data() + before, out->size() - before);
  return Status();
}

Status Model::EncodeUncached(std::string_view word, bool raw_bytes, bool allow_control,
                             bool whole_word, EncodeScratch* scratch,
                             std::vector<int32_t>* out) const {
  switch (kind_) {
    case ModelKind::kBpe:
      break;
    case ModelKind::kUnigram:
      return EncodeUnigram(word, allow_control, scratch, out);
    case ModelKind::kWordPiece:
      return EncodeWordPiece(word, allow_control, out);
    case ModelKind::kWordLevel: {
      int32_t id = vocabulary_.Find(word);
      if (id < 0 || !Allowed(id, allow_control)) CELLM_RETURN_IF_ERROR(UnknownId(&id));
      out->push_back(id);
      return Status();
    }
  }
  if (ignore_merges_ && whole_word) {
    std::string_view piece = word;
    if (raw_bytes) {
      scratch->text.clear();
      for (const char c : word) AppendByteLevel(static_cast<uint8_t>(c), &scratch->text);
      piece = scratch->text;
    }
    const int32_t id = vocabulary_.Find(piece);
    if (id >= 0 && Allowed(id, allow_control)) {
      out->push_back(id);
      return Status();
    }
  }
  scratch->symbols.clear();
  if (raw_bytes) {
    for (const char c : word) {
      scratch->symbols.push_back(byte_level_ids_[static_cast<uint8_t>(c)]);
    }
  } else {
    CELLM_RETURN_IF_ERROR(StartSymbols(word, &scratch->symbols));
  }
  if (scratch->symbols.size() <= kShortWord) {
    MergeShort(allow_control, scratch, out);
  } else {
    MergeLong(allow_control, scratch, out);
  }
  return Status();
}

int32_t Model::CharacterId(std::string_view character, bool first, bool last) const {
  const bool prefixed = !first && !continuing_prefix_.empty();
  const bool suffixed = last && !end_of_word_suffix_.empty();
  if (!prefixed && !suffixed) {
    return character.size() == 1 ? ascii_ids_[static_cast<uint8_t>(character[0]) & 0x7F]
                                 : vocabulary_.Find(character);
  }
  std::string piece = prefixed ? continuing_prefix_ : std::string();
  piece += character;
  if (suffixed) piece += end_of_word_suffix_;
  return vocabulary_.Find(piece);
}

bool Model::FallbackIds(std::string_view text, std::vector<int32_t>* out) const {
  for (const char c : text) {
    if (fallback_ids_[static_cast<uint8_t>(c)] < 0) return false;
  }
  for (const char c : text) out->push_back(fallback_ids_[static_cast<uint8_t>(c)]);
  return true;
}

// One symbol a character. Unknown characters become bytes where the vocabulary has all of them,
// else one unknown token, which is held back until something known follows (so that the next
// unknown one can fuse with it) and which bytes overtake: the reference does the same.
Status Model::StartSymbols(std::string_view word, std::vector<int32_t>* symbols) const {
  bool pending = false;
  int32_t unknown = -1;
  const bool plain = continuing_prefix_.empty() && end_of_word_suffix_.empty();
  std::string affixed;
  for (size_t at = 0; at < word.size();) {
    const size_t size = DecodeUtf8(word.substr(at)).byte_count;
    const std::string_view character = word.substr(at, size);
    const bool first = at == 0;
    const bool last = at + size == word.size();
    at += size;
    const int32_t id = CharacterId(character, first, last);
    if (id >= 0) {
      if (pending) symbols->push_back(unknown);
      pending = false;
      symbols->push_back(id);
      continue;
    }
    if (byte_fallback_) {
      std::string_view spelled = character;
      if (!plain) {
        affixed = (first ? "" : continuing_prefix_) + std::string(character) +
                  (last ? end_of_word_suffix_ : "");
        spelled = affixed;
      }
      if (FallbackIds(spelled, symbols)) continue;
    }
    if (unknown_piece_.empty()) continue;
    CELLM_RETURN_IF_ERROR(UnknownId(&unknown));
    if (pending && !fuse_unknown_) symbols->push_back(unknown);
    pending = true;
  }
  if (pending) symbols->push_back(unknown);
  return Status();
}

// Few symbols: look through all pairs each time. The leftmost of the best rank is joined first.
void Model::MergeShort(bool allow_control, EncodeScratch* scratch,
                       std::vector<int32_t>* out) const {
  int32_t ids[kShortWord];
  uint32_t rank[kShortWord];
  int32_t result[kShortWord];
  size_t count = scratch->symbols.size();
  std::copy(scratch->symbols.begin(), scratch->symbols.end(), ids);
  const auto rate = [&](size_t i) {
    if (!FindMerge(ids[i], ids[i + 1], allow_control, &rank[i], &result[i])) rank[i] = kNoRank;
  };
  for (size_t i = 0; i + 1 < count; ++i) rate(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (rank[i] < rank[best]) best = i;
    }
    if (rank[best] == kNoRank) break;
    ids[best] = result[best];
    for (size_t i = best + 1; i + 1 < count; ++i) {
      ids[i] = ids[i + 1];
      rank[i] = rank[i + 1];
      result[i] = result[i + 1];
    }
    --count;
    if (best + 1 < count) rate(best);
    if (best > 0) rate(best - 1);
  }
  out->insert(out->end(), ids, ids + count);
}

// Many symbols: a linked list and a heap of (rank, position). Entries of pairs that have changed
// since stay in the heap and are recognised by their rank when they come up.
void Model::MergeLong(bool allow_control, EncodeScratch* scratch, std::vector<int32_t>* out) const {
  const size_t count = scratch->symbols.size();
  std::vector<int32_t>& ids = scratch->symbols;
  std::vector<int32_t>& next = scratch->next;
  std::vector<int32_t>& previous = scratch->previous;
  std::vector<uint32_t>& rank = scratch->pair_rank;
  std::vector<int32_t>& result = scratch->pair_result;
  std::vector<uint64_t>& heap = scratch->heap;
  next.resize(count);
  previous.resize(count);
  rank.assign(count, kNoRank);
  result.resize(count);
  heap.clear();
  const auto rate = [&](int32_t at) {
    const size_t i = static_cast<size_t>(at);
    rank[i] = kNoRank;
    if (next[i] < 0) return false;
    return FindMerge(ids[i], ids[static_cast<size_t>(next[i])], allow_control, &rank[i], &result[i])
               ? true
               : (rank[i] = kNoRank, false);
  };
  const auto key = [&](int32_t at) {
    return (static_cast<uint64_t>(rank[static_cast<size_t>(at)]) << 32) | static_cast<uint32_t>(at);
  };
  for (size_t i = 0; i < count; ++i) {
    next[i] = i + 1 < count ? static_cast<int32_t>(i + 1) : -1;
    previous[i] = static_cast<int32_t>(i) - 1;
  }
  for (size_t i = 0; i < count; ++i) {
    if (rate(static_cast<int32_t>(i))) heap.push_back(key(static_cast<int32_t>(i)));
  }
  constexpr std::greater<uint64_t> kSmallestFirst;
  std::make_heap(heap.begin(), heap.end(), kSmallestFirst);
  const auto push = [&](int32_t at) {
    if (at < 0 || !rate(at)) return;
    heap.push_back(key(at));
    std::push_heap(heap.begin(), heap.end(), kSmallestFirst);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), kSmallestFirst);
    const uint64_t top = heap.back();
    heap.pop_back();
    const size_t i = static_cast<size_t>(top & UINT32_MAX);
    if (ids[i] < 0 || rank[i] != top >> 32) continue;
    const size_t gone = static_cast<size_t>(next[i]);
    ids[i] = result[i];
    ids[gone] = -1;
    rank[gone] = kNoRank;
    next[i] = next[gone];
    if (next[i] >= 0) previous[static_cast<size_t>(next[i])] = static_cast<int32_t>(i);
    push(static_cast<int32_t>(i));
    push(previous[i]);
  }
  for (const int32_t id : ids) {
    if (id >= 0) out->push_back(id);
  }
}

Status Model::AppendUnigramPiece(std::string_view piece, std::vector<int32_t>* out) const {
  const int32_t id = vocabulary_.Find(piece);
  if (id >= 0) {
    out->push_back(id);
    return Status();
  }
  if (byte_fallback_ && FallbackIds(piece, out)) return Status();
  int32_t unknown = -1;
  CELLM_RETURN_IF_ERROR(UnknownId(&unknown));
  out->push_back(unknown);
  return Status();
}

// Viterbi over byte positions: paths[e] is the best way to reach byte e.
Status Model::EncodeUnigram(std::string_view word, bool allow_control, EncodeScratch* scratch,
                            std::vector<int32_t>* out) const {
  std::vector<EncodeScratch::Path>& paths = scratch->paths;
  paths.assign(word.size() + 1, EncodeScratch::Path());
  const auto offer = [&](size_t start, size_t end, double score, int32_t id) {
    EncodeScratch::Path& path = paths[end];
    if (path.start < 0 || score > path.score) {
      path = {score, static_cast<int64_t>(start), id};
    }
  };
  for (size_t start = 0; start < word.size();) {
    const double base = paths[start].score;
    const size_t char_size = DecodeUtf8(word.substr(start)).byte_count;
    bool has_single = false;
    int32_t node = ByteTrie::kRoot;
    for (size_t at = start; at < word.size(); ++at) {
      node = trie_.Step(node, static_cast<uint8_t>(word[at]));
      if (node == ByteTrie::kNone) break;
      const int32_t id = trie_.Value(node);
      if (id == ByteTrie::kNone || !Allowed(id, allow_control)) continue;
      offer(start, at + 1, base + scores_[static_cast<size_t>(id)], id);
      if (at + 1 - start == char_size) has_single = true;
    }
    if (!has_single) {
      int32_t unknown = -1;
      CELLM_RETURN_IF_ERROR(UnknownId(&unknown));
      offer(start, start + char_size, base + unknown_score_, unknown);
    }
    start += char_size;
  }
  // Back along the best path; neighbouring unknown characters are one piece.
  std::vector<size_t> ends;
  for (size_t end = word.size(); end > 0;) {
    const EncodeScratch::Path& path = paths[end];
    if (path.start < 0) return Corrupt("model.vocab: a piece ends inside a character");
    const bool unknown = path.id == unknown_id_;
    size_t begin = static_cast<size_t>(path.start);
    while (unknown && begin > 0 && paths[begin].id == unknown_id_) {
      begin = static_cast<size_t>(paths[begin].start);
    }
    ends.push_back(end);
    end = begin;
  }
  size_t begin = 0;
  for (size_t i = ends.size(); i-- > 0;) {
    CELLM_RETURN_IF_ERROR(AppendUnigramPiece(word.substr(begin, ends[i] - begin), out));
    begin = ends[i];
  }
  return Status();
}

Status Model::EncodeWordPiece(std::string_view word, bool allow_control,
                              std::vector<int32_t>* out) const {
  size_t char_count = 0;
  for (const char c : word) char_count += (static_cast<uint8_t>(c) & 0xC0) != 0x80 ? 1 : 0;
  const size_t before = out->size();
  bool bad = char_count > max_word_chars_;
  for (size_t start = 0; start < word.size() && !bad;) {
    int32_t node = start == 0 ? ByteTrie::kRoot : trie_.Walk(continuing_prefix_);
    size_t best_end = start;
    int32_t best = -1;
    for (size_t at = start; at < word.size() && node != ByteTrie::kNone; ++at) {
      node = trie_.Step(node, static_cast<uint8_t>(word[at]));
      if (node == ByteTrie::kNone) break;
      const int32_t id = trie_.Value(node);
      if (id != ByteTrie::kNone && Allowed(id, allow_control)) {
        best = id;
        best_end = at + 1;
      }
    }
    bad = best < 0;
    if (!bad) out->push_back(best);
    start = best_end;
  }
  if (!bad) return Status();
  out->resize(before);
  int32_t unknown = -1;
  CELLM_RETURN_IF_ERROR(UnknownId(&unknown));
  out->push_back(unknown);
  return Status();
}

}  // namespace cellm::tokenizer
