// Encoded pictures: right ones, and wrong ones of every kind.

#include "media/picture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"
#include "media/picture_header.h"
#include "media/stb_decoder.h"
#include "media/webp_decoder.h"
#include "media/zoo_mm.h"
#include "support/tiny_model.h"

#if defined(CELLM_TEST_WEBP)
#include <webp/encode.h>
#endif

namespace cellm::media {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr const char* kZooPictures[] = {"square.jpg", "wide.png",  "tall.jpg",   "large.jpg",
                                        "grey.png",   "alpha.png", "palette.png"};

Result<Picture> Decode(const Bytes& bytes, const PictureLimits& limits = {}) {
  return DecodePicture(bytes, limits, SystemAllocator());
}

void ExpectRefused(const Bytes& bytes, StatusCode code, const std::string& part) {
  const auto picture = Decode(bytes);
  EXPECT_EQ(picture.status().code(), code) << picture.status().message();
  EXPECT_NE(picture.status().message().find(part), std::string::npos) << picture.status().message();
  EXPECT_EQ(picture.status().message().find('\n'), std::string::npos);
}

Bytes RgbOf(const Picture& picture) { return Bytes(picture.rgb.begin(), picture.rgb.end()); }

void PutBe32(uint32_t value, Bytes* out) {
  for (int shift = 24; shift >= 0; shift -= 8) out->push_back(static_cast<uint8_t>(value >> shift));
}
void PutLe(uint64_t value, int bytes, Bytes* out) {
  for (int i = 0; i < bytes; ++i, value >>= 8) out->push_back(static_cast<uint8_t>(value));
}
void Put(const std::string& text, Bytes* out) { out->insert(out->end(), text.begin(), text.end()); }

// CRC-32 one bit at a time.
uint32_t SlowCrc(const uint8_t* bytes, size_t count) {
  uint32_t c = 0xFFFFFFFFu;
  for (size_t i = 0; i < count; ++i) {
    c ^= bytes[i];
    for (int k = 0; k < 8; ++k) c = (c >> 1) ^ ((c & 1) != 0 ? 0xEDB88320u : 0);
  }
  return ~c;
}

void PutChunk(const std::string& name, const Bytes& data, Bytes* out) {
  PutBe32(static_cast<uint32_t>(data.size()), out);
  const size_t start = out->size();
  Put(name, out);
  out->insert(out->end(), data.begin(), data.end());
  PutBe32(SlowCrc(out->data() + start, data.size() + 4), out);
}

// A PNG of 8-bit grey around any compressed data.
Bytes PngOf(uint32_t width, uint32_t height, const Bytes& data, uint8_t colour = 0,
            const std::string& extra = "") {
  Bytes png;
  Put("\x89PNG\r\n\x1a\n", &png);
  Bytes header;
  PutBe32(width, &header);
  PutBe32(height, &header);
  for (const uint8_t byte : {uint8_t{8}, colour, uint8_t{0}, uint8_t{0}, uint8_t{0}}) {
    header.push_back(byte);
  }
  PutChunk("IHDR", header, &png);
  if (!extra.empty()) PutChunk(extra, {1, 2, 3}, &png);
  PutChunk("IDAT", data, &png);
  PutChunk("IEND", {}, &png);
  return png;
}

// A zlib stream of `count` * 258 + 1 zeros, thirteen bits for each 258 (RFC 1951, fixed codes: a
// literal 0, then matches of length 258 at distance 1).
Bytes Zeros(int64_t count) {
  Bytes out = {0x78, 0x01};
  uint32_t held = 0;
  int bits = 0;
  const auto put = [&](uint32_t code, int length) {
    for (int i = length - 1; i >= 0; --i) {
      held |= ((code >> i) & 1) << bits++;
      if (bits == 8) {
        out.push_back(static_cast<uint8_t>(held));
        held = 0;
        bits = 0;
      }
    }
  };
  put(0b1, 1);   // the last block
  put(0b10, 2);  // fixed codes, lower bit first
  put(0b00110000, 8);
  for (int64_t i = 0; i < count; ++i) {
    put(0b11000101, 8);  // length 258
    put(0, 5);           // distance 1
  }
  put(0, 7);  // end
  if (bits > 0) out.push_back(static_cast<uint8_t>(held));
  PutBe32(1, &out);
  return out;
}

TEST(Picture, ZooIsDecodedAsTheReferenceDoes) {
  if (!HaveStbDecoder()) GTEST_SKIP() << "stb_image is not built in";
  for (const std::string name : kZooPictures) {
    SCOPED_TRACE(name);
    const auto picture = Decode(ReadZooBytes("images/" + name));
    ASSERT_TRUE(picture.ok()) << picture.status().message();
    const Picture expected = ReadDecoded(name);
    ASSERT_EQ(picture->width, expected.width);
    ASSERT_EQ(picture->height, expected.height);
    int worst = 0;
    double sum = 0.0;
    for (size_t i = 0; i < expected.rgb.size(); ++i) {
      const int difference = std::abs(picture->rgb[i] - expected.rgb[i]);
      worst = std::max(worst, difference);
      sum += difference;
    }
    const double mean = sum / static_cast<double>(expected.rgb.size());
    RecordProperty(name, StrFormat("%d levels, mean %.3f", worst, mean));
    if (name.ends_with(".png")) {
      EXPECT_EQ(worst, 0);
    } else {
      // Another inverse transform and another upsampling of the colours.
      EXPECT_LE(worst, 3);
      EXPECT_LE(mean, 0.2);
    }
  }
}

// Upright pictures in terms of three moves.
Picture Moved(const Picture& in, bool transpose, bool mirror, bool flip) {
  Picture out = *NewPicture(transpose ? in.height : in.width, transpose ? in.width : in.height,
                            SystemAllocator(), "test");
  for (int32_t y = 0; y < out.height; ++y) {
    for (int32_t x = 0; x < out.width; ++x) {
      const int32_t turned_x = mirror ? out.width - 1 - x : x;
      const int32_t turned_y = flip ? out.height - 1 - y : y;
      const int32_t from_x = transpose ? turned_y : turned_x;
      const int32_t from_y = transpose ? turned_x : turned_y;
      std::memcpy(&out.rgb[static_cast<size_t>(y * out.width + x) * 3],
                  &in.rgb[static_cast<size_t>(from_y * in.width + from_x) * 3], 3);
    }
  }
  return out;
}

TEST(Picture, OrientationsAreApplied) {
  if (!HaveStbDecoder()) GTEST_SKIP() << "stb_image is not built in";
  const Bytes jpeg = ReadZooBytes("images/tall.jpg");
  const auto plain = Decode(jpeg);
  ASSERT_TRUE(plain.ok());
  for (const bool little : {true, false}) {
    for (uint8_t orientation = 1; orientation <= 8; ++orientation) {
      SCOPED_TRACE(static_cast<int>(orientation));
      Bytes tiff;
      if (little) {
        tiff = {'I', 'I', '*', 0, 8, 0, 0, 0,           1, 0, 0x12,
                1,   3,   0,   1, 0, 0, 0, orientation, 0, 0, 0};
      } else {
        tiff = {'M',  'M', 0, '*', 0, 0, 0, 8, 0,           1, 1,
                0x12, 0,   3, 0,   0, 0, 1, 0, orientation, 0, 0};
      }
      Bytes turned = {0xFF, 0xD8, 0xFF, 0xE1, 0, static_cast<uint8_t>(tiff.size() + 8)};
      Put(std::string("Exif\0\0", 6), &turned);
      turned.insert(turned.end(), tiff.begin(), tiff.end());
      turned.insert(turned.end(), jpeg.begin() + 2, jpeg.end());
      const auto picture = Decode(turned);
      ASSERT_TRUE(picture.ok()) << picture.status().message();
      const bool transpose = orientation >= 5;
      const bool mirror =
          orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
      const bool flip =
          orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
      const Picture expected = Moved(*plain, transpose, mirror, flip);
      EXPECT_EQ(picture->width, expected.width);
      EXPECT_EQ(RgbOf(*picture), RgbOf(expected));
    }
  }
}

TEST(Picture, ExifOfAnyBytesIsHarmless) {
  const Bytes tiff = {'I', 'I', '*', 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0};
  EXPECT_EQ(ExifOrientation(tiff), 6);
  for (size_t length = 0; length < tiff.size(); ++length) {
    EXPECT_EQ(ExifOrientation(std::span(tiff).first(length)), 1);
  }
  Bytes far = tiff;
  far[4] = far[5] = far[6] = far[7] = 0xFF;
  EXPECT_EQ(ExifOrientation(far), 1);
  Bytes nine = tiff;
  nine[18] = 9;
  EXPECT_EQ(ExifOrientation(nine), 1);
}

// 3 x 2 pixels of 24 bits, blue first, rows of 12 bytes; the last row first unless `top_down`.
Bytes SmallBmp(bool top_down) {
  Bytes bmp;
  Put("BM", &bmp);
  PutLe(54 + 24, 4, &bmp);
  PutLe(0, 4, &bmp);
  PutLe(54, 4, &bmp);
  PutLe(40, 4, &bmp);
  PutLe(3, 4, &bmp);
  PutLe(static_cast<uint32_t>(top_down ? -2 : 2), 4, &bmp);
  PutLe(1, 2, &bmp);
  PutLe(24, 2, &bmp);
  PutLe(0, 24, &bmp);
  const uint8_t rows[2][12] = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0},
                               {11, 12, 13, 14, 15, 16, 17, 18, 19, 0, 0, 0}};
  for (int i = 0; i < 2; ++i) {
    const uint8_t* row = rows[top_down ? i : 1 - i];
    bmp.insert(bmp.end(), row, row + 12);
  }
  return bmp;
}

