#ifndef CELLM_SRC_MEDIA_STB_DECODER_H_
#define CELLM_SRC_MEDIA_STB_DECODER_H_

#include <cstdint>
#include <span>

#include "base/allocator.h"
#include "base/status.h"
#include "media/picture.h"
#include "media/picture_header.h"

namespace cellm::media {

// Whether stb_image is built in.
bool HaveStbDecoder();

// PNG, JPEG, BMP and GIF by stb_image, in memory of `allocator` that is limited to what a picture
// of this header can need. The bytes have been walked (picture_header.h). Corrupt or OutOfMemory.
// Private to src/media. Any thread.
Result<Picture> DecodeWithStb(std::span<const uint8_t> bytes, const PictureHeader& header,
                              Allocator& allocator);

}  // namespace cellm::media

#endif  // CELLM_SRC_MEDIA_STB_DECODER_H_
