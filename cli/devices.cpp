// ppengine devices: what there is to compute on, and how ranks could talk to each other.
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <ppengine/ops/device.hpp>

#include "commands.hpp"

namespace ppengine::cli {
namespace {

std::string memory_text(uint64_t bytes) { return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30)); }

nlohmann::json to_json(const ops::DeviceInfo& device) {
  return {{"selector", device.selector},
          {"backend", device.backend},
          {"name", device.name},
          {"vendor", device.vendor},
          {"driver", device.driver},
          {"type", device.is_cpu ? "cpu" : "gpu"},
          {"memory_bytes", device.memory_bytes},
          {"compute_units", device.compute_units},
          {"max_work_group", device.max_work_group},
          {"sub_group", device.sub_group},
          {"native_bf16", device.native_bf16},
          {"onednn", device.onednn}};
}

void print_json(const std::vector<ops::DeviceInfo>& devices) {
  nlohmann::json list = nlohmann::json::array();
  for (const ops::DeviceInfo& device : devices) list.push_back(to_json(device));
  fmt::print("{}\n", nlohmann::json{{"devices", list}}.dump());
}

void print_text(const std::vector<ops::DeviceInfo>& devices) {
  for (const ops::DeviceInfo& device : devices) {
    fmt::print("{}  {}\n", device.selector, device.name);
    fmt::print("  backend      {} (driver {})\n", device.backend, device.driver);
    fmt::print("  memory       {}\n", memory_text(device.memory_bytes));
    fmt::print("  compute      {} units, work-groups to {}, sub-groups of {}\n", device.compute_units,
               device.max_work_group, device.sub_group);
    fmt::print("  bf16         {}\n", device.native_bf16 ? "in hardware" : "emulated (f32 is faster)");
    fmt::print("  layer math   {}\n",
               device.onednn ? "oneDNN and our kernels" : "our kernels (oneDNN has no engine for it)");
  }
}

}  // namespace

void add_devices(CLI::App& app) {
  auto* command = app.add_subcommand("devices", "List devices: backend, name, memory, what they support");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print one JSON object");
  command->footer(
      "Examples:\n  ppengine devices\n  ppengine devices --json | jq '.devices[].selector'\n  "
      "ONEAPI_DEVICE_SELECTOR=opencl:cpu ppengine devices");
  command->callback([json] {
    const std::vector<ops::DeviceInfo> devices = ops::list_devices();
    *json ? print_json(devices) : print_text(devices);
    if (devices.empty() && !*json)
      fmt::print(stderr, "ppengine: SYCL shows no device; is ONEAPI_DEVICE_SELECTOR set?\n");
  });
}

}  // namespace ppengine::cli