TEST(Picture, Bmp) {
  if (!HaveStbDecoder()) GTEST_SKIP() << "stb_image is not built in";
  const Bytes expected = {3, 2, 1, 6, 5, 4, 9, 8, 7, 13, 12, 11, 16, 15, 14, 19, 18, 17};
  for (const bool top_down : {false, true}) {
    const auto picture = Decode(SmallBmp(top_down));
    ASSERT_TRUE(picture.ok()) << picture.status().message();
    EXPECT_EQ(picture->width, 3);
    EXPECT_EQ(RgbOf(*picture), expected);
  }
  Bytes run_length = SmallBmp(false);
  run_length[30] = 1;
  ExpectRefused(run_length, StatusCode::kUnsupported, "run lengths");
  Bytes huge = SmallBmp(false);
  huge[21] = huge[25] = 0x7F;
  ExpectRefused(huge, StatusCode::kCorrupt, "cut short");
}

// 2 x 2 pixels of a palette of four; the second frame would overwrite the first. Codes of three
// bits with a clear code (4) before each pair, so that the width never grows.
Bytes SmallGif(uint8_t transparent_flag) {
  Bytes gif;
  Put("GIF89a", &gif);
  for (const int byte : {2, 0, 2, 0, 0x81, 0, 0}) gif.push_back(static_cast<uint8_t>(byte));
  for (const int byte : {10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120}) {
    gif.push_back(static_cast<uint8_t>(byte));
  }
  for (const int first : {0, 3}) {
    for (const int byte : {0x21, 0xF9, 4, int{transparent_flag}, 0, 0, 1, 0}) {
      gif.push_back(static_cast<uint8_t>(byte));
    }
    for (const int byte : {0x2C, 0, 0, 0, 0, 2, 0, 2, 0, 0, 2}) {
      gif.push_back(static_cast<uint8_t>(byte));
    }
    const int step = first == 0 ? 1 : -1;
    const int codes[] = {4, first, first + step, 4, first + 2 * step, first + 3 * step, 5};
    uint32_t held = 0;
    for (int i = 0; i < 7; ++i) held |= static_cast<uint32_t>(codes[i]) << (3 * i);
    gif.push_back(3);
    PutLe(held, 3, &gif);
    gif.push_back(0);
  }
  gif.push_back(0x3B);
  return gif;
}

