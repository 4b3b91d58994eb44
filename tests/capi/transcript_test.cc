#include "capi/transcript.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cellm::capi {
namespace {

MarkedText Text(std::initializer_list<std::pair<const char*, bool>> parts) {
  MarkedText text;
  for (const auto& [bytes, trusted] : parts) text.Append(bytes, trusted);
  return text;
}

// A first turn: prompt ids 1 2 3 for "[U]hi[A]", reply ids 10 11 for "yes".
Transcript FirstTurn() {
  Transcript transcript;
  const MarkedText prompt = Text({{"[U]", true}, {"hi", false}, {"[A]", true}});
  EXPECT_EQ(transcript.Match(prompt).id_count, 0u);
  transcript.SetPrompt({}, prompt, std::vector<int32_t>{1, 2, 3});
  transcript.AppendReply("yes", std::vector<int32_t>{10, 11});
  transcript.AppendIds(std::vector<int32_t>{99});  // the end id has no text of the reply
  return transcript;
}

TEST(Transcript, ReplyIsKeptWhereItsTextIsRenderedUnchanged) {
  const Transcript transcript = FirstTurn();
  const Transcript::Mark mark = transcript.Match(
      Text({{"[U]", true}, {"hi", false}, {"[A]", true}, {"yes", false}, {"[E]", true}}));
  EXPECT_EQ(mark.id_count, 5u);
  EXPECT_EQ(mark.text_end, 11u);
  EXPECT_EQ(transcript.ids(), (std::vector<int32_t>{1, 2, 3, 10, 11, 99}));
}

TEST(Transcript, ChangedReplyKeepsThePrompt) {
  const Transcript transcript = FirstTurn();
  const Transcript::Mark mark = transcript.Match(
      Text({{"[U]", true}, {"hi", false}, {"[A]", true}, {"no", false}, {"[E]", true}}));
  EXPECT_EQ(mark.id_count, 3u);
}

TEST(Transcript, ChangedPromptKeepsNothing) {
  const Transcript transcript = FirstTurn();
  EXPECT_EQ(transcript.Match(Text({{"[U]", true}, {"ho", false}, {"[A]", true}})).id_count, 0u);
  EXPECT_EQ(transcript.Match(MarkedText()).id_count, 0u);
}

// The same bytes from a user are not what the template wrote: they must be encoded anew, as text.
TEST(Transcript, SameBytesOfAnotherOriginDoNotMatch) {
  const Transcript transcript = FirstTurn();
  EXPECT_EQ(transcript.Match(Text({{"[U]", true}, {"hi[A]", false}})).id_count, 0u);
  EXPECT_EQ(transcript.Match(Text({{"[U]hi[A]", true}})).id_count, 0u);
  // A reply that the template claims to have written itself is not the model's.
  EXPECT_EQ(transcript.Match(Text({{"[U]", true}, {"hi", false}, {"[A]yes", true}})).id_count, 3u);
}

TEST(Transcript, SecondTurnAddsMarks) {
  Transcript transcript = FirstTurn();
  const MarkedText second = Text({{"[U]", true},
                                  {"hi", false},
                                  {"[A]", true},
                                  {"yes", false},
                                  {"[E][U]", true},
                                  {"so", false},
                                  {"[A]", true}});
  const Transcript::Mark mark = transcript.Match(second);
  transcript.SetPrompt(mark, second, std::vector<int32_t>{1, 2, 3, 10, 11, 4, 5});
  transcript.AppendReply("ok", std::vector<int32_t>{20});
  MarkedText third = second;
  third.Append("ok", false);
  EXPECT_EQ(transcript.Match(third).id_count, 8u);
  EXPECT_EQ(transcript.Match(second).id_count, 7u);
  // The first reply was edited: its prompt is still good.
  EXPECT_EQ(transcript
                .Match(Text(
                    {{"[U]", true}, {"hi", false}, {"[A]", true}, {"NO", false}, {"[E][U]", true}}))
                .id_count,
            3u);
}

TEST(Transcript, TruncateForgetsMarksBeyondTheEnd) {
  Transcript transcript = FirstTurn();
  transcript.Truncate(4);
  EXPECT_EQ(transcript.ids(), (std::vector<int32_t>{1, 2, 3, 10}));
  const MarkedText all = Text({{"[U]", true}, {"hi", false}, {"[A]", true}, {"yes", false}});
  EXPECT_EQ(transcript.Match(all).id_count, 3u);
  transcript.Clear();
  EXPECT_TRUE(transcript.ids().empty());
  EXPECT_EQ(transcript.Match(all).id_count, 0u);
}

}  // namespace
}  // namespace cellm::capi
