#ifndef CELLM_SRC_TOKENIZER_WORD_CACHE_H_
#define CELLM_SRC_TOKENIZER_WORD_CACHE_H_

// The ids of words that were already met in this text. Prose repeats itself: nine words in ten are
// found here. One per encode call, bounded, so no lock and no growth from request to request.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cellm::tokenizer {

class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 48;

  // Sizes the cache for a text; below a few hundred bytes it stays off.
  void Prepare(size_t text_bytes);
  bool enabled() const { return !slots_.empty(); }

  // Appends the ids and says true when the word is known. *hash is for Insert().
  bool Find(std::string_view word, uint64_t* hash, std::vector<int32_t>* out) const;
  // Remembers `count` ids, unless the cache is full or the word's neighbourhood is.
  void Insert(std::string_view word, uint64_t hash, const int32_t* ids, size_t count);

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t text_offset = 0;
    uint32_t ids_offset = 0;
    uint16_t text_size = 0;  // 0: free
    uint16_t id_count = 0;
  };
  static constexpr size_t kMaxProbes = 8;
  std::vector<Slot> slots_;
  size_t used_ = 0;
  std::string texts_;
  std::vector<int32_t> ids_;
};

}  // namespace cellm::tokenizer

#endif  // CELLM_SRC_TOKENIZER_WORD_CACHE_H_
