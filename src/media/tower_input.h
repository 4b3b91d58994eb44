#ifndef CELLM_SRC_MEDIA_TOWER_INPUT_H_
#define CELLM_SRC_MEDIA_TOWER_INPUT_H_

// What a processor hands to a tower: one picture (all its tiles) or one clip of sound, as numbers.
//
// Values are those of the published processors, without the rows that pad a batch there. The family
// decides what a row is; see TowerInput::shape.

#include <cstdint>
#include <span>
#include <vector>

namespace cellm::media {

enum class MediaKind : uint8_t { kPicture, kSound };

struct TowerInput {
  // Patches of a tile, before any merging or pooling.
  struct Grid {
    int32_t rows = 0, cols = 0;
    int64_t patches() const { return int64_t{rows} * cols; }
  };

  MediaKind kind = MediaKind::kPicture;
  // C order:
  //   smolvlm, idefics3, gemma3  [tiles, 3, height, width]
  //   lfm2_vl                    [patches of all tiles, patch * patch * 3], channel fastest
  //   qwen3_5, qwen3_vl          [patches in merge-block order, 3, patch, patch]: one of the two
  //                              time slices, which are equal for a picture
  //   gemma4 picture             [patches, patch * patch * 3], channel fastest, values in [0, 1]
  //   gemma4 sound               [frames, mel bins]
  std::vector<int64_t> shape;
  std::vector<float> storage;  // as many as the product of `shape`
  // One per tile in the order of the rows: tiles first, thumbnail or global picture last. Empty for
  // sound.
  std::vector<Grid> grids;
  // Sound: one per frame, 0 or 1. A frame that reaches past the real samples is not valid.
  std::vector<uint8_t> frame_valid;

  std::span<const float> values() const { return storage; }
};

}  // namespace cellm::media

#endif  // CELLM_SRC_MEDIA_TOWER_INPUT_H_
