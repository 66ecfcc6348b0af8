// Elementwise nodes, reductions, concatenation and padding: generated kernels, forward and backward.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/nodes/nodes.hpp>
#include <ppengine/engine/tensor/builder.hpp>
#include <ppengine/engine/tensor/sampling.hpp>

namespace ppengine::engine {

TensorRef TensorBuilder::apply(const std::string& value, std::vector<std::string> gradients, std::vector<TensorRef> inputs, char type) {
  Expression expression;
  std::vector<int> arguments;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    expression.inputs.push_back(inputs[i].stored());
    arguments.push_back(static_cast<int>(i));
  }
  expression.lines.push_back({value, std::move(gradients), std::move(arguments), type == 'f' ? 'f' : 'i'});
  return elementwise(std::move(expression), std::move(inputs), type);
}

TensorRef TensorBuilder::elementwise(Expression expression, std::vector<TensorRef> inputs, char type, const Dims* shape) {
  PendingElementwise node{std::move(expression), {}, {}, type};
  FusionPlan::Made made{-1, {}, {}};
  for (const TensorRef& one : inputs) node.shape = broadcast(node.shape, one.shape);
  if (shape) node.shape = *shape;
  for (TensorRef& one : inputs) {
    const bool whole = one.value < -1 && one.dense() && one.shape == node.shape;
    node.inputs.push_back(whole ? one : read(one));
    if (one.value >= 0 && one.dense() && one.shape == node.shape) made.reads.push_back(one.value);
  }
  for (std::size_t k = 0; k < node.inputs.size();) {
    if (node.inputs[k].value >= -1) {
      ++k;
      continue;
    }
    const auto& [inner, value] = pending_[static_cast<std::size_t>(-2 - node.inputs[k].value)];
    auto joined = value >= 0 ? std::nullopt : fuse(node, k, inner);
    if (joined)
      node = std::move(*joined), k = 0;
    else
      node.inputs[k] = read(node.inputs[k]);
  }
  // What gives no gradient stays a node of its own where its inputs want one: they must not be taken for trained.
  const bool wanted =
      std::ranges::any_of(node.inputs, [&](const TensorRef& one) { return graph_.values()[Value(one.value)].needs_gradient; });
  const std::size_t number = made_count_++;
  if (number < fused_.size() && fused_[number] && (!wanted || (type == 'f' && node.expression.differentiable()))) {
    TensorRef later = dense_ref(-2 - static_cast<int>(pending_.size()), node.shape, type);
    pending_.emplace_back(std::move(node), -1);
    return later;
  }
  made.shape = node.shape;
  const TensorRef result = make_elementwise(std::move(node));
  made.value = result.value;
  plan_.record(std::move(made));
  return result;
}

int TensorBuilder::value_of(const TensorRef& src) {
  if (src.value >= -1) return src.value;
  const auto at = static_cast<std::size_t>(-2 - src.value);
  if (pending_[at].second < 0) {
    const int value = make_elementwise(pending_[at].first).value;
    pending_[at].second = value;
  }
  return pending_[at].second;
}

// A sum or an activation of whole values is the op that built-in models use.
std::optional<TensorRef> TensorBuilder::make_known(const PendingElementwise& node) {
  const Dim count = count_of(node.shape);
  const std::int64_t width = fixed_batch_ > 0 && count.fixed % fixed_batch_ == 0 ? count.fixed / fixed_batch_ : count.batch;
  if (node.type != 'f' || !(count == (fixed_batch_ > 0 ? Dim(width * fixed_batch_) : Dim(width, 0))) || width == 0) return {};
  std::vector<Value> values;
  for (const TensorRef& one : node.inputs) {
    if (one.type != 'f' || !one.dense() || !(one.shape == node.shape)) return {};
    values.push_back(Value(one.value));
  }
  std::shared_ptr<const NodeOp> op;
  const auto& lines = node.expression.lines;
  if (values.size() == 2 && lines.size() == 1 && lines[0].value == "$0 + $1" && lines[0].arguments == std::vector<int>{0, 1})
    op = make_add_node(width);
  else if (const auto kind = values.size() == 1 ? known_activation(node.expression) : std::nullopt)
    op = make_activation_node(*kind, width);
  if (!op) return {};
  return dense_ref(graph_.node(module_, op, values, {}, width, 0, ValueKind::activation).number(), node.shape, 'f');
}

