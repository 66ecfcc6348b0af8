// A SYCL device with its context, oneDNN engine, compiled kernels and memory counter.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ppengine/ops/device/memory.hpp>

namespace ppengine::ops {

struct DeviceInfo {
  std::string selector;  // what --device takes for exactly this one: "cpu:0", "level_zero:1", "cuda:0"
  std::string backend;   // opencl, level_zero, cuda, hip; standin: the CPU in the place of a GPU (PPENGINE_STANDIN_GPUS)
  std::string name;
  std::string vendor;
  std::string driver;
  bool is_cpu = false;
  std::uint64_t memory_bytes = 0;
  int compute_units = 0;
  int max_work_group = 0;
  int sub_group = 0;         // preferred width
  bool native_bf16 = false;  // bf16 matrix arithmetic in hardware: only then does bf16 pay
  bool onednn = false;       // oneDNN has an engine for it
};

// Every device that SYCL shows (ONEAPI_DEVICE_SELECTOR counts).
std::vector<DeviceInfo> list_devices();

// The devices that a selector stands for, as selectors of exactly one each: all GPUs of a kind for "gpu" and "cuda", one for "cpu" and
// "cuda:1", several for "cuda:0,cuda:2"; for "" SYCL's default and, where that is a GPU, the others like it. Ranks take one each.
// DeviceError lists what there is.
std::vector<std::string> find_devices(const std::string& selector);

// What a device was told to do since it was opened, by all streams.
struct DeviceWork {
  std::uint64_t launches = 0, copies = 0;  // copies: of memory, and fills
  std::uint64_t waits = 0;                 // a thread of the host blocked until work was done
};

class KernelLibrary;

class Device : public std::enable_shared_from_this<Device> {
 public:
  // The first of find_devices(selector).
  static std::shared_ptr<Device> open(const std::string& selector = "");
  // onednn = false: every op runs on our own kernels, as PPENGINE_ONEDNN=off does for all devices.
  static std::shared_ptr<Device> open(const std::string& selector, bool onednn);
  ~Device();
  Device(const Device&) = delete;

  const DeviceInfo& info() const;
  bool onednn() const;      // an engine is there and not switched off
  MemoryCounter& memory();  // bytes and peak of everything allocated on this device
  DeviceWork work() const;
  KernelLibrary& kernels();

  struct Impl;  // SYCL and oneDNN handles: ops/detail/sycl.hpp
  Impl& impl() const { return *impl_; }

 private:
  explicit Device(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ppengine::ops
