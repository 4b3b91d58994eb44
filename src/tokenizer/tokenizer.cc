#include "tokenizer/tokenizer.h"

#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/byte_level.h"

namespace cellm::tokenizer {

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                               const EncodeOptions& options) const {
  TrackedText whole;
  whole.text = IsValidUtf8(text) ? std::string(text) : ReplaceInvalidUtf8(text);
  EncodeScratch scratch;
  std::vector<int32_t> ids;
  CELLM_RETURN_IF_ERROR(EncodeInto(whole, options.parse_special, &scratch, &ids));
  return Finish(std::move(ids), options);
}

Result<std::vector<int32_t>> Tokenizer::Encode(std::span<const Segment> segments,
                                               const EncodeOptions& options) const {
  bool any_trusted = false;
  bool all_trusted = true;
  std::string joined;
  for (const Segment& segment : segments) {
    if (segment.text.empty()) continue;
    any_trusted |= segment.trusted;
    all_trusted &= segment.trusted;
    joined += segment.text;
  }
  TrackedText whole;
  whole.Clear(any_trusted && !all_trusted);
  // A character may be cut by a border; only text that is ill-formed as a whole is repaired, and
  // then each author's part for itself.
  const bool valid = IsValidUtf8(joined);
  for (const Segment& segment : segments) {
    if (valid) {
      whole.Append(segment.text, segment.trusted);
    } else {
      whole.Append(ReplaceInvalidUtf8(segment.text), segment.trusted);
    }
  }
  EncodeScratch scratch;
  std::vector<int32_t> ids;
  CELLM_RETURN_IF_ERROR(EncodeInto(whole, any_trusted, &scratch, &ids));
  return Finish(std::move(ids), options);
}

Status Tokenizer::EncodeInto(const TrackedText& text, bool allow_control, EncodeScratch* scratch,
                             std::vector<int32_t>* out) const {
  scratch->text_bytes = text.text.size();
  out->reserve(text.text.size() / 4 + 8);
  std::vector<TextPart> parts;
  added_.Split(text, false, allow_control, &parts);
  for (const TextPart& part : parts) {
    if (part.id >= 0) {
      out->push_back(part.id);
      continue;
    }
    TrackedText section;
    section.Clear(text.tracked);
    section.Copy(text, part.begin, part.end);
    CELLM_RETURN_IF_ERROR(
        EncodeSection(std::move(section), part.begin == 0, allow_control, scratch, out));
  }
  return Status();
}

// A stretch between added tokens of the raw text.
Status Tokenizer::EncodeSection(TrackedText section, bool at_start, bool allow_control,
                                EncodeScratch* scratch, std::vector<int32_t>* out) const {
  CELLM_RETURN_IF_ERROR(normalizer_.Apply(&section));
  if (!added_.has_normalized()) {
    return EncodeWords(std::move(section), at_start, allow_control, scratch, out);
  }
  std::vector<TextPart> parts;
  added_.Split(section, true, allow_control, &parts);
  for (const TextPart& part : parts) {
    if (part.id >= 0) {
      out->push_back(part.id);
      continue;
    }
    TrackedText text;
    text.Clear(section.tracked);
    text.Copy(section, part.begin, part.end);
    CELLM_RETURN_IF_ERROR(
        EncodeWords(std::move(text), at_start && part.begin == 0, allow_control, scratch, out));
  }
  return Status();
}

Status Tokenizer::EncodeWords(TrackedText text, bool at_start, bool allow_control,
                              EncodeScratch* scratch, std::vector<int32_t>* out) const {
  CutText cut;
  cut.text = std::move(text);
  CELLM_RETURN_IF_ERROR(pre_tokenizer_.Apply(&cut, at_start, model_.takes_raw_bytes()));
  const std::string_view view = cut.text.text;
  const bool check_trust = cut.text.tracked && model_.has_control();
  for (const regex::Span& word : cut.words) {
    const bool allowed = allow_control && (!check_trust || cut.text.Trusted(word.begin, word.end));
    CELLM_RETURN_IF_ERROR(model_.EncodeWord(view.substr(word.begin, word.end - word.begin),
                                            cut.raw_bytes, allowed, scratch, out));
  }
  return Status();
}