TensorRef TensorBuilder::make_elementwise(PendingElementwise node) {
  node = with_numbers(std::move(node), numbers_);
  if (const auto known = patterns_ ? make_known(node) : std::nullopt) return *known;
  const Expression expression = std::move(node.expression);
  const std::vector<TensorRef> inputs = std::move(node.inputs);
  const Dims out = node.shape;
  const char type = node.type;
  const bool differentiable = type == 'f' && expression.differentiable();
  const auto compile = [=](const TensorCompile& c) {
    const auto forward = [=, samples = c.samples](Emitter& emit) {
      const auto dims = at(out, samples);
      MapSpec spec{.dims = dims, .inputs = {}, .outputs = {dense_access(dims, type == 'f' ? 'f' : 'i')}, .code = forward_code(expression)};
      std::vector<BufferId> from;
      for (std::size_t k = 0; k < inputs.size(); ++k) {
        spec.inputs.push_back(access_of(inputs[k], out, samples));
        from.push_back(emit.input(k));
      }
      emit_launch(emit, true, make_map(emit.kernels(), std::move(spec)), from, {emit.output()});
    };
    const auto backward = [=, samples = c.samples](Emitter& emit) {
      const auto dims = at(out, samples);
      MapSpec spec{.dims = dims, .inputs = {}, .outputs = {}, .code = {}};
      std::vector<BufferId> from, to;
      for (std::size_t k = 0; k < inputs.size(); ++k) {
        spec.inputs.push_back(access_of(inputs[k], out, samples));
        from.push_back(emit.input(k));
      }
      spec.inputs.push_back(dense_access(dims));
      from.push_back(emit.output_gradient());
      std::vector<int> wanted;
      std::vector<std::pair<std::size_t, BufferId>> repeated;  // inputs that are summed afterwards
      std::vector<std::pair<std::size_t, GradientTarget>> direct;
      for (std::size_t k = 0; k < inputs.size(); ++k) {
        if (!emit.wants_gradient(k) || inputs[k].type != 'f') continue;
        Access access = spec.inputs[k];
        bool broadcasts = false;
        for (std::size_t i = 0; i < dims.size(); ++i) broadcasts = broadcasts || (access.strides[i] == 0 && dims[i] != 1);
        wanted.push_back(static_cast<int>(k));
        if (broadcasts) {
          std::int64_t count = 1;
          for (std::int64_t one : dims) count *= one;
          repeated.emplace_back(k, emit.workspace(static_cast<std::size_t>(count) * sizeof(float)));
          spec.outputs.push_back(dense_access(dims));
          to.push_back(repeated.back().second);
          continue;
        }
        const GradientTarget target = emit.begin_gradient(k, false);
        if (!covers(access, dims, inputs[k].elements.at(samples))) {
          const std::size_t bytes = static_cast<std::size_t>(inputs[k].elements.at(samples)) * sizeof(float);
          emit.input_half({}, {target.diff}, [=](const Run& run) { run.stream.zero(run.at(target.diff), bytes); });
        }
        direct.emplace_back(k, target);
        spec.outputs.push_back(access);
        to.push_back(target.diff);
      }
      if (wanted.empty()) return;
      spec.code = backward_code(expression, wanted, static_cast<int>(inputs.size()));
      emit_launch(emit, false, make_map(emit.kernels(), std::move(spec)), from, to);
      for (const auto& [k, target] : direct) emit.finish_gradient(k, target);
      for (const auto& [k, full] : repeated) give_gradient(emit, k, inputs[k], out, samples, full);
    };
    return TensorEmission{forward, backward};
  };
  return add_node(
      "elementwise", inputs, {}, out, type, compile,
      [count = count_of(out), lines = expression.lines.size()](std::int64_t samples) {
        return 4.0 * double(count.at(samples)) * double(lines);
      },
      differentiable);
}

