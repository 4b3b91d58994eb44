#include "cellm/bench/bench_text.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/rng.h"
#include "cellm/common.h"

namespace cellm::tools {
namespace {

constexpr std::string_view kSentences[] = {
    "The harbour was quiet before six, and only the gulls argued about yesterday's bread.",
    "Marta carried two crates of lemons down the steps, counting under her breath in Catalan.",
    "A letter had come from the ministry in March, but nobody in the village could say what it "
    "meant.",
    "To repair the pump you need a spanner of seventeen millimetres, patience, and a clean cloth.",
    "In 1923 the railway bought the lower meadow for 4,150 crowns and planted poplars along it.",
    "\"If you leave now,\" he said, \"you will still see the comet over the old water tower.\"",
    "Most of the glass was green; the rest had been broken by hail and replaced with cardboard.",
    "She measured the field twice, once by steps and once with a rope, and got different answers.",
    "Salt keeps fish, smoke keeps ham, and gossip keeps everyone awake through the long winter.",
    "The engine coughed, turned over three times, and settled into an uneven but hopeful rhythm.",
    "Nobody had told the accountant that the company's only warehouse stood on a flood plain.",
    "Water boils at ninety-three degrees up there, so beans take hours and tea is never quite "
    "right.",
    "My grandfather kept bees, four hives behind the church, and named every queen after a "
    "composer.",
    "Question seven asked for the area of a triangle whose sides were 13, 14 and 15 centimetres.",
    "Under the floorboards they found a biscuit tin, a map of Trieste, and eleven unused stamps.",
    "The committee met on Thursdays, agreed on everything, and wrote down almost none of it.",
    "He learned to whistle at forty, which surprised his children and annoyed the neighbour's dog.",
    "When the fog lifts, you can count nine islands; on clear autumn days, perhaps eleven.",
    "An old sailor taught us to read the swell: short and steep means wind, long and slow means "
    "distance.",
    "Please return the keys to the blue box beside the second door, not the one by the stairs.",
    "Bread rises slowly in a cold kitchen, but the crust is better and the crumb stays moist.",
    "Their quarrel began over a fence post and ended, twenty years later, at a wedding.",
    "The museum owns a clock with a single hand, because minutes did not matter to its maker.",
    "Rain fell on the tin roof all night, and by morning the river had moved a metre to the east.",
    "We took the slow train through the gorge, where the signal fails and conversation begins.",
    "Every third lamp along the avenue was dark, a saving of 212 kilowatt hours each month.",
    "The translator underlined one word in red: it could mean shelter, or debt, or both.",
    "Children from the upper school painted the wall with whales, which nobody there had ever "
    "seen.",
    "It is a small machine, no larger than a loaf, yet it hums as if it were thinking hard.",
    "After the harvest they burned the straw, and the smoke lay over the valley for a week.",
    "Doctor Okafor drew a diagram on the tablecloth to explain how the valve opens and closes.",
    "The recipe calls for two eggs, a pinch of nutmeg, and more butter than anyone admits to.",
    "A good index, said the librarian, is a letter to a stranger who is in a hurry.",
    "By noon the price of copper had doubled, and three men in Lima stopped answering the "
    "telephone.",
    "The violin was not old, but it had been played every evening for thirty years.",
    "Frost drew ferns on the inside of the window, each one finer than the last.",
    "They built the bridge in sections on the bank and floated it into place with empty barrels.",
    "I have never trusted maps that show the edge of the forest as a straight line.",
    "The new teacher arrived with a globe, a bicycle, and strong opinions about long division.",
    "What the tide brings in on Monday it usually takes back by the end of the week.",
};

}  // namespace

std::string BenchText(size_t bytes) {
  std::string text;
  Rng rng(20260115);
  size_t order[std::size(kSentences)];
  for (size_t i = 0; i < std::size(order); ++i) order[i] = i;
  while (text.size() < bytes) {
    for (size_t i = std::size(order); i > 1; --i) std::swap(order[i - 1], order[rng.NextBelow(i)]);
    for (const size_t index : order) {
      text += kSentences[index];
      text += rng.NextBelow(6) == 0 ? "\n\n" : " ";
    }
  }
  return text;
}

Result<std::vector<int32_t>> BenchIds(const cellm_model* model, const std::string& text,
                                      int64_t needed) {
  cellm_model_info info = CELLM_MODEL_INFO_INIT;
  cellm_error error = CELLM_ERROR_INIT;
  if (cellm_model_get_info(model, &info, &error) != CELLM_OK) return ToStatus(error);
  const size_t least = static_cast<size_t>(needed);
  std::vector<int32_t> ids;
  if (info.tokenizer_size > 0) {
    // No token of prose is longer than sixteen bytes on average.
    const std::string prose = text.empty() ? BenchText(16 * least) : text;
    ids.resize(prose.size());
    size_t count = 0;
    if (cellm_model_tokenize(model, prose.data(), prose.size(), 0, ids.data(), ids.size(), &count,
                             &error) != CELLM_OK) {
      return ToStatus(error);
    }
    ids.resize(count);
    // A tokenizer may know more ids than the model has rows.
    std::erase_if(ids, [&](int32_t id) { return id >= info.vocabulary; });
  }
  Rng rng(7);
  while (ids.size() < least) {
    ids.push_back(static_cast<int32_t>(rng.NextBelow(static_cast<uint64_t>(info.vocabulary))));
  }
  return ids;
}

}  // namespace cellm::tools
