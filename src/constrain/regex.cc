#include "constrain/regex.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "unicode/unicode.h"

namespace cellm::constrain {
namespace {

constexpr int kMaxGroups = 100;  // nested
constexpr size_t kMaxRegexBytes = size_t{64} << 10;
constexpr size_t kMaxNodes = 100'000;  // after repetitions are written out

// ---- sets -----------------------------------------------------------------------------------

// Planes 4 to 13 hold no characters, 15 and 16 private ones: they need not be asked one by one.
constexpr CodeRange kUniform[] = {{0x34000, 0xDFFFF}, {0xF0000, 0xFFFFD}, {0x100000, 0x10FFFD}};

CodePoints OfMask(uint32_t mask) {
  CodePoints set;
  char32_t c = 0;
  const auto add = [&](char32_t end) {
    while (c < end) {
      const char32_t first = c;
      while (c < end && (unicode::CharMask(c) & mask) != 0) ++c;
      if (c > first) set.Add(first, c - 1);
      if (c < end) ++c;
    }
  };
  for (const CodeRange& range : kUniform) {
    add(range.first);
    if ((unicode::CharMask(range.first) & mask) != 0) set.Add(range.first, range.last);
    c = range.last + 1;
  }
  add(0x110000);
  return set;
}

// A class of characters as the engines disagree about it: what all of them put in, and what any of
// them does. The latter is `possible` and the characters of `mask`, which take time to list and are
// only listed when they matter.
struct Bounds {
  CodePoints sure;
  CodePoints possible;
  uint32_t mask = 0;

  void Add(const Bounds& other) {
    sure.Add(other.sure);
    possible.Add(other.possible);
    mask |= other.mask;
  }
  void Add(char32_t first, char32_t last) {
    sure.Add(first, last);
    possible.Add(first, last);
  }
  CodePoints AllPossible() const {
    if (mask == 0) return possible;
    CodePoints all = OfMask(mask);
    all.Add(possible);
    return all;
  }
  Bounds Complement() const { return {AllPossible().Complement(), sure.Complement(), 0}; }
};

Bounds Digits() {
  return {CodePoints('0', '9'), CodePoints('0', '9'), MaskOf(unicode::Category::kNd)};
}

Bounds WordCharacters() {
  CodePoints sure('0', '9');
  sure.Add('A', 'Z');
  sure.Add('a', 'z');
  sure.Add('_');
  return {sure, sure,
          unicode::kLetter | unicode::kNumber | unicode::kMark | MaskOf(unicode::Category::kPc)};
}

Bounds Spaces() {
  CodePoints sure('\t', '\r');
  sure.Add(' ');
  CodePoints possible = sure;
  possible.Add(0x1C, 0x1F);
  possible.Add(0x85);
  possible.Add(0xFEFF);
  possible.Add(0x180E);
  return {sure, possible, unicode::kSpace | unicode::kSeparator};
}

// General categories by their names in \p{...}. False when the name is none.
bool CategoryMask(std::string_view name, uint32_t* mask) {
  constexpr std::string_view kTwoLetters =
      "CnLuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCo";
  const struct {
    std::string_view name;
    uint32_t mask;
  } groups[] = {{"L", unicode::kLetter},      {"Letter", unicode::kLetter},
                {"M", unicode::kMark},        {"Mark", unicode::kMark},
                {"N", unicode::kNumber},      {"Number", unicode::kNumber},
                {"P", unicode::kPunctuation}, {"Punctuation", unicode::kPunctuation},
                {"S", unicode::kSymbol},      {"Symbol", unicode::kSymbol},
                {"Z", unicode::kSeparator},   {"Separator", unicode::kSeparator},
                {"C", unicode::kOther},       {"Other", unicode::kOther}};
  for (const auto& group : groups) {
    if (group.name == name) {
      *mask = group.mask;
      return true;
    }
  }
  for (size_t i = 0; i < kTwoLetters.size(); i += 2) {
    if (name == kTwoLetters.substr(i, 2)) {
      *mask = uint32_t{1} << (i / 2);
      return true;
    }
  }
  return false;
}

// ---- the expression as a tree ----------------------------------------------------------------

enum class NodeKind : uint8_t { kEmpty, kSet, kSequence, kAlternatives, kRepeat, kBegin, kEnd };

struct Node {
  NodeKind kind = NodeKind::kEmpty;
  CodePoints set;
  std::vector<int32_t> children;
  int32_t min = 0, max = 0;
};

class Parser {
 public:
  // `at_start`: the pattern begins where the text begins even without '^'.
  Parser(std::string_view pattern, bool at_start) : pattern_(pattern), at_start_(at_start) {}

