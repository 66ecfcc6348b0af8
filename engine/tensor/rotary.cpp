// Rotary embedding over views of projections: one map forward, one backward.
#include <bit>

#include <ppengine/engine/tensor/builder.hpp>

namespace ppengine::engine {
namespace {

// The last dimension as two halves; and those the other way round.
TensorRef halves(TensorBuilder& build, const TensorRef& src) {
  Dims shape = src.shape;
  shape.back() = shape.back() / Dim(2);
  shape.insert(shape.end() - 1, Dim(2));
  return build.reshape(src, shape);
}
Access exchanged(Access access) {
  const std::size_t at = access.strides.size() - 2;
  access.offset += access.strides[at];
  access.strides[at] = -access.strides[at];
  return access;
}

}  // namespace

// Per element of a half: first · cos - second · sin, and second · cos + first · sin, with the cosines and sines of each half.
TensorRef TensorBuilder::rotary(const TensorRef& src, const TensorRef& cosines, const TensorRef& sines) {
  // [batch, tokens, heads, 2, half]: as attention wants it, whatever lies in memory.
  const std::vector<int> order{0, 2, 1, 3};
  const TensorRef x = halves(*this, permute(read(src), order)), c = halves(*this, permute(expand(read(cosines), src.shape), order)),
                  s = halves(*this, permute(expand(read(sines), src.shape), order));
  const TensorRef sign = constant({std::bit_cast<std::int32_t>(-1.0f), std::bit_cast<std::int32_t>(1.0f)}, {2, 1}, 'f');
  const auto compile = [=](const TensorCompile& compiled) {
    const std::int64_t samples = compiled.samples;
    const auto dims = at(x.shape, samples);
    const auto of = [=](const TensorRef& one) { return access_of(one, x.shape, samples); };
    const auto forward = [=](Emitter& emit) {
      const Launch launch = make_map(emit.kernels(), {.dims = dims,
                                                      .inputs = {of(x), exchanged(of(x)), of(c), of(s), of(sign)},
                                                      .outputs = {dense_access(dims)},
                                                      .code = "      r0 = v0 * v2 + v1 * v4 * v3;\n"});
      const BufferId from = emit.input(0);
      emit_launch(emit, true, launch, {from, from, emit.input(1), emit.input(2), emit.input(3)}, {emit.output()});
    };
    const auto backward = [=](Emitter& emit) {
      if (!emit.wants_gradient(0)) return;
      const Access whole = dense_access(dims);
      const BufferId g = emit.output_gradient(),
                     full = emit.workspace(static_cast<std::size_t>(count_of(x.shape).at(samples)) * sizeof(float));
      // Turned back: what the other half got of an element comes with that half's sine.
      const Launch launch = make_map(emit.kernels(), {.dims = dims,
                                                      .inputs = {whole, exchanged(whole), of(c), exchanged(of(s)), exchanged(of(sign))},
                                                      .outputs = {whole},
                                                      .code = "      r0 = v0 * v2 + v1 * v4 * v3;\n"});
      emit_launch(emit, false, launch, {g, g, emit.input(1), emit.input(2), emit.input(3)}, {full});
      give_gradient(emit, 0, x, x.shape, samples, full);
    };
    return TensorEmission{forward, backward};
  };
  const TensorRef made = add_node("rotary", {x, c, s, sign}, {}, x.shape, 'f', compile,
                                  [count = count_of(x.shape)](std::int64_t samples) { return 4.0 * double(count.at(samples)); });
  Dims whole = x.shape;
  whole.pop_back();
  whole.back() = src.shape.back();
  return permute(reshape(made, whole), order);
}

}  // namespace ppengine::engine
