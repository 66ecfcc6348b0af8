// Activations, forward and backward. All are finite for every finite input: what grows is clamped where the result is flat.
#include "math.hpp"
#include "values.hpp"

struct Silu {
  static float forward(float x) { return x / (1.0f + fast_exp(-x)); }
  static float slope(float x) {
    const float s = fast_sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
  }
};

struct Relu {
  static float forward(float x) { return sycl::fmax(x, 0.0f); }
  static float slope(float x) { return x > 0.0f ? 1.0f : 0.0f; }
};

// x · (1 + tanh u) / 2 with u = k (x + c x³); (1 + tanh u) / 2 is fast_sigmoid(2u).
struct GeluTanh {
  static constexpr float k2 = 2.0f * 0.79788456080286535588f, c = 0.044715f;
  static float forward(float x) { return x / (1.0f + fast_exp(-k2 * x * (1.0f + c * x * x))); }
  static float slope(float x) {
    const float near = sycl::clamp(x, -12.0f, 12.0f);  // beyond, fast_sigmoid(2u) is 0 or 1 in f32
    const float s = fast_sigmoid(k2 * near * (1.0f + c * near * near));
    return s + near * s * (1.0f - s) * k2 * (1.0f + 3.0f * c * near * near);
  }
};

struct GeluErf {
  static constexpr float root_half = 0.70710678118654752440f, density = 0.39894228040143267794f;
  static float forward(float x) { return 0.5f * x * (1.0f + fast_erf(x * root_half)); }
  static float slope(float x) { return 0.5f * (1.0f + fast_erf(x * root_half)) + x * density * fast_exp(-0.5f * x * x); }
};

#define ACTIVATION(NAME, KIND, SUFFIX, T)                                                                        \
  KERNEL_1D NAME##_##SUFFIX(const T* src, T* dst, long count, long chunk) {                                      \
    for_chunk(count, chunk, [=](long i) { store(dst, i, KIND::forward(load(src, i))); });                        \
  }                                                                                                              \
  KERNEL_1D NAME##_backward_##SUFFIX(const T* src, const T* diff_dst, T* diff_src, long count, long chunk) {     \
    for_chunk(count, chunk, [=](long i) { store(diff_src, i, load(diff_dst, i) * KIND::slope(load(src, i))); }); \
  }
#define STAMP(SUFFIX, T)                     \
  ACTIVATION(gelu_tanh, GeluTanh, SUFFIX, T) \
  ACTIVATION(gelu_erf, GeluErf, SUFFIX, T)   \
  ACTIVATION(silu, Silu, SUFFIX, T)          \
  ACTIVATION(relu, Relu, SUFFIX, T)
FOR_EACH_TYPE(STAMP)
#undef STAMP
#undef ACTIVATION

// dst = silu(gate) · up; rows of gate and up lie `stride` apart.
#define STAMP(SUFFIX, T)                                                                                                                 \
  KERNEL_1D gated_silu_##SUFFIX(const T* gate, const T* up, T* dst, long rows, long width, long stride, long chunk) {                    \
    for_rows(rows, chunk, [=](long row) {                                                                                                \
      for_range(0, width, [=](long i) {                                                                                                  \
        const long at = row * stride + i;                                                                                                \
        store(dst, row * width + i, Silu::forward(load(gate, at)) * load(up, at));                                                       \
      });                                                                                                                                \
    });                                                                                                                                  \
  }                                                                                                                                      \
  KERNEL_1D gated_silu_backward_##SUFFIX(const T* gate, const T* up, const T* diff_dst, T* diff_gate, T* diff_up, long rows, long width, \
                                         long stride, long chunk) {                                                                      \
    for_rows(rows, chunk, [=](long row) {                                                                                                \
      for_range(0, width, [=](long i) {                                                                                                  \
        const long at = row * stride + i;                                                                                                \
        const float g = load(gate, at), u = load(up, at), d = load(diff_dst, row * width + i);                                           \
        store(diff_gate, at, d * u * Silu::slope(g));                                                                                    \
        store(diff_up, at, d * Silu::forward(g));                                                                                        \
      });                                                                                                                                \
    });                                                                                                                                  \
  }
FOR_EACH_TYPE(STAMP)
#undef STAMP
