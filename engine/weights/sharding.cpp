// Gathering stages, and blocks for their whole gradients.
#include <ppengine/engine/weights/sharding.hpp>

#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/gradients/gradient_sink.hpp>

namespace ppengine::engine {

Sharding::Sharding(const ShardingOptions& options, std::vector<StageId> stages, std::vector<ParameterStore*> stores,
                   const std::shared_ptr<ops::Device>& device, bool training, ops::MemoryCounter& counter)
    : data_(*options.data), stages_(std::move(stages)), stores_(std::move(stores)), device_(device), counter_(counter) {
  for (const ParameterStore* one : stores_) {
    parameter_stride_ = std::max(parameter_stride_, ops::align_up(one->count() * ops::size_of(one->compute_type())));
    gradient_stride_ = std::max(gradient_stride_, ops::align_up(std::max(one->trained_count(), flat_alignment) * sizeof(float)));
  }
  if (stores_.empty()) return;
  whole_weights_ = stores_.front()->shard().whole_weights;
  whole_gradients_ = stores_.front()->shard().whole_gradients;
  parameter_blocks_.resize(whole_weights_ ? stores_.size() : static_cast<std::size_t>(options.active_stages));
  if (!whole_weights_) parameter_memory_ = ops::Buffer(device, parameter_stride_ * parameter_blocks_.size(), &counter);
  if (!training || whole_gradients_) return;
  gradient_blocks_.resize(static_cast<std::size_t>(options.gradient_stages));
  gradient_memory_ = ops::Buffer(device, gradient_stride_ * gradient_blocks_.size(), &counter);
}

ParameterStore& Sharding::store(StageId stage) const {
  const auto found = std::ranges::find(stages_, stage);
  PPENGINE_ASSERT(found != stages_.end());
  return *stores_[static_cast<std::size_t>(found - stages_.begin())];
}

Sharding::Block* Sharding::find(std::vector<Block>& blocks, StageId stage) const {
  const auto found = std::ranges::find_if(blocks, [&](const Block& one) { return one.stage == stage && !one.free; });
  return found == blocks.end() ? nullptr : &*found;
}

comm::Pending Sharding::gather_bucket(const Bucket& bucket, const void* part, void* whole, ops::Type type, ops::Stream& after) {
  return data_.all_gather(part, static_cast<std::byte*>(whole) + bucket.begin * ops::size_of(type),
                          bucket.count() / static_cast<std::size_t>(data_.size()), type, after);
}

void Sharding::unshard(StageId stage, ops::Stream& after) {
  if (find(parameter_blocks_, stage)) return;
  const auto block = std::ranges::find_if(parameter_blocks_, &Block::free);
  if (block == parameter_blocks_.end())
    throw Error(fmt::format("stage {}: the plan gathers more than {} stages at a time", stage.number(), parameter_blocks_.size()));
  block->stage = stage;
  block->free = false;
  ParameterStore& from = store(stage);
  if (whole_weights_ && from.gathered()) return;
  const std::size_t element = ops::size_of(from.compute_type());
  for (std::size_t i = from.buckets().size(); i-- > 0;) {  // the forward uses the last bucket first
    const Bucket& bucket = from.buckets()[i];
    const std::byte* const part = static_cast<const std::byte*>(from.compute()) + from.compute_begin(bucket) * element;
    block->gathering.push_back(gather_bucket(bucket, part, parameters(stage), from.compute_type(), after));
  }
  from.set_gathered(true);
}

void Sharding::wait(StageId stage, ops::Stream& stream) {
  Block* block = find(parameter_blocks_, stage);
  if (!block) throw Error(fmt::format("stage {} is used before its UNSHARD: the plan must gather it first", stage.number()));
  for (const comm::Pending& one : block->gathering) one.wait_on(stream);
  block->gathering.clear();
}

std::byte* Sharding::parameters(StageId stage) const {
  const Block* block = find(parameter_blocks_, stage);
  if (!block) return nullptr;
  if (whole_weights_) return static_cast<std::byte*>(store(stage).compute());
  return parameter_memory_.at(static_cast<std::size_t>(block - parameter_blocks_.data()) * parameter_stride_);
}

void Sharding::reshard(StageId stage) {
  Block* block = find(parameter_blocks_, stage);
  if (!block) return;
  for (const comm::Pending& one : block->gathering) one.wait();  // gathered, and never used
  block->gathering.clear();
  block->free = true;
}

float* Sharding::begin_gradients(StageId stage, ops::Stream& stream, GradientSink* sink) {
  if (float* held = gradients(stage)) return held;
  auto block = std::ranges::find_if(gradient_blocks_, [](const Block& one) { return one.free && !one.stage; });
  if (block == gradient_blocks_.end()) {
    if (released_.empty())
      throw Error(
          fmt::format("stage {}: the plan has more than {} stages with gradients at a time", stage.number(), gradient_blocks_.size()));
    block = gradient_blocks_.begin() + released_.front();
    released_.erase(released_.begin());
    if (sink) sink->wait_reduced(block->stage);
  }
  block->stage = stage;
  block->free = false;
  float* const memory = gradients(stage);
  for (const auto& [begin, end] : store(stage).gaps()) stream.zero(memory + begin, (end - begin) * sizeof(float));
  return memory;
}

float* Sharding::gradients(StageId stage) const {
  if (whole_gradients_) return store(stage).gradients();
  const Block* block = find(gradient_blocks_, stage);
  return block ? reinterpret_cast<float*>(gradient_memory_.at(static_cast<std::size_t>(block - gradient_blocks_.data()) * gradient_stride_))
               : nullptr;
}

void Sharding::end_gradients(StageId stage) {
  Block* block = find(gradient_blocks_, stage);
  if (!block) return;
  block->free = true;
  released_.push_back(static_cast<int>(block - gradient_blocks_.data()));
}

const float* Sharding::gather(StageId stage, const float* local, ops::Stream& stream) {
  const ParameterStore& from = store(stage);
  const bool values = local == from.values() && from.whole_values(), gradients = local == from.gradients() && whole_gradients_;
  // Frozen parameters have values, but no room among the gradients.
  const bool of_values = local == from.values(), fits = !of_values || from.trained_count() == from.count();
  if (!values && !fits && file_memory_.bytes() < from.count() * sizeof(float))
    file_memory_ = ops::Buffer(device_, from.count() * sizeof(float), &counter_);
  float* const whole = values             ? from.values()
                       : !fits            ? file_memory_.as<float>()
                       : whole_gradients_ ? from.gradients()
                                          : gradient_memory_.as<float>();
  PPENGINE_ASSERT(whole != nullptr);
  std::vector<comm::Pending> parts;
  for (const Bucket& bucket : from.buckets()) {
    if (!of_values && !bucket.reduced()) continue;
    const std::size_t begin = values ? from.value_begin(bucket) : gradients ? from.gradient_begin(bucket) : from.local_begin(bucket);
    parts.push_back(gather_bucket(bucket, local + begin, whole, ops::Type::f32, stream));
  }
  for (const comm::Pending& one : parts) one.wait();
  return whole;
}

}  // namespace ppengine::engine
