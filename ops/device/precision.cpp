// In which type a device computes where nobody has said so.
#include <ppengine/ops/device/precision.hpp>

namespace ppengine::ops {

Type default_type(const DeviceInfo& device) { return !device.is_cpu && device.native_bf16 ? Type::bf16 : Type::f32; }

bool has_bf16_units(std::string_view backend, int architecture) {
  if (backend == "cuda") return architecture >= 80;
  // CDNA from gfx908 on, RDNA from gfx1100 on; gfx909 and gfx90c have none, nor have gfx10xx.
  if (backend == "hip")
    return architecture == 0x908 || architecture == 0x90a || (architecture >= 0x940 && architecture < 0x1000) || architecture >= 0x1100;
  return false;
}

}  // namespace ppengine::ops
