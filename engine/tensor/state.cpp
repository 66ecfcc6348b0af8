// Buffers that a program changes itself: read as they were, written when the microbatch's forward has their new value.
#include <ppengine/engine/tensor/builder.hpp>

namespace ppengine::engine {

TensorRef TensorBuilder::state(int id) {
  // A copy: what comes later in the same forward may change the buffer before a backward reads it.
  const TensorRef whole = read(parameter(id), false);
  return add_node(
      "state", {whole}, {}, whole.shape, 'f',
      [count = count_of(whole.shape)](const TensorCompile& c) {
        const std::size_t bytes = static_cast<std::size_t>(count.at(c.samples)) * sizeof(float);
        return TensorEmission{[=](Emitter& emit) {
                                const BufferId from = emit.input(0), to = emit.output();
                                emit.forward({from}, {to}, [=](const Run& run) { run.stream.copy(run.at(to), run.at(from), bytes); });
                              },
                              [](Emitter&) {}};
      },
      {}, false);
}

void TensorBuilder::set_state(int id, const TensorRef& value) {
  const TensorRef made = dense(read(value));
  const auto compile = [=](const TensorCompile& c) {
    const std::size_t bytes = static_cast<std::size_t>(count_of(made.shape).at(c.samples)) * sizeof(float);
    const bool training = c.options.training;
    // No parameter of this node, which would ask for its gradient: it is looked up as another node's.
    const auto forward = [=, node = &c.node, index = c.graph.values()[c.node.output].producer](Emitter& emit) {
      const BufferId from = emit.input(0), done = emit.output();
      if (!training) return emit.forward({}, {done}, [](const Run&) {});
      Node holder = *node;
      holder.parameters = {ParameterId(id)};
      emit.set_node(holder, index, {});
      const BufferId to = emit.parameter(0);
      emit.set_node(*node, index, {});
      emit.forward({from}, {to, done}, [=](const Run& run) { run.stream.copy(run.at(to), run.at(from), bytes); });
    };
    return TensorEmission{forward, [](Emitter&) {}};
  };
  add_node(
      "running_statistics", {}, {id}, made.shape, 'f',
      [](const TensorCompile&) { return TensorEmission{[](Emitter&) {}, [](Emitter&) {}}; },
      [](std::int64_t) { return 0.0; });  // keeps it in the stage; nothing ever runs it
  add_node("set_state", {made}, {}, {1}, 'f', compile, [](std::int64_t) { return 0.0; }, false, ValueKind::activation, {},
           {.changes_state = true});
}

}  // namespace ppengine::engine
