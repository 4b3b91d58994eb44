// What the budget does not count, the plain heap of sessions and requests, stays within the bound
// that docs/memory.md states.
#include <gtest/gtest.h>
#include <malloc.h>

#include <string>
#include <vector>

#include "cellm/cellm.h"
#include "support/c_api.h"
#include "support/paths.h"
#include "support/tiny_model.h"

namespace cellm {
namespace {

using ::cellm::testing::EnginePtr;
using ::cellm::testing::ModelPtr;
using ::cellm::testing::RequestPtr;
using ::cellm::testing::SessionPtr;

// Bytes that the program's heap holds now, memory of the budget among them.
uint64_t HeapBytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

uint64_t Counted(const EnginePtr& engine) {
  cellm_memory memory = CELLM_MEMORY_INIT;
  EXPECT_EQ(cellm_engine_get_memory(engine.get(), &memory, nullptr), CELLM_OK);
  return memory.weights + memory.cache + memory.activations + memory.other;
}

TEST(Heap, SessionsAndRequestsStayWithinTheirBound) {
  if (HeapBytes() == 0) GTEST_SKIP() << "SKIPPED: this build's heap does not say what it holds";
  const ModelPtr model = testing::OpenModelAt(testing::TestData("zoo/llama"));
  cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
  options.threads = 1;
  options.chunk_tokens = 64;
  // Memory of the budget comes from elsewhere, so that the heap holds only what is not counted.
  options.allocate = [](size_t bytes, size_t alignment, void*) -> void* {
    return ::aligned_alloc(std::max<size_t>(alignment, 64), (bytes + 63) / 64 * 64);
  };
  options.release = [](void* pointer, size_t, void*) { ::free(pointer); };
  const EnginePtr engine = testing::OpenEngineOf(model, options);
  ASSERT_NE(engine, nullptr);
  const uint64_t before = HeapBytes() - Counted(engine);

  constexpr size_t kSessions = 16;
  constexpr size_t kPrompt = 200;
  constexpr uint64_t kTokens = kSessions * kPrompt;
  std::vector<SessionPtr> sessions;
  std::vector<RequestPtr> requests;
  for (size_t i = 0; i < kSessions; ++i) {
    sessions.push_back(testing::OpenSessionOf(engine));
    const std::vector<int32_t> ids = testing::RandomTokens(kPrompt, 96, i);
    cellm_request_options request_options = CELLM_REQUEST_OPTIONS_INIT;
    request_options.flags = CELLM_REQUEST_IGNORE_END;
    request_options.max_tokens = 20;
    cellm_request* request = nullptr;
    ASSERT_EQ(cellm_session_submit_tokens(sessions.back().get(), ids.data(), ids.size(),
                                          &request_options, &request, nullptr),
              CELLM_OK);
    requests.emplace_back(request);
  }
  for (const RequestPtr& request : requests) {
    cellm_token token = CELLM_TOKEN_INIT;
    ASSERT_EQ(cellm_request_next(request.get(), &token, nullptr), CELLM_OK);
  }
  const uint64_t held = HeapBytes() - Counted(engine) - before;
  ::testing::Test::RecordProperty("heap_bytes", static_cast<int>(held));
  std::printf("%llu bytes for %zu sessions of %zu tokens: %.0f a token\n",
              static_cast<unsigned long long>(held), kSessions, kPrompt,
              static_cast<double>(held) / static_cast<double>(kTokens));
  EXPECT_LE(held, kSessions * 16384 + kTokens * 64);
  requests.clear();
  sessions.clear();
  // What is kept for reuse is indexed on the heap: ids and entries.
  EXPECT_LE(HeapBytes() - Counted(engine) - before, kSessions * 16384 + kTokens * 64);
}

}  // namespace
}  // namespace cellm
