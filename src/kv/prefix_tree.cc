#include "kv/prefix_tree.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace cellm {

struct PrefixTree::Node {
  Node* parent = nullptr;  // null: a root
  std::vector<int32_t> label;
  std::map<int32_t, std::unique_ptr<Node>> children;  // by the first token of their labels
  int32_t entry = kNone;
  int32_t position = 0;  // tokens from the root to the end of the label
};

PrefixTree::PrefixTree() = default;

PrefixTree::~PrefixTree() {
  // Leaf by leaf, so that a long chain does not become deep recursion.
  while (!nodes_.empty()) Remove(nodes_.begin()->first);
}

PrefixTree::Place PrefixTree::Follow(uint64_t key, std::span<const int32_t> tokens) const {
  const auto root = roots_.find(key);
  if (root == roots_.end()) return {};
  Place place{root->second.get(), 0, 0};
  while (place.matched < tokens.size()) {
    const auto child = place.node->children.find(tokens[place.matched]);
    if (child == place.node->children.end()) break;
    place.node = child->second.get();
    const std::vector<int32_t>& label = place.node->label;
    const size_t most = std::min(label.size(), tokens.size() - place.matched);
    place.in_label = 0;
    while (place.in_label < most && label[place.in_label] == tokens[place.matched]) {
      ++place.in_label;
      ++place.matched;
    }
    if (place.in_label < label.size()) break;
  }
  return place;
}

PrefixTree::Match PrefixTree::Find(uint64_t key, std::span<const int32_t> tokens) const {
  Match match;
  const Place place = Follow(key, tokens);
  if (place.node == nullptr) return match;
  match.common = static_cast<int32_t>(place.matched);
  const bool at_end = place.in_label == place.node->label.size();
  const Node* within = at_end ? place.node : place.node->parent;
  while (within != nullptr && within->entry == kNone) within = within->parent;
  if (within != nullptr) {
    match.within = within->entry;
    match.within_position = within->position;
  }
  // Level by level: the nearest in nodes is not the nearest in tokens, so all are looked at.
  std::vector<const Node*> open{place.node};
  while (!open.empty()) {
    const Node* const node = open.back();
    open.pop_back();
    const bool nearer = match.beyond == kNone || node->position < match.beyond_position;
    if (node->position > match.common && node->entry != kNone) {
      if (nearer) {
        match.beyond = node->entry;
        match.beyond_position = node->position;
      }
      continue;
    }
    if (!nearer) continue;
    for (const auto& [token, child] : node->children) open.push_back(child.get());
  }
  return match;
}

int32_t PrefixTree::At(uint64_t key, std::span<const int32_t> tokens) const {
  const Place place = Follow(key, tokens);
  if (place.node == nullptr || place.matched < tokens.size()) return kNone;
  return place.in_label == place.node->label.size() ? place.node->entry : kNone;
}

void PrefixTree::Insert(uint64_t key, std::span<const int32_t> tokens, int32_t entry) {
  CELLM_CHECK(!tokens.empty() && entry >= 0 && !nodes_.contains(entry), "an entry is added twice");
  std::unique_ptr<Node>& root = roots_[key];
  if (root == nullptr) root = std::make_unique<Node>();
  const Place place = Follow(key, tokens);
  Node* node = place.node;
  if (place.in_label < node->label.size()) {
    // Split the label: the front becomes a node of its own between the parent and this one.
    auto front = std::make_unique<Node>();
    const auto cut = node->label.begin() + static_cast<std::ptrdiff_t>(place.in_label);
    front->parent = node->parent;
    front->label.assign(node->label.begin(), cut);
    front->position = static_cast<int32_t>(place.matched);
    std::unique_ptr<Node>& slot = node->parent->children[front->label[0]];
    std::unique_ptr<Node> rest = std::move(slot);
    rest->label.erase(rest->label.begin(), cut);
    rest->parent = front.get();
    node = front.get();
    const int32_t first = rest->label[0];
    node->children[first] = std::move(rest);
    slot = std::move(front);
  }
  if (place.matched < tokens.size()) {
    auto leaf = std::make_unique<Node>();
    leaf->parent = node;
    leaf->label.assign(tokens.begin() + static_cast<std::ptrdiff_t>(place.matched), tokens.end());
    leaf->position = static_cast<int32_t>(tokens.size());
    tokens_held_ += static_cast<int64_t>(leaf->label.size());
    Node* const added = leaf.get();
    node->children[leaf->label[0]] = std::move(leaf);
    node = added;
  }
  CELLM_CHECK(node->entry == kNone, "these tokens have an entry");
  node->entry = entry;
  nodes_[entry] = node;
}

