// Embeddings: the head on a last token's state gives the reference's logits, means are means of
// such states, and no neighbour, chunk, thread or lack of memory changes a bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cellm/cellm.h"
#include "support/checkpoint.h"
#include "support/paths.h"
#include "support/tiny_model.h"
#include "support/zoo.h"

namespace cellm {
namespace {

using ::cellm::testing::ReadReference;
using ::cellm::testing::Reference;

struct Close {
  void operator()(cellm_model* handle) const { cellm_model_close(handle); }
  void operator()(cellm_engine* handle) const { cellm_engine_close(handle); }
  void operator()(cellm_session* handle) const { cellm_session_close(handle); }
  void operator()(cellm_request* handle) const { cellm_request_close(handle); }
};
using Model = std::unique_ptr<cellm_model, Close>;
using Engine = std::unique_ptr<cellm_engine, Close>;

Model OpenModel(const std::string& path) {
  cellm_model* model = nullptr;
  cellm_error error = CELLM_ERROR_INIT;
  EXPECT_EQ(cellm_model_open(path.data(), path.size(), nullptr, &model, &error), CELLM_OK)
      << error.message;
  return Model(model);
}

Engine OpenEngine(const Model& model, const cellm_engine_options& options) {
  cellm_engine* engine = nullptr;
  cellm_error error = CELLM_ERROR_INIT;
  EXPECT_EQ(cellm_engine_open(model.get(), &options, &engine, &error), CELLM_OK) << error.message;
  return Engine(engine);
}

cellm_engine_options Floats() {
  cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
  options.activations = CELLM_ACTIVATIONS_F32;
  options.kv = CELLM_KV_F32;
  options.threads = 2;
  return options;
}

using Lists = std::vector<std::vector<int32_t>>;
using Vectors = std::vector<std::vector<float>>;

Vectors Embed(const Engine& engine, const Lists& lists, int32_t pooling, uint32_t flags = 0,
              size_t planned_tokens = 0) {
  std::vector<cellm_token_list> given;
  for (const std::vector<int32_t>& list : lists) {
    given.push_back(CELLM_TOKEN_LIST_INIT);
    given.back().ids = list.data();
    given.back().count = list.size();
    given.back().planned_tokens = static_cast<uint32_t>(planned_tokens);
  }
  cellm_embed_options options = CELLM_EMBED_OPTIONS_INIT;
  options.pooling = pooling;
  options.flags = flags;
  cellm_error error = CELLM_ERROR_INIT;
  size_t floats = 0;
  EXPECT_EQ(cellm_engine_embed(engine.get(), given.data(), given.size(), &options, nullptr, 0,
                               &floats, &error),
            CELLM_OUT_OF_RANGE);
  std::vector<float> all(floats);
  EXPECT_EQ(cellm_engine_embed(engine.get(), given.data(), given.size(), &options, all.data(),
                               all.size(), &floats, &error),
            CELLM_OK)
      << error.message;
  const size_t hidden = floats / lists.size();
  Vectors vectors;
  for (size_t i = 0; i < lists.size(); ++i) {
    const float* const begin = all.data() + i * hidden;
    vectors.emplace_back(begin, begin + hidden);
  }
  return vectors;
}

std::vector<int32_t> Beginning(const std::vector<int32_t>& tokens, size_t count) {
  return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count)};
}

// The matrix that makes logits of states: the head, or the embedding that serves as one.
std::vector<float> HeadOf(const std::string& folder) {
  std::vector<float> head;
  for (const auto& [name, tensor] : testing::ReadCheckpoint(folder)) {
    if (name.ends_with("lm_head.weight")) return tensor.values;
    if (name.ends_with("embed_tokens.weight")) head = tensor.values;
  }
  EXPECT_FALSE(head.empty()) << folder;
  return head;
}

