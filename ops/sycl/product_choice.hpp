// Which of our kernels makes a product, and in what work-groups.
#pragma once

#include <cstdint>
#include <string>

#include <ppengine/ops/device/type.hpp>
#include <ppengine/ops/kernels/matmul_shape.hpp>

namespace ppengine::ops::own {

struct ProductChoice {
  std::string file, kernel;
  std::size_t groups_y = 0, groups_x = 0, size_y = 0, size_x = 0;
};

// What counts of a device.
struct ProductUnits {
  bool tensor_cores;
  int count;  // multiprocessors
};

// in: of a and b; out: of c. aligned: a and b lie at multiples of 16 bytes.
ProductChoice choose_product(const ProductUnits& units, Type in, Type out, const MatmulShape& shape, std::int64_t batch, bool aligned);

}  // namespace ppengine::ops::own
