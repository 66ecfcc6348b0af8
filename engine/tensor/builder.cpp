// TensorBuilder: inputs, parameters, constants and views.
#include <ppengine/engine/tensor/builder.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include <ppengine/base/error.hpp>
#include <ppengine/base/hash.hpp>
#include <ppengine/ops/elementwise.hpp>

namespace ppengine::engine {
namespace {

class TensorNode final : public NodeOp {
 public:
  TensorNode(std::string kind, std::function<TensorEmission(const TensorCompile&)> compile, std::function<double(std::int64_t)> flops,
             IndexLimit limit, TensorTraits traits)
      : kind_(std::move(kind)), compile_(std::move(compile)), flops_(std::move(flops)), limit_(limit), traits_(traits) {}
  bool changes_state() const override { return traits_.changes_state; }
  const char* kind() const override { return kind_.c_str(); }
  std::int64_t index_limit(std::size_t input) const override { return input == limit_.input ? limit_.below : 0; }
  double flops(const Graph&, const Node&, std::int64_t batch, std::int64_t) const override { return flops_(batch); }
  bool adds_residual() const override { return traits_.adds_residual; }
  std::unique_ptr<CompiledNode> compile(ops::Device& device, const Graph& graph, const Node& node, const NodePlan& plan,
                                        const CompileOptions& options) const override {
    class Compiled final : public CompiledNode {
     public:
      explicit Compiled(TensorEmission emission) : emission_(std::move(emission)) {}
      void forward(Emitter& emit) override { emission_.forward(emit); }
      void backward(Emitter& emit) override { emission_.backward(emit); }

     private:
      TensorEmission emission_;
    };
    if (options.type != ops::Type::f32) throw ConfigError("programs compute in f32: leave --dtype out");
    return std::make_unique<Compiled>(compile_({device, graph, node, plan, options, options.batch * options.length}));
  }

 private:
  std::string kind_;
  std::function<TensorEmission(const TensorCompile&)> compile_;
  std::function<double(std::int64_t)> flops_;
  IndexLimit limit_;
  TensorTraits traits_;
};

// Sizes are compared where they grow with the batch: for a batch that no size in a program is a multiple of.
constexpr std::int64_t some_batch = 1000003;

// Strides of the same memory seen as another shape; nothing where it has to be copied. PyTorch's rule (computeStride).
std::optional<Dims> strides_of_view(const Dims& shape, const Dims& strides, const Dims& wanted) try {
  if (shape.empty()) return dense_strides(wanted);
  Dims found(wanted.size());
  int at = static_cast<int>(wanted.size()) - 1;
  Dim base = strides.back(), here = 1, seen = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    here = here * shape[d];
    if (d > 0 && (shape[d - 1].is(1) || strides[d - 1] == here * base)) continue;
    while (at >= 0 && (seen.at(some_batch) < here.at(some_batch) || wanted[static_cast<std::size_t>(at)].is(1))) {
      found[static_cast<std::size_t>(at)] = seen * base;
      seen = seen * wanted[static_cast<std::size_t>(at--)];
    }
    if (!(seen == here)) return {};
    if (d > 0) base = strides[d - 1], here = 1, seen = 1;
  }
  if (at >= 0) return {};
  return found;
} catch (const ConfigError&) {  // a product of batches: no such view
  return {};
}

}  // namespace

bool TensorRef::dense() const {
  if (!offset.is(0) || !(count_of(shape) == elements)) return false;
  const Dims expected = dense_strides(shape);
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (!shape[i].is(1) && !(strides[i] == expected[i])) return false;
  return true;
}

TensorRef dense_ref(int value, const Dims& shape, char type) {
  return {.value = value, .shape = shape, .type = type, .strides = dense_strides(shape), .elements = count_of(shape)};
}

