// Compiling a stage: which nodes are needed, what is fused, emission of the programs, placement of memory.
#include <ppengine/engine/stage/compiled_stage.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/stage/readiness.hpp>
#include <ppengine/ops/device/generated.hpp>

namespace ppengine::engine {
namespace {

// "transformer.h.3" for everything inside of block 3: up to the first name that is a number. Empty: not part of a block.
std::string block_of(const std::string& module) {
  for (size_t begin = 0; begin < module.size();) {
    const size_t end = std::min(module.find('.', begin), module.size());
    if (std::all_of(module.begin() + static_cast<long>(begin), module.begin() + static_cast<long>(end),
                    [](char c) { return c >= '0' && c <= '9'; }))
      return module.substr(0, end);
    begin = end + 1;
  }
  return "";
}

// Of a program that first runs some forward instructions again, drops those whose results nobody reads.
void drop_unused(Program& program, size_t begin, size_t end, const Program* also_read_by) {
  std::set<BufferId> read;
  auto note = [&](const Instruction& one) { read.insert(one.reads.begin(), one.reads.end()); };
  for (size_t i = end; i < program.size(); ++i) note(program[i]);
  if (also_read_by && also_read_by != &program) std::ranges::for_each(*also_read_by, note);
  read.erase(no_buffer);
  for (size_t i = end; i-- > begin;) {
    if (std::ranges::any_of(program[i].writes, [&](BufferId id) { return read.contains(id); }))
      note(program[i]), read.erase(no_buffer);
    else
      program.erase(program.begin() + static_cast<long>(i));
  }
}

}  // namespace

struct CompiledStage::Builder {
  CompiledStage& stage;
  ops::Device& device;
  const Graph& graph;
  const StageCut& cut;
  const CompileOptions& options;
  Emitter emit;
  std::vector<NodeId> order;          // needed nodes of the stage
  IdVector<NodeId, Value> residuals;  // what a node adds to its output; may be none
  std::set<NodeId> folded;            // add nodes that another node carries out

  Builder(CompiledStage& to, ops::Device& on, const Graph& model, const StageCut& where)
      : stage(to),
        device(on),
        graph(model),
        cut(where),
        options(to.options_),
        emit(model, to.buffers_, options.type, options.batch * options.length),
        residuals(model.nodes().size()) {}

  const Node& node(NodeId i) const { return graph.nodes()[i]; }
  const ValueInfo& value(Value i) const { return graph.values()[i]; }
  bool is_sent(Value id) const { return std::ranges::find(cut.sends, id) != cut.sends.end(); }

  std::vector<NodeId> users(Value id) const {
    std::vector<NodeId> found;
    for (NodeId i : order)
      for (Value input : node(i).inputs)
        if (input == id) found.push_back(i);
    return found;
  }

