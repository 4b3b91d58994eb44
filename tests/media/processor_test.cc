// Processor files that are wrong, and pictures and clips of odd sizes.

#include "media/processor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "media/placeholders.h"
#include "media/zoo_mm.h"
#include "support/tiny_model.h"

namespace cellm::media {
namespace {

Processor ReadZoo(const std::string& family, const ProcessorOverrides& overrides = {}) {
  const ZooTexts texts = ReadZooTexts(family);
  auto processor = ReadProcessor(texts.files(), overrides);
  EXPECT_TRUE(processor.ok()) << processor.status().message();
  return std::move(processor).value();
}

// `text` with the first `from` replaced; fails when there is none.
std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

void ExpectOneLine(const Status& status, StatusCode code, const std::string& part) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
}

struct BadFile {
  const char* name;
  const char* family;
  char file;  // c: config, p: preprocessor, w: processor_config (whole)
  const char* from;
  const char* to;
  StatusCode code;
  const char* part;
};

constexpr BadFile kBadFiles[] = {
    {"UnknownKey", "smolvlm", 'p', "\"do_pad\"", "\"do_sharpen\"", StatusCode::kUnsupported,
     "\"do_sharpen\""},
    {"UnknownKeyOfThePart", "lfm2_vl", 'w', "\"do_pad\"", "\"do_sharpen\"",
     StatusCode::kUnsupported, "\"do_sharpen\""},
    {"UnknownKeyOfTheWhole", "gemma3", 'w', "\"processor_class\"", "\"extra_steps\"",
     StatusCode::kUnsupported, "\"extra_steps\""},
    {"UnknownKeyOfTheSound", "gemma4", 'w', "\"mel_floor\"", "\"mel_ceiling\"",
     StatusCode::kUnsupported, "\"mel_ceiling\""},
    {"UnknownMember", "qwen3_5", 'p', "\"shortest_edge\"", "\"width\"", StatusCode::kUnsupported,
     "\"size.width\""},
    {"FilesDisagree", "lfm2_vl", 'w', "\"max_tiles\": 6", "\"max_tiles\": 5", StatusCode::kCorrupt,
     "max_tiles"},
    {"TileIsNotTheTowers", "smolvlm", 'p', "\"longest_edge\": 64", "\"longest_edge\": 32",
     StatusCode::kCorrupt, "image_size"},
    {"TokensAreNotTheTowers", "smolvlm", 'w', "\"image_seq_len\": 16", "\"image_seq_len\": 17",
     StatusCode::kCorrupt, "image_seq_len"},
    {"PatchIsNotTheTowers", "qwen3_5", 'p', "\"patch_size\": 8", "\"patch_size\": 16",
     StatusCode::kCorrupt, "patch_size"},
    {"PatchIsNotTheTowersLfm2", "lfm2_vl", 'c', "\"patch_size\": 8", "\"patch_size\": 16",
     StatusCode::kCorrupt, "16"},
    {"SizeIsNotTheTowers", "gemma3", 'p', "\"height\": 64", "\"height\": 65", StatusCode::kCorrupt,
     "64 x 65"},
    {"TokensContradict", "gemma3", 'w', "\"image_seq_length\": 16", "\"image_seq_length\": 64",
     StatusCode::kCorrupt, "mm_tokens_per_image"},
    {"TokensContradictGemma4", "gemma4", 'w', "\"image_seq_length\": 70", "\"image_seq_length\": 9",
     StatusCode::kCorrupt, "image_seq_length 9"},
    {"PanAndScan", "gemma3", 'p', "\"do_pan_and_scan\": null", "\"do_pan_and_scan\": true",
     StatusCode::kUnsupported, "do_pan_and_scan"},
    {"NoResize", "smolvlm", 'p', "\"do_resize\": true", "\"do_resize\": false",
     StatusCode::kUnsupported, "do_resize"},
    {"UnknownFilter", "smolvlm", 'p', "\"resample\": 1", "\"resample\": 0",
     StatusCode::kUnsupported, "resample"},
    {"AnotherClass", "smolvlm", 'p', "SmolVLMImageProcessor", "CLIPImageProcessor",
     StatusCode::kUnsupported, "CLIPImageProcessor"},
    {"ZeroDeviation", "gemma3", 'p', "\"image_std\": [\n  0.5", "\"image_std\": [\n  0.0",
     StatusCode::kUnsupported, "image_std"},
    {"NotANumber", "qwen3_5", 'p', "\"merge_size\": 2", "\"merge_size\": \"2\"",
     StatusCode::kUnsupported, "merge_size"},
    {"Preemphasis", "gemma4", 'w', "\"preemphasis\": 0.0", "\"preemphasis\": 0.97",
     StatusCode::kUnsupported, "preemphasis"},
    {"OddTransform", "gemma4", 'w', "\"fft_length\": 512", "\"fft_length\": 500",
     StatusCode::kUnsupported, "fft_length"},
    {"Frequencies", "gemma4", 'w', "\"max_frequency\": 8000.0", "\"max_frequency\": 9000.0",
     StatusCode::kCorrupt, "frequencies"},
    {"NotJson", "gemma3", 'p', "{", "[", StatusCode::kCorrupt, "preprocessor_config.json"},
    {"TextModel", "gemma3", 'c', "\"model_type\": \"gemma3\"", "\"model_type\": \"llama\"",
     StatusCode::kUnsupported, "\"llama\""},
};

class BadFileTest : public ::testing::TestWithParam<BadFile> {};
INSTANTIATE_TEST_SUITE_P(All, BadFileTest, ::testing::ValuesIn(kBadFiles),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(BadFileTest, IsRefusedInOneLine) {
  const BadFile& bad = GetParam();
  ZooTexts texts = ReadZooTexts(bad.family);
  std::string* text = bad.file == 'c'   ? &texts.config
                      : bad.file == 'p' ? &texts.preprocessor
                                        : &texts.processor;
  *text = Replaced(*text, bad.from, bad.to);
  ExpectOneLine(ReadProcessor(texts.files(), {}).status(), bad.code, bad.part);
}

TEST(Processor, NoProcessorFile) {
  ZooTexts texts = ReadZooTexts("qwen3_5");
  texts.preprocessor.clear();
  ExpectOneLine(ReadProcessor(texts.files(), {}).status(), StatusCode::kNotFound,
                "preprocessor_config.json");
  ExpectOneLine(ReadProcessor({}, {}).status(), StatusCode::kNotFound, "config.json");
}

// What published files of these families say, with the keys that newer versions write.
TEST(Processor, PublishedFilesAreRead) {
  const std::string config =
      R"({"model_type":"lfm2_vl","downsample_factor":2,"vision_config":{"patch_size":16}})";
  const std::string lfm2 =
      R"({"image_processor_type":"Lfm2VlImageProcessorFast","processor_class":"Lfm2VlProcessor",
      "crop_size":null,"data_format":"channels_first","default_to_square":true,"device":null,
      "disable_grouping":null,"do_center_crop":null,"do_convert_rgb":null,"do_normalize":true,
      "do_pad":true,"do_rescale":true,"do_resize":false,"image_mean":[0.5,0.5,0.5],
      "image_std":[0.5,0.5,0.5],"input_data_format":null,"max_num_patches":1024,"resample":2,
      "rescale_factor":0.00392156862745098,"return_row_col_info":true,"return_tensors":null,
      "size":{"height":512,"width":512}})";
  const auto processor = ReadProcessor({config, lfm2, {}}, {});
  ASSERT_TRUE(processor.ok()) << processor.status().message();
  EXPECT_EQ(processor->lfm2_vl.tile, 512);
  // 1500 x 1000 is more than twice 256 tokens of 32 x 32: 3 x 2 tiles, and 576 x 384 as thumbnail.
  const auto plan = PlanPicture(*processor, {1500, 1000});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->canvas, (Size{1536, 1024}));
  EXPECT_EQ(plan->overview, (Size{608, 416}));
  EXPECT_EQ(plan->feature_rows, 6 * 256 + 19 * 13);

  const std::string smol_config = R"({"model_type":"idefics3","scale_factor":4,
      "vision_config":{"image_size":512,"patch_size":16}})";
  const std::string smol = R"({"do_convert_rgb":true,"do_image_splitting":true,"do_pad":true,
      "image_mean":[0.5,0.5,0.5],"image_processor_type":"Idefics3ImageProcessor",
      "image_std":[0.5,0.5,0.5],"max_image_size":{"longest_edge":512},"resample":1,
      "processor_class":"Idefics3Processor","size":{"longest_edge":2048},
      "video_sampling":{"fps":1,"max_frames":64,"video_size":{"longest_edge":512}}})";
  const auto smolvlm = ReadProcessor(
      {smol_config, smol, R"({"image_seq_len":64,"processor_class":"Idefics3Processor"})"}, {});
  ASSERT_TRUE(smolvlm.ok()) << smolvlm.status().message();
  EXPECT_EQ(smolvlm->backend, Backend::kPil);
  const auto tiles = PlanPicture(*smolvlm, {640, 480});
  ASSERT_TRUE(tiles.ok());
  EXPECT_EQ(tiles->tile_rows, 3);
  EXPECT_EQ(tiles->tile_cols, 4);
  EXPECT_EQ(tiles->feature_rows, 13 * 64);
}

