// SYCL and oneDNN behind the public headers; the precompiled header of this folder. Nobody above ops includes it.
#pragma once

#include <dnnl.hpp>
#include <dnnl_sycl.hpp>
#include <sycl/sycl.hpp>

#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <span>

#include <ppengine/ops/device/device.hpp>
#include <ppengine/ops/device/kernel_library.hpp>
#include <ppengine/ops/device/memory.hpp>
#include <ppengine/ops/device/stream.hpp>

namespace ppengine::ops {

constexpr std::size_t plain_kernel_slots = 64;

// The queues of a device that are free to use. On CPUs they are kept for the life of the process: the OpenCL runtime waits for a
// queue's tasks when it frees the queue, and where the last task still holds the queue, that task frees it, waits for itself, and its
// worker thread is lost.
class QueuePool {
 public:
  explicit QueuePool(bool in_order) : in_order_(in_order) {}
  sycl::queue take(const sycl::device& device, const sycl::context& context);
  void give_back(sycl::queue queue);

 private:
  const bool in_order_;
  std::mutex mutex_;
  std::vector<sycl::queue> free_;
};

struct Device::Impl {
  Impl(const sycl::device& on, const sycl::context& in, DeviceInfo what, std::shared_ptr<QueuePool> pool)
      : device(on), context(in), info(std::move(what)), queues(std::move(pool)) {}

  sycl::device device;
  sycl::context context;
  DeviceInfo info;
  std::shared_ptr<QueuePool> queues;
  std::optional<dnnl::engine> engine;  // empty when oneDNN is off or does not know the device
  MemoryCounter memory;
  std::unique_ptr<KernelLibrary> kernels;
  std::atomic<std::uint64_t> launches{0}, copies{0}, waits{0};                 // DeviceWork
  std::array<std::atomic<const Kernel*>, plain_kernel_slots> plain_kernels{};  // ops/device/kernel_table.hpp
};

// Something submitted to a queue: a kernel or copy, which the OpenCL runtime carries out, or a host task, in which oneDNN runs on CPUs.
struct Command {
  sycl::event event;
  bool host_task = false;

  bool done() const;
  // Blocks until it is done. The queue is the one it was submitted to.
  void wait(sycl::queue& queue) const;
};

struct Event::Impl {
  Command command;
  sycl::queue queue;
};

// Work that a stream holds back to launch it together with what comes next, if that is of the same kind.
struct HeldBack {
  virtual ~HeldBack() = default;
  virtual void launch(Stream::Impl& stream) = 0;  // nothing is held back any more when this submits
};

// One SYCL queue. On CPUs it is out of order and each submission depends on the one before it: with oneDNN's host tasks between
// kernels, in-order queues cost up to 100 times as much a launch. At most `max_outstanding` submissions are under way: few on CPUs, where
// both kinds of queue collapse when many are (2 ms a launch at 1000). On GPUs the host runs ahead by as many as CUDA's own queues hold.
struct Stream::Impl {
  explicit Impl(std::shared_ptr<Device> device);
  ~Impl();

  static constexpr std::size_t outstanding_on_cpus = 8, outstanding_on_gpus = 1024;
  std::shared_ptr<Device> device;
  bool chained;                 // out-of-order queue, order carried by events
  std::size_t max_outstanding;  // submissions under way
  sycl::queue queue;
  std::optional<dnnl::stream> dnnl;

  // The events that the next submission must wait for.
  const std::vector<sycl::event>& dependencies() const { return pending; }
  // The same for a host task: on a CPU it may depend on other host tasks only, so kernels are waited for here and now (Command::wait).
  const std::vector<sycl::event>& host_task_dependencies();
  // Must be called with every submission.
  void submitted(Command command);
  // Blocks until everything submitted so far is done.
  void wait();

  // Submits a command group: body(handler). On a CPU it waits for host tasks here and now: the runtime would hold a kernel back until they
  // are done, and while it hands the kernel over, the kernel's event can be taken for one of something that is done already.
  template <class Body>
  void submit(Body&& body) {
    launch_held_back();
    if (chained && host_tasks_pending) wait();
    submitted({queue.submit([&](sycl::handler& handler) {
      handler.depends_on(pending);
      body(handler);
    })});
  }

  // Before anything else is submitted or waited for.
  void launch_held_back() {
    if (held_back) held_back->launch(*this);
  }

  // On CPUs: lets the runtime free what it keeps of host tasks that are done.
  static constexpr std::size_t forget_from = 64, most_host_tasks_kept = 1024;
  void forget_host_tasks();

  // Memory for the time of one submission: the stream's work is in order, so all of it can share one. Grows at most a few times, while
  // ops run for the first time.
  void* scratch(std::size_t bytes);

  Buffer scratch_memory;
  std::vector<sycl::event> pending;
  bool kernels_pending = false, host_tasks_pending = false;  // among them
  std::vector<Command> ring;                                 // the last max_outstanding submissions
  std::size_t next = 0;
  std::size_t host_tasks_kept = 0;
  std::unique_ptr<HeldBack> held_back;
};

// A kernel of ours, looked up once when an op is made.
struct Kernel {
  sycl::kernel kernel;

  // Launches over `groups` work-groups of `size` work-items each (1 dimension).
  template <class... Args>
  void launch(Stream& stream, std::size_t groups, std::size_t size, Args... args) const {
    if (groups == 0) return;
    ++stream.device().impl().launches;
    stream.impl().submit([&](sycl::handler& handler) {
      handler.set_args(args...);
      handler.parallel_for(sycl::nd_range<1>(groups * size, size), kernel);
    });
  }
  // groups_y rows of groups_x work-groups; get_group(0) is y, get_group(1) is x.
  template <class... Args>
  void launch_2d(Stream& stream, std::size_t groups_y, std::size_t groups_x, std::size_t size_y, std::size_t size_x, Args... args) const {
    if (groups_y * groups_x == 0) return;
    ++stream.device().impl().launches;
    stream.impl().submit([&](sycl::handler& handler) {
      handler.set_args(args...);
      handler.parallel_for(sycl::nd_range<2>({groups_y * size_y, groups_x * size_x}, {size_y, size_x}), kernel);
    });
  }
};

}  // namespace ppengine::ops
