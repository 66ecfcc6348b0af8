// One rank's stages over sequences that grow.
#include <ppengine/engine/decoder.hpp>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/abort_on_error.hpp>
#include <ppengine/engine/batch.hpp>
#include <ppengine/engine/graph/node.hpp>
#include <ppengine/ops/elementwise.hpp>

namespace ppengine::engine {
namespace {

constexpr int tag = 0;                      // of activations
constexpr int blocks_per_shape = 2;         // one is computed while the other is on its way
constexpr int64_t exact_length = 8;         // prefills up to here are compiled for their length, longer ones for a multiple of
constexpr int64_t length_granularity = 16;  // so that prompts of many lengths share few compiled shapes

// The input of the model that holds tokens. Others (targets) only lead to the loss, which is not computed here.
Value find_tokens(const Graph& graph, const StageCut& first) {
  for (NodeId i : first.nodes())
    for (Value id : graph.nodes()[i].inputs)
      if (const ValueInfo& value = graph.values()[id]; !value.producer && value.kind == ValueKind::tokens) return id;
  throw ConfigError("the model's first stage reads no tokens: there is nothing to generate from");
}

}  // namespace

Decoder::Decoder(ModelRank& model, const Options& options)
    : model_(model), options_(options), input_(find_tokens(model.graph(), model.cuts().front())), stream_(model.device()) {
  PPENGINE_ASSERT(std::ranges::is_sorted(model.stage_rank()) && !model.stages().empty() && options.capacity > 0 && options.groups > 0 &&
                  options.sequences > 0);
  if (!model.graph().output_value()) throw ConfigError("the model has no output: call Graph::output on its logits");
  for (const Node& node : model.graph().nodes())
    if (const int64_t at = node.op->rotary_switch(); at < options.capacity) rotary_switch_ = std::max(rotary_switch_, at);
  adapters_.assign(static_cast<size_t>(options.groups * options.sequences), -1);
  const int64_t own_pages = (options.capacity + CompileOptions::cache_page - 1) / CompileOptions::cache_page;
  pages_.assign(adapters_.size() * static_cast<size_t>(own_pages), 0);
  if (options.pages == 0) {
    options_.pages = static_cast<int64_t>(pages_.size()) + 1;
    for (size_t i = 0; i < pages_.size(); ++i) pages_[i] = static_cast<int32_t>(i + 1);
  }
  for (const AdapterMask& mask : options.adapters) {
    const auto found = std::ranges::find(model.graph().values(), mask.input, &ValueInfo::name);
    PPENGINE_ASSERT(found != model.graph().values().end() && !found->producer);
    masks_.push_back({model.graph().values().id_of(found), mask.columns, {}});
  }
  for (const Shape& shape : shapes(Use::step, options.sequences)) {
    caches_.emplace_back(model.device(), shape.stage->cache_bytes(), &model.memory());
    stream_.zero(caches_.back().data(), caches_.back().bytes());  // a masked NaN would still be one
  }
  stream_.wait();
}

size_t Decoder::cache_bytes() const {
  size_t bytes = 0;
  for (const ops::Buffer& cache : caches_) bytes += cache.bytes();
  return bytes;
}

Decoder::Shapes& Decoder::shapes(Use use, int64_t length) {
  Shapes& found = shapes_[{use, length}];
  if (!found.empty()) return found;
  CompileOptions how;
  how.batch = use == Use::step ? length : 1;
  how.length = use == Use::step ? 1 : length;
  how.type = model_.options().compute;
  how.training = false;
  how.loss = false;
  how.output = use != Use::prefill;
  how.output_row = use == Use::last_prefill;
  how.cache_capacity = options_.capacity;
  how.cache_chunk = padded(0, options_.chunk > 0 ? std::min(options_.chunk, options_.capacity) : options_.capacity);
  how.cache_sequences = options_.sequences * options_.groups;
  how.cache_pages = options_.pages;
  size_t workspace = workspace_.bytes();
  for (StageId index : model_.stages()) {
    Shape shape;
    shape.stage = std::make_unique<CompiledStage>(model_.device(), model_.graph(), model_.cuts()[index], model_.parameters(index), how,
                                                  &model_.memory());
    shape.blocks = BlockPool(model_.device(), shape.stage->activation_block(), blocks_per_shape, &model_.memory());
    shape.inputs = ops::Buffer(model_.device(), shape.stage->input_bytes(), &model_.memory());
    workspace = std::max(workspace, shape.stage->layout().workspace);
    found.push_back(std::move(shape));
  }
  if (workspace > workspace_.bytes()) workspace_ = ops::Buffer(model_.device(), workspace, &model_.memory());
  return found;
}

// The tokens that pad a prefill come after all others and their keys are overwritten before anybody reads them.
int64_t Decoder::padded(int64_t position, int64_t length) const {
  if (length <= exact_length) return length;
  const int64_t up = (length + length_granularity - 1) / length_granularity * length_granularity;
  return std::min(up, options_.capacity - position);
}

void Decoder::prepare(int64_t position, int64_t length, bool output) {
  shapes(output ? Use::last_prefill : Use::prefill, padded(position, length));
}

std::span<float> Decoder::prefill(int group, int64_t sequence, int64_t position, int64_t length, bool output, std::span<const int32_t> ids,
                                  int64_t whole) {
  PPENGINE_ASSERT(length > 0 && (options_.chunk == 0 || length <= options_.chunk) && position + length <= options_.capacity &&
                  sequence < options_.sequences);
  ids_.assign(static_cast<size_t>(padded(position, length)), 0);
  std::ranges::copy(ids, ids_.begin());
  const auto first = static_cast<int32_t>(position);
  Shapes& all = shapes(output ? Use::last_prefill : Use::prefill, static_cast<int64_t>(ids_.size()));
  return comm::abort_on_error(options_.peers,
                              [&] { return run(all, group, sequence, length - 1, {&first, 1}, ids_, std::max(whole, position + length)); });
}

std::span<float> Decoder::step(int group, int64_t first, std::span<const int32_t> positions, std::span<const int32_t> ids) {
  const auto sequences = static_cast<int64_t>(positions.size());
  PPENGINE_ASSERT(first >= 0 && sequences > 0 && first + sequences <= options_.sequences);
  return comm::abort_on_error(options_.peers, [&] { return run(shapes(Use::step, sequences), group, first, 0, positions, ids); });
}

std::span<float> Decoder::verify(int group, int64_t sequence, int64_t position, int64_t length, std::span<const int32_t> ids,
                                 int64_t whole) {
  PPENGINE_ASSERT(length > 0 && length <= most_verified && position + length <= options_.capacity && sequence < options_.sequences);
  const auto first = static_cast<int32_t>(position);
  return comm::abort_on_error(options_.peers, [&] {
    return run(shapes(Use::verify, length), group, sequence, 0, {&first, 1}, ids, std::max(whole, position + length));
  });
}

std::span<int32_t> Decoder::page_table(int group, int64_t sequence, int64_t count) {
  const size_t each = pages_.size() / adapters_.size();
  return std::span(pages_).subspan(static_cast<size_t>(group * options_.sequences + sequence) * each, static_cast<size_t>(count) * each);
}

void Decoder::set_page(int group, int64_t sequence, int64_t index, int32_t page) {
  PPENGINE_ASSERT(page >= 0 && page < options_.pages);
  page_table(group, sequence, 1)[static_cast<size_t>(index)] = page;
}

void Decoder::clear_pages(int group, int64_t sequence) { std::ranges::fill(page_table(group, sequence, 1), 0); }

void Decoder::set_adapter(int group, int64_t sequence, int adapter) {
  adapters_[static_cast<size_t>(group * options_.sequences + sequence)] = adapter;
}

// Ones where a row's sequence has the adapter of a column.
void Decoder::make_masks(const CompileOptions& shape, int group, int64_t first_sequence) {
  for (Mask& mask : masks_) {
    mask.rows.clear();
    for (int64_t row = 0; row < shape.batch * shape.length; ++row) {
      const int adapter = adapters_[static_cast<size_t>(group * options_.sequences + first_sequence + row / shape.length)];
      for (int owner : mask.columns) mask.rows.push_back(owner == adapter ? 1.0f : 0.0f);
    }
  }
}

void Decoder::prepare_step(int64_t sequences) { shapes(Use::step, sequences); }

// Rotary tables for long sequences lie behind those for short ones.
void Decoder::give_rotary_rows(void* to, std::span<const int32_t> positions, int64_t whole) {
  if (rotary_switch_ == 0) return;
  rotary_rows_.assign(positions.begin(), positions.end());
  for (int32_t& row : rotary_rows_)
    if ((whole > 0 ? whole : row + 1) > rotary_switch_) row += static_cast<int32_t>(options_.capacity);
  stream_.copy(to, rotary_rows_.data(), rotary_rows_.size() * sizeof(int32_t));
}

std::span<float> Decoder::run(Shapes& shapes, int group, int64_t first_sequence, int64_t output_row, std::span<const int32_t> positions,
                              std::span<const int32_t> ids, int64_t whole) {
  ops::Buffer* before = nullptr;  // what the stage before has sent, where it is ours too
  std::span<float> result;
  make_masks(shapes.front().stage->options(), group, first_sequence);
  for (size_t k = 0; k < shapes.size(); ++k) {
    Shape& shape = shapes[k];
    const CompiledStage& stage = *shape.stage;
    const int number = shape.blocks.acquire();
    Block& block = shape.blocks.at(number);
    if (before) before->trade(block.in);
    if (!before && model_.rank() > 0)
      options_.peers->take_over(block.in, stage.bytes_in(), model_.rank() - 1, tag, stream_).wait_on(stream_);
    Run run = stage.start(stream_);
    run.base[static_cast<int>(Region::activations)] = block.own.at(0);
    run.base[static_cast<int>(Region::values_in)] = block.in.at(0);
    run.base[static_cast<int>(Region::values_out)] = block.out.at(0);
    run.base[static_cast<int>(Region::workspace)] = workspace_.at(0);
    run.base[static_cast<int>(Region::inputs)] = shape.inputs.at(0);
    run.base[static_cast<int>(Region::cache)] = caches_[k].at(0);
    run.first_sequence = group * options_.sequences + first_sequence;
    run.output_row = output_row;
    run.profile = profile_;
    run.tensor = options_.tensor;
    if (const int64_t offset = stage.input_offset(input_); offset >= 0) {
      check_tokens(model_.graph(), input_, ids, static_cast<int64_t>(ids.size()));
      stream_.copy(shape.inputs.at(static_cast<size_t>(offset)), ids.data(), ids.size_bytes());
    }
    for (const Mask& mask : masks_)
      if (const int64_t offset = stage.input_offset(mask.value); offset >= 0)
        stream_.copy(shape.inputs.at(static_cast<size_t>(offset)), mask.rows.data(), mask.rows.size() * sizeof(float));
    const auto at = static_cast<size_t>(stage.positions_offset());
    stream_.copy(shape.inputs.at(at), positions.data(), positions.size_bytes());
    const std::span<const int32_t> pages = page_table(group, first_sequence, stage.options().batch);
    stream_.copy(shape.inputs.at(at + 2 * positions.size_bytes()), pages.data(), pages.size_bytes());
    give_rotary_rows(shape.inputs.at(at + positions.size_bytes()), positions, whole);
    stage.forward(run);
    const bool sends = k + 1 == shapes.size() && model_.stages().back() + 1 < model_.cuts().end_id();
    shape.blocks.release(
        number, sends ? options_.peers->hand_over(block.out, stage.bytes_out(), model_.rank() + 1, tag, stream_) : comm::Pending());
    before = &block.out;
    const BufferId output = output_of(stage, model_.stages()[k]);
    if (output != no_buffer) result = read_output(stage, run, output);
  }
  stream_.wait();  // the caller's positions and ids are its own again
  return result;
}

// The graph's output, which the last stage has even where it computes nothing but the loss.
BufferId Decoder::output_of(const CompiledStage& stage, StageId index) const {
  const std::vector<Value>& receives = model_.cuts()[index].receives;
  const auto received = std::ranges::find(receives, model_.graph().output_value());
  const bool passed_on = stage.options().output && received != receives.end() && index + 1 == model_.cuts().end_id();
  return passed_on ? stage.received()[static_cast<size_t>(received - receives.begin())] : stage.output();
}

std::span<float> Decoder::read_output(const CompiledStage& stage, const Run& run, BufferId output) {
  const void* from = run.at(output);
  const size_t count = stage.bytes(output) / ops::size_of(stage.options().type);
  // A CPU's memory is the host's, and nobody else uses this block before the next run.
  if (stage.options().type == ops::Type::f32 && model_.device()->info().is_cpu) return {run.as<float>(output), count};
  output_.resize(count);
  const size_t bytes = output_.size() * sizeof(float);
  if (stage.options().type != ops::Type::f32) {
    if (wide_.bytes() < bytes) wide_ = ops::Buffer(model_.device(), bytes, &model_.memory());
    ops::cast(stream_, stage.options().type, from, ops::Type::f32, wide_.data(), static_cast<int64_t>(output_.size()));
    from = wide_.data();
  }
  stream_.copy(output_.data(), from, bytes);
  return output_;
}

}  // namespace ppengine::engine
