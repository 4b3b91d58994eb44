#include "capi/constraints.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "capi/convert_args.h"
#include "tokenizer/stream_decoder.h"

namespace cellm::capi {
namespace {

constexpr size_t kMostEntries = 8;

static_assert(CELLM_CONSTRAINT_JSON_SCHEMA ==
              static_cast<int>(constrain::ConstraintKind::kJsonSchema));
static_assert(CELLM_CONSTRAINT_GRAMMAR == static_cast<int>(constrain::ConstraintKind::kGrammar));
static_assert(CELLM_CONSTRAINT_REGEX == static_cast<int>(constrain::ConstraintKind::kRegex));
static_assert(CELLM_CONSTRAINT_CHOICES == static_cast<int>(constrain::ConstraintKind::kChoices));
static_assert(CELLM_CONSTRAINT_STRUCTURAL ==
              static_cast<int>(constrain::ConstraintKind::kStructural));

// Tables of one constraint take at most this part of the engine's budget.
constrain::MachineLimits LimitsFor(const BudgetAllocator& memory) {
  const uint64_t budget = memory.limit_bytes();
  const auto part = [&](uint64_t divisor, uint64_t least, uint64_t most) {
    return static_cast<size_t>(std::clamp(budget / divisor, least, most));
  };
  constrain::MachineLimits limits;
  limits.table_bytes = part(64, uint64_t{1} << 20, uint64_t{24} << 20);
  limits.mask_bytes = part(128, uint64_t{512} << 10, uint64_t{8} << 20);
  return limits;
}

}  // namespace

Status ConstraintCache::BuildTrie(const tokenizer::Tokenizer& tokenizer,
                                  const sample::StopIds& end_ids, int32_t columns) {
  if (!tokenizer::StreamDecoder::KnowsTokenTexts(tokenizer)) {
    return Unsupported(
        "constrained output: this tokenizer's decoder looks at whole texts, so that "
        "a token has no text of its own");
  }
  std::vector<constrain::TokenText> tokens(static_cast<size_t>(tokenizer.vocab_size()));
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int32_t id = static_cast<int32_t>(i);
    tokens[i].control = tokenizer.IsControl(id) || end_ids.Contains(id);
    tokens[i].bytes =
        tokens[i].control ? std::string(tokenizer.IdToToken(id)) : tokenizer.TokenBytes(id);
  }
  CELLM_ASSIGN_OR_RETURN(trie_, constrain::TokenTrie::Build(tokens, columns, memory_));
  return OkStatus();
}

Result<std::shared_ptr<constrain::Constraint>> ConstraintCache::Compile(
    constrain::ConstraintKind kind, std::string_view text) {
  const constrain::MachineLimits limits = LimitsFor(memory_);
  for (;;) {
    Result<std::unique_ptr<constrain::Constraint>> compiled =
        constrain::Constraint::Compile(kind, text, *trie_, memory_, {}, limits);
    if (compiled.ok()) {
      return std::shared_ptr<constrain::Constraint>(std::move(compiled).value());
    }
    // Others that nobody uses make room.
    const auto unused = std::find_if(entries_.rbegin(), entries_.rend(), [](const Entry& entry) {
      return entry.constraint.use_count() == 1;
    });
    if (compiled.status().code() != StatusCode::kOutOfMemory || unused == entries_.rend()) {
      return compiled.status();
    }
    entries_.erase(std::next(unused).base());
  }
}

Result<std::shared_ptr<constrain::Constraint>> ConstraintCache::Get(
    const cellm_request_options* options, const tokenizer::Tokenizer* tokenizer,
    const sample::StopIds& end_ids, int32_t columns, bool alone) {
  cellm_request_options known;
  CELLM_RETURN_IF_ERROR(ReadSized(options, "request options", &known));
  std::string_view text;
  CELLM_RETURN_IF_ERROR(ReadText(known.constraint_text, "constraint_text", &text));
  if (known.constraint == CELLM_CONSTRAINT_NONE) {
    if (text.empty()) return std::shared_ptr<constrain::Constraint>();
    return InvalidArgument("constraint_text is given, but constraint is CELLM_CONSTRAINT_NONE");
  }
  if (known.constraint < 0 || known.constraint > CELLM_CONSTRAINT_STRUCTURAL) {
    return InvalidArgument("constraint is %d, which is no CELLM_CONSTRAINT_ constant",
                           known.constraint);
  }
  if (tokenizer == nullptr) {
    return NotFound("constrained output needs a tokenizer, and the model has none");
  }
  const constrain::ConstraintKind kind = static_cast<constrain::ConstraintKind>(known.constraint);
  const std::lock_guard<std::mutex> guard(mutex_);
  for (auto entry = entries_.begin(); !alone && entry != entries_.end(); ++entry) {
    if (entry->kind != kind || entry->text != text) continue;
    entries_.splice(entries_.begin(), entries_, entry);
    return entries_.front().constraint;
  }
  if (trie_ == nullptr) CELLM_RETURN_IF_ERROR(BuildTrie(*tokenizer, end_ids, columns));
  CELLM_ASSIGN_OR_RETURN(std::shared_ptr<constrain::Constraint> constraint, Compile(kind, text));
  if (alone) return constraint;
  entries_.push_front({kind, std::string(text), constraint});
  if (entries_.size() > kMostEntries) entries_.pop_back();
  return constraint;
}

}  // namespace cellm::capi