  // The number of the whole expression's node.
  Result<int32_t> Run() {
    CELLM_ASSIGN_OR_RETURN(const int32_t root, ParseAlternatives(0));
    if (at_ < pattern_.size()) return Wrong("')' without '('");
    return root;
  }
  const std::vector<Node>& nodes() const { return nodes_; }
  // What must hold, or must not, at the beginning of the text.
  struct Lookahead {
    int32_t node = 0;
    bool negative = false;
  };
  const std::vector<Lookahead>& lookaheads() const { return lookaheads_; }

 private:
  Status Wrong(const char* what) const { return InvalidArgument("byte %zu: %s", at_, what); }
  Status Refused(const char* what) const {
    return Unsupported("byte %zu: %s cannot be ensured in constrained output", at_, what);
  }
  bool Has(std::string_view text) const { return pattern_.substr(at_, text.size()) == text; }
  bool Take(std::string_view text) {
    if (!Has(text)) return false;
    at_ += text.size();
    return true;
  }
  int32_t Add(Node node) {
    nodes_.push_back(std::move(node));
    return static_cast<int32_t>(nodes_.size() - 1);
  }
  Result<int32_t> AddSet(CodePoints set) {
    range_count_ += set.ranges().size();
    if (range_count_ > kMaxCharRanges) return OutOfRange("the sets of the regex are too large");
    Node node;
    node.kind = NodeKind::kSet;
    node.set = std::move(set);
    return Add(std::move(node));
  }
  int32_t AddKind(NodeKind kind, std::vector<int32_t> children = {}) {
    Node node;
    node.kind = kind;
    node.children = std::move(children);
    return Add(std::move(node));
  }

  Result<int32_t> ParseAlternatives(int depth);
  Result<int32_t> ParseSequence(int depth);
  Result<int32_t> ParseAtom(int depth);
  Result<int32_t> ParseGroup(int depth);
  Status ParseLookahead();
  Result<int32_t> AddEnd();
  Result<int32_t> ParseRepeat(int32_t atom);
  Status ParseCounts(int32_t* min, int32_t* max, bool* is_one);
  Status ParseEscape(bool in_set, Bounds* out);
  Status ParseHex(int digits, char32_t* out);
  Status ParseProperty(bool negated, Bounds* out);
  Result<CodePoints> ParseSet();
  Status ParseSetItem(Bounds* out, bool* is_class);
  Result<char32_t> TakeCharacter();

