// The MPI library that oneCCL's CPU build rides on.
#pragma once

#include <mpi.h>

namespace ppengine::comm::oneccl {

// The tag of what ranks tell each other about their collectives. Messages have those above.
constexpr int collectives_tag = 0, first_message_tag = 1;

// Throws Error with MPI's own text.
void check(int result);

}  // namespace ppengine::comm::oneccl
