#ifndef CELLM_SRC_MEDIA_WEBP_DECODER_H_
#define CELLM_SRC_MEDIA_WEBP_DECODER_H_

#include <cstdint>
#include <span>

#include "base/allocator.h"
#include "base/status.h"
#include "media/picture.h"
#include "media/picture_header.h"

namespace cellm::media {

// Whether libwebp is built in.
bool HaveWebpDecoder();

// Sets width and height. Unsupported for animations, and where WebP is not built in; Corrupt.
Status ReadWebpSize(std::span<const uint8_t> bytes, PictureHeader* header);

// By libwebp, whose own working memory comes from malloc: about four bytes a pixel without a loss,
// rows alone otherwise. Corrupt or OutOfMemory. Private to src/media. Any thread.
Result<Picture> DecodeWebp(std::span<const uint8_t> bytes, const PictureHeader& header,
                           Allocator& allocator);

}  // namespace cellm::media

#endif  // CELLM_SRC_MEDIA_WEBP_DECODER_H_
