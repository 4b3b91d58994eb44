#include "media/picture_header.h"

#include <array>
#include <cstring>
#include <string_view>

#include "base/bytes.h"
#include "base/checked.h"
#include "media/media_limits.h"

namespace cellm::media {
namespace {

using Bytes = std::span<const uint8_t>;

uint32_t Be16(const uint8_t* p) { return static_cast<uint32_t>(p[0] << 8 | p[1]); }
uint32_t Be32(const uint8_t* p) { return Be16(p) << 16 | Be16(p + 2); }

bool StartsWith(Bytes bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

Status CutShort(const char* format, size_t at) {
  return Corrupt("%s: the file is cut short at byte %zu", format, at);
}

// ---- PNG (W3C Recommendation, second edition): chunks of length, name, data, checksum.

constexpr std::string_view kPngSignature = "\x89PNG\r\n\x1a\n";
// DEFLATE makes at most 1032 bytes of one.
constexpr int64_t kDeflateGain = 1032;

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t n = 0; n < 256; ++n) {
    uint32_t c = n;
    for (int k = 0; k < 8; ++k) c = (c & 1) != 0 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
    table[n] = c;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = MakeCrcTable();

uint32_t Crc(Bytes bytes) {
  uint32_t c = 0xFFFFFFFFu;
  for (const uint8_t byte : bytes) c = kCrcTable[(c ^ byte) & 0xFF] ^ (c >> 8);
  return ~c;
}

// Bits of a pixel, or 0 for a pair of colour type and depth that does not exist.
int PngPixelBits(uint8_t colour, uint8_t depth) {
  const bool power = depth == 1 || depth == 2 || depth == 4 || depth == 8 || depth == 16;
  if (!power) return 0;
  switch (colour) {
    case 0:
      return depth;
    case 2:
      return depth >= 8 ? 3 * depth : 0;
    case 3:
      return depth <= 8 ? depth : 0;
    case 4:
      return depth >= 8 ? 2 * depth : 0;
    case 6:
      return depth >= 8 ? 4 * depth : 0;
    default:
      return 0;
  }
}

Result<PictureHeader> ReadPng(Bytes bytes) {
  PictureHeader header;
  header.format = PictureFormat::kPng;
  int bits = 0;
  bool palette = false;
  uint8_t colour = 0;
  int64_t data_bytes = 0;
  size_t at = kPngSignature.size();
  for (bool first = true;; first = false) {
    if (bytes.size() - at < 12) return CutShort("PNG", bytes.size());
    const uint32_t length = Be32(&bytes[at]);
    if (length > bytes.size() - at - 12) return CutShort("PNG", bytes.size());
    const Bytes name = bytes.subspan(at + 4, 4);
    const Bytes data = bytes.subspan(at + 8, length);
    if (Crc(bytes.subspan(at + 4, size_t{length} + 4)) != Be32(&bytes[at + 8 + length])) {
      return Corrupt("PNG: the checksum of the part at byte %zu is wrong; the file is damaged", at);
    }
    at += size_t{length} + 12;
    if (first != StartsWith(name, "IHDR")) {
      return Corrupt("PNG: the header is not the first and only part of its kind");
    }
    if (first) {
      if (length != 13) return Corrupt("PNG: a header of %u bytes; 13 were expected", length);
      header.width = Be32(&data[0]);
      header.height = Be32(&data[4]);
      colour = data[9];
      bits = PngPixelBits(colour, data[8]);
      if (bits == 0 || data[10] != 0 || data[11] != 0 || data[12] > 1) {
        return Corrupt(
            "PNG: the header states a kind of picture that does not exist (depth %d, "
            "colour type %d)",
            data[8], data[9]);
      }
    } else if (StartsWith(name, "PLTE")) {
      palette = true;
    } else if (StartsWith(name, "IDAT")) {
      data_bytes += length;
    } else if (StartsWith(name, "eXIf")) {
      header.orientation = ExifOrientation(data);
    } else if (StartsWith(name, "IEND")) {
      break;
    } else if ((name[0] & 0x20) == 0) {
      return Unsupported("PNG: the part %.4s is needed to read this file and is not known here",
                         reinterpret_cast<const char*>(name.data()));
    }
  }
  if (data_bytes == 0) return Corrupt("PNG: the file has no pixels");
  if (colour == 3 && !palette) return Corrupt("PNG: the palette is missing");
  header.end = at;
  header.possible_pixels = data_bytes * kDeflateGain * 8 / bits + 1;
  return header;
}

// ---- JPEG (ITU-T T.81): markers, some with a length; coded data runs to the next marker.

// A block of 64 pixels takes a bit at least, and 1024 pixels a byte leaves room for odd sampling.
constexpr int64_t kJpegPixelsPerByte = 1024;

const char* JpegKind(uint8_t marker) {
  switch (marker) {
    case 0xC3:
    case 0xC7:
    case 0xCB:
    case 0xCF:
      return "lossless";
    case 0xC5:
    case 0xC6:
    case 0xCD:
    case 0xCE:
      return "hierarchical";
    default:
      return "arithmetic coding";
  }
}

Status ReadJpegFrame(uint8_t marker, Bytes data, PictureHeader* header) {
  if (header->width != 0) return Corrupt("JPEG: the file has two frame headers");
  if (marker > 0xC2) {
    return Unsupported(
        "JPEG: this kind (%s) is not read; save it as a baseline or progressive JPEG",
        JpegKind(marker));
  }
  if (data.size() < 6) return Corrupt("JPEG: a frame header of %zu bytes", data.size());
  if (data[0] != 8) {
    return Unsupported("JPEG: %d bits a sample are not read; save it with 8", data[0]);
  }
  header->height = Be16(&data[1]);
  header->width = Be16(&data[3]);
  if (data[5] == 4) {
    return Unsupported("JPEG: four colours (CMYK) are not read; save it as RGB");
  }
  if (data[5] != 1 && data[5] != 3) {
    return Unsupported("JPEG: %d colours are not read; save it as grey or RGB", data[5]);
  }
  if (header->width == 0 || header->height == 0) {
    return Corrupt("JPEG: a picture of %lld x %lld pixels", static_cast<long long>(header->width),
                   static_cast<long long>(header->height));
  }
  return OkStatus();
}

// A part of Huffman tables: for each its class and number, how many codes of 1 to 16 bits it has,
// and a value for each code, of which 256 exist. Decoders differ in what they do with more.
Status CheckJpegCodes(Bytes data) {
  while (!data.empty()) {
    if (data.size() < 17) return Corrupt("JPEG: a code table of %zu bytes", data.size());
    size_t codes = 0;
    for (size_t i = 1; i <= 16; ++i) codes += data[i];
    if (codes > 256 || codes > data.size() - 17) {
      return Corrupt(
          "JPEG: a code table says %zu codes; its part has %zu bytes left, and 256 can be", codes,
          data.size() - 17);
    }
    data = data.subspan(17 + codes);
  }
  return OkStatus();
}

// Where the coded data that starts at `at` ends: at a marker that is neither a stuffed byte nor a
// restart; or the end of the bytes.
size_t EndOfScan(Bytes bytes, size_t at) {
  while (at + 1 < bytes.size()) {
    const void* found = std::memchr(&bytes[at], 0xFF, bytes.size() - at - 1);
    if (found == nullptr) break;
    at = static_cast<size_t>(static_cast<const uint8_t*>(found) - bytes.data());
    const uint8_t next = bytes[at + 1];
    if (next != 0 && next != 0xFF && (next < 0xD0 || next > 0xD7)) return at;
    at += next == 0xFF ? 1 : 2;
  }
  return bytes.size();
}

Result<PictureHeader> ReadJpeg(Bytes bytes) {
  PictureHeader header;
  header.format = PictureFormat::kJpeg;
  int32_t scans = 0;
  int64_t coded = 0;
  size_t at = 2;
  while (true) {
    if (at < bytes.size() && bytes[at] != 0xFF) {
      return Corrupt("JPEG: a marker was expected at byte %zu", at);
    }
    while (at < bytes.size() && bytes[at] == 0xFF) ++at;
    if (at >= bytes.size()) return CutShort("JPEG", bytes.size());
    const uint8_t marker = bytes[at++];
    if (marker == 0xD9) break;
    if (marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8)) continue;
    if (bytes.size() - at < 2) return CutShort("JPEG", bytes.size());
    const size_t length = Be16(&bytes[at]);
    if (length < 2) return Corrupt("JPEG: a part of %zu bytes at byte %zu", length, at);
    if (length > bytes.size() - at) return CutShort("JPEG", bytes.size());
    const Bytes data = bytes.subspan(at + 2, length - 2);
    at += length;
    const bool frame =
        marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
    if (marker == 0xC4) CELLM_RETURN_IF_ERROR(CheckJpegCodes(data));
    if (frame) CELLM_RETURN_IF_ERROR(ReadJpegFrame(marker, data, &header));
    constexpr std::string_view kExif("Exif\0\0", 6);
    if (marker == 0xE1 && StartsWith(data, kExif)) {
      header.orientation = ExifOrientation(data.subspan(kExif.size()));
    }
    if (marker != 0xDA) continue;
    if (header.width == 0) return Corrupt("JPEG: pixels at byte %zu before the frame header", at);
    if (++scans > limits::kMaxJpegScans) {
      return Corrupt("JPEG: more than %d scans; such files only cost time", limits::kMaxJpegScans);
    }
    const size_t end = EndOfScan(bytes, at);
    coded += static_cast<int64_t>(end - at);
    at = end;
  }
  if (scans == 0) return Corrupt("JPEG: the file has no pixels");
  header.end = at;
  header.possible_pixels = coded * kJpegPixelsPerByte;
  return header;
}

// ---- BMP: a header of one of several lengths, then rows of known size.

Result<PictureHeader> ReadBmp(Bytes bytes) {
  if (bytes.size() < 26) return CutShort("BMP", bytes.size());
  const uint32_t offset = LoadLe32(&bytes[10]);
  const uint32_t info = LoadLe32(&bytes[14]);
  PictureHeader header;
  header.format = PictureFormat::kBmp;
  int bits = 0;
  if (info == 12) {
    header.width = LoadLe16(&bytes[18]);
    header.height = LoadLe16(&bytes[20]);
    bits = LoadLe16(&bytes[24]);
  } else if (info == 40 || info == 56 || info == 108 || info == 124) {
    if (bytes.size() < 14 + size_t{info}) return CutShort("BMP", bytes.size());
    header.width = static_cast<int32_t>(LoadLe32(&bytes[18]));
    const int64_t height = static_cast<int32_t>(LoadLe32(&bytes[22]));
    header.height = height < 0 ? -height : height;  // negative: rows from the top
    bits = LoadLe16(&bytes[28]);
    const uint32_t compression = LoadLe32(&bytes[30]);
    if (compression != 0 && compression != 3) {
      return Unsupported(
          "BMP: compression %u (run lengths, or a picture inside) is not read; save "
          "it uncompressed or as PNG",
          compression);
    }
  } else {
    return Unsupported("BMP: a header of %u bytes is not read; save it as PNG", info);
  }
  if (bits != 1 && bits != 4 && bits != 8 && bits != 16 && bits != 24 && bits != 32) {
    return Corrupt("BMP: %d bits a pixel", bits);
  }
  if (header.width <= 0 || header.height <= 0) {
    return Corrupt("BMP: a picture of %lld x %lld pixels", static_cast<long long>(header.width),
                   static_cast<long long>(header.height));
  }
  const uint64_t row =
      (static_cast<uint64_t>(header.width) * static_cast<uint64_t>(bits) + 31) / 32 * 4;
  if (offset < 14 + info) return Corrupt("BMP: pixels at byte %u, inside of the header", offset);
  uint64_t pixels = 0;
  if (!CheckedMul(row, static_cast<uint64_t>(header.height), &pixels) ||
      !RangeFits(offset, pixels, bytes.size())) {
    return CutShort("BMP", bytes.size());
  }
  header.end = bytes.size();
  return header;
}

// ---- GIF (89a): a screen, then blocks; each block's data in pieces of up to 255 bytes.

// A code of 12 bits stands for at most 4096 pixels.
constexpr int64_t kGifPixelsPerByte = 4096;
// Screens up to this size may be mostly empty.
constexpr int64_t kGifFreePixels = 1 << 20;

// The end of the pieces that start at `at`, or 0 when the file ends first.
size_t EndOfPieces(Bytes bytes, size_t at) {
  while (at < bytes.size()) {
    const size_t length = bytes[at++];
    if (length == 0) return at;
    if (length > bytes.size() - at) return 0;
    at += length;
  }
  return 0;
}

Result<PictureHeader> ReadGif(Bytes bytes) {
  if (bytes.size() < 13) return CutShort("GIF", bytes.size());
  PictureHeader header;
  header.format = PictureFormat::kGif;
  header.width = LoadLe16(&bytes[6]);
  header.height = LoadLe16(&bytes[8]);
  if (header.width == 0 || header.height == 0) {
    return Corrupt("GIF: a picture of %lld x %lld pixels", static_cast<long long>(header.width),
                   static_cast<long long>(header.height));
  }
  const auto table = [](uint8_t flags) {
    return (flags & 0x80) != 0 ? size_t{3} << ((flags & 7) + 1) : size_t{0};
  };
  size_t at = 13 + table(bytes[10]);
  while (true) {
    if (at >= bytes.size()) return CutShort("GIF", bytes.size());
    const uint8_t block = bytes[at++];
    if (block == 0x3B) return Corrupt("GIF: the file has no pixels");
    if (block != 0x21 && block != 0x2C) {
      return Corrupt("GIF: byte %zu starts no block of a kind that exists", at - 1);
    }
    if (block == 0x2C) break;
    if (bytes.size() - at < 2) return CutShort("GIF", bytes.size());
    if (bytes[at] == 0xF9 && bytes[at + 1] == 4 && bytes.size() - at > 2) {
      header.transparency = at + 2;
    }
    at = EndOfPieces(bytes, at + 1);
    if (at == 0) return CutShort("GIF", bytes.size());
  }
  // Place and size on the screen, flags, then the table, the width of the first code and the data.
  if (bytes.size() - at < 10) return CutShort("GIF", bytes.size());
  at += 9 + table(bytes[at + 8]);
  if (at >= bytes.size()) return CutShort("GIF", bytes.size());
  const size_t data = at + 1;
  header.end = EndOfPieces(bytes, data);
  if (header.end == 0) return CutShort("GIF", bytes.size());
  header.possible_pixels =
      std::max(kGifFreePixels, static_cast<int64_t>(header.end - data) * kGifPixelsPerByte);
  return header;
}

// ---- WebP: a RIFF file; the sizes are the decoder's to read (webp_decoder.cc).

Result<PictureHeader> ReadWebp(Bytes bytes) {
  PictureHeader header;
  header.format = PictureFormat::kWebp;
  const uint64_t end = uint64_t{LoadLe32(&bytes[4])} + 8;
  if (end > bytes.size()) return CutShort("WebP", bytes.size());
  header.end = static_cast<size_t>(end);
  size_t at = 12;
  while (header.end >= 8 && at <= header.end - 8) {
    const size_t length = LoadLe32(&bytes[at + 4]);
    if (length > header.end - at - 8) {
      return Corrupt("WebP: the part at byte %zu has %zu bytes, more than are left", at, length);
    }
    if (StartsWith(bytes.subspan(at), "EXIF")) {
      Bytes exif = bytes.subspan(at + 8, length);
      constexpr std::string_view kExif("Exif\0\0", 6);
      if (StartsWith(exif, kExif)) exif = exif.subspan(kExif.size());
      header.orientation = ExifOrientation(exif);
    }
    at += 8 + length + length % 2;
  }
  return header;
}

}  // namespace

int32_t ExifOrientation(Bytes tiff) {
  if (tiff.size() < 8) return 1;
  const bool little = StartsWith(tiff, "II*");
  if (!little && !StartsWith(tiff, std::string_view("MM\0*", 4))) return 1;
  const auto get16 = [&](size_t at) {
    return little ? uint32_t{LoadLe16(&tiff[at])} : Be16(&tiff[at]);
  };
  const size_t directory = little ? LoadLe32(&tiff[4]) : Be32(&tiff[4]);
  if (!RangeFits(directory, 2, tiff.size())) return 1;
  const uint32_t entries = get16(directory);
  for (uint32_t i = 0; i < entries; ++i) {
    const size_t at = directory + 2 + size_t{12} * i;
    if (!RangeFits(at, 12, tiff.size())) return 1;
    // Tag 0x0112, one number of 16 bits.
    if (get16(at) != 0x0112 || get16(at + 2) != 3) continue;
    const uint32_t value = get16(at + 8);
    return value >= 1 && value <= 8 ? static_cast<int32_t>(value) : 1;
  }
  return 1;
}

Result<PictureHeader> ReadPictureHeader(Bytes bytes) {
  if (bytes.empty()) return InvalidArgument("the picture has no bytes");
  if (StartsWith(bytes, kPngSignature)) return ReadPng(bytes);
  if (StartsWith(bytes, "\xFF\xD8\xFF")) return ReadJpeg(bytes);
  if (StartsWith(bytes, "GIF87a") || StartsWith(bytes, "GIF89a")) return ReadGif(bytes);
  if (StartsWith(bytes, "BM")) return ReadBmp(bytes);
  const bool riff = bytes.size() >= 12 && StartsWith(bytes, "RIFF");
  if (riff && StartsWith(bytes.subspan(8), "WEBP")) return ReadWebp(bytes);
  const char* kind = "a file that starts with no known signature";
  if (StartsWith(bytes, "II*") || StartsWith(bytes, std::string_view("MM\0*", 4))) kind = "TIFF";
  if (bytes.size() >= 12 && StartsWith(bytes.subspan(4), "ftyp")) kind = "HEIC, AVIF or a video";
  if (StartsWith(bytes, "%PDF")) kind = "PDF";
  if (StartsWith(bytes, "<svg") || StartsWith(bytes, "<?xml")) kind = "SVG or XML";
  return Unsupported("this is %s; PNG, JPEG, BMP, GIF and WebP are read", kind);
}

}  // namespace cellm::media
