// Adafactor's update.
#include <ppengine/engine/weights/adafactor.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/elementwise.hpp>
#include <ppengine/ops/optimizer.hpp>

namespace ppengine::engine {
namespace {

constexpr double beta2_decay = -0.8, least_scale = 1e-3, clip = 1.0;
constexpr float epsilon = std::numeric_limits<float>::epsilon();

}  // namespace

AdafactorUpdates::AdafactorUpdates(ModelRank& model, const OptimizerOptions& options, WholeParameters& whole)
    : model_(model), options_(options), whole_(whole) {
  const auto room = [&](std::int64_t count) {
    return ops::Buffer(model.device(), static_cast<std::size_t>(count) * sizeof(float), &model.memory());
  };
  ops::Stream stream(model.device());
  std::int64_t largest = 1, side = 1;
  for (StageId stage : model.stages())
    for (const ParameterRange& range : model.parameters(stage).ranges()) {
      if (!model.parameters(stage).bucket_of(range).reduced()) continue;  // never gets a gradient
      const ParameterInfo& info = model.graph().parameters()[range.id];
      if (info.shape.rank() > 2) throw ConfigError(fmt::format("--optimizer adafactor: {} has more than two dimensions", info.name));
      const WholeParameters::Form form = whole.form(stage, range.id);
      const bool matrix = info.shape.rank() == 2;
      Means means;
      means.rows = form.rows;
      means.columns = form.columns;
      means.row = room(matrix ? means.rows : means.columns);
      stream.zero(means.row.data(), means.row.bytes());
      if (matrix) {
        means.column = room(means.columns);
        stream.zero(means.column.data(), means.column.bytes());
      }
      largest = std::max(largest, form.count());
      side = std::max({side, means.rows, means.columns});
      means_.emplace(std::pair(stage, range.id), std::move(means));
    }
  squares_ = room(largest);
  turned_ = room(largest);
  sums_ = room(side);
  scratch_ = ops::Buffer(model.device(), ops::reduce_workspace() + ops::buffer_alignment, &model.memory());
  stream.wait();
}

// The means of the squared gradient move towards it by `weight`.
void AdafactorUpdates::add_means(ops::Stream& stream, Means& means, const float* gradient, double gradient_scale, float weight) {
  const std::int64_t count = means.rows * means.columns;
  const auto square = static_cast<float>(gradient_scale * gradient_scale);
  ops::multiply(stream, ops::Type::f32, gradient, gradient, squares_.data(), count);
  if (!means.column.data()) return ops::adafactor_average(stream, means.row.as<float>(), squares_.as<float>(), count, square, weight);
  ops::sum_rows(stream, ops::Type::f32, squares_.data(), sums_.as<float>(), means.rows, means.columns, false);
  ops::adafactor_average(stream, means.column.as<float>(), sums_.as<float>(), means.columns, square / static_cast<float>(means.rows),
                         weight);
  ops::transpose(stream, squares_.as<float>(), turned_.as<float>(), means.rows, means.columns);
  ops::sum_rows(stream, ops::Type::f32, turned_.data(), sums_.as<float>(), means.columns, means.rows, false);
  ops::adafactor_average(stream, means.row.as<float>(), sums_.as<float>(), means.rows, square / static_cast<float>(means.columns), weight);
}

double AdafactorUpdates::sum_of_squares(ops::Stream& stream, const float* values, std::int64_t count) {
  float squares = 0;
  ops::sum_squares(stream, values, scratch_.as<float>(), count, scratch_.at(ops::buffer_alignment));
  stream.copy(&squares, scratch_.data(), sizeof squares);
  stream.wait();
  return squares;
}

std::vector<double> AdafactorUpdates::squares_of_values(ops::Stream& stream, StageId stage, const Bucket& bucket) {
  const ParameterStore& store = model_.parameters(stage);
  std::vector<double> squares;
  for (ParameterId id : bucket.parameters) {
    const ParameterPiece* const piece = whole_.piece_of(stage, id);
    const float* const values = store.values() + store.value_begin(bucket) + (piece ? piece->local - store.local_begin(bucket) : 0);
    squares.push_back(piece ? sum_of_squares(stream, values, static_cast<std::int64_t>(piece->count)) : 0.0);
  }
  whole_.sum(squares);
  return squares;
}

void AdafactorUpdates::update(ops::Stream& stream, StageId stage, std::size_t number, std::int64_t step, double lr, double gradient_scale) {
  const ParameterStore& store = model_.parameters(stage);
  const Bucket& bucket = store.buckets()[number];
  if (!bucket.reduced()) return;
  const auto weight = static_cast<float>(std::pow(double(step), beta2_decay));
  const double rate = std::min(lr, 1.0 / std::sqrt(double(step)));
  whole_.open(stream, stage, number, store.gradients() + store.gradient_begin(bucket));
  const std::vector<double> squares = squares_of_values(stream, stage, bucket);
  for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
    const ParameterId id = bucket.parameters[i];
    Means& means = means_.at({stage, id});
    const std::int64_t count = means.rows * means.columns;
    const float* const gradient = whole_.whole(stream, id);
    add_means(stream, means, gradient, gradient_scale, weight);
    if (means.column.data()) ops::sum(stream, means.row.as<float>(), sums_.as<float>(), means.rows, scratch_.at(ops::buffer_alignment));
    ops::adafactor_update(stream, {means.rows, means.columns, static_cast<float>(gradient_scale), epsilon}, gradient, means.row.as<float>(),
                          means.column.as<float>(), sums_.as<float>(), squares_.as<float>());
    const double size = std::max(least_scale, std::sqrt(squares[i] / double(count))) * rate;
    const double root_mean_square = std::sqrt(sum_of_squares(stream, squares_.as<float>(), count) / double(count));
    ops::scale(stream, ops::Type::f32, squares_.data(), static_cast<float>(-size / std::max(1.0, root_mean_square / clip)), count);
    const bool spared = !options_.decay_1d && !means.column.data();
    whole_.add(stream, stage, id, squares_.as<float>(), spared ? 1.0 : 1.0 - lr * options_.weight_decay);
  }
}

