#ifndef CELLM_SRC_CAPI_CONSTRAINED_REPLY_H_
#define CELLM_SRC_CAPI_CONSTRAINED_REPLY_H_

// The constraint's part in choosing a reply's tokens.
//
// Two kinds of tokens: those that the model chooses among what is allowed, and those that are
// certain and need no logits. A token is certain when the text that must follow has it whatever
// comes behind. Which tokens spell that text is not left open by the constraint alone, since
// "name" may be one token or four; the spelling is the tokenizer's own, because that is what the
// model has seen and would choose:
//
//   text that must follow          me": "                    what may follow it
//   tokenizer, with each of those  me | ": | "  + a  ->  me | ": | "a
//                                  me | ": | "  + "  ->  me | ": | ""
//   certain                        me | ":                   what all agree on, without the last
//
// The last token of the text is left to the model even where all agree, as a longer token might
// begin there. Nothing of this depends on the schedule.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/allocator.h"
#include "base/status.h"
#include "constrain/constraint.h"
#include "sample/sampler.h"
#include "sample/stop.h"
#include "tokenizer/tokenizer.h"

namespace cellm::capi {

class ConstrainedReply {
 public:
  // `tokenizer` and `memory` outlive it. OutOfMemory.
  static Result<std::unique_ptr<ConstrainedReply>> Create(
      std::shared_ptr<constrain::Constraint> constraint, const tokenizer::Tokenizer& tokenizer,
      int32_t vocabulary, Allocator& memory);

  // Chooses from the row what the constraint allows, end ids when the text may end, and follows it.
  // Errors as Sampler::Sample() and constrain::Matcher.
  Result<int32_t> Sample(sample::Sampler* sampler, std::span<const float> row,
                         const sample::StopIds& end_ids);
  // The tokens that are certain now, at most `most`, and follows them; an end id when it is the
  // only one and nothing else may come. Valid until the next call.
  Result<std::span<const int32_t>> TakeCertain(size_t most, const sample::StopIds& end_ids);
  // Follows a token that Sample() chose earlier. Internal: it is not allowed here.
  Status Follow(int32_t id, const sample::StopIds& end_ids) {
    return end_ids.Contains(id) ? OkStatus() : matcher_.Accept(id);
  }
  // Nothing may follow.
  Result<bool> IsComplete() { return matcher_.MustEnd(); }

 private:
  ConstrainedReply(std::shared_ptr<constrain::Constraint> constraint,
                   const tokenizer::Tokenizer& tokenizer)
      : constraint_(std::move(constraint)), matcher_(*constraint_), tokenizer_(tokenizer) {}
  Status FindCertain(const std::string& text, const std::vector<uint8_t>& followers);
  Status Spell(const std::string& text, std::vector<int32_t>* ids) const;

  std::shared_ptr<constrain::Constraint> constraint_;
  constrain::Matcher matcher_;
  const tokenizer::Tokenizer& tokenizer_;
  Array<uint64_t> allowed_;  // one bit a token
  std::vector<int32_t> certain_;
};

}  // namespace cellm::capi

#endif  // CELLM_SRC_CAPI_CONSTRAINED_REPLY_H_