  std::string_view pattern_;
  const bool at_start_;
  bool wide_ = false;  // in a negative lookahead: sets hold what any engine puts in
  size_t at_ = 0;
  std::vector<Node> nodes_;
  std::vector<Lookahead> lookaheads_;
  size_t range_count_ = 0;
  std::map<uint32_t, CodePoints> of_mask_;  // of \p{...} so far
};

Result<char32_t> Parser::TakeCharacter() {
  const Utf8Char c = DecodeUtf8(pattern_.substr(at_));
  if (!c.valid) return Wrong("not UTF-8");
  at_ += c.byte_count;
  return c.code_point;
}

Result<int32_t> Parser::ParseAlternatives(int depth) {
  std::vector<int32_t> children;
  do {
    CELLM_ASSIGN_OR_RETURN(const int32_t child, ParseSequence(depth));
    children.push_back(child);
  } while (Take("|"));
  if (children.size() == 1) return children[0];
  if (depth == 0 && !lookaheads_.empty())
    return Refused("lookaround in one of several alternatives");
  return AddKind(NodeKind::kAlternatives, children);
}

Status Parser::ParseLookahead() {
  const bool negative = Take("(?!");
  if (!negative) Take("(?=");
  wide_ = negative;
  CELLM_ASSIGN_OR_RETURN(const int32_t node, ParseAlternatives(1));
  wide_ = false;
  if (!Take(")")) return Wrong("expected ')'");
  lookaheads_.push_back({node, negative});
  return OkStatus();
}

Result<int32_t> Parser::ParseSequence(int depth) {
  std::vector<int32_t> children;
  bool at_start = depth == 0 && at_start_;
  while (at_ < pattern_.size() && !Has("|") && !Has(")")) {
    if (depth == 0 && children.size() <= 1 && (Has("^") || Has("\\A"))) at_start = true;
    const bool nothing_read =
        children.empty() ||
        (children.size() == 1 && nodes_[static_cast<size_t>(children[0])].kind == NodeKind::kBegin);
    if (at_start && nothing_read && (Has("(?=") || Has("(?!"))) {
      CELLM_RETURN_IF_ERROR(ParseLookahead());
      continue;
    }
    CELLM_ASSIGN_OR_RETURN(const int32_t atom, ParseAtom(depth));
    CELLM_ASSIGN_OR_RETURN(const int32_t repeated, ParseRepeat(atom));
    children.push_back(repeated);
  }
  return AddKind(NodeKind::kSequence, children);
}

Result<int32_t> Parser::ParseAtom(int depth) {
  if (Has("*") || Has("+") || Has("?")) return Wrong("nothing to repeat");
  if (Take("^")) return AddKind(NodeKind::kBegin);
  if (Take("$")) return AddEnd();
  if (Take(".")) {
    const char* const ends = wide_ ? "\n" : "\n\r\xE2\x80\xA8\xE2\x80\xA9";
    return AddSet(CodePoints::Of(ends).Complement());
  }
  if (Has("(")) return ParseGroup(depth);
  if (Has("[")) {
    CELLM_ASSIGN_OR_RETURN(CodePoints set, ParseSet());
    return AddSet(std::move(set));
  }
  if (Has("\\")) {
    if (Take("\\A")) return AddKind(NodeKind::kBegin);
    if (Take("\\z") || Take("\\Z")) return AddEnd();
    Bounds bounds;
    CELLM_RETURN_IF_ERROR(ParseEscape(false, &bounds));
    return AddSet(wide_ ? bounds.AllPossible() : bounds.sure);
  }
  CELLM_ASSIGN_OR_RETURN(const char32_t c, TakeCharacter());
  return AddSet(CodePoints(c, c));
}

// The end of the text; for some engines also the place before a last line end.
Result<int32_t> Parser::AddEnd() {
  const int32_t end = AddKind(NodeKind::kEnd);
  if (!wide_) return end;
  CELLM_ASSIGN_OR_RETURN(const int32_t line_end, AddSet(CodePoints('\n', '\n')));
  const int32_t after = AddKind(NodeKind::kSequence, {line_end, AddKind(NodeKind::kEnd)});
  return AddKind(NodeKind::kAlternatives, {end, after});
}

Result<int32_t> Parser::ParseGroup(int depth) {
  if (depth >= kMaxGroups) return OutOfRange("byte %zu: groups nest deeper than 100", at_);
  for (const char* const look : {"(?=", "(?!", "(?<=", "(?<!"}) {
    if (Has(look)) return Refused("lookaround");
  }
  if (Has("(?>")) return Refused("an atomic group");
  if (Has("(?P=") || Has("(?(") || Has("(?R") || Has("(?&") || Has("(?P>")) {
    return Refused("a backreference, condition or recursion");
  }
  Take("(");
  if (Take("?:")) {
    // Nothing more to know.
  } else if (Take("?<") || Take("?P<")) {
    const size_t end = pattern_.find('>', at_);
    if (end == std::string_view::npos || end == at_) return Wrong("a group's name");
    at_ = end + 1;
  } else if (Has("?")) {
    return Refused("a group with flags");
  }
  CELLM_ASSIGN_OR_RETURN(const int32_t inner, ParseAlternatives(depth + 1));
  if (!Take(")")) return Wrong("expected ')'");
  return inner;
}

// {m}, {m,}, {m,n}; anything else in braces stands for itself.
Status Parser::ParseCounts(int32_t* min, int32_t* max, bool* is_one) {
  *is_one = false;
  size_t at = at_ + 1;
  const auto number = [&](int32_t* out) {
    const size_t begin = at;
    int64_t value = 0;
    while (at < pattern_.size() && pattern_[at] >= '0' && pattern_[at] <= '9') {
      value = std::min<int64_t>(value * 10 + (pattern_[at++] - '0'), INT32_MAX);
    }
    *out = static_cast<int32_t>(value);
    return at > begin;
  };
  if (!number(min)) {
    if (pattern_.substr(at, 1) != ",") return OkStatus();
    return Wrong("{,n} means different things to different engines; write {0,n}");
  }
  *max = *min;
  if (pattern_.substr(at, 1) == ",") {
    ++at;
    if (!number(max)) *max = kUnbounded;
  }
  if (pattern_.substr(at, 1) != "}") return OkStatus();
  if (*max != kUnbounded && *max < *min) return Wrong("{m,n} with n below m");
  at_ = at + 1;
  *is_one = true;
  return OkStatus();
}

Result<int32_t> Parser::ParseRepeat(int32_t atom) {
  int32_t min = 0;
  int32_t max = kUnbounded;
  bool repeats = true;
  if (Take("*")) {
  } else if (Take("+")) {
    min = 1;
  } else if (Take("?")) {
    max = 1;
  } else if (Has("{")) {
    CELLM_RETURN_IF_ERROR(ParseCounts(&min, &max, &repeats));
  } else {
    repeats = false;
  }
  if (!repeats) return atom;
  const NodeKind kind = nodes_[static_cast<size_t>(atom)].kind;
  if (kind == NodeKind::kBegin || kind == NodeKind::kEnd) return Wrong("an anchor is repeated");
  if (Has("+")) return Refused("a possessive quantifier");
  Take("?");  // lazy: the same texts
  if (Has("*") || Has("+") || Has("?")) return Wrong("nothing to repeat");
  Node node;
  node.kind = NodeKind::kRepeat;
  node.children = {atom};
  node.min = min;
  node.max = max;
  return Add(std::move(node));
}

Status Parser::ParseHex(int digits, char32_t* out) {
  char32_t value = 0;
  for (int i = 0; i < digits; ++i, ++at_) {
    const char c = at_ < pattern_.size() ? pattern_[at_] : '\0';
    if (c >= '0' && c <= '9') {
      value = value * 16 + static_cast<char32_t>(c - '0');
    } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
      value = value * 16 + static_cast<char32_t>((c | 0x20) - 'a' + 10);
    } else {
      return Wrong("expected a hexadecimal digit");
    }
  }
  *out = value;
  return OkStatus();
}

Status Parser::ParseProperty(bool negated, Bounds* out) {
  std::string_view name;
  if (Take("{")) {
    const size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) return Wrong("expected '}'");
    name = pattern_.substr(at_, end - at_);
    at_ = end + 1;
  } else {
    name = pattern_.substr(at_, 1);
    at_ += name.size();
  }
  if (name.substr(0, 1) == "^") {
    negated = !negated;
    name.remove_prefix(1);
  }
  uint32_t mask = 0;
  for (const std::string_view prefix : {"gc=", "General_Category="}) {
    if (name.substr(0, prefix.size()) == prefix) name.remove_prefix(prefix.size());
  }
  if (!CategoryMask(name, &mask)) {
    return Unsupported("byte %zu: \\p{%.*s} is no general category; \\p{L}, \\p{Lu}, ... are known",
                       at_, static_cast<int>(std::min<size_t>(name.size(), 40)), name.data());
  }
  const auto [known, is_new] = of_mask_.emplace(mask, CodePoints());
  if (is_new) known->second = OfMask(mask);
  const CodePoints chosen = negated ? known->second.Complement() : known->second;
  *out = {chosen, chosen, 0};
  return OkStatus();
}

