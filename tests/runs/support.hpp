// What the tests of whole runs share: ranks as threads, the figures of steps, stored tensors compared.
#pragma once

#include <boost/test/unit_test.hpp>

#include <functional>
#include <vector>

#include <ppengine/comm/threads.hpp>
#include <ppengine/models/files/safetensors.hpp>
#include <ppengine/runs/training.hpp>

#include "../compare.hpp"
#include "../ranks.hpp"

namespace ppengine::test {

inline std::vector<float> values(const models::StoredTensor& tensor) {
  std::vector<float> result(tensor.elements);
  models::read_f32(tensor, 0, tensor.elements, result.data());
  return result;
}

// The largest difference as a share of the largest expected value.
inline double difference(const models::StoredTensor& found, const models::StoredTensor& expected) {
  const auto a = values(found), b = values(expected);
  BOOST_REQUIRE_EQUAL(a.size(), b.size());
  return largest_share(a, b, 1e-2);
}

inline void on_ranks(const engine::ParallelOptions& options, const std::function<void(comm::Communicator&)>& rank) {
  comm::LocalOptions local;
  for (int r = 0; r < options.mesh().size(); ++r)
    local.devices.push_back(options.devices.empty() ? options.device
                                                    : options.devices[static_cast<std::size_t>(r) % options.devices.size()]);
  comm::run_threads(options.mesh().size(), local, rank);
}

// Hears the figures of every step.
struct Steps final : runs::TrainingListener {
  std::vector<double> losses, norms;
  void stepped(const engine::StepResult& step, std::size_t) override {
    losses.push_back(step.loss);
    norms.push_back(step.grad_norm);
  }
};

}  // namespace ppengine::test
