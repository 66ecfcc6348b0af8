// Trainer: where a NaN comes from, and whether the copies of the model are still equal.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <ranges>

#include <ppengine/base/crc32.hpp>
#include <ppengine/base/error.hpp>
#include <ppengine/comm/gather.hpp>
#include <ppengine/engine/trainer_impl.hpp>

namespace ppengine::engine {
namespace {

bool has_not_finite(const Run& run, BufferId id, ops::Type type) {
  const std::size_t bytes = run.buffers[id].bytes;
  std::vector<std::byte> host(bytes);
  run.stream.copy(host.data(), run.at(id), bytes);
  run.stream.wait();
  if (type == ops::Type::bf16) {
    for (std::size_t i = 0; i + 2 <= bytes; i += 2) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, host.data() + i, 2);
      if ((bits & 0x7f80u) == 0x7f80u) return true;
    }
    return false;
  }
  for (std::size_t i = 0; i + 4 <= bytes; i += 4) {
    float value = 0;
    std::memcpy(&value, host.data() + i, 4);
    if (!std::isfinite(value)) return true;
  }
  return false;
}

// What one rank has found: the place in the graph decides who was first.
struct Finding {
  std::int64_t place = INT64_MAX;
  std::string what;
};

// All ranks' findings, the one with the lowest place, with its rank. Empty: nobody has found anything.
std::string first_finding(comm::Communicator& world, const Finding& mine) {
  const auto places = comm::gather(world, std::vector<std::int64_t>{mine.place});
  const auto texts = world.all_gather_bytes(mine.what);
  std::size_t first = 0;
  for (std::size_t rank = 1; rank < places.size(); ++rank)
    if (places[rank].front() < places[first].front()) first = rank;
  return places[first].front() == INT64_MAX ? "" : fmt::format("{} on rank {}", texts[first], first);
}

}  // namespace

OnNan parse_on_nan(std::string_view name) {
  if (name == "stop") return OnNan::stop;
  if (name == "skip") return OnNan::skip;
  if (name == "ignore") return OnNan::ignore;
  throw ConfigError(fmt::format("--on-nan {}: use stop, skip or ignore", name));
}

// The forward again, looking at what each instruction writes. The weights are those of the step, but where the update happens in the
// backward. Where the forward is in order, the backward is not: it runs from the end, so the last parameter whose gradient is not finite
// had it first.
std::string Trainer::Impl::find_not_finite(std::span<const Share> shares, bool same_batches) {
  Finding found;
  if (same_batches && !options_.optimizer_in_backward) {
    Profile scan;
    scan.watch = [&](const Instruction& instruction, const Run& run) {
      if (!found.what.empty() || instruction.writes.empty() || instruction.writes.front() == no_buffer) return;
      const bool is_loss = instruction.kind.starts_with("cross_entropy");  // its losses are f32 whatever the type of the logits
      if (!has_not_finite(run, instruction.writes.front(), is_loss ? ops::Type::f32 : model_->options().compute)) return;
      found = {INT64_MAX - 1, instruction.module};
      for (NodeId i : graph_->nodes().ids())
        if (found.place == INT64_MAX - 1 && graph_->nodes()[i].module == instruction.module) found.place = i.number();
    };
    evaluator_->set_profile(&scan);
    for (const Share& share : shares)
      if (share.batch) evaluator_->run(*share.batch);
    evaluator_->set_profile(nullptr);
    if (const std::string first = first_finding(mesh_.world(), found); !first.empty()) return first;
  }
  const IdVector<ParameterId, double>& squares = norm_->squares();
  for (ParameterId id : squares.ids() | std::views::reverse)
    if (found.what.empty() && !std::isfinite(squares[id]))
      found = {squares.end_id() - id, fmt::format("the gradient of {}", graph_->parameters()[id].name)};
  const std::string first = first_finding(mesh_.world(), found);
  return first.empty() ? "the loss" : first;
}

void Trainer::Impl::check_replicas() {
  comm::Communicator& data = mesh_.data();
  if (data.size() == 1 || model_->sharding()) return;
  std::vector<std::uint32_t> mine;
  std::vector<float> host;
  for (StageId stage : model_->stages()) {
    const ParameterStore& parameters = model_->parameters(stage);
    host.resize(parameters.value_count());
    pipeline_->stream().copy(host.data(), parameters.values(), host.size() * sizeof(float));
    pipeline_->stream().wait();
    mine.push_back(crc32(host.data(), host.size() * sizeof(float)));
  }
  const auto all = comm::gather(data, mine);
  std::map<std::vector<std::uint32_t>, std::vector<int>> copies;  // ranks of the world by what they have
  for (std::size_t rank = 0; rank < all.size(); ++rank) copies[all[rank]].push_back(data.world_rank(static_cast<int>(rank)));
  std::string text;
  if (copies.size() > 1 && data.rank() == 0) {
    std::size_t most = 0;
    for (const auto& [sums, ranks] : copies) most = std::max(most, ranks.size());
    std::vector<int> drifted;
    for (const auto& [sums, ranks] : copies)
      if (ranks.size() < most) drifted.insert(drifted.end(), ranks.begin(), ranks.end());
    if (drifted.empty()) {  // two, or as many of each: no majority tells which is wrong
      for (const auto& [sums, ranks] : copies) drifted.insert(drifted.end(), ranks.begin(), ranks.end());
      std::ranges::sort(drifted);
      text = fmt::format("the copies of the parameters on ranks {} differ", fmt::join(drifted, ", "));
    } else {
      text = fmt::format("the parameters on rank {} have drifted from those of the other copies", fmt::join(drifted, ", "));
    }
  }
  for (const std::string& one : mesh_.world().all_gather_bytes(text))
    if (!one.empty())
      throw Error(
          fmt::format("step {}: {}: memory or a device has failed; go on from a checkpoint, on another machine", optimizer_->steps(), one));
}

}  // namespace ppengine::engine
