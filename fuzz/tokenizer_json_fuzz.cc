// Any bytes as a tokenizer.json: a Status that says why not, or a tokenizer that keeps its
// promises on a few texts.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cellm::tokenizer;  // NOLINT: a fuzz target is one function
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto loaded = Tokenizer::FromJson(json, {});
  if (!loaded.ok()) {
    CELLM_CHECK(!loaded.status().message().empty(), "an error says what is wrong");
    return 0;
  }
  const Tokenizer& tokenizer = **loaded;
  static constexpr std::string_view kTexts[] = {"",
                                                " ",
                                                "hello  world\n",
                                                "a<s>b </s>",
                                                "\xF0\x9F\x98\x80\xC3\xA9 e\xCC\x81\xFF",
                                                "12 3.4abAB'll"};
  for (const std::string_view text : kTexts) {
    for (const bool parse : {false, true}) {
      EncodeOptions options;
      options.add_special = options.parse_special = parse;
      const auto ids = tokenizer.Encode(text, options);
      if (!ids.ok()) continue;
      for (const bool skip : {false, true}) {
        const auto decoded = tokenizer.Decode(*ids, skip);
        if (!decoded.ok()) continue;
        CELLM_CHECK(cellm::IsValidUtf8(*decoded), "decoding gives valid text");
      }
      StreamDecoder stream(tokenizer, parse);
      for (const int32_t id : *ids) {
        CELLM_CHECK(id >= 0, "ids are not negative");
        (void)tokenizer.TokenBytes(id);
        const auto delta = stream.Push(id);
        if (!delta.ok()) break;
      }
      (void)stream.Flush().ok();
    }
  }
  return 0;
}
