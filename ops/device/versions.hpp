// Which SYCL and oneDNN are in use.
#pragma once

#include <string>

namespace ppengine::ops {

std::string sycl_version();    // "9.0.0 (compiler 20260930)": of the headers, which the library's major version follows
std::string onednn_version();  // "3.13.2": of the library that was loaded

}  // namespace ppengine::ops