Status Parser::ParseEscape(bool in_set, Bounds* out) {
  ++at_;
  if (at_ == pattern_.size()) return Wrong("a backslash at the end");
  CELLM_ASSIGN_OR_RETURN(const char32_t c, TakeCharacter());
  char32_t literal = c;
  switch (c) {
    case 'd':
      *out = Digits();
      return OkStatus();
    case 'D':
      *out = Digits().Complement();
      return OkStatus();
    case 'w':
      *out = WordCharacters();
      return OkStatus();
    case 'W':
      *out = WordCharacters().Complement();
      return OkStatus();
    case 's':
      *out = Spaces();
      return OkStatus();
    case 'S':
      *out = Spaces().Complement();
      return OkStatus();
    case 'p':
    case 'P':
      return ParseProperty(c == 'P', out);
    case 't':
      literal = '\t';
      break;
    case 'n':
      literal = '\n';
      break;
    case 'r':
      literal = '\r';
      break;
    case 'f':
      literal = '\f';
      break;
    case 'v':
      literal = '\v';
      break;
    case '0':
      if (at_ < pattern_.size() && pattern_[at_] >= '0' && pattern_[at_] <= '9') {
        return Wrong("an octal escape; write \\xHH");
      }
      literal = 0;
      break;
    case 'x':
      CELLM_RETURN_IF_ERROR(ParseHex(2, &literal));
      break;
    case 'u':
      if (Take("{")) {
        const size_t end = pattern_.find('}', at_);
        if (end == std::string_view::npos || end == at_ || end - at_ > 6) {
          return Wrong("expected one to six hexadecimal digits and '}'");
        }
        CELLM_RETURN_IF_ERROR(ParseHex(static_cast<int>(end - at_), &literal));
        Take("}");
      } else {
        CELLM_RETURN_IF_ERROR(ParseHex(4, &literal));
        char32_t low = 0;
        if (literal >= 0xD800 && literal < 0xDC00 && Take("\\u")) {
          CELLM_RETURN_IF_ERROR(ParseHex(4, &low));
          if (low < 0xDC00 || low > 0xDFFF) return Wrong("half of a surrogate pair");
          literal = 0x10000 + ((literal - 0xD800) << 10) + (low - 0xDC00);
        }
      }
      break;
    case 'b':
      if (!in_set) return Refused("a word boundary");
      literal = '\b';
      break;
    case 'B':
      return Refused("a word boundary");
    case 'k':
      return Refused("a backreference");
    default:
      if (c >= '1' && c <= '9') return Refused("a backreference");
      if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
        return Wrong("an escape that is not known");
      }
  }
  if ((literal >= 0xD800 && literal <= 0xDFFF) || literal > 0x10FFFF) {
    return Wrong("not a character: half of a surrogate pair, or above U+10FFFF");
  }
  out->Add(literal, literal);
  return OkStatus();
}

