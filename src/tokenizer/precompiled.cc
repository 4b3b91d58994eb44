#include "tokenizer/precompiled.h"

#include "base/bytes.h"
#include "base/utf8.h"
#include "unicode/normalize.h"

namespace cellm::tokenizer {
namespace {

constexpr const char* kField = "normalizer.precompiled_charsmap";

int Base64Digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

Status DecodeBase64(std::string_view text, std::string* out) {
  if (text.size() % 4 != 0) return Corrupt("%s: base64 of %zu characters", kField, text.size());
  out->reserve(text.size() / 4 * 3);
  for (size_t at = 0; at < text.size(); at += 4) {
    const bool last = at + 4 == text.size();
    size_t padding = 0;
    if (last && text[at + 3] == '=') padding = text[at + 2] == '=' ? 2 : 1;
    uint32_t group = 0;
    for (size_t i = 0; i < 4; ++i) {
      const int digit = i >= 4 - padding ? 0 : Base64Digit(text[at + i]);
      if (digit < 0) return Corrupt("%s: character %zu is not base64", kField, at + i);
      group = (group << 6) | static_cast<uint32_t>(digit);
    }
    for (size_t i = 0; i < 3 - padding; ++i) {
      out->push_back(static_cast<char>((group >> (16 - 8 * i)) & 0xFF));
    }
  }
  return Status();
}

}  // namespace

Result<PrecompiledMap> PrecompiledMap::FromBase64(std::string_view base64) {
  std::string bytes;
  CELLM_RETURN_IF_ERROR(DecodeBase64(base64, &bytes));
  PrecompiledMap map;
  if (bytes.empty()) return map;
  if (bytes.size() < 4) return Corrupt("%s: %zu bytes", kField, bytes.size());
  const uint32_t trie_bytes = LoadLe32(bytes.data());
  if (trie_bytes > bytes.size() - 4 || trie_bytes % 4 != 0) {
    return Corrupt("%s: says its trie has %u bytes, %zu follow", kField, trie_bytes,
                   bytes.size() - 4);
  }
  map.units_.resize(trie_bytes / 4);
  for (size_t i = 0; i < map.units_.size(); ++i) {
    map.units_[i] = LoadLe32(bytes.data() + 4 + i * 4);
  }
  map.replacements_ = bytes.substr(4 + trie_bytes);
  return map;
}

bool PrecompiledMap::Find(std::string_view chunk, std::string_view* replacement) const {
  const auto offset_of = [](uint32_t unit) -> size_t {
    return static_cast<size_t>(unit >> 10) << ((unit & (1u << 9)) >> 6);
  };
  if (units_.empty()) return false;
  size_t node = offset_of(units_[0]);
  for (const char c : chunk) {
    const uint8_t byte = static_cast<uint8_t>(c);
    if (byte == 0) return false;
    node ^= byte;
    if (node >= units_.size()) return false;
    const uint32_t unit = units_[node];
    if ((unit & ((1u << 31) | 0xFF)) != byte) return false;
    node ^= offset_of(unit);
    if (((unit >> 8) & 1) == 0) continue;
    if (node >= units_.size()) return false;
    const size_t begin = units_[node] & 0x7FFFFFFF;
    if (begin > replacements_.size()) return false;
    const size_t end = replacements_.find('\0', begin);
    *replacement =
        std::string_view(replacements_).substr(begin, end == std::string::npos ? end : end - begin);
    return true;
  }
  return false;
}

void PrecompiledMap::Apply(const TrackedText& in, TrackedText* out) const {
  const std::string_view text = in.text;
  std::string_view replacement;
  for (size_t at = 0; at < text.size();) {
    const size_t end = unicode::GraphemeEnd(text, at);
    if (end - at < 6 && Find(text.substr(at, end - at), &replacement)) {
      out->AppendFrom(in, at, end, replacement);
      at = end;
      continue;
    }
    while (at < end) {
      const size_t next = at + DecodeUtf8(text.substr(at)).byte_count;
      if (Find(text.substr(at, next - at), &replacement)) {
        out->AppendFrom(in, at, next, replacement);
      } else {
        out->Copy(in, at, next);
      }
      at = next;
    }
  }
}

}  // namespace cellm::tokenizer
