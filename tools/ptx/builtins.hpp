// The built-in functions for NVIDIA that libsycl-jit carries inside but looks for in the file system.
#pragma once

namespace ppengine::tools {

// After this the compiler finds them in this process, without root and without a file. Throws std::runtime_error where the loaded
// libsycl-jit.so has none.
void serve_builtins();

}  // namespace ppengine::tools