// One character or class inside of brackets.
Status Parser::ParseSetItem(Bounds* out, bool* is_class) {
  if (Has("\\")) {
    const char next = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    *is_class = std::string_view("dDwWsSpP").find(next) != std::string_view::npos;
    return ParseEscape(true, out);
  }
  *is_class = false;
  if (Has("[:")) return Refused("a POSIX class");
  CELLM_ASSIGN_OR_RETURN(const char32_t c, TakeCharacter());
  out->Add(c, c);
  return OkStatus();
}

Result<CodePoints> Parser::ParseSet() {
  Take("[");
  const bool negated = Take("^");
  if (Has("]")) return Wrong("an empty set, or a ']' that needs a backslash");
  Bounds bounds;
  while (!Take("]")) {
    if (at_ >= pattern_.size()) return Wrong("expected ']'");
    Bounds item;
    bool is_class = false;
    CELLM_RETURN_IF_ERROR(ParseSetItem(&item, &is_class));
    const bool range =
        !is_class && Has("-") && pattern_.substr(at_ + 1, 1) != "]" && at_ + 1 < pattern_.size();
    if (range) {
      ++at_;
      Bounds last;
      CELLM_RETURN_IF_ERROR(ParseSetItem(&last, &is_class));
      if (is_class) return Wrong("a range that ends in a class");
      const char32_t a = item.sure.ranges()[0].first;
      const char32_t b = last.sure.ranges()[0].first;
      if (b < a) return Wrong("a range whose end is before its beginning");
      bounds.Add(a, b);
    } else {
      bounds.Add(item);
    }
  }
  if (wide_) return negated ? bounds.sure.Complement() : bounds.AllPossible();
  return negated ? bounds.AllPossible().Complement() : bounds.sure;
}