TEST(Processor, OverridesThatAFamilyLacks) {
  ProcessorOverrides split;
  split.split = false;
  EXPECT_EQ(ReadProcessor(ReadZooTexts("gemma3").files(), split).status().code(),
            StatusCode::kInvalidArgument);
  ProcessorOverrides edge;
  edge.longest_edge = 128;
  EXPECT_EQ(ReadProcessor(ReadZooTexts("lfm2_vl").files(), edge).status().code(),
            StatusCode::kInvalidArgument);
  edge.longest_edge = 0;
  EXPECT_EQ(ReadProcessor(ReadZooTexts("smolvlm").files(), edge).status().code(),
            StatusCode::kInvalidArgument);
  ProcessorOverrides pil;
  pil.backend = Backend::kPil;
  EXPECT_EQ(ReadProcessor(ReadZooTexts("lfm2_vl").files(), pil).status().code(),
            StatusCode::kInvalidArgument);
}

Picture Grey(int32_t width, int32_t height) {
  auto picture = NewPicture(width, height, SystemAllocator(), "test");
  EXPECT_TRUE(picture.ok());
  std::fill(picture->rgb.begin(), picture->rgb.end(), uint8_t{128});
  return std::move(picture).value();
}

// A picture of one colour keeps it through every resize, so every value of the result is known.
TEST(Processor, OddSizesKeepTheirColourOrAreRefused) {
  struct Case {
    const char* family;
    int32_t width, height;
    bool taken;
  };
  const Case cases[] = {
      {"smolvlm", 1, 1, true},    {"smolvlm", 20000, 1, true},  {"smolvlm", 1, 20000, true},
      {"lfm2_vl", 1, 1, true},    {"lfm2_vl", 20000, 1, false}, {"lfm2_vl", 1, 20000, false},
      {"qwen3_5", 1, 1, true},    {"qwen3_5", 20000, 1, false}, {"qwen3_5", 1, 20000, false},
      {"qwen3_5", 200, 1, true},  {"qwen3_5", 201, 1, false},   {"gemma3", 1, 1, true},
      {"gemma3", 20000, 1, true}, {"gemma3", 1, 20000, true},   {"gemma4", 1, 1, true},
      {"gemma4", 20000, 1, true}, {"gemma4", 1, 20000, true},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(StrFormat("%s %d x %d", c.family, c.width, c.height));
    const Processor processor = ReadZoo(c.family);
    const Picture picture = Grey(c.width, c.height);
    const auto input = ProcessPicture(processor, picture.view(), SystemAllocator());
    ASSERT_EQ(input.ok(), c.taken) << input.status().message();
    if (!c.taken) {
      ExpectOneLine(input.status(), StatusCode::kOutOfRange, "crop it");
      continue;
    }
    const auto plan = PlanPicture(processor, {c.width, c.height});
    EXPECT_EQ(plan->tower_values, static_cast<int64_t>(input->storage.size()));
    const float grey = processor.family == Family::kGemma4 ? 128.0f / 255.0f : 0.5f / 127.5f;
    for (const float value : input->storage) ASSERT_NEAR(value, grey, 1e-6);
  }
}

