#ifndef CELLM_SRC_TOKENIZER_TRACKED_TEXT_H_
#define CELLM_SRC_TOKENIZER_TRACKED_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cellm::tokenizer {

// A text that may remember, byte by byte, whether a trusted writer (a chat template) wrote it.
// Steps that rewrite a text append what they make of source bytes [begin, end) with the AND of
// their flags. Invariant: tracked implies trust.size() == text.size().
struct TrackedText {
  std::string text;
  std::vector<uint8_t> trust;  // 1: trusted. Only when tracked.
  bool tracked = false;

  void Clear(bool track) {
    text.clear();
    trust.clear();
    tracked = track;
  }
  bool Trusted(size_t begin, size_t end) const {
    if (!tracked) return true;
    for (size_t i = begin; i < end; ++i) {
      if (trust[i] == 0) return false;
    }
    return true;
  }
  void Append(std::string_view bytes, bool trusted) {
    text.append(bytes);
    if (tracked) trust.resize(text.size(), trusted ? 1 : 0);
  }
  // Appends `bytes`, made of `source` bytes [begin, end).
  void AppendFrom(const TrackedText& source, size_t begin, size_t end, std::string_view bytes) {
    text.append(bytes);
    if (tracked) trust.resize(text.size(), source.Trusted(begin, end) ? 1 : 0);
  }
  // Appends the bytes [begin, end) of `source` as they are.
  void Copy(const TrackedText& source, size_t begin, size_t end) {
    text.append(source.text, begin, end - begin);
    if (tracked) {
      trust.insert(trust.end(), source.trust.begin() + static_cast<std::ptrdiff_t>(begin),
                   source.trust.begin() + static_cast<std::ptrdiff_t>(end));
    }
  }
  // After the last bytes were pushed to `text` directly: gives them one flag.
  void Flag(bool trusted) {
    if (tracked) trust.resize(text.size(), trusted ? 1 : 0);
  }
};

}  // namespace cellm::tokenizer

#endif  // CELLM_SRC_TOKENIZER_TRACKED_TEXT_H_
