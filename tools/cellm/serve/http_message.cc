#include "cellm/serve/http_message.h"

#include <algorithm>

#include "base/status.h"

namespace cellm::tools::serve {
namespace {

constexpr size_t kMaxHeaders = 100;
constexpr size_t kMaxTargetBytes = 8192;
// A chunk's size line with its extensions, or a trailer line.
constexpr size_t kMaxChunkLineBytes = 1024;
constexpr size_t kMaxTrailerBytes = 8192;

HttpFault Fault(int status, std::string message) { return {status, std::move(message)}; }

bool IsTokenCharacter(char c) {
  if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return true;
  return c != '\0' && std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool IsToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsTokenCharacter);
}

// No control characters but tabs; bytes above ASCII pass, as servers always let them.
bool IsFieldValue(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const unsigned char byte = static_cast<unsigned char>(c);
    return byte == '\t' || (byte >= 0x20 && byte != 0x7f);
  });
}

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Takes a line without its CR LF off the front of *text; false when there is none.
bool TakeLine(std::string_view* text, std::string_view* line) {
  const size_t end = text->find("\r\n");
  if (end == std::string_view::npos) return false;
  *line = text->substr(0, end);
  text->remove_prefix(end + 2);
  return true;
}

HttpFault ParseTarget(std::string_view target, HttpRequest* request) {
  if (target.size() > kMaxTargetBytes) return Fault(414, "the request target is too long");
  if (target == "*") {
    request->path = "*";
    return {};
  }
  // A proxy's absolute form: scheme and authority are dropped.
  const size_t scheme = target.find("://");
  if (scheme != std::string_view::npos && target[0] != '/') {
    const size_t path = target.find('/', scheme + 3);
    target = path == std::string_view::npos ? "/" : target.substr(path);
  }
  if (target.empty() || target[0] != '/') return Fault(400, "the request target is no path");
  const bool printable =
      std::all_of(target.begin(), target.end(), [](char c) { return c > ' ' && c != 0x7f; });
  if (!printable) return Fault(400, "the request target has characters that must be escaped");
  const size_t query = std::min(target.find('?'), target.size());
  if (query < target.size()) request->query = target.substr(query + 1);
  if (!DecodePercent(target.substr(0, query), &request->path)) {
    return Fault(400, "the request target has a malformed escape");
  }
  return {};
}

HttpFault ParseRequestLine(std::string_view line, HttpRequest* request) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) {
    return Fault(400, "the request line is not METHOD TARGET HTTP/1.1");
  }
  const std::string_view method = line.substr(0, first);
  const std::string_view version = line.substr(last + 1);
  if (!IsToken(method) || method.size() > 32) return Fault(400, "the method is malformed");
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return version.substr(0, 5) == "HTTP/"
               ? Fault(505, "only HTTP/1.1 and HTTP/1.0 are spoken here")
               : Fault(400, "the request line names no HTTP version");
  }
  request->method = method;
  request->minor_version = version.back() - '0';
  return ParseTarget(line.substr(first + 1, last - first - 1), request);
}

}  // namespace

std::string_view HttpRequest::Header(std::string_view name) const {
  for (const HttpHeader& header : headers) {
    if (header.name == name) return header.value;
  }
  return {};
}

bool HttpRequest::KeepAlive() const {
  const std::string connection = Lower(Header("connection"));
  if (connection.find("close") != std::string::npos) return false;
  return minor_version >= 1 || connection.find("keep-alive") != std::string::npos;
}

size_t FindHeadEnd(std::string_view bytes) {
  const size_t end = bytes.find("\r\n\r\n");
  return end == std::string_view::npos ? end : end + 4;
}

HttpFault ParseHead(std::string_view head, HttpRequest* request) {
  std::string_view line;
  if (!TakeLine(&head, &line)) return Fault(400, "the head has no request line");
  HttpFault fault = ParseRequestLine(line, request);
  if (!fault.ok()) return fault;
  int hosts = 0;
  while (TakeLine(&head, &line) && !line.empty()) {
    if (request->headers.size() >= kMaxHeaders) return Fault(431, "too many header fields");
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !IsToken(line.substr(0, colon))) {
      return Fault(400, "a header field is malformed");
    }
    const std::string_view value = Trim(line.substr(colon + 1));
    if (!IsFieldValue(value)) return Fault(400, "a header value has control characters");
    request->headers.push_back({Lower(line.substr(0, colon)), std::string(value)});
    if (request->headers.back().name == "host") ++hosts;
  }
  if (hosts > 1 || (hosts == 0 && request->minor_version >= 1)) {
    return Fault(400, "exactly one Host header is needed");
  }
  return {};
}

