#include "kv/prefix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/rng.h"

namespace cellm {
namespace {

using Tokens = std::vector<int32_t>;

TEST(PrefixTree, FindsWhatIsWithinAndWhatGoesBeyond) {
  PrefixTree tree;
  tree.Insert(7, Tokens{1, 15, 9, 4}, 3);
  tree.Insert(7, Tokens{1, 15, 9, 4, 88, 2}, 0);
  tree.Insert(7, Tokens{1, 15, 9, 4, 61}, 5);
  tree.CheckInvariants();

  PrefixTree::Match match = tree.Find(7, Tokens{1, 15, 9, 4, 88, 3});
  EXPECT_EQ(match.common, 5);
  EXPECT_EQ(match.within, 3);
  EXPECT_EQ(match.within_position, 4);
  EXPECT_EQ(match.beyond, 0);
  EXPECT_EQ(match.beyond_position, 6);

  match = tree.Find(7, Tokens{1, 15, 8});
  EXPECT_EQ(match.common, 2);
  EXPECT_EQ(match.within, PrefixTree::kNone);
  EXPECT_EQ(match.beyond, 3);

  match = tree.Find(7, Tokens{1, 15, 9, 4});
  EXPECT_EQ(match.common, 4);
  EXPECT_EQ(match.within, 3);
  EXPECT_EQ(match.beyond, 5);  // five tokens are nearer than six

  EXPECT_EQ(tree.Find(8, Tokens{1, 15}).common, 0);  // another key shares nothing
  EXPECT_EQ(tree.Find(7, Tokens{2}).common, 0);
  EXPECT_EQ(tree.At(7, Tokens{1, 15, 9, 4, 61}), 5);
  EXPECT_EQ(tree.At(7, Tokens{1, 15, 9}), PrefixTree::kNone);
}

// Against a plain list of token lists.
TEST(PrefixTree, RandomOperationsAgreeWithAList) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    PrefixTree tree;
    std::map<int32_t, std::pair<uint64_t, Tokens>> list;
    const auto draw = [&rng] {
      Tokens tokens(1 + rng.NextBelow(12));
      for (int32_t& token : tokens) token = static_cast<int32_t>(rng.NextBelow(3));
      return tokens;
    };
    for (int step = 0; step < 300; ++step) {
      const uint64_t key = rng.NextBelow(2);
      const Tokens tokens = draw();
      const PrefixTree::Match match = tree.Find(key, tokens);
      int32_t at = PrefixTree::kNone;
      int32_t common = 0;
      int32_t within = 0;
      int32_t beyond = 0;
      for (const auto& [entry, row] : list) {
        if (row.first != key) continue;
        const Tokens& other = row.second;
        const auto parted =
            std::mismatch(tokens.begin(), tokens.end(), other.begin(), other.end()).first;
        common = std::max(common, static_cast<int32_t>(parted - tokens.begin()));
        if (other == tokens) at = entry;
      }
      for (const auto& [entry, row] : list) {
        const Tokens& other = row.second;
        const int32_t length = static_cast<int32_t>(other.size());
        if (row.first != key) continue;
        if (length <= common && std::equal(other.begin(), other.end(), tokens.begin())) {
          within = std::max(within, length);
        }
        if (length > common && std::equal(tokens.begin(), tokens.begin() + common, other.begin())) {
          beyond = beyond == 0 ? length : std::min(beyond, length);
        }
      }
      ASSERT_EQ(match.common, common);
      ASSERT_EQ(match.within_position, within);
      ASSERT_EQ(match.beyond_position, beyond);
      if (within > 0) {
        ASSERT_EQ(tree.Tokens(match.within), list.at(match.within).second);
      }
      if (beyond > 0) {
        ASSERT_EQ(tree.Tokens(match.beyond), list.at(match.beyond).second);
      }
      ASSERT_EQ(tree.At(key, tokens), at);
      if (at == PrefixTree::kNone && rng.NextBelow(3) != 0) {
        int32_t entry = 0;
        while (list.contains(entry)) ++entry;
        tree.Insert(key, tokens, entry);
        list[entry] = {key, tokens};
      } else if (!list.empty() && rng.NextBelow(2) == 0) {
        auto picked = list.begin();
        std::advance(picked, static_cast<int64_t>(rng.NextBelow(list.size())));
        tree.Remove(picked->first);
        list.erase(picked);
      }
      tree.CheckInvariants();
      ASSERT_EQ(tree.size(), list.size());
    }
    while (!list.empty()) {
      tree.Remove(list.begin()->first);
      list.erase(list.begin());
      tree.CheckInvariants();
    }
    EXPECT_EQ(tree.tokens_held(), 0);
  }
}

// A conversation of many turns is one long chain: neither adding nor dropping it may recurse.
TEST(PrefixTree, LongChainsAreFreedWithoutRecursion) {
  PrefixTree tree;
  Tokens tokens;
  for (int32_t i = 0; i < 3000; ++i) {
    tokens.push_back(i);
    tree.Insert(1, tokens, i);
  }
  EXPECT_EQ(tree.Find(1, tokens).within_position, 3000);
  EXPECT_EQ(tree.tokens_held(), 3000);
}

}  // namespace
}  // namespace cellm
