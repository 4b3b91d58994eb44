// Bytes from a connection: heads, frames and chunked bodies, whole and cut.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "cellm/serve/http_message.h"

namespace {

using namespace cellm::tools::serve;  // NOLINT: one file, one subject

constexpr uint64_t kMostBytes = 1 << 16;

void Check(bool good) {
  if (!good) std::abort();
}

// The status, the body and what is left over, however the text is cut.
std::string Decode(std::string_view text, size_t step) {
  ChunkedBody chunks(kMostBytes);
  std::string buffer;
  std::string body;
  for (size_t at = 0; at < text.size(); at += step) {
    buffer += text.substr(at, step);
    std::string_view input = buffer;
    const HttpFault fault = chunks.Feed(&input, &body);
    if (!fault.ok()) return std::to_string(fault.status);
    buffer = std::string(input);
  }
  Check(body.size() <= kMostBytes);
  return body + "|" + buffer + (chunks.done() ? "|done" : "");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > 16384) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t end = FindHeadEnd(text);
  const std::string_view rest = end == std::string_view::npos ? text : text.substr(end);
  if (end != std::string_view::npos) {
    HttpRequest request;
    const HttpFault fault = ParseHead(text.substr(0, end), &request);
    if (fault.ok()) {
      Check(request.path == "*" || request.path[0] == '/');
      Check(request.path.find('\0') == std::string::npos);
      BodyFrame frame;
      if (ReadBodyFrame(request, kMostBytes, &frame).ok()) Check(frame.length <= kMostBytes);
    }
  }
  Check(Decode(rest, 1 + data[0] % 16) == Decode(rest, size));
  return 0;
}
