// A slower link in front of any communicator, for measurements on one machine: what is received, and collectives, take as long as the link
// would need, one after the other. The time counts from when the data is there and somebody waits for it.
#pragma once

#include <memory>

#include <ppengine/comm/local.hpp>

namespace ppengine::comm {

// `inner` must outlive it. Groups that are split off share the link.
std::unique_ptr<Communicator> limit_link(Communicator& inner, const SimulatedLink& link);

}  // namespace ppengine::comm
