// An HTTP/1.1 server: connections are driven by events in one thread, so that thousands of slow clients cost memory and nothing else;
// requests are handled in a few workers, and answers may come from any thread, whole or piece by piece.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ppengine::runs::serving {

struct HttpRequest {
  std::string method, path, authorization, content_type, client, body;
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;  // 0: any that is free
  std::size_t max_body = std::size_t{16} << 20;
  std::size_t max_header = std::size_t{16} << 10;
  std::size_t max_connections = 4096;
  std::size_t max_pending = std::size_t{4} << 20;       // bytes of an answer that a client may leave unread
  std::chrono::seconds header_time{30}, body_time{60};  // for a request's header (also: between requests) and for its body
  std::chrono::seconds write_time{30};                  // without progress
  // Requests that are handled one after the other, beside the rest.
  std::function<bool(const HttpRequest&)> is_slow = [](const HttpRequest&) { return false; };
};

// The answer to one request. All methods can be called from any thread; after the client has gone they do nothing.
class Reply {
 public:
  using Headers = std::vector<std::pair<std::string, std::string>>;
  virtual ~Reply() = default;
  virtual void send(int status, const std::string& content_type, std::string body, const Headers& headers = {}) = 0;
  virtual void begin_stream(const std::string& content_type) = 0;
  virtual void write(std::string piece) = 0;
  virtual void end_stream() = 0;
  // Called once when the client goes before the answer is complete; at once where it has.
  virtual void on_gone(std::function<void()> handler) = 0;
};

class HttpServer {
 public:
  using Handler = std::function<void(const HttpRequest&, const std::shared_ptr<Reply>&)>;
  // Listens from here on; ConfigError where the address is taken or not ours.
  HttpServer(const HttpOptions& options, Handler handler);
  ~HttpServer();

  std::uint16_t port() const;
  void start();  // serves in threads of its own
  void stop_accepting();
  std::size_t connections() const;
  std::size_t answering() const;  // requests whose answer is not complete
  void stop();                    // ends all connections and threads

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ppengine::runs::serving
