// SYCL kernels of a user's own source.
#include <ppengine/ops/device/source_kernels.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <mutex>

#include <ppengine/base/error.hpp>
#include <ppengine/base/hash.hpp>
#include <ppengine/ops/detail/divide_up.hpp>
#include <ppengine/ops/detail/kernel_sources.hpp>
#include <ppengine/ops/detail/sycl.hpp>
#include <ppengine/ops/device/nvidia.hpp>
#include <ppengine/ops/device/program_cache.hpp>

namespace ppengine::ops {
namespace experimental = sycl::ext::oneapi::experimental;

struct SourceKernels::Impl {
  std::string name;
  std::optional<KernelBundle> bundle;
  std::optional<CachedProgram> cached;
  std::mutex mutex;
  std::map<std::string, sycl::kernel> kernels;

  const sycl::kernel& kernel(const std::string& which) {
    const std::lock_guard lock(mutex);
    if (const auto found = kernels.find(which); found != kernels.end()) return found->second;
    try {
      return kernels.emplace(which, cached ? cached->kernel(which) : bundle.value().ext_oneapi_get_kernel(which)).first->second;
    } catch (const sycl::exception& e) {
      throw DeviceError(fmt::format("{}: there is no kernel '{}' in its source (KERNEL_1D {}(...)): {}", name, which, which, e.what()),
                        ExitCode::failed);
    }
  }
};

namespace {

void compile(Device& device, const std::string& name, const std::string& text, std::optional<KernelBundle>& bundle,
             std::optional<CachedProgram>& cached) {
  const auto all = kernel_headers();
  const auto found = std::ranges::find(all, std::string_view("common.hpp"), &KernelSource::name);
  PPENGINE_ASSERT(found != all.end());
  const KernelSource& common = *found;
  const std::string key = fmt::format("{}\n{}", text, common.text), file = fmt::format("user-{:016x}", hash_text(key));
  cached = load_program(device, file, key);
  if (cached) return;
  experimental::include_files headers;
  headers.add(std::string(common.name), std::string(common.text));
  const auto options = device.info().backend == "cuda" ? nvidia_options() : std::vector<std::string>();
  try {
    prepare_for_nvidia(device);
    auto source = experimental::create_kernel_bundle_from_source(device.impl().context, experimental::source_language::sycl, text,
                                                                 experimental::properties{headers});
    bundle = experimental::build(source, experimental::properties{experimental::build_options{options}});
    store_program(device, file, key, *bundle);
  } catch (const sycl::exception& e) {
    throw DeviceError(fmt::format("{}: its kernels do not compile for {}: {}", name, device.info().name, e.what()), ExitCode::failed);
  }
}

}  // namespace

// Compiled kernels stay until the process ends, as those of KernelLibrary do.
SourceKernels::SourceKernels(Device& device, const std::string& name, const std::string& text) {
  static std::mutex mutex;
  static auto& kept = *new std::map<std::pair<const void*, std::string>, std::shared_ptr<Impl>>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Impl>& mine = kept[{&device.impl(), text}];
  if (!mine) {
    auto fresh = std::make_shared<Impl>();
    fresh->name = name;
    compile(device, name, text, fresh->bundle, fresh->cached);
    mine = std::move(fresh);
  }
  impl_ = mine;
}

void SourceKernels::launch(Stream& stream, const std::string& kernel, std::int64_t items,
                           std::initializer_list<KernelArgument> arguments) const {
  if (items <= 0) return;
  const sycl::kernel& one = impl_->kernel(kernel);
  const std::size_t size = stream.device().info().is_cpu ? 16 : 256;  // as many lanes as a vector register of f32 has
  const auto groups = static_cast<std::size_t>(divide_up(items, static_cast<std::int64_t>(size)));
  ++stream.device().impl().launches;
  stream.impl().submit([&](sycl::handler& handler) {
    int index = 0;
    for (const KernelArgument& argument : arguments) switch (argument.kind) {
        case KernelArgument::Kind::pointer:
          handler.set_arg(index++, argument.pointer);
          break;
        case KernelArgument::Kind::integer:
          handler.set_arg(index++, argument.integer);
          break;
        case KernelArgument::Kind::number:
          handler.set_arg(index++, argument.number);
          break;
      }
    handler.parallel_for(sycl::nd_range<1>(groups * size, size), one);
  });
}

}  // namespace ppengine::ops
