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
  std::string backend;   // opencl, level_zero, cuda
  std::string name;
  std::string vendor;
  std::string driver;
  bool is_cpu = false;
  uint64_t memory_bytes = 0;
  int compute_units = 0;
  int max_work_group = 0;
  int sub_group = 0;         // preferred width
  bool native_bf16 = false;  // bf16 matrix arithmetic in hardware: only then does bf16 pay
  bool onednn = false;       // oneDNN has an engine for it
};

// Every device that SYCL shows (ONEAPI_DEVICE_SELECTOR counts).
std::vector<DeviceInfo> list_devices();

class KernelLibrary;

class Device : public std::enable_shared_from_this<Device> {
 public:
  // selector: "" (SYCL's default), "cpu", "gpu", "cpu:1", "level_zero:0", "cuda:1", ...; DeviceError lists what there is.
  static std::shared_ptr<Device> open(const std::string& selector = "");
  // onednn = false: every op runs on our own kernels, as PPENGINE_ONEDNN=off does for all devices.
  static std::shared_ptr<Device> open(const std::string& selector, bool onednn);
  ~Device();
  Device(const Device&) = delete;

  const DeviceInfo& info() const;
  bool onednn() const;      // an engine is there and not switched off
  MemoryCounter& memory();  // bytes and peak of everything allocated on this device
  KernelLibrary& kernels();

  struct Impl;  // SYCL and oneDNN handles: ops/detail/sycl.hpp
  Impl& impl() const { return *impl_; }

 private:
  explicit Device(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ppengine::ops
