#include "tokenizer/vocabulary.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/rng.h"

namespace cellm::tokenizer {
namespace {

// Against an ordered map: pieces, pieces cut short or gone on with, empty ones, and tables from
// none to some thousands.
TEST(Vocabulary, FindsWhatAMapFinds) {
  Rng rng(5);
  for (const size_t count : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{5000}}) {
    std::map<std::string, int32_t> expected;
    std::vector<std::string> pieces;
    while (pieces.size() < count) {
      std::string piece;
      for (uint64_t length = 1 + rng.NextBelow(12); length > 0; --length) {
        piece.push_back(
            static_cast<char>(rng.NextBelow(4) == 0 ? rng.NextBelow(256) : 'a' + rng.NextBelow(3)));
      }
      // Ids with gaps.
      const int32_t id = static_cast<int32_t>(3 * pieces.size() + rng.NextBelow(3));
      if (expected.emplace(piece, id).second) pieces.push_back(piece);
    }
    std::vector<PieceEntry> entries;
    for (const std::string& piece : pieces) entries.push_back({piece, expected[piece]});
    const auto vocabulary = Vocabulary::Build(entries, "test", SystemAllocator());
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.status().message();

    std::vector<std::string> asked = {"", "never", std::string(300, 'a')};
    for (const std::string& piece : pieces) {
      asked.push_back(piece);
      asked.push_back(piece.substr(1));
      asked.push_back(piece + "a");
    }
    const std::vector<std::string_view> views(asked.begin(), asked.end());
    std::vector<int32_t> ids(views.size(), -7);
    vocabulary->FindMany(views, ids.data());
    for (size_t i = 0; i < asked.size(); ++i) {
      const auto found = expected.find(asked[i]);
      const int32_t id = found == expected.end() ? -1 : found->second;
      ASSERT_EQ(vocabulary->Find(asked[i]), id) << asked[i];
      ASSERT_EQ(ids[i], id) << asked[i];
      if (id >= 0) {
        ASSERT_EQ(vocabulary->Piece(id), asked[i]);
      }
    }
  }
}

}  // namespace
}  // namespace cellm::tokenizer
