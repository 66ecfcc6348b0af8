// SYCL devices: listing, choosing, opening.
#include <ppengine/ops/device/device.hpp>

#include <fmt/format.h>

#include <map>
#include <ranges>

#include <ppengine/base/environment.hpp>
#include <ppengine/base/error.hpp>
#include <ppengine/ops/detail/sycl.hpp>

namespace ppengine::ops {
namespace {

std::string backend_name(sycl::backend backend) {
  switch (backend) {
    case sycl::backend::opencl:
      return "opencl";
    case sycl::backend::ext_oneapi_level_zero:
      return "level_zero";
    case sycl::backend::ext_oneapi_cuda:
      return "cuda";
    case sycl::backend::ext_oneapi_hip:
      return "hip";
    default:
      return "other";
  }
}

bool has_native_bf16(const sycl::device& device) {
  if (device.is_cpu()) {
    const std::string limit = environment::isa();
    return (limit.empty() || limit == "avx512") && __builtin_cpu_supports("avx512bf16");
  }
  return device.has(sycl::aspect::fp16);  // every GPU with f16 that oneDNN or cuBLAS serves has bf16 matrix units or emulates at f32 speed
}

bool has_onednn(const sycl::device& device, const sycl::context& context) {
  try {
    dnnl::sycl_interop::make_engine(device, context);
    return true;
  } catch (const dnnl::error&) {
    return false;
  }
}

DeviceInfo describe(const sycl::device& device, const std::string& selector) {
  using namespace sycl::info::device;
  DeviceInfo info;
  info.selector = selector;
  info.backend = backend_name(device.get_backend());
  info.name = device.get_info<name>();
  info.vendor = device.get_info<vendor>();
  info.driver = device.get_info<driver_version>();
  info.is_cpu = device.is_cpu();
  info.memory_bytes = device.get_info<global_mem_size>();
  info.compute_units = static_cast<int>(device.get_info<max_compute_units>());
  info.max_work_group = static_cast<int>(device.get_info<max_work_group_size>());
  const auto widths = device.get_info<sub_group_sizes>();
  info.sub_group = widths.empty() ? 1 : static_cast<int>(widths.back());
  info.native_bf16 = has_native_bf16(device);
  info.onednn = has_onednn(device, sycl::context(device));
  return info;
}

struct Found {
  sycl::device device;
  std::string selector;
};

std::vector<Found> find_devices() {
  environment::prepare_sycl();
  std::vector<Found> found;
  std::map<std::string, int> seen;
  for (const auto& device : sycl::device::get_devices()) {
    const std::string kind = device.is_cpu() ? "cpu" : backend_name(device.get_backend());
    found.push_back({device, fmt::format("{}:{}", kind, seen[kind]++)});
  }
  return found;
}

bool matches(const Found& found, const std::string& wanted) {
  if (wanted == found.selector || wanted + ":0" == found.selector) return true;
  if (wanted == "gpu") return found.device.is_gpu();
  return wanted == backend_name(found.device.get_backend());
}

Found choose(const std::string& wanted) {
  const auto all = find_devices();
  if (all.empty())
    throw DeviceError("no SYCL device is there: check ONEAPI_DEVICE_SELECTOR and OCL_ICD_FILENAMES, or unset them for the CPU");
  if (wanted.empty()) {
    const sycl::device standard{sycl::default_selector_v};
    for (const Found& one : all)
      if (one.device == standard) return one;
    return all.front();
  }
  for (const Found& one : all)
    if (matches(one, wanted)) return one;
  const auto names = all | std::views::transform(&Found::selector);
  throw DeviceError(fmt::format("no device '{}': there is {}; see 'ppengine devices'", wanted, fmt::join(names, ", ")));
}

std::shared_ptr<QueuePool> make_queues(const sycl::device& device) {
  auto queues = std::make_shared<QueuePool>();
  if (!device.is_cpu()) return queues;
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<QueuePool>>;
  const std::lock_guard lock(mutex);
  return kept.emplace_back(std::move(queues));
}

}  // namespace

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> list;
  for (const Found& one : find_devices()) list.push_back(describe(one.device, one.selector));
  return list;
}

std::shared_ptr<Device> Device::open(const std::string& selector) { return open(selector, environment::onednn_enabled()); }

std::shared_ptr<Device> Device::open(const std::string& selector, bool onednn) {
  const Found found = choose(selector);
  auto impl = std::make_unique<Impl>(found.device, sycl::context(found.device), describe(found.device, found.selector), std::nullopt,
                                     make_queues(found.device));
  if (onednn && impl->info.onednn) impl->engine = dnnl::sycl_interop::make_engine(impl->device, impl->context);
  std::shared_ptr<Device> device(new Device(std::move(impl)));
  device->impl_->kernels = std::make_unique<KernelLibrary>(*device);
  return device;
}

Device::Device(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Device::~Device() = default;

const DeviceInfo& Device::info() const { return impl_->info; }
bool Device::onednn() const { return impl_->engine.has_value(); }
MemoryCounter& Device::memory() { return impl_->memory; }
KernelLibrary& Device::kernels() { return *impl_->kernels; }

}  // namespace ppengine::ops
