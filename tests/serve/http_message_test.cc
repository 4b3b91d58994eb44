#include "cellm/serve/http_message.h"

#include <gtest/gtest.h>

#include <string>

namespace cellm::tools::serve {
namespace {

int StatusOf(const std::string& head) {
  HttpRequest request;
  return ParseHead(head, &request).status;
}

TEST(HttpMessage, ReadsAHead) {
  HttpRequest request;
  const std::string head =
      "POST /a%20b?x=1 HTTP/1.1\r\nHost: h\r\nContent-Type:  application/json \r\nX-A: 1\r\n\r\n";
  ASSERT_EQ(FindHeadEnd(head + "body"), head.size());
  ASSERT_TRUE(ParseHead(head, &request).ok());
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/a b");
  EXPECT_EQ(request.query, "x=1");
  EXPECT_EQ(request.Header("content-type"), "application/json");
  EXPECT_TRUE(request.KeepAlive());
}

TEST(HttpMessage, RefusesWhatCouldBeReadInTwoWays) {
  struct Case {
    const char* name;
    const char* head;
    int status;
  };
  constexpr Case kCases[] = {
      {"no version", "GET /\r\n\r\n", 400},
      {"version 2", "GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505},
      {"no host", "GET / HTTP/1.1\r\n\r\n", 400},
      {"two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      {"blank before the colon", "GET / HTTP/1.1\r\nHost : h\r\n\r\n", 400},
      {"folded", "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n", 400},
      {"bare line feed", "GET / HTTP/1.1\nHost: h\r\n\r\n", 400},
      {"control in a value", "GET / HTTP/1.1\r\nHost: h\x01\r\n\r\n", 400},
      {"NUL escape", "GET /%00 HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"cut escape", "GET /%4 HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"no slash", "GET x HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"blank in the target", "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"method", "G(T / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"good", "GET http://h/x HTTP/1.1\r\nHost: h\r\n\r\n", 0},
      {"old", "GET / HTTP/1.0\r\n\r\n", 0},
  };
  for (const Case& one : kCases) EXPECT_EQ(StatusOf(one.head), one.status) << one.name;
  std::string many = "GET / HTTP/1.1\r\nHost: h\r\n";
  for (int i = 0; i < 200; ++i) many += "A: b\r\n";
  EXPECT_EQ(StatusOf(many + "\r\n"), 431);
  EXPECT_EQ(StatusOf("GET /" + std::string(9000, 'a') + " HTTP/1.1\r\nHost: h\r\n\r\n"), 414);
}

int FrameStatus(const std::string& headers, BodyFrame* frame) {
  HttpRequest request;
  EXPECT_TRUE(ParseHead("POST / HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n", &request).ok());
  return ReadBodyFrame(request, 100, frame).status;
}

TEST(HttpMessage, BodyFrames) {
  BodyFrame frame;
  EXPECT_EQ(FrameStatus("Content-Length: 100\r\n", &frame), 0);
  EXPECT_EQ(frame.length, 100u);
  EXPECT_EQ(FrameStatus("Content-Length: 101\r\n", &frame), 413);
  EXPECT_EQ(FrameStatus("Content-Length: 99999999999999999999\r\n", &frame), 400);
  EXPECT_EQ(FrameStatus("Content-Length: -1\r\n", &frame), 400);
  EXPECT_EQ(FrameStatus("Content-Length: +1\r\n", &frame), 400);
  EXPECT_EQ(FrameStatus("Content-Length: 1\r\nContent-Length: 2\r\n", &frame), 400);
  EXPECT_EQ(FrameStatus("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", &frame), 400);
  EXPECT_EQ(FrameStatus("Transfer-Encoding: gzip, chunked\r\n", &frame), 501);
  EXPECT_EQ(FrameStatus("Content-Encoding: gzip\r\n", &frame), 415);
  EXPECT_EQ(FrameStatus("Transfer-Encoding: Chunked\r\n", &frame), 0);
  EXPECT_TRUE(frame.chunked);
}

int FeedInSteps(const std::string& text, size_t step, uint64_t most, std::string* body,
                std::string* rest, bool* done) {
  ChunkedBody chunks(most);
  std::string buffer;
  for (size_t at = 0; at < text.size(); at += step) {
    buffer += text.substr(at, step);
    std::string_view input = buffer;
    const HttpFault fault = chunks.Feed(&input, body);
    if (!fault.ok()) return fault.status;
    buffer = std::string(input);
  }
  *rest = buffer;
  *done = chunks.done();
  return 0;
}

TEST(HttpMessage, ChunkedBodiesInEveryCut) {
  const std::string text =
      "5;name=x\r\nHello\r\n10\r\n, world of bytes\r\n0\r\nTrailer: a\r\n\r\nGET";
  for (size_t step = 1; step <= text.size(); ++step) {
    std::string body, rest;
    bool done = false;
    ASSERT_EQ(FeedInSteps(text, step, 100, &body, &rest, &done), 0) << step;
    EXPECT_EQ(body, "Hello, world of bytes");
    EXPECT_EQ(rest, "GET");
    EXPECT_TRUE(done);
  }
}

TEST(HttpMessage, ChunkedBodiesThatAreRefused) {
  struct Case {
    const char* text;
    int status;
  };
  const Case cases[] = {{"x\r\n", 400},           {"5\nHello", 400},
                        {"5\r\nHelloX\r\n", 400}, {"fffffffffffffffff\r\n", 413},
                        {"65\r\nx", 413},         {"\r\n", 400}};
  for (const Case& one : cases) {
    for (const size_t step : {size_t{1}, size_t{100}}) {
      std::string body, rest;
      bool done = false;
      EXPECT_EQ(FeedInSteps(one.text, step, 100, &body, &rest, &done), one.status) << one.text;
    }
  }
  std::string long_line = "5;" + std::string(5000, 'a');
  std::string body, rest;
  bool done = false;
  EXPECT_EQ(FeedInSteps(long_line, 64, 100, &body, &rest, &done), 400);
}

}  // namespace
}  // namespace cellm::tools::serve
