// Memory that is refused: every allocation in turn, and a budget that stays small.
#include <gtest/gtest.h>

#include "constrain/support.h"
#include "support/tiny_model.h"

namespace cellm::constrain {
namespace {

constexpr char kSchema[] =
    R"({"type":"array","items":{"type":"object","properties":{"a":{},"b":{"type":"number"}}}})";

// Compiles and writes a reply; what is refused comes back as OutOfMemory.
Status CompileAndDecode(const TokenTrie& trie, Allocator& memory) {
  const auto constraint = Constraint::Compile(ConstraintKind::kJsonSchema, kSchema, trie, memory);
  if (!constraint.ok()) return constraint.status();
  Rng rng(4);
  const Decoded decoded = DecodeRandomly(*constraint.value(), trie, rng, 100);
  return decoded.status;
}

TEST(ConstraintMemory, EveryRefusalIsOutOfMemory) {
  const auto trie = MakeTrie(TextVocabulary());
  int failures = 0;
  for (int64_t n = 1; n < 2000; ++n) {
    testing::FailingAllocator memory(n);
    const Status status = CompileAndDecode(*trie, memory);
    EXPECT_EQ(memory.live_bytes(), 0) << n;
    if (!memory.failed()) {
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_GT(failures, 10);
      return;
    }
    ++failures;
    // A mask that finds no memory is tried once more with empty tables, and may then succeed.
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kOutOfMemory) << status.message();
  }
  FAIL() << "there is always one more allocation";
}

TEST(ConstraintMemory, StaysInItsBudget) {
  const auto trie = MakeTrie(TextVocabulary());
  BudgetAllocator memory(SystemAllocator(), uint64_t{8} << 20);
  MachineLimits limits;
  limits.table_bytes = size_t{256} << 10;
  limits.mask_bytes = size_t{64} << 10;
  const auto constraint = Constraint::Compile(ConstraintKind::kJsonSchema,
                                              R"({"type":"array","items":{"maxLength":500}})",
                                              *trie, memory, {}, limits);
  ASSERT_TRUE(constraint.ok()) << constraint.status().message();
  Rng rng(6);
  for (int i = 0; i < 20; ++i) {
    const Decoded decoded = DecodeRandomly(*constraint.value(), *trie, rng, 2000, 0.01);
    ASSERT_TRUE(decoded.status.ok()) << decoded.status.message();
  }
  EXPECT_GT(constraint.value()->machine().generation(), 1u);
  EXPECT_LE(memory.peak_bytes(), uint64_t{8} << 20);
}

}  // namespace
}  // namespace cellm::constrain