TensorRef TensorBuilder::reduce(const TensorRef& from, std::vector<int> dims, bool keep, Reduction what, double power) {
  const TensorRef src = read(from);
  std::vector<bool> gone(src.shape.size(), dims.empty());
  for (int d : dims) gone[static_cast<std::size_t>(d)] = true;
  Dims kept, kept_as_one, reduced;
  for (std::size_t i = 0; i < src.shape.size(); ++i) {
    kept_as_one.push_back(gone[i] ? Dim(1) : src.shape[i]);
    (gone[i] ? reduced : kept).push_back(src.shape[i]);
  }
  const Dims out = keep ? kept_as_one : kept;
  const bool is_float = src.type == 'f';
  const auto compile = [=](const TensorCompile& c) {
    const float scale = power == 0.0 ? 1.0f : static_cast<float>(std::pow(double(count_of(reduced).at(c.samples)), power));
    const auto forward = [=, samples = c.samples](Emitter& emit) {
      const Access whole = access_of(src, src.shape, samples);
      Access access{whole.offset, {}, whole.type};
      ReduceSpec spec{.kept = {},
                      .reduced = {},
                      .inputs = {},
                      .code = is_float ? "const float x = v0;" : "const int x = v0;",
                      .what = what,
                      .scale = scale,
                      .type = src.stored()};
      const auto sizes = at(src.shape, samples);
      for (std::size_t i = 0; i < sizes.size(); ++i)
        if (!gone[i]) spec.kept.push_back(sizes[i]), access.strides.push_back(whole.strides[i]);
      for (std::size_t i = 0; i < sizes.size(); ++i)
        if (gone[i]) spec.reduced.push_back(sizes[i]), access.strides.push_back(whole.strides[i]);
      spec.inputs = {access};
      emit_launch(emit, true, make_reduce(emit.kernels(), std::move(spec)), {emit.input(0)}, {emit.output()});
    };
    const auto backward = [=, samples = c.samples](Emitter& emit) {
      const auto sizes = at(src.shape, samples);
      std::int64_t elements = 1;
      for (std::int64_t one : sizes) elements *= one;
      const TensorRef result = dense_ref(0, kept_as_one, 'f');
      const Access of_result = access_of(result, src.shape, samples);
      const BufferId full = emit.workspace(static_cast<std::size_t>(elements) * sizeof(float)), diff = emit.output_gradient();
      MapSpec spec{.dims = sizes, .inputs = {of_result}, .outputs = {dense_access(sizes)}, .code = {}};
      if (what == Reduction::sum) {
        spec.code = fmt::format("      r0 = v0 * {};\n", number_text(scale));
        emit_launch(emit, false, make_map(emit.kernels(), std::move(spec)), {diff}, {full});
      } else if (what == Reduction::product) {
        // Of the elements beside a single zero the product of the others; of two zeros nothing.
        const Access of_src = access_of(src, src.shape, samples);
        const auto over_group = [&](const char* code, Reduction how) {
          ReduceSpec group{.kept = {}, .reduced = {}, .inputs = {{of_src.offset, {}, 'f'}}, .code = code, .what = how};
          for (bool reduces : {false, true})
            for (std::size_t i = 0; i < sizes.size(); ++i) {
              if (gone[i] != reduces) continue;
              (reduces ? group.reduced : group.kept).push_back(sizes[i]);
              group.inputs[0].strides.push_back(of_src.strides[i]);
            }
          const BufferId made = emit.workspace(static_cast<std::size_t>(count_of(kept).at(samples)) * sizeof(float));
          emit_launch(emit, false, make_reduce(emit.kernels(), std::move(group)), {emit.input(0)}, {made});
          return made;
        };
        const BufferId zeros = over_group("const float x = v0 == 0 ? 1.0f : 0.0f;", Reduction::sum),
                       others = over_group("const float x = v0 == 0 ? 1.0f : v0;", Reduction::product);
        spec.inputs = {of_src, of_result, of_result, of_result};
        spec.code = "      r0 = v1 == 0 ? v3 * v2 / v0 : v1 == 1 && v0 == 0 ? v3 * v2 : 0.0f;\n";
        emit_launch(emit, false, make_map(emit.kernels(), std::move(spec)), {emit.input(0), zeros, others, diff}, {full});
      } else {  // evenly over all elements that are the largest, as PyTorch's amax
        const BufferId ties = emit.workspace(static_cast<std::size_t>(count_of(kept).at(samples)) * sizeof(float));
        const Access of_src = access_of(src, src.shape, samples);
        ReduceSpec equal{.kept = {},
                         .reduced = {},
                         .inputs = {{of_src.offset, {}, 'f'}, {0, {}, 'f'}},
                         .code = "const float x = v0 == v1 ? 1.0f : 0.0f;"};
        for (bool reduces : {false, true})
          for (std::size_t i = 0; i < sizes.size(); ++i) {
            if (gone[i] != reduces) continue;
            (reduces ? equal.reduced : equal.kept).push_back(sizes[i]);
            equal.inputs[0].strides.push_back(of_src.strides[i]);
            equal.inputs[1].strides.push_back(of_result.strides[i]);
          }
        emit_launch(emit, false, make_reduce(emit.kernels(), std::move(equal)), {emit.input(0), emit.output()}, {ties});
        spec.inputs = {of_src, of_result, of_result, of_result};
        spec.code = "      r0 = v0 == v1 ? v2 / v3 : 0.0f;\n";
        emit_launch(emit, false, make_map(emit.kernels(), std::move(spec)), {emit.input(0), emit.output(), diff, ties}, {full});
      }
      give_gradient(emit, 0, src, src.shape, samples, full);
    };
    return TensorEmission{forward, backward};
  };
  return add_node("reduce", {src}, {}, out, src.type, compile,
                  [count = count_of(src.shape)](std::int64_t samples) { return 2.0 * double(count.at(samples)); });
}