// ---- the tree as an automaton -----------------------------------------------------------------

// With steps that read nothing, and anchors as steps that read nothing but are not always allowed.
class Builder {
 public:
  explicit Builder(const std::vector<Node>& nodes) : nodes_(nodes) {}
  // Texts in which the tree matches, with any text before it and behind it where that is asked for.
  Result<CharAutomaton> Run(int32_t root, bool any_before, bool any_behind);

 private:
  enum class StepKind : uint8_t { kNothing, kSet, kBegin, kEnd };
  struct Step {
    StepKind kind;
    int32_t target;
    int32_t set;  // number of a tree node
  };
  // A place and what anchors need to know: has anything been read, may nothing more be read?
  struct Place {
    int32_t state;
    bool begun;
    bool ended;
    auto operator<=>(const Place&) const = default;
  };

  int32_t AddState() {
    steps_.emplace_back();
    return static_cast<int32_t>(steps_.size() - 1);
  }
  void AddStep(int32_t from, StepKind kind, int32_t to, int32_t set = -1) {
    steps_[static_cast<size_t>(from)].push_back({kind, to, set});
  }
  bool full() const { return steps_.size() > kMaxNodes; }
  void Build(int32_t node, int32_t from, int32_t to);
  Result<CharAutomaton> WithoutEmptySteps(int32_t start, int32_t end);

  const std::vector<Node>& nodes_;
  std::vector<std::vector<Step>> steps_;
};

void Builder::Build(int32_t id, int32_t from, int32_t to) {
  if (full()) return;
  const Node& node = nodes_[static_cast<size_t>(id)];
  switch (node.kind) {
    case NodeKind::kEmpty:
      AddStep(from, StepKind::kNothing, to);
      break;
    case NodeKind::kSet:
      AddStep(from, StepKind::kSet, to, id);
      break;
    case NodeKind::kBegin:
      AddStep(from, StepKind::kBegin, to);
      break;
    case NodeKind::kEnd:
      AddStep(from, StepKind::kEnd, to);
      break;
    case NodeKind::kSequence:
      for (const int32_t child : node.children) {
        const int32_t next = AddState();
        Build(child, from, next);
        from = next;
      }
      AddStep(from, StepKind::kNothing, to);
      break;
    case NodeKind::kAlternatives:
      for (const int32_t child : node.children) Build(child, from, to);
      break;
    case NodeKind::kRepeat:
      for (int32_t i = 0; i < node.min && !full(); ++i) {
        const int32_t next = AddState();
        Build(node.children[0], from, next);
        from = next;
      }
      if (node.max == kUnbounded) {
        const int32_t loop = AddState();
        AddStep(from, StepKind::kNothing, loop);
        Build(node.children[0], loop, loop);
        AddStep(loop, StepKind::kNothing, to);
        break;
      }
      for (int32_t i = node.min; i < node.max && !full(); ++i) {
        const int32_t next = AddState();
        AddStep(from, StepKind::kNothing, to);
        Build(node.children[0], from, next);
        from = next;
      }
      AddStep(from, StepKind::kNothing, to);
      break;
  }
}

Status TooLarge() {
  return OutOfRange("the regex needs more than %zu transitions; make its repetitions smaller",
                    kMaxCharEdges);
}

