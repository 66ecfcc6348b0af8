// ppengine devices: what there is to compute on, and how ranks could talk to each other.
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <ppengine/comm/mesh.hpp>
#include <ppengine/comm/processes.hpp>
#include <ppengine/ops/device/device.hpp>

#include "commands.hpp"
#include "output/plural.hpp"
#include "output/results.hpp"

namespace ppengine::cli {
namespace {

std::string memory_text(std::uint64_t bytes) { return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30)); }

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

nlohmann::json to_json(const comm::MeshShape& shape) {
  nlohmann::json ranks = nlohmann::json::array();
  for (int rank = 0; rank < shape.size(); ++rank) {
    const auto place = shape.place(rank);
    ranks.push_back({{"rank", rank}, {"pipeline", place.pipeline}, {"data", place.data}, {"tensor", place.tensor}});
  }
  return {{"pipeline", shape.pipeline}, {"data", shape.data}, {"tensor", shape.tensor}, {"ranks", ranks}};
}

struct DevicesFlags {
  bool json = false;
  std::string mesh;
  std::optional<comm::MeshShape> shape;

  void run();
  void print_json(const std::vector<ops::DeviceInfo>& devices, const std::vector<comm::Availability>& communicators) const;
  void print_text(const std::vector<ops::DeviceInfo>& devices, const std::vector<comm::Availability>& communicators) const;
};

void DevicesFlags::print_json(const std::vector<ops::DeviceInfo>& devices, const std::vector<comm::Availability>& communicators) const {
  nlohmann::json result{{"devices", nlohmann::json::array()}, {"communicators", nlohmann::json::array()}};
  for (const ops::DeviceInfo& device : devices) result["devices"].push_back(to_json(device));
  for (const comm::Availability& one : communicators)
    result["communicators"].push_back({{"kind", one.kind}, {"usable", one.usable}, {"why", one.why}});
  if (shape) result["mesh"] = to_json(*shape);
  print_result("{}\n", result.dump());
}

void DevicesFlags::print_text(const std::vector<ops::DeviceInfo>& devices, const std::vector<comm::Availability>& communicators) const {
  for (const ops::DeviceInfo& device : devices) {
    print_result("{}  {}\n", device.selector, device.name);
    print_result("  backend      {} (driver {})\n", device.backend, device.driver);
    print_result("  memory       {}\n", memory_text(device.memory_bytes));
    print_result("  compute      {}, work-groups to {}, sub-groups of {}\n", plural(device.compute_units, "unit"), device.max_work_group,
                 device.sub_group);
    print_result("  bf16         {}\n", device.native_bf16 ? "in hardware" : "emulated (f32 is faster)");
    print_result("  layer math   {}\n", device.onednn ? "oneDNN and our kernels" : "our kernels (oneDNN has no engine for it)");
  }
  print_result("communicators\n");
  for (const comm::Availability& one : communicators)
    print_result("  {:<12} {}{}\n", one.kind, one.usable ? "" : "not available: ", one.why);
  if (shape) print_result("{}", shape->text());
}

void DevicesFlags::run() {
  if (!mesh.empty()) shape = comm::MeshShape::parse(mesh);
  const std::vector<ops::DeviceInfo> devices = ops::list_devices();
  const std::vector<comm::Availability> communicators = comm::available_communicators();
  json ? print_json(devices, communicators) : print_text(devices, communicators);
  if (devices.empty() && !json) print_note("ppengine: SYCL shows no device; is ONEAPI_DEVICE_SELECTOR set?\n");
}

}  // namespace

void add_devices(CLI::App& app) {
  auto* command = app.add_subcommand("devices", "List devices: backend, name, memory, what they support; how ranks can talk to each other");
  auto flags = std::make_shared<DevicesFlags>();
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->add_option("--mesh", flags->mesh, "Also show which rank goes where, for so many pipeline, data and tensor ranks")
      ->type_name("P,D,T");
  command->footer(
      "Examples:\n  ppengine devices\n  ppengine devices --mesh 4,2,1\n  ppengine devices --json | jq "
      "'.devices[].selector'\n  "
      "ONEAPI_DEVICE_SELECTOR=opencl:cpu ppengine devices");
  command->callback([flags] { flags->run(); });
}

}  // namespace ppengine::cli
