// Muon's update: momentum, Newton-Schulz iteration, step.
#include <ppengine/engine/weights/muon.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

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

// To the nearest bf16, of two the even one.
float rounded(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u);
}

bool is_hidden_matrix(const ParameterInfo& info) {
  return info.linear_weight && !info.fixed_layout && !info.frozen && info.shape.rank() == 2 && !info.name.ends_with("lm_head.weight") &&
         !info.name.ends_with("embed_out.weight");
}

}  // namespace

MuonUpdates::MuonUpdates(ModelRank& model, const OptimizerOptions& options, WholeParameters& whole)
    : model_(model), options_(options), whole_(whole) {
  std::int64_t largest = 1, smaller_side = 1;
  std::size_t bucket = 1;
  for (StageId stage : model.stages()) {
    const ParameterStore& store = model.parameters(stage);
    for (const ParameterRange& range : store.ranges()) {
      if (!has(range.id)) continue;
      const WholeParameters::Form form = whole.form(stage, range.id);
      largest = std::max(largest, form.count());
      smaller_side = std::max(smaller_side, std::min(form.rows, form.columns));
      bucket = std::max(bucket, store.local_count(store.bucket_of(range)));
    }
  }
  const auto room = [&](std::int64_t count) {
    return ops::Buffer(model.device(), static_cast<std::size_t>(count) * sizeof(float), &model.memory());
  };
  ahead_ = room(static_cast<std::int64_t>(bucket));
  matrix_ = room(largest);
  next_ = room(largest);
  gram_ = room(smaller_side * smaller_side);
  polynomial_ = room(smaller_side * smaller_side);
  narrow_ =
      ops::Buffer(model.device(), static_cast<std::size_t>(std::max(largest, smaller_side * smaller_side)) * ops::size_of(ops::Type::bf16),
                  &model.memory());
  scratch_ = ops::Buffer(model.device(), ops::reduce_workspace() + ops::buffer_alignment, &model.memory());
  ops::Stream stream(model.device());
  stream.zero(ahead_.data(), ahead_.bytes());  // what lies between matrices travels too
  stream.wait();
}

bool MuonUpdates::has(ParameterId parameter) const { return is_hidden_matrix(model_.graph().parameters()[parameter]); }

MuonUpdates::Products& MuonUpdates::products(std::int64_t rows, std::int64_t columns, bool transposed) {
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

// torch.optim.Muon iterates in bf16, and its result shows that in the second digit: products are rounded here where they are there.
void MuonUpdates::round(ops::Stream& stream, ops::Buffer& values, std::int64_t count) {
  ops::cast(stream, ops::Type::f32, values.data(), ops::Type::bf16, narrow_.data(), count);
  ops::cast(stream, ops::Type::bf16, narrow_.data(), ops::Type::f32, values.data(), count);
}

// matrix_ becomes nearly orthogonal: x <- a x + (b A + c A A) x with A = x xᵀ, from a norm of one on.
void MuonUpdates::orthogonalise(ops::Stream& stream, std::int64_t rows, std::int64_t columns, bool transposed) {
  const std::int64_t count = rows * columns, square = rows * rows;
  float* const squares = scratch_.as<float>();
  round(stream, matrix_, count);
  ops::sum_squares(stream, matrix_.as<float>(), squares, count, scratch_.at(ops::buffer_alignment));
  float sum = 0;
  stream.copy(&sum, squares, sizeof(float));
  stream.wait();
  const float norm = rounded(std::max(std::sqrt(sum), smallest_norm));
  ops::scale(stream, ops::Type::f32, matrix_.data(), 1.0f / norm, count);
  round(stream, matrix_, count);
  Products& product = products(rows, columns, transposed);
  for (int i = 0; i < iterations; ++i) {
    product.gram->run(stream, matrix_.data(), matrix_.data(), gram_.data());
    round(stream, gram_, square);
    stream.copy(polynomial_.data(), gram_.data(), static_cast<std::size_t>(square) * sizeof(float));
    ops::scale(stream, ops::Type::f32, polynomial_.data(), b, square);
    product.square->run(stream, gram_.data(), gram_.data(), polynomial_.data());
    round(stream, polynomial_, square);
    stream.copy(next_.data(), matrix_.data(), static_cast<std::size_t>(count) * sizeof(float));
    ops::scale(stream, ops::Type::f32, next_.data(), a, count);
    product.step->run(stream, polynomial_.data(), matrix_.data(), next_.data());
    std::swap(matrix_, next_);
    round(stream, matrix_, count);
  }
}

// The momentum of this rank's elements, and what their update looks ahead to: kept <- m kept + (1 - m) g; ahead = (1 - m) g + m kept.
void MuonUpdates::add_momentum(ops::Stream& stream, float* kept, const float* gradient, float* ahead, std::int64_t count,
                               double gradient_scale) {
  const auto m = static_cast<float>(options_.muon_momentum);
  stream.copy(ahead, gradient, static_cast<std::size_t>(count) * sizeof(float));
  ops::scale(stream, ops::Type::f32, ahead, (1.0f - m) * static_cast<float>(gradient_scale), count);
  ops::scale(stream, ops::Type::f32, kept, m, count);
  ops::add(stream, ops::Type::f32, kept, ahead, kept, count);
  stream.copy(next_.data(), kept, static_cast<std::size_t>(count) * sizeof(float));
  ops::scale(stream, ops::Type::f32, next_.data(), m, count);
  ops::add(stream, ops::Type::f32, ahead, next_.data(), ahead, count);
}

bool MuonUpdates::update(ops::Stream& stream, StageId stage, std::size_t number, float* momentum, double lr, double gradient_scale) {
  ParameterStore& store = model_.parameters(stage);
  const Bucket& bucket = store.buckets()[number];
  if (!bucket.reduced() || std::ranges::none_of(bucket.parameters, [&](ParameterId id) { return has(id); })) return false;
  const std::size_t local = store.local_begin(bucket);
  for (ParameterId id : bucket.parameters)
    if (const ParameterPiece* piece = has(id) ? whole_.piece_of(stage, id) : nullptr)
      add_momentum(stream, momentum + piece->local, store.gradients() + store.gradient_begin(bucket) + (piece->local - local),
                   ahead_.as<float>() + (piece->local - local), static_cast<std::int64_t>(piece->count), gradient_scale);
  whole_.open(stream, stage, number, ahead_.as<float>());
  for (ParameterId id : bucket.parameters) {
    if (!has(id)) continue;
    const WholeParameters::Form form = whole_.form(stage, id);
    stream.copy(matrix_.data(), whole_.whole(stream, id), static_cast<std::size_t>(form.count()) * sizeof(float));
    orthogonalise(stream, std::min(form.rows, form.columns), std::max(form.rows, form.columns), form.rows > form.columns);
    const double outputs = double(form.transposed ? form.columns : form.rows), inputs = double(form.transposed ? form.rows : form.columns);
    ops::scale(stream, ops::Type::f32, matrix_.data(), static_cast<float>(-lr * std::sqrt(std::max(1.0, outputs / inputs))), form.count());
    whole_.add(stream, stage, id, matrix_.as<float>(), 1.0 - lr * options_.weight_decay);
  }
  return true;
}

}  // namespace ppengine::engine
