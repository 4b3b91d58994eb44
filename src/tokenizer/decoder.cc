#include "tokenizer/decoder.h"

#include "base/utf8.h"
#include "tokenizer/byte_level.h"

namespace cellm::tokenizer {
namespace {

void ReplaceAll(std::string_view from, std::string_view to, std::string* text) {
  if (from.empty()) return;
  size_t at = text->find(from);
  if (at == std::string::npos) return;
  std::string out;
  size_t done = 0;
  for (; at != std::string::npos; at = text->find(from, done)) {
    out.append(*text, done, at - done);
    out.append(to);
    done = at + from.size();
  }
  out.append(*text, done, std::string::npos);
  *text = std::move(out);
}

// English clean-up of WordPiece and CTC, in this order.
void CleanUp(std::string* text) {
  static constexpr struct {
    std::string_view from;
    std::string_view to;
  } kRules[] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& rule : kRules) ReplaceAll(rule.from, rule.to, text);
}

void StripToken(const Decoder::Step& step, std::string* token) {
  size_t begin = 0;
  for (uint32_t i = 0; i < step.start; ++i) {
    if (token->compare(begin, step.content.size(), step.content) != 0) break;
    begin += step.content.size();
  }
  size_t end = token->size();
  for (uint32_t i = 0; i < step.stop && end - begin >= step.content.size(); ++i) {
    if (token->compare(end - step.content.size(), step.content.size(), step.content) != 0) break;
    end -= step.content.size();
  }
  *token = token->substr(begin, end - begin);
}

std::vector<std::string> JoinBytes(const std::vector<std::string>& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) AppendByteLevelBytes(token, &bytes);
  return {ReplaceInvalidUtf8(bytes)};
}

// Runs of byte tokens become the text they spell, or one U+FFFD a byte when the run as a whole is
// not UTF-8.
std::vector<std::string> JoinFallbackBytes(std::vector<std::string> tokens) {
  std::vector<std::string> out;
  std::string run;
  const auto flush = [&] {
    if (run.empty()) return;
    if (IsValidUtf8(run)) {
      out.push_back(run);
    } else {
      for (size_t i = 0; i < run.size(); ++i) out.emplace_back("\xEF\xBF\xBD");
    }
    run.clear();
  };
  for (std::string& token : tokens) {
    uint8_t byte = 0;
    if (ByteOfFallbackPiece(token, &byte)) {
      run.push_back(static_cast<char>(byte));
    } else {
      flush();
      out.push_back(std::move(token));
    }
  }
  flush();
  return out;
}

std::vector<std::string> DecodeCtc(const Decoder::Step& step, std::vector<std::string> tokens) {
  std::vector<std::string> out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && tokens[i] == tokens[i - 1]) continue;
    std::string text = tokens[i];
    ReplaceAll(step.pad, "", &text);
    if (step.cleanup) {
      CleanUp(&text);
      ReplaceAll(step.delimiter, " ", &text);
    }
    if (!text.empty()) out.push_back(std::move(text));
  }
  return out;
}

}  // namespace

bool WorksTokenByToken(Decoder::Kind kind) {
  using Kind = Decoder::Kind;
  return kind == Kind::kWordPiece || kind == Kind::kMetaspace || kind == Kind::kStrip ||
         kind == Kind::kReplace;
}

Status ApplyToToken(const Decoder::Step& step, size_t index, std::string* token) {
  switch (step.kind) {
    case Decoder::Kind::kWordPiece:
      if (index != 0) {
        if (token->compare(0, step.content.size(), step.content) == 0) {
          token->erase(0, step.content.size());
        } else {
          token->insert(token->begin(), ' ');
        }
      }
      if (step.cleanup) CleanUp(token);
      break;
    case Decoder::Kind::kMetaspace:
      ReplaceAll(step.pattern.literal, index == 0 && step.strips_first ? "" : " ", token);
      break;
    case Decoder::Kind::kStrip:
      StripToken(step, token);
      break;
    case Decoder::Kind::kReplace: {
      if (step.pattern.regex == nullptr) {
        ReplaceAll(step.pattern.literal, step.content, token);
        break;
      }
      std::vector<regex::Span> matches;
      CELLM_RETURN_IF_ERROR(step.pattern.FindAll(*token, &matches));
      std::string out;
      size_t at = 0;
      for (const regex::Span& match : matches) {
        out.append(*token, at, match.begin - at);
        out.append(step.content);
        at = match.end;
      }
      out.append(*token, at, std::string::npos);
      *token = std::move(out);
      break;
    }
    default:
      return Internal("decoder step does not work token by token");
  }
  return Status();
}

Status Decoder::ApplyStep(const Step& step, std::vector<std::string>* tokens) {
  switch (step.kind) {
    case Kind::kByteLevel:
      *tokens = JoinBytes(*tokens);
      return Status();
    case Kind::kByteFallback:
      *tokens = JoinFallbackBytes(std::move(*tokens));
      return Status();
    case Kind::kCtc:
      *tokens = DecodeCtc(step, std::move(*tokens));
      return Status();
    case Kind::kFuse: {
      std::string joined;
      for (const std::string& token : *tokens) joined += token;
      tokens->assign(1, std::move(joined));
      return Status();
    }
    case Kind::kBpe:
      for (size_t i = 0; i < tokens->size(); ++i) {
        ReplaceAll(step.content, i + 1 == tokens->size() ? "" : " ", &(*tokens)[i]);
      }
      return Status();
    default:
      for (size_t i = 0; i < tokens->size(); ++i) {
        CELLM_RETURN_IF_ERROR(ApplyToToken(step, i, &(*tokens)[i]));
      }
      return Status();
  }
}

