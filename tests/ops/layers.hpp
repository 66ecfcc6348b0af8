// What the tests of norms, activations, softmax and losses share: reference values from PyTorch, every implementation of an op.
#pragma once

#include <nlohmann/json.hpp>

#include <fstream>

#include <ppengine/ops/implementation.hpp>

#include "support.hpp"

namespace ppengine::ops::support {

// The cases that tests/ops/reference/make_reference_layers.py computed with PyTorch.
inline nlohmann::json reference(const std::string& name) {
  std::ifstream file(std::string(PPENGINE_SOURCE_DIR) + "/tests/ops/reference/" + name + ".json");
  BOOST_REQUIRE_MESSAGE(file, "tests/ops/reference/" << name << ".json is missing");
  return nlohmann::json::parse(file);
}
inline std::vector<float> floats(const nlohmann::json& values) { return values.get<std::vector<float>>(); }

template <class Op>
struct Made {
  std::string name;
  std::unique_ptr<Op> op;
};

// Every implementation that accepts the spec.
template <class Op, class Spec>
std::vector<Made<Op>> every_implementation(Device& device, const Spec& spec) {
  std::vector<Made<Op>> all;
  for (const auto& one : Op::implementations())
    if (!one.refusal(device, spec)) all.push_back({one.name, one.make(device, spec)});
  BOOST_REQUIRE(!all.empty());
  return all;
}

inline double tolerance(Type type, double f32 = 2e-6) { return type == Type::f32 ? f32 : 1.0 / 128; }

inline std::string label(const std::string& what, Type type, std::int64_t rows, std::int64_t width) {
  return what + " " + name_of(type) + " [" + std::to_string(rows) + "," + std::to_string(width) + "]";
}

}  // namespace ppengine::ops::support
