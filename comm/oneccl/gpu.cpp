// oneCCL's SYCL build on a device's queue: NCCL's calls, carried out by oneCCL, under the communicator over lanes; the entry of its module.
// For Level Zero devices, on which it has never run: there was none where this was written. Collectives have run on the CPU device's queue.
#include <dlfcn.h>
#include <fmt/core.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/nccl/communicator.hpp>
#include <ppengine/comm/nccl/lane.hpp>
#include <ppengine/comm/oneccl/descriptors.hpp>
#include <ppengine/comm/oneccl/quiet.hpp>
#include <ppengine/ops/detail/sycl.hpp>

// NOLINTNEXTLINE(readability-identifier-naming)
#define CCL_ENABLE_SYCL  // oneCCL's headers turn it on for SYCL compilers only; its library takes the same classes from any
#include <oneapi/ccl.hpp>

namespace ppengine::comm::nccl {
namespace {

// What the calling thread (a lane's) works on, its events since they were last taken, and why its last call failed.
thread_local const ops::Device::Impl* current_device = nullptr;
thread_local std::vector<ccl::event> submitted;
thread_local std::string last_error;

struct GpuComm {
  ccl::communicator comm;
};
GpuComm& of(Comm comm) { return *reinterpret_cast<GpuComm*>(comm); }
ccl::stream& of(NativeStream stream) { return *static_cast<ccl::stream*>(stream); }

template <class Call>
Result guarded(Call&& call) {
  try {
    call();
    return success;
  } catch (const std::exception& error) {
    last_error = error.what();
    return 1;
  }
}

ccl::datatype type_of(int type) {
  switch (type) {
    case int32:
      return ccl::datatype::int32;
    case int64:
      return ccl::datatype::int64;
    case float16:
      return ccl::datatype::float16;
    case float32:
      return ccl::datatype::float32;
    case float64:
      return ccl::datatype::float64;
    case bfloat16:
      return ccl::datatype::bfloat16;
    default:
      return ccl::datatype::uint8;
  }
}
ccl::reduction reduction_of(int op) { return op == sum ? ccl::reduction::sum : op == max ? ccl::reduction::max : ccl::reduction::min; }

// The store that a lane's first rank has made must live until all have met there.
std::map<std::string, ccl::shared_ptr_class<ccl::kvs>> stores;
std::mutex stores_mutex;

Result get_id(UniqueId* id) {
  return guarded([&] {
    auto store = ccl::create_main_kvs();
    const auto address = store->get_address();  // a text, far shorter than its array
    std::memcpy(id->internal, address.data(), std::min(address.size(), sizeof(id->internal)));
    const std::lock_guard lock(stores_mutex);
    stores[std::string(id->internal, sizeof(id->internal))] = std::move(store);
  });
}

Result init_rank(Comm* comm, int ranks, UniqueId id, int rank) {
  return guarded([&] {
    ccl::shared_ptr_class<ccl::kvs> store;
    {
      const std::lock_guard lock(stores_mutex);
      if (const auto found = stores.find(std::string(id.internal, sizeof(id.internal))); found != stores.end()) store = found->second;
    }
    if (!store) {
      ccl::kvs::address_type address{};
      std::memcpy(address.data(), id.internal, std::min(address.size(), sizeof(id.internal)));
      store = ccl::create_kvs(address);
    }
    auto device = ccl::create_device(sycl::device(current_device->device));
    auto context = ccl::create_context(sycl::context(current_device->context));
    *comm = reinterpret_cast<Comm>(new GpuComm{ccl::create_communicator(ranks, rank, device, context, store)});
  });
}

Result destroy(Comm comm) {
  return guarded([&] { delete &of(comm); });
}
Result abandon(Comm) { return success; }  // oneCCL has no abort: its destructor would wait for ranks that are gone
Result no_async_errors(Comm, Result* error) {
  *error = success;
  return success;
}

Result send(const void* data, std::size_t count, int type, int peer, Comm comm, NativeStream stream) {
  return guarded([&] { submitted.push_back(ccl::send(const_cast<void*>(data), count, type_of(type), peer, of(comm).comm, of(stream))); });
}
Result recv(void* data, std::size_t count, int type, int peer, Comm comm, NativeStream stream) {
  return guarded([&] { submitted.push_back(ccl::recv(data, count, type_of(type), peer, of(comm).comm, of(stream))); });
}
Result all_reduce(const void* in, void* out, std::size_t count, int type, int op, Comm comm, NativeStream stream) {
  return guarded([&] { submitted.push_back(ccl::allreduce(in, out, count, type_of(type), reduction_of(op), of(comm).comm, of(stream))); });
}
Result reduce_scatter(const void* in, void* out, std::size_t count, int type, int op, Comm comm, NativeStream stream) {
  return guarded(
      [&] { submitted.push_back(ccl::reduce_scatter(in, out, count, type_of(type), reduction_of(op), of(comm).comm, of(stream))); });
}
Result all_gather(const void* in, void* out, std::size_t count, int type, Comm comm, NativeStream stream) {
  return guarded([&] { submitted.push_back(ccl::allgather(in, out, count, type_of(type), of(comm).comm, of(stream))); });
}
Result broadcast(const void*, void* out, std::size_t count, int type, int root, Comm comm, NativeStream stream) {
  return guarded([&] { submitted.push_back(ccl::broadcast(out, count, type_of(type), root, of(comm).comm, of(stream))); });
}

Api oneccl_api(const ops::Device& device) {
  Api api{};
  api.name = "oneCCL";
  if (device.info().backend != "level_zero")
    api.no_messages =
        "oneCCL's SYCL build moves messages between Level Zero devices only (collectives work elsewhere too): use oneccl-cpu on CPUs";
  api.GetVersion = [](int* version) { return *version = 0, success; };
  api.GetUniqueId = get_id;
  api.CommInitRank = init_rank;
  api.CommDestroy = destroy;
  api.CommAbort = abandon;
  api.CommGetAsyncError = no_async_errors;
  api.GetErrorString = [](Result) { return last_error.c_str(); };
  api.GroupStart = [] { return guarded([] { ccl::group_start(); }); };
  api.GroupEnd = [] { return guarded([] { ccl::group_end(); }); };
  api.Send = send;
  api.Recv = recv;
  api.AllReduce = all_reduce;
  api.ReduceScatter = reduce_scatter;
  api.AllGather = all_gather;
  api.Broadcast = broadcast;
  return api;
}

class QueueTarget : public Target {
 public:
  explicit QueueTarget(std::shared_ptr<ops::Device> device)
      : device_(std::move(device)), queue_(device_->impl().context, device_->impl().device, sycl::property::queue::in_order()) {
    stream_.emplace(ccl::create_stream(queue_));
  }
  void enter() override { current_device = &device_->impl(); }
  std::function<bool()> run(const std::vector<ops::Event>& after, std::function<void(NativeStream)> submit, ops::Event&) override {
    for (const ops::Event& event : after) event.wait();
    submitted.clear();
    submit(&stream_.value());
    auto events = std::make_shared<std::vector<ccl::event>>(std::move(submitted));
    submitted.clear();
    return [events] {
      while (!events->empty() && events->back().test()) events->pop_back();
      return events->empty();
    };
  }