std::vector<float> AdafactorUpdates::expand(ops::Stream& stream, StageId stage) const {
  std::vector<float> flat(model_.parameters(stage).local_trained_count());
  for (const auto& [key, means] : means_) {
    if (key.first != stage) continue;
    std::vector<float> row(means.row.bytes() / sizeof(float)), column(means.column.bytes() / sizeof(float));
    stream.copy(row.data(), means.row.data(), means.row.bytes());
    if (!column.empty()) stream.copy(column.data(), means.column.data(), means.column.bytes());
    stream.wait();
    if (column.empty()) {
      whole_.put(stage, key.second, row, flat);
      continue;
    }
    double mean = 0;
    for (float one : row) mean += double(one) / double(row.size());
    std::vector<float> moments(row.size() * column.size());
    for (std::size_t i = 0; i < row.size(); ++i)
      for (std::size_t j = 0; j < column.size(); ++j)
        moments[i * column.size() + j] = mean > 0 ? static_cast<float>(double(row[i]) * column[j] / mean) : 0.0f;
    whole_.put(stage, key.second, moments, flat);
  }
  return flat;
}

void AdafactorUpdates::collect(ops::Stream& stream, StageId stage, const float* flat) {
  const ParameterStore& store = model_.parameters(stage);
  for (std::size_t bucket = 0; bucket < store.buckets().size(); ++bucket) {
    if (!store.buckets()[bucket].reduced()) continue;
    whole_.open(stream, stage, bucket, flat + store.local_begin(store.buckets()[bucket]));
    for (ParameterId id : store.buckets()[bucket].parameters) collect(stream, means_.at({stage, id}), whole_.whole(stream, id));
  }
}

void AdafactorUpdates::collect(ops::Stream& stream, const Means& means, const float* moments) {
  const auto rows = static_cast<std::size_t>(means.rows), columns = static_cast<std::size_t>(means.columns);
  if (!means.column.data()) {
    stream.copy(means.row.data(), moments, means.row.bytes());
    return stream.wait();
  }
  std::vector<float> from(rows * columns);
  stream.copy(from.data(), moments, from.size() * sizeof(float));
  stream.wait();
  std::vector<double> row(rows), column(columns);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) row[i] += from[i * columns + j], column[j] += from[i * columns + j];
  std::vector<float> row_means(rows), column_means(columns);
  std::ranges::transform(row, row_means.begin(), [&](double sum) { return static_cast<float>(sum / double(columns)); });
  std::ranges::transform(column, column_means.begin(), [&](double sum) { return static_cast<float>(sum / double(rows)); });
  stream.copy(means.row.data(), row_means.data(), means.row.bytes());
  stream.copy(means.column.data(), column_means.data(), means.column.bytes());
  stream.wait();
}

}  // namespace ppengine::engine