TensorRef TensorBuilder::add_node(const char* kind, const std::vector<TensorRef>& inputs, const std::vector<int>& parameters,
                                  const Dims& shape, char type, std::function<TensorEmission(const TensorCompile&)> compile,
                                  std::function<double(std::int64_t)> flops, bool differentiable, ValueKind kind_of_value, IndexLimit limit,
                                  TensorTraits traits) {
  const Dim count = count_of(shape);
  if (!flops) flops = [count](std::int64_t samples) { return double(count.at(samples)); };
  std::vector<Value> values;
  for (const TensorRef& one : inputs) values.emplace_back(value_of(one));
  const ValueKind what = kind_of_value == ValueKind::loss ? kind_of_value : type == 'f' ? ValueKind::activation : ValueKind::tokens;
  if (fixed_batch_ > 0)
    compile = [inner = std::move(compile), samples = fixed_batch_](const TensorCompile& c) {
      if (c.samples != samples)
        throw ConfigError(
            fmt::format("the program was exported for {} samples, a microbatch has {}: choose --batch-size and --microbatches so "
                        "that a microbatch has {}, or export with dynamic_shapes",
                        samples, c.samples, samples));
      return inner(c);
    };
  const bool even = fixed_batch_ > 0 && count.fixed % fixed_batch_ == 0;
  const std::int64_t width = even ? count.fixed / fixed_batch_ : count.batch, beside = even ? 0 : count.fixed;
  const Value made =
      graph_.node(module_, std::make_shared<TensorNode>(kind, std::move(compile), std::move(flops), limit, traits), values,
                  std::vector<ParameterId>(parameters.begin(), parameters.end()), width, beside, what, differentiable, count.square);
  return dense_ref(made.number(), shape, type);
}

TensorRef TensorBuilder::input(const std::string& name, const Dims& shape, char type) {
  const Dim count = count_of(shape);
  if (count.square != 0 || (count.fixed != 0 && (fixed_batch_ == 0 || shape.empty() || !shape[0].is(fixed_batch_))))
    throw ConfigError(fmt::format("the input '{}' {} has no batch in its first dimension", name, text_of(shape)));
  const Value made = graph_.tensor_input(name, fixed_batch_ > 0 ? count.fixed / fixed_batch_ : count.batch,
                                         type == 'f' ? ValueKind::activation : ValueKind::tokens);
  return dense_ref(made.number(), shape, type);
}

TensorRef TensorBuilder::parameter(int id) {
  Dims shape;
  for (std::int64_t size : graph_.parameters()[ParameterId(id)].shape.dims()) shape.emplace_back(size);
  TensorRef ref = dense_ref(-1, shape, 'f');
  ref.parameter = id;
  return ref;
}

TensorRef TensorBuilder::read(const TensorRef& src, bool trained) {
  if (src.value < -1) {
    TensorRef made = src;
    made.value = value_of(src);
    return made;
  }
  if (src.value >= 0 || src.parameter < 0) return src;
  const auto compile = [](const TensorCompile& c) {
    const auto count = c.graph.parameters()[c.node.parameters[0]].shape.count();
    return TensorEmission{[output = c.node.output](Emitter& emit) { emit.set_value(output, emit.parameter(0)); },
                          [count](Emitter& emit) {
                            const BufferId from = emit.output_gradient(), to = emit.parameter_gradient(0);
                            emit.parameter_gradients({from}, [=](const Run& run, bool accumulate) {
                              if (accumulate)
                                ops::add(run.stream, ops::Type::f32, run.at(to), run.at(from), run.at(to), count);
                              else
                                run.stream.copy(run.at(to), run.at(from), static_cast<std::size_t>(count) * sizeof(float));
                            });
                          }};
  };
  graph_.parameter_info(ParameterId(src.parameter)).fixed_layout = true;
  const TensorRef whole = parameter(src.parameter);
  const TensorRef made = add_node("parameter", {}, {src.parameter}, whole.shape, 'f', compile, [](std::int64_t) { return 0.0; }, trained);
  TensorRef view = src;
  view.value = made.value;
  view.parameter = -1;
  return view;
}

TensorRef TensorBuilder::constant(std::vector<std::int32_t> bits, const Dims& shape, char type) {
  if (bits.empty()) bits.push_back(0);  // memory of no bytes is nowhere
  const std::string_view bytes(reinterpret_cast<const char*>(bits.data()), bits.size() * 4);
  const std::string name = fmt::format("table {:016x} {}", hash_text(bytes), bits.size());
  const auto compile = [bits, name](const TensorCompile& c) {
    return TensorEmission{[=, output = c.node.output](Emitter& emit) {
                            emit.set_value(output, emit.constant(name, [&] {
                              std::vector<float> table(bits.size());
                              std::transform(bits.begin(), bits.end(), table.begin(),
                                             [](std::int32_t one) { return std::bit_cast<float>(one); });
                              return table;
                            }));
                          },
                          [](Emitter&) {}};
  };
  return add_node("constant", {}, {}, shape, type, compile, [](std::int64_t) { return 0.0; }, false);
}