TensorRef TensorBuilder::cat(const std::vector<TensorRef>& given, int dim) {
  std::vector<TensorRef> parts;
  for (const TensorRef& one : given)
    if (!(one.rank() == 1 && one.shape[0].is(0))) parts.push_back(read(one));  // PyTorch skips empty vectors
  if (parts.empty()) return given.front();
  if (parts.size() == 1) return parts[0];
  const auto d = static_cast<std::size_t>(dim);
  for (const TensorRef& one : parts)
    if (one.rank() != parts[0].rank() || one.rank() <= dim)
      throw ConfigError(fmt::format("{} and {} cannot be joined", text_of(parts[0].shape), text_of(one.shape)));
  Dims out = parts[0].shape;
  out[d] = 0;
  for (const TensorRef& one : parts) out[d] = out[d] + one.shape[d];
  const char type = parts[0].type;
  const auto place = [=](std::size_t k, std::int64_t samples) {  // of part k in the result
    Access access = dense_access(at(out, samples), type == 'f' ? 'f' : 'i');
    Dim before = 0;
    for (std::size_t i = 0; i < k; ++i) before = before + parts[i].shape[d];
    access.offset = before.at(samples) * access.strides[d];
    return access;
  };
  const auto compile = [=](const TensorCompile& c) {
    const auto forward = [=, samples = c.samples](Emitter& emit) {
      const BufferId to = emit.output();
      for (std::size_t k = 0; k < parts.size(); ++k) {
        const Launch launch = make_map(emit.kernels(), {.dims = at(parts[k].shape, samples),
                                                        .inputs = {access_of(parts[k], parts[k].shape, samples)},
                                                        .outputs = {place(k, samples)},
                                                        .code = "      r0 = v0;\n"});
        emit_launch(emit, true, launch, {emit.input(k)}, {to});
      }
    };
    const auto backward = [=, samples = c.samples](Emitter& emit) {
      for (std::size_t k = 0; k < parts.size(); ++k) {
        if (!emit.wants_gradient(k)) continue;
        const auto dims = at(parts[k].shape, samples);
        std::int64_t count = 1;
        for (std::int64_t one : dims) count *= one;
        const BufferId full = emit.workspace(static_cast<std::size_t>(count) * sizeof(float));
        const Launch launch = make_map(
            emit.kernels(), {.dims = dims, .inputs = {place(k, samples)}, .outputs = {dense_access(dims)}, .code = "      r0 = v0;\n"});
        emit_launch(emit, false, launch, {emit.output_gradient()}, {full});
        give_gradient(emit, k, parts[k], parts[k].shape, samples, full);
      }
    };
    return TensorEmission{forward, backward};
  };
  return add_node("cat", parts, {}, out, type, compile);
}

