// Convolution by oneDNN: in the layouts that it likes best, with reorders from and to dense ones.
#include <algorithm>

#include <ppengine/ops/detail/implementations.hpp>
#include <ppengine/ops/elementwise.hpp>
#include <ppengine/ops/onednn/primitive.hpp>

namespace ppengine::ops {
namespace {

using onednn::Desc;
using onednn::Dims;
using onednn::Primitive;

Desc dense(const Dims& dims) {
  Dims strides(dims.size());
  std::int64_t stride = 1;
  for (std::size_t i = dims.size(); i-- > 0;) strides[i] = stride, stride *= std::max<std::int64_t>(dims[i], 1);
  return {dims, dnnl::memory::data_type::f32, strides};
}
Desc any(const Dims& dims) { return {dims, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any}; }

Dims with(std::initializer_list<std::int64_t> front, const std::vector<std::int64_t>& spatial) {
  Dims dims(front);
  dims.insert(dims.end(), spatial.begin(), spatial.end());
  return dims;
}

// A tensor that lies dense outside and in another layout inside of a primitive.
struct Moved {
  Moved() = default;
  Moved(const Device& device, const Desc& outside, const Desc& inside) : bytes(outside == inside ? 0 : align_up(inside.get_size())) {
    if (bytes == 0) return;
    const auto& engine = device.impl().engine.value();
    in = Primitive(device, dnnl::reorder::primitive_desc(engine, outside, engine, inside, Primitive::attributes()),
                   {{DNNL_ARG_FROM, outside}, {DNNL_ARG_TO, inside}});
    out = Primitive(device, dnnl::reorder::primitive_desc(engine, inside, engine, outside, Primitive::attributes()),
                    {{DNNL_ARG_FROM, inside}, {DNNL_ARG_TO, outside}});
  }
  const void* read(Stream& stream, const void* from, std::byte*& room) {
    if (bytes == 0) return from;
    void* const to = room;
    room += bytes;
    in.run(stream, {from, to});
    return to;
  }
  void* place(void* to, std::byte*& room) const {
    if (bytes == 0) return to;
    void* const inside = room;
    room += bytes;
    return inside;
  }
  void finish(Stream& stream, const void* inside, void* to) {
    if (bytes > 0) out.run(stream, {inside, to});
  }
  std::size_t bytes = 0;
  Primitive in, out;
};

class OnednnConvolution final : public Convolution {
 public:
  OnednnConvolution(Device& device, const ConvolutionSpec& spec) : weights_(1), outs_(spec.out_channels) {
    const auto& engine = device.impl().engine.value();
    const Dims src = with({spec.batch, spec.in_channels}, spec.src), dst = with({spec.batch, spec.out_channels}, spec.dst);
    const std::int64_t in = spec.in_channels / spec.groups, out = spec.out_channels / spec.groups;
    const Dims weight = spec.groups > 1 ? with({spec.groups, out, in}, spec.kernel) : with({out, in}, spec.kernel), bias{spec.out_channels};
    for (std::int64_t one : weight) weights_ *= one;
    Dims dilation;
    for (std::int64_t one : spec.dilation) dilation.push_back(one - 1);
    // What is behind the last window belongs to no output: negative padding is allowed there.
    Dims after;
    for (std::size_t i = 0; i < spec.src.size(); ++i)
      after.push_back((spec.dst[i] - 1) * spec.stride[i] + (spec.kernel[i] - 1) * spec.dilation[i] + 1 - spec.src[i] - spec.padding[i]);
    const auto how = dnnl::algorithm::convolution_direct;
    const auto attributes = Primitive::attributes();
    const Desc b = dense(bias), none;
    const dnnl::convolution_forward::primitive_desc forward(engine, dnnl::prop_kind::forward_training, how, any(src), any(weight),
                                                            spec.bias ? b : none, any(dst), spec.stride, dilation, spec.padding, after,
                                                            attributes);
    const dnnl::convolution_backward_data::primitive_desc to_src(engine, how, any(src), any(weight), any(dst), spec.stride, dilation,
                                                                 spec.padding, after, forward, attributes);
    const dnnl::convolution_backward_weights::primitive_desc to_weight(engine, how, any(src), any(weight), b, any(dst), spec.stride,
                                                                       dilation, spec.padding, after, forward, attributes);
    const Desc s = dense(src), w = dense(weight), d = dense(dst);
    if (spec.bias)
      forward_ = Primitive(device, forward,
                           {{DNNL_ARG_SRC, forward.src_desc()},
                            {DNNL_ARG_WEIGHTS, forward.weights_desc()},
                            {DNNL_ARG_BIAS, b},
                            {DNNL_ARG_DST, forward.dst_desc()}});
    else
      forward_ =
          Primitive(device, forward,
                    {{DNNL_ARG_SRC, forward.src_desc()}, {DNNL_ARG_WEIGHTS, forward.weights_desc()}, {DNNL_ARG_DST, forward.dst_desc()}});
    forward_src_ = Moved(device, s, forward.src_desc()), forward_weight_ = Moved(device, w, forward.weights_desc()),
    forward_dst_ = Moved(device, d, forward.dst_desc());
    to_src_ = Primitive(device, to_src,
                        {{DNNL_ARG_DIFF_DST, to_src.diff_dst_desc()},
                         {DNNL_ARG_WEIGHTS, to_src.weights_desc()},
                         {DNNL_ARG_DIFF_SRC, to_src.diff_src_desc()}});
    data_dst_ = Moved(device, d, to_src.diff_dst_desc()), data_weight_ = Moved(device, w, to_src.weights_desc()),
    data_src_ = Moved(device, s, to_src.diff_src_desc());
    to_weight_ = Primitive(device, to_weight,
                           {{DNNL_ARG_SRC, to_weight.src_desc()},
                            {DNNL_ARG_DIFF_DST, to_weight.diff_dst_desc()},
                            {DNNL_ARG_DIFF_WEIGHTS, to_weight.diff_weights_desc()},
                            {DNNL_ARG_DIFF_BIAS, b}});
    grad_src_ = Moved(device, s, to_weight.src_desc()), grad_dst_ = Moved(device, d, to_weight.diff_dst_desc()),
    grad_weight_ = Moved(device, w, to_weight.diff_weights_desc());
    bias_ = spec.bias;
  }

