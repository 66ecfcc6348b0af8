// Gathering the parts that ranks have of parameters.
#include <ppengine/engine/weights/whole_parameters.hpp>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/elementwise.hpp>

namespace ppengine::engine {

WholeParameters::WholeParameters(ModelRank& model, comm::Communicator* tensor) : model_(model), tensor_(tensor) {
  std::size_t bucket = 0, whole = 0;
  for (StageId stage : model.stages()) {
    const ParameterStore& store = model.parameters(stage);
    for (const Bucket& one : store.buckets())
      if (one.reduced()) bucket = std::max(bucket, one.count());
    for (const ParameterRange& range : store.ranges()) {
      const Placement& placement = info(range.id).placement;
      if (!placement.is_split() || !store.bucket_of(range).reduced()) continue;
      Placement first = placement;  // the first rank has the largest part
      first.rank = 0;
      largest_part_ = std::max(largest_part_, static_cast<std::size_t>(first.part().count()));
      whole = std::max(whole, static_cast<std::size_t>(placement.whole.count()));
    }
  }
  const auto room = [&](std::size_t count) { return ops::Buffer(model.device(), count * sizeof(float), &model.memory()); };
  if (model.sharding()) gathered_ = room(bucket);
  split_ = whole > 0;
  if (!split_) return;
  PPENGINE_ASSERT(tensor_ != nullptr);
  part_ = room(largest_part_);
  parts_ = room(largest_part_ * static_cast<std::size_t>(tensor_->size()));
  whole_ = room(whole);
  ops::Stream stream(model.device());
  stream.zero(part_.data(), part_.bytes());  // what is behind a smaller part travels too
  stream.wait();
}

WholeParameters::Form WholeParameters::form(StageId stage, ParameterId id) const {
  const ops::Shape shape = info(id).whole_shape();
  if (shape.rank() != 2) return {1, shape.count(), false};
  const bool transposed = !info(id).placement.is_split() && model_.parameters(stage).find(id)->transposed;
  return transposed ? Form{shape[1], shape[0], true} : Form{shape[0], shape[1], false};
}

void WholeParameters::open(ops::Stream& stream, StageId stage, std::size_t bucket, const float* part) {
  stage_ = stage;
  bucket_ = &model_.parameters(stage).buckets()[bucket];
  opened_ = part;
  if (!model_.sharding()) return;
  model_.sharding()
      ->data()
      .all_gather(part, gathered_.data(), model_.parameters(stage).local_count(*bucket_), ops::Type::f32, stream)
      .wait();
  opened_ = gathered_.as<float>();
}

const float* WholeParameters::whole(ops::Stream& stream, ParameterId id) {
  const ParameterRange& range = *model_.parameters(stage_).find(id);
  const float* const stored = opened_ + (range.offset - bucket_->begin);
  Placement placement = info(id).placement;
  if (!placement.is_split()) return stored;
  const ops::Shape& shape = info(id).shape;
  if (range.transposed)
    ops::transpose(stream, stored, part_.as<float>(), shape[1], shape[0]);
  else
    stream.copy(part_.data(), stored, range.count * sizeof(float));
  tensor_->all_gather(part_.data(), parts_.data(), largest_part_, ops::Type::f32, stream).wait();
  host_.resize(parts_.bytes() / sizeof(float));
  host_whole_.resize(static_cast<std::size_t>(placement.whole.count()));
  stream.copy(host_.data(), parts_.data(), parts_.bytes());
  stream.wait();
  for (placement.rank = 0; placement.rank < placement.ranks; ++placement.rank)
    put_part(placement,
             std::span(host_).subspan(static_cast<std::size_t>(placement.rank) * largest_part_,
                                      static_cast<std::size_t>(placement.part().count())),
             host_whole_);
  stream.copy(whole_.data(), host_whole_.data(), host_whole_.size() * sizeof(float));
  stream.wait();
  return whole_.as<float>();
}

std::vector<float> WholeParameters::part(ParameterId id, const ParameterRange& range, std::span<const float> whole) const {
  const ParameterInfo& of = info(id);
  std::vector<float> mine(range.count);
  take_part(of.placement, whole, mine);
  if (!range.transposed) return mine;
  std::vector<float> stored(range.count);
  const auto rows = static_cast<std::size_t>(of.shape[0]), columns = static_cast<std::size_t>(of.shape[1]);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) stored[j * rows + i] = mine[i * columns + j];
  return stored;
}

void WholeParameters::add(ops::Stream& stream, StageId stage, ParameterId id, const float* change, double factor) {
  ParameterStore& store = model_.parameters(stage);
  const ParameterRange& range = *store.find(id);
  if (info(id).placement.is_split()) {
    host_whole_.resize(static_cast<std::size_t>(info(id).placement.whole.count()));
    stream.copy(host_whole_.data(), change, host_whole_.size() * sizeof(float));
    stream.wait();
    const std::vector<float> mine = part(id, range, host_whole_);
    stream.copy(part_.data(), mine.data(), mine.size() * sizeof(float));
    stream.wait();
    change = part_.as<float>();
  }
  const ParameterPiece* const piece = piece_of(stage, id);
  if (!piece) return;
  const Bucket& bucket = store.bucket_of(range);
  const std::size_t in_part = piece->local - store.local_begin(bucket);
  const auto count = static_cast<std::int64_t>(piece->count);
  float* const values = store.values() + store.value_begin(bucket) + in_part;
  if (factor != 1.0) ops::scale(stream, ops::Type::f32, values, static_cast<float>(factor), count);
  ops::add(stream, ops::Type::f32, values, change + piece->from, values, count);
  if (void* const copies = store.compute_copy())
    ops::cast(stream, ops::Type::f32, values, store.compute_type(),
              static_cast<std::byte*>(copies) + (store.compute_begin(bucket) + in_part) * ops::size_of(store.compute_type()), count);
}

void WholeParameters::put(StageId stage, ParameterId id, std::span<const float> whole, std::span<float> flat) const {
  const ParameterPiece* const piece = piece_of(stage, id);
  if (!piece) return;
  std::vector<float> mine;
  if (info(id).placement.is_split()) {
    mine = part(id, *model_.parameters(stage).find(id), whole);
    whole = mine;
  }
  std::ranges::copy(whole.subspan(piece->from, piece->count), flat.begin() + static_cast<std::ptrdiff_t>(piece->local));
}

const ParameterPiece* WholeParameters::piece_of(StageId stage, ParameterId id) const {
  const ParameterStore& store = model_.parameters(stage);
  const auto found = std::ranges::find_if(store.pieces(), [&](const ParameterPiece& one) { return store.ranges()[one.range].id == id; });
  return found == store.pieces().end() ? nullptr : &*found;
}

void WholeParameters::sum(std::vector<double>& by_parameter) {
  if (model_.sharding()) model_.sharding()->data().allreduce_values(std::span(by_parameter));
  // One by one: buckets of tensor-parallel ranks may differ, where one of them alone has a bias.
  for (std::size_t i = 0; i < by_parameter.size(); ++i)
    if (info(bucket_->parameters[i]).placement.is_split()) by_parameter[i] = tensor_->allreduce_value(by_parameter[i]);
}

}  // namespace ppengine::engine
