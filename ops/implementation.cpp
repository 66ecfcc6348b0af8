// The error where no implementation takes a spec.
#include <ppengine/ops/implementation.hpp>

#include <fmt/core.h>

#include <ppengine/base/error.hpp>

namespace ppengine::ops {

void no_implementation(const char* op, const std::vector<Considered>& considered) {
  std::string reasons;
  for (const Considered& one : considered) reasons += fmt::format("\n  {}: {}", one.implementation, one.refusal.value_or("accepts"));
  throw ConfigError(fmt::format("no implementation of {} takes this case:{}", op, reasons));
}

}  // namespace ppengine::ops
