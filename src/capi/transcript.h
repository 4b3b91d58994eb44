#ifndef CELLM_SRC_CAPI_TRANSCRIPT_H_
#define CELLM_SRC_CAPI_TRANSCRIPT_H_

// What a chat session remembers of its conversation: the ids, and the text that they stand for.
//
//   ids    [prompt of turn 1      ][reply 1   ][rest of the rendering 2 ][reply 2 ]
//   text   <|im_start|>user\nHi... | Hello!    | <|im_end|>\n<|im_start|> | Sure.
//   marks                           ^           ^                         ^         ^
//
// A turn renders the whole conversation again. Where the new rendering begins with the text up to
// a mark, the ids up to that mark are kept, whatever the tokenizer would make of the text now: a
// model may write "Hello" in other tokens than the tokenizer would. What follows is encoded anew.
//
// Text counts as equal only when its origin is equal too: a byte that the template wrote is not the
// same as one that a message contains, because only the former may stand for a special token.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cellm::capi {

// Text with the origin of each byte: trusted[i] is 1 when the template wrote byte i, else 0.
struct MarkedText {
  std::string bytes;
  std::string trusted;

  void Append(std::string_view more, bool is_trusted) {
    bytes.append(more);
    trusted.append(more.size(), is_trusted ? '\1' : '\0');
  }
};

class Transcript {
 public:
  struct Mark {
    size_t text_end = 0;
    size_t id_count = 0;
  };

  // The last mark whose text is the beginning of `rendering`; {0, 0} when there is none.
  Mark Match(const MarkedText& rendering) const;

  // Replaces everything after `mark` by `rendering` after it, which `ids` stand for, and marks the
  // end. `ids` are those of the whole rendering.
  void SetPrompt(const Mark& mark, const MarkedText& rendering, std::span<const int32_t> ids);

  // Adds a reply: its ids, and the text that a template shows it as when it does not change it.
  // Only directly after SetPrompt().
  void AppendReply(std::string_view text, std::span<const int32_t> ids);

  // Ids of the session so far, whether or not their text is known.
  const std::vector<int32_t>& ids() const { return ids_; }
  // Ids without text: from here on nothing is matched.
  void AppendIds(std::span<const int32_t> ids) { ids_.insert(ids_.end(), ids.begin(), ids.end()); }
  const std::vector<Mark>& marks() const { return marks_; }
  const MarkedText& text() const { return text_; }
  // A transcript as another one was. Requires marks in order and inside of ids and text.
  static Transcript Restore(MarkedText text, std::vector<int32_t> ids, std::vector<Mark> marks);

  // Keeps the first `count` ids and the marks that lie within them.
  void Truncate(size_t count);
  void Clear();

 private:
  MarkedText text_;
  std::vector<int32_t> ids_;
  std::vector<Mark> marks_;
};

}  // namespace cellm::capi

#endif  // CELLM_SRC_CAPI_TRANSCRIPT_H_
