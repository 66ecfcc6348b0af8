// The nodes at which tensor-parallel ranks meet: where a value that all of them have goes into divided work, where they
// sum its results, and where parts of the tokens or of the width are put together.
#include <ppengine/comm/communicator.hpp>
#include <ppengine/engine/nodes/nodes.hpp>
#include <ppengine/ops/elementwise.hpp>

namespace ppengine::engine {
namespace {

// Where costs are measured, one rank runs alone (Run::tensor is null): it then moves as much memory, without the messages.
class CompiledCollective : public CompiledNode {
 public:
  CompiledCollective(const Node& node, std::int64_t width, int ranks, const CompileOptions& options)
      : output_(node.output),
        ranks_(ranks),
        count_(static_cast<std::size_t>(options.batch * options.length * width)),
        part_(static_cast<std::size_t>(row_part(options, 0, ranks).room * width)),
        type_(options.type) {}

 protected:
  Emitter::Body sum_over_ranks(BufferId from, BufferId to) const {
    return [from, to, type = type_, count = count_](const Run& run) {
      if (run.tensor)
        run.tensor->allreduce(run.at(from), run.at(to), count, type, run.stream).wait_on(run.stream);
      else
        run.stream.copy(run.at(to), run.at(from), count * ops::size_of(type));
    };
  }
  // Sums over ranks; each keeps its part of the tokens.
  Emitter::Body scatter(BufferId from, BufferId to) const {
    return [from, to, type = type_, part = part_](const Run& run) {
      if (run.tensor)
        run.tensor->reduce_scatter(run.at(from), run.at(to), part, type, run.stream).wait_on(run.stream);
      else
        run.stream.copy(run.at(to), run.at(from), part * ops::size_of(type));
    };
  }
  Emitter::Body gather(BufferId from, BufferId to) const {
    return [from, to, type = type_, part = part_, ranks = ranks_](const Run& run) {
      if (run.tensor) {
        run.tensor->all_gather(run.at(from), run.at(to), part, type, run.stream).wait_on(run.stream);
        return;
      }
      const std::size_t bytes = part * ops::size_of(type);
      for (int r = 0; r < ranks; ++r) run.stream.copy(run.as<std::byte>(to) + static_cast<std::size_t>(r) * bytes, run.at(from), bytes);
    };
  }
  // This rank's tokens of what all ranks have.
  Emitter::Body take(BufferId from, BufferId to) const {
    return [from, to, bytes = part_ * ops::size_of(type_)](const Run& run) {
      const auto rank = static_cast<std::size_t>(run.tensor ? run.tensor->rank() : 0);
      run.stream.copy(run.at(to), run.as<std::byte>(from) + rank * bytes, bytes);
    };
  }
  void emit_backward(Emitter& emit, Emitter::Body (CompiledCollective::*body)(BufferId, BufferId) const) const {
    const BufferId diff_dst = emit.output_gradient();
    const GradientTarget target = emit.begin_gradient(0, false);
    if (!target) return;
    emit.input_half({diff_dst}, {target.diff}, (this->*body)(diff_dst, target.diff));
    emit.finish_gradient(0, target);
  }
  void emit_forward(Emitter& emit, Emitter::Body (CompiledCollective::*body)(BufferId, BufferId) const) const {
    const BufferId src = emit.input(0), dst = emit.output();
    emit.forward({src}, {dst}, (this->*body)(src, dst));
  }

