// Convolution from its definition: one work-item for each element of the output, of the input's gradient, of the weight's gradient.
#include <ppengine/engine/tensor/plain_convolution.hpp>

namespace ppengine::engine {
namespace {

// One to three spatial dimensions are seen as three, the missing ones in front of size 1.
constexpr const char* names =
    "const long C = q.n[17], O = q.n[18], CG = q.n[19], OG = q.n[20];\n"
    "const long D = q.n[21], H = q.n[22], W = q.n[23], OD = q.n[24], OH = q.n[25], OW = q.n[26], KD = q.n[27], KH = q.n[28], KW = "
    "q.n[29];\n"
    "const long SD = q.n[30], SH = q.n[31], SW = q.n[32], PD = q.n[33], PH = q.n[34], PW = q.n[35], DD = q.n[36], DH = q.n[37], DW = "
    "q.n[38];\n";
constexpr const char* forward_body =
    "const long x = i % OW, y = i / OW % OH, z = i / (OW * OH) % OD, o = i / (OW * OH * OD) % O, n = i / (OW * OH * OD * O), first = o / "
    "OG * CG;\n"
    "const float* w = (const float*)p1 + o * CG * KD * KH * KW; float sum = q.n[39] ? ((const float*)p2)[o] : 0.0f;\n"
    "for (long c = 0; c < CG; ++c) for (long a = 0; a < KD; ++a) { const long d = z * SD - PD + a * DD; if (d < 0 || d >= D) continue;\n"
    "for (long b = 0; b < KH; ++b) { const long h = y * SH - PH + b * DH; if (h < 0 || h >= H) continue;\n"
    "for (long e = 0; e < KW; ++e) { const long v = x * SW - PW + e * DW; if (v < 0 || v >= W) continue;\n"
    "sum += ((const float*)p0)[(((n * C + first + c) * D + d) * H + h) * W + v] * w[((c * KD + a) * KH + b) * KW + e]; } } }\n"
    "((float*)p3)[i] = sum;";
constexpr const char* input_body =
    "const long v = i % W, h = i / W % H, d = i / (W * H) % D, c = i / (W * H * D) % C, n = i / (W * H * D * C), group = c / CG; float sum "
    "= 0;\n"
    "for (long a = 0; a < KD; ++a) { const long t = d + PD - a * DD; if (t < 0 || t % SD || t / SD >= OD) continue;\n"
    "for (long b = 0; b < KH; ++b) { const long s = h + PH - b * DH; if (s < 0 || s % SH || s / SH >= OH) continue;\n"
    "for (long e = 0; e < KW; ++e) { const long r = v + PW - e * DW; if (r < 0 || r % SW || r / SW >= OW) continue;\n"
    "for (long o = group * OG; o < (group + 1) * OG; ++o)\n"
    "sum += ((const float*)p0)[(((n * O + o) * OD + t / SD) * OH + s / SH) * OW + r / SW] * ((const float*)p1)[(((o * CG + c % CG) * KD + "
    "a) * KH + b) * KW + e]; } } }\n"
    "((float*)p2)[i] = sum;";
constexpr const char* weight_body =
    "const long e = i % KW, b = i / KW % KH, a = i / (KW * KH) % KD, c = i / (KW * KH * KD) % CG, o = i / (KW * KH * KD * CG), from = o / "
    "OG * CG + c; float sum = 0;\n"
    "for (long n = 0; n < q.n[16]; ++n) for (long z = 0; z < OD; ++z) { const long d = z * SD - PD + a * DD; if (d < 0 || d >= D) "
    "continue;\n"
    "for (long y = 0; y < OH; ++y) { const long h = y * SH - PH + b * DH; if (h < 0 || h >= H) continue;\n"
    "for (long x = 0; x < OW; ++x) { const long v = x * SW - PW + e * DW; if (v < 0 || v >= W) continue;\n"
    "sum += ((const float*)p0)[(((n * C + from) * D + d) * H + h) * W + v] * ((const float*)p1)[(((n * O + o) * OD + z) * OH + y) * OW + "
    "x]; } } }\n"
    "((float*)p2)[i] = q.f[1] != 0.0f ? ((float*)p2)[i] + sum : sum;";
constexpr const char* bias_body =
    "const long places = OD * OH * OW; float sum = 0;\n"
    "for (long n = 0; n < q.n[16]; ++n) for (long x = 0; x < places; ++x) sum += ((const float*)p0)[(n * O + i) * places + x];\n"
    "((float*)p1)[i] = q.f[1] != 0.0f ? ((float*)p1)[i] + sum : sum;";

class PlainConvolution final : public ops::Convolution {
 public:
  PlainConvolution(const Kernels& kernels, const ops::ConvolutionSpec& spec) {
    std::vector<std::int64_t> numbers{spec.batch, spec.in_channels, spec.out_channels, spec.in_channels / spec.groups,
                                      spec.out_channels / spec.groups};
    const auto add = [&](const std::vector<std::int64_t>& sizes, std::int64_t missing) {
      numbers.insert(numbers.end(), 3 - sizes.size(), missing);
      numbers.insert(numbers.end(), sizes.begin(), sizes.end());
    };
    add(spec.src, 1), add(spec.dst, 1), add(spec.kernel, 1), add(spec.stride, 1), add(spec.padding, 0), add(spec.dilation, 1);
    numbers.push_back(spec.bias ? 1 : 0);
    const auto product = [](const std::vector<std::int64_t>& sizes) {
      std::int64_t count = 1;
      for (std::int64_t one : sizes) count *= one;
      return count;
    };
    const auto make = [&](std::int64_t count, int pointers, const char* body) {
      return make_loop(kernels, count, pointers, std::string(names) + body, numbers);
    };
    forward_ = make(spec.batch * spec.out_channels * product(spec.dst), 4, forward_body);
    to_input_ = make(spec.batch * spec.in_channels * product(spec.src), 3, input_body);
    to_weight_ = make(spec.out_channels * (spec.in_channels / spec.groups) * product(spec.kernel), 3, weight_body);
    to_bias_ = make(spec.out_channels, 2, bias_body);
  }
  std::size_t workspace_bytes() const override { return 0; }
  void forward(ops::Stream& stream, const void* src, const void* weight, const void* bias, void* dst, void*) override {
    forward_(stream, {const_cast<void*>(src), const_cast<void*>(weight), const_cast<void*>(bias), dst});
  }
  void backward_input(ops::Stream& stream, const void* diff_dst, const void* weight, void* diff_src, void*) override {
    to_input_(stream, {const_cast<void*>(diff_dst), const_cast<void*>(weight), diff_src});
  }
  void backward_weight(ops::Stream& stream, const void* src, const void* diff_dst, float* diff_weight, float* diff_bias, bool accumulate,
                       void*) override {
    to_weight_(stream, {const_cast<void*>(src), const_cast<void*>(diff_dst), diff_weight}, accumulate ? 1.0f : 0.0f);
    if (diff_bias) to_bias_(stream, {const_cast<void*>(diff_dst), diff_bias}, accumulate ? 1.0f : 0.0f);
  }

 private:
  Launch forward_, to_input_, to_weight_, to_bias_;
};

}  // namespace

std::shared_ptr<ops::Convolution> make_plain_convolution(const Kernels& kernels, const ops::ConvolutionSpec& spec) {
  return std::make_shared<PlainConvolution>(kernels, spec);
}

}  // namespace ppengine::engine