Result<std::vector<int32_t>> Tokenizer::Finish(std::vector<int32_t> ids,
                                               const EncodeOptions& options) const {
  if (options.truncate_and_pad && truncation_.enabled) {
    const int64_t added =
        options.add_special ? static_cast<int64_t>(prefix_ids_.size() + suffix_ids_.size()) : 0;
    const int64_t room = std::max<int64_t>(truncation_.max_length - added, 0);
    if (static_cast<int64_t>(ids.size()) > room) {
      if (truncation_.left) {
        ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(room));
      } else {
        ids.resize(static_cast<size_t>(room));
      }
    }
  }
  if (options.add_special) {
    ids.insert(ids.begin(), prefix_ids_.begin(), prefix_ids_.end());
    ids.insert(ids.end(), suffix_ids_.begin(), suffix_ids_.end());
  }
  if (options.truncate_and_pad && padding_.enabled) {
    int64_t length = std::max<int64_t>(static_cast<int64_t>(ids.size()), padding_.fixed);
    if (padding_.fixed > 0) length = padding_.fixed;
    if (padding_.multiple_of > 1) {
      length = (length + padding_.multiple_of - 1) / padding_.multiple_of * padding_.multiple_of;
    }
    const int64_t missing = length - static_cast<int64_t>(ids.size());
    if (missing > 0) {
      ids.insert(padding_.left ? ids.begin() : ids.end(), static_cast<size_t>(missing),
                 padding_.id);
    }
  }
  return ids;
}

Result<std::string> Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  if (decoder_.is_byte_level()) {  // the common case without a string for every token
    std::string bytes;
    for (const int32_t id : ids) {
      AppendByteLevelBytes(DecodedPiece(id, skip_special), &bytes);
    }
    return IsValidUtf8(bytes) ? std::move(bytes) : ReplaceInvalidUtf8(bytes);
  }
  std::vector<std::string> pieces;
  for (const int32_t id : ids) {
    const std::string_view piece = DecodedPiece(id, skip_special);
    if (piece.empty()) continue;
    pieces.emplace_back(piece);
  }
  return decoder_.Decode(std::move(pieces));
}

int32_t Tokenizer::TokenToId(std::string_view piece) const {
  const AddedToken* added = added_.FindContent(piece);
  return added != nullptr ? added->id : model_.vocabulary().Find(piece);
}

std::string_view Tokenizer::IdToToken(int32_t id) const {
  const AddedToken* added = added_.FindId(id);
  return added != nullptr ? std::string_view(added->content) : model_.vocabulary().Piece(id);
}

std::string_view Tokenizer::DecodedPiece(int32_t id, bool skip_special) const {
  const AddedToken* added = added_.FindId(id);
  if (added == nullptr) return model_.vocabulary().Piece(id);
  return skip_special && added->skipped ? std::string_view() : added->decoded;
}

bool Tokenizer::IsSpecial(int32_t id) const {
  const AddedToken* added = added_.FindId(id);
  return added != nullptr && added->special;
}

bool Tokenizer::IsControl(int32_t id) const {
  const AddedToken* added = added_.FindId(id);
  return (added != nullptr && added->control) || model_.IsControl(id);
}

void Tokenizer::MarkControl(int32_t id) {
  added_.MarkControl(id);
  model_.MarkControl(id);
}

std::string Tokenizer::TokenBytes(int32_t id) const {
  const std::string_view piece = DecodedPiece(id, false);
  std::string bytes;
  if (piece.empty()) return bytes;
  if (decoder_.is_byte_level()) {
    AppendByteLevelBytes(piece, &bytes);
    return bytes;
  }
  bytes = piece;
  if (decoder_.joins_with_spaces()) bytes.insert(bytes.begin(), ' ');
  for (const Decoder::Step& step : decoder_.steps()) {
    uint8_t byte = 0;
    if (step.kind == Decoder::Kind::kByteFallback && ByteOfFallbackPiece(bytes, &byte)) {
      return std::string(1, static_cast<char>(byte));
    }
    // Behind Fuse, Strip works on the whole text and leaves its middle alone.
    if (step.kind == Decoder::Kind::kFuse) break;
    if (WorksTokenByToken(step.kind)) {
      if (!ApplyToToken(step, 1, &bytes).ok()) return std::string(piece);
    } else if (step.kind == Decoder::Kind::kBpe) {
      const size_t at = bytes.find(step.content);
      if (!step.content.empty() && at != std::string::npos) {
        bytes[at] = ' ';
        bytes.erase(at + 1, step.content.size() - 1);
      }
    }
  }
  return bytes;
}

}  // namespace cellm::tokenizer
