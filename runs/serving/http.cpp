// The HTTP server, over Boost.Asio and Beast's parser.
#include <ppengine/runs/serving/http.hpp>

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <list>
#include <optional>
#include <thread>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>

namespace ppengine::runs::serving {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using Code = boost::system::error_code;

const char* reason(int status) {
  const auto text = http::obsolete_reason(static_cast<http::status>(status));
  return text.empty() ? "Unknown" : text.data();
}

constexpr std::chrono::seconds linger_time{5};  // for a client to read why its request was refused before it was read

class Session;

struct Shared {
  HttpOptions options;
  HttpServer::Handler handler;
  asio::io_context io{1};
  asio::thread_pool workers{4}, slow_worker{1};
  std::atomic<std::size_t> connections{0}, answering{0};
  std::atomic<bool> draining{false};
  std::list<Session*> reading;  // sessions that have no whole request yet, the oldest first; of the event loop only
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, Shared& shared) : stream_(std::move(socket)), shared_(shared) {
    ++shared_.connections;
    Code ignored;
    stream_.socket().set_option(tcp::no_delay(true), ignored);
    const auto from = stream_.socket().remote_endpoint(ignored);
    client_ = ignored ? "" : from.address().to_string();
  }
  ~Session() { --shared_.connections; }

  void read() {
    if (!in_list_) place_ = shared_.reading.insert(shared_.reading.end(), this);
    in_list_ = true;
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(shared_.options.max_header));
    parser_->body_limit(shared_.options.max_body);
    stream_.expires_after(shared_.options.header_time);
    http::async_read_header(stream_, buffer_, *parser_, [self = shared_from_this()](Code error, std::size_t) { self->have_header(error); });
  }

  // Called in the event loop only. A piece of a stream: what the client leaves unread is limited.
  void write(const std::string& piece) {
    if (pending_.size() > shared_.options.max_pending) return close();
    write_all(piece);
  }
  void write_all(const std::string& text) {
    if (closed_) return;
    pending_ += text;
    flush();
  }

  void finish_answer(bool keep) {
    if (closed_) return;
    finished_ = true;
    keep_ = keep && !shared_.draining;
    flush();
  }

  void close() {
    if (closed_) return;
    closed_ = true;
    leave_list();
    Code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
    stream_.socket().close(ignored);
    if (gone_) std::exchange(gone_, {})();
    if (answering_) {
      answering_ = false;
      --shared_.answering;
    }
  }

  bool closed() const { return closed_; }
  bool keep_alive() const { return parser_->get().keep_alive(); }
  unsigned version() const { return parser_->get().version(); }
  void set_gone(std::function<void()> handler) { closed_ ? handler() : void(gone_ = std::move(handler)); }
  Shared& shared() { return shared_; }

 private:
  void refuse(int status, const std::string& what) {
    const std::string body = fmt::format(R"({{"error":{{"message":"{}","type":"invalid_request_error","param":null,"code":null}}}})", what);
    lingers_ = true;
    write_all(fmt::format("HTTP/1.1 {} {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}", status,
                          reason(status), body.size(), body));
    finish_answer(false);
  }

  void have_header(Code error) {
    if (error == http::error::header_limit) return refuse(431, "the request's header is too long");
    if (error == http::error::body_limit) return refuse(413, fmt::format("the body is longer than {} bytes", shared_.options.max_body));
    if (error == http::error::end_of_stream || error == beast::error::timeout || error == asio::error::connection_reset ||
        error == asio::error::eof || error == http::error::partial_message || error == asio::error::operation_aborted)
      return close();
    if (error) return refuse(400, "this is not an HTTP request");
    const auto length = parser_->content_length();
    if (length && *length > shared_.options.max_body)
      return refuse(413, fmt::format("the body is longer than {} bytes", shared_.options.max_body));
    if (beast::iequals(parser_->get()[http::field::expect], "100-continue")) write_all("HTTP/1.1 100 Continue\r\n\r\n");
    stream_.expires_after(shared_.options.body_time);
    http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](Code failed, std::size_t) { self->have_body(failed); });
  }

  void have_body(Code error);

  // A client that goes while its answer is being made is noticed by the end of its stream.
  void watch() {
    stream_.socket().async_wait(tcp::socket::wait_read, [self = shared_from_this()](Code error) {
      if (error || self->closed_ || !self->answering_) return;
      char byte = 0;
      const auto got = ::recv(self->stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) self->close();
    });
  }

  void flush() {
    if (writing_ || closed_) return;
    if (pending_.empty()) {
      if (!finished_) return;
      finished_ = false;
      gone_ = {};
      if (answering_) {
        answering_ = false;
        --shared_.answering;
      }
      if (!keep_) return lingers_ ? linger() : close();
      Code ignored;
      stream_.socket().cancel(ignored);  // the watch
      return asio::post(stream_.get_executor(), [self = shared_from_this()] { self->closed_ ? void() : self->read(); });
    }
    writing_ = true;
    sending_ = std::exchange(pending_, {});
    send_from(0);
  }

  void send_from(std::size_t at) {
    stream_.expires_after(shared_.options.write_time);
    stream_.async_write_some(asio::buffer(sending_) + at, [self = shared_from_this(), at](Code error, std::size_t sent) {
      if (error) return self->close();
      if (at + sent < self->sending_.size()) return self->send_from(at + sent);
      self->writing_ = false;
      if (self->answering_) self->stream_.expires_never();  // else a body is still to come, with its own time
      self->flush();
    });
  }

  // What is still coming is read and dropped: a connection that is closed with unread data is reset, and the client may lose the answer.
  void linger() {
    Code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(linger_time);
    sending_.resize(std::size_t{64} << 10);
    drop_input();
  }
  void drop_input() {
    stream_.async_read_some(asio::buffer(sending_), [self = shared_from_this()](Code error, std::size_t) {
      if (!self->closed_) error ? self->close() : self->drop_input();
    });
  }

  void leave_list() {
    if (in_list_) shared_.reading.erase(place_);
    in_list_ = false;
  }

  beast::tcp_stream stream_;
  Shared& shared_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::string client_, pending_, sending_;
  std::function<void()> gone_;
  std::list<Session*>::iterator place_;
  bool in_list_ = false;
  bool writing_ = false, finished_ = false, keep_ = false, lingers_ = false, closed_ = false, answering_ = false;
};

