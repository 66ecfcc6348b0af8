// A device as a few numbers: enough to say how long counted work takes on it. From data sheets (devices.json), from a file of the user's,
// or measured on a device that is there.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <ppengine/comm/communicator.hpp>
#include <ppengine/engine/predict/work.hpp>
#include <ppengine/ops/device/stream.hpp>

namespace ppengine::engine {

struct DeviceModel {
  std::string name, title, source;
  std::map<std::string, double> peak;  // FLOP/s of products by type: f32, tf32, bf16, f16
  double products = 1;                 // share of it that a large product reaches
  double attention = 1;                // and that attention does
  int units = 0;                       // that each work on a tile of a product's result; 0: any product fills the device
  double bandwidth = 0;                // bytes/s of memory
  double memory_reached = 1;           // share of it that is reached
  double cache = 0;                    // bytes; what an instruction touches, where it is no more than these, moves at
  double cache_bandwidth = 0;          // bytes/s
  double launch = 0;                   // seconds that each instruction takes beside its work
  double product_launch = 0;           // and each product in addition: small ones are slower than their arithmetic says
  double link = 0, latency = 0;        // bytes/s and seconds of a message between neighbours
  double reduction = 0;                // bytes/s of collectives; 0: as the link
  double optimizer = 0;                // elements/s that AdamW updates; 0: as the bandwidth allows
  double memory = 0;                   // bytes

  // ConfigError where the device has no such type.
  double peak_of(const std::string& type) const;
  double seconds(const Work& work, const std::string& type, int tensor_ranks) const;
  // Of a sum over so many ranks.
  double reduce_seconds(double bytes, int ranks) const;
};

// The devices of devices.json.
const std::vector<DeviceModel>& known_devices();
// One of them by name, or the only one of a file in the same form. ConfigError that lists the names, FileError.
DeviceModel find_device_model(const std::string& name_or_file);
// The text of devices.json, which a file of one's own can start from.
std::string known_devices_text();

// The figures of a device that is there, by a few seconds of measurements. All ranks measure at the same time, so that what they share
// (cores, memory) is shared; the slowest counts.
DeviceModel measure_device(ops::Stream& stream, ops::Type type, comm::Communicator& world);
// The same device measured twice, before and after a run: a busy machine is not as fast at any time.
DeviceModel between(const DeviceModel& before, const DeviceModel& after);

}  // namespace ppengine::engine
