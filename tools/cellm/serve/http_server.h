#ifndef CELLM_TOOLS_CELLM_SERVE_HTTP_SERVER_H_
#define CELLM_TOOLS_CELLM_SERVE_HTTP_SERVER_H_

// The only file of the server that knows sockets; everything above it sees requests and replies.
//
//   accept loop --> a thread a connection --> head, body, handler, reply, next request ...
//
// One thread a connection, because a handler waits for a model most of its time and there are never
// more connections than `max_connections`. Every wait has an end: a head, a body, a reply that
// nobody reads and an idle connection each have their time, counted from their first byte and not
// from the last, so that a client that sends a byte now and then gains nothing.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cellm/serve/http_message.h"

namespace cellm::tools::serve {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8080;  // 0: one that is free
  int max_connections = 512;
  size_t max_head_bytes = 32 << 10;
  uint64_t max_body_bytes = uint64_t{16} << 20;
  int64_t head_ms = 10'000;   // from the first byte of a head to its last
  int64_t body_ms = 60'000;   // likewise of a body
  int64_t idle_ms = 60'000;   // between requests
  int64_t write_ms = 30'000;  // without a byte taken by the client
};

// One request and its reply, while a handler runs. Belongs to the handler's thread.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;
  // Added to the head of the reply, whatever it will be.
  virtual void AddHeader(std::string_view name, std::string_view value) = 0;
  // The whole reply.
  virtual void Reply(int status, std::string_view content_type, std::string_view body) = 0;
  // A reply in pieces: the head now, then Write() as often as there is something, then EndStream().
  // False from any of them: the client is gone or does not read.
  virtual bool StartStream(int status, std::string_view content_type) = 0;
  virtual bool Write(std::string_view bytes) = 0;
  virtual bool EndStream() = 0;
  virtual bool replied() const = 0;
  // For SocketGone(), until the handler returns.
  virtual int socket() const = 0;
};

// Whether the other side has closed. Any thread.
bool SocketGone(int socket);

class HttpServer {
 public:
  using Handler = std::function<void(HttpExchange&)>;
  // Answers for faults of the protocol itself; the body for a status and a message.
  using FaultBody = std::function<std::string(int status, std::string_view message)>;

  // Binds and listens. Io: the address cannot be had (message: which, and why).
  static Result<std::unique_ptr<HttpServer>> Open(const HttpOptions& options, Handler handler,
                                                  FaultBody fault_body);
  ~HttpServer();  // Stop(0)
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  // Accepts connections until *stop_flag is not 0 (looked at at least every 200 ms).
  void Serve(const volatile int32_t* stop_flag);
  // No new requests from now on: idle connections are closed, replies under way are finished, for
  // at most grace_ms. True: all connections are closed.
  bool Drain(int64_t grace_ms, const volatile int32_t* hurry);
  // Breaks all connections and waits for their threads.
  void Stop();
  int connections() const;

 private:
  struct Connection;
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cellm::tools::serve

#endif  // CELLM_TOOLS_CELLM_SERVE_HTTP_SERVER_H_