TEST(Picture, FirstFrameOfAGifWithItsHiddenColours) {
  if (!HaveStbDecoder()) GTEST_SKIP() << "stb_image is not built in";
  const Bytes expected = {10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120};
  for (const uint8_t transparent : {uint8_t{0}, uint8_t{1}}) {
    const auto picture = Decode(SmallGif(transparent));
    ASSERT_TRUE(picture.ok()) << picture.status().message();
    EXPECT_EQ(RgbOf(*picture), expected);
  }
  Bytes wide = SmallGif(0);
  wide[7] = wide[9] = 0x1F;  // 7938 x 7938
  ExpectRefused(wide, StatusCode::kCorrupt, "cannot hold");
}

TEST(Picture, Webp) {
#if defined(CELLM_TEST_WEBP)
  const Picture picture = ReadDecoded("palette.png");
  uint8_t* encoded = nullptr;
  const size_t size = WebPEncodeLosslessRGB(picture.rgb.data(), picture.width, picture.height,
                                            picture.width * 3, &encoded);
  ASSERT_GT(size, 0u);
  const Bytes bytes(encoded, encoded + size);
  WebPFree(encoded);
  const auto decoded = Decode(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status().message();
  EXPECT_EQ(RgbOf(*decoded), RgbOf(picture));
  for (size_t length = 12; length < bytes.size(); length += 11) {
    ExpectRefused(Bytes(bytes.begin(), bytes.begin() + static_cast<long>(length)),
                  StatusCode::kCorrupt, "WebP");
  }
#else
  EXPECT_FALSE(HaveWebpDecoder());
  Bytes bytes;
  Put("RIFF", &bytes);
  PutLe(4, 4, &bytes);
  Put("WEBP", &bytes);
  ExpectRefused(bytes, StatusCode::kUnsupported, "libwebp");
#endif
}

TEST(Picture, FilesThatAreCutShortAreRefused) {
  for (const std::string name : kZooPictures) {
    SCOPED_TRACE(name);
    const Bytes bytes = ReadZooBytes("images/" + name);
    const size_t step = bytes.size() / 400 + 1;
    for (size_t length = 0; length < bytes.size(); length += length < 64 ? 1 : step) {
      const auto picture = Decode(Bytes(bytes.begin(), bytes.begin() + static_cast<long>(length)));
      EXPECT_FALSE(picture.ok()) << length;
    }
  }
  for (const Bytes& whole : {SmallBmp(false), SmallGif(1)}) {
    // A GIF may end behind its first frame.
    const size_t needed = whole[0] == 'B' ? whole.size() : 13 + 12 + 8 + 10 + 1 + 5;
    for (size_t length = 0; length < needed; ++length) {
      EXPECT_FALSE(Decode(Bytes(whole.begin(), whole.begin() + static_cast<long>(length))).ok());
    }
  }
}

// Any flipped bit gives a picture or a Status, and takes no more memory than the header may ask.
TEST(Picture, FlippedBits) {
  const bool long_run = std::getenv("CELLM_TEST_LONG") != nullptr;
  Rng rng(7);
  for (const std::string name : {"square.jpg", "large.jpg", "palette.png", "bmp", "gif"}) {
    SCOPED_TRACE(name);
    const Bytes bytes = name == "bmp"   ? SmallBmp(false)
                        : name == "gif" ? SmallGif(1)
                                        : ReadZooBytes("images/" + name);
    const int rounds = long_run ? 20000 : 250;
    for (int round = 0; round < rounds; ++round) {
      Bytes flipped = bytes;
      // Half of the time in the headers.
      const uint64_t reach = round % 2 == 0 ? std::min<uint64_t>(bytes.size(), 700) : bytes.size();
      for (uint64_t i = 0; i <= rng.NextBelow(3); ++i) {
        const uint64_t bit = rng.NextBelow(reach * 8);
        flipped[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
      }
      BudgetAllocator budget(SystemAllocator(), uint64_t{256} << 20);
      const auto picture = DecodePicture(flipped, {}, budget);
      if (!picture.ok()) {
        EXPECT_EQ(budget.used_bytes(), 0u);
        EXPECT_NE(picture.status().code(), StatusCode::kInternal) << picture.status().message();
      }
    }
  }
}

TEST(Picture, BombsAreRefusedBeforeMemoryIsAskedFor) {
  BudgetAllocator budget(SystemAllocator(), uint64_t{1} << 40);
  // 64 million pixels in a few bytes; more pixels than any picture may have.
  const Bytes claims[] = {PngOf(8000, 8000, Zeros(4)), PngOf(0x7FFFFFFF, 0x7FFFFFFF, Zeros(4)),
                          PngOf(65536, 1, Zeros(300))};
  for (const Bytes& bytes : claims) {
    const auto picture = DecodePicture(bytes, {}, budget);
    EXPECT_FALSE(picture.ok());
    EXPECT_EQ(budget.peak_bytes(), 0u) << picture.status().message();
  }
  Bytes jpeg = ReadZooBytes("images/large.jpg");
  const std::array<uint8_t, 2> frame = {0xFF, 0xC2};
  const auto at = std::search(jpeg.begin(), jpeg.end(), frame.begin(), frame.end());
  ASSERT_NE(at, jpeg.end());
  at[5] = at[7] = 0x1F;  // 7958 x 8136
  EXPECT_EQ(DecodePicture(jpeg, {}, budget).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(budget.peak_bytes(), 0u);
  at[5] = at[7] = 0xFF;
  EXPECT_EQ(DecodePicture(jpeg, {}, budget).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(budget.peak_bytes(), 0u);
}

TEST(Picture, DataThatExpandsBeyondThePictureIsStopped) {
  if (!HaveStbDecoder()) GTEST_SKIP() << "stb_image is not built in";
  // 8 x 8 pixels, and 100 MB of zeros behind them.
  const Bytes bomb = PngOf(8, 8, Zeros(400000));
  BudgetAllocator budget(SystemAllocator(), uint64_t{1} << 40);
  const auto picture = DecodePicture(bomb, {}, budget);
  EXPECT_EQ(picture.status().code(), StatusCode::kCorrupt) << picture.status().message();
  EXPECT_LT(budget.peak_bytes(), uint64_t{8} << 20);
  // The same data as a picture that it fits.
  const auto fits = Decode(PngOf(257, 100, Zeros(100)));
  ASSERT_TRUE(fits.ok()) << fits.status().message();
  EXPECT_EQ(fits->rgb.size(), 257u * 100 * 3);
}

TEST(Picture, LimitsOfTheCaller) {
  const Bytes bytes = ReadZooBytes("images/large.jpg");  // 200 x 150
  PictureLimits limits;
  limits.max_pixels = 200 * 150 - 1;
  EXPECT_EQ(Decode(bytes, limits).status().code(), StatusCode::kOutOfRange);
  limits.max_pixels = 200 * 150;
  limits.max_side = 199;
  EXPECT_EQ(Decode(bytes, limits).status().code(), StatusCode::kOutOfRange);
}

TEST(Picture, KindsThatAreRefusedByName) {
  ExpectRefused({}, StatusCode::kInvalidArgument, "no bytes");
  Bytes text;
  Put("hello", &text);
  ExpectRefused(text, StatusCode::kUnsupported, "no known signature");
  ExpectRefused({'I', 'I', '*', 0, 8, 0, 0, 0}, StatusCode::kUnsupported, "TIFF");
  ExpectRefused({0, 0, 0, 24, 'f', 't', 'y', 'p', 'h', 'e', 'i', 'c'}, StatusCode::kUnsupported,
                "HEIC");
  Bytes jpeg = ReadZooBytes("images/square.jpg");
  const std::array<uint8_t, 2> frame = {0xFF, 0xC0};
  const auto at = std::search(jpeg.begin(), jpeg.end(), frame.begin(), frame.end());
  ASSERT_NE(at, jpeg.end());
  Bytes changed = jpeg;
  const auto changed_at = changed.begin() + (at - jpeg.begin());
  changed_at[9] = 4;
  ExpectRefused(changed, StatusCode::kUnsupported, "CMYK");
  changed_at[9] = 3;
  changed_at[1] = 0xC9;
  ExpectRefused(changed, StatusCode::kUnsupported, "arithmetic");
  changed_at[1] = 0xC3;
  ExpectRefused(changed, StatusCode::kUnsupported, "lossless");
  changed_at[1] = 0xC0;
  changed_at[4] = 12;
  ExpectRefused(changed, StatusCode::kUnsupported, "12 bits");
  ExpectRefused(PngOf(8, 8, Zeros(1), 0, "CgBI"), StatusCode::kUnsupported, "CgBI");
  ExpectRefused(PngOf(8, 8, Zeros(1), 5), StatusCode::kCorrupt, "does not exist");
  ExpectRefused(PngOf(8, 8, Zeros(1), 3), StatusCode::kCorrupt, "palette");
  ExpectRefused(PngOf(0, 8, Zeros(1)), StatusCode::kCorrupt, "0 x 8");
  Bytes damaged = ReadZooBytes("images/wide.png");
  damaged[damaged.size() / 2] ^= 1;
  ExpectRefused(damaged, StatusCode::kCorrupt, "checksum");
}

// Found by fuzzing: stb_image 2.27 writes past its table when a file has more than 256 codes.
TEST(Picture, CodeTablesOfTooManyCodes) {
  Bytes jpeg = ReadZooBytes("images/square.jpg");
  const std::array<uint8_t, 2> table = {0xFF, 0xC4};
  const auto at = std::search(jpeg.begin(), jpeg.end(), table.begin(), table.end());
  ASSERT_NE(at, jpeg.end());
  Bytes many(jpeg.begin(), at);
  for (const int byte : {0xFF, 0xC4, 2, 19, 0}) many.push_back(static_cast<uint8_t>(byte));
  for (int bits = 1; bits <= 16; ++bits) many.push_back(32);
  many.insert(many.end(), 512, uint8_t{1});
  many.insert(many.end(), at, jpeg.end());
  ExpectRefused(many, StatusCode::kCorrupt, "512 codes");
}

// Scans cost a pass each, and one of them fits a few bytes.
TEST(Picture, ScansWithoutEndAreRefused) {
  Bytes jpeg = ReadZooBytes("images/large.jpg");
  const std::array<uint8_t, 2> scan = {0xFF, 0xDA};
  const auto at = std::search(jpeg.begin(), jpeg.end(), scan.begin(), scan.end());
  ASSERT_NE(at, jpeg.end());
  const Bytes once(at, at + 2 + at[3]);
  Bytes many(jpeg.begin(), at);
  for (int i = 0; i < 200; ++i) many.insert(many.end(), once.begin(), once.end());
  many.insert(many.end(), at, jpeg.end());
  ExpectRefused(many, StatusCode::kCorrupt, "scans");
}

TEST(Picture, RefusedMemoryIsAStatus) {
  if (!HaveStbDecoder()) GTEST_SKIP() << "stb_image is not built in";
  for (const std::string name : {"square.jpg", "palette.png", "large.jpg", "gif"}) {
    SCOPED_TRACE(name);
    const Bytes bytes = name == "gif" ? SmallGif(1) : ReadZooBytes("images/" + name);
    for (int64_t fail_at = 1;; ++fail_at) {
      testing::FailingAllocator allocator(fail_at);
      {
        const auto picture = DecodePicture(bytes, {}, allocator);
        if (!allocator.failed()) {
          EXPECT_TRUE(picture.ok()) << picture.status().message();
          break;
        }
        EXPECT_EQ(picture.status().code(), StatusCode::kOutOfMemory) << picture.status().message();
      }
      EXPECT_EQ(allocator.live_bytes(), 0);
    }
  }
}

}  // namespace
}  // namespace cellm::media
