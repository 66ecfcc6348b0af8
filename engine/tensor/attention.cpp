// Attention over views of projections: the op that built-in models use, on heads where they lie.
#include <ppengine/ops/attention.hpp>

#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/tensor/builder.hpp>

namespace ppengine::engine {
namespace {

// Queries, keys or values as the op takes them: tokens `row` elements apart, the heads of each side by side.
struct Heads {
  TensorRef view;  // [batch, tokens, heads, width]
  std::int64_t row = 0;
  std::size_t input = 0;  // of the node
  std::int64_t width() const { return view.shape[2].fixed * view.shape[3].fixed; }
};

// The row where the view is such a tensor; 0 otherwise.
std::int64_t row_of(const TensorRef& view) {
  const std::int64_t tokens = view.shape[1].fixed, heads = view.shape[2].fixed, width = view.shape[3].fixed;
  const auto is = [&](std::size_t i, const Dim& stride) { return view.shape[i].is(1) || view.strides[i] == stride; };
  if (!is(3, 1) || !is(2, width)) return 0;
  const Dim row = tokens > 1 ? view.strides[1] : view.strides[0];
  if (!row.constant() || row.fixed < heads * width || !is(0, row * Dim(tokens))) return 0;
  return row.fixed;
}

// Whether two of one value have no element in common.
bool apart(const Heads& a, const Heads& b) {
  if (a.view.value != b.view.value) return true;
  if (a.row != b.row || !a.view.offset.constant() || !b.view.offset.constant()) return false;
  const std::int64_t from_a = a.view.offset.fixed, from_b = b.view.offset.fixed;
  return from_a + a.width() <= a.row && from_b + b.width() <= b.row && (from_a + a.width() <= from_b || from_b + b.width() <= from_a);
}

}  // namespace

bool TensorBuilder::attends(const TensorRef& q, const TensorRef& k, const TensorRef& v, const AttentionMask& mask) {
  for (const TensorRef* one : {&q, &k, &v})
    if (one->rank() != 4 || one->type != 'f' || !one->shape[1].constant() || !one->shape[2].constant() || !one->shape[3].constant() ||
        count_of(one->shape).is(0))
      return false;
  const std::int64_t heads = q.shape[1].fixed, shared = k.shape[1].fixed;
  return k.shape == v.shape && q.shape[0] == k.shape[0] && q.shape[2] == k.shape[2] && q.shape[3] == k.shape[3] && heads % shared == 0 &&
         (mask.causal || heads == shared);
}

TensorRef TensorBuilder::attention(const TensorRef& q, const TensorRef& k, const TensorRef& v, const AttentionMask& mask, double scale) {
  std::vector<Heads> parts;
  for (const TensorRef* one : {&q, &k, &v}) {
    Heads part{permute(read(*one), {0, 2, 1, 3})};
    part.row = row_of(part.view);
    if (part.row == 0 || !std::ranges::all_of(parts, [&](const Heads& other) { return apart(part, other); }))
      part.view = apply("$0", {"$g"}, {part.view}), part.view.value = value_of(part.view), part.row = part.width();
    parts.push_back(part);
  }
  std::vector<TensorRef> inputs;  // each value once
  for (Heads& part : parts) {
    const auto found = std::ranges::find(inputs, part.view.value, &TensorRef::value);
    part.input = static_cast<std::size_t>(found - inputs.begin());
    if (found == inputs.end()) inputs.push_back(part.view);
  }
  const Dim batch = q.shape[0];
  const std::int64_t heads = q.shape[1].fixed, length = q.shape[2].fixed, width = q.shape[3].fixed;
  const auto compile = [=](const TensorCompile& c) {
    ops::AttentionSpec spec;
    spec.batch = batch.at(c.samples), spec.length = length, spec.heads = heads, spec.kv_heads = parts[1].view.shape[2].fixed,
    spec.head_dim = width;
    spec.q_stride = parts[0].row, spec.k_stride = parts[1].row, spec.v_stride = parts[2].row;
    spec.scale = static_cast<float>(scale), spec.causal = mask.causal, spec.window = mask.window;
    const std::shared_ptr<ops::Attention> op = ops::Attention::make(c.device, spec);
    const bool training = c.options.training;
    const auto at = [=, samples = c.samples](const Run& run, BufferId buffer, std::size_t part) {
      return run.as<float>(buffer) + parts[part].view.offset.at(samples);
    };
    const auto forward = [=](Emitter& emit) {
      std::vector<BufferId> in;
      for (const Heads& part : parts) in.push_back(emit.input(part.input));
      const BufferId y = emit.output(), saved = training ? emit.saved("saved", op->saved_bytes()) : no_buffer,
                     room = emit.workspace(op->workspace_bytes());
      emit.forward(in, {y, saved, room}, [=](const Run& run) {
        op->forward(run.stream, at(run, in[0], 0), at(run, in[1], 1), at(run, in[2], 2), run.at(y), run.at(saved), run.at(room));
      });
    };
    const auto backward = [=, samples = c.samples](Emitter& emit) {
      std::vector<GradientTarget> targets;
      std::vector<BufferId> made, in, to;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const std::int64_t elements = inputs[i].elements.at(samples);
        const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(float);
        targets.push_back(emit.begin_gradient(i, false));
        const BufferId diff = targets[i] ? targets[i].diff : emit.workspace(bytes);
        made.push_back(diff);
        std::int64_t written = 0;
        for (const Heads& part : parts) written += part.input == i ? spec.batch * length * part.width() : 0;
        if (written != elements) emit.input_half({}, {diff}, [=](const Run& run) { run.stream.zero(run.at(diff), bytes); });
      }
      for (const Heads& part : parts) in.push_back(emit.input(part.input)), to.push_back(made[part.input]);
      const BufferId y = emit.output(), g = emit.output_gradient(), saved = emit.saved("saved", op->saved_bytes()),
                     room = emit.workspace(op->workspace_bytes());
      std::vector<BufferId> writes = made;
      writes.push_back(room);
      emit.input_half({in[0], in[1], in[2], y, g, saved}, writes, [=](const Run& run) {
        op->backward(run.stream, at(run, in[0], 0), at(run, in[1], 1), at(run, in[2], 2), run.at(y), run.at(g), run.at(saved),
                     at(run, to[0], 0), at(run, to[1], 1), at(run, to[2], 2), run.at(room));
      });
      for (std::size_t i = 0; i < inputs.size(); ++i) emit.finish_gradient(i, targets[i]);
    };
    return TensorEmission{forward, backward};
  };
  const double each = 4.0 * double(heads * width) * double(length) * double(length) * (mask.causal ? 0.5 : 1.0);
  const TensorRef made = add_node(mask.causal ? "causal_attention" : "attention", inputs, {}, {batch, length, heads, width}, 'f', compile,
                                  [=](std::int64_t samples) { return each * double(batch.at(samples)); });
  return permute(made, {0, 2, 1, 3});
}

}  // namespace ppengine::engine