// Restores the invariants around a node that lost its entry or a child.
void PrefixTree::Prune(Node* node) {
  while (node->parent != nullptr && node->entry == kNone && node->children.size() < 2) {
    Node* const parent = node->parent;
    const int32_t first = node->label[0];
    if (node->children.empty()) {
      tokens_held_ -= static_cast<int64_t>(node->label.size());
      parent->children.erase(first);
      node = parent;
      continue;
    }
    // One child: its label goes on from ours.
    std::unique_ptr<Node> child = std::move(node->children.begin()->second);
    child->label.insert(child->label.begin(), node->label.begin(), node->label.end());
    child->parent = parent;
    parent->children[first] = std::move(child);  // frees the node
    return;
  }
  if (node->parent == nullptr && node->children.empty() && node->entry == kNone) {
    std::erase_if(roots_, [node](const auto& root) { return root.second.get() == node; });
  }
}

void PrefixTree::Remove(int32_t entry) {
  const auto found = nodes_.find(entry);
  CELLM_CHECK(found != nodes_.end(), "an entry is removed that is in no tree");
  Node* const node = found->second;
  nodes_.erase(found);
  node->entry = kNone;
  Prune(node);
}

std::vector<int32_t> PrefixTree::Entries(uint64_t key) const {
  std::vector<int32_t> entries;
  const auto root = roots_.find(key);
  if (root == roots_.end()) return entries;
  std::vector<const Node*> open{root->second.get()};
  while (!open.empty()) {
    const Node* const node = open.back();
    open.pop_back();
    if (node->entry != kNone) entries.push_back(node->entry);
    for (const auto& [token, child] : node->children) open.push_back(child.get());
  }
  return entries;
}

std::vector<int32_t> PrefixTree::Tokens(int32_t entry) const {
  const Node* node = nodes_.at(entry);
  std::vector<int32_t> tokens(static_cast<size_t>(node->position));
  for (; node->parent != nullptr; node = node->parent) {
    std::copy(node->label.begin(), node->label.end(),
              tokens.begin() + (node->position - static_cast<int32_t>(node->label.size())));
  }
  return tokens;
}

void PrefixTree::CheckInvariants() const {
  size_t entries = 0;
  int64_t held = 0;
  for (const auto& [key, root] : roots_) {
    CELLM_CHECK(root->label.empty() && root->position == 0 && !root->children.empty(),
                "an empty tree is kept");
    std::vector<const Node*> open{root.get()};
    while (!open.empty()) {
      const Node* const node = open.back();
      open.pop_back();
      entries += node->entry != kNone ? 1 : 0;
      held += static_cast<int64_t>(node->label.size());
      if (node->parent != nullptr) {
        CELLM_CHECK(!node->label.empty() && (node->entry != kNone || node->children.size() > 1),
                    "a node has no reason to exist");
        CELLM_CHECK(
            node->position == node->parent->position + static_cast<int32_t>(node->label.size()),
            "a node is not where its label says");
      }
      for (const auto& [token, child] : node->children) {
        CELLM_CHECK(child->parent == node && child->label[0] == token, "a child is misplaced");
        open.push_back(child.get());
      }
    }
  }
  CELLM_CHECK(entries == nodes_.size() && held == tokens_held_, "entries or tokens are miscounted");
}

}  // namespace cellm