  Value output_;
  int ranks_;
  std::size_t count_;  // elements of all tokens
  std::size_t part_;   // of a rank's part of them, with the room behind it
  ops::Type type_;
};

class CompiledCopy : public CompiledCollective {
 public:
  using CompiledCollective::CompiledCollective;
  void forward(Emitter& emit) override { emit.set_value(output_, emit.input(0)); }  // no instruction: the same memory
  void backward(Emitter& emit) override { emit_backward(emit, &CompiledCopy::sum_over_ranks); }
};

class CompiledSum : public CompiledCollective {
 public:
  using CompiledCollective::CompiledCollective;
  void forward(Emitter& emit) override { emit_forward(emit, &CompiledSum::sum_over_ranks); }
  void backward(Emitter& emit) override { emit.pass_gradient(0); }
};

class CompiledSumRows : public CompiledCollective {
 public:
  using CompiledCollective::CompiledCollective;
  void forward(Emitter& emit) override { emit_forward(emit, &CompiledSumRows::scatter); }
  void backward(Emitter& emit) override { emit_backward(emit, &CompiledSumRows::gather); }
};

class CompiledGatherRows : public CompiledCollective {
 public:
  using CompiledCollective::CompiledCollective;
  void forward(Emitter& emit) override { emit_forward(emit, &CompiledGatherRows::gather); }
  void backward(Emitter& emit) override { emit_backward(emit, &CompiledGatherRows::take); }
};

class CompiledCopyRows : public CompiledCollective {
 public:
  using CompiledCollective::CompiledCollective;
  void forward(Emitter& emit) override { emit_forward(emit, &CompiledCopyRows::gather); }
  void backward(Emitter& emit) override { emit_backward(emit, &CompiledCopyRows::scatter); }
};

class CompiledTakeRows : public CompiledCollective {
 public:
  using CompiledCollective::CompiledCollective;
  void forward(Emitter& emit) override { emit_forward(emit, &CompiledTakeRows::take); }
  void backward(Emitter& emit) override { emit_backward(emit, &CompiledTakeRows::gather); }
};

// Between stretches of the width, one on each rank, and all of it. Messages are of one size: as wide as the widest stretch.
struct Columns {
  std::int64_t rows, width;
  int ranks;
  ops::Type type;

  std::size_t slot() const { return mine(0); }  // elements
  std::size_t mine(int rank) const { return static_cast<std::size_t>(rows * stretch_of(width, rank, ranks).count); }
  std::size_t slots_bytes() const { return slot() * static_cast<std::size_t>(ranks) * ops::size_of(type); }
  ops::Tensor of(void* whole, int rank) const {
    const Stretch its = stretch_of(width, rank, ranks);
    return ops::Tensor(whole, type, {rows, width}).slice(1, its.begin, its.begin + its.count);
  }
  ops::Tensor part(void* data, int rank) const { return {data, type, {rows, stretch_of(width, rank, ranks).count}}; }

  Emitter::Body gather(BufferId from, BufferId slots, BufferId to) const {
    return [=, *this](const Run& run) {
      const int rank = run.tensor ? run.tensor->rank() : 0;
      const auto at = [&](int r) { return run.as<std::byte>(slots) + static_cast<std::size_t>(r) * slot() * ops::size_of(type); };
      run.stream.copy(at(rank), run.at(from), mine(rank) * ops::size_of(type));
      if (run.tensor) run.tensor->all_gather(at(rank), run.at(slots), slot(), type, run.stream).wait_on(run.stream);
      for (int r = 0; r < ranks; ++r) ops::copy_strided(run.stream, part(at(r), r), of(run.at(to), r));
    };
  }
  // Every rank has all columns: it takes its own.
  Emitter::Body take(BufferId from, BufferId to) const {
    return [=, *this](const Run& run) {
      const int rank = run.tensor ? run.tensor->rank() : 0;
      ops::copy_strided(run.stream, of(run.at(from), rank), part(run.at(to), rank));
    };
  }
};

class CompiledWidth : public CompiledNode {
 public:
  CompiledWidth(const Node&, std::int64_t width, int ranks, const CompileOptions& options)
      : columns_{options.batch * options.length, width, ranks, options.type} {}

