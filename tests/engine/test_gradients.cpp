// The gradient of a whole graph is that of its loss: against differences of the loss along random directions.
#include "support.hpp"

using namespace ppengine;
using namespace ppengine::engine;
using namespace ppengine::engine::test;

namespace {

// A model on one rank whose parameters can be moved.
class OneRank {
 public:
  OneRank(std::shared_ptr<const Graph> graph, const Batch& batch, int microbatches = 1, bool recompute = false,
          const char* schedule = "gpipe")
      : graph_(std::move(graph)),
        batch_(batch),
        cuts_(split_at(*graph_, {})),
        model_(graph_, cuts_, {0}, 0, shared_device(), {}),
        pipeline_(model_, schedules::lower(schedules::make_plan(schedule, 1, 1, microbatches), {.unshard = false}),
                  {.compile = {.recompute = recompute}}) {
    parameters().initialize(pipeline_.stream(), 1);
    inputs_.batch = &batch_;
    inputs_.microbatches = split_batch(0, batch_.sequences, microbatches);
    inputs_.loss_weight = 1.0f / static_cast<float>(valid_tokens(*graph_, batch_));
  }

  double loss() {
    pipeline_.run(inputs_);
    double sum = 0;
    for (double one : pipeline_.losses()) sum += one;
    return sum / double(valid_tokens(*graph_, batch_));
  }
  ParameterStore& parameters() { return model_.parameters(StageId(0)); }
  std::vector<float> read(const float* from) {
    std::vector<float> host(parameters().count());
    pipeline_.stream().copy(host.data(), from, host.size() * sizeof(float));
    pipeline_.stream().wait();
    return host;
  }
  void write(const std::vector<float>& host) {
    pipeline_.stream().copy(parameters().values(), host.data(), host.size() * sizeof(float));
    pipeline_.stream().wait();
  }
  StepInputs& inputs() { return inputs_; }

