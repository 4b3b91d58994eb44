#include "media/placeholders.h"

#include "media/families.h"

namespace cellm::media {
namespace {

// Markers of the families that need no loop of their own (smolvlm.cc and lfm2_vl.cc have theirs).
std::string Between(std::string_view before, std::string_view token, int64_t count,
                    std::string_view after) {
  std::string text(before);
  Repeat(token, count, &text);
  text += after;
  return text;
}

Status CheckCounts(size_t places, size_t given, const char* what) {
  if (places == given) return OkStatus();
  return InvalidArgument("the prompt has places for %zu %s, and %zu were given", places, what,
                         given);
}

}  // namespace

std::string_view Placeholder(const Processor& processor, MediaKind kind) {
  if (kind == MediaKind::kSound) return SoundRate(processor) != 0 ? "<|audio|>" : "";
  switch (processor.family) {
    case Family::kSmolVlm:
    case Family::kLfm2Vl:
      return "<image>";
    case Family::kQwenVl:
      return "<|image_pad|>";
    case Family::kGemma3:
      return "<start_of_image>";
    case Family::kGemma4:
      return "<|image|>";
  }
  return "";
}

std::string_view FeatureToken(const Processor& processor, MediaKind kind) {
  if (processor.family == Family::kGemma3) {
    return kind == MediaKind::kPicture ? "<image_soft_token>" : "";
  }
  return Placeholder(processor, kind);
}

Expansion ExpandPicture(const Processor& processor, const PicturePlan& plan) {
  const std::string_view token = FeatureToken(processor, MediaKind::kPicture);
  const int64_t rows = plan.feature_rows;
  Expansion expansion = {MediaKind::kPicture, {}, rows};
  switch (processor.family) {
    case Family::kSmolVlm:
      expansion.text = ExpandSmolVlm(processor.smolvlm, plan);
      break;
    case Family::kLfm2Vl:
      expansion.text = ExpandLfm2Vl(processor.lfm2_vl, plan);
      break;
    // The template writes <|vision_start|> and <|vision_end|>.
    case Family::kQwenVl:
      expansion.text = Between("", token, rows, "");
      break;
    case Family::kGemma3:
      expansion.text = Between("\n\n<start_of_image>", token, rows, "<end_of_image>\n\n");
      break;
    case Family::kGemma4:
      expansion.text = Between("<|image>", token, rows, "<image|>");
      break;
  }
  return expansion;
}

Expansion ExpandSound(const Processor& processor, const SoundPlan& plan) {
  const std::string_view token = FeatureToken(processor, MediaKind::kSound);
  return {MediaKind::kSound, Between("<|audio>", token, plan.feature_rows, "<audio|>"),
          plan.feature_rows};
}

std::vector<Place> FindPlaces(const Processor& processor, std::string_view prompt) {
  const std::string_view picture = Placeholder(processor, MediaKind::kPicture);
  const std::string_view sound = Placeholder(processor, MediaKind::kSound);
  std::vector<Place> places;
  size_t at = 0;
  while (at < prompt.size()) {
    // Every placeholder begins with an angle bracket.
    at = prompt.find('<', at);
    if (at == std::string_view::npos) break;
    const std::string_view rest = prompt.substr(at);
    if (rest.starts_with(picture)) {
      places.push_back({MediaKind::kPicture, at, picture.size()});
      at += picture.size();
    } else if (!sound.empty() && rest.starts_with(sound)) {
      places.push_back({MediaKind::kSound, at, sound.size()});
      at += sound.size();
    } else {
      ++at;
    }
  }
  return places;
}

Result<std::string> ExpandPrompt(const Processor& processor, std::string_view prompt,
                                 std::span<const Expansion> expansions) {
  const std::vector<Place> places = FindPlaces(processor, prompt);
  std::vector<const Expansion*> pictures;
  std::vector<const Expansion*> sounds;
  for (const Expansion& expansion : expansions) {
    (expansion.kind == MediaKind::kPicture ? pictures : sounds).push_back(&expansion);
  }
  size_t picture_places = 0;
  for (const Place& place : places) picture_places += place.kind == MediaKind::kPicture ? 1 : 0;
  CELLM_RETURN_IF_ERROR(CheckCounts(picture_places, pictures.size(), "pictures"));
  CELLM_RETURN_IF_ERROR(CheckCounts(places.size() - picture_places, sounds.size(), "clips"));
  std::string text;
  size_t done = 0;
  size_t picture = 0;
  size_t sound = 0;
  for (const Place& place : places) {
    text += prompt.substr(done, place.offset - done);
    text += place.kind == MediaKind::kPicture ? pictures[picture++]->text : sounds[sound++]->text;
    done = place.offset + place.length;
  }
  text += prompt.substr(done);
  return text;
}

}  // namespace cellm::media