TEST(Processor, SidesBeyondTheCaps) {
  const Processor processor = ReadZoo("gemma3");
  for (const Size size : {Size{0, 5}, Size{5, -1}, Size{65536, 1}, Size{60000, 60000}}) {
    EXPECT_EQ(PlanPicture(processor, size).status().code(), StatusCode::kOutOfRange);
  }
}

TEST(Processor, RefusedMemoryIsAStatus) {
  const Picture picture = Grey(200, 150);
  for (const char* family : kZooFamilies) {
    const Processor processor = ReadZoo(family);
    for (int64_t fail_at = 1;; ++fail_at) {
      testing::FailingAllocator allocator(fail_at);
      const auto input = ProcessPicture(processor, picture.view(), allocator);
      EXPECT_EQ(allocator.live_bytes(), 0);
      if (!allocator.failed()) {
        EXPECT_TRUE(input.ok()) << input.status().message();
        break;
      }
      EXPECT_EQ(input.status().code(), StatusCode::kOutOfMemory) << family << fail_at;
    }
  }
}

TEST(Processor, ClipsOfOddLengths) {
  const Processor processor = ReadZoo("gemma4");
  ExpectOneLine(PlanSound(processor, 0).status(), StatusCode::kOutOfRange, "0 samples");
  ExpectOneLine(PlanSound(processor, 160).status(), StatusCode::kOutOfRange, "160 samples");
  EXPECT_TRUE(PlanSound(processor, 161).ok());
  EXPECT_TRUE(PlanSound(processor, 30 * 16000).ok());
  ExpectOneLine(PlanSound(processor, 30 * 16000 + 1).status(), StatusCode::kOutOfRange, "30.0 s");
  ExpectOneLine(PlanSound(processor, int64_t{3600} * 16000).status(), StatusCode::kOutOfRange,
                "3600.0 s");
  // 30 s are 750 tokens of 40 ms.
  EXPECT_EQ(PlanSound(processor, 30 * 16000)->feature_rows, 750);
  std::vector<float> samples(4000, 0.25f);
  samples[1234] = std::numeric_limits<float>::quiet_NaN();
  ExpectOneLine(ProcessSound(processor, samples, SystemAllocator()).status(),
                StatusCode::kInvalidArgument, "sample 1234");
  ExpectOneLine(PlanSound(ReadZoo("gemma3"), 16000).status(), StatusCode::kUnsupported, "sound");
  EXPECT_EQ(SoundRate(ReadZoo("qwen3_5")), 0);
}

