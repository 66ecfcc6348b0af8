// Compiling a stage: its nodes, operands, messages and forward.
#include <ppengine/engine/stage/stage_builder.hpp>

#include <algorithm>

#include <ppengine/engine/graph/node.hpp>
#include <ppengine/engine/stage/readiness.hpp>

namespace ppengine::engine {

void CompiledStage::Builder::fold_residuals() {
  for (NodeId i : order) {
    if (!node(i).op->is_sum()) continue;
    for (std::size_t k : {1, 0}) {
      const Value other = node(i).inputs[1 - k];
      const NodeId from = value(node(i).inputs[k]).producer;
      if (from < cut.begin || !node(from).op->adds_residual() || residuals[from]) continue;
      if (emit.has_one_row(node(from).output) != emit.has_one_row(node(i).output)) continue;
      if (node(i).inputs[k] == other || users(node(i).inputs[k]).size() != 1 || is_sent(node(i).inputs[k])) continue;
      if (options.output && node(i).inputs[k] == graph.output_value()) continue;
      if (value(other).producer >= from) continue;  // not there yet when the op runs
      residuals[from] = other;
      folded.insert(i);
      emit.redirect_output(from, node(i).output);
      break;
    }
  }
}

void CompiledStage::Builder::mark_rows() {
  const auto one_row = one_row_nodes(graph);
  for (NodeId i : one_row.ids())
    if (one_row[i]) emit.set_one_row(graph.nodes()[i].output);
}

void CompiledStage::Builder::compile_nodes() {
  CompileOptions of_row = options;
  of_row.length = 1;
  for (NodeId i : order) {
    NodePlan plan;
    plan.residual = residuals[i];
    for (Value input : node(i).inputs) {
      const auto readers = users(input);
      plan.add_gradient.push_back(is_sent(input) ||
                                  std::ranges::any_of(readers, [&](NodeId j) { return j > i && value(node(j).output).needs_gradient; }));
    }
    if (!node(i).inputs.empty()) {
      const Value first = node(i).inputs.front();
      plan.last_use_of_input = users(first).size() == 1 && !is_sent(first) && value(first).producer >= cut.begin &&
                               !(options.output && first == graph.output_value());
    }
    compiled(i) = node(i).op->compile(device, graph, node(i), plan, emit.has_one_row(node(i).output) ? of_row : options);
  }
}

BufferId CompiledStage::Builder::fixed(Region region, std::size_t offset, std::size_t bytes) {
  const BufferId id = emit.make(bytes);
  stage.buffers_[id] = {bytes, region, offset, false, true};
  return id;
}

BufferId CompiledStage::Builder::pinned(BufferId id) {
  info(id).pinned = !info(id).placed;
  return id;
}

std::vector<std::size_t> CompiledStage::Builder::message_offsets(const std::vector<Value>& values, std::size_t& bytes,
                                                                 bool of_gradients) const {
  std::vector<std::size_t> offsets;
  bytes = 0;
  for (Value id : values) {
    offsets.push_back(bytes);
    if (!of_gradients || value(id).needs_gradient) bytes += ops::align_up(emit.value_bytes(id));
  }
  return offsets;
}

void CompiledStage::Builder::send_from(BufferId made, bool copied, Region region, std::size_t offset, Program& program) {
  BufferInfo& source = info(made);
  if (!copied && !source.placed) {
    source.region = region;
    source.offset = offset;
    source.placed = true;
    return;
  }
  const std::size_t bytes = source.bytes;
  const BufferId out = fixed(region, offset, bytes);
  program.push_back({"message", "copy", {made}, {out}, [=](const Run& run) { run.stream.copy(run.at(out), run.at(made), bytes); }});
}

void CompiledStage::Builder::place_operands() {
  for (const ParameterRange& range : stage.parameters_.ranges()) {
    const BufferId weights = fixed(Region::parameters, range.compute_offset, range.compute_bytes);
    const bool frozen = graph.parameters()[range.id].frozen;
    const BufferId gradient =
        frozen ? no_buffer : fixed(Region::parameter_gradients, range.offset * sizeof(float), range.count * sizeof(float));
    emit.set_parameter(range.id, weights, gradient);
    operands.push_back({range.id, weights, gradient});
  }
  for (Value id : graph.values().ids()) {
    if (value(id).producer || users(id).empty()) continue;
    emit.set_value(id, fixed(Region::inputs, stage.input_bytes_, emit.value_bytes(id)));
    stage.input_offsets_.emplace_back(id, stage.input_bytes_);
    stage.input_bytes_ += ops::align_up(emit.value_bytes(id));
  }
  if (options.cache_capacity > 0) {
    stage.positions_offset_ = static_cast<std::int64_t>(stage.input_bytes_);
    // Positions, rows of rotary tables, and the pages of each sequence.
    const std::size_t bytes = static_cast<std::size_t>(options.batch * (2 + options.pages_per_sequence())) * sizeof(std::int32_t);
    emit.set_positions(fixed(Region::inputs, stage.input_bytes_, bytes));
    stage.input_bytes_ += ops::align_up(bytes);
  }
  in_offsets = message_offsets(cut.receives, stage.bytes_in_);
  out_offsets = message_offsets(cut.sends, stage.bytes_out_);
  gradients_out = message_offsets(cut.receives, stage.gradient_bytes_out_, true);
  gradients_in = message_offsets(cut.sends, stage.gradient_bytes_in_, true);
  for (std::size_t k = 0; k < cut.receives.size(); ++k) {
    const Value id = cut.receives[k];
    emit.set_value(id, fixed(Region::values_in, in_offsets[k], emit.value_bytes(id)));
  }
  if (const Value loss = graph.loss_value()) emit.set_value(loss, fixed(Region::results, 0, sizeof(float)));
}

void CompiledStage::Builder::emit_forward_of(NodeId i) {
  emit.set_node(node(i), i, residuals[i]);
  if (!folded.contains(i)) compiled(i)->forward(emit);
}

void CompiledStage::Builder::emit_forward() {
  emit.set_targets({&stage.forward_, nullptr, nullptr});
  for (NodeId i : order) emit_forward_of(i);
  for (std::size_t k = 0; k < cut.sends.size(); ++k)
    send_from(emit.value(cut.sends[k]), false, Region::values_out, out_offsets[k], stage.forward_);
  const Value out = graph.output_value();
  const bool received = std::ranges::find(cut.receives, out) != cut.receives.end();
  if (options.output && out && (received || cut.contains(value(out).producer)) && !is_sent(out))
    stage.output_ = pinned(options.output_row ? emit.take_row(out) : emit.value(out));
}

}  // namespace ppengine::engine
