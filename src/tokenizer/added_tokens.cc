#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <numeric>

#include "base/utf8.h"
#include "unicode/unicode.h"

namespace cellm::tokenizer {
namespace {

// Published ones stay below 100 bytes. The cap keeps matching linear in the text.
constexpr size_t kMaxContentBytes = 1024;

// Start of the character that ends at `end` > 0.
size_t CharacterBefore(std::string_view text, size_t end) {
  size_t start = end;
  while (start > 0 && (static_cast<uint8_t>(text[--start]) & 0xC0) == 0x80) {
  }
  return start;
}

bool TouchesWord(std::string_view text, size_t begin, size_t end) {
  if (begin > 0) {
    const size_t before = CharacterBefore(text, begin);
    if (unicode::IsWordCharacter(DecodeUtf8(text.substr(before)).code_point)) return true;
  }
  return end < text.size() && unicode::IsWordCharacter(DecodeUtf8(text.substr(end)).code_point);
}

}  // namespace

Status AddedTokens::Build(std::vector<AddedToken> tokens, const Normalizer& normalizer) {
  tokens_ = std::move(tokens);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    AddedToken& token = tokens_[i];
    if (token.content.size() > kMaxContentBytes) {
      return OutOfRange("added_tokens: \"%.40s...\" has %zu bytes; %zu at most",
                        token.content.c_str(), token.content.size(), kMaxContentBytes);
    }
    std::string content = token.content;
    if (token.normalized) {
      CELLM_ASSIGN_OR_RETURN(content, normalizer.Apply(std::string_view(token.content)));
      if (content.size() > kMaxContentBytes * 4) {
        return OutOfRange("added_tokens: \"%.40s\" grows to %zu bytes when normalized",
                          token.content.c_str(), content.size());
      }
    }
    token.decoded = content;
    if (content.empty()) continue;
    CELLM_RETURN_IF_ERROR((token.normalized ? normalized_ : raw_)
                              .Add(content, static_cast<int32_t>(i), "added_tokens"));
  }
  by_id_.resize(tokens_.size());
  std::iota(by_id_.begin(), by_id_.end(), 0u);
  by_content_ = by_id_;
  std::stable_sort(by_id_.begin(), by_id_.end(),
                   [&](uint32_t a, uint32_t b) { return tokens_[a].id < tokens_[b].id; });
  std::stable_sort(by_content_.begin(), by_content_.end(),
                   [&](uint32_t a, uint32_t b) { return tokens_[a].content < tokens_[b].content; });
  for (AddedToken& token : tokens_) {
    const AddedToken* named = FindContent(token.decoded);
    token.skipped = named != nullptr && named->special;
  }
  return Status();
}

const AddedToken* AddedTokens::FindId(int32_t id) const {
  const auto found = std::lower_bound(by_id_.begin(), by_id_.end(), id,
                                      [&](uint32_t a, int32_t b) { return tokens_[a].id < b; });
  return found != by_id_.end() && tokens_[*found].id == id ? &tokens_[*found] : nullptr;
}

const AddedToken* AddedTokens::FindContent(std::string_view content) const {
  const auto found =
      std::lower_bound(by_content_.begin(), by_content_.end(), content,
                       [&](uint32_t a, std::string_view b) { return tokens_[a].content < b; });
  return found != by_content_.end() && tokens_[*found].content == content ? &tokens_[*found]
                                                                          : nullptr;
}

bool AddedTokens::MarkControl(int32_t id) {
  bool found = false;
  for (AddedToken& token : tokens_) {
    if (token.id != id) continue;
    token.control = true;
    found = true;
  }
  return found;
}

const AddedToken* AddedTokens::Match(const TrackedText& text, const ByteTrie& trie, size_t at,
                                     bool allow_control, size_t* end) const {
  const AddedToken* best = nullptr;
  int32_t node = ByteTrie::kRoot;
  for (size_t i = at; i < text.text.size(); ++i) {
    node = trie.Step(node, static_cast<uint8_t>(text.text[i]));
    if (node == ByteTrie::kNone) break;
    const int32_t index = trie.Value(node);
    if (index == ByteTrie::kNone) continue;
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    if (token.control && !(allow_control && text.Trusted(at, i + 1))) continue;
    best = &token;
    *end = i + 1;
  }
  return best;
}

void AddedTokens::Split(const TrackedText& text, bool normalized, bool allow_control,
                        std::vector<TextPart>* out) const {
  const ByteTrie& trie = normalized ? normalized_ : raw_;
  const std::string_view view = text.text;
  size_t done = 0;  // everything before is in a part
  for (size_t at = 0; at < view.size();) {
    if (!trie.StartsWith(static_cast<uint8_t>(view[at]))) {
      ++at;
      continue;
    }
    size_t end = at;
    const AddedToken* token = Match(text, trie, at, allow_control, &end);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    at = end;  // the search goes on behind the token itself, even when it swallows more
    if (token->single_word && TouchesWord(view, begin, end)) continue;
    if (token->lstrip) {
      size_t left = begin;
      while (left > 0) {
        const size_t before = CharacterBefore(view, left);
        if (!unicode::IsWhiteSpace(DecodeUtf8(view.substr(before)).code_point)) break;
        left = before;
      }
      begin = std::max(left, done);
    }
    if (token->rstrip) {
      while (end < view.size()) {
        const Utf8Char c = DecodeUtf8(view.substr(end));
        if (!unicode::IsWhiteSpace(c.code_point)) break;
        end += c.byte_count;
      }
    }
    if (done < begin) out->push_back({done, begin, -1});
    out->push_back({begin, end, token->id});
    done = end;
  }
  if (done < view.size()) out->push_back({done, view.size(), -1});
}

}  // namespace cellm::tokenizer
