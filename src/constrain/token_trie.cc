#include "constrain/token_trie.h"

#include <algorithm>

namespace cellm::constrain {
namespace {

// Longer texts are never chosen in constrained output; published vocabularies end at 1024 bytes.
constexpr size_t kMaxTokenBytes = 4096;

}  // namespace

Result<std::unique_ptr<TokenTrie>> TokenTrie::Build(std::span<const TokenText> tokens,
                                                    int32_t columns, Allocator& memory) {
  std::unique_ptr<TokenTrie> trie(new TokenTrie());
  trie->columns_ = columns;
  const size_t count = std::min(tokens.size(), static_cast<size_t>(columns));
  std::vector<int32_t> order;
  size_t text_bytes = 0;
  for (size_t id = 0; id < count; ++id) {
    const TokenText& token = tokens[id];
    if (token.control) {
      trie->controls_.push_back({static_cast<int32_t>(id), token.bytes});
    } else if (!token.bytes.empty() && token.bytes.size() <= kMaxTokenBytes) {
      order.push_back(static_cast<int32_t>(id));
      text_bytes += token.bytes.size();
    }
  }
  const auto text_of = [&](int32_t id) -> std::string_view {
    return tokens[static_cast<size_t>(id)].bytes;
  };
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const int compared = text_of(a).compare(text_of(b));
    return compared < 0 || (compared == 0 && a < b);
  });

  const char* const what = "texts of the vocabulary";
  const auto shared = [](std::string_view a, std::string_view b) {
    const size_t length = std::min(a.size(), b.size());
    return static_cast<size_t>(
        std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(length), b.begin()).first -
        a.begin());
  };
  size_t nodes = 0;
  std::string_view before;
  for (const int32_t id : order) {
    nodes += text_of(id).size() - shared(before, text_of(id));
    before = text_of(id);
  }
  const MemoryClass kClass = MemoryClass::kOther;
  CELLM_ASSIGN_OR_RETURN(trie->byte_, Array<uint8_t>::Zeroed(memory, nodes, kClass, what));
  CELLM_ASSIGN_OR_RETURN(trie->depth_, Array<uint16_t>::Zeroed(memory, nodes, kClass, what));
  CELLM_ASSIGN_OR_RETURN(trie->end_, Array<uint32_t>::Zeroed(memory, nodes, kClass, what));
  CELLM_ASSIGN_OR_RETURN(trie->first_token_,
                         Array<uint32_t>::Zeroed(memory, nodes + 1, kClass, what));
  CELLM_ASSIGN_OR_RETURN(trie->tokens_, Array<int32_t>::Zeroed(memory, order.size(), kClass, what));
  CELLM_ASSIGN_OR_RETURN(trie->text_, Array<char>::Zeroed(memory, text_bytes, kClass, what));
  CELLM_ASSIGN_OR_RETURN(
      trie->text_begin_,
      Array<uint32_t>::Zeroed(memory, static_cast<size_t>(columns) + 1, kClass, what));

  size_t next = 0;
  std::vector<size_t> path;  // nodes of the text before
  before = {};
  for (size_t i = 0; i < order.size(); ++i) {
    const std::string_view text = text_of(order[i]);
    const size_t common = shared(before, text);
    while (path.size() > common) {
      trie->end_[path.back()] = static_cast<uint32_t>(next);
      path.pop_back();
    }
    for (size_t k = common; k < text.size(); ++k) {
      trie->byte_[next] = static_cast<uint8_t>(text[k]);
      trie->depth_[next] = static_cast<uint16_t>(k);
      // Tokens of a node come right after those of the nodes before it.
      trie->first_token_[next] = static_cast<uint32_t>(i);
      path.push_back(next++);
    }
    trie->tokens_[i] = order[i];
    trie->max_depth_ = std::max(trie->max_depth_, text.size());
    if (text.size() == 1) trie->bytes_.has[static_cast<uint8_t>(text[0])] = true;
    before = text;
  }
  for (const size_t node : path) trie->end_[node] = static_cast<uint32_t>(next);
  trie->first_token_[nodes] = static_cast<uint32_t>(order.size());

  size_t at = 0;
  for (size_t id = 0; id < static_cast<size_t>(columns); ++id) {
    trie->text_begin_[id] = static_cast<uint32_t>(at);
    if (id >= count || tokens[id].control || tokens[id].bytes.size() > kMaxTokenBytes) continue;
    std::copy(tokens[id].bytes.begin(), tokens[id].bytes.end(), trie->text_.begin() + at);
    at += tokens[id].bytes.size();
  }
  trie->text_begin_[static_cast<size_t>(columns)] = static_cast<uint32_t>(at);
  return trie;
}

std::string_view TokenTrie::text(int32_t id) const {
  if (id < 0 || id >= columns_) return {};
  const size_t begin = text_begin_[static_cast<size_t>(id)];
  return {text_.data() + begin, text_begin_[static_cast<size_t>(id) + 1] - begin};
}

bool TokenTrie::is_control(int32_t id) const {
  const auto at = std::lower_bound(controls_.begin(), controls_.end(), id,
                                   [](const Control& c, int32_t other) { return c.id < other; });
  return at != controls_.end() && at->id == id;
}

}  // namespace cellm::constrain
