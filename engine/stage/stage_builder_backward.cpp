// Compiling a stage: its backward, whole or in two halves, with recomputed blocks, and when gradients are final.
#include <fmt/core.h>

#include <algorithm>
#include <tuple>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/graph/node.hpp>
#include <ppengine/engine/stage/stage_builder.hpp>

namespace ppengine::engine {
namespace {

// "transformer.h.3" for everything inside of block 3: up to the first name that is a number. Empty: not part of a block.
std::string block_of(const std::string& module) {
  for (std::size_t begin = 0; begin < module.size();) {
    const std::size_t end = std::min(module.find('.', begin), module.size());
    if (std::all_of(module.begin() + static_cast<long>(begin), module.begin() + static_cast<long>(end),
                    [](char c) { return c >= '0' && c <= '9'; }))
      return module.substr(0, end);
    begin = end + 1;
  }
  return "";
}

// Of a program that first runs some forward instructions again, drops those whose results nobody reads.
void drop_unused(Program& program, std::size_t begin, std::size_t end, const Program* also_read_by) {
  std::set<BufferId> read;
  auto note = [&](const Instruction& one) { read.insert(one.reads.begin(), one.reads.end()); };
  for (std::size_t i = end; i < program.size(); ++i) note(program[i]);
  if (also_read_by && also_read_by != &program) std::ranges::for_each(*also_read_by, note);
  read.erase(no_buffer);
  for (std::size_t i = end; i-- > begin;) {
    if (std::ranges::any_of(program[i].writes, [&](BufferId id) { return read.contains(id); }))
      note(program[i]), read.erase(no_buffer);
    else
      program.erase(program.begin() + static_cast<long>(i));
  }
}

}  // namespace

void CompiledStage::Builder::emit_again(const std::vector<NodeId>& block, Program& into) {
  for (NodeId i : block) emit.forget(i);
  const std::size_t begin = into.size();
  for (NodeId i : block) emit_forward_of(i);
  again.emplace_back(begin, into.size());
}

void CompiledStage::Builder::emit_backward(Program& input_half, Program& weight_half) {
  emit.begin_backward();
  emit.set_targets({&input_half, &input_half, &weight_half});
  again.clear();
  for (std::size_t k = 0; k < cut.sends.size(); ++k)
    if (value(cut.sends[k]).needs_gradient)
      emit.set_gradient(cut.sends[k], fixed(Region::gradients_in, gradients_in[k], emit.value_bytes(cut.sends[k])));
  std::string current;
  for (std::size_t at = order.size(); at-- > 0;) {
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
  for (std::size_t k = again.size(); k-- > 0;) drop_unused(input_half, again[k].first, again[k].second, &weight_half);
  for (std::size_t k = 0; k < cut.receives.size(); ++k) {
    const Value id = cut.receives[k];
    if (!value(id).needs_gradient) continue;
    const BufferId made = emit.gradient(id);
    if (made == no_buffer) {  // nothing here or later depends on it
      const std::size_t bytes = emit.value_bytes(id);
      const BufferId out = fixed(Region::gradients_out, gradients_out[k], bytes);
      input_half.push_back({"message", "zero", {}, {out}, [=](const Run& run) { run.stream.zero(run.at(out), bytes); }});
    } else {  // a loss makes its gradient in the forward, when there is no block of gradients yet
      send_from(made, is_made_by_forward(made), Region::gradients_out, gradients_out[k], input_half);
    }
  }
}

bool CompiledStage::Builder::is_made_by_forward(BufferId id) const {
  return std::ranges::any_of(stage.forward_, [&](const Instruction& one) { return std::ranges::find(one.writes, id) != one.writes.end(); });
}

bool CompiledStage::Builder::reads(const Program& program, Region region) const {
  return std::ranges::any_of(program, [&](const Instruction& one) {
    return std::ranges::any_of(one.reads, [&](BufferId id) { return id != no_buffer && stage.buffers_[id].region == region; });
  });
}

std::vector<CompiledStage::Final> CompiledStage::Builder::find_finals(const Program& program) const {
  std::vector<Final> found;
  for (const Operand& one : operands) {
    if (one.gradient == no_buffer) continue;  // frozen
    bool written = false;
    Final final{0, one.parameter};
    for (std::size_t i = 0; i < program.size(); ++i) {
      const auto& [reads, writes] = std::tie(program[i].reads, program[i].writes);
      const bool writes_it = std::ranges::find(writes, one.gradient) != writes.end();
      if (writes_it || std::ranges::find(reads, one.weights) != reads.end()) final.instruction = i;
      written = written || writes_it;
    }
    if (written)
      found.push_back(final);
    else if (differentiated.contains(one.parameter))
      throw ConfigError(
          fmt::format("{} gets no gradient: the op that uses it never calls parameter_gradients", graph.parameters()[one.parameter].name));
  }
  std::ranges::stable_sort(found, {}, &Final::instruction);
  return found;
}

}  // namespace ppengine::engine
