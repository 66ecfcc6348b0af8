// SYCL devices: listing, choosing, opening.
#include <ppengine/ops/device/device.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <ranges>

#include <ppengine/base/environment.hpp>
#include <ppengine/base/error.hpp>
#include <ppengine/ops/detail/sycl.hpp>
#include <ppengine/ops/device/architecture.hpp>
#include <ppengine/ops/device/nvidia.hpp>
#include <ppengine/ops/device/precision.hpp>

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

// All of Intel's matrix units take bf16.
bool has_native_bf16(const sycl::device& device) {
  if (device.is_cpu()) {
    const std::string limit = environment::isa();
    return (limit.empty() || limit == "avx512") && __builtin_cpu_supports("avx512bf16");
  }
  const std::string backend = backend_name(device.get_backend());
  return has_bf16_units(backend, architecture_of(device)) || device.has(sycl::aspect::ext_intel_matrix);
}

bool has_onednn(const sycl::device& device, const sycl::context& context) {
  try {
    dnnl::sycl_interop::make_engine(device, context);
    return true;
  } catch (const dnnl::error&) {
    return false;
  }
}

// A device as it is listed. What stands in for a GPU is the CPU, in another role.
struct Found {
  sycl::device device;
  std::string kind;  // cpu, standin, or the backend of a GPU
  std::string selector;
  bool stands_in() const { return kind == "standin"; }
  bool is_cpu() const { return kind == "cpu"; }
};

DeviceInfo describe(const Found& found, const sycl::context& context) {
  using namespace sycl::info::device;
  const sycl::device& device = found.device;
  DeviceInfo info;
  info.selector = found.selector;
  info.backend = found.stands_in() ? found.kind : backend_name(device.get_backend());
  info.name = found.stands_in() ? device.get_info<name>() + " in the place of a GPU" : device.get_info<name>();
  info.vendor = device.get_info<vendor>();
  info.driver = device.get_info<driver_version>();
  info.is_cpu = found.is_cpu();
  info.memory_bytes = device.get_info<global_mem_size>();
  info.compute_units = static_cast<int>(device.get_info<max_compute_units>());
  info.max_work_group = static_cast<int>(device.get_info<max_work_group_size>());
  const auto widths = device.get_info<sub_group_sizes>();
  info.sub_group = widths.empty() ? 1 : static_cast<int>(widths.back());
  info.native_bf16 = found.stands_in() || has_native_bf16(device);
  info.onednn = !found.stands_in() && has_onednn(device, context);
  return info;
}

// What a selector in the environment says wrong is told as it is; SYCL throws where it first looks.
std::vector<sycl::device> sycl_devices() {
  environment::prepare_sycl();
  try {
    return sycl::device::get_devices();
  } catch (const sycl::exception& error) {
    const char* selector = std::getenv("ONEAPI_DEVICE_SELECTOR");
    throw DeviceError(fmt::format("SYCL lists no devices: {}{}", error.what(),
                                  selector ? fmt::format(" (ONEAPI_DEVICE_SELECTOR={})", selector) : std::string()));
  }
}

std::vector<Found> all_devices() {
  std::vector<Found> found;
  std::map<std::string, int> seen;
  const auto add = [&](const sycl::device& device, const std::string& kind) {
    found.push_back({device, kind, fmt::format("{}:{}", kind, seen[kind]++)});
  };
  for (const auto& device : sycl_devices()) add(device, device.is_cpu() ? "cpu" : backend_name(device.get_backend()));
  const auto cpu = std::ranges::find_if(found, &Found::is_cpu);
  if (cpu == found.end()) return found;
  const sycl::device device = cpu->device;
  for (int i = 0, count = environment::standin_gpus(); i < count; ++i) add(device, "standin");
  return found;
}

bool matches(const Found& found, const std::string& wanted) {
  return wanted == found.selector || wanted == found.kind || wanted == backend_name(found.device.get_backend()) ||
         (wanted == "gpu" && !found.is_cpu());
}

// Of the devices that a word stands for: one CPU; all GPUs that are of the kind of the first, since ranks on two kinds cannot talk, and
// one GPU may be listed by two backends.
std::vector<Found> choose(const std::vector<Found>& all, const std::string& wanted) {
  auto first = std::ranges::find(all, wanted, &Found::selector);
  const bool exactly = first != all.end();
  if (wanted.empty()) {
    const sycl::device standard{sycl::default_selector_v};
    first = std::ranges::find(all, standard, &Found::device);
    if (first == all.end()) first = all.begin();
  } else if (!exactly) {
    first = std::ranges::find_if(all, [&](const Found& one) { return matches(one, wanted); });
  }
  if (first == all.end())
    throw DeviceError(fmt::format("no device '{}': there is {}; see 'ppengine devices'", wanted,
                                  fmt::join(all | std::views::transform(&Found::selector), ", ")));
  if (exactly || first->is_cpu()) return {*first};
  std::vector<Found> alike;
  std::ranges::copy_if(all, std::back_inserter(alike), [&](const Found& one) { return one.kind == first->kind; });
  return alike;
}

// A selector may be a list of words.
std::vector<Found> choose(const std::string& wanted) {
  const auto all = all_devices();
  if (all.empty())
    throw DeviceError("no SYCL device is there: check ONEAPI_DEVICE_SELECTOR and OCL_ICD_FILENAMES, or unset them for the CPU");
  std::vector<Found> chosen;
  for (std::size_t begin = 0; begin <= wanted.size();) {
    const std::size_t end = std::min(wanted.find(',', begin), wanted.size());
    if (end == begin && !wanted.empty()) throw DeviceError(fmt::format("--device {}: a device between commas has no name", wanted));
    std::ranges::copy(choose(all, wanted.substr(begin, end - begin)), std::back_inserter(chosen));
    begin = end + 1;
  }
  for (const Found& one : chosen)
    if (one.kind != chosen.front().kind)
      throw DeviceError(fmt::format("--device {}: {} and {} are devices of two kinds, between which ranks cannot talk", wanted,
                                    chosen.front().selector, one.selector));
  return chosen;
}

std::shared_ptr<QueuePool> make_queues(const Found& found) {
  auto queues = std::make_shared<QueuePool>(!found.is_cpu());
  if (!found.device.is_cpu()) return queues;
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<QueuePool>>;
  const std::lock_guard lock(mutex);
  return kept.emplace_back(std::move(queues));
}

}  // namespace

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> list;
  for (const Found& one : all_devices()) list.push_back(describe(one, sycl::context(one.device)));
  return list;
}

std::vector<std::string> find_devices(const std::string& selector) {
  std::vector<std::string> selectors;
  for (const Found& one : choose(selector)) selectors.push_back(one.selector);
  return selectors;
}

std::shared_ptr<Device> Device::open(const std::string& selector) { return open(selector, environment::onednn_enabled()); }

std::shared_ptr<Device> Device::open(const std::string& selector, bool onednn) {
  const Found found = choose(selector).front();
  const sycl::context context(found.device);
  auto impl = std::make_unique<Impl>(found.device, context, describe(found, context), make_queues(found));
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
DeviceWork Device::work() const { return {impl_->launches, impl_->copies, impl_->waits}; }
KernelLibrary& Device::kernels() { return *impl_->kernels; }

}  // namespace ppengine::ops
