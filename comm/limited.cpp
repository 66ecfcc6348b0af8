// A slower link in front of any communicator.
#include <ppengine/comm/limited.hpp>

#include <mutex>
#include <optional>
#include <thread>

#include <ppengine/comm/collective_call.hpp>

namespace ppengine::comm {
namespace {

// One rank's link.
class Link {
 public:
  explicit Link(const SimulatedLink& link) : link_(link) {}
  // From now on, behind what is on its way.
  Clock::time_point pass(std::size_t bytes, int messages) {
    auto taken = std::chrono::duration_cast<Clock::duration>(link_.latency) * messages;
    if (link_.bytes_per_second > 0)
      taken += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(double(bytes) / link_.bytes_per_second));
    const std::lock_guard lock(mutex_);
    free_ = std::max(free_, Clock::now()) + taken;
    return free_;
  }

 private:
  const SimulatedLink link_;
  std::mutex mutex_;
  Clock::time_point free_{};
};

class Slow final : public Pending::State {
 public:
  Slow(Pending inner, std::shared_ptr<Link> link, std::size_t bytes, int messages)
      : inner_(std::move(inner)), link_(std::move(link)), bytes_(bytes), messages_(messages) {}
  bool done() override { return inner_.done() && Clock::now() >= until(); }
  void wait(Clock::time_point deadline) override {
    if (inner_.state()) inner_.state()->wait(deadline);
    std::this_thread::sleep_until(until());
  }
  std::size_t bytes() override { return inner_.bytes(); }
  std::chrono::milliseconds timeout() override { return inner_.state() ? inner_.state()->timeout() : Communicator::default_timeout; }

 private:
  Clock::time_point until() {
    const std::lock_guard lock(mutex_);
    if (!until_) until_ = link_->pass(bytes_, messages_);
    return *until_;
  }
  Pending inner_;
  std::shared_ptr<Link> link_;
  const std::size_t bytes_;
  const int messages_;
  std::mutex mutex_;
  std::optional<Clock::time_point> until_;
};

class Limited final : public Communicator {
 public:
  Limited(Communicator& inner, std::shared_ptr<Link> link) : inner_(inner), link_(std::move(link)) {
    Communicator::set_timeout(inner.timeout());
  }
  Limited(std::unique_ptr<Communicator> owned, std::shared_ptr<Link> link)
      : owned_(std::move(owned)), inner_(*owned_), link_(std::move(link)) {
    Communicator::set_timeout(inner_.timeout());
  }

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int world_rank(int rank) const override { return inner_.world_rank(rank); }
  std::string kind() const override { return inner_.kind(); }
  void progress() override { inner_.progress(); }
  void set_timeout(std::chrono::milliseconds timeout) override {
    Communicator::set_timeout(timeout);
    inner_.set_timeout(timeout);
  }

  Pending send(const void* data, std::size_t bytes, int peer, int tag, const After& after) override {
    return inner_.send(data, bytes, peer, tag, after);
  }
  Pending recv(void* data, std::size_t bytes, int peer, int tag, const After& after) override {
    return slow(inner_.recv(data, bytes, peer, tag, after), bytes, 1);
  }
  Pending recv_up_to(void* data, std::size_t capacity, int peer, int tag, const After& after) override {
    return slow(inner_.recv_up_to(data, capacity, peer, tag, after), capacity, 1);
  }

  Pending collective(const CollectiveCall& call, const void* in, void* out, const After& after) override {
    return slow(inner_.collective(call, in, out, after), call.link_bytes(size()), call.link_messages(size()));
  }

  std::vector<std::string> all_gather_bytes(std::string_view mine) override { return inner_.all_gather_bytes(mine); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    auto group = inner_.split(color, key);
    return group ? std::make_unique<Limited>(std::move(group), link_) : nullptr;
  }
  void abort(const std::string& reason) override { inner_.abort(reason); }
  std::optional<Failure> failure() const override { return inner_.failure(); }

 private:
  Pending slow(Pending pending, std::size_t bytes, int messages) const {
    return Pending(std::make_shared<Slow>(std::move(pending), link_, size() == 1 ? 0 : bytes, size() == 1 ? 0 : messages));
  }

  std::unique_ptr<Communicator> owned_;
  Communicator& inner_;
  std::shared_ptr<Link> link_;
};

}  // namespace

std::unique_ptr<Communicator> limit_link(Communicator& inner, const SimulatedLink& link) {
  return std::make_unique<Limited>(inner, std::make_shared<Link>(link));
}

}  // namespace ppengine::comm