TensorRef TensorBuilder::overwrite(const TensorRef& view, const TensorRef& made) {
  for (std::size_t i = 0; i < view.shape.size(); ++i)
    if (view.strides[i].is(0) && !view.shape[i].is(1)) throw ConfigError("writes into a tensor that repeats its elements");
  const Dim elements = view.elements;
  const auto compile = [=](const TensorCompile& c) {
    const auto dims = at(view.shape, c.samples);
    const Access place = access_of(view, view.shape, c.samples), dense = dense_access(dims, view.stored());
    const std::size_t bytes = static_cast<std::size_t>(elements.at(c.samples)) * sizeof(float);
    const auto copied = [=](BufferId from, BufferId to) {
      return [=](const Run& run) { run.stream.copy(run.at(to), run.at(from), bytes); };
    };
    const auto forward = [=](Emitter& emit) {
      const BufferId base = emit.input(0), to = emit.output();
      emit.forward({base}, {to}, copied(base, to));
      const Launch launch = make_map(emit.kernels(), {.dims = dims, .inputs = {dense}, .outputs = {place}, .code = "      r0 = v0;\n"});
      emit_launch(emit, true, launch, {emit.input(1)}, {to});
    };
    const auto backward = [=](Emitter& emit) {
      const BufferId g = emit.output_gradient();
      if (const GradientTarget target = emit.begin_gradient(0, false)) {
        emit.input_half({g}, {target.diff}, copied(g, target.diff));
        const Launch launch = make_map(emit.kernels(), {.dims = dims, .inputs = {}, .outputs = {place}, .code = "      r0 = 0.0f;\n"});
        emit_launch(emit, false, launch, {}, {target.diff});
        emit.finish_gradient(0, target);
      }
      if (const GradientTarget target = emit.begin_gradient(1, false)) {
        const Launch launch = make_map(emit.kernels(), {.dims = dims, .inputs = {place}, .outputs = {dense}, .code = "      r0 = v0;\n"});
        emit_launch(emit, false, launch, {g}, {target.diff});
        emit.finish_gradient(1, target);
      }
    };
    return TensorEmission{forward, backward};
  };
  TensorRef base = view;
  return add_node("overwrite", {base, made}, {}, {elements}, view.type, compile);
}

TensorRef TensorBuilder::pad(const TensorRef& src, const std::vector<std::pair<std::int64_t, std::int64_t>>& by_dim, double value) {
  TensorRef inside = src;
  for (std::size_t i = 0; i < by_dim.size(); ++i) {  // negative padding cuts
    const auto [before, after] = by_dim[i];
    const int d = static_cast<int>(i);
    if (before < 0 || after < 0)
      inside = slice(inside, d, Dim(std::max<std::int64_t>(0, -before)),
                     inside.shape[i] + Dim(std::min<std::int64_t>(0, before) + std::min<std::int64_t>(0, after)));
  }
  for (std::size_t i = 0; i < by_dim.size(); ++i) {
    const auto [before, after] = by_dim[i];
    std::vector<TensorRef> parts;
    const auto fill = [&](std::int64_t count) {
      Dims shape = inside.shape;
      shape[i] = count;
      parts.push_back(full(shape, value, src.type));
    };
    if (before > 0) fill(before);
    parts.push_back(inside);
    if (after > 0) fill(after);
    if (parts.size() > 1) inside = cat(parts, static_cast<int>(i));
  }
  return inside;
}

}  // namespace ppengine::engine
