// The MPI library that oneCCL's CPU build rides on.
#include <ppengine/comm/oneccl/mpi.hpp>

#include <string>

#include <ppengine/base/error.hpp>

namespace ppengine::comm::oneccl {

void check(int result) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(result, text, &length);
  throw Error(std::string(text, static_cast<std::size_t>(length)));
}

}  // namespace ppengine::comm::oneccl