Result<std::string> Decoder::Decode(std::vector<std::string> tokens) const {
  for (const Step& step : steps_) CELLM_RETURN_IF_ERROR(ApplyStep(step, &tokens));
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (joins_with_spaces_ && i > 0) text += ' ';
    text += tokens[i];
  }
  return text;
}

void Decoder::AddByteLevel() {
  joins_with_spaces_ = false;
  Step step;
  step.kind = Kind::kByteLevel;
  steps_.push_back(std::move(step));
}

void Decoder::AddSentencePiece(bool strip_first_space) {
  joins_with_spaces_ = false;
  Step replace;
  replace.kind = Kind::kReplace;
  replace.pattern.literal = std::string("\xE2\x96\x81");
  replace.content = std::string(" ");
  steps_.push_back(std::move(replace));
  for (const Kind kind : {Kind::kByteFallback, Kind::kFuse}) {
    Step step;
    step.kind = kind;
    steps_.push_back(std::move(step));
  }
  if (!strip_first_space) return;
  Step strip;
  strip.kind = Kind::kStrip;
  strip.content = std::string(" ");
  strip.start = 1;
  steps_.push_back(std::move(strip));
}

void Decoder::AddWordPiece() {
  joins_with_spaces_ = false;
  Step step;
  step.kind = Kind::kWordPiece;
  step.content = std::string("##");
  steps_.push_back(std::move(step));
}

Status Decoder::AddFromJson(json::Value config) {
  CELLM_ASSIGN_OR_RETURN(const std::string type, ReadType(config, "decoder"));
  if (type == "Sequence") {
    const json::Value list = config.Find("decoders");
    if (!list.is_array()) return Corrupt("decoder.decoders: expected a list");
    for (json::Value v = list.First(); v.exists(); v = list.Next(v)) {
      CELLM_RETURN_IF_ERROR(AddFromJson(v));
    }
    return Status();
  }
  Step step;
  if (type == "ByteLevel") {
    step.kind = Kind::kByteLevel;
  } else if (type == "ByteFallback") {
    step.kind = Kind::kByteFallback;
  } else if (type == "Fuse") {
    step.kind = Kind::kFuse;
  } else if (type == "WordPiece") {
    step.kind = Kind::kWordPiece;
    step.content = std::string("##");
    CELLM_RETURN_IF_ERROR(ReadString(config, "prefix", &step.content));
    CELLM_RETURN_IF_ERROR(ReadBool(config, "cleanup", &step.cleanup));
  } else if (type == "Metaspace") {
    step.kind = Kind::kMetaspace;
    step.pattern.literal = std::string("\xE2\x96\x81");
    CELLM_RETURN_IF_ERROR(ReadString(config, "replacement", &step.pattern.literal));
    CELLM_RETURN_IF_ERROR(ReadBool(config, "add_prefix_space", &step.strips_first));
    std::string scheme;
    CELLM_RETURN_IF_ERROR(ReadString(config, "prepend_scheme", &scheme));
    if (!scheme.empty()) step.strips_first = scheme != std::string("never");
  } else if (type == "BPEDecoder") {
    step.kind = Kind::kBpe;
    step.content = std::string("</w>");
    CELLM_RETURN_IF_ERROR(ReadString(config, "suffix", &step.content));
  } else if (type == "CTC") {
    step.kind = Kind::kCtc;
    step.pad = std::string("<pad>");
    step.delimiter = std::string("|");
    CELLM_RETURN_IF_ERROR(ReadString(config, "pad_token", &step.pad));
    CELLM_RETURN_IF_ERROR(ReadString(config, "word_delimiter_token", &step.delimiter));
    CELLM_RETURN_IF_ERROR(ReadBool(config, "cleanup", &step.cleanup));
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    CELLM_RETURN_IF_ERROR(ReadString(config, "content", &step.content));
    int64_t start = 0, stop = 0;
    if (step.content.empty() || DecodeUtf8(step.content).byte_count != step.content.size() ||
        (config.Find("start").has_value() && !config.Find("start").GetInt64(&start)) ||
        (config.Find("stop").has_value() && !config.Find("stop").GetInt64(&stop)) || start < 0 ||
        stop < 0 || start > 1'000'000 || stop > 1'000'000) {
      return Corrupt("decoder: Strip needs one character in content, start and stop of 0 or more");
    }
    step.start = static_cast<uint32_t>(start);
    step.stop = static_cast<uint32_t>(stop);
  } else if (type == "Replace") {
    step.kind = Kind::kReplace;
    CELLM_ASSIGN_OR_RETURN(step.pattern,
                           PatternFromJson(config.Find("pattern"), "decoder.pattern"));
    CELLM_RETURN_IF_ERROR(ReadString(config, "content", &step.content));
  } else {
    return Unsupported("decoder: unknown type \"%s\"", type.c_str());
  }
  steps_.push_back(std::move(step));
  return Status();
}

Result<Decoder> Decoder::FromJson(json::Value config) {
  Decoder decoder;
  if (!config.has_value()) return decoder;
  decoder.joins_with_spaces_ = false;
  CELLM_RETURN_IF_ERROR(decoder.AddFromJson(config));
  return decoder;
}

}  // namespace cellm::tokenizer
