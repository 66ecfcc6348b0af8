// A lane: one NCCL communicator with a stream of its own, on which its calls follow one another. Messages of each direction between
// two ranks have a lane, and so have a group's collectives: no order of posting can make two ranks wait for each other's kernels.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include <ppengine/comm/nccl/api.hpp>
#include <ppengine/comm/net/rendezvous.hpp>

namespace ppengine::comm::nccl {

// Where NCCL's calls are put: a CUDA stream behind a SYCL queue; in tests, a stream of the stand-in.
class Target {
 public:
  virtual ~Target() = default;
  // Makes the device current for the calling thread: NCCL's communicators belong to it.
  virtual void enter() = 0;
  // Calls submit(stream) in the order of calls, so that its work starts after the events. Gives the event of its end, and a
  // question whether that is reached.
  virtual std::function<bool()> run(const std::vector<ops::Event>& after, std::function<void(NativeStream)> submit, ops::Event& end) = 0;
};
std::unique_ptr<Target> make_target(const Api& api, const std::shared_ptr<ops::Device>& device);

// A call under way.
class Call : public Pending::State {
 public:
  struct Text {
    std::string name;
    int rank, peer, tag;  // ranks of the whole run; peer -1: all
  };
  // NCCL knows neither tags nor sizes of the other side: before a call is given to it, all its ranks tell each other their claims, and
  // `agree` (by rank in the lane) says what is wrong, or what the real number of bytes is.
  using Agree = std::function<std::string(const std::vector<std::string>& claims, std::size_t& bytes)>;
  using Submit = std::function<void(Comm, NativeStream, std::size_t bytes)>;
  Call(Text about, ops::Event start_after, std::string my_claim, Agree check, Submit call, std::size_t bytes,
       std::shared_ptr<Rendezvous> rendezvous, std::chrono::milliseconds timeout)
      : text(std::move(about)),
        after(std::move(start_after)),
        claim(std::move(my_claim)),
        agree(std::move(check)),
        submit(std::move(call)),
        rendezvous_(std::move(rendezvous)),
        timeout_(timeout),
        bytes_(bytes) {}

  bool done() override;
  void wait(Clock::time_point deadline) override;
  void wait_on(ops::Stream& stream, Clock::time_point deadline) override;
  std::size_t bytes() override { return bytes_; }
  void set_bytes(std::size_t bytes) { bytes_ = bytes; }
  std::chrono::milliseconds timeout() override { return timeout_; }

  // From now on it waits for these ranks to say the same under the key: at a deadline those that have not are named.
  void gathers_at(std::string key, std::span<const int> members);
  void submitted(std::function<bool()> reached, ops::Event end);
  void fail(const std::string& error);
  // NCCL is done with its memory.
  bool reached();
  // The communicator is about to be aborted: that its end is reached will not mean any more that the data came.
  void give_up();

  const Text text;
  const ops::Event after;
  const std::string claim;
  const Agree agree;
  const Submit submit;

 private:
  enum class Stage { queued, submitted, given_up, failed };
  // Until NCCL has been given the call, or its end (finished).
  void wait_until(Clock::time_point deadline, bool finished);
  std::string awaited();

  std::shared_ptr<Rendezvous> rendezvous_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  Stage stage_ = Stage::queued;
  std::atomic<std::size_t> bytes_;
  std::string error_, key_;
  std::vector<int> members_;  // who takes part, once it gathers
  std::function<bool()> reached_;
  ops::Event end_;
};
using CallPtr = std::shared_ptr<Call>;

class Lane;

// All lanes of a process, those of sub-groups too: a failure ends them together.
class Lanes {
 public:
  void add(Lane* lane);
  void remove(Lane* lane);
  // After a failure: until none of them touches memory any more, two seconds at most, since a library may hang.
  void wait_until_stopped();

 private:
  std::mutex mutex_;
  std::vector<Lane*> lanes_;
};

class Lane {
 public:
  // `key` is the same on all members and unique. The communicator is made by the lane's thread when the first call comes: it takes
  // until the peer comes too, and the caller does not wait for that.
  Lane(const Api& api, std::shared_ptr<ops::Device> device, std::shared_ptr<Rendezvous> rendezvous, std::shared_ptr<Lanes> all,
       std::string key, std::vector<int> members, int index);
  // Waits for what is under way; after a failure the communicator has been aborted instead.
  ~Lane();
  void add(std::vector<CallPtr> calls);  // as one NCCL group
  void wait_until_stopped(Clock::time_point deadline);

 private:
  void run();
  void work(std::unique_lock<std::mutex>& lock);
  void connect();
  void submit(const std::vector<CallPtr>& calls);
  void agree(Call& call);
  void watch();
  void abort();
  void check_alive() const;

  const Api& api_;
  std::shared_ptr<ops::Device> device_;
  std::shared_ptr<Rendezvous> rendezvous_;
  std::shared_ptr<Lanes> all_;
  const std::string key_;
  const std::vector<int> members_;
  const int index_;
  std::unique_ptr<Target> target_;
  Comm comm_ = nullptr;
  std::vector<CallPtr> under_way_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<CallPtr>> queue_;
  std::atomic<bool> closing_{false};
  bool stopped_ = false;  // its thread has ended
  std::uint64_t calls_ = 0;
  std::thread thread_;
};

}  // namespace ppengine::comm::nccl