 private:
  std::shared_ptr<const Graph> graph_;
  Batch batch_;
  std::vector<StageCut> cuts_;
  ModelRank model_;
  Pipeline pipeline_;
  StepInputs inputs_;
};

// Largest relative difference between gradient·direction and the difference quotient over a few directions.
double directional_error(OneRank& model, int directions = 4) {
  model.loss();
  const auto gradient = model.read(model.parameters().gradients()), start = model.read(model.parameters().values());
  double norm = 0, worst = 0;
  for (float g : gradient) norm += double(g) * double(g);
  norm = std::sqrt(norm);
  for (int d = 0; d < directions; ++d) {
    std::vector<float> direction(start.size());
    double length = 0;
    for (std::size_t i = 0; i < start.size(); ++i) {  // partly along the gradient, so that the slope is well above rounding
      const double random = double(mix(i * 31 + static_cast<std::uint64_t>(d)) >> 11) * 0x1p-53 - 0.5;
      direction[i] = static_cast<float>(double(gradient[i]) / norm + random * 2.0 / std::sqrt(double(start.size())));
      length += double(direction[i]) * double(direction[i]);
    }
    double slope = 0;
    const double step = 2e-3 / std::sqrt(length);
    auto moved = start;
    for (std::size_t i = 0; i < start.size(); ++i) slope += double(gradient[i]) * double(direction[i]);
    for (std::size_t i = 0; i < start.size(); ++i) moved[i] = static_cast<float>(double(start[i]) + step * double(direction[i]));
    model.write(moved);
    const double above = model.loss();
    for (std::size_t i = 0; i < start.size(); ++i) moved[i] = static_cast<float>(double(start[i]) - step * double(direction[i]));
    model.write(moved);
    const double below = model.loss();
    model.write(start);
    worst = ppengine::test::worse(worst, ppengine::test::relative((above - below) / (2 * step), slope));
  }
  return worst;
}

// A random DAG of pointwise ops, norms and linears over values of a few widths, all of which reach the loss.
std::shared_ptr<const Graph> random_graph(std::uint64_t seed) {
  auto graph = std::make_shared<Graph>();
  std::uint64_t counter = seed * 1000;
  const auto draw = [&](std::uint64_t below) { return mix(++counter) % below; };
  std::vector<Value> values{graph->embedding(graph->tokens("input_ids"), "embed", {.vocabulary = 11, .width = 8, .init_scale = 1.0f})};
  for (int i = 0; i < 10; ++i) {
    auto scope = graph->module("n." + std::to_string(i));
    const Value a = values[draw(values.size())], b = values[draw(values.size())];
    switch (draw(8)) {
      case 0:
        values.push_back(graph->add(a, b));
        break;
      case 1:
        values.push_back(graph->multiply(a, graph->norm(b, "norm", {})));
        break;
      case 2:
        values.push_back(graph->activation(a, static_cast<ops::ActivationKind>(draw(3))));
        break;
      case 3:
        values.push_back(graph->norm(a, "norm", {draw(2) ? ops::NormKind::layer : ops::NormKind::rms, 1e-4f, true}));
        break;
      case 4:
        values.push_back(graph->linear(a, "linear",
                                       {.out = 8,
                                        .bias = draw(2) == 0,
                                        .file_layout = draw(2) ? ops::WeightLayout::out_in : ops::WeightLayout::in_out,
                                        .init_scale = 0.4f}));
        break;
      case 5:
        values.push_back(graph->attention(graph->linear(a, "qkv", {.out = 24, .init_scale = 0.4f}), {2, 2, 4}));
        break;
      case 6:
        values.push_back(graph->gated_silu(a, b));
        break;
      default:
        values.push_back(graph->softmax(graph->linear(a, "scores", {.out = 8, .init_scale = 0.4f})));
        break;
    }
    values.back() = graph->norm(values.back(), "out", {});  // keeps magnitudes near one
  }
  Value sum = values[1];
  for (std::size_t i = 2; i < values.size(); ++i) sum = graph->add(sum, values[i]);
  graph->loss(graph->cross_entropy(graph->linear(sum, "head", {.out = 11, .init_scale = 0.2f}), graph->tokens("targets")));
  return graph;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(gradients)

BOOST_AUTO_TEST_CASE(of_a_gpt_match_differences_of_its_loss) {
  OneRank model(make_model({.layers = 2}), make_batch(3, 9, 17, 5, true));
  BOOST_TEST(directional_error(model) < 1e-2);
}

BOOST_AUTO_TEST_CASE(of_a_llama_like_model_with_tied_weights_match_differences_of_its_loss) {
  OneRank model(make_model({.layers = 2, .tied = true, .rms = true}), make_batch(3, 9, 17, 5));
  BOOST_TEST(directional_error(model) < 1e-2);
}

BOOST_AUTO_TEST_CASE(of_random_graphs_match_differences_of_their_loss) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    OneRank model(random_graph(seed), make_batch(2, 5, 11, seed));
    BOOST_TEST_CONTEXT("random graph " << seed) { BOOST_TEST(directional_error(model, 2) < 3e-2); }
  }
}

BOOST_AUTO_TEST_CASE(of_dropout_use_the_mask_of_the_forward) {
  OneRank model(make_model({.layers = 2, .dropout = 0.3f}), make_batch(3, 9, 17, 5));
  model.inputs().dropout_key = 99;
  BOOST_TEST(directional_error(model) < 1e-2);
}

BOOST_AUTO_TEST_CASE(are_the_same_bits_when_activations_are_computed_again) {
  const auto graph = make_model({.layers = 3});
  const Batch batch = make_batch(4, 9, 17, 5);
  OneRank kept(graph, batch, 2), again(graph, batch, 2, true);
  BOOST_TEST(kept.loss() == again.loss());
  BOOST_TEST(kept.read(kept.parameters().gradients()) == again.read(again.parameters().gradients()), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(are_the_same_whether_the_backward_is_split_or_whole) {
  const auto graph = make_model({.layers = 2, .tied = true});
  const Batch batch = make_batch(4, 9, 17, 5);
  OneRank whole(graph, batch, 4), split(graph, batch, 4, false, "interleavedzerobubble");
  BOOST_TEST(whole.loss() == split.loss());
  const auto a = whole.read(whole.parameters().gradients()), b = split.read(split.parameters().gradients());
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = ppengine::test::worse(worst, ppengine::test::distance(a[i], b[i]));
  BOOST_TEST(worst < 1e-6);
}

BOOST_AUTO_TEST_SUITE_END()
