// Sockets, threads and times of the HTTP server. http_server.h has the picture.
#include "cellm/serve/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <mutex>

#include "platform/thread.h"

namespace cellm::tools::serve {
namespace {

constexpr int kBacklog = 512;
constexpr size_t kReadBytes = 16384;
// A client that is told off gets so long to read why before the connection is closed.
constexpr int64_t kLingerMs = 500;

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Waits for `events` on a non-blocking socket. False: the time is over, or the socket is dead.
bool WaitForSocket(int socket, short events, int64_t deadline_ms) {
  for (;;) {
    const int64_t left = deadline_ms - NowMs();
    if (left <= 0) return false;
    pollfd entry = {socket, events, 0};
    const int count = ::poll(&entry, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (count > 0) return (entry.revents & (events | POLLHUP | POLLERR)) != 0;
    if (count < 0 && errno != EINTR) return false;
  }
}

enum class ReadResult : uint8_t { kBytes, kClosed, kTimeout };

// Appends what has come to *buffer, waiting for it until the deadline.
ReadResult ReadSome(int socket, int64_t deadline_ms, std::string* buffer) {
  char bytes[kReadBytes];
  for (;;) {
    const ssize_t count = ::recv(socket, bytes, sizeof(bytes), 0);
    if (count > 0) {
      buffer->append(bytes, static_cast<size_t>(count));
      return ReadResult::kBytes;
    }
    if (count == 0) return ReadResult::kClosed;
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return ReadResult::kClosed;
    if (!WaitForSocket(socket, POLLIN, deadline_ms)) return ReadResult::kTimeout;
  }
}

// The time counts from the last byte that was taken: a long reply may take long in all.
bool WriteAll(int socket, std::string_view bytes, int64_t stall_ms) {
  int64_t deadline = NowMs() + stall_ms;
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count > 0) {
      bytes.remove_prefix(static_cast<size_t>(count));
      deadline = NowMs() + stall_ms;
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return false;
    if (!WaitForSocket(socket, POLLOUT, deadline)) return false;
  }
  return true;
}

class Exchange final : public HttpExchange {
 public:
  Exchange(int socket, int64_t write_ms) : socket_(socket), write_ms_(write_ms) {}

  const HttpRequest& request() const override { return request_; }
  HttpRequest* mutable_request() { return &request_; }
  void AddHeader(std::string_view name, std::string_view value) override {
    headers_.append(name).append(": ").append(value).append("\r\n");
  }

  void Reply(int status, std::string_view content_type, std::string_view body) override {
    std::string message = Head(status, content_type);
    const bool has_body = status != 204 && status != 304;
    if (has_body) message += StrFormat("Content-Length: %zu\r\n", body.size());
    message += "\r\n";
    if (has_body && request_.method != "HEAD") message += body;
    replied_ = true;
    if (!WriteAll(socket_, message, write_ms_)) keep_alive_ = false;
  }

  bool StartStream(int status, std::string_view content_type) override {
    chunked_ = request_.minor_version >= 1;
    if (!chunked_) keep_alive_ = false;  // the end of the connection is the end of the reply
    std::string message = Head(status, content_type);
    if (chunked_) message += "Transfer-Encoding: chunked\r\n";
    replied_ = true;
    return Send(message + "\r\n");
  }

  bool Write(std::string_view bytes) override {
    if (bytes.empty()) return !broken_;
    if (!chunked_) return Send(bytes);
    std::string chunk = StrFormat("%zx\r\n", bytes.size());
    chunk.append(bytes).append("\r\n");
    return Send(chunk);
  }

  bool EndStream() override { return chunked_ ? Send("0\r\n\r\n") : !broken_; }
  bool replied() const override { return replied_; }
  int socket() const override { return socket_; }

  void set_keep_alive(bool keep_alive) { keep_alive_ = keep_alive; }
  bool keep_alive() const { return keep_alive_ && !broken_; }

 private:
  std::string Head(int status, std::string_view content_type) {
    std::string head = StrFormat("HTTP/1.1 %d ", status);
    head.append(ReasonPhrase(status)).append("\r\n");
    if (!content_type.empty()) head.append("Content-Type: ").append(content_type).append("\r\n");
    head.append(keep_alive_ ? "Connection: keep-alive\r\n" : "Connection: close\r\n");
    return head + headers_;
  }
  bool Send(std::string_view bytes) {
    if (!broken_ && !WriteAll(socket_, bytes, write_ms_)) broken_ = true;
    return !broken_;
  }

