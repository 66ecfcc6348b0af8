// Muon's update: momentum, Newton-Schulz iteration, step.
#include <ppengine/engine/weights/muon.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/elementwise.hpp>

namespace ppengine::engine {
namespace {

constexpr int iterations = 5;
constexpr float a = 3.4445f, b = -4.7750f, c = 2.0315f, smallest_norm = 1e-7f;

ops::Tensor turned(ops::Tensor matrix) {
  std::swap(matrix.shape[0], matrix.shape[1]);
  std::swap(matrix.strides[0], matrix.strides[1]);
  return matrix;
}

bool is_hidden_matrix(const ParameterInfo& info) {
  return info.linear_weight && !info.fixed_layout && !info.frozen && info.shape.rank() == 2 && !info.name.ends_with("lm_head.weight") &&
         !info.name.ends_with("embed_out.weight");
}

}  // namespace

MuonUpdates::MuonUpdates(ModelRank& model, const OptimizerOptions& options) : model_(model), options_(options) {
  if (model.sharding()) throw ConfigError("--optimizer muon works on whole matrices: it does not go with --shard");
  int64_t largest = 0, smaller_side = 0;
  for (const ParameterInfo& info : model.graph().parameters()) {
    if (!is_hidden_matrix(info)) continue;
    if (info.placement.is_split()) throw ConfigError("--optimizer muon works on whole matrices: it does not go with --tp");
    largest = std::max(largest, info.shape.count());
    smaller_side = std::max(smaller_side, std::min(info.shape[0], info.shape[1]));
  }
  const auto room = [&](int64_t count) { return ops::Buffer(model.device(), static_cast<size_t>(count) * sizeof(float), &model.memory()); };
  matrix_ = room(largest);
  next_ = room(largest);
  gram_ = room(smaller_side * smaller_side);
  polynomial_ = room(smaller_side * smaller_side);
  scratch_ = ops::Buffer(model.device(), ops::reduce_workspace() + ops::buffer_alignment, &model.memory());
}

bool MuonUpdates::has(ParameterId parameter) const { return is_hidden_matrix(model_.graph().parameters()[parameter]); }

MuonUpdates::Products& MuonUpdates::products(int64_t rows, int64_t columns, bool transposed) {
  Products& found = products_[{rows, columns, transposed}];
  if (found.gram) return found;
  // x is [rows, columns] as a view: in memory it may be [columns, rows].
  const ops::Tensor plain(nullptr, ops::Type::f32, {rows, columns}), stored(nullptr, ops::Type::f32, {columns, rows});
  const ops::Tensor x = transposed ? turned(stored) : plain, square(nullptr, ops::Type::f32, {rows, rows});
  found.gram = ops::Matmul::make(*model_.device(), {.a = x, .b = turned(x), .c = square});
  found.square = ops::Matmul::make(*model_.device(), {.a = square, .b = square, .c = square, .alpha = c, .accumulate = true});
  found.step = ops::Matmul::make(*model_.device(), {.a = square, .b = x, .c = x, .accumulate = true});
  return found;
}

// matrix_ becomes nearly orthogonal: x <- a x + (b A + c A A) x with A = x xᵀ, from a norm of one on.
void MuonUpdates::orthogonalise(ops::Stream& stream, int64_t rows, int64_t columns, bool transposed) {
  const int64_t count = rows * columns, square = rows * rows;
  float* const norm = scratch_.as<float>();
  ops::sum_squares(stream, matrix_.as<float>(), norm, count, scratch_.at(ops::buffer_alignment));
  float squares = 0;
  stream.copy(&squares, norm, sizeof(float));
  stream.wait();
  ops::scale(stream, ops::Type::f32, matrix_.data(), 1.0f / std::max(std::sqrt(squares), smallest_norm), count);
  Products& product = products(rows, columns, transposed);
  for (int i = 0; i < iterations; ++i) {
    product.gram->run(stream, matrix_.data(), matrix_.data(), gram_.data());
    stream.copy(polynomial_.data(), gram_.data(), static_cast<size_t>(square) * sizeof(float));
    ops::scale(stream, ops::Type::f32, polynomial_.data(), b, square);
    product.square->run(stream, gram_.data(), gram_.data(), polynomial_.data());
    stream.copy(next_.data(), matrix_.data(), static_cast<size_t>(count) * sizeof(float));
    ops::scale(stream, ops::Type::f32, next_.data(), a, count);
    product.step->run(stream, polynomial_.data(), matrix_.data(), next_.data());
    std::swap(matrix_, next_);
  }
}

bool MuonUpdates::update(ops::Stream& stream, StageId stage, size_t bucket, float* momentum, double lr, double gradient_scale) {
  ParameterStore& store = model_.parameters(stage);
  if (!store.buckets()[bucket].reduced()) return false;
  bool any = false;
  for (ParameterId id : store.buckets()[bucket].parameters) {
    if (!has(id)) continue;
    any = true;
    const ParameterInfo& info = model_.graph().parameters()[id];
    const ParameterRange& range = *store.find(id);
    const int64_t stored_rows = info.shape[range.transposed ? 1 : 0], stored_columns = info.shape[range.transposed ? 0 : 1];
    const auto count = static_cast<int64_t>(range.count);
    const auto m = static_cast<float>(options_.muon_momentum);
    float* const kept = momentum + range.offset;
    const float* const gradient = store.gradients() + range.offset;
    // kept <- m kept + (1 - m) g; the update looks ahead: (1 - m) g + m kept.
    stream.copy(matrix_.data(), gradient, range.count * sizeof(float));
    ops::scale(stream, ops::Type::f32, matrix_.data(), (1.0f - m) * static_cast<float>(gradient_scale), count);
    ops::scale(stream, ops::Type::f32, kept, m, count);
    ops::add(stream, ops::Type::f32, kept, matrix_.data(), kept, count);
    stream.copy(next_.data(), kept, range.count * sizeof(float));
    ops::scale(stream, ops::Type::f32, next_.data(), m, count);
    ops::add(stream, ops::Type::f32, matrix_.data(), next_.data(), matrix_.data(), count);
    const bool tall = stored_rows > stored_columns;
    orthogonalise(stream, std::min(stored_rows, stored_columns), std::max(stored_rows, stored_columns), tall);
    const double ratio = std::sqrt(std::max(1.0, double(info.shape[0]) / double(info.shape[1])));
    float* const values = store.values() + range.offset;
    ops::scale(stream, ops::Type::f32, values, static_cast<float>(1.0 - lr * options_.weight_decay), count);
    ops::scale(stream, ops::Type::f32, matrix_.data(), static_cast<float>(-lr * ratio), count);
    ops::add(stream, ops::Type::f32, values, matrix_.data(), values, count);
    if (void* const copies = store.compute_copy())
      ops::cast(stream, ops::Type::f32, values, store.compute_type(),
                static_cast<std::byte*>(copies) + range.offset * ops::size_of(store.compute_type()), count);
  }
  return any;
}

}  // namespace ppengine::engine