Result<CharAutomaton> Builder::WithoutEmptySteps(int32_t start, int32_t end) {
  CharAutomaton out;
  std::map<Place, int32_t> known;
  std::vector<Place> places;
  const auto state_of = [&](const Place& place) {
    const auto [at, is_new] = known.emplace(place, 0);
    if (is_new) {
      at->second = out.AddState(false);
      places.push_back(place);
    }
    return at->second;
  };
  state_of({start, false, false});
  size_t edge_count = 0;
  size_t range_count = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    std::vector<Place> pending = {places[i]};
    std::map<Place, bool> visited;
    while (!pending.empty()) {
      const Place place = pending.back();
      pending.pop_back();
      if (!visited.emplace(place, true).second) continue;
      if (place.state == end) out.finals[i] = true;
      for (const Step& step : steps_[static_cast<size_t>(place.state)]) {
        if (++edge_count > 4 * kMaxCharEdges) return TooLarge();
        if (step.kind == StepKind::kNothing) {
          pending.push_back({step.target, place.begun, place.ended});
        } else if (step.kind == StepKind::kBegin) {
          if (!place.begun) pending.push_back({step.target, place.begun, place.ended});
        } else if (step.kind == StepKind::kEnd) {
          pending.push_back({step.target, place.begun, true});
        } else if (!place.ended) {
          const CodePoints set =
              step.set < 0 ? CodePoints::Any() : nodes_[static_cast<size_t>(step.set)].set;
          range_count += set.ranges().size();
          if (range_count > kMaxCharRanges) return TooLarge();
          out.AddEdge(static_cast<int32_t>(i), state_of({step.target, true, false}), set);
        }
      }
    }
  }
  return out;
}

Result<CharAutomaton> Builder::Run(int32_t root, bool any_before, bool any_behind) {
  const int32_t start = AddState();
  const int32_t end = AddState();
  Build(root, start, end);
  if (full()) {
    return OutOfRange("the regex needs more than %zu states; make its repetitions smaller",
                      kMaxNodes);
  }
  int32_t first = start;
  int32_t last = end;
  if (any_before) {
    first = AddState();
    AddStep(first, StepKind::kSet, first);
    AddStep(first, StepKind::kNothing, start);
  }
  if (any_behind) {
    last = AddState();
    AddStep(end, StepKind::kNothing, last);
    AddStep(last, StepKind::kSet, last);
  }
  return WithoutEmptySteps(first, last);
}

}  // namespace

Result<CharAutomaton> CompileRegex(std::string_view pattern, RegexUse use) {
  if (pattern.size() > kMaxRegexBytes) {
    return OutOfRange("the regex has %zu bytes; at most %zu are taken", pattern.size(),
                      kMaxRegexBytes);
  }
  const bool search = use == RegexUse::kSearch;
  Parser parser(pattern, !search);
  CELLM_ASSIGN_OR_RETURN(const int32_t root, parser.Run());
  CELLM_ASSIGN_OR_RETURN(CharAutomaton out, Builder(parser.nodes()).Run(root, search, search));
  for (const Parser::Lookahead& look : parser.lookaheads()) {
    CELLM_ASSIGN_OR_RETURN(CharAutomaton ahead,
                           Builder(parser.nodes()).Run(look.node, false, true));
    if (look.negative) {
      CELLM_ASSIGN_OR_RETURN(ahead, Complement(ahead));
    }
    CELLM_ASSIGN_OR_RETURN(out, Intersect(out, ahead));
  }
  if (!Trim(&out)) return InvalidArgument("no text matches the regex");
  return out;
}

Result<Grammar> RegexGrammar(std::string_view pattern) {
  CELLM_ASSIGN_OR_RETURN(const CharAutomaton automaton, CompileRegex(pattern, RegexUse::kWhole));
  Grammar grammar;
  grammar.root = grammar.AddRule("regex");
  grammar.SetRule(grammar.root, SpellAutomaton(automaton, Spelling::kPlain, &grammar));
  return grammar;
}

}  // namespace cellm::constrain
