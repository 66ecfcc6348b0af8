// A oneDNN primitive that is made once and then run on pointers, without building or allocating anything.
#pragma once

#include <initializer_list>
#include <vector>

#include <ppengine/ops/detail/sycl.hpp>
#include <ppengine/ops/device/type.hpp>
#include <ppengine/ops/implementation.hpp>

namespace ppengine::ops::onednn {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;

dnnl::memory::data_type data_type(Type type);
// Why oneDNN cannot serve this device at all.
Refusal device_refusal(const Device& device);

class Primitive {
 public:
  struct Argument {
    int index;  // DNNL_ARG_...
    Desc desc;
  };

  Primitive() = default;
  // The descriptor must have been made with attributes().
  template <class PrimitiveDesc>
  Primitive(const Device& device, const PrimitiveDesc& desc, std::initializer_list<Argument> arguments)
      : Primitive(device, dnnl::primitive(desc.get()), desc.scratchpad_desc(), arguments) {}

  static dnnl::primitive_attr attributes();
  explicit operator bool() const { return count_ != 0; }
  // data: pointers in the order of the arguments.
  void run(Stream& stream, std::initializer_list<const void*> data);

 private:
  Primitive(const Device& device, dnnl::primitive primitive, const Desc& scratchpad, std::initializer_list<Argument> arguments);

  // oneDNN reads a memory object's pointer when the work runs, not when it is submitted: an object may be pointed elsewhere only when
  // its last use is done. On CPUs a stream has fewer submissions outstanding than there are sets here; on GPUs oneDNN reads the pointers
  // when it submits.
  static constexpr std::size_t sets = 2 * Stream::Impl::outstanding_on_cpus;
  static constexpr std::size_t max_arguments = 10;

  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memories_;  // sets × count
  std::vector<int> indices_;
  std::size_t count_ = 0;
  std::size_t next_ = 0;
  std::size_t scratch_bytes_ = 0;
};

// Matrix product a[..,m,k] · b[..,k,n] -> c[..,m,n] with what is fused behind it: c = alpha · (a·b + bias) + add (+ c).
struct Product {
  Desc a, b, c;
  Desc bias;  // zero: none
  Desc add;   // zero: none; must not be c's memory: use accumulate for that
  float alpha = 1.0f;
  bool accumulate = false;
};

// Takes (a, b, c[, bias][, add]).
Primitive make_product(const Device& device, const Product& product);
// Why oneDNN would not serve it, or would only with its reference code.
Refusal product_refusal(const Device& device, const Product& product);

}  // namespace ppengine::ops::onednn
