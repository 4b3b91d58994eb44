#include "media/picture.h"

#include <algorithm>

#include "media/picture_header.h"
#include "media/stb_decoder.h"
#include "media/webp_decoder.h"

namespace cellm::media {
namespace {

// Where pixel (x, y) of the upright picture is stored, for a stored picture of width x height.
// EXIF 2.3, tag Orientation: 2 to 4 mirror and turn half round, 5 to 8 exchange the sides as well.
struct Stored {
  int32_t x, y;
};
Stored StoredAt(int32_t orientation, int32_t x, int32_t y, int32_t width, int32_t height) {
  switch (orientation) {
    case 2:
      return {width - 1 - x, y};
    case 3:
      return {width - 1 - x, height - 1 - y};
    case 4:
      return {x, height - 1 - y};
    case 5:
      return {y, x};
    case 6:
      return {y, height - 1 - x};
    case 7:
      return {width - 1 - y, height - 1 - x};
    case 8:
      return {width - 1 - y, x};
    default:
      return {x, y};
  }
}

Result<Picture> Upright(Picture stored, int32_t orientation, Allocator& allocator) {
  if (orientation == 1) return stored;
  const bool exchanged = orientation >= 5;
  CELLM_ASSIGN_OR_RETURN(Picture picture, NewPicture(exchanged ? stored.height : stored.width,
                                                     exchanged ? stored.width : stored.height,
                                                     allocator, "turned picture"));
  uint8_t* out = picture.rgb.data();
  for (int32_t y = 0; y < picture.height; ++y) {
    for (int32_t x = 0; x < picture.width; ++x, out += 3) {
      const Stored from = StoredAt(orientation, x, y, stored.width, stored.height);
      const size_t pixel = static_cast<size_t>(from.y) * static_cast<size_t>(stored.width) +
                           static_cast<size_t>(from.x);
      std::copy_n(stored.rgb.data() + pixel * 3, 3, out);
    }
  }
  return picture;
}

}  // namespace

Result<Picture> NewPicture(int32_t width, int32_t height, Allocator& allocator, const char* what) {
  Picture picture;
  picture.width = width;
  picture.height = height;
  CELLM_ASSIGN_OR_RETURN(
      picture.rgb, Array<uint8_t>::Uninitialised(
                       allocator, static_cast<size_t>(width) * static_cast<size_t>(height) * 3,
                       MemoryClass::kActivations, what));
  return picture;
}

Result<Picture> DecodePicture(std::span<const uint8_t> bytes, const PictureLimits& limits,
                              Allocator& allocator) {
  CELLM_ASSIGN_OR_RETURN(PictureHeader header, ReadPictureHeader(bytes));
  const bool webp = header.format == PictureFormat::kWebp;
  if (webp) CELLM_RETURN_IF_ERROR(ReadWebpSize(bytes, &header));
  const int64_t max_side = std::min(limits.max_side, limits::kMaxPictureSide);
  const int64_t max_pixels = std::min<int64_t>(limits.max_pixels, limits::kMaxPicturePixels);
  // The product fits: sides are below 2^32.
  if (header.width > max_side || header.height > max_side ||
      header.width * header.height > max_pixels) {
    return OutOfRange(
        "a picture of %lld x %lld pixels; sides up to %lld and %lld pixels in all are "
        "taken; make it smaller",
        static_cast<long long>(header.width), static_cast<long long>(header.height),
        static_cast<long long>(max_side), static_cast<long long>(max_pixels));
  }
  if (header.width <= 0 || header.height <= 0) {
    return Corrupt("a picture of %lld x %lld pixels", static_cast<long long>(header.width),
                   static_cast<long long>(header.height));
  }
  if (header.possible_pixels != 0 && header.width * header.height > header.possible_pixels) {
    return Corrupt(
        "the header says %lld x %lld pixels, and the %zu bytes of the file cannot hold "
        "them",
        static_cast<long long>(header.width), static_cast<long long>(header.height), bytes.size());
  }
  Result<Picture> picture =
      webp ? DecodeWebp(bytes, header, allocator) : DecodeWithStb(bytes, header, allocator);
  if (!picture.ok()) return picture.status();
  return Upright(std::move(picture).value(), header.orientation, allocator);
}

}  // namespace cellm::media