class SessionReply final : public Reply {
 public:
  SessionReply(std::shared_ptr<Session> session, bool keep, bool head, bool chunked)
      : session_(std::move(session)), keep_(keep), head_(head), chunked_(chunked) {}
  // An answer that nobody gives any more: the client must not wait for it.
  ~SessionReply() override {
    if (!answered_)
      send(500, "application/json", R"({"error":{"message":"the request was dropped","type":"server_error","param":null,"code":null}})",
           {});
  }

  void send(int status, const std::string& content_type, std::string body, const Headers& headers) override {
    if (answered_.exchange(true)) return;
    std::string text = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}", status, reason(status), content_type,
                                   body.size(), keep_ ? "" : "Connection: close\r\n");
    for (const auto& [name, value] : headers) text += name + ": " + value + "\r\n";
    text += "\r\n";
    if (!head_) text += body;
    post([text = std::move(text), keep = keep_](Session& session) {
      session.write_all(text);
      session.finish_answer(keep);
    });
  }

  void begin_stream(const std::string& content_type) override {
    if (answered_.exchange(true)) return;
    post([text = fmt::format("HTTP/1.1 200 OK\r\nContent-Type: {}\r\nCache-Control: no-cache\r\n{}\r\n", content_type,
                             chunked_ ? "Transfer-Encoding: chunked\r\n" : "Connection: close\r\n")](Session& session) {
      session.write(text);
    });
  }
  void write(std::string piece) override {
    if (piece.empty()) return;
    post([text = chunked_ ? fmt::format("{:x}\r\n{}\r\n", piece.size(), piece) : std::move(piece)](Session& session) {
      session.write(text);
    });
  }
  void end_stream() override {
    post([keep = keep_ && chunked_, chunked = chunked_](Session& session) {
      if (chunked) session.write("0\r\n\r\n");
      session.finish_answer(keep);
    });
  }
  void on_gone(std::function<void()> handler) override {
    post([handler = std::move(handler)](Session& session) mutable { session.set_gone(std::move(handler)); });
  }

 private:
  template <class F>
  void post(F what) {
    asio::post(session_->shared().io, [session = session_, what = std::move(what)]() mutable { what(*session); });
  }
  std::shared_ptr<Session> session_;
  bool keep_, head_, chunked_;
  std::atomic<bool> answered_{false};
};