TensorRef TensorBuilder::arange(const Dim& count, double start, double step, char type) {
  const auto compile = [=](const TensorCompile& c) {
    const std::string value = type == 'f'
                                  ? fmt::format("{} + (float)i * {}", number_text(start), number_text(step))
                                  : fmt::format("{} + (int)i * {}", static_cast<std::int64_t>(start), static_cast<std::int64_t>(step));
    return TensorEmission{[=, samples = c.samples](Emitter& emit) {
                            const Launch launch = make_loop(emit.kernels(), count.at(samples), 1,
                                                            fmt::format("(({}*)p0)[i] = {};", type == 'f' ? "float" : "int", value), {});
                            emit_launch(emit, true, launch, {}, {emit.output()});
                          },
                          [](Emitter&) {}};
  };
  return add_node("arange", {}, {}, {count}, type, compile, {}, false);
}

TensorRef TensorBuilder::full(const Dims& shape, double value, char type) {
  // One element, seen as any shape.
  const std::int32_t bits = type == 'f' ? std::bit_cast<std::int32_t>(static_cast<float>(value)) : static_cast<std::int32_t>(value);
  const TensorRef one = constant({bits}, {}, type);
  numbers_[one.value] = type == 'f' ? number_text(value) : fmt::format("({})", bits);
  return expand(one, shape);
}

TensorRef TensorBuilder::permute(const TensorRef& src, const std::vector<int>& order) {
  if (order.size() != src.shape.size())
    throw ConfigError(fmt::format("an order of {} dimensions for {}", order.size(), text_of(src.shape)));
  TensorRef out = src;
  for (std::size_t i = 0; i < order.size(); ++i) {
    out.shape[i] = src.shape[static_cast<std::size_t>(order[i])];
    out.strides[i] = src.strides[static_cast<std::size_t>(order[i])];
  }
  return out;
}

TensorRef TensorBuilder::slice(const TensorRef& src, int dim, const Dim& start, const Dim& count, std::int64_t step) {
  TensorRef out = src;
  const auto d = static_cast<std::size_t>(dim);
  out.offset = src.offset + start * src.strides[d];
  out.shape[d] = count;
  out.strides[d] = src.strides[d] * Dim(step);
  return out;
}

TensorRef TensorBuilder::expand(const TensorRef& src, const Dims& shape) {
  TensorRef out = src;
  out.shape = shape;
  out.strides.assign(shape.size(), Dim(0));
  if (shape.size() < src.shape.size()) throw ConfigError(fmt::format("{} cannot be expanded to {}", text_of(src.shape), text_of(shape)));
  const std::size_t more = shape.size() - src.shape.size();
  for (std::size_t i = 0; i < src.shape.size(); ++i) {
    if (!(src.shape[i] == shape[more + i]) && !src.shape[i].is(1))
      throw ConfigError(fmt::format("{} cannot be expanded to {}", text_of(src.shape), text_of(shape)));
    if (src.shape[i] == shape[more + i]) out.strides[more + i] = src.strides[i];
  }
  return out;
}

TensorRef TensorBuilder::reshape(const TensorRef& src, const Dims& shape) {
  if (!(count_of(src.shape) == count_of(shape)))
    throw ConfigError(fmt::format("{} cannot be seen as {}", text_of(src.shape), text_of(shape)));
  TensorRef out = src;
  if (src.dense()) {
    out.shape = shape;
    out.strides = dense_strides(shape);
    return out;
  }
  if (auto strides = strides_of_view(src.shape, src.strides, shape)) {
    out.shape = shape;
    out.strides = std::move(*strides);
    return out;
  }
  return reshape(dense(src), shape);
}

TensorRef TensorBuilder::dense(const TensorRef& src) {
  if (src.dense()) return src;
  return apply("$0", {"$g"}, {src}, src.type);
}

