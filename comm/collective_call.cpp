// The arguments of a collective, which all its ranks must give alike.
#include <ppengine/comm/collective_call.hpp>

#include <fmt/core.h>

namespace ppengine::comm {

const char* CollectiveCall::name() const {
  constexpr const char* names[] = {"allreduce", "reduce_scatter", "all_gather", "broadcast"};
  return names[static_cast<std::size_t>(kind)];
}

std::string CollectiveCall::text() const {
  if (kind == Kind::broadcast) return fmt::format("broadcast of {} bytes from rank {}", bytes(), root);
  if (kind == Kind::all_gather) return fmt::format("all_gather of {} {}", count, type.name());
  return fmt::format("{} of {} {} ({})", name(), count, type.name(), name_of(reduce));
}

std::size_t CollectiveCall::link_bytes(int ranks) const {
  const auto others = static_cast<std::size_t>(ranks) - 1;
  if (kind == Kind::broadcast) return bytes();
  return kind == Kind::allreduce ? 2 * bytes() * others / static_cast<std::size_t>(ranks) : bytes() * others;
}

}  // namespace ppengine::comm
