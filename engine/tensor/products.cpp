// Matrix products, linear layers, norms, softmax and embeddings over tensors of any shape: the ops that built-in models use too.
#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/tensor/builder.hpp>
#include <ppengine/engine/weights/parameters.hpp>
#include <ppengine/ops/elementwise.hpp>
#include <ppengine/ops/embedding.hpp>
#include <ppengine/ops/linear.hpp>
#include <ppengine/ops/matmul.hpp>
#include <ppengine/ops/norm.hpp>
#include <ppengine/ops/softmax.hpp>

namespace ppengine::engine {
namespace {

ops::Tensor tensor_of(const std::vector<std::int64_t>& dims, const std::vector<std::int64_t>& strides) {
  ops::Tensor tensor(nullptr, ops::Type::f32, ops::Shape(std::span(dims)));
  tensor.strides = ops::Shape(std::span(strides));
  return tensor;
}

ops::Tensor swapped(ops::Tensor tensor) {
  const int rank = tensor.shape.rank();
  std::swap(tensor.shape[rank - 1], tensor.shape[rank - 2]);
  std::swap(tensor.strides[rank - 1], tensor.strides[rank - 2]);
  return tensor;
}

std::size_t bytes_of(const Dims& shape, std::int64_t samples) {
  return static_cast<std::size_t>(count_of(shape).at(samples)) * sizeof(float);
}

// Row-major, or with its last two dimensions the other way round, batches at any distance: what matrix products read without a copy.
bool suits_product(const TensorRef& ref) {
  const std::size_t rank = ref.shape.size();
  const auto one_or = [&](std::size_t i, const Dim& stride) { return ref.shape[i].is(1) || ref.strides[i] == stride; };
  for (std::size_t i = 0; i < rank; ++i)
    if (ref.strides[i].is(0) && !ref.shape[i].is(1)) return false;
  return one_or(rank - 1, 1) || one_or(rank - 2, 1);
}

}  // namespace

// a [.., m, k] · b [.., k, n]; leading dimensions broadcast.
TensorRef TensorBuilder::matmul(const TensorRef& left, const TensorRef& right, double alpha) {
  TensorRef a = read(left), b = read(right);
  if (a.rank() < 2 || b.rank() < 2) throw ConfigError("a matrix product of vectors is to be unsqueezed first");
  const Dim m = a.shape[a.shape.size() - 2], k = a.shape.back(), n = b.shape.back();
  const Dims batch = broadcast({a.shape.begin(), a.shape.end() - 2}, {b.shape.begin(), b.shape.end() - 2});
  Dims out = batch;
  out.push_back(m), out.push_back(n);
  // One matrix for all: its batch is rows of the other.
  if (b.rank() == 2 && a.rank() > 2) {
    const TensorRef rows = reshape(a, {count_of(batch) * m, k});
    return reshape(matmul(rows, b, alpha), out);
  }
  const auto whole = [&](TensorRef one) {
    Dims shape = batch;
    shape.insert(shape.end(), one.shape.end() - 2, one.shape.end());
    one = expand(one, shape);
    if (batch.size() > 2) one = reshape(one, {count_of(batch), shape[shape.size() - 2], shape.back()});
    return suits_product(one) ? one : dense(one);
  };
  a = whole(a), b = whole(b);
  const Dims flat = batch.size() > 2 ? Dims{count_of(batch), m, n} : out;
  const auto compile = [=](const TensorCompile& c) {
    const std::int64_t samples = c.samples;
    const auto operand = [&](const TensorRef& one) {
      return tensor_of(at(one.shape, samples), access_of(one, one.shape, samples).strides);
    };
    const auto dense_of = [&](const Dims& shape) { return tensor_of(at(shape, samples), dense_access(at(shape, samples)).strides); };
    const ops::Tensor ta = operand(a), tb = operand(b), tc = dense_of(flat), da = dense_of(a.shape), db = dense_of(b.shape);
    const bool empty = count_of(flat).at(samples) == 0 || k.at(samples) == 0;
    const auto make = [&](const ops::Tensor& x, const ops::Tensor& y, const ops::Tensor& z) -> std::shared_ptr<ops::Matmul> {
      if (empty) return nullptr;
      return ops::Matmul::make(c.device, {.a = x, .b = y, .c = z, .alpha = static_cast<float>(alpha)});
    };
    const auto product = make(ta, tb, tc);
    std::shared_ptr<ops::Matmul> to_a, to_b;
    if (c.options.training) to_a = make(tc, swapped(tb), da), to_b = make(swapped(ta), tc, db);
    const std::int64_t a_offset = a.offset.at(samples), b_offset = b.offset.at(samples);
    const auto run_product = [](const Run& run, const std::shared_ptr<ops::Matmul>& op, BufferId x, std::int64_t x0, BufferId y,
                                std::int64_t y0, BufferId z, std::size_t bytes) {
      if (op)
        op->run(run.stream, run.as<float>(x) + x0, run.as<float>(y) + y0, run.at(z));
      else
        run.stream.zero(run.at(z), bytes);
    };
    const auto forward = [=](Emitter& emit) {
      const BufferId x = emit.input(0), y = emit.input(1), z = emit.output();
      emit.forward({x, y}, {z},
                   [=, bytes = bytes_of(flat, samples)](const Run& run) { run_product(run, product, x, a_offset, y, b_offset, z, bytes); });
    };
    const auto backward = [=](Emitter& emit) {
      const BufferId x = emit.input(0), y = emit.input(1), g = emit.output_gradient();
      if (emit.wants_gradient(0)) {
        const std::size_t bytes = bytes_of(a.shape, samples);
        const GradientTarget target = a.dense() ? emit.begin_gradient(0, false) : GradientTarget{};
        const BufferId to = target ? target.diff : emit.workspace(bytes);
        emit.input_half({g, y}, {to}, [=](const Run& run) { run_product(run, to_a, g, 0, y, b_offset, to, bytes); });
        if (target)
          emit.finish_gradient(0, target);
        else
          give_gradient(emit, 0, a, a.shape, samples, to);
      }
      if (emit.wants_gradient(1)) {
        const std::size_t bytes = bytes_of(b.shape, samples);
        const GradientTarget target = b.dense() ? emit.begin_gradient(1, false) : GradientTarget{};
        const BufferId to = target ? target.diff : emit.workspace(bytes);
        emit.input_half({x, g}, {to}, [=](const Run& run) { run_product(run, to_b, x, a_offset, g, 0, to, bytes); });
        if (target)
          emit.finish_gradient(1, target);
        else
          give_gradient(emit, 1, b, b.shape, samples, to);
      }
    };
    return TensorEmission{forward, backward};
  };
  const Dim work = count_of(flat);
  const TensorRef made = add_node("matmul", {a, b}, {}, flat, 'f', compile,
                                  [=](std::int64_t samples) { return 2.0 * double(work.at(samples)) * double(k.at(samples)); });
  return reshape(made, out);
}

TensorRef TensorBuilder::linear(const TensorRef& from, const TensorRef& weight, const TensorRef& bias, ops::WeightLayout layout) {
  const bool out_in = layout == ops::WeightLayout::out_in;
  const bool plain =
      weight.parameter >= 0 && weight.dense() && weight.rank() == 2 && (!bias.exists() || (bias.parameter >= 0 && bias.dense()));
  if (!plain) {
    const TensorRef product =
        matmul(from.rank() == 1 ? reshape(from, {1, from.shape[0]}) : from, out_in ? permute(weight, {1, 0}) : weight);
    Dims shape = from.shape;
    shape.back() = product.shape.back();
    const TensorRef shaped = reshape(product, shape);
    return bias.exists() ? apply("$0 + $1", {"$g", "$g"}, {shaped, bias}) : shaped;
  }
  const TensorRef src = dense(read(from));
  ParameterInfo& info = graph_.parameter_info(ParameterId(weight.parameter));
  info.linear_weight = true;
  info.file_layout = layout;
  const std::int64_t in = info.shape[out_in ? 1 : 0], outs = info.shape[out_in ? 0 : 1];
  Dims out = src.shape;
  out.back() = outs;
  if (!(src.shape.back() == Dim(in))) throw ConfigError(fmt::format("a linear layer of {} inputs gets {}", in, text_of(src.shape)));
  const Dim rows = count_of({src.shape.begin(), src.shape.end() - 1});
  const bool has_bias = bias.exists();
  std::vector<int> parameters{weight.parameter};
  if (has_bias) parameters.push_back(bias.parameter);
  const auto compile = [=](const TensorCompile& c) {
    ops::LinearSpec spec;
    spec.rows = rows.at(c.samples), spec.in = in, spec.out = outs, spec.bias = has_bias;
    spec.layout = storage_layout(c.device, c.graph.parameters()[c.node.parameters[0]]);
    spec.residual = bool(c.plan.residual);
    spec.add_diff_src = c.plan.add_gradient[0];
    const std::shared_ptr<ops::Linear> op = ops::Linear::make(c.device, spec);
    const auto forward = [=](Emitter& emit) {
      const BufferId x = emit.input(0), w = emit.parameter(0), b = has_bias ? emit.parameter(1) : no_buffer, y = emit.output();
      const BufferId residual = emit.residual();
      emit.forward({x, w, b, residual}, {y},
                   [=](const Run& run) { op->forward(run.stream, run.at(x), run.at(w), run.at(b), run.at(residual), run.at(y)); });
    };
    const auto backward = [=](Emitter& emit) {
      const BufferId x = emit.input(0), w = emit.parameter(0), g = emit.output_gradient();
      const BufferId dw = emit.parameter_gradient(0), db = has_bias ? emit.parameter_gradient(1) : no_buffer;
      if (const GradientTarget target = emit.begin_gradient(0, true)) {
        emit.input_half({g, w, target.add}, {target.diff}, [=](const Run& run) {
          op->backward_input(run.stream, run.at(g), run.at(w), run.at(target.add), run.at(target.diff));
        });
        emit.finish_gradient(0, target);
      }
      emit.parameter_gradients({x, g}, [=](const Run& run, bool accumulate) {
        op->backward_weight(run.stream, run.at(x), run.at(g), run.as<float>(dw), run.as<float>(db), accumulate);
      });
    };
    return TensorEmission{forward, backward};
  };
  return add_node("linear", {src}, parameters, out, 'f', compile,
                  [=](std::int64_t samples) { return 2.0 * double(rows.at(samples)) * double(in) * double(outs); }, true,
                  ValueKind::activation, {}, {.adds_residual = true});
}

TensorRef TensorBuilder::layer_norm(const TensorRef& from, std::int64_t width, const TensorRef& gamma, const TensorRef& beta,
                                    double epsilon) {
  const TensorRef src = dense(read(from));
  const Dim rows = count_of(src.shape) / Dim(width);
  const bool affine = gamma.parameter >= 0 && beta.parameter >= 0 && gamma.dense() && beta.dense();
  if (!affine && (gamma.exists() || beta.exists())) {
    TensorRef out = reshape(layer_norm(src, width, {}, {}, epsilon), {rows, width});
    if (gamma.exists()) out = apply("$0 * $1", {"$g * $1", "$g * $0"}, {out, reshape(gamma, {width})});
    if (beta.exists()) out = apply("$0 + $1", {"$g", "$g"}, {out, reshape(beta, {width})});
    return reshape(out, src.shape);
  }
  ops::NormSpec spec;
  spec.width = width, spec.epsilon = static_cast<float>(epsilon);
  return norm(src, spec, affine ? std::vector<int>{gamma.parameter, beta.parameter} : std::vector<int>{});
}

TensorRef TensorBuilder::rms_norm(const TensorRef& from, std::int64_t width, const TensorRef& gamma, double shift, double epsilon) {
  ops::NormSpec spec;
  spec.kind = ops::NormKind::rms, spec.bias = false, spec.width = width, spec.epsilon = static_cast<float>(epsilon),
  spec.gamma_shift = static_cast<float>(shift);
  return norm(dense(read(from)), spec, {gamma.parameter});
}

// parameters: gamma, and beta where the spec has one; without any, by ones and zeros.
TensorRef TensorBuilder::norm(const TensorRef& src, ops::NormSpec spec, const std::vector<int>& parameters) {
  const std::int64_t width = spec.width;
  const Dim rows = count_of(src.shape) / Dim(width);
  const bool affine = !parameters.empty(), centered = spec.kind == ops::NormKind::layer;
  const auto table = [=](Emitter& emit, const char* name, float value) {
    return emit.constant(fmt::format("{} {}", name, width), [&] { return std::vector<float>(static_cast<std::size_t>(width), value); });
  };
  const auto scale = [=](Emitter& emit) { return affine ? emit.parameter(0) : table(emit, "ones", 1.0f); };
  const auto shift = [=](Emitter& emit) { return !centered ? no_buffer : affine ? emit.parameter(1) : table(emit, "zeros", 0.0f); };
  const auto compile = [=](const TensorCompile& c) {
    ops::NormSpec mine = spec;
    mine.rows = rows.at(c.samples);
    mine.add_diff_src = c.plan.add_gradient[0];
    const std::shared_ptr<ops::Norm> op = ops::Norm::make(c.device, mine);
    const std::size_t bytes = static_cast<std::size_t>(mine.rows) * sizeof(float);
    const auto mean_of = [=](Emitter& emit) { return centered ? emit.saved("mean", bytes) : no_buffer; };
    const auto forward = [=](Emitter& emit) {
      const BufferId x = emit.input(0), w = scale(emit), b = shift(emit), y = emit.output();
      const BufferId mean = mean_of(emit), rstd = emit.saved("rstd", bytes);
      emit.forward({x, w, b}, {y, mean, rstd}, [=](const Run& run) {
        op->forward(run.stream, run.at(x), run.at(w), run.at(b), run.at(y), run.as<float>(mean), run.as<float>(rstd));
      });
    };
    const auto backward = [=](Emitter& emit) {
      const BufferId x = emit.input(0), w = scale(emit), g = emit.output_gradient();
      const BufferId mean = mean_of(emit), rstd = emit.saved("rstd", bytes);
      if (const GradientTarget target = emit.begin_gradient(0, true)) {
        emit.input_half({x, g, w, mean, rstd, target.add}, {target.diff}, [=](const Run& run) {
          op->backward_input(run.stream, run.at(x), run.at(g), run.at(w), run.as<float>(mean), run.as<float>(rstd), run.at(target.add),
                             run.at(target.diff));
        });
        emit.finish_gradient(0, target);
      }
      if (!affine) return;
      const BufferId dw = emit.parameter_gradient(0), db = centered ? emit.parameter_gradient(1) : no_buffer;
      emit.parameter_gradients({x, g, mean, rstd}, [=](const Run& run, bool accumulate) {
        op->backward_weight(run.stream, run.at(x), run.at(g), run.as<float>(mean), run.as<float>(rstd), run.as<float>(dw),
                            run.as<float>(db), accumulate);
      });
    };
    return TensorEmission{forward, backward};
  };
  return add_node(centered ? "layer_norm" : "rms_norm", {src}, parameters, src.shape, 'f', compile,
                  [count = count_of(src.shape)](std::int64_t samples) { return 8.0 * double(count.at(samples)); });
}

TensorRef TensorBuilder::softmax(const TensorRef& from, int dim) {
  const int last = from.rank() - 1;
  if (from.rank() == 0) return full({}, 1.0, 'f');
  if (dim != last) {
    std::vector<int> order;
    for (int i = 0; i <= last; ++i) order.push_back(i);
    std::swap(order[static_cast<std::size_t>(dim)], order.back());
    return permute(softmax(permute(from, order), last), order);
  }
  const TensorRef src = dense(read(from));
  const Dim rows = count_of({src.shape.begin(), src.shape.end() - 1}), width = src.shape.back();
  const auto compile = [=](const TensorCompile& c) {
    const std::shared_ptr<ops::Softmax> op = ops::Softmax::make(c.device, {rows.at(c.samples), width.at(c.samples), ops::Type::f32});
    const auto forward = [=](Emitter& emit) {
      const BufferId x = emit.input(0), y = emit.output();
      emit.forward({x}, {y}, [=](const Run& run) { op->forward(run.stream, run.at(x), run.at(y)); });
    };
    const auto backward = [=](Emitter& emit) {
      const BufferId y = emit.output(), g = emit.output_gradient();
      const GradientTarget target = emit.begin_gradient(0, false);
      if (!target) return;
      emit.input_half({y, g}, {target.diff},
                      [=](const Run& run) { op->backward_input(run.stream, run.at(y), run.at(g), run.at(target.diff)); });
      emit.finish_gradient(0, target);
    };
    return TensorEmission{forward, backward};
  };
  return add_node("softmax", {src}, {}, src.shape, 'f', compile,
                  [count = count_of(src.shape)](std::int64_t samples) { return 10.0 * double(count.at(samples)); });
}

TensorRef TensorBuilder::embedding(const TensorRef& given, const TensorRef& table, std::int64_t padding) {
  const TensorRef ids = dense(given);
  Dims out = ids.shape;
  out.push_back(table.shape[1]);
  if (table.parameter < 0 || !table.dense()) {
    const TensorRef rows = reshape(table, {1, table.shape[0], table.shape[1]});
    const TensorRef taken = reshape(take(rows, reshape(ids, {1, count_of(ids.shape), 1})), out);
    if (padding < 0) return taken;
    Dims one = ids.shape;  // the padding's row gets no gradient
    one.emplace_back(1);
    return apply("$0", {fmt::format("$1 == {} ? 0.0f : $g", padding), ""}, {taken, reshape(ids, one)});
  }
  graph_.parameter_info(ParameterId(table.parameter)).fixed_layout = true;
  const std::int64_t vocabulary = table.shape[0].fixed, width = table.shape[1].fixed;
  const Dim count = count_of(ids.shape);
  const auto compile = [=](const TensorCompile& c) {
    ops::EmbeddingSpec spec;
    spec.batch = count.at(c.samples), spec.length = 1, spec.width = width, spec.vocabulary = vocabulary, spec.padding = padding;
    const std::shared_ptr<ops::Embedding> op = ops::Embedding::make(c.device, spec);
    const auto forward = [=](Emitter& emit) {
      const BufferId x = emit.input(0), w = emit.parameter(0), y = emit.output();
      emit.forward({x, w}, {y},
                   [=](const Run& run) { op->forward(run.stream, run.as<std::int32_t>(x), run.at(w), nullptr, nullptr, run.at(y)); });
    };
    const auto backward = [=](Emitter& emit) {
      const BufferId x = emit.input(0), g = emit.output_gradient(), dw = emit.parameter_gradient(0);
      emit.parameter_gradients({x, g}, [=](const Run& run, bool accumulate) {
        op->backward_weight(run.stream, run.as<std::int32_t>(x), run.at(g), run.as<float>(dw), nullptr, accumulate);
      });
    };
    return TensorEmission{forward, backward};
  };
  return add_node("embedding", {ids}, {table.parameter}, out, 'f', compile, {}, true, ValueKind::activation,
                  {.input = 0, .below = vocabulary});
}

}  // namespace ppengine::engine
