// Emitter: adding instructions to a stage's programs.
#include <ppengine/engine/stage/emitter.hpp>

#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/graph/node.hpp>
#include <ppengine/ops/elementwise.hpp>

namespace ppengine::engine {
namespace {

BufferId find(const std::map<Value, BufferId>& map, Value id) {
  const auto found = map.find(id);
  return found == map.end() ? no_buffer : found->second;
}

}  // namespace

Emitter::Emitter(const Graph& graph, Buffers& buffers, ops::Type type, std::int64_t rows) : graph_(graph), buffers_(buffers), type_(type) {
  int parts = 1;
  for (const ValueInfo& info : graph.values()) parts = std::max(parts, info.row_parts);
  rows_ = (rows + parts - 1) / parts * parts;
}

BufferId Emitter::make(std::size_t bytes) { return buffers_.push_back({.bytes = bytes}); }

std::size_t Emitter::value_bytes(Value id) const {
  const ValueInfo& info = graph_.values()[id];
  return static_cast<std::size_t>(value_count(id)) * (info.kind == ValueKind::activation ? ops::size_of(type_) : 4);
}

std::int64_t Emitter::value_count(Value id) const {
  const ValueInfo& info = graph_.values()[id];
  const std::int64_t count = (has_one_row(id) ? 1 : rows_ / info.row_parts) * info.width + info.fixed + info.square * rows_ * rows_;
  if (count < 0) throw ConfigError(fmt::format("{}: a microbatch of {} samples is too small for the program", info.name, rows_));
  return count;
}

BufferId Emitter::value(Value id) const {
  const BufferId buffer = find(values_, id);
  PPENGINE_ASSERT(buffer != no_buffer);
  return buffer;
}

BufferId Emitter::take_row(Value id) {
  const BufferId all = value(id);
  if (has_one_row(id)) return all;
  BufferId& taken = taken_rows_.try_emplace(id, no_buffer).first->second;
  if (taken != no_buffer) return taken;
  const std::size_t bytes = value_bytes(id) / static_cast<std::size_t>(rows_);
  taken = make(bytes);
  targets_.forward->push_back({graph_.values()[id].name, "row", {all}, {taken}, [=, to = taken](const Run& run) {
                                 run.stream.copy(run.at(to), run.as<std::byte>(all) + static_cast<std::size_t>(run.output_row) * bytes,
                                                 bytes);
                               }});
  return taken;
}

BufferId Emitter::gradient(Value id) const { return find(gradients_, id); }

BufferId Emitter::output() {
  const auto redirected = redirected_.find(index_);
  const Value id = redirected == redirected_.end() ? node_->output : redirected->second;
  BufferId& buffer = values_.try_emplace(id, no_buffer).first->second;
  if (buffer == no_buffer) buffer = make(value_bytes(id));
  return buffer;
}

BufferId Emitter::parameter(std::size_t k) const { return parameters_.at(node_->parameters[k]).first; }

bool Emitter::trains_node() const {
  return std::ranges::any_of(node_->parameters, [&](ParameterId id) { return !is_frozen(id); });
}

BufferId Emitter::parameter_gradient(std::size_t k) {
  const ParameterId id = node_->parameters[k];
  if (!is_frozen(id)) return parameters_.at(id).second;
  if (!trains_node()) return no_buffer;
  BufferId& scratch = unwanted_.try_emplace({index_, k}, no_buffer).first->second;
  if (scratch == no_buffer) scratch = make(static_cast<std::size_t>(graph_.parameters()[id].shape.count()) * sizeof(float));
  return scratch;
}

BufferId Emitter::saved(const std::string& name, std::size_t bytes) {
  if (bytes == 0) return no_buffer;
  BufferId& buffer = saved_.try_emplace({index_, name}, no_buffer).first->second;
  if (buffer == no_buffer) buffer = make(bytes);
  return buffer;
}

BufferId Emitter::constant(const std::string& name, const std::function<std::vector<float>()>& table) {
  const auto found = constants_.find(name);
  if (found != constants_.end()) return found->second.first;
  std::vector<float> data = table();
  const BufferId buffer = make(data.size() * sizeof(float));
  place(buffer, Region::constants, constant_bytes_);
  constants_.emplace(name, std::pair(buffer, std::move(data)));
  return buffer;
}

BufferId Emitter::cache(std::size_t bytes) {
  const BufferId buffer = make(bytes);
  place(buffer, Region::cache, cache_bytes_);
  return buffer;
}

void Emitter::place(BufferId id, Region region, std::size_t& end) {
  BufferInfo& info = buffers_[id];
  info.region = region;
  info.offset = end;
  info.placed = true;
  end += ops::align_up(info.bytes);
}

void Emitter::forget(NodeId index) {
  std::erase_if(saved_, [&](const auto& entry) { return entry.first.first == index; });
  values_.erase(graph_.nodes()[index].output);
}

void Emitter::begin_backward() {
  gradients_.clear();
  written_.clear();
  unwanted_.clear();
  if (!by_forward_) by_forward_ = Made{values_, saved_};
  values_ = by_forward_->values;
  saved_ = by_forward_->saved;
}

GradientTarget Emitter::begin_gradient(std::size_t k, bool can_add) {
  if (!wants_gradient(k)) return {};
  const Value id = node_->inputs[k];
  GradientTarget target;
  target.diff = make(value_bytes(id));
  if (can_add) target.add = gradient(id);
  return target;
}

void Emitter::finish_gradient(std::size_t k, const GradientTarget& target) {
  if (!target) return;
  const Value id = node_->inputs[k];
  if (target.add != no_buffer || gradient(id) == no_buffer)
    set_gradient(id, target.diff);
  else
    add_gradient(id, target.diff);
}

void Emitter::pass_gradient(std::size_t k) { give_gradient(k, output_gradient()); }

void Emitter::add_gradient(Value id, BufferId buffer) {
  const BufferId before = gradient(id);
  if (before == no_buffer) return set_gradient(id, buffer);
  const BufferId sum = make(value_bytes(id));
  const std::int64_t count = value_count(id);
  input_half({before, buffer}, {sum},
             [=, type = type_](const Run& run) { ops::add(run.stream, type, run.at(before), run.at(buffer), run.at(sum), count); });
  set_gradient(id, sum);
}

void Emitter::emit(Program* program, const char* half, std::vector<BufferId> reads, std::vector<BufferId> writes, Body body) {
  program->push_back({node_->module, std::string(node_->op->kind()) + half, std::move(reads), std::move(writes), std::move(body)});
}

void Emitter::forward(std::vector<BufferId> reads, std::vector<BufferId> writes, Body body) {
  emit(targets_.forward, "", std::move(reads), std::move(writes), std::move(body));
}
void Emitter::input_half(std::vector<BufferId> reads, std::vector<BufferId> writes, Body body) {
  emit(targets_.input_half, " dX", std::move(reads), std::move(writes), std::move(body));
}

void Emitter::parameter_gradients(std::vector<BufferId> reads, std::vector<BufferId> also_writes, WeightBody body) {
  if (!trains_node()) return;
  std::vector<BufferId> writes, fresh;
  for (std::size_t k = 0; k < node_->parameters.size(); ++k) {
    writes.push_back(parameter_gradient(k));
    if (is_frozen(node_->parameters[k])) continue;
    if (written_.insert(node_->parameters[k]).second) fresh.push_back(writes.back());
  }
  const auto trained = std::ranges::count_if(node_->parameters, [&](ParameterId id) { return !is_frozen(id); });
  const bool shared = static_cast<long>(fresh.size()) < trained;
  std::vector<std::pair<BufferId, std::size_t>> clear;  // beside a shared weight: these start from zero
  if (shared)
    for (BufferId id : fresh) clear.emplace_back(id, buffers_[id].bytes);
  writes.insert(writes.end(), also_writes.begin(), also_writes.end());
  emit(targets_.weight_half, " dW", std::move(reads), std::move(writes), [body = std::move(body), shared, clear](const Run& run) {
    if (!run.accumulate)
      for (const auto& [id, bytes] : clear) run.stream.zero(run.at(id), bytes);
    body(run, run.accumulate || shared);
  });
}

}  // namespace ppengine::engine
