#include "regex/split.h"

#include "base/utf8.h"
#include "regex/scanners.h"

#if defined(CELLM_HAVE_PCRE2)
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#endif

namespace cellm::regex {

#if defined(CELLM_HAVE_PCRE2)

struct SplitPattern::Pcre2 {
  pcre2_code* code = nullptr;
  Pcre2() = default;
  Pcre2(const Pcre2&) = delete;
  Pcre2& operator=(const Pcre2&) = delete;
  ~Pcre2() { pcre2_code_free(code); }
};

namespace {

// A split pattern takes a few steps a character; a match that needs this many is running wild.
constexpr uint32_t kMatchLimit = 2'000'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;

// Oniguruma's shorthands in PCRE2's words. PCRE2's own \s and \w differ in a few characters.
std::string TranslateShorthands(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      if (next == 's') {
        out += "\\p{White_Space}";
      } else if (next == 'S') {
        out += "\\P{White_Space}";
      } else if (next == 'w') {
        out += in_class ? "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
                        : "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]";
      } else if (next == 'h') {
        out += in_class ? "0-9a-fA-F" : "[0-9a-fA-F]";
      } else {
        out += c;
        out += next;
      }
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

struct MatchState {
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  ~MatchState() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
};

Status FindAllWithPcre2(const pcre2_code* code, std::string_view text, std::vector<Span>* out) {
  MatchState state;
  state.data = pcre2_match_data_create_from_pattern(code, nullptr);
  state.context = pcre2_match_context_create(nullptr);
  if (state.data == nullptr || state.context == nullptr) {
    return OutOfMemory("split pattern: no memory to match");
  }
  pcre2_set_match_limit(state.context, kMatchLimit);
  pcre2_set_heap_limit(state.context, kHeapLimitKib);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t at = 0;
  size_t last_end = SIZE_MAX;
  uint32_t options = 0;  // the first call checks the UTF-8, the others need not
  while (at <= text.size()) {
    const int count =
        pcre2_match(code, subject, text.size(), at, options, state.data, state.context);
    options = PCRE2_NO_UTF_CHECK;
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0) return OutOfRange("split pattern: PCRE2 gave up with code %d", count);
    const PCRE2_SIZE* ovector = pcre2_get_ovector_pointer(state.data);
    const size_t begin = ovector[0];
    const size_t end = ovector[1];
    if (end < begin || end > text.size()) return Internal("split pattern: PCRE2 range");
    if (end > begin || begin != last_end) {
      out->push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
      last_end = end;
    }
    at = end;
    if (end == begin) at += at < text.size() ? DecodeUtf8(text.substr(at)).byte_count : 1;
  }
  return Status();
}

}  // namespace

bool HasPcre2() { return true; }

Result<SplitPattern> SplitPattern::CompileWithPcre2(std::string_view pattern) {
  const std::string translated = TranslateShorthands(pattern);
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  // Ruby's ^ and $ match at every line end.
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                    &error_offset, nullptr);
  if (code == nullptr) {
    char reason[128] = "unknown";
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(reason), sizeof(reason));
    return Unsupported("split pattern \"%.200s\": %s", std::string(pattern).c_str(), reason);
  }
  SplitPattern compiled;
  compiled.scanner_ = Scanner::kPcre2;
  compiled.pcre2_ = std::make_unique<Pcre2>();
  compiled.pcre2_->code = code;
  return compiled;
}

#else

struct SplitPattern::Pcre2 {};

bool HasPcre2() { return false; }

Result<SplitPattern> SplitPattern::CompileWithPcre2(std::string_view pattern) {
  return Unsupported("split pattern \"%.200s\": no scanner for it, and built without PCRE2",
                     std::string(pattern).c_str());
}

#endif

SplitPattern::SplitPattern() = default;
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;
SplitPattern::~SplitPattern() = default;

Result<SplitPattern> SplitPattern::Compile(std::string_view pattern) {
  SplitPattern compiled;
  if (const KnownPattern* known = FindKnownPattern(pattern)) {
    compiled.scanner_ = known->scanner;
    compiled.options_ = known->options;
    return compiled;
  }
  if (ParseClassRun(pattern, &compiled.run_)) return compiled;
  return CompileWithPcre2(pattern);
}

Status SplitPattern::FindAll(std::string_view text, std::vector<Span>* out) const {
  if (text.size() > UINT32_MAX) return OutOfRange("text of %zu bytes; 4 GB at most", text.size());
  switch (scanner_) {
    case Scanner::kClassRun:
      ScanClassRun(run_, text, out);
      return Status();
    case Scanner::kPcre2:
#if defined(CELLM_HAVE_PCRE2)
      return FindAllWithPcre2(pcre2_->code, text, out);
#else
      return Internal("split pattern: PCRE2 is not built in");
#endif
    default:
      ScanKnown(scanner_, options_, text, out);
      return Status();
  }
}

}  // namespace cellm::regex
