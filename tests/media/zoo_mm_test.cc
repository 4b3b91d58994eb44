#include "media/zoo_mm.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include "media/placeholders.h"
#include "platform/file.h"
#include "support/checkpoint.h"
#include "support/jsonl.h"
#include "support/paths.h"

namespace cellm::media {

ZooTexts ReadZooTexts(const std::string& family) {
  ZooTexts texts;
  const auto read = [&](const char* name) {
    const std::string path = testing::SharedData("zoo-mm/" + family + "/" + name);
    return path.empty() ? std::string() : testing::ReadText(path);
  };
  texts.config = read("config.json");
  texts.preprocessor = read("preprocessor_config.json");
  texts.processor = read("processor_config.json");
  return texts;
}

std::unique_ptr<json::Document> ReadZooReference(const std::string& family) {
  const std::string path = testing::SharedData("zoo-mm/" + family + "/reference.json");
  auto document = json::Document::Parse(testing::ReadText(path), path);
  EXPECT_TRUE(document.ok());
  return std::move(document).value();
}

ProcessorOverrides OverridesOf(json::Value test_case) {
  ProcessorOverrides overrides;
  const json::Value kwargs = test_case.Find("images_kwargs");
  int64_t edge = 0;
  if (kwargs.Find("size").is_object() && kwargs.Find("size").Find("longest_edge").GetInt64(&edge)) {
    overrides.longest_edge = static_cast<int32_t>(edge);
  }
  bool split = false;
  if (kwargs.Find("do_image_splitting").GetBool(&split)) overrides.split = split;
  return overrides;
}

std::vector<std::string> TextsOf(json::Value list) {
  std::vector<std::string> texts;
  for (json::Value v = list.First(); v.exists(); v = list.Next(v)) {
    texts.push_back(testing::StringOf(v));
  }
  return texts;
}

Picture ReadDecoded(const std::string& name) {
  const auto tensors =
      testing::ReadSafetensors(testing::SharedData("zoo-mm/images/decoded.safetensors"));
  const auto found = tensors.find(name);
  if (found == tensors.end()) {
    ADD_FAILURE() << "decoded.safetensors has no " << name;
    return {};
  }
  const auto& tensor = found->second;
  auto picture = NewPicture(static_cast<int32_t>(tensor.shape[1]),
                            static_cast<int32_t>(tensor.shape[0]), SystemAllocator(), "test");
  EXPECT_TRUE(picture.ok());
  std::memcpy(picture->rgb.data(), tensor.bytes.data(), picture->rgb.size());
  return std::move(picture).value();
}

std::vector<uint8_t> ReadZooBytes(const std::string& name) {
  const auto text = platform::SystemFiles().Read(testing::SharedData("zoo-mm/" + name), 1 << 24);
  EXPECT_TRUE(text.ok()) << name;
  return text.ok() ? std::vector<uint8_t>(text->begin(), text->end()) : std::vector<uint8_t>();
}

std::string Sha256(std::span<const uint8_t> bytes) {
  // Fractional bits of the cube roots of the first 64 primes, and of the square roots of 8.
  uint32_t k[64];
  uint32_t h[8];
  for (int found = 0, n = 2; found < 64; ++n) {
    bool prime = true;
    for (int d = 2; d * d <= n; ++d) prime = prime && n % d != 0;
    if (!prime) continue;
    const long double cube = std::cbrt(static_cast<long double>(n));
    const long double square = std::sqrt(static_cast<long double>(n));
    k[found] = static_cast<uint32_t>((cube - std::floor(cube)) * 4294967296.0L);
    if (found < 8) {
      h[found] = static_cast<uint32_t>((square - std::floor(square)) * 4294967296.0L);
    }
    ++found;
  }
  std::vector<uint8_t> data(bytes.begin(), bytes.end());
  const uint64_t bits = uint64_t{bytes.size()} * 8;
  data.push_back(0x80);
  while (data.size() % 64 != 56) data.push_back(0);
  for (int shift = 56; shift >= 0; shift -= 8) data.push_back(static_cast<uint8_t>(bits >> shift));
  for (size_t at = 0; at < data.size(); at += 64) {
    uint32_t w[64];
    for (size_t i = 0; i < 16; ++i) {
      w[i] = 0;
      for (size_t j = 0; j < 4; ++j) w[i] = w[i] << 8 | data[at + 4 * i + j];
    }
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t a = w[i - 15];
      const uint32_t b = w[i - 2];
      w[i] = w[i - 16] + w[i - 7] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
    }
    uint32_t v[8];
    std::memcpy(v, h, sizeof(v));
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t t1 = v[7] + (std::rotr(v[4], 6) ^ std::rotr(v[4], 11) ^ std::rotr(v[4], 25)) +
                          ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
      const uint32_t t2 = (std::rotr(v[0], 2) ^ std::rotr(v[0], 13) ^ std::rotr(v[0], 22)) +
                          ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
      std::memmove(v + 1, v, 7 * sizeof(v[0]));
      v[4] += t1;
      v[0] = t1 + t2;
    }
    for (size_t i = 0; i < 8; ++i) h[i] += v[i];
  }
  std::string text;
  for (const uint32_t word : h) text += StrFormat("%08x", word);
  return text;
}

