#ifndef CELLM_SRC_KV_PREFIX_TREE_H_
#define CELLM_SRC_KV_PREFIX_TREE_H_

// Finds pasts by the tokens that led to them: a radix tree over token ids.
//
//   key 7 --[1 15 9 4]--(entry 3, position 4)--[88 2]--(entry 0, position 6)
//                                            \-[61]---(entry 5, position 5)
//
// An entry is a number of the caller's (a snapshot) at the position where its tokens end. Trees of
// different keys share nothing: the key says what else the past depends on (K/V format, rotary
// length, privacy). The tree owns tokens, not what the entries stand for. One thread at a time.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace cellm {

class PrefixTree {
 public:
  static constexpr int32_t kNone = -1;

  // What the tree knows of a list of tokens.
  struct Match {
    int32_t common = 0;  // longest beginning that some entry shares with it
    // The longest entry that is a beginning of it: reusable as it is.
    int32_t within = kNone;
    int32_t within_position = 0;
    // The shortest entry that goes on from `common` (longer than it): reusable if it can be cut.
    int32_t beyond = kNone;
    int32_t beyond_position = 0;
  };

  PrefixTree();
  ~PrefixTree();

  Match Find(uint64_t key, std::span<const int32_t> tokens) const;
  // The entry for exactly these tokens, or kNone.
  int32_t At(uint64_t key, std::span<const int32_t> tokens) const;
  // Requires tokens, an entry that is in no tree, and that At() these tokens there is none.
  void Insert(uint64_t key, std::span<const int32_t> tokens, int32_t entry);
  // Requires an entry that is in a tree.
  void Remove(int32_t entry);
  std::vector<int32_t> Entries(uint64_t key) const;
  // Of an entry: its tokens, from the first on.
  std::vector<int32_t> Tokens(int32_t entry) const;

  size_t size() const { return nodes_.size(); }  // entries
  // Tokens held, each shared beginning once: 4 bytes each is what the tree costs, nearly.
  int64_t tokens_held() const { return tokens_held_; }
  // Aborts when an invariant fails: labels are not empty, children begin differently, only nodes
  // with an entry or two children exist. For tests.
  void CheckInvariants() const;

 private:
  struct Node;
  // Where following `tokens` from the root of `key` ends: `matched` tokens in all, of which
  // `in_label` lie in the label of `node`.
  struct Place {
    Node* node = nullptr;
    size_t matched = 0;
    size_t in_label = 0;
  };
  Place Follow(uint64_t key, std::span<const int32_t> tokens) const;
  void Prune(Node* node);

  std::map<uint64_t, std::unique_ptr<Node>> roots_;
  std::map<int32_t, Node*> nodes_;  // entry -> where it is
  int64_t tokens_held_ = 0;
};

}  // namespace cellm

#endif  // CELLM_SRC_KV_PREFIX_TREE_H_
