// An op is a list of implementations: the first that accepts a spec is used, and every refusal has a reason.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ppengine/ops/device/device.hpp>

namespace ppengine::ops {

// Empty: the implementation takes it. Otherwise why not, as a phrase: "oneDNN is switched off".
using Refusal = std::optional<std::string>;

template <class Interface, class Spec>
struct Implementation {
  const char* name;  // "onednn", "sycl"
  Refusal (*refusal)(const Device&, const Spec&);
  std::unique_ptr<Interface> (*make)(Device&, const Spec&);
};

// One line of `ppengine bench ops --explain`.
struct Considered {
  std::string implementation;
  Refusal refusal;
};

[[noreturn]] void no_implementation(const char* op, const std::vector<Considered>& considered);

template <class Interface, class Spec>
std::unique_ptr<Interface> make_first(const char* op, std::span<const Implementation<Interface, Spec>> list, Device& device,
                                      const Spec& spec) {
  std::vector<Considered> considered;
  for (const auto& one : list) {
    Refusal refusal = one.refusal(device, spec);
    if (!refusal) return one.make(device, spec);
    considered.push_back({one.name, std::move(refusal)});
  }
  no_implementation(op, considered);
}

template <class Interface, class Spec>
std::vector<Considered> consider(std::span<const Implementation<Interface, Spec>> list, const Device& device, const Spec& spec) {
  std::vector<Considered> considered;
  for (const auto& one : list) considered.push_back({one.name, one.refusal(device, spec)});
  return considered;
}

}  // namespace ppengine::ops