void CheckAgainstReference(const std::string& folder) {
  const Reference reference = ReadReference(folder);
  const std::vector<float> head = HeadOf(folder);
  const Model model = OpenModel(folder);
  const Engine engine = OpenEngine(model, Floats());
  ASSERT_NE(engine, nullptr);
  Lists lists;
  std::vector<size_t> rows;
  for (size_t i = 0; i < reference.positions.size(); i += 1 + reference.positions.size() / 5) {
    rows.push_back(i);
  }
  rows.push_back(reference.positions.size() - 1);
  for (const size_t row : rows) {
    lists.push_back(Beginning(reference.tokens, static_cast<size_t>(reference.positions[row]) + 1));
  }
  // Rotary kinds that depend on length see that of the reference's text.
  const size_t planned = reference.tokens.size();
  const Vectors states = Embed(engine, lists, CELLM_POOLING_LAST, 0, planned);
  const size_t vocabulary = static_cast<size_t>(reference.vocab);
  ASSERT_EQ(head.size(), vocabulary * states[0].size());
  for (size_t i = 0; i < rows.size(); ++i) {
    double largest = 0;
    double worst = 0;
    for (size_t v = 0; v < vocabulary; ++v) {
      double logit = 0;
      for (size_t c = 0; c < states[i].size(); ++c) {
        logit +=
            static_cast<double>(head[v * states[i].size() + c]) * static_cast<double>(states[i][c]);
      }
      const double expected = static_cast<double>(reference.logits[rows[i] * vocabulary + v]);
      largest = std::fmax(largest, std::fabs(expected));
      worst = std::fmax(worst, std::fabs(logit - expected));
    }
    EXPECT_LE(worst, 1e-4 * largest) << "position " << reference.positions[rows[i]];
  }

  // A mean is the mean of the states of all beginnings.
  const size_t count = std::min<size_t>(24, reference.tokens.size());
  Lists beginnings;
  for (size_t n = 1; n <= count; ++n) beginnings.push_back(Beginning(reference.tokens, n));
  const Vectors each = Embed(engine, beginnings, CELLM_POOLING_LAST);
  const std::vector<float> mean = Embed(engine, {beginnings.back()}, CELLM_POOLING_MEAN)[0];
  const std::vector<float> unit =
      Embed(engine, {beginnings.back()}, CELLM_POOLING_MEAN, CELLM_EMBED_NORMALIZE)[0];
  double squares = 0;
  for (const float value : mean) squares += static_cast<double>(value) * static_cast<double>(value);
  for (size_t c = 0; c < mean.size(); ++c) {
    double sum = 0;
    for (const std::vector<float>& state : each) sum += static_cast<double>(state[c]);
    EXPECT_NEAR(static_cast<double>(mean[c]), sum / static_cast<double>(count), 1e-6);
    EXPECT_NEAR(static_cast<double>(unit[c]), static_cast<double>(mean[c]) / std::sqrt(squares),
                1e-6);
  }
}

TEST(Embed, LlamaStatesGiveTheReferencesLogits) {
  CheckAgainstReference(testing::TestData("zoo/llama"));
}

class EmbedFamily : public ::testing::TestWithParam<const char*> {};
TEST_P(EmbedFamily, StatesGiveTheReferencesLogits) {
  CELLM_SKIP_WITHOUT_SHARED(folder, std::string("zoo/") + GetParam());
  CheckAgainstReference(folder);
}
INSTANTIATE_TEST_SUITE_P(Zoo, EmbedFamily,
                         ::testing::Values("qwen3", "gemma3", "lfm2", "qwen3_5", "phi3"),
                         [](const auto& param) { return std::string(param.param); });

TEST(Embed, NothingAroundItChangesABit) {
  const Model model = OpenModel(testing::TestData("zoo/llama"));
  cellm_model_info info = CELLM_MODEL_INFO_INIT;
  ASSERT_EQ(cellm_model_get_info(model.get(), &info, nullptr), CELLM_OK);
  Lists lists;
  for (const int32_t length : {1, 3, 17, 40, 64, 90, 120, 33}) {
    lists.push_back(testing::RandomTokens(length, info.vocabulary, static_cast<uint64_t>(length)));
  }
  cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
  const Engine plain = OpenEngine(model, options);
  for (const int32_t pooling : {CELLM_POOLING_MEAN, CELLM_POOLING_LAST}) {
    Vectors alone;
    for (const std::vector<int32_t>& list : lists) {
      alone.push_back(Embed(plain, {list}, pooling)[0]);
    }
    EXPECT_EQ(Embed(plain, lists, pooling), alone);
    for (const uint32_t chunk : {1u, 7u, 64u}) {
      SCOPED_TRACE(chunk);
      options.chunk_tokens = chunk;
      options.threads = chunk == 7 ? 1 : 2;
      options.step_tokens = 64;
      options.max_sessions = 3;
      EXPECT_EQ(Embed(OpenEngine(model, options), lists, pooling), alone);
    }
  }
}

// A reply that is under way gets its tokens in the steps of the embeddings.
TEST(Embed, SharesItsStepsWithReplies) {
  const Model model = OpenModel(testing::TestData("zoo/llama"));
  cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
  options.chunk_tokens = 4;
  options.step_tokens = 16;
  const Engine engine = OpenEngine(model, options);
  const std::vector<int32_t> list = testing::RandomTokens(100, 64, 5);
  const std::vector<float> alone = Embed(engine, {list}, CELLM_POOLING_MEAN)[0];

  cellm_session* session = nullptr;
  ASSERT_EQ(cellm_session_open(engine.get(), nullptr, &session, nullptr), CELLM_OK);
  const std::unique_ptr<cellm_session, Close> session_owner(session);
  const std::vector<int32_t> prompt = testing::RandomTokens(9, 64, 6);
  cellm_request_options request_options = CELLM_REQUEST_OPTIONS_INIT;
  request_options.flags = CELLM_REQUEST_IGNORE_END;
  request_options.max_tokens = 20;
  cellm_request* request = nullptr;
  ASSERT_EQ(cellm_session_submit_tokens(session, prompt.data(), prompt.size(), &request_options,
                                        &request, nullptr),
            CELLM_OK);
  const std::unique_ptr<cellm_request, Close> request_owner(request);
  EXPECT_EQ(Embed(engine, {list}, CELLM_POOLING_MEAN)[0], alone);
  cellm_token token = CELLM_TOKEN_INIT;
  int32_t ready = 0;
  ASSERT_EQ(cellm_request_poll(request, &token, &ready, nullptr), CELLM_OK);
  EXPECT_EQ(ready, 1) << "the reply waited for the embedding";
}