namespace {

using Tensors = std::map<std::string, testing::CheckpointTensor>;

// The byte of each float of a table of 256, exactly; fails on a value that is none of them.
std::vector<uint8_t> CodesOf(const std::vector<float>& values, const std::vector<float>& table) {
  std::map<float, uint8_t> code;
  for (size_t i = 0; i < table.size(); ++i) code[table[i]] = static_cast<uint8_t>(i);
  std::vector<uint8_t> codes;
  codes.reserve(values.size());
  for (const float value : values) {
    const auto found = code.find(value);
    if (found == code.end()) {
      ADD_FAILURE() << value << " is not one of the reference's 256 values";
      return codes;
    }
    codes.push_back(found->second);
  }
  return codes;
}

// The TowerInputs of all pictures of a case, one after the other.
std::vector<TowerInput> ProcessCase(const Processor& processor, json::Value test_case) {
  std::vector<TowerInput> inputs;
  for (const std::string& name : TextsOf(test_case.Find("images"))) {
    auto input = ProcessPicture(processor, ReadDecoded(name).view(), SystemAllocator());
    EXPECT_TRUE(input.ok()) << input.status().message();
    if (input.ok()) inputs.push_back(std::move(input).value());
  }
  return inputs;
}

// `hash` of the case; where the pixels themselves are stored, those as well.
void CheckPixels(const std::string& family, json::Value test_case, const std::string& backend,
                 const std::string& hash, const Tensors& reference) {
  const std::string name = testing::StringOf(test_case.Find("name"));
  SCOPED_TRACE(family + " " + name + " " + backend);
  ProcessorOverrides overrides = OverridesOf(test_case);
  overrides.backend = backend == "pil" ? Backend::kPil : Backend::kTorchvision;
  const ZooTexts texts = ReadZooTexts(family);
  const auto processor = ReadProcessor(texts.files(), overrides);
  ASSERT_TRUE(processor.ok()) << processor.status().message();
  std::vector<float> values;
  for (const TowerInput& input : ProcessCase(*processor, test_case)) {
    int64_t product = 1;
    for (const int64_t dim : input.shape) product *= dim;
    EXPECT_EQ(product, static_cast<int64_t>(input.storage.size()));
    values.insert(values.end(), input.storage.begin(), input.storage.end());
  }
  const std::vector<uint8_t> codes = CodesOf(values, reference.at("lut_" + backend).values);
  EXPECT_EQ(Sha256(codes), hash);
  const auto stored = reference.find(name + "/pixel_" + backend);
  if (stored != reference.end()) {
    EXPECT_EQ(codes, stored->second.bytes);
  }
}

TEST(ZooMm, HashOfTheStandard) {
  const std::string text = "abc";
  EXPECT_EQ(Sha256({reinterpret_cast<const uint8_t*>(text.data()), text.size()}),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

class ZooFamily : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, ZooFamily, ::testing::ValuesIn(kZooFamilies),
                         [](const auto& test) { return std::string(test.param); });

// Every picture of every case, in both arithmetics, to the last level.
TEST_P(ZooFamily, PixelsAreTheReferences) {
  const std::string family = GetParam();
  const auto reference = ReadZooReference(family);
  const Tensors tensors =
      testing::ReadSafetensors(testing::SharedData("zoo-mm/" + family + "/reference.safetensors"));
  ASSERT_FALSE(tensors.empty());
  const json::Value cases = reference->root().Find("cases");
  int sets = 0;
  for (json::Value c = cases.First(); c.exists(); c = cases.Next(c)) {
    for (const char* backend : {"tv", "pil"}) {
      const json::Value hash = c.Find(std::string("pixel_sha256_") + backend);
      if (!hash.is_string()) continue;
      CheckPixels(family, c, backend, testing::StringOf(hash), tensors);
      ++sets;
    }
  }
  const std::map<std::string, int> expected = {
      {"smolvlm", 20}, {"lfm2_vl", 9}, {"qwen3_5", 16}, {"gemma3", 16}, {"gemma4", 16}};
  EXPECT_EQ(sets, expected.at(family));
}

// Shapes and grids that the tower relies on.
TEST_P(ZooFamily, GridsAreTheReferences) {
  const std::string family = GetParam();
  const ZooTexts texts = ReadZooTexts(family);
  const auto reference = ReadZooReference(family);
  const json::Value cases = reference->root().Find("cases");
  for (json::Value c = cases.First(); c.exists(); c = cases.Next(c)) {
    SCOPED_TRACE(testing::StringOf(c.Find("name")));
    const auto processor = ReadProcessor(texts.files(), OverridesOf(c));
    ASSERT_TRUE(processor.ok()) << processor.status().message();
    std::vector<int64_t> rows, cols;
    int64_t values = 0;
    for (const TowerInput& input : ProcessCase(*processor, c)) {
      for (const TowerInput::Grid& grid : input.grids) {
        rows.push_back(grid.rows);
        cols.push_back(grid.cols);
      }
      values += static_cast<int64_t>(input.storage.size());
    }
    const json::Value shape = c.Find("pixel_shape");
    if (shape.is_array()) {
      int64_t product = 1;
      for (json::Value d = shape.First(); d.exists(); d = shape.Next(d)) {
        int64_t dim = 0;
        ASSERT_TRUE(d.GetInt64(&dim));
        product *= dim;
      }
      EXPECT_EQ(values, product);
    }
    for (const char* key : {"spatial_shapes", "image_grid_thw", "patch_grid"}) {
      const json::Value grids = c.Find(key);
      if (!grids.is_array()) continue;
      ASSERT_EQ(grids.size(), rows.size());
      for (size_t i = 0; i < rows.size(); ++i) {
        const size_t first = std::string(key) == "image_grid_thw" ? 1 : 0;
        int64_t row = 0, col = 0;
        ASSERT_TRUE(grids.At(i).At(first).GetInt64(&row));
        ASSERT_TRUE(grids.At(i).At(first + 1).GetInt64(&col));
        EXPECT_EQ(row, rows[i]);
        EXPECT_EQ(col, cols[i]);
      }
    }
  }
}

// The places of a case and how many rows of each kind its features have.
struct Expanded {
  std::vector<Expansion> expansions;
  int64_t picture_rows = 0;
  int64_t sound_rows = 0;
};

void ExpandCase(const Processor& processor, json::Value test_case, Expanded* out) {
  for (const std::string& name : TextsOf(test_case.Find("images"))) {
    const Picture picture = ReadDecoded(name);
    const auto plan = PlanPicture(processor, {picture.width, picture.height});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    out->expansions.push_back(ExpandPicture(processor, *plan));
    out->picture_rows += plan->feature_rows;
  }
  for (const std::string& name : TextsOf(test_case.Find("audio"))) {
    const size_t samples = (ReadZooBytes("audio/" + name).size() - 44) / 2;
    const auto plan = PlanSound(processor, static_cast<int64_t>(samples));
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    out->expansions.push_back(ExpandSound(processor, *plan));
    out->sound_rows += plan->feature_rows;
  }
}

int64_t CountIds(json::Value ids, int64_t wanted) {
  int64_t count = 0;
  for (json::Value v = ids.First(); v.exists(); v = ids.Next(v)) {
    int64_t id = -2;
    EXPECT_TRUE(v.GetInt64(&id));
    count += id == wanted ? 1 : 0;
  }
  return count;
}

// The prompt after expansion, character by character, and as many rows as feature tokens.
TEST_P(ZooFamily, ExpansionsAreTheReferences) {
  const std::string family = GetParam();
  const ZooTexts texts = ReadZooTexts(family);
  const auto reference = ReadZooReference(family);
  const json::Value cases = reference->root().Find("cases");
  const auto config = json::Document::Parse(texts.config, "config.json");
  ASSERT_TRUE(config.ok());
  int64_t picture_id = -1, sound_id = -1;
  for (const char* key : {"image_token_id", "image_token_index"}) {
    (*config)->root().Find(key).GetInt64(&picture_id);
  }
  (*config)->root().Find("audio_token_id").GetInt64(&sound_id);
  for (json::Value c = cases.First(); c.exists(); c = cases.Next(c)) {
    SCOPED_TRACE(testing::StringOf(c.Find("name")));
    const auto processor = ReadProcessor(texts.files(), OverridesOf(c));
    ASSERT_TRUE(processor.ok()) << processor.status().message();
    Expanded expanded;
    ExpandCase(*processor, c, &expanded);
    const auto text =
        ExpandPrompt(*processor, testing::StringOf(c.Find("prompt")), expanded.expansions);
    ASSERT_TRUE(text.ok()) << text.status().message();
    std::string expected = testing::StringOf(c.Find("expanded"));
    // The tokenizer's beginning-of-text, where the prompt has none of its own.
    bool adds = false;
    ASSERT_TRUE(c.Find("add_special_tokens").GetBool(&adds));
    for (const std::string bos : {"<bos>", "<|startoftext|>"}) {
      if (adds && expected.starts_with(bos) && !text->starts_with(bos)) {
        expected = expected.substr(bos.size());
      }
    }
    EXPECT_EQ(*text, expected);
    EXPECT_EQ(expanded.picture_rows, CountIds(c.Find("input_ids"), picture_id));
    EXPECT_EQ(expanded.sound_rows, CountIds(c.Find("input_ids"), sound_id));
  }
}

// One clip against its part of a batch of the reference, which is padded to the longest.
void CheckFeatures(const TowerInput& input, const testing::CheckpointTensor& features,
                   const std::vector<uint8_t>& mask, size_t clip) {
  const size_t frames = static_cast<size_t>(features.shape[1]);
  ASSERT_EQ(input.shape[1], 128);
  ASSERT_LE(input.shape[0], static_cast<int64_t>(frames));
  double worst = 0.0;
  for (size_t i = 0; i < frames; ++i) {
    const bool ours = i < input.frame_valid.size();
    EXPECT_EQ(mask[clip * frames + i] != 0, ours && input.frame_valid[i] != 0) << i;
    for (size_t m = 0; m < 128; ++m) {
      const double want = static_cast<double>(features.values[(clip * frames + i) * 128 + m]);
      const double got = ours ? static_cast<double>(input.storage[i * 128 + m]) : 0.0;
      worst = std::max(worst, std::fabs(want - got));
    }
  }
  EXPECT_LT(worst, 1e-4);
}

TEST(ZooMm, SoundFeaturesAreTheReferences) {
  const ZooTexts texts = ReadZooTexts("gemma4");
  const auto processor = ReadProcessor(texts.files(), {});
  ASSERT_TRUE(processor.ok()) << processor.status().message();
  EXPECT_EQ(SoundRate(*processor), 16000);
  const Tensors tensors =
      testing::ReadSafetensors(testing::SharedData("zoo-mm/gemma4/reference.safetensors"));
  const auto reference = ReadZooReference("gemma4");
  const json::Value cases = reference->root().Find("cases");
  int clips = 0;
  for (json::Value c = cases.First(); c.exists(); c = cases.Next(c)) {
    const std::string name = testing::StringOf(c.Find("name"));
    const auto features = tensors.find(name + "/input_features");
    if (features == tensors.end()) continue;
    const auto& mask = tensors.at(name + "/input_features_mask").bytes;
    size_t clip = 0;
    for (const std::string& file : TextsOf(c.Find("audio"))) {
      SCOPED_TRACE(name + " " + file);
      const std::vector<uint8_t> wav = ReadZooBytes("audio/" + file);
      std::vector<float> samples;
      for (size_t at = 44; at + 2 <= wav.size(); at += 2) {
        samples.push_back(static_cast<float>(static_cast<int16_t>(wav[at] | wav[at + 1] << 8)) /
                          32768.0f);
      }
      const auto input = ProcessSound(*processor, samples, SystemAllocator());
      ASSERT_TRUE(input.ok()) << input.status().message();
      CheckFeatures(*input, features->second, mask, clip++);
      ++clips;
    }
  }
  EXPECT_EQ(clips, 3);
}

}  // namespace
}  // namespace cellm::media
