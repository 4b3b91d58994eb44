// The one place that includes libwebp.

#include "media/webp_decoder.h"

#if defined(CELLM_HAVE_WEBP)
#include <webp/decode.h>

namespace cellm::media {

bool HaveWebpDecoder() { return true; }

Status ReadWebpSize(std::span<const uint8_t> bytes, PictureHeader* header) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(bytes.data(), header->end, &features) != VP8_STATUS_OK) {
    return Corrupt("WebP: the header makes no sense");
  }
  if (features.has_animation != 0) {
    return Unsupported("WebP: animations are not read; save one picture of it");
  }
  header->width = features.width;
  header->height = features.height;
  return OkStatus();
}

Result<Picture> DecodeWebp(std::span<const uint8_t> bytes, const PictureHeader& header,
                           Allocator& allocator) {
  CELLM_ASSIGN_OR_RETURN(Picture picture,
                         NewPicture(static_cast<int32_t>(header.width),
                                    static_cast<int32_t>(header.height), allocator, "WebP"));
  // Colours as stored: alpha is left out, not blended.
  if (WebPDecodeRGBInto(bytes.data(), header.end, picture.rgb.data(), picture.rgb.size(),
                        picture.width * 3) == nullptr) {
    return Corrupt("WebP: the file is damaged or cut short");
  }
  return picture;
}

}  // namespace cellm::media

#else

namespace cellm::media {

bool HaveWebpDecoder() { return false; }

Status ReadWebpSize(std::span<const uint8_t>, PictureHeader*) {
  return Unsupported(
      "WebP is not in this build: save the picture as PNG or JPEG, or build with "
      "libwebp (Debian libwebp-dev)");
}

Result<Picture> DecodeWebp(std::span<const uint8_t> bytes, const PictureHeader& header,
                           Allocator&) {
  PictureHeader unread = header;
  return ReadWebpSize(bytes, &unread);
}

}  // namespace cellm::media

#endif