TEST(Embed, SaysWhatIsWrong) {
  const Model model = OpenModel(testing::TestData("zoo/llama"));
  cellm_engine_options options = CELLM_ENGINE_OPTIONS_INIT;
  options.context_tokens = 32;
  const Engine engine = OpenEngine(model, options);
  std::vector<int32_t> ids(33, 1);
  std::vector<float> out(4096, 7.0f);
  const std::vector<float> untouched = out;
  size_t floats = 0;
  cellm_error error = CELLM_ERROR_INIT;
  const auto embed = [&](size_t count, const cellm_embed_options* given) {
    cellm_token_list list = CELLM_TOKEN_LIST_INIT;
    list.ids = ids.data();
    list.count = count;
    return cellm_engine_embed(engine.get(), &list, 1, given, out.data(), out.size(), &floats,
                              &error);
  };
  EXPECT_EQ(embed(33, nullptr), CELLM_OUT_OF_RANGE);
  EXPECT_EQ(error.reason, CELLM_REASON_CONTEXT_LENGTH);
  EXPECT_EQ(error.needed, 33u);
  EXPECT_EQ(error.available, 32u);
  EXPECT_EQ(embed(0, nullptr), CELLM_INVALID_ARGUMENT);
  ids[3] = 1 << 20;
  EXPECT_EQ(embed(5, nullptr), CELLM_INVALID_ARGUMENT);
  ids[3] = 1;
  cellm_embed_options bad = CELLM_EMBED_OPTIONS_INIT;
  bad.pooling = 2;
  EXPECT_EQ(embed(5, &bad), CELLM_INVALID_ARGUMENT);
  bad = CELLM_EMBED_OPTIONS_INIT;
  bad.flags = 2;
  EXPECT_EQ(embed(5, &bad), CELLM_UNSUPPORTED);
  bad = CELLM_EMBED_OPTIONS_INIT;
  const volatile int32_t stop = 1;
  bad.stop_flag = &stop;
  EXPECT_EQ(embed(5, &bad), CELLM_CANCELLED);
  EXPECT_EQ(out, untouched);
  EXPECT_EQ(embed(5, nullptr), CELLM_OK) << error.message;
  EXPECT_NE(out, untouched);
}

// An array is walked by what its elements say they are: those of a newer header are longer.
TEST(Embed, ListsHaveTheSizeThatTheyName) {
  const Model model = OpenModel(testing::TestData("zoo/llama"));
  const Engine engine = OpenEngine(model, CELLM_ENGINE_OPTIONS_INIT);
  struct Newer {
    cellm_token_list known = CELLM_TOKEN_LIST_INIT;
    uint64_t unknown = 0;
  } lists[2];
  const std::vector<int32_t> ids = {5, 9, 2, 7};
  for (Newer& list : lists) {
    list.known.struct_size = sizeof(Newer);
    list.known.ids = ids.data();
  }
  lists[0].known.count = 4;
  lists[1].known.count = 2;
  std::vector<float> out(4096);
  size_t floats = 0;
  cellm_error error = CELLM_ERROR_INIT;
  const auto embed = [&] {
    return cellm_engine_embed(engine.get(), &lists[0].known, 2, nullptr, out.data(), out.size(),
                              &floats, &error);
  };
  ASSERT_EQ(embed(), CELLM_OK) << error.message;
  const Vectors alone = Embed(engine, {{5, 9}}, CELLM_POOLING_MEAN);
  EXPECT_EQ(std::vector<float>(out.begin() + static_cast<ptrdiff_t>(floats / 2),
                               out.begin() + static_cast<ptrdiff_t>(floats)),
            alone[0]);
  lists[1].unknown = 1;
  EXPECT_EQ(embed(), CELLM_UNSUPPORTED);
  lists[1].unknown = 0;
  lists[1].known.struct_size = sizeof(cellm_token_list);
  EXPECT_EQ(embed(), CELLM_INVALID_ARGUMENT);
  lists[0].known.struct_size = sizeof(Newer) - 3;
  EXPECT_EQ(embed(), CELLM_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace cellm