  // An add whose one operand comes from an op that can add a residual, and is used nowhere else, becomes part of that op.
  void fold_residuals() {
    for (NodeId i : order) {
      if (!node(i).op->is_sum()) continue;
      for (size_t k : {1, 0}) {
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

  void mark_rows() {
    const auto one_row = one_row_nodes(graph);
    for (NodeId i : one_row.ids())
      if (one_row[i]) emit.set_one_row(graph.nodes()[i].output);
  }

  void compile_nodes() {
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

  std::unique_ptr<CompiledNode>& compiled(NodeId i) { return stage.nodes_[i]; }

  BufferId fixed(Region region, size_t offset, size_t bytes) {
    const BufferId id = emit.make(bytes);
    stage.buffers_[id] = {bytes, region, offset, false, true};
    return id;
  }
  BufferInfo& info(BufferId id) { return stage.buffers_[id]; }
  BufferId pinned(BufferId id) {
    info(id).pinned = !info(id).placed;
    return id;
  }

  // The values of a cut one after the other: offsets, and the bytes of all.
  std::vector<size_t> message_offsets(const std::vector<Value>& values, size_t& bytes, bool of_gradients = false) const {
    std::vector<size_t> offsets;
    bytes = 0;
    for (Value id : values) {
      offsets.push_back(bytes);
      if (!of_gradients || value(id).needs_gradient) bytes += ops::align_up(emit.value_bytes(id));
    }
    return offsets;
  }
  // What a program has made goes out in a message: made there in the first place, or copied where that cannot be.
  void send_from(BufferId made, bool copied, Region region, size_t offset, Program& program) {
    BufferInfo& source = info(made);
    if (!copied && !source.placed) {
      source.region = region;
      source.offset = offset;
      source.placed = true;
      return;
    }
    const size_t bytes = source.bytes;
    const BufferId out = fixed(region, offset, bytes);
    program.push_back({"message", "copy", {made}, {out}, [=](const Run& run) { run.stream.copy(run.at(out), run.at(made), bytes); }});
  }
  bool reads(const Program& program, Region region) const {
    return std::ranges::any_of(program, [&](const Instruction& one) {
      return std::ranges::any_of(one.reads, [&](BufferId id) { return id != no_buffer && stage.buffers_[id].region == region; });
    });
  }

  void place_operands() {
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
      stage.positions_offset_ = static_cast<int64_t>(stage.input_bytes_);
      // Positions, rows of rotary tables, and the pages of each sequence.
      const size_t bytes = static_cast<size_t>(options.batch * (2 + options.pages_per_sequence())) * sizeof(int32_t);
      emit.set_positions(fixed(Region::inputs, stage.input_bytes_, bytes));
      stage.input_bytes_ += ops::align_up(bytes);
    }
    in_offsets = message_offsets(cut.receives, stage.bytes_in_);
    out_offsets = message_offsets(cut.sends, stage.bytes_out_);
    gradients_out = message_offsets(cut.receives, stage.gradient_bytes_out_, true);
    gradients_in = message_offsets(cut.sends, stage.gradient_bytes_in_, true);
    for (size_t k = 0; k < cut.receives.size(); ++k) {
      const Value id = cut.receives[k];
      emit.set_value(id, fixed(Region::values_in, in_offsets[k], emit.value_bytes(id)));
    }
    if (const Value loss = graph.loss_value()) emit.set_value(loss, fixed(Region::results, 0, sizeof(float)));
  }

  void emit_forward_of(NodeId i) {
    emit.set_node(node(i), i, residuals[i]);
    if (!folded.contains(i)) compiled(i)->forward(emit);
  }

  void emit_forward() {
    emit.set_targets({&stage.forward_, nullptr, nullptr});
    for (NodeId i : order) emit_forward_of(i);
    for (size_t k = 0; k < cut.sends.size(); ++k)
      send_from(emit.value(cut.sends[k]), false, Region::values_out, out_offsets[k], stage.forward_);
    const Value out = graph.output_value();
    const bool received = std::ranges::find(cut.receives, out) != cut.receives.end();
    if (options.output && out && (received || cut.contains(value(out).producer)) && !is_sent(out))
      stage.output_ = pinned(options.output_row ? emit.take_row(out) : emit.value(out));
  }

  // Runs the forward of a whole block again, into the backward's program.
  void emit_again(const std::vector<NodeId>& block, Program& into) {
    for (NodeId i : block) emit.forget(i);
    const size_t begin = into.size();
    for (NodeId i : block) emit_forward_of(i);
    again.emplace_back(begin, into.size());
  }

  void emit_backward(Program& input_half, Program& weight_half) {
    emit.begin_backward();
    emit.set_targets({&input_half, &input_half, &weight_half});
    again.clear();
    for (size_t k = 0; k < cut.sends.size(); ++k)
      if (value(cut.sends[k]).needs_gradient)
        emit.set_gradient(cut.sends[k], fixed(Region::gradients_in, gradients_in[k], emit.value_bytes(cut.sends[k])));
    std::string current;
    for (size_t at = order.size(); at-- > 0;) {
      const NodeId i = order[at];
      if (options.recompute) {
        const std::string block = block_of(node(i).module);
        if (block != current && !block.empty()) {
          std::vector<NodeId> members;
          for (NodeId j : order)
            if (block_of(node(j).module) == block) members.push_back(j);
          emit_again(members, input_half);
        }
        current = block;
      }
      emit.set_node(node(i), i, residuals[i]);
      const bool is_loss = node(i).output == graph.loss_value();
      if (!is_loss && emit.output_gradient() == no_buffer) continue;
      compiled(i)->backward(emit);
      differentiated.insert(node(i).parameters.begin(), node(i).parameters.end());
    }
    for (size_t k = again.size(); k-- > 0;) drop_unused(input_half, again[k].first, again[k].second, &weight_half);
    for (size_t k = 0; k < cut.receives.size(); ++k) {
      const Value id = cut.receives[k];
      if (!value(id).needs_gradient) continue;
      const BufferId made = emit.gradient(id);
      if (made == no_buffer) {  // nothing here or later depends on it
        const size_t bytes = emit.value_bytes(id);
        const BufferId out = fixed(Region::gradients_out, gradients_out[k], bytes);
        input_half.push_back({"message", "zero", {}, {out}, [=](const Run& run) { run.stream.zero(run.at(out), bytes); }});
      } else {  // a loss makes its gradient in the forward, when there is no block of gradients yet
        send_from(made, is_made_by_forward(made), Region::gradients_out, gradients_out[k], input_half);
      }
    }
  }

  bool is_made_by_forward(BufferId id) const {
    return std::ranges::any_of(stage.forward_,
                               [&](const Instruction& one) { return std::ranges::find(one.writes, id) != one.writes.end(); });
  }

  // A parameter of a node whose backward was asked for, but whose gradient nobody writes, is a mistake in an op.
  std::vector<Final> find_finals(const Program& program) const {
    std::vector<Final> found;
    for (const Operand& one : operands) {
      if (one.gradient == no_buffer) continue;  // frozen
      bool written = false;
      Final final{0, one.parameter};
      for (size_t i = 0; i < program.size(); ++i) {
        const auto& [reads, writes] = std::tie(program[i].reads, program[i].writes);
        const bool writes_it = std::ranges::find(writes, one.gradient) != writes.end();
        if (writes_it || std::ranges::find(reads, one.weights) != reads.end()) final.instruction = i;
        written = written || writes_it;
      }
      if (written)
        found.push_back(final);
      else if (differentiated.contains(one.parameter))
        throw ConfigError(fmt::format("{} gets no gradient: the op that uses it never calls parameter_gradients",
                                      graph.parameters()[one.parameter].name));
    }
    std::ranges::stable_sort(found, {}, &Final::instruction);
    return found;
  }

  struct Operand {
    ParameterId parameter;
    BufferId weights, gradient;
  };
  std::vector<Operand> operands;
  std::vector<size_t> in_offsets, out_offsets;      // of what the stage receives and sends, in a message of values
  std::vector<size_t> gradients_out, gradients_in;  // of the same values' gradients in theirs
  std::set<ParameterId> differentiated;             // parameters of the nodes that the gradient reaches
  std::vector<std::pair<size_t, size_t>> again;     // ranges of instructions that run a forward again
};

CompiledStage::CompiledStage(const std::shared_ptr<ops::Device>& device, const Graph& graph, const StageCut& cut,
                             const ParameterStore& parameters, const CompileOptions& options, ops::MemoryCounter* counter)
    : options_(options), parameters_(parameters) {
  Builder builder(*this, *device, graph, cut);
  kernels_ = std::make_shared<ops::GeneratedKernels>(*device);
  builder.emit.set_kernels(kernels_);
  builder.order = needed_nodes(graph, cut, options.loss, options.output, options.cache_capacity > 0);
  if (options.output_row) builder.mark_rows();
  builder.fold_residuals();
  builder.compile_nodes();
  builder.place_operands();
  builder.emit_forward();
  if (options.training) {
    builder.emit_backward(full_, full_);
    if (options.split_backward) builder.emit_backward(input_, weight_);
    keeps_values_out_ =
        builder.reads(full_, Region::values_out) || builder.reads(input_, Region::values_out) || builder.reads(weight_, Region::values_out);
    keeps_gradients_out_ = builder.reads(weight_, Region::gradients_out);
    final_in_full_ = builder.find_finals(full_);
    if (options.split_backward) final_in_weight_ = builder.find_finals(weight_);
    for (const Bucket& bucket : parameters.buckets())
      for (ParameterId id : bucket.parameters)
        if (bucket.reduced() && !builder.differentiated.contains(id)) without_gradient_.push_back(id);
  }
  kernels_->build();
  layout_ = place_buffers(buffers_, forward_, full_, input_, weight_);
  cache_bytes_ = builder.emit.cache_bytes();

  size_t bytes = 0;
  for (const auto& [name, constant] : builder.emit.constants())
    bytes = std::max(bytes, buffers_[constant.first].offset + constant.second.size() * sizeof(float));
  constants_ = ops::Buffer(device, bytes, counter);
  ops::Stream stream(device);
  for (const auto& [name, constant] : builder.emit.constants())
    stream.copy(constants_.at(buffers_[constant.first].offset), constant.second.data(), constant.second.size() * sizeof(float));
  stream.wait();
}

int64_t CompiledStage::input_offset(Value value) const {
  for (const auto& [id, offset] : input_offsets_)
    if (id == value) return static_cast<int64_t>(offset);
  return -1;
}

Run CompiledStage::start(ops::Stream& stream) const {
  Run run{.stream = stream, .buffers = buffers_, .base = {}};
  run.base[static_cast<int>(Region::parameters)] = static_cast<std::byte*>(parameters_.compute());
  run.base[static_cast<int>(Region::parameter_gradients)] = reinterpret_cast<std::byte*>(parameters_.gradients());
  run.base[static_cast<int>(Region::constants)] = static_cast<std::byte*>(constants_.data());
  return run;
}

}  // namespace ppengine::engine
