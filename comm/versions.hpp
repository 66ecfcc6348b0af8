// Which oneCCL this was built for.
#pragma once

#include <string>

namespace ppengine::comm {

// "2022.1.0": of the headers, since the library is loaded only when ranks are processes. "none" where it was built
// without.
std::string oneccl_version();

}  // namespace ppengine::comm