  std::size_t weight_bytes() const { return align_up(static_cast<std::size_t>(weights_) * sizeof(float)); }
  std::size_t bias_bytes() const { return align_up(static_cast<std::size_t>(outs_) * sizeof(float)); }
  std::size_t workspace_bytes() const override {
    return std::max({forward_src_.bytes + forward_weight_.bytes + forward_dst_.bytes,
                     data_dst_.bytes + data_weight_.bytes + data_src_.bytes,
                     grad_src_.bytes + grad_dst_.bytes + grad_weight_.bytes + weight_bytes() + bias_bytes()});
  }
  void forward(Stream& stream, const void* src, const void* weight, const void* bias, void* dst, void* workspace) override {
    auto* room = static_cast<std::byte*>(workspace);
    const void *s = forward_src_.read(stream, src, room), *w = forward_weight_.read(stream, weight, room);
    void* const d = forward_dst_.place(dst, room);
    if (bias_)
      forward_.run(stream, {s, w, bias, d});
    else
      forward_.run(stream, {s, w, d});
    forward_dst_.finish(stream, d, dst);
  }
  void backward_input(Stream& stream, const void* diff_dst, const void* weight, void* diff_src, void* workspace) override {
    auto* room = static_cast<std::byte*>(workspace);
    const void *d = data_dst_.read(stream, diff_dst, room), *w = data_weight_.read(stream, weight, room);
    void* const s = data_src_.place(diff_src, room);
    to_src_.run(stream, {d, w, s});
    data_src_.finish(stream, s, diff_src);
  }
  void backward_weight(Stream& stream, const void* src, const void* diff_dst, float* diff_weight, float* diff_bias, bool accumulate,
                       void* workspace) override {
    auto* room = static_cast<std::byte*>(workspace);
    const void *s = grad_src_.read(stream, src, room), *d = grad_dst_.read(stream, diff_dst, room);
    void* const plain = accumulate ? static_cast<void*>(room) : diff_weight;
    if (accumulate) room += weight_bytes();
    void* const bias = accumulate || !diff_bias ? static_cast<void*>(room) : diff_bias;
    if (accumulate || !diff_bias) room += bias_bytes();
    void* const w = grad_weight_.place(plain, room);
    to_weight_.run(stream, {s, d, w, bias});
    grad_weight_.finish(stream, w, plain);
    if (!accumulate) return;
    add(stream, Type::f32, diff_weight, plain, diff_weight, weights_);
    if (diff_bias) add(stream, Type::f32, diff_bias, bias, diff_bias, outs_);
  }

 private:
  std::int64_t weights_, outs_;
  bool bias_ = false;
  Primitive forward_, to_src_, to_weight_;
  Moved forward_src_, forward_weight_, forward_dst_, data_dst_, data_weight_, data_src_, grad_src_, grad_dst_, grad_weight_;
};

Refusal refuse(const Device& device, const ConvolutionSpec& spec) {
  if (auto reason = onednn::device_refusal(device)) return reason;
  if (spec.batch == 0) return "oneDNN takes no empty tensors";
  return {};
}

}  // namespace

constexpr Implementation<Convolution, ConvolutionSpec> onednn_convolution{"onednn", refuse, construct<OnednnConvolution>};

}  // namespace ppengine::ops