void Session::have_body(Code error) {
  if (error == http::error::body_limit) return refuse(413, fmt::format("the body is longer than {} bytes", shared_.options.max_body));
  if (error == http::error::bad_chunk || error == http::error::bad_chunk_extension) return refuse(400, "the body's chunks are broken");
  if (error) return close();
  leave_list();
  stream_.expires_never();
  auto& message = parser_->get();
  HttpRequest request;
  request.method = std::string(message.method_string());
  request.path = std::string(message.target());
  request.path = request.path.substr(0, request.path.find('?'));
  request.authorization = std::string(message[http::field::authorization]);
  request.content_type = std::string(message[http::field::content_type]);
  request.client = client_;
  request.body = std::move(message.body());
  answering_ = true;
  ++shared_.answering;
  auto reply = std::make_shared<SessionReply>(shared_from_this(), message.keep_alive(), request.method == "HEAD", message.version() >= 11);
  watch();
  asio::post(shared_.options.is_slow(request) ? shared_.slow_worker : shared_.workers, [&shared = shared_, request = std::move(request),
                                                                                        reply = std::move(reply)] {
    try {
      shared.handler(request, reply);
    } catch (const std::exception& failed) {
      log::error(fmt::format("{} {}: {}", request.method, request.path, failed.what()));
      reply->send(500, "application/json",
                  R"({"error":{"message":"internal error; the server's log has more","type":"server_error","param":null,"code":null}})",
                  {});
    }
  });
}

}  // namespace

struct HttpServer::Impl : Shared {
  tcp::acceptor acceptor{io};
  asio::steady_timer pause{io};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  std::thread thread;

  void accept() {
    acceptor.async_accept([this](Code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted || !acceptor.is_open()) return;
      if (error) {  // out of descriptors: those that are there go on, new ones wait
        pause.expires_after(std::chrono::milliseconds(100));
        return pause.async_wait([this](Code stopped) {
          if (!stopped) accept();
        });
      }
      // One who comes is served; who has been silent for longest makes room.
      if (connections >= options.max_connections && !reading.empty()) reading.front()->shared_from_this()->close();
      if (connections <= options.max_connections) std::make_shared<Session>(std::move(socket), *this)->read();
      accept();
    });
  }
};

HttpServer::HttpServer(const HttpOptions& options, Handler handler) : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  impl_->handler = std::move(handler);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  try {
    tcp::resolver resolver(impl_->io);
    const tcp::endpoint where = *resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive).begin();
    impl_->acceptor.open(where.protocol());
    impl_->acceptor.set_option(asio::socket_base::reuse_address(true));
    impl_->acceptor.bind(where);
    impl_->acceptor.listen(4096);
  } catch (const boost::system::system_error& error) {
    throw ConfigError(fmt::format("--host {} --port {}: {}; another program may listen there (--port 0 takes a free one)", options.host,
                                  options.port, error.code().message()));
  }
}

HttpServer::~HttpServer() { stop(); }

std::uint16_t HttpServer::port() const { return impl_->acceptor.local_endpoint().port(); }

void HttpServer::start() {
  impl_->accept();
  impl_->thread = std::thread([this] { impl_->io.run(); });
}

void HttpServer::stop_accepting() {
  impl_->draining = true;
  asio::post(impl_->io, [this] {
    Code ignored;
    impl_->acceptor.close(ignored);
  });
}

std::size_t HttpServer::connections() const { return impl_->connections; }
std::size_t HttpServer::answering() const { return impl_->answering; }

void HttpServer::stop() {
  if (!impl_->thread.joinable()) return;
  for (asio::thread_pool* pool : {&impl_->workers, &impl_->slow_worker}) {
    pool->stop();
    pool->join();
  }
  impl_->io.stop();
  impl_->thread.join();
}

}  // namespace ppengine::runs::serving
