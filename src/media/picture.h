#ifndef CELLM_SRC_MEDIA_PICTURE_H_
#define CELLM_SRC_MEDIA_PICTURE_H_

// Pictures: eight bits of red, green and blue a pixel, and the one door through which encoded ones
// become that.

#include <cstdint>
#include <span>

#include "base/allocator.h"
#include "base/status.h"
#include "media/media_limits.h"

namespace cellm::media {

// Borrowed pixels: [height, width, 3], rows without gaps. Both sides are positive.
struct PictureView {
  int32_t width = 0;
  int32_t height = 0;
  const uint8_t* rgb = nullptr;
};

struct Picture {
  int32_t width = 0;
  int32_t height = 0;
  Array<uint8_t> rgb;  // [height, width, 3]

  PictureView view() const { return {width, height, rgb.data()}; }
};

// Memory for width * height pixels, not set. OutOfMemory.
Result<Picture> NewPicture(int32_t width, int32_t height, Allocator& allocator, const char* what);

// What an encoded picture may ask for; the defaults are the library's hard caps, and larger values
// do not raise them.
struct PictureLimits {
  int64_t max_pixels = limits::kMaxPicturePixels;
  int32_t max_side = limits::kMaxPictureSide;
};

// Decodes PNG, JPEG, BMP, the first frame of a GIF and, where it is built in, WebP.
//
// Grey is replicated, palettes are looked up, alpha is dropped (not blended: the colour under
// transparent pixels stays), 16 bits become the upper 8, and the orientation that a camera noted
// (EXIF) is applied. Sizes are read from the header and checked before any memory is asked for; the
// decoder works in memory of `allocator`, at most a fixed multiple of the pixels and of the file.
//   InvalidArgument  no bytes at all
//   Unsupported      not a picture that this build reads, or a kind of one that it does not (CMYK,
//                    arithmetic coding, run-length BMP): the message names it
//   Corrupt          cut short, a checksum that is wrong, lengths that lie
//   OutOfRange       more pixels or a longer side than `limits`
//   OutOfMemory
// Any thread.
Result<Picture> DecodePicture(std::span<const uint8_t> bytes, const PictureLimits& limits,
                              Allocator& allocator);

}  // namespace cellm::media

#endif  // CELLM_SRC_MEDIA_PICTURE_H_
