// The HTTP server through bare sockets: what it lets through, what it refuses, when it gives up.
// The times in the options are short, so that giving up can be waited for.
#include "cellm/serve/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cellm::tools::serve {
namespace {

constexpr int kPatienceMs = 20'000;  // of the test itself: longer than anything that is tested

HttpOptions ShortTimes() {
  HttpOptions options;
  options.port = 0;
  options.max_head_bytes = 2048;
  options.max_body_bytes = 4096;
  return options;
}

class Client {
 public:
  explicit Client(int port, int receive_bytes = 0) {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_bytes > 0) {
      (void)::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    }
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { Close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool Send(const std::string& bytes) {
    return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // Waits for bytes; false: none in that time, or the end.
  bool Receive(int wait_ms) {
    pollfd entry = {socket_, POLLIN, 0};
    if (::poll(&entry, 1, wait_ms) <= 0) return false;
    char bytes[4096];
    const ssize_t count = ::recv(socket_, bytes, sizeof(bytes), 0);
    if (count <= 0) closed_ = true;
    if (count > 0) received_.append(bytes, static_cast<size_t>(count));
    return count > 0;
  }
  // Everything until the server closes.
  std::string ReceiveAll() {
    while (Receive(kPatienceMs)) {
    }
    EXPECT_TRUE(closed_) << "still open after: " << received_;
    return std::exchange(received_, {});
  }
  // Everything up to and with `end`.
  std::string ReceiveUntil(const std::string& end) {
    while (received_.find(end) == std::string::npos && Receive(kPatienceMs)) {
    }
    const size_t at = received_.find(end);
    EXPECT_NE(at, std::string::npos) << received_;
    const size_t size = at == std::string::npos ? received_.size() : at + end.size();
    const std::string out = received_.substr(0, size);
    received_.erase(0, size);
    return out;
  }
  void Close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  bool closed() const { return closed_; }

 private:
  int socket_ = -1;
  std::string received_;
  bool closed_ = false;
};

// A server that runs until the end of the test.
class Running {
 public:
  Running(const HttpOptions& options, HttpServer::Handler handler) {
    Result<std::unique_ptr<HttpServer>> opened = HttpServer::Open(
        options, std::move(handler),
        [](int status, std::string_view) { return "{fault " + std::to_string(status) + "}"; });
    EXPECT_TRUE(opened.ok());
    server_ = std::move(opened).value();
    thread_ = std::thread([this] { server_->Serve(&stop_); });
  }
  ~Running() {
    EndServe();
    server_->Stop();
  }
  // No more connections are accepted.
  void EndServe() {
    stop_ = 1;
    if (thread_.joinable()) thread_.join();
  }
  HttpServer& server() { return *server_; }
  int port() const { return server_->port(); }

 private:
  std::unique_ptr<HttpServer> server_;
  volatile int32_t stop_ = 0;
  std::thread thread_;
};

void Echo(HttpExchange& exchange) {
  const HttpRequest& request = exchange.request();
  exchange.Reply(200, "text/plain",
                 "<" + request.method + " " + request.path + " " + request.body + ">");
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

constexpr const char kNext[] = "GET /next HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

TEST(HttpServer, RequestsFollowEachOtherOnAConnection) {
  struct Case {
    const char* name;
    std::string request;
    std::string reply;
  };
  const Case cases[] = {
      {"length", "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", "<POST /a abc>"},
      {"chunks",
       "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
       "2\r\nab\r\n1;x=y\r\nc\r\n0\r\nTrailer: t\r\n\r\n",
       "<POST /a abc>"},
      {"no body", "POST /a HTTP/1.1\r\nHost: h\r\n\r\n", "<POST /a >"},
      {"GET with a body", "GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
       "<GET /a abc>"},
      {"DELETE with chunks",
       "DELETE /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
       "3\r\nabc\r\n0\r\n\r\n",
       "<DELETE /a abc>"},
      {"form",
       "POST /a HTTP/1.1\r\nHost: h\r\nContent-Type: multipart/form-data; boundary=b\r\n"
       "Content-Length: 3\r\n\r\nabc",
       "<POST /a abc>"},
      {"a part is asked for", "GET /a HTTP/1.1\r\nHost: h\r\nRange: bytes=0-1\r\n\r\n",
       "<GET /a >"},
      {"malformed range", "GET /a HTTP/1.1\r\nHost: h\r\nRange: lines=x\r\n\r\n", "<GET /a >"},
      {"a method of its own", "BREW /a HTTP/1.1\r\nHost: h\r\n\r\n", "<BREW /a >"},
      {"blanks and absolute form", "GET http://h/a%20b?c HTTP/1.1\r\nHost: h\r\n\r\n",
       "<GET /a b >"},
      {"expects",
       "POST /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
       "<POST /a x>"},
  };
  Running running(ShortTimes(), Echo);
  for (const Case& one : cases) {
    Client client(running.port());
    ASSERT_TRUE(client.Send(one.request + kNext)) << one.name;
    const std::string received = client.ReceiveAll();
    EXPECT_EQ(Count(received, "HTTP/1.1 200 OK\r\n"), 2u) << one.name << ": " << received;
    EXPECT_EQ(Count(received, one.reply), 1u) << one.name << ": " << received;
    EXPECT_EQ(Count(received, "<GET /next >"), 1u) << one.name << ": " << received;
  }
}

// What one reader takes for a body, another could take for the next request.
TEST(HttpServer, RefusesAmbiguousRequestsAndCloses) {
  const std::string start = "POST /a HTTP/1.1\r\nHost: h\r\n";
  const std::string chunked = start + "Transfer-Encoding: chunked\r\n\r\n";
  const std::pair<std::string, std::string> cases[] = {
      {"400", start + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {"400", start + "Content-Length: 0\r\nContent-Length: 4\r\n\r\n"},
      {"400", start + "Content-Length: 0x4\r\n\r\n"},
      {"400", start + "Content-Length: %34\r\n\r\n"},
      {"400", start + "Content-Length: +4\r\n\r\n"},
      {"400", start + "Content-Length: 4\n\r\n"},
      {"400", start + "Content-Length : 4\r\n\r\n"},
      {"400", start + "X: 1\r\n Content-Length: 4\r\n\r\n"},
      {"501", start + "Transfer-Encoding: gzip, chunked\r\n\r\n"},
      {"501", start + "Transfer-Encoding: %63hunked\r\n\r\n"},
      {"400", chunked + "3\r\nabcdef\r\n0\r\n\r\n"},
      {"400", chunked + "0x3\r\nabc\r\n0\r\n\r\n"},
      {"400", chunked + "+3\r\nabc\r\n0\r\n\r\n"},
      {"400", chunked + "3\nabc\r\n0\r\n\r\n"},
      {"400", "POST /a HTTP/1.1\r\n\r\n"},
      {"400", "POST /a HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n"},
      {"400", "POST /%zz HTTP/1.1\r\nHost: h\r\n\r\n"},
      {"400", "POST /%00 HTTP/1.1\r\nHost: h\r\n\r\n"},
      {"505", "POST /a HTTP/1.2\r\nHost: h\r\n\r\n"},
      {"431", start + "X: " + std::string(4096, 'x') + "\r\n\r\n"},
      {"413", start + "Content-Length: 5000\r\n\r\n"},
      {"413", chunked + "1000\r\n" + std::string(4096, 'x') + "\r\n1\r\nx\r\n0\r\n\r\n"},
  };
  std::atomic<int> handled = 0;
  Running running(ShortTimes(), [&](HttpExchange& exchange) {
    ++handled;
    Echo(exchange);
  });
  for (const auto& [status, request] : cases) {
    Client client(running.port());
    (void)client.Send(request + kNext);
    const std::string received = client.ReceiveAll();
    EXPECT_TRUE(received.starts_with("HTTP/1.1 " + status)) << request << received;
    EXPECT_EQ(Count(received, "HTTP/1.1"), 1u) << request << received;
    EXPECT_TRUE(received.ends_with("{fault " + status + "}")) << request << received;
    EXPECT_EQ(handled, 0) << request;
  }
}

TEST(HttpServer, HandlersSeeHeadersAsTheyWereSent) {
  std::string seen;
  size_t headers = 0;
  Running running(ShortTimes(), [&](HttpExchange& exchange) {
    seen = exchange.request().Header("authorization");
    headers = exchange.request().headers.size();
    Echo(exchange);
  });
  Client client(running.port());
  ASSERT_TRUE(
      client.Send("GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer a%41%0d%0a\r\n"
                  "Connection: Close\r\n\r\n"));
  EXPECT_NE(client.ReceiveAll().find("Connection: close\r\n"), std::string::npos);
  EXPECT_EQ(seen, "Bearer a%41%0d%0a");
  EXPECT_EQ(headers, 3u);
}

TEST(HttpServer, RepliesWithoutABody) {
  Running running(ShortTimes(), [](HttpExchange& exchange) {
    exchange.AddHeader("X-Added", "1");
    const std::string_view path = exchange.request().path;
    exchange.Reply(path == "/204" ? 204 : path == "/304" ? 304 : 200, "text/plain", "text");
  });
  for (const char* request : {"GET /204", "GET /304", "HEAD /"}) {
    Client client(running.port());
    ASSERT_TRUE(client.Send(request + std::string(" HTTP/1.1\r\nHost: h\r\n\r\n") + kNext));
    const std::string received = client.ReceiveAll();
    const std::string first = received.substr(0, received.find("\r\n\r\n") + 4);
    EXPECT_EQ(Count(first, "X-Added: 1\r\n"), 1u) << received;
    EXPECT_EQ(Count(first, "Content-Length: 4\r\n"), request[0] == 'H' ? 1u : 0u) << received;
    EXPECT_EQ(Count(first, "Content-Length"), request[0] == 'H' ? 1u : 0u) << received;
    EXPECT_TRUE(received.substr(first.size()).starts_with("HTTP/1.1 200 OK")) << received;
  }
}

TEST(HttpServer, StreamsInChunksOrUntilTheEnd) {
  Running running(ShortTimes(), [](HttpExchange& exchange) {
    EXPECT_TRUE(exchange.StartStream(200, "text/event-stream"));
    for (const char* piece : {"one", "", "twenty-first piece"}) EXPECT_TRUE(exchange.Write(piece));
    EXPECT_TRUE(exchange.EndStream());
  });
  Client client(running.port());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(client.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
    EXPECT_EQ(Count(client.ReceiveUntil("\r\n\r\n"), "Transfer-Encoding: chunked\r\n"), 1u);
    EXPECT_EQ(client.ReceiveUntil("0\r\n\r\n"),
              "3\r\none\r\n12\r\ntwenty-first piece\r\n0\r\n\r\n");
  }
  Client old(running.port());
  ASSERT_TRUE(old.Send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
  EXPECT_EQ(Count(old.ReceiveUntil("\r\n\r\n"), "chunked"), 0u);
  EXPECT_EQ(old.ReceiveAll(), "onetwenty-first piece");
}

TEST(HttpServer, BytesNowAndThenGainNothing) {
  HttpOptions options = ShortTimes();
  options.head_ms = 150;
  options.body_ms = 150;
  options.idle_ms = 150;
  Running running(options, Echo);
  EXPECT_EQ(Client(running.port()).ReceiveAll(), "");
  for (const std::string start :
       {"", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4000\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\n"}) {
    Client client(running.port());
    ASSERT_TRUE(client.Send(start + "x"));
    int drops = 0;
    while (!client.closed() && drops < 1000 && client.Send("x")) {
      (void)client.Receive(10);
      ++drops;
    }
    EXPECT_LT(drops, 1000) << start;
    EXPECT_TRUE(client.ReceiveAll().starts_with("HTTP/1.1 408") || client.closed()) << start;
  }
}

TEST(HttpServer, TurnsAwayWhatIsTooMuch) {
  HttpOptions options = ShortTimes();
  options.max_connections = 4;
  std::atomic<bool> go = false;
  Running running(options, [&](HttpExchange& exchange) {
    go.wait(false);
    Echo(exchange);
  });
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<Client>(running.port()));
    ASSERT_TRUE(clients.back()->Send(kNext));
  }
  const std::string refused = Client(running.port()).ReceiveAll();
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 503")) << refused;
  EXPECT_EQ(Count(refused, "Retry-After: 1\r\n"), 1u) << refused;
  go = true;
  go.notify_all();
  for (auto& client : clients) EXPECT_EQ(Count(client->ReceiveAll(), "<GET /next >"), 1u);
}

TEST(HttpServer, AHandlerThatWaitsSeesThatItsClientLeft) {
  std::atomic<bool> waiting = false;
  std::atomic<bool> gone = false;
  Running running(ShortTimes(), [&](HttpExchange& exchange) {
    EXPECT_FALSE(SocketGone(exchange.socket()));
    waiting = true;
    waiting.notify_all();
    while (!SocketGone(exchange.socket())) (void)::poll(nullptr, 0, 1);
    gone = true;
    gone.notify_all();
  });
  Client client(running.port());
  ASSERT_TRUE(client.Send(kNext));
  waiting.wait(false);
  client.Close();
  gone.wait(false);
}

TEST(HttpServer, AReaderThatDoesNotReadEndsItsStream) {
  HttpOptions options = ShortTimes();
  options.write_ms = 100;
  std::atomic<bool> ended = false;
  Running running(options, [&](HttpExchange& exchange) {
    EXPECT_TRUE(exchange.StartStream(200, "text/plain"));
    const std::string piece(1 << 20, 'x');
    while (exchange.Write(piece)) {
    }
    EXPECT_FALSE(exchange.EndStream());
    ended = true;
    ended.notify_all();
  });
  Client client(running.port(), 4096);
  ASSERT_TRUE(client.Send(kNext));
  ended.wait(false);
}

TEST(HttpServer, DrainFinishesRepliesAndClosesIdleConnections) {
  std::atomic<bool> go = false;
  Running running(ShortTimes(), [&](HttpExchange& exchange) {
    EXPECT_TRUE(exchange.StartStream(200, "text/plain"));
    go.wait(false);
    EXPECT_TRUE(exchange.Write("late"));
    EXPECT_TRUE(exchange.EndStream());
  });
  Client idle(running.port());
  Client busy(running.port());
  ASSERT_TRUE(busy.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
  (void)busy.ReceiveUntil("\r\n\r\n");
  running.EndServe();
  const volatile int32_t hurry = 0;
  EXPECT_FALSE(running.server().Drain(20, &hurry));
  EXPECT_EQ(idle.ReceiveAll(), "");
  go = true;
  go.notify_all();
  EXPECT_TRUE(running.server().Drain(kPatienceMs, &hurry));
  EXPECT_EQ(busy.ReceiveAll(), "4\r\nlate\r\n0\r\n\r\n");
}

TEST(HttpServer, StopBreaksAStream) {
  std::atomic<bool> ended = false;
  {
    Running running(ShortTimes(), [&](HttpExchange& exchange) {
      EXPECT_TRUE(exchange.StartStream(200, "text/plain"));
      while (exchange.Write("x") && !SocketGone(exchange.socket())) (void)::poll(nullptr, 0, 1);
      ended = true;
    });
    Client client(running.port());
    ASSERT_TRUE(client.Send(kNext));
    (void)client.ReceiveUntil("\r\n\r\n");
  }
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace cellm::tools::serve
