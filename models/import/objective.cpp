// What a lowered program is run for: its loss, and its outputs side by side for each sample.
#include <fmt/core.h>

#include <ppengine/base/error.hpp>
#include <ppengine/models/import/lowering.hpp>

namespace ppengine::models {

void Lowering::add_loss(const std::vector<TensorRef>& outputs) {
  ProgramLoss loss = options_.loss;
  const TensorRef& first = outputs[0];
  const bool scalar = count_of(first.shape).is(1) && first.type == 'f';
  if (loss == ProgramLoss::none) {
    if (!scalar) return;
    loss = ProgramLoss::output;
  }
  const auto per_sample = [&](const Dims& shape) {
    const Dim count = count_of(shape);
    if (count.square != 0)
      throw ConfigError(fmt::format("--loss: the program's first output {} compares all samples: use --loss output", text_of(shape)));
    return into_.fixed_batch > 0 ? count.fixed / into_.fixed_batch : count.batch;
  };
  const auto targets = [&](const Dims& shape, char type) {
    check_sample("targets", shape);
    into_.targets_width = per_sample(shape);
    into_.targets_are_integers = type == 'i';
    return build_.input("targets", shape, type);
  };
  if (loss == ProgramLoss::output) {
    if (!scalar) throw ConfigError(fmt::format("--loss output: the program's first output is {}, not a scalar", text_of(first.shape)));
    return build_.sum_loss(build_.reshape(first, {}), 1);
  }
  if (first.shape.empty() || first.type != 'f') throw ConfigError("--loss: the program's first output has no batch; use --loss output");
  if (loss == ProgramLoss::cross_entropy) {
    const int rank = first.rank(), dim = options_.class_dim < 0 ? options_.class_dim + rank : options_.class_dim;
    if (dim < 1 || dim >= rank)
      throw ConfigError(
          fmt::format("--class-dim {} is no dimension of the output {} behind the batch", options_.class_dim, text_of(first.shape)));
    Dims shape = first.shape;
    shape.erase(shape.begin() + dim);
    if (!first.shape[static_cast<std::size_t>(dim)].constant())
      throw ConfigError(
          fmt::format("--loss cross_entropy: the output {} has as many classes as samples: compute such a loss in the program "
                      "and use --loss output",
                      text_of(first.shape)));
    return build_.cross_entropy_loss(first, dim, targets(shape, 'i'));
  }
  const TensorRef wanted = targets(first.shape, 'f');
  const std::int64_t elements = per_sample(first.shape);
  const TensorRef each = loss == ProgramLoss::mse ? build_.apply("($0 - $1) * ($0 - $1)", {"2.0f * ($0 - $1) * $g", ""}, {first, wanted})
                                                  : build_.apply("($0 > 0 ? $0 : 0.0f) - $0 * $1 + sycl::log1p(sycl::exp(-sycl::fabs($0)))",
                                                                 {"(logistic($0) - $1) * $g", ""}, {first, wanted});
  build_.sum_loss(build_.reshape(each, {count_of(each.shape)}), elements);
}

void Lowering::add_outputs(const std::vector<TensorRef>& outputs) {
  std::vector<TensorRef> rows;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    ProgramOutput& to = into_.outputs[i];
    const TensorRef& one = outputs[i];
    if (!one.exists()) continue;
    to.batched = !one.shape.empty() && (one.shape[0] == Dim(1, 0) || (into_.fixed_batch > 0 && one.shape[0].is(into_.fixed_batch)));
    Dim rest = 1;
    for (std::size_t d = to.batched ? 1 : 0; d < one.shape.size(); ++d) {
      rest = rest * one.shape[d];
      if (one.shape[d].constant()) to.shape.push_back(one.shape[d].fixed);
    }
    if (!to.batched || !rest.constant() || !options_.outputs) continue;
    to.offset = offset;
    offset += rest.fixed;
    rows.push_back(build_.reshape(cast(one, 'f'), {one.shape[0], rest}));
  }
  if (rows.empty()) return;
  TensorRef all = build_.dense(build_.read(build_.cat(rows, 1)));
  if (!into_.graph->info(engine::Value(all.value)).producer) all = build_.apply("$0", {"$g"}, {all});
  into_.graph->output(engine::Value(all.value));
}

}  // namespace ppengine::models
