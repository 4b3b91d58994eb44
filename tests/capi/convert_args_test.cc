#include "capi/convert_args.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "capi/generation_config.h"

namespace cellm::capi {
namespace {

TEST(SizedStructs, NullAndShortOnesGiveDefaults) {
  cellm_engine_options out;
  ASSERT_TRUE(ReadSized<cellm_engine_options>(nullptr, "options", &out).ok());
  EXPECT_EQ(out.threads, 0);
  EXPECT_EQ(out.struct_size, sizeof(out));

  cellm_engine_options given = CELLM_ENGINE_OPTIONS_INIT;
  given.threads = 3;
  given.context_tokens = 99;
  given.struct_size = offsetof(cellm_engine_options, context_tokens);  // an older header
  ASSERT_TRUE(ReadSized(&given, "options", &out).ok());
  EXPECT_EQ(out.threads, 3);
  EXPECT_EQ(out.context_tokens, 0u);
}

TEST(SizedStructs, LargerOnesAreTakenWhileTheRestIsZero) {
  struct Newer {
    cellm_session_options known = CELLM_SESSION_OPTIONS_INIT;
    uint64_t more = 0;
  } newer;
  newer.known.struct_size = sizeof(newer);
  cellm_session_options out;
  EXPECT_TRUE(ReadSized(&newer.known, "options", &out).ok());
  newer.more = 1;
  EXPECT_EQ(ReadSized(&newer.known, "options", &out).code(), StatusCode::kUnsupported);
  newer.known.struct_size = 0;
  EXPECT_EQ(ReadSized(&newer.known, "options", &out).code(), StatusCode::kInvalidArgument);
  newer.known.struct_size = 0x40000000;
  EXPECT_EQ(ReadSized(&newer.known, "options", &out).code(), StatusCode::kInvalidArgument);
}

TEST(SizedStructs, ResultsFillNoMoreThanTheCallerHas) {
  cellm_memory value = CELLM_MEMORY_INIT;
  value.weights = 5;
  value.peak = 7;
  cellm_memory out;
  std::memset(&out, 0x55, sizeof(out));
  out.struct_size = offsetof(cellm_memory, cache);
  ASSERT_TRUE(WriteSized(value, "memory", &out).ok());
  EXPECT_EQ(out.weights, 5u);
  EXPECT_EQ(out.peak, 0x5555555555555555u);
  EXPECT_EQ(out.struct_size, offsetof(cellm_memory, cache));
}

TEST(Report, MessageIsCutAtACharacter) {
  cellm_error error = CELLM_ERROR_INIT;
  std::string message(1021, 'a');
  message += "\xE2\x82\xAC";  // would end at byte 1024, where the NUL must be
  EXPECT_EQ(Report(Corrupt("%s", message.c_str()), &error), CELLM_CORRUPT);
  EXPECT_EQ(std::strlen(error.message), 1021u);
  EXPECT_EQ(error.status, CELLM_CORRUPT);
  EXPECT_EQ(Report(OkStatus(), &error), CELLM_OK);
  EXPECT_EQ(error.status, CELLM_CORRUPT);  // success leaves it alone
  EXPECT_EQ(Report(IoError("x"), nullptr), CELLM_IO);
}

TEST(Buffers, TooSmallSaysHowMuchAndWritesNothing) {
  char buffer[4] = {'-', '-', '-', '-'};
  size_t needed = 0;
  EXPECT_EQ(WriteBytes("hello", buffer, 4, &needed).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(needed, 5u);
  EXPECT_EQ(buffer[0], '-');
  EXPECT_TRUE(WriteBytes("abc", buffer, 4, &needed).ok());
  EXPECT_EQ(needed, 3u);
  EXPECT_EQ(buffer[2], 'c');
  EXPECT_EQ(buffer[3], '-');
  EXPECT_EQ(WriteBytes("abc", nullptr, 0, &needed).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(WriteBytes("abc", nullptr, 4, &needed).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteBytes("abc", buffer, 4, nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(WriteBytes("", nullptr, 0, &needed).ok());
}

TEST(GenerationConfig, DefaultsAndWhatAFileSays) {
  Result<sample::SamplingOptions> none = ReadGenerationConfig("");
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->temperature, 0.8f);
  EXPECT_EQ(none->top_k, 40);
  EXPECT_EQ(none->repetition_penalty, 1.0f);

  Result<sample::SamplingOptions> ends_only = ReadGenerationConfig(R"({"eos_token_id": [1, 2]})");
  ASSERT_TRUE(ends_only.ok());
  EXPECT_EQ(ends_only->temperature, 0.8f);
  EXPECT_EQ(ends_only->top_k, 40);

  Result<sample::SamplingOptions> nano = ReadGenerationConfig(
      R"({"do_sample": true, "temperature": 0.7, "top_p": 0.9, "min_p": null})");
  ASSERT_TRUE(nano.ok());
  EXPECT_EQ(nano->temperature, 0.7f);
  EXPECT_EQ(nano->top_p, 0.9f);
  EXPECT_EQ(nano->top_k, 0);

  Result<sample::SamplingOptions> greedy =
      ReadGenerationConfig(R"({"do_sample": false, "temperature": 0.7, "top_k": 50})");
  ASSERT_TRUE(greedy.ok());
  EXPECT_EQ(greedy->temperature, 0.0f);
  EXPECT_EQ(greedy->top_k, 50);
}

TEST(GenerationConfig, RefusesByName) {
  const struct {
    const char* text;
    StatusCode code;
    const char* word;
  } cases[] = {
      {"{", StatusCode::kCorrupt, "generation_config.json"},
      {"[]", StatusCode::kCorrupt, "object"},
      {R"({"temperature": "hot"})", StatusCode::kCorrupt, "temperature"},
      {R"({"top_k": 1.5})", StatusCode::kCorrupt, "top_k"},
      {R"({"do_sample": 3})", StatusCode::kCorrupt, "do_sample"},
      {R"({"temperature": -1})", StatusCode::kUnsupported, "temperature"},
      {R"({"top_p": 7})", StatusCode::kUnsupported, "top_p"},
      {R"({"repetition_penalty": 0})", StatusCode::kUnsupported, "repetition_penalty"},
  };
  for (const auto& c : cases) {
    const Result<sample::SamplingOptions> result = ReadGenerationConfig(c.text);
    ASSERT_FALSE(result.ok()) << c.text;
    EXPECT_EQ(result.status().code(), c.code) << c.text;
    EXPECT_NE(result.status().message().find(c.word), std::string::npos)
        << result.status().message();
  }
}

TEST(Sampling, OnlyGivenFieldsOverride) {
  sample::SamplingOptions defaults;
  defaults.temperature = 0.5f;
  defaults.top_p = 0.9f;
  cellm_sampling given = CELLM_SAMPLING_INIT;
  given.given = CELLM_SAMPLING_TEMPERATURE;
  given.temperature = 0;
  given.top_p = 0.1f;  // its bit is not set
  Result<sample::SamplingOptions> result = ApplySampling(defaults, given, 10);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->temperature, 0.0f);
  EXPECT_EQ(result->top_p, 0.9f);
  given.temperature = -1;
  EXPECT_EQ(ApplySampling(defaults, given, 10).status().code(), StatusCode::kInvalidArgument);
  given.temperature = 0;
  given.logit_bias_count = 2;
  EXPECT_EQ(ApplySampling(defaults, given, 10).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cellm::capi