// A pure tone peaks in the triangle whose centre is nearest to it.
TEST(Processor, ToneIsInItsMelBin) {
  const Processor processor = ReadZoo("gemma4");
  std::vector<float> samples(16000);
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i] = static_cast<float>(
        std::sin(2.0 * 3.14159265358979 * 1000.0 * static_cast<double>(i) / 16000.0));
  }
  const auto input = ProcessSound(processor, samples, SystemAllocator());
  ASSERT_TRUE(input.ok());
  const float* row = input->storage.data() + 50 * 128;
  const auto peak = std::max_element(row, row + 128) - row;
  // 1000 Hz is mel 999.99, and bins are 2840.02 / 129 mel apart, the first one step up.
  EXPECT_EQ(peak, static_cast<int>(std::lround(999.99 / (2840.02 / 129.0))) - 1);
}

TEST(Placeholders, CountsMustAgree) {
  const Processor processor = ReadZoo("gemma4");
  const Expansion picture = {MediaKind::kPicture, "P", 1};
  const Expansion clip = {MediaKind::kSound, "S", 1};
  const std::string prompt = "a<|audio|>b<|image|><|imag";
  const Expansion both[] = {picture, clip};
  const auto text = ExpandPrompt(processor, prompt, both);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, "aSbP<|imag");
  ExpectOneLine(ExpandPrompt(processor, prompt, {&picture, 1}).status(),
                StatusCode::kInvalidArgument, "places for 1 clips, and 0 were given");
  const Expansion three[] = {picture, picture, clip};
  ExpectOneLine(ExpandPrompt(processor, prompt, three).status(), StatusCode::kInvalidArgument,
                "places for 1 pictures, and 2 were given");
}

}  // namespace
}  // namespace cellm::media