Access dense_access(const std::vector<std::int64_t>& dims, char type) {
  Access access{0, std::vector<std::int64_t>(dims.size()), type};
  std::int64_t stride = 1;
  for (std::size_t i = dims.size(); i-- > 0;) access.strides[i] = stride, stride *= dims[i];
  return access;
}

Access access_of(const TensorRef& ref, const Dims& iteration, std::int64_t samples) {
  Access access{ref.offset.at(samples), std::vector<std::int64_t>(iteration.size(), 0), ref.stored()};
  const std::size_t more = iteration.size() - ref.shape.size();
  for (std::size_t i = 0; i < ref.shape.size(); ++i)
    if (!(ref.shape[i].is(1) && !iteration[more + i].is(1))) access.strides[more + i] = ref.strides[i].at(samples);
  return access;
}

void emit_launch(Emitter& emit, bool forward, const Launch& launch, std::vector<BufferId> inputs, std::vector<BufferId> outputs) {
  const auto body = [=](const Run& run) {
    std::vector<void*> pointers;
    pointers.reserve(inputs.size() + outputs.size());
    for (BufferId id : inputs) pointers.push_back(run.at(id));
    for (BufferId id : outputs) pointers.push_back(run.at(id));
    launch(run.stream, std::move(pointers));
  };
  if (forward)
    emit.forward(inputs, outputs, body);
  else
    emit.input_half(inputs, outputs, body);
}

bool covers(const Access& access, const std::vector<std::int64_t>& dims, std::int64_t elements) {
  std::vector<std::size_t> order;
  std::int64_t count = 1;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    count *= dims[i];
    if (dims[i] > 1) order.push_back(i);
  }
  if (count != elements || access.offset != 0) return false;
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return access.strides[a] < access.strides[b]; });
  std::int64_t stride = 1;
  for (std::size_t i : order) {
    if (access.strides[i] != stride) return false;
    stride *= dims[i];
  }
  return true;
}

void give_gradient(Emitter& emit, std::size_t k, const TensorRef& ref, const Dims& iteration, std::int64_t samples, BufferId full) {
  const auto dims = at(iteration, samples);
  const Access access = access_of(ref, iteration, samples);
  const GradientTarget target = emit.begin_gradient(k, false);
  if (!target) return;
  // Dimensions that the input is repeated along are summed up first.
  std::vector<std::int64_t> kept, reduced;
  Access of_kept{0, {}, 'f'}, to{access.offset, {}, 'f'}, of_reduced{0, {}, 'f'};
  const Access whole = dense_access(dims);
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const bool repeated = access.strides[i] == 0 && dims[i] != 1;
    (repeated ? reduced : kept).push_back(dims[i]);
    (repeated ? of_reduced : of_kept).strides.push_back(whole.strides[i]);
    if (!repeated) to.strides.push_back(access.strides[i]);
  }
  const bool covered = covers(to, kept, ref.elements.at(samples));
  const bool straight = covered && to.strides == dense_access(kept).strides;
  BufferId summed = full;
  if (!reduced.empty()) {
    std::int64_t count = 1;
    for (std::int64_t one : kept) count *= one;
    summed = straight ? target.diff : emit.workspace(static_cast<std::size_t>(count) * sizeof(float));
    Access in = of_kept;
    in.strides.insert(in.strides.end(), of_reduced.strides.begin(), of_reduced.strides.end());
    emit_launch(emit, false, make_reduce(emit.kernels(), {.kept = kept, .reduced = reduced, .inputs = {in}}), {full}, {summed});
  }
  if (summed != target.diff) {
    if (!covered) {
      const std::size_t bytes = static_cast<std::size_t>(ref.elements.at(samples)) * sizeof(float);
      emit.input_half({}, {target.diff}, [=](const Run& run) { run.stream.zero(run.at(target.diff), bytes); });
    }
    const Launch launch =
        make_map(emit.kernels(), {.dims = kept, .inputs = {dense_access(kept)}, .outputs = {to}, .code = "      r0 = v0;\n"});
    emit_launch(emit, false, launch, {summed}, {target.diff});
  }
  emit.finish_gradient(k, target);
}

}  // namespace ppengine::engine
