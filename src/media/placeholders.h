#ifndef CELLM_SRC_MEDIA_PLACEHOLDERS_H_
#define CELLM_SRC_MEDIA_PLACEHOLDERS_H_

// The text side of pictures and sounds.
//
// A rendered prompt holds one placeholder a picture or clip. Before tokenising, each is replaced by
// the text that the published processors write: markers of the family, and as many feature tokens
// as the tower yields rows. It is text, and is tokenised as one with the text around it: SmolVLM's
// last two line ends become one token where the vocabulary has it.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "media/processor.h"

namespace cellm::media {

// What one picture or clip becomes in the prompt.
struct Expansion {
  MediaKind kind = MediaKind::kPicture;
  std::string text;
  int64_t feature_rows = 0;  // feature tokens in `text`, one a row of the tower's output
};

// What stands for one picture or clip in a rendered prompt. Empty for sound where the model takes
// none.
std::string_view Placeholder(const Processor& processor, MediaKind kind);
// The token whose embedding a feature replaces, as text.
std::string_view FeatureToken(const Processor& processor, MediaKind kind);

Expansion ExpandPicture(const Processor& processor, const PicturePlan& plan);
Expansion ExpandSound(const Processor& processor, const SoundPlan& plan);

// A placeholder in a prompt: `length` bytes at `offset`.
struct Place {
  MediaKind kind = MediaKind::kPicture;
  size_t offset = 0;
  size_t length = 0;
};
// All placeholders of a prompt, in order. O(prompt).
std::vector<Place> FindPlaces(const Processor& processor, std::string_view prompt);

// The prompt with its placeholders replaced: pictures and clips each in the order of their places.
// InvalidArgument when there are more of a kind than places, or fewer: the message has both
// numbers.
Result<std::string> ExpandPrompt(const Processor& processor, std::string_view prompt,
                                 std::span<const Expansion> expansions);

}  // namespace cellm::media

#endif  // CELLM_SRC_MEDIA_PLACEHOLDERS_H_
