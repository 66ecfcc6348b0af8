// Devices as numbers: reading them, and what work takes.
#include <ppengine/engine/predict/device_model.hpp>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include <ppengine/base/error.hpp>
#include <ppengine/base/file.hpp>

namespace ppengine::engine {

extern const char* const devices_text;  // made from devices.json by CMake

namespace {

constexpr double tile = 128;  // rows and columns of a product's result that a unit works on at a time

double positive(const nlohmann::json& device, const char* key, double otherwise) {
  if (!device.contains(key) && otherwise >= 0) return otherwise;
  const double value = device.at(key).get<double>();
  if (!std::isfinite(value) || value <= 0) throw FileError(fmt::format("'{}' must be above 0, not {}", key, value));
  return value;
}

DeviceModel read_device(const nlohmann::json& device) {
  DeviceModel model;
  model.name = device.at("name").get<std::string>();
  model.title = device.value("title", model.name);
  model.source = device.value("source", "");
  for (const auto& [type, value] : device.at("peak").items()) model.peak[type] = positive(device.at("peak"), type.c_str(), -1);
  model.bandwidth = positive(device, "bandwidth", -1);
  model.link = positive(device, "link", -1);
  model.memory = positive(device, "memory", 1);
  model.products = positive(device, "products", 1);
  model.attention = positive(device, "attention", model.products);
  model.memory_reached = positive(device, "memory_reached", 1);
  model.units = device.value("units", 0);
  model.launch = device.value("launch", 0.0);
  model.product_launch = device.value("product_launch", 0.0);
  model.latency = device.value("latency", 0.0);
  return model;
}

std::vector<DeviceModel> read_devices(const std::string& text, const std::string& origin) try {
  std::vector<DeviceModel> models;
  const nlohmann::json file = nlohmann::json::parse(text);
  if (file.contains("devices"))
    for (const auto& one : file.at("devices")) models.push_back(read_device(one));
  else
    models.push_back(read_device(file));
  return models;
} catch (const nlohmann::json::exception& e) {
  throw FileError(fmt::format("{}: not a device description ({}); 'ppengine plan --on list' prints those that are known, in the same form",
                              origin, e.what()));
} catch (const FileError& e) {
  throw FileError(fmt::format("{}: {}", origin, e.what()));
}

}  // namespace

double DeviceModel::peak_of(const std::string& type) const {
  const auto found = peak.find(type);
  if (found != peak.end()) return found->second;
  std::vector<std::string> types;
  for (const auto& [known, value] : peak) types.push_back(known);
  throw ConfigError(fmt::format("{} has no figures for {}; it has {}", title, type, fmt::join(types, ", ")));
}

double DeviceModel::seconds(const Work& work, const std::string& type, int tensor_ranks) const {
  if (work.exchanged > 0) {
    const double steps = tensor_ranks - 1.0;
    return launch + latency * steps + work.exchanged * steps / tensor_ranks / (reduction > 0 ? reduction : link);
  }
  const double rate = cache_bandwidth > 0 && work.bytes <= cache ? cache_bandwidth : bandwidth * memory_reached;
  double arithmetic = 0;
  if (work.flops > 0) {
    arithmetic = work.flops / (peak_of(type) * (work.attention ? attention : products));
    if (units > 0 && work.columns > 0) {
      // The last round of tiles leaves units without work; a product of few tiles can be divided along its depth too, up to a point.
      const double tiles = std::ceil(work.rows / tile) * std::ceil(work.columns / tile);
      const double rounds = std::ceil(tiles / units), fill = std::max(tiles / (rounds * units), tiles < units ? 0.5 : 0.0);
      arithmetic /= fill;
    }
  }
  if (work.flops > 0 && !work.attention) arithmetic += product_launch;
  return launch + std::max(arithmetic, work.bytes / rate);
}

double DeviceModel::reduce_seconds(double bytes, int ranks) const {
  if (ranks < 2) return 0;
  return 2 * latency * (ranks - 1) + 2 * bytes * (ranks - 1) / ranks / (reduction > 0 ? reduction : link);
}

std::string known_devices_text() { return devices_text; }

const std::vector<DeviceModel>& known_devices() {
  static const std::vector<DeviceModel> all = read_devices(devices_text, "devices.json");
  return all;
}

DeviceModel find_device_model(const std::string& name_or_file) {
  const auto& known = known_devices();
  if (const auto found = std::ranges::find(known, name_or_file, &DeviceModel::name); found != known.end()) return *found;
  if (name_or_file.find_first_of("./") != std::string::npos) {
    auto models = read_devices(read_file(name_or_file, 1 << 20), name_or_file);
    if (models.size() != 1) throw FileError(fmt::format("{}: has {} devices; give a file with one", name_or_file, models.size()));
    return models.front();
  }
  std::vector<std::string> names;
  for (const DeviceModel& one : known) names.push_back(one.name);
  throw ConfigError(fmt::format("no figures for a device '{}': there are {}, or give a JSON file", name_or_file, fmt::join(names, ", ")));
}

}  // namespace ppengine::engine
