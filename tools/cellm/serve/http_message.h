#ifndef CELLM_TOOLS_CELLM_SERVE_HTTP_MESSAGE_H_
#define CELLM_TOOLS_CELLM_SERVE_HTTP_MESSAGE_H_

// HTTP/1.1 requests as text (RFC 9110, RFC 9112): pure functions from bytes to values, no sockets.
//
// Strict where two readings would be possible, because a proxy in front may choose the other one:
// a length beside a transfer coding, two different lengths, folded headers, bare line feeds and
// blanks before a colon are refused, not repaired.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cellm::tools::serve {

struct HttpHeader {
  std::string name;  // lower case
  std::string value;
};

struct HttpRequest {
  std::string method;
  std::string path;   // decoded, without the query; begins with '/' ("*" for OPTIONS *)
  std::string query;  // after '?', as it was sent
  int minor_version = 1;
  std::vector<HttpHeader> headers;
  std::string body;

  // The value of the first header with this lower-case name; empty when there is none.
  std::string_view Header(std::string_view name) const;
  // Whether the connection stays open after the reply, as the client sees it.
  bool KeepAlive() const;
};

// What is wrong with a message, as the status code to answer with. 0: nothing.
struct HttpFault {
  int status = 0;
  std::string message;
  bool ok() const { return status == 0; }
};

// The end of the head in `bytes` (after its empty line), or npos while it is not complete.
size_t FindHeadEnd(std::string_view bytes);

// Reads a whole head (request line and headers, with the empty line). 400, 414, 431, 501, 505.
HttpFault ParseHead(std::string_view head, HttpRequest* request);

// How the body is delimited.
struct BodyFrame {
  bool chunked = false;
  uint64_t length = 0;  // when not chunked
};
// 400: contradictory or malformed; 413: longer than `most_bytes`; 501: an unknown coding.
HttpFault ReadBodyFrame(const HttpRequest& request, uint64_t most_bytes, BodyFrame* frame);

// Decodes a chunked body piece by piece, however it is cut.
class ChunkedBody {
 public:
  explicit ChunkedBody(uint64_t most_bytes) : most_bytes_(most_bytes) {}
  // Takes bytes off the front of *input and appends content to *body. Bytes after the end of the
  // body stay in *input. 400: malformed; 413: longer than allowed.
  HttpFault Feed(std::string_view* input, std::string* body);
  bool done() const { return state_ == State::kDone; }

 private:
  enum class State : uint8_t { kSize, kData, kDataEnd, kTrailer, kDone };
  HttpFault ReadLine(std::string_view* input, bool* complete);
  HttpFault TakeSize();

  uint64_t most_bytes_;
  State state_ = State::kSize;
  std::string line_;
  uint64_t left_ = 0;  // of the chunk
  size_t trailer_bytes_ = 0;
};

// Percent-decoding. False: malformed, or a NUL byte.
bool DecodePercent(std::string_view text, std::string* out);

// The standard words for a status code.
std::string_view ReasonPhrase(int status);

}  // namespace cellm::tools::serve

#endif  // CELLM_TOOLS_CELLM_SERVE_HTTP_MESSAGE_H_
