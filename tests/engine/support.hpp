// What the engine's tests share: small models, batches, and a run that gives back losses, gradients and weights by name.
#pragma once

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>
#include <map>
#include <mutex>

#include <ppengine/base/hash.hpp>
#include <ppengine/comm/threads.hpp>
#include <ppengine/engine/pipeline.hpp>
#include <ppengine/engine/trainer.hpp>
#include <ppengine/schedules/lower.hpp>

#include "../compare.hpp"
#include "../device.hpp"
#include "../ranks.hpp"

namespace ppengine::engine::test {

inline std::shared_ptr<ops::Device> shared_device() {
  static const auto device = ops::Device::open(ppengine::test::device_name());
  return device;
}

struct SmallModel {
  std::int64_t vocabulary = 17, width = 12, layers = 4, heads = 3, positions = 9;
  bool tied = false;
  bool rms = false;  // Llama's parts in place of GPT-2's
  float dropout = 0;
};

inline std::shared_ptr<const Graph> make_model(const SmallModel& model) {
  auto graph = std::make_shared<Graph>();
  const std::int64_t head_dim = model.width / model.heads;
  Value x{};
  {
    auto top = graph->module("transformer");
    x = graph->embedding(graph->tokens("input_ids"), "wte",
                         {model.vocabulary, model.width, model.rms ? 0 : model.positions, model.rms ? "" : "wpe", 0.5f});
    for (std::int64_t i = 0; i < model.layers; ++i) {
      auto block = graph->module("h." + std::to_string(i));
      const NormOptions norm{model.rms ? ops::NormKind::rms : ops::NormKind::layer, 1e-5f, !model.rms};
      Value h = graph->norm(x, "ln_1", norm);
      {
        auto attention = graph->module("attn");
        h = graph->linear(h, "c_attn", {.out = 3 * model.width, .file_layout = ops::WeightLayout::in_out, .init_scale = 0.3f});
        h = graph->attention(h, {model.heads, model.heads, head_dim});
        h = graph->linear(h, "c_proj", {.out = model.width, .file_layout = ops::WeightLayout::in_out, .init_scale = 0.3f});
      }
      x = graph->add(x, graph->dropout(h, model.dropout));
      h = graph->norm(x, "ln_2", norm);
      {
        auto mlp = graph->module("mlp");
        if (model.rms) {
          const Value gate = graph->linear(h, "gate", {.out = 2 * model.width, .bias = false, .init_scale = 0.3f});
          h = graph->gated_silu(gate, graph->linear(h, "up", {.out = 2 * model.width, .bias = false, .init_scale = 0.3f}));
        } else {
          h = graph->activation(graph->linear(h, "c_fc", {.out = 4 * model.width, .init_scale = 0.3f}), ops::ActivationKind::gelu_tanh);
        }
        h = graph->linear(h, "c_proj", {.out = model.width, .init_scale = 0.3f});
      }
      x = graph->add(x, graph->dropout(h, model.dropout));
    }
    x = graph->norm(x, "ln_f", {});
  }
  const Value logits = graph->linear(
      x, "lm_head", {.out = model.vocabulary, .bias = false, .init_scale = 0.3f, .weight = model.tied ? "transformer.wte.weight" : ""});
  graph->output(logits);
  TensorPlan plan{{"attn.c_attn", TensorSplit::outputs, {model.width, model.width, model.width}},
                  {"attn.c_proj", TensorSplit::inputs},
                  {"mlp.c_proj", TensorSplit::inputs},
                  {"wte", TensorSplit::vocabulary},
                  {"lm_head", TensorSplit::vocabulary}};
  for (const char* name : model.rms ? std::vector{"mlp.gate", "mlp.up"} : std::vector{"mlp.c_fc"})
    plan.push_back({name, TensorSplit::outputs});
  graph->tensor_plan(std::move(plan));
  graph->loss(graph->cross_entropy(logits, graph->tokens("targets")));
  return graph;
}

// Random tokens; every seventh target is masked where asked for.
inline Batch make_batch(std::int64_t sequences, std::int64_t length, std::int64_t vocabulary, std::uint64_t seed, bool masked = false) {
  Batch batch{sequences, length, {{"input_ids", {}, {}}, {"targets", {}, {}}}};
  for (std::int64_t i = 0; i < sequences * length; ++i) {
    batch.inputs[0].tokens.push_back(
        static_cast<std::int32_t>(mix(seed + 2 * static_cast<std::uint64_t>(i)) % static_cast<std::uint64_t>(vocabulary)));
    const bool mask = masked && i % 7 == 3;
    batch.inputs[1].tokens.push_back(
        mask ? -100
             : static_cast<std::int32_t>(mix(seed + 2 * static_cast<std::uint64_t>(i) + 1) % static_cast<std::uint64_t>(vocabulary)));
  }
  return batch;
}

// Ranks are threads, and Boost.Test counts for one at a time: several ranks check with this held, and without BOOST_REQUIRE.
inline std::mutex& checking() {
  static std::mutex mutex;
  return mutex;
}

using Weights = std::map<std::string, std::vector<float>>;

struct Outcome {
  std::vector<double> losses, norms;
  Weights gradients, weights;  // after the last step
};

inline void collect(Trainer& trainer, Outcome& into) {
  static std::mutex mutex;
  ModelRank& model = trainer.model();
  ops::Stream& stream = trainer.pipeline().stream();
  for (engine::StageId stage : model.stages()) {
    const ParameterStore& store = model.parameters(stage);
    const auto copy = [&](const float* local, std::size_t count) {  // sharded: all data-parallel ranks give their parts
      std::vector<float> whole(count);
      stream.copy(whole.data(), trainer.whole(stage, local), whole.size() * sizeof(float));
      stream.wait();
      return whole;
    };
    const auto gradients = copy(store.gradients(), store.trained_count()), values = copy(store.values(), store.count());
    std::lock_guard lock(mutex);
    if (trainer.mesh().place().data == 0)
      for (const ParameterRange& range : store.ranges()) {
        if (model.owner(range.id) != stage) continue;
        const ParameterInfo& info = model.graph().parameters()[range.id];
        std::vector<float> part(range.count);
        const auto put = [&](const float* flat,
                             std::vector<float>& whole) {  // of a divided parameter each tensor-parallel rank adds its part
          store.save(stream, range, flat, part);
          whole.resize(static_cast<std::size_t>(info.whole_shape().count()));
          if (info.placement.is_split())
            put_part(info.placement, part, whole);
          else
            whole = part;
        };
        if (range.offset < store.trained_count()) put(gradients.data(), into.gradients[info.name]);
        put(values.data(), into.weights[info.name]);
      }
  }
}

// Ranks as threads that share a device.
inline void on_ranks(int ranks, const std::function<void(comm::Communicator&)>& body,
                     const std::shared_ptr<ops::Device>& device = shared_device()) {
  ppengine::test::on_ranks(ranks, device, body);
}

// Trains with ranks as threads and gives what rank 0 saw.
inline Outcome train(std::shared_ptr<const Graph> graph, TrainerOptions options, const std::vector<Batch>& batches, double lr = 1e-2) {
  Outcome outcome;
  if (!options.parallel.device) options.parallel.device = shared_device();
  const auto body = [&](comm::Communicator& world) {
    Trainer trainer(graph, options, world, batches.front().sequences, batches.front().length);
    for (const Batch& batch : batches) {
      const StepResult result = trainer.step(batch, lr);
      if (world.rank() == 0) {
        outcome.losses.push_back(result.loss);
        outcome.norms.push_back(result.grad_norm);
      }
    }
    collect(trainer, outcome);
  };
  on_ranks(options.parallel.mesh().size(), body, options.parallel.device);
  return outcome;
}

// The largest difference relative to the largest magnitude of the reference, over all tensors; `worst` names the tensor.
inline double difference(const Weights& got, const Weights& expected, std::string* worst = nullptr) {
  double largest = 0;
  BOOST_REQUIRE_EQUAL(got.size(), expected.size());
  for (const auto& [name, reference] : expected) {
    const auto& values = got.at(name);
    BOOST_REQUIRE_EQUAL(values.size(), reference.size());
    const double share = ppengine::test::largest_share(values, reference);
    if (!(share <= largest)) {
      largest = share;
      if (worst) *worst = name;
    }
  }
  return largest;
}

inline void check_same(const Outcome& got, const Outcome& expected, double tolerance = 2e-4) {
  BOOST_REQUIRE_EQUAL(got.losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < got.losses.size(); ++i) {
    BOOST_TEST(std::abs(got.losses[i] - expected.losses[i]) < tolerance * expected.losses[i]);
    BOOST_TEST(std::abs(got.norms[i] - expected.norms[i]) < tolerance * expected.norms[i]);
  }
  std::string worst;
  const double weights = difference(got.weights, expected.weights, &worst);
  BOOST_TEST_CONTEXT("weights of " << worst) { BOOST_TEST(weights < tolerance); }
}

}  // namespace ppengine::engine::test
