#include "tokenizer/stream_decoder.h"

#include "base/utf8.h"
#include "tokenizer/byte_level.h"

namespace cellm::tokenizer {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

StreamDecoder::Mode StreamDecoder::ModeFor(const Decoder& decoder) {
  if (decoder.is_byte_level()) return Mode::kBytes;
  // Stages in order: 0 token by token, 1 byte tokens joined, 2 fused, 3 stripped.
  int stage = 0;
  for (const Decoder::Step& step : decoder.steps()) {
    if (step.kind == Decoder::Kind::kByteFallback && stage < 1) {
      stage = 1;
    } else if (step.kind == Decoder::Kind::kFuse && stage < 2) {
      stage = 2;
    } else if (step.kind == Decoder::Kind::kStrip && stage == 2 && step.stop == 0) {
      stage = 3;
    } else if (!(stage == 0 && WorksTokenByToken(step.kind))) {
      return Mode::kWhole;
    }
  }
  return Mode::kTokens;
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special, bool goes_on)
    : tokenizer_(tokenizer),
      skip_special_(skip_special),
      goes_on_(goes_on),
      mode_(ModeFor(tokenizer.decoder())),
      index_(goes_on ? 1 : 0) {
  if (mode_ != Mode::kTokens) return;
  for (const Decoder::Step& step : tokenizer.decoder().steps()) {
    if (step.kind == Decoder::Kind::kByteFallback) byte_fallback_ = true;
    if (step.kind == Decoder::Kind::kFuse) fuses_ = true;
    if (step.kind == Decoder::Kind::kStrip && fuses_) {
      strip_content_ = step.content;
      strip_start_ = goes_on ? 0 : step.start;
    }
  }
  strip_left_ = strip_start_;
}

// Moves what is decided out of held_: characters, and U+FFFD for what cannot become one.
void StreamDecoder::TakeBytes(std::string* out) {
  size_t at = 0;
  while (at < held_.size()) {
    const Utf8Char c = DecodeUtf8(std::string_view(held_).substr(at));
    if (c.truncated) break;
    if (c.valid) {
      out->append(held_, at, c.byte_count);
    } else {
      out->append(kReplacement);
    }
    at += c.byte_count;
  }
  held_.erase(0, at);
}

void StreamDecoder::TakeRunByte(uint8_t byte, std::string* out) {
  if (run_broken_) {
    EmitStripped(kReplacement, out);
    return;
  }
  held_.push_back(static_cast<char>(byte));
  const Utf8Char c = DecodeUtf8(held_);
  if (c.valid) {
    EmitStripped(held_, out);
    held_.clear();
  } else if (!c.truncated) {
    run_broken_ = true;
    for (size_t i = 0; i < held_.size(); ++i) EmitStripped(kReplacement, out);
    held_.clear();
  }
}

void StreamDecoder::EndRun(std::string* out) {
  for (size_t i = 0; i < held_.size(); ++i) EmitStripped(kReplacement, out);
  held_.clear();
  run_broken_ = false;
}

// Appends `text`, less what Strip takes from the start of the whole.
void StreamDecoder::EmitStripped(std::string_view text, std::string* out) {
  while (strip_left_ > 0 && !text.empty()) {
    if (text.substr(0, strip_content_.size()) != strip_content_) {
      strip_left_ = 0;
      break;
    }
    text.remove_prefix(strip_content_.size());
    --strip_left_;
  }
  out->append(text);
}

Result<std::string> StreamDecoder::PushToken(int32_t id) {
  std::string token(tokenizer_.DecodedPiece(id, false));
  const Decoder& decoder = tokenizer_.decoder();
  const size_t index = index_++;
  for (const Decoder::Step& step : decoder.steps()) {
    if (!WorksTokenByToken(step.kind)) break;
    CELLM_RETURN_IF_ERROR(ApplyToToken(step, index, &token));
  }
  std::string out;
  uint8_t byte = 0;
  if (byte_fallback_ && ByteOfFallbackPiece(token, &byte)) {
    TakeRunByte(byte, &out);
    return out;
  }
  EndRun(&out);
  if (decoder.joins_with_spaces() && index > 0) out += ' ';
  EmitStripped(token, &out);
  return out;
}

// Shows what decoding all ids adds to what was shown, up to a U+FFFD at the end, which may yet
// become a character.
Result<std::string> StreamDecoder::PushWhole(bool flush) {
  CELLM_ASSIGN_OR_RETURN(const std::string text, tokenizer_.Decode(ids_, skip_special_));
  size_t end = text.size();
  while (!flush && end >= kReplacement.size() &&
         text.compare(end - kReplacement.size(), kReplacement.size(), kReplacement) == 0) {
    end -= kReplacement.size();
  }
  if (end <= shown_.size() || text.compare(0, shown_.size(), shown_) != 0) return std::string();
  std::string added = text.substr(shown_.size(), end - shown_.size());
  shown_ += added;
  return added;
}

Result<std::string> StreamDecoder::Push(int32_t id) {
  if (tokenizer_.DecodedPiece(id, skip_special_).empty()) return std::string();
  switch (mode_) {
    case Mode::kBytes: {
      AppendByteLevelBytes(tokenizer_.DecodedPiece(id, false), &held_);
      std::string out;
      TakeBytes(&out);
      return out;
    }
    case Mode::kTokens:
      return PushToken(id);
    case Mode::kWhole:
      ids_.push_back(id);
      return PushWhole(false);
  }
  return Internal("stream decoder: unknown mode");
}

Result<std::string> StreamDecoder::Flush() {
  std::string out;
  if (mode_ == Mode::kBytes && !held_.empty()) {
    out = kReplacement;  // one maximal part of a character
    held_.clear();
  } else if (mode_ == Mode::kTokens) {
    EndRun(&out);
  } else if (mode_ == Mode::kWhole) {
    CELLM_ASSIGN_OR_RETURN(out, PushWhole(true));
  }
  index_ = goes_on_ ? 1 : 0;
  strip_left_ = strip_start_;
  ids_.clear();
  shown_.clear();
  return out;
}

}  // namespace cellm::tokenizer
