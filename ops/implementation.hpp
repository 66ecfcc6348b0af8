// An op is a list of implementations: the first that accepts a spec is used, and every refusal has a reason.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
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

// For lists of implementations: one that takes everything, and the constructor of one as its `make`.
template <class Spec>
Refusal takes_all(const Device&, const Spec&) {
  return {};
}
template <class Op, class Interface, class Spec>
std::unique_ptr<Interface> construct(Device& device, const Spec& spec) {
  if constexpr (std::is_constructible_v<Op, Device&, const Spec&>)
    return std::make_unique<Op>(device, spec);
  else
    return std::make_unique<Op>(spec);
}

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

// The same for ops that something else carries out where no implementation takes them: null.
template <class Interface, class Spec>
std::unique_ptr<Interface> make_first_or_none(std::span<const Implementation<Interface, Spec>> list, Device& device, const Spec& spec) {
  for (const auto& one : list)
    if (!one.refusal(device, spec)) return one.make(device, spec);
  return nullptr;
}

template <class Interface, class Spec>
std::vector<Considered> consider(std::span<const Implementation<Interface, Spec>> list, const Device& device, const Spec& spec) {
  std::vector<Considered> considered;
  for (const auto& one : list) considered.push_back({one.name, one.refusal(device, spec)});
  return considered;
}

}  // namespace ppengine::ops
