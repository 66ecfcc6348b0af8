// What libsycl-jit needs to compile for NVIDIA devices.
#include <ppengine/ops/device/nvidia_toolchain.hpp>

#include <array>
#include <cstdlib>
#include <stdexcept>

namespace ppengine::ops {

std::filesystem::path cuda_toolkit() {
  const std::array<const char*, 3> folders{std::getenv("CUDA_HOME"), std::getenv("CUDA_PATH"), "/usr/local/cuda"};
  for (const char* folder : folders)
    if (folder && std::filesystem::exists(std::filesystem::path(folder) / "nvvm/libdevice/libdevice.10.bc")) return folder;
  return {};
}

std::vector<std::string> nvidia_compile_options() {
  const std::filesystem::path toolkit = cuda_toolkit();
  if (toolkit.empty())
    throw std::runtime_error(
        "kernels for NVIDIA devices need the libdevice of a CUDA toolkit, and neither CUDA_HOME, CUDA_PATH nor /usr/local/cuda has "
        "nvvm/libdevice/libdevice.10.bc: install one (Debian: nvidia-cuda-toolkit; PyPI: nvidia-cuda-nvcc) and set CUDA_HOME");
  return {"--cuda-path=" + toolkit.string()};
}

}  // namespace ppengine::ops
