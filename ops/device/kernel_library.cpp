// Our SYCL kernels: compiled with the library, or at run time.
#include <ppengine/ops/device/kernel_library.hpp>

#include <fmt/core.h>

#include <chrono>
#include <future>
#include <map>
#include <mutex>

#include <ppengine/base/error.hpp>
#include <ppengine/base/hash.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/ops/detail/kernel_sources.hpp>
#include <ppengine/ops/detail/program_file.hpp>
#include <ppengine/ops/detail/sycl.hpp>
#include <ppengine/ops/device/nvidia.hpp>
#include <ppengine/ops/device/program_cache.hpp>

namespace ppengine::ops {
namespace experimental = sycl::ext::oneapi::experimental;
namespace {

std::vector<std::string> options_for(const Device& device) {
  return device.info().backend == "cuda" ? nvidia_options() : std::vector<std::string>();
}

// The kernels of a file: compiled in this process, or before.
struct Compiled {
  std::optional<KernelBundle> bundle;
  std::optional<CachedProgram> cached;
  bool from_spirv = false;  // has the names that the compiler gave them

  sycl::kernel kernel(const std::string& name) {
    return cached ? cached->kernel(name) : bundle.value().ext_oneapi_get_kernel(from_spirv ? "__sycl_kernel_" + name : name);
  }
};

// All that a compiled file depends on.
std::string everything(const Device& device, const KernelSource& source) {
  std::string text(source.text);
  for (const KernelSource& header : kernel_headers())
    if (for_tensor_cores(source.name) || !for_tensor_cores(header.name)) append_header(text, header.name, header.text);
  for (const std::string& option : options_for(device)) text.append("\n").append(option);
  return text;
}

KernelBundle build_source(const Device& device, const KernelSource& source) {
  prepare_for_nvidia(device);
  experimental::include_files headers;
  for (const KernelSource& header : kernel_headers()) headers.add(std::string(header.name), std::string(header.text));
  auto bundle = experimental::create_kernel_bundle_from_source(device.impl().context, experimental::source_language::sycl,
                                                               std::string(source.text), experimental::properties{headers});
  return experimental::build(bundle, experimental::properties{experimental::build_options{options_for(device)}});
}

KernelBundle build_spirv(const Device& device, const std::string& code) {
  const auto* begin = reinterpret_cast<const std::byte*>(code.data());
  auto bundle = experimental::create_kernel_bundle_from_source(device.impl().context, experimental::source_language::spirv,
                                                               std::vector<std::byte>(begin, begin + code.size()));
  return experimental::build(bundle);
}

// Seconds in which nothing else is heard of the program.
void tell_once(const Device& device) {
  static std::once_flag told;
  std::call_once(told, [&] {
    log::warning(fmt::format("compiling kernels for {}: this takes seconds, once (they are kept in the cache)", device.info().name));
  });
}

Compiled build(const Device& device, const KernelSource& source) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string key = everything(device, source);
  if (auto found = load_program(device, source.name, key)) return {{}, std::move(found)};
  try {
    const std::string spirv = shipped_spirv(device, source.name, key);
    tell_once(device);
    KernelBundle built = spirv.empty() ? build_source(device, source) : build_spirv(device, spirv);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    log::debug(fmt::format("kernels/{}: compiled{} for {} in {:.2f} s", source.name, spirv.empty() ? "" : " from SPIR-V",
                           device.info().name, took.count()));
    store_program(device, source.name, key, built);
    return {std::move(built), {}, !spirv.empty()};
  } catch (const sycl::exception& e) {
    throw DeviceError(fmt::format("ops/kernels/{} does not compile for {}: {}", source.name, device.info().name, e.what()),
                      ExitCode::failed);
  }
}

}  // namespace

struct KernelLibrary::Impl {
  struct Entry {
    std::once_flag once;
    Compiled compiled;
  };
  Device& device;
  std::mutex mutex;
  std::map<std::string, Entry, std::less<>> bundles;
  std::map<std::string, Kernel, std::less<>> kernels;

  Entry& bundle(std::string_view file) {
    Entry* entry;
    {
      std::lock_guard lock(mutex);
      entry = &bundles[std::string(file)];
    }
    // A text of several lines is a source itself (generated.hpp).
    const bool is_text = file.find('\n') != std::string_view::npos;
    const std::string name = is_text ? fmt::format("generated-{:016x}", hash_text(file)) : std::string();
    std::call_once(entry->once, [&] { entry->compiled = build(device, is_text ? KernelSource{name, file} : kernel_source(file)); });
    return *entry;
  }
};

// Compiled kernels stay until the process ends. The run-time compiler keeps tables of them that are gone before a device with static
// lifetime is destroyed at exit, and freeing a bundle then crashes.
KernelLibrary::KernelLibrary(Device& device) : impl_(std::make_shared<Impl>(device)) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<Impl>>;  // never destroyed, still reachable
  const std::lock_guard lock(mutex);
  kept.push_back(impl_);
}

const Kernel& KernelLibrary::get(std::string_view file, std::string_view name) {
  const std::string key = fmt::format("{}/{}", file, name);
  {
    std::lock_guard lock(impl_->mutex);
    if (auto found = impl_->kernels.find(key); found != impl_->kernels.end()) return found->second;
  }
  auto& entry = impl_->bundle(file);
  std::lock_guard lock(impl_->mutex);
  return impl_->kernels.try_emplace(key, Kernel{entry.compiled.kernel(std::string(name))}).first->second;
}

void KernelLibrary::prepare() {
  std::vector<std::future<void>> building;
  const bool tensor_cores = has_tensor_cores(impl_->device);
  for (const KernelSource& source : kernel_sources()) {
    if (!tensor_cores && for_tensor_cores(source.name)) continue;
    building.push_back(std::async(std::launch::async, [this, &source] { impl_->bundle(source.name); }));
  }
  for (auto& one : building) one.get();
}

std::future<void> KernelLibrary::prepare_soon(std::vector<std::string> files) {
  return std::async(std::launch::async, [this, files = std::move(files)] {
    for (const std::string& file : files) impl_->bundle(file);
  });
}

std::size_t KernelLibrary::lookups() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->kernels.size();
}

}  // namespace ppengine::ops