 protected:
  Columns columns_;
};

class CompiledGatherWidth : public CompiledWidth {
 public:
  using CompiledWidth::CompiledWidth;
  void forward(Emitter& emit) override {
    const BufferId src = emit.input(0), dst = emit.output(), slots = emit.workspace(columns_.slots_bytes());
    emit.forward({src}, {slots, dst}, columns_.gather(src, slots, dst));
  }
  void backward(Emitter& emit) override {
    const BufferId diff_dst = emit.output_gradient();
    const GradientTarget target = emit.begin_gradient(0, false);
    if (!target) return;
    emit.input_half({diff_dst}, {target.diff}, columns_.take(diff_dst, target.diff));
    emit.finish_gradient(0, target);
  }
};

class CompiledTakeWidth : public CompiledWidth {
 public:
  using CompiledWidth::CompiledWidth;
  void forward(Emitter& emit) override {
    const BufferId src = emit.input(0), dst = emit.output();
    emit.forward({src}, {dst}, columns_.take(src, dst));
  }
  void backward(Emitter& emit) override {
    const BufferId diff_dst = emit.output_gradient(), slots = emit.workspace(columns_.slots_bytes());
    const GradientTarget target = emit.begin_gradient(0, false);
    if (!target) return;
    emit.input_half({diff_dst}, {slots, target.diff}, columns_.gather(diff_dst, slots, target.diff));
    emit.finish_gradient(0, target);
  }
};

template <class Compiled>
class CollectiveNode : public NodeOp {
 public:
  CollectiveNode(const char* kind, Exchange exchange, std::int64_t width, int ranks, bool row_by_row)
      : kind_(kind), exchange_(exchange), width_(width), ranks_(ranks), row_by_row_(row_by_row) {}
  const char* kind() const override { return kind_; }
  Exchange exchange() const override { return exchange_; }
  bool row_by_row() const override { return row_by_row_; }
  double flops(const Graph&, const Node&, std::int64_t batch, std::int64_t length) const override {
    return double(batch * length * width_);
  }
  std::unique_ptr<CompiledNode> compile(ops::Device&, const Graph&, const Node& node, const NodePlan&,
                                        const CompileOptions& options) const override {
    return std::make_unique<Compiled>(node, width_, ranks_, options);
  }

 private:
  const char* kind_;
  Exchange exchange_;
  std::int64_t width_;
  int ranks_;
  bool row_by_row_;
};

template <class Compiled>
std::shared_ptr<const NodeOp> collective(const char* kind, Exchange exchange, std::int64_t width, int ranks, bool row_by_row = false) {
  return std::make_shared<CollectiveNode<Compiled>>(kind, exchange, width, ranks, row_by_row);
}

}  // namespace

std::shared_ptr<const NodeOp> make_tensor_node(TensorMeeting what, std::int64_t width, int ranks) {
  switch (what) {
    case TensorMeeting::copy:
      return collective<CompiledCopy>("tensor_copy", {0, 2}, width, ranks, true);
    case TensorMeeting::sum:
      return collective<CompiledSum>("tensor_sum", {2, 0}, width, ranks, true);
    case TensorMeeting::gather_width:
      return collective<CompiledGatherWidth>("tensor_gather", {1, 0}, width, ranks, true);
    case TensorMeeting::take_width:
      return collective<CompiledTakeWidth>("tensor_take", {0, 1}, width, ranks, true);
    case TensorMeeting::copy_rows:
      return collective<CompiledCopyRows>("tensor_copy_rows", {1, 1}, width, ranks);
    case TensorMeeting::sum_rows:
      return collective<CompiledSumRows>("tensor_sum_rows", {1, 1}, width, ranks);
    case TensorMeeting::gather_rows:
      return collective<CompiledGatherRows>("tensor_gather_rows", {1, 0}, width, ranks);
    case TensorMeeting::take_rows:
      return collective<CompiledTakeRows>("tensor_take_rows", {0, 1}, width, ranks);
  }
  return nullptr;
}

}  // namespace ppengine::engine