HttpFault ReadBodyFrame(const HttpRequest& request, uint64_t most_bytes, BodyFrame* frame) {
  *frame = {};
  bool has_length = false;
  for (const HttpHeader& header : request.headers) {
    if (header.name == "transfer-encoding") {
      if (frame->chunked || Lower(header.value) != "chunked") {
        return Fault(501, "the only transfer coding that is read is chunked");
      }
      if (request.minor_version == 0) return Fault(400, "HTTP/1.0 has no transfer codings");
      frame->chunked = true;
    } else if (header.name == "content-encoding" && Lower(header.value) != "identity") {
      return Fault(415, "compressed bodies are not read; send the text as it is");
    } else if (header.name == "content-length") {
      uint64_t length = 0;
      const bool digits = !header.value.empty() && header.value.size() <= 18 &&
                          std::all_of(header.value.begin(), header.value.end(), [&](char c) {
                            length = length * 10 + static_cast<uint64_t>(c - '0');
                            return c >= '0' && c <= '9';
                          });
      if (!digits || (has_length && length != frame->length)) {
        return Fault(400, "Content-Length is malformed");
      }
      has_length = true;
      frame->length = length;
    }
  }
  if (has_length && frame->chunked) {
    return Fault(400, "Content-Length and Transfer-Encoding exclude each other");
  }
  if (frame->length > most_bytes) {
    return Fault(413, StrFormat("the body has %llu bytes; at most %llu are taken",
                                static_cast<unsigned long long>(frame->length),
                                static_cast<unsigned long long>(most_bytes)));
  }
  return {};
}

HttpFault ChunkedBody::ReadLine(std::string_view* input, bool* complete) {
  *complete = false;
  const size_t end = input->find('\n');
  const std::string_view piece = input->substr(0, end == std::string_view::npos ? end : end + 1);
  if (line_.size() + piece.size() > kMaxChunkLineBytes) {
    return Fault(400, "a line of the chunked body is too long");
  }
  line_ += piece;
  input->remove_prefix(piece.size());
  if (end == std::string_view::npos) return {};
  if (line_.size() < 2 || line_[line_.size() - 2] != '\r') {
    return Fault(400, "a line of the chunked body does not end in CR LF");
  }
  line_.resize(line_.size() - 2);
  *complete = true;
  return {};
}

HttpFault ChunkedBody::TakeSize() {
  uint64_t size = 0;
  size_t digits = 0;
  while (digits < line_.size() && HexDigit(line_[digits]) >= 0) {
    if (digits >= 15) return Fault(413, "a chunk is too large");
    size = size * 16 + static_cast<uint64_t>(HexDigit(line_[digits++]));
  }
  const char after = digits < line_.size() ? line_[digits] : ';';
  if (digits == 0 || (after != ';' && after != ' ' && after != '\t')) {
    return Fault(400, "the size of a chunk is malformed");
  }
  line_.clear();
  left_ = size;
  state_ = size == 0 ? State::kTrailer : State::kData;
  return {};
}

HttpFault ChunkedBody::Feed(std::string_view* input, std::string* body) {
  while (!input->empty() && state_ != State::kDone) {
    if (state_ == State::kData) {
      const size_t take = static_cast<size_t>(std::min<uint64_t>(left_, input->size()));
      if (left_ > most_bytes_ || body->size() > most_bytes_ - left_) {
        return Fault(413, StrFormat("the body is larger than the %llu bytes that are taken",
                                    static_cast<unsigned long long>(most_bytes_)));
      }
      body->append(input->substr(0, take));
      input->remove_prefix(take);
      left_ -= take;
      if (left_ == 0) state_ = State::kDataEnd;
      continue;
    }
    bool complete = false;
    const HttpFault fault = ReadLine(input, &complete);
    if (!fault.ok() || !complete) return fault;
    if (state_ == State::kSize) {
      const HttpFault bad = TakeSize();
      if (!bad.ok()) return bad;
    } else if (state_ == State::kDataEnd) {
      if (!line_.empty()) return Fault(400, "a chunk is longer than its size says");
      state_ = State::kSize;
    } else {
      trailer_bytes_ += line_.size();
      if (trailer_bytes_ > kMaxTrailerBytes) return Fault(431, "the trailer is too long");
      if (line_.empty()) state_ = State::kDone;
      line_.clear();
    }
  }
  return {};
}

bool DecodePercent(std::string_view text, std::string* out) {
  out->clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out->push_back(text[i]);
      continue;
    }
    if (i + 2 >= text.size()) return false;
    const int high = HexDigit(text[i + 1]);
    const int low = HexDigit(text[i + 2]);
    if (high < 0 || low < 0 || (high == 0 && low == 0)) return false;
    out->push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return true;
}

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Unknown";
  }
}

}  // namespace cellm::tools::serve
