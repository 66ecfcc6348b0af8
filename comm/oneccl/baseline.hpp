// oneCCL and MPI as they are, for measuring what our layer adds.
#pragma once

#include <mpi.h>
#include <oneapi/ccl.hpp>

#include <ppengine/comm/baseline.hpp>

namespace ppengine::comm::oneccl {

std::unique_ptr<Baseline> raw_oneccl(ccl::communicator comm);
std::unique_ptr<Baseline> raw_mpi(MPI_Comm comm);  // freed at the end

}  // namespace ppengine::comm::oneccl