 private:
  std::shared_ptr<ops::Device> device_;
  sycl::queue queue_;
  std::optional<ccl::stream> stream_;
};

// No MPI here: oneCCL's own network layer, and its ranks told by hand. libfabric's parts lie beside oneCCL.
void set_defaults(const RankEnvironment& environment) {
  setenv("CCL_ATL_TRANSPORT", "ofi", 0);
  setenv("CCL_PROCESS_LAUNCHER", "none", 0);
  setenv("CCL_LOCAL_RANK", std::to_string(environment.local_rank).c_str(), 0);
  setenv("CCL_LOCAL_SIZE", std::to_string(environment.local_size).c_str(), 0);
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(static_cast<void (*)()>(ccl::group_start)), &info) != 0 && info.dli_fname)
    setenv("FI_PROVIDER_PATH", std::filesystem::path(info.dli_fname).parent_path().c_str(), 0);
}

}  // namespace

std::unique_ptr<Target> make_target(const Api&, const std::shared_ptr<ops::Device>& device) {
  auto target = std::make_unique<QueueTarget>(device);
  target->enter();
  return target;
}

}  // namespace ppengine::comm::nccl

extern "C" ppengine::comm::Communicator* ppengine_make_communicator(const ppengine::comm::ModuleInput& input) {
  using namespace ppengine;
  if (!input.options.device) throw ConfigError("oneccl-gpu works on a device's memory: name one with --device");
  comm::nccl::set_defaults(input.environment);
  {
    std::optional<comm::oneccl::Quiet> quiet;
    if (!std::getenv("CCL_LOG_LEVEL")) {
      setenv("CCL_LOG_LEVEL", "error", 1);
      quiet.emplace();
    }
    comm::oneccl::allow_descriptors();
    ccl::init();
  }
  static const comm::nccl::Api api = comm::nccl::oneccl_api(*input.options.device);
  return comm::nccl::make_communicator(api, "oneccl-gpu", input);
}

// A module that loads is not enough: without a device it would serve nobody.
extern "C" const char* ppengine_why_not() {
  for (const auto& device : ppengine::ops::list_devices())
    if (device.backend == "level_zero") return nullptr;
  return "oneCCL's SYCL build is there, but no Level Zero device (Intel GPU) that it would serve; CPUs use oneccl-cpu";
}
