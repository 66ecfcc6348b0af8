// One rank's stages over sequences that grow.
#include <ppengine/engine/decoder.hpp>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/batch.hpp>
#include <ppengine/engine/graph/node.hpp>
#include <ppengine/engine/parallel.hpp>

namespace ppengine::engine {
namespace {

constexpr std::int64_t exact_length = 8;         // prefills up to here are compiled for their length, longer ones for a multiple of
constexpr std::int64_t length_granularity = 16;  // so that prompts of many lengths share few compiled shapes

// The input of the model that holds tokens. Others (targets) only lead to the loss, which is not computed here.
Value find_tokens(const Graph& graph, const StageCut& first) {
  for (NodeId i : first.nodes())
    for (Value id : graph.nodes()[i].inputs)
      if (const ValueInfo& value = graph.values()[id]; !value.producer && value.kind == ValueKind::tokens) return id;
  throw ConfigError("the model's first stage reads no tokens: there is nothing to generate from");
}

// One microbatch through all stages.
schedules::Plan one_forward(const ModelRank& model) {
  ParallelOptions options;
  options.pipeline = model.stage_rank().items().back() + 1;
  return make_plan(options, true, model.stage_rank().items());
}

PipelineOptions pipeline_options(const Decoder::Options& options, std::int64_t chunk) {
  PipelineOptions how;
  how.compile.loss = false;
  how.compile.cache_capacity = options.capacity;
  how.compile.cache_chunk = chunk;
  how.compile.cache_sequences = options.sequences * options.groups;
  how.compile.cache_pages = options.pages;
  how.compile.cache_in_bytes = options.cache_in_bytes;
  how.spare_blocks = 1;  // the next call is computed while the output of this one is on its way
  how.peers = options.peers;
  how.tensor = options.tensor;
  return how;
}

std::int64_t own_pages(const Decoder::Options& options) {
  return (options.capacity + CompileOptions::cache_page - 1) / CompileOptions::cache_page;
}

Decoder::Options with_pages(Decoder::Options options) {
  if (options.pages == 0) options.pages = own_pages(options) * options.groups * options.sequences + 1;
  return options;
}

}  // namespace

Decoder::Decoder(ModelRank& model, const Options& options)
    : model_(model),
      options_(with_pages(options)),
      input_(find_tokens(model.graph(), model.cuts().front())),
      host_(model.device(), model.memory()),
      pipeline_(model, one_forward(model),
                pipeline_options(options_, padded(0, options.chunk > 0 ? std::min(options.chunk, options.capacity) : options.capacity))) {
  PPENGINE_ASSERT(std::ranges::is_sorted(model.stage_rank()) && !model.stages().empty() && options.capacity > 0 && options.groups > 0 &&
                  options.sequences > 0);
  if (!model.graph().output_value()) throw ConfigError("the model has no output: call Graph::output on its logits");
  for (const Node& node : model.graph().nodes())
    if (const std::int64_t at = node.op->rotary_switch(); at < options.capacity) rotary_switch_ = std::max(rotary_switch_, at);
  adapters_.assign(static_cast<std::size_t>(options.groups * options.sequences), -1);
  pages_.assign(adapters_.size() * static_cast<std::size_t>(own_pages(options)), 0);
  if (options.pages == 0)
    for (std::size_t i = 0; i < pages_.size(); ++i) pages_[i] = static_cast<std::int32_t>(i + 1);
  for (const AdapterMask& mask : options.adapters) {
    const auto found = std::ranges::find(model.graph().values(), mask.input, &ValueInfo::name);
    PPENGINE_ASSERT(found != model.graph().values().end() && !found->producer);
    masks_.push_back({model.graph().values().id_of(found), mask.columns, {}});
  }
  pipeline_.on_output = [this](int, const ops::Tensor& output, ops::Stream& stream) { output_ = host_.read(output, stream); };
  prepare_step(options.sequences);
}

// The tokens that pad a prefill come after all others and their keys are overwritten before anybody reads them.
std::int64_t Decoder::padded(std::int64_t position, std::int64_t length) const {
  if (length <= exact_length) return length;
  const std::int64_t up = (length + length_granularity - 1) / length_granularity * length_granularity;
  return std::min(up, options_.capacity - position);
}

void Decoder::prepare(std::int64_t position, std::int64_t length, bool output) {
  prepare({.output = output ? Output::one_row : Output::none, .length = padded(position, length)});
}

void Decoder::prepare_step(std::int64_t sequences) { prepare({.sequences = sequences}); }

std::span<float> Decoder::prefill(int group, std::int64_t sequence, std::int64_t position, std::int64_t length, bool output,
                                  std::span<const std::int32_t> ids, std::int64_t whole) {
  return prefill(output ? Output::one_row : Output::none, group, sequence, position, length, ids, whole);
}

std::span<float> Decoder::read(int group, std::int64_t sequence, std::int64_t position, std::int64_t length,
                               std::span<const std::int32_t> ids, std::int64_t whole) {
  const std::span<float> rows = prefill(Output::all, group, sequence, position, length, ids, whole);
  return rows.first(rows.size() / ids_.size() * static_cast<std::size_t>(length));  // without those that pad
}

std::span<float> Decoder::prefill(Output output, int group, std::int64_t sequence, std::int64_t position, std::int64_t length,
                                  std::span<const std::int32_t> ids, std::int64_t whole) {
  PPENGINE_ASSERT(length > 0 && (options_.chunk == 0 || length <= options_.chunk) && position + length <= options_.capacity &&
                  sequence < options_.sequences);
  ids_.assign(static_cast<std::size_t>(padded(position, length)), 0);
  std::ranges::copy(ids, ids_.begin());
  const auto first = static_cast<std::int32_t>(position);
  return run({.output = output,
              .group = group,
              .first = sequence,
              .length = static_cast<std::int64_t>(ids_.size()),
              .row = length - 1,
              .positions = {&first, 1},
              .ids = ids_,
              .whole = std::max(whole, position + length)});
}

std::span<float> Decoder::step(int group, std::int64_t first, std::span<const std::int32_t> positions, std::span<const std::int32_t> ids) {
  const auto sequences = static_cast<std::int64_t>(positions.size());
  PPENGINE_ASSERT(first >= 0 && sequences > 0 && first + sequences <= options_.sequences);
  return run({.group = group, .first = first, .sequences = sequences, .positions = positions, .ids = ids});
}

std::span<float> Decoder::verify(int group, std::int64_t sequence, std::int64_t position, std::int64_t length,
                                 std::span<const std::int32_t> ids, std::int64_t whole) {
  PPENGINE_ASSERT(length > 0 && length <= most_verified && position + length <= options_.capacity && sequence < options_.sequences);
  const auto first = static_cast<std::int32_t>(position);
  return run({.group = group,
              .first = sequence,
              .length = length,
              .positions = {&first, 1},
              .ids = ids,
              .whole = std::max(whole, position + length)});
}

std::span<std::int32_t> Decoder::page_table(int group, std::int64_t sequence, std::int64_t count) {
  const std::size_t each = pages_.size() / adapters_.size();
  return std::span(pages_).subspan(static_cast<std::size_t>(group * options_.sequences + sequence) * each,
                                   static_cast<std::size_t>(count) * each);
}

void Decoder::set_page(int group, std::int64_t sequence, std::int64_t index, std::int32_t page) {
  PPENGINE_ASSERT(page >= 0 && page < options_.pages);
  page_table(group, sequence, 1)[static_cast<std::size_t>(index)] = page;
}

void Decoder::clear_pages(int group, std::int64_t sequence) { std::ranges::fill(page_table(group, sequence, 1), 0); }

void Decoder::set_adapter(int group, std::int64_t sequence, int adapter) {
  adapters_[static_cast<std::size_t>(group * options_.sequences + sequence)] = adapter;
}

// Ones where a row's sequence has the adapter of a column.
void Decoder::make_masks(const Call& call) {
  for (Mask& mask : masks_) {
    mask.rows.clear();
    for (std::int64_t row = 0; row < call.sequences * call.length; ++row) {
      const int adapter = adapters_[static_cast<std::size_t>(range_of(call).begin + row / call.length)];
      for (int owner : mask.columns) mask.rows.push_back(owner == adapter ? 1.0f : 0.0f);
    }
  }
}

// Rotary tables for long sequences lie behind those for short ones.
void Decoder::find_rotary_rows(const Call& call) {
  if (rotary_switch_ == 0) return;
  rotary_rows_.assign(call.positions.begin(), call.positions.end());
  for (std::int32_t& row : rotary_rows_)
    if ((call.whole > 0 ? call.whole : row + 1) > rotary_switch_) row += static_cast<std::int32_t>(options_.capacity);
}

void Decoder::prepare(const Call& call) { pipeline_.prepare({range_of(call)}, call.length, call.output); }

std::span<float> Decoder::run(const Call& call) {
  make_masks(call);
  find_rotary_rows(call);
  inputs_.fill = [&](StageRuntime& stage, int) { fill(stage, call); };
  inputs_.microbatches = {range_of(call)};
  inputs_.output = call.output;
  inputs_.output_row = call.row;
  output_ = {};
  pipeline_.run(inputs_);
  return output_;
}

void Decoder::fill(StageRuntime& stage, const Call& call) {
  const auto put = [&](std::byte* to, auto from) {
    if (to && !from.empty()) pipeline_.stream().copy(to, from.data(), from.size() * sizeof(from[0]));
  };
  if (std::byte* const to = stage.input(0, input_)) {
    check_tokens(model_.graph(), input_, call.ids, static_cast<std::int64_t>(call.ids.size()));
    put(to, call.ids);
  }
  for (const Mask& mask : masks_) put(stage.input(0, mask.value), std::span(mask.rows));
  std::byte* const positions = stage.positions(0);
  const std::size_t each = call.positions.size_bytes();
  put(positions, call.positions);
  put(positions + each, std::span(rotary_rows_));
  put(positions + 2 * each, page_table(call.group, call.first, call.sequences));
}

}  // namespace ppengine::engine
