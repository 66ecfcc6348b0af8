// Running oneDNN primitives through its C interface, which takes plain arrays.
#include <ppengine/ops/onednn/primitive.hpp>

#include <fmt/core.h>

#include <array>
#include <string_view>

#include <ppengine/base/error.hpp>

namespace ppengine::ops::onednn {

dnnl::memory::data_type data_type(Type type) {
  switch (type) {
    case Type::f32:
      return dnnl::memory::data_type::f32;
    case Type::bf16:
      return dnnl::memory::data_type::bf16;
    default:
      return dnnl::memory::data_type::s32;
  }
}

Refusal device_refusal(const Device& device) {
  if (device.onednn()) return {};
  return device.info().onednn ? "oneDNN is switched off" : "oneDNN has no engine for this device";
}

dnnl::primitive_attr Primitive::attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

Primitive::Primitive(const Device& device, dnnl::primitive primitive, const Desc& scratchpad, std::initializer_list<Argument> arguments)
    : primitive_(std::move(primitive)), count_(arguments.size() + 1), scratch_bytes_(scratchpad.get_size()) {
  PPENGINE_ASSERT(count_ <= max_arguments);
  const auto& engine = device.impl().engine.value();
  const auto none = dnnl::sycl_interop::memory_kind::usm;
  for (const Argument& argument : arguments) indices_.push_back(argument.index);
  indices_.push_back(DNNL_ARG_SCRATCHPAD);
  for (std::size_t i = 0; i < sets; ++i) {
    for (const Argument& argument : arguments)
      memories_.push_back(dnnl::sycl_interop::make_memory(argument.desc, engine, none, DNNL_MEMORY_NONE));
    memories_.push_back(dnnl::sycl_interop::make_memory(scratchpad, engine, none, DNNL_MEMORY_NONE));
  }
}

void Primitive::run(Stream& stream, std::initializer_list<const void*> data) {
  PPENGINE_ASSERT(data.size() + 1 == count_);
  auto& impl = stream.impl();
  std::array<dnnl_exec_arg_t, max_arguments> arguments;
  const dnnl::memory* const memories = &memories_[next_ * count_];
  next_ = (next_ + 1) % sets;
  const auto point = [&](std::size_t i, const void* pointer) {
    dnnl_memory_set_data_handle(memories[i].get(), const_cast<void*>(pointer));
    arguments[i] = {indices_[i], memories[i].get()};
  };
  std::size_t i = 0;
  for (const void* pointer : data) point(i++, pointer);
  point(i, scratch_bytes_ ? impl.scratch(scratch_bytes_) : nullptr);

  sycl::event event;
  const auto status = dnnl_sycl_interop_primitive_execute(primitive_.get(), impl.dnnl.value().get(), static_cast<int>(count_),
                                                          arguments.data(), &impl.host_task_dependencies(), &event);
  if (status != dnnl_success)
    throw DeviceError(
        fmt::format("oneDNN failed to run a primitive on {}: status {}", stream.device().info().name, static_cast<int>(status)),
        ExitCode::failed);
  impl.submitted({std::move(event), stream.device().info().is_cpu});
}

namespace {

dnnl::matmul::primitive_desc describe(const Device& device, const Product& product, bool allow_empty = false) {
  auto attributes = Primitive::attributes();
  dnnl::post_ops after;
  if (product.alpha != 1.0f) after.append_eltwise(dnnl::algorithm::eltwise_linear, product.alpha, 0.0f);
  if (!product.add.is_zero()) after.append_binary(dnnl::algorithm::binary_add, product.add);
  if (product.accumulate) after.append_sum(1.0f);
  attributes.set_post_ops(after);
  const auto& engine = device.impl().engine.value();
  if (product.bias.is_zero()) return {engine, product.a, product.b, product.c, attributes, allow_empty};
  return {engine, product.a, product.b, product.bias, product.c, attributes, allow_empty};
}

}  // namespace

Primitive make_product(const Device& device, const Product& product) {
  const auto desc = describe(device, product);
  const int add = DNNL_ARG_ATTR_MULTIPLE_POST_OP(product.alpha != 1.0f ? 1 : 0) | DNNL_ARG_SRC_1;
  const Primitive::Argument a{DNNL_ARG_SRC, product.a}, b{DNNL_ARG_WEIGHTS, product.b}, c{DNNL_ARG_DST, product.c};
  if (product.bias.is_zero() && product.add.is_zero()) return {device, desc, {a, b, c}};
  if (product.add.is_zero()) return {device, desc, {a, b, c, {DNNL_ARG_BIAS, product.bias}}};
  if (product.bias.is_zero()) return {device, desc, {a, b, c, {add, product.add}}};
  return {device, desc, {a, b, c, {DNNL_ARG_BIAS, product.bias}, {add, product.add}}};
}

Refusal product_refusal(const Device& device, const Product& product) {
  if (auto refusal = device_refusal(device)) return refusal;
  const auto desc = describe(device, product, true);
  if (!desc) return "oneDNN has no matmul for these types and strides";
  if (std::string_view(desc.impl_info_str()).starts_with("ref")) return "oneDNN has only its reference code for these types and strides";
  return {};
}

}  // namespace ppengine::ops::onednn
