#ifndef CELLM_SRC_MEDIA_PICTURE_HEADER_H_
#define CELLM_SRC_MEDIA_PICTURE_HEADER_H_

// What an encoded picture says of itself, read by walking its parts from end to end.
//
// This is our own reading, done before a decoder sees a byte: sizes for the caps, the orientation,
// and whether the file is whole. Decoders are lenient (a picture that is cut short becomes grey
// below the cut), we are not. Private to src/media.

#include <cstdint>
#include <span>

#include "base/status.h"

namespace cellm::media {

enum class PictureFormat { kPng, kJpeg, kBmp, kGif, kWebp };

struct PictureHeader {
  PictureFormat format = PictureFormat::kPng;
  int64_t width = 0;  // positive, of the stored picture: before the orientation is applied
  int64_t height = 0;
  int32_t orientation = 1;  // EXIF: 1 to 8
  size_t end = 0;           // bytes that the first picture takes
  size_t transparency =
      0;  // GIF: offset of the byte whose lowest bit turns transparency on; 0: none
  // At most this many pixels can be in the bytes, whatever the header says; 0: no such bound.
  int64_t possible_pixels = 0;
};

// Reads the header of one of the formats above. Corrupt and Unsupported as DecodePicture() says;
// positive sides are all that is promised of width and height. O(bytes).
Result<PictureHeader> ReadPictureHeader(std::span<const uint8_t> bytes);

// The orientation in a TIFF structure, as EXIF blocks hold it; 1 when it says none or makes no
// sense.
int32_t ExifOrientation(std::span<const uint8_t> tiff);

}  // namespace cellm::media

#endif  // CELLM_SRC_MEDIA_PICTURE_HEADER_H_
