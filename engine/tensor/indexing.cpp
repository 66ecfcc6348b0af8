// Nodes that walk along a dimension: taking by index, running sums, orders; dropout and losses.
#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/base/hash.hpp>
#include <ppengine/engine/tensor/builder.hpp>
#include <ppengine/ops/cross_entropy.hpp>
#include <ppengine/ops/elementwise.hpp>

namespace ppengine::engine {
namespace {

// src as [before, along, behind] around a dimension.
struct Walk {
  Dim before = 1, along = 1, behind = 1;
};
Walk walk_of(const Dims& shape, int dim) {
  const auto d = static_cast<long>(dim);
  return {count_of({shape.begin(), shape.begin() + d}), shape[static_cast<std::size_t>(dim)],
          count_of({shape.begin() + d + 1, shape.end()})};
}

}  // namespace

TensorRef TensorBuilder::take(const TensorRef& from, const TensorRef& by) {
  const TensorRef src = dense(read(from)), index = dense(by);
  const Dim before = src.shape[0], along = src.shape[1], behind = src.shape[2], taken = index.shape[1];
  const bool of_before = !(index.shape[0].is(1) && !before.is(1)), of_behind = !(index.shape[2].is(1) && !behind.is(1));
  const Dims out{before, taken, behind};
  const auto compile = [=](const TensorCompile& c) {
    const std::int64_t samples = c.samples, p = before.at(samples), n = along.at(samples), q = behind.at(samples), i = taken.at(samples);
    const std::int64_t index_q = of_behind ? 1 : 0, index_i = of_behind ? q : 1, index_p = of_before ? i * index_i : 0;
    const std::vector<std::int64_t> numbers{n, q, i, index_p, index_i, index_q};
    const char* type = src.type == 'f' ? "float" : "int";
    const auto forward = [=](Emitter& emit) {
      const std::string body = fmt::format(
          "const long n = q.n[16], w = q.n[17], m = q.n[18]; const long c = i % w, t = i / w % m, b = i / w / m;\n"
          "long k = ((const int*)p1)[b * q.n[19] + t * q.n[20] + c * q.n[21]]; if (k < 0) k += n;\n"
          "(({0}*)p2)[i] = k >= 0 && k < n ? ((const {0}*)p0)[(b * n + k) * w + c] : 0;",
          type);
      emit_launch(emit, true, make_loop(emit.kernels(), p * i * q, 3, body, numbers), {emit.input(0), emit.input(1)}, {emit.output()});
    };
    const auto backward = [=](Emitter& emit) {
      const GradientTarget target = emit.begin_gradient(0, false);
      if (!target) return;
      // One work-item walks along the whole index: sums in a fixed order.
      const char* body =
          "const long n = q.n[16], w = q.n[17], m = q.n[18]; const long c = i % w, b = i / w;\n"
          "float* to = (float*)p2 + b * n * w + c; for (long k = 0; k < n; ++k) to[k * w] = 0.0f;\n"
          "for (long t = 0; t < m; ++t) { long k = ((const int*)p0)[b * q.n[19] + t * q.n[20] + c * q.n[21]]; if (k < 0) k += n;\n"
          "if (k >= 0 && k < n) to[k * w] += ((const float*)p1)[(b * m + t) * w + c]; }";
      emit_launch(emit, false, make_loop(emit.kernels(), p * q, 3, body, numbers), {emit.input(1), emit.output_gradient()}, {target.diff});
      emit.finish_gradient(0, target);
    };
    return TensorEmission{forward, backward};
  };
  return add_node("take", {src, index}, {}, out, src.type, compile);
}

TensorRef TensorBuilder::put(const TensorRef& from, const TensorRef& by, const TensorRef& what, bool add) {
  const TensorRef base = dense(read(from)), index = dense(by), src = dense(read(what));
  const Dim before = base.shape[0], along = base.shape[1], behind = base.shape[2], taken = index.shape[1];
  const bool of_before = !(index.shape[0].is(1) && !before.is(1)), of_behind = !(index.shape[2].is(1) && !behind.is(1));
  const auto compile = [=](const TensorCompile& c) {
    const std::int64_t samples = c.samples, p = before.at(samples), n = along.at(samples), q = behind.at(samples), i = taken.at(samples);
    const std::int64_t index_q = of_behind ? 1 : 0, index_i = of_behind ? q : 1, index_p = of_before ? i * index_i : 0;
    const std::vector<std::int64_t> numbers{n, q, i, index_p, index_i, index_q};
    // One work-item walks along the whole index: a fixed order.
    constexpr const char* head =
        "const long n = q.n[16], w = q.n[17], m = q.n[18]; const long c = i % w, b = i / w;\n"
        "{1} for (long t = 0; t < m; ++t) {{ long k = ((const int*)p0)[b * q.n[19] + t * q.n[20] + c * q.n[21]]; if (k < 0) k += n; if (k "
        "< 0 || k >= n) continue; {0} }}";
    const char* type = base.type == 'f' ? "float" : "int";
    const auto forward = [=](Emitter& emit) {
      const std::string body = fmt::format(
          fmt::runtime(head), fmt::format("to[k * w] {} ((const {}*)p2)[(b * m + t) * w + c];", add ? "+=" : "=", type),
          fmt::format("{0}* to = ({0}*)p3 + b * n * w + c; for (long k = 0; k < n; ++k) to[k * w] = ((const {0}*)p1)[(b * n + k) * w + c];",
                      type));
      emit_launch(emit, true, make_loop(emit.kernels(), p * q, 4, body, numbers), {emit.input(1), emit.input(0), emit.input(2)},
                  {emit.output()});
    };
    const auto backward = [=](Emitter& emit) {
      const BufferId g = emit.output_gradient();
      if (add) {
        emit.give_gradient(0, g);
      } else if (const GradientTarget target = emit.begin_gradient(0, false)) {
        const std::string body = fmt::format(
            fmt::runtime(head), "to[k * w] = 0.0f;",
            "float* to = (float*)p2 + b * n * w + c; for (long k = 0; k < n; ++k) to[k * w] = ((const float*)p1)[(b * n + k) * w + c];");
        emit_launch(emit, false, make_loop(emit.kernels(), p * q, 3, body, numbers), {emit.input(1), g}, {target.diff});
        emit.finish_gradient(0, target);
      }
      if (const GradientTarget target = emit.begin_gradient(2, false)) {
        const std::string body =
            fmt::format(fmt::runtime(head), "((float*)p2)[(b * m + t) * w + c] = ((const float*)p1)[(b * n + k) * w + c];", "");
        emit_launch(emit, false, make_loop(emit.kernels(), p * q, 3, body, numbers), {emit.input(1), g}, {target.diff});
        emit.finish_gradient(2, target);
      }
    };
    return TensorEmission{forward, backward};
  };
  return add_node("put", {base, index, src}, {}, base.shape, base.type, compile);
}

TensorRef TensorBuilder::cumulative_sum(const TensorRef& from, int dim) {
  const TensorRef src = dense(read(from));
  const Walk walk = walk_of(src.shape, dim);
  const char type = src.type == 'b' ? 'i' : src.type;
  const auto compile = [=](const TensorCompile& c) {
    const std::vector<std::int64_t> numbers{walk.along.at(c.samples), walk.behind.at(c.samples)};
    const std::int64_t count = (walk.before * walk.behind).at(c.samples);
    const auto forward = [=](Emitter& emit) {
      const std::string body = fmt::format(
          "const long n = q.n[16], w = q.n[17]; const long at = i / w * n * w + i % w; {0} sum = 0;\n"
          "for (long k = 0; k < n; ++k) {{ sum += ((const {0}*)p0)[at + k * w]; (({0}*)p1)[at + k * w] = sum; }}",
          type == 'f' ? "float" : "int");
      emit_launch(emit, true, make_loop(emit.kernels(), count, 2, body, numbers), {emit.input(0)}, {emit.output()});
    };
    const auto backward = [=](Emitter& emit) {
      const GradientTarget target = emit.begin_gradient(0, false);
      if (!target) return;
      const char* body =
          "const long n = q.n[16], w = q.n[17]; const long at = i / w * n * w + i % w; float sum = 0;\n"
          "for (long k = n; k-- > 0;) { sum += ((const float*)p0)[at + k * w]; ((float*)p1)[at + k * w] = sum; }";
      emit_launch(emit, false, make_loop(emit.kernels(), count, 2, body, numbers), {emit.output_gradient()}, {target.diff});
      emit.finish_gradient(0, target);
    };
    return TensorEmission{forward, backward};
  };
  return add_node("cumulative_sum", {src}, {}, src.shape, type, compile);
}

TensorRef TensorBuilder::order(const TensorRef& from, int dim, const Dim& k, bool largest) {
  const TensorRef src = dense(read(from));
  const Walk walk = walk_of(src.shape, dim);
  Dims out = src.shape;
  out[static_cast<std::size_t>(dim)] = k;
  const auto compile = [=](const TensorCompile& c) {
    const std::vector<std::int64_t> numbers{walk.along.at(c.samples), walk.behind.at(c.samples), k.at(c.samples)};
    const std::int64_t count = (walk.before * walk.along * walk.behind).at(c.samples);
    const auto forward = [=](Emitter& emit) {  // each element finds its place: as many as come before it
      const std::string body = fmt::format(
          "const long n = q.n[16], w = q.n[17], m = q.n[18]; const long c = i % w, e = i / w % n, b = i / w / n;\n"
          "const {0}* from = (const {0}*)p0 + b * n * w + c; const {0} mine = from[e * w]; long place = 0;\n"
          "for (long o = 0; o < n; ++o) {{ const {0} x = from[o * w]; place += x {1} mine || (x == mine && o < e) ? 1 : 0; }}\n"
          "if (place < m) ((int*)p1)[(b * m + place) * w + c] = (int)e;",
          src.type == 'f' ? "float" : "int", largest ? ">" : "<");
      emit_launch(emit, true, make_loop(emit.kernels(), count, 2, body, numbers), {emit.input(0)}, {emit.output()});
    };
    return TensorEmission{forward, [](Emitter&) {}};
  };
  return add_node("order", {src}, {}, out, 'i', compile);
}

TensorRef TensorBuilder::dropout(const TensorRef& from, double p) {
  const TensorRef src = dense(read(from));
  const Dim count = count_of(src.shape);
  const std::uint64_t site = hash_text(fmt::format("{}#{}", module_, graph_.nodes().size()));
  const auto compile = [=, fixed_batch_ = fixed_batch_](const TensorCompile& c) {
    const std::int64_t elements = count.at(c.samples), per_sample = fixed_batch_ > 0 ? count.fixed / fixed_batch_ : count.batch;
    const bool drops = c.options.training;
    const auto drop = [=](BufferId x, BufferId y) {
      return [=](const Run& run) {
        ops::dropout(run.stream, ops::Type::f32, run.at(x), nullptr, run.at(y), elements, static_cast<float>(p), run.dropout_key ^ site,
                     static_cast<std::uint64_t>(run.first_sequence * per_sample));
      };
    };
    const auto forward = [=, output = c.node.output](Emitter& emit) {
      if (!drops) return emit.set_value(output, emit.input(0));
      const BufferId x = emit.input(0), y = emit.output();
      emit.forward({x}, {y}, drop(x, y));
    };
    const auto backward = [=](Emitter& emit) {
      const BufferId g = emit.output_gradient();
      const GradientTarget target = emit.begin_gradient(0, false);
      if (!target) return;
      emit.input_half({g}, {target.diff}, drop(g, target.diff));
      emit.finish_gradient(0, target);
    };
    return TensorEmission{forward, backward};
  };
  return add_node("dropout", {src}, {}, src.shape, 'f', compile);
}

// A few classes in front of other dimensions: a work-item for each target, classes read where they lie.
bool TensorBuilder::few_classes_loss(const TensorRef& given, int class_dim, const TensorRef& targets) {
  constexpr std::int64_t most_classes = 256;
  if (class_dim == given.rank() - 1 || given.shape[static_cast<std::size_t>(class_dim)].fixed > most_classes) return false;
  const TensorRef logits = dense(read(given));
  const Walk walk = walk_of(logits.shape, class_dim);
  const std::int64_t classes = walk.along.fixed;
  constexpr const char* body =
      "const long W = q.n[16], C = q.n[17], o = i / W, at = o * C * W + i - o * W; const float* x = (const float*)p0 + at; float* d = "
      "(float*)p3 + at;\n"
      "const int t = ((const int*)p1)[i]; const bool counts = t >= 0 && t < C; float top = -__builtin_inff(), sum = 0;\n"
      "for (long c = 0; c < C; ++c) top = sycl::fmax(top, x[c * W]);\n"
      "for (long c = 0; c < C; ++c) sum += sycl::exp(x[c * W] - top);\n"
      "((float*)p2)[i] = counts ? sycl::log(sum) - (x[(counts ? t : 0) * W] - top) : 0.0f;\n"
      "if (q.n[18]) for (long c = 0; c < C; ++c) d[c * W] = counts ? q.f[1] * (sycl::exp(x[c * W] - top) / sum - (c == t ? 1.0f : 0.0f)) : "
      "0.0f;";
  const auto compile = [=](const TensorCompile& c) {
    const std::int64_t inner = walk.behind.at(c.samples), count = walk.before.at(c.samples) * inner;
    const bool training = c.options.training;
    const std::size_t bytes = static_cast<std::size_t>(count * classes) * sizeof(float);
    const auto forward = [=](Emitter& emit) {
      const BufferId x = emit.input(0), t = emit.input(1), loss = emit.output();
      const BufferId losses = emit.workspace(static_cast<std::size_t>(count) * sizeof(float)),
                     scratch = emit.workspace(ops::reduce_workspace());
      const BufferId diff = training ? emit.saved("diff", bytes) : no_buffer;
      const Launch launch = make_loop(emit.kernels(), count, 4, body, {inner, classes, training ? 1 : 0});
      emit.forward({x, t}, {losses, diff, loss, scratch}, [=](const Run& run) {
        launch(run.stream, {run.at(x), run.at(t), run.at(losses), diff == no_buffer ? run.at(losses) : run.at(diff)}, run.loss_weight);
        ops::sum(run.stream, run.as<float>(losses), run.as<float>(loss), count, run.at(scratch));
      });
    };
    const auto backward = [=](Emitter& emit) { emit.give_gradient(0, emit.saved("diff", bytes)); };
    return TensorEmission{forward, backward};
  };
  const TensorRef loss =
      add_node("cross_entropy", {logits, targets}, {}, {}, 'f', compile, {}, true, ValueKind::loss, {.input = 1, .below = classes});
  graph_.loss(Value(loss.value));
  return true;
}

void TensorBuilder::cross_entropy_loss(const TensorRef& given, int class_dim, const TensorRef& targets) {
  if (few_classes_loss(given, class_dim, targets)) return;
  std::vector<int> order;
  for (int i = 0; i < given.rank(); ++i)
    if (i != class_dim) order.push_back(i);
  order.push_back(class_dim);
  const TensorRef logits = dense(read(permute(given, order)));
  const Dim rows = count_of({logits.shape.begin(), logits.shape.end() - 1});
  const std::int64_t classes = logits.shape.back().fixed;
  const auto compile = [=](const TensorCompile& c) {
    const std::int64_t count = rows.at(c.samples);
    const std::shared_ptr<ops::CrossEntropy> op = ops::CrossEntropy::make(c.device, {count, classes, ops::Type::f32});
    const bool training = c.options.training;
    const std::size_t bytes = static_cast<std::size_t>(count * classes) * sizeof(float);
    const auto forward = [=](Emitter& emit) {
      const BufferId x = emit.input(0), t = emit.input(1), loss = emit.output();
      const BufferId losses = emit.workspace(static_cast<std::size_t>(count) * sizeof(float)),
                     scratch = emit.workspace(ops::reduce_workspace());
      const BufferId diff = training ? emit.saved("diff", bytes) : no_buffer;
      emit.forward({x, t}, {losses, diff, loss, scratch}, [=](const Run& run) {
        if (diff == no_buffer)
          op->forward(run.stream, run.at(x), run.as<std::int32_t>(t), run.as<float>(losses));
        else
          op->forward_backward(run.stream, run.at(x), run.as<std::int32_t>(t), run.loss_weight, run.as<float>(losses), run.at(diff));
        ops::sum(run.stream, run.as<float>(losses), run.as<float>(loss), count, run.at(scratch));
      });
    };
    const auto backward = [=](Emitter& emit) { emit.give_gradient(0, emit.saved("diff", bytes)); };
    return TensorEmission{forward, backward};
  };
  const TensorRef loss =
      add_node("cross_entropy", {logits, targets}, {}, {}, 'f', compile, {}, true, ValueKind::loss, {.input = 1, .below = classes});
  graph_.loss(Value(loss.value));
}

void TensorBuilder::sum_loss(const TensorRef& given, const Dim& divisor) {
  const TensorRef src = dense(read(given));
  const Dim elements = count_of(src.shape);
  const auto compile = [=](const TensorCompile& c) {
    const std::int64_t count = elements.at(c.samples);
    // A scalar that the program has averaged itself counts once for each sample.
    const float factor = src.shape.empty() ? static_cast<float>(c.samples) : 1.0f / static_cast<float>(divisor.at(c.samples));
    const auto forward = [=](Emitter& emit) {
      const BufferId x = emit.input(0), loss = emit.output(), scratch = emit.workspace(ops::reduce_workspace());
      emit.forward({x}, {loss, scratch}, [=](const Run& run) {
        ops::sum(run.stream, run.as<float>(x), run.as<float>(loss), count, run.at(scratch));
        ops::scale(run.stream, ops::Type::f32, run.at(loss), factor, 1);
      });
    };
    const auto backward = [=](Emitter& emit) {
      const GradientTarget target = emit.begin_gradient(0, false);
      if (!target) return;
      emit.input_half({}, {target.diff},
                      [=](const Run& run) { ops::fill(run.stream, ops::Type::f32, run.at(target.diff), run.loss_weight * factor, count); });
      emit.finish_gradient(0, target);
    };
    return TensorEmission{forward, backward};
  };
  const TensorRef loss = add_node("loss", {src}, {}, {}, 'f', compile, {}, true, ValueKind::loss);
  graph_.loss(Value(loss.value));
}

}  // namespace ppengine::engine