  int socket_;
  int64_t write_ms_;
  HttpRequest request_;
  std::string headers_;
  bool keep_alive_ = false;
  bool chunked_ = false;
  bool replied_ = false;
  bool broken_ = false;
};

// Says no and gives the client a moment to read it: closing with unread input would reset the
// connection, and the answer with it.
void Refuse(int socket, std::string_view message) {
  (void)WriteAll(socket, message, kLingerMs);
  (void)::shutdown(socket, SHUT_WR);
  const int64_t deadline = NowMs() + kLingerMs;
  std::string ignored;
  while (ReadSome(socket, deadline, &ignored) == ReadResult::kBytes && NowMs() < deadline) {
    ignored.clear();
  }
}

Result<int> Listen(const HttpOptions& options) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* addresses = nullptr;
  const std::string port = std::to_string(options.port);
  const char* const host = options.host.empty() ? nullptr : options.host.c_str();
  const int code = ::getaddrinfo(host, port.c_str(), &hints, &addresses);
  if (code != 0) {
    return IoError("--host %s: %s", options.host.c_str(), gai_strerror(code));
  }
  int socket = -1;
  int failure = 0;
  for (const addrinfo* address = addresses; address != nullptr && socket < 0;
       address = address->ai_next) {
    socket = ::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket < 0) {
      failure = errno;
      continue;
    }
    const int on = 1;
    (void)::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (::bind(socket, address->ai_addr, address->ai_addrlen) != 0 ||
        ::listen(socket, kBacklog) != 0) {
      failure = errno;
      ::close(socket);
      socket = -1;
    }
  }
  ::freeaddrinfo(addresses);
  if (socket < 0) {
    return IoError("%s:%d cannot be listened on: %s%s", options.host.c_str(), options.port,
                   std::strerror(failure),
                   failure == EADDRINUSE ? " (choose another with --port)" : "");
  }
  return socket;
}

int BoundPort(int socket) {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof(address);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

}  // namespace

bool SocketGone(int socket) {
  pollfd entry = {socket, POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0;
}

struct HttpServer::Connection {
  HttpServer::Impl* server = nullptr;
  int socket = -1;
  std::atomic<bool> idle{true};       // between requests: may be closed when the server stops
  std::atomic<bool> finished{false};  // its thread has nothing more to do than to end
  platform::Thread thread;
};

struct HttpServer::Impl {
  HttpOptions options;
  Handler handler;
  FaultBody fault_body;
  int listener = -1;
  std::atomic<bool> draining{false};
  mutable std::mutex mutex;
  std::list<Connection> connections;  // guarded by mutex

  std::string FaultMessage(const HttpFault& fault) const {
    const std::string body = fault_body(fault.status, fault.message);
    std::string message = StrFormat("HTTP/1.1 %d ", fault.status);
    message.append(ReasonPhrase(fault.status));
    message += StrFormat(
        "\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: close\r\n",
        body.size());
    if (fault.status == 503) message += "Retry-After: 1\r\n";
    return message + "\r\n" + body;
  }

  // Reads one request from the socket and the bytes left over from the one before. kClosed: there
  // is none; kBytes with a fault: answer it and close.
  ReadResult ReadRequest(Connection* connection, std::string* buffer, HttpRequest* request,
                         HttpFault* fault);
  ReadResult ReadBody(int socket, std::string* buffer, HttpRequest* request, HttpFault* fault);
  void Run(Connection* connection);
  void Accept();
  void Reap();
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ReadResult HttpServer::Impl::ReadRequest(Connection* connection, std::string* buffer,
                                         HttpRequest* request, HttpFault* fault) {
  const int64_t idle_deadline = NowMs() + options.idle_ms;
  while (buffer->empty()) {
    if (draining) return ReadResult::kClosed;
    const ReadResult result = ReadSome(connection->socket, idle_deadline, buffer);
    if (result != ReadResult::kBytes) return ReadResult::kClosed;
  }
  connection->idle = false;
  const int64_t head_deadline = NowMs() + options.head_ms;
  size_t end = 0;
  while ((end = FindHeadEnd(*buffer)) == std::string::npos) {
    if (buffer->size() > options.max_head_bytes) break;
    const ReadResult result = ReadSome(connection->socket, head_deadline, buffer);
    if (result == ReadResult::kTimeout) *fault = {408, "the head of the request took too long"};
    if (result != ReadResult::kBytes) return result;
  }
  if (end == std::string::npos || end > options.max_head_bytes) {
    *fault = {431, StrFormat("the head is longer than %zu bytes", options.max_head_bytes)};
    return ReadResult::kBytes;
  }
  *fault = ParseHead(std::string_view(*buffer).substr(0, end), request);
  if (!fault->ok()) return ReadResult::kBytes;
  buffer->erase(0, end);
  return ReadBody(connection->socket, buffer, request, fault);
}

ReadResult HttpServer::Impl::ReadBody(int socket, std::string* buffer, HttpRequest* request,
                                      HttpFault* fault) {
  BodyFrame frame;
  *fault = ReadBodyFrame(*request, options.max_body_bytes, &frame);
  if (!fault->ok()) return ReadResult::kBytes;
  if ((frame.chunked || frame.length > 0) && request->Header("expect") == "100-continue" &&
      !WriteAll(socket, "HTTP/1.1 100 Continue\r\n\r\n", options.write_ms)) {
    return ReadResult::kClosed;
  }
  const int64_t deadline = NowMs() + options.body_ms;
  ChunkedBody chunks(options.max_body_bytes);
  for (;;) {
    if (frame.chunked) {
      std::string_view input = *buffer;
      *fault = chunks.Feed(&input, &request->body);
      if (!fault->ok()) return ReadResult::kBytes;
      buffer->erase(0, buffer->size() - input.size());
      if (chunks.done()) return ReadResult::kBytes;
    } else if (buffer->size() >= frame.length) {
      request->body = buffer->substr(0, static_cast<size_t>(frame.length));
      buffer->erase(0, static_cast<size_t>(frame.length));
      return ReadResult::kBytes;
    }
    const ReadResult result = ReadSome(socket, deadline, buffer);
    if (result == ReadResult::kTimeout) *fault = {408, "the body of the request took too long"};
    if (result != ReadResult::kBytes) return result;
  }
}

void HttpServer::Impl::Run(Connection* connection) {
  const int socket = connection->socket;
  const int on = 1;
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  std::string buffer;
  for (;;) {
    Exchange exchange(socket, options.write_ms);
    HttpFault fault;
    connection->idle = buffer.empty();
    if (ReadRequest(connection, &buffer, exchange.mutable_request(), &fault) ==
            ReadResult::kClosed &&
        fault.ok()) {
      break;
    }
    if (!fault.ok()) {
      Refuse(socket, FaultMessage(fault));
      break;
    }
    exchange.set_keep_alive(exchange.request().KeepAlive() && !draining);
    handler(exchange);
    if (!exchange.replied() || !exchange.keep_alive()) break;
  }
  (void)::shutdown(socket, SHUT_RDWR);
  connection->finished = true;
}

void HttpServer::Impl::Reap() {
  std::list<Connection> ended;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    for (auto entry = connections.begin(); entry != connections.end();) {
      const auto next = std::next(entry);
      if (entry->finished) ended.splice(ended.end(), connections, entry);
      entry = next;
    }
  }
  for (Connection& connection : ended) {
    connection.thread.Join();
    ::close(connection.socket);
  }
}

void HttpServer::Impl::Accept() {
  const int socket = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket < 0) {
    // Out of descriptors: what is open must end first.
    if (errno == EMFILE || errno == ENFILE) (void)::poll(nullptr, 0, 50);
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex);
  const HttpFault full = {503, "too many connections; try again shortly"};
  if (connections.size() >= static_cast<size_t>(options.max_connections)) {
    (void)WriteAll(socket, FaultMessage(full), 1);
    ::close(socket);
    return;
  }
  Connection& connection = connections.emplace_back();
  connection.server = this;
  connection.socket = socket;
  Result<platform::Thread> thread = platform::Thread::Start(
      [](void* argument) {
        Connection* const mine = static_cast<Connection*>(argument);
        mine->server->Run(mine);
      },
      &connection);
  if (!thread.ok()) {
    (void)WriteAll(socket, FaultMessage(full), 1);
    ::close(socket);
    connections.pop_back();
    return;
  }
  connection.thread = std::move(thread).value();
}

Result<std::unique_ptr<HttpServer>> HttpServer::Open(const HttpOptions& options, Handler handler,
                                                     FaultBody fault_body) {
  auto impl = std::make_unique<Impl>();
  CELLM_ASSIGN_OR_RETURN(impl->listener, Listen(options));
  impl->options = options;
  impl->handler = std::move(handler);
  impl->fault_body = std::move(fault_body);
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::~HttpServer() { Stop(); }

int HttpServer::port() const { return BoundPort(impl_->listener); }

int HttpServer::connections() const {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  return static_cast<int>(impl_->connections.size());
}

void HttpServer::Serve(const volatile int32_t* stop_flag) {
  while (*stop_flag == 0) {
    pollfd entry = {impl_->listener, POLLIN, 0};
    if (::poll(&entry, 1, 200) > 0) impl_->Accept();
    impl_->Reap();
  }
}

bool HttpServer::Drain(int64_t grace_ms, const volatile int32_t* hurry) {
  impl_->draining = true;
  const int64_t deadline = NowMs() + grace_ms;
  for (;;) {
    {
      const std::lock_guard<std::mutex> lock(impl_->mutex);
      for (Connection& connection : impl_->connections) {
        // One that has just received a request answers it first; it stops keeping alive.
        if (connection.idle) (void)::shutdown(connection.socket, SHUT_RD);
      }
    }
    impl_->Reap();
    if (connections() == 0) return true;
    if (NowMs() >= deadline || *hurry > 1) return false;
    (void)::poll(nullptr, 0, 10);
  }
}

void HttpServer::Stop() {
  impl_->draining = true;
  if (impl_->listener >= 0) ::close(impl_->listener);
  impl_->listener = -1;
  {
    const std::lock_guard<std::mutex> lock(impl_->mutex);
    for (Connection& connection : impl_->connections) {
      (void)::shutdown(connection.socket, SHUT_RDWR);
    }
  }
  while (connections() > 0) {
    impl_->Reap();
    (void)::poll(nullptr, 0, 2);
  }
}

}  // namespace cellm::tools::serve
