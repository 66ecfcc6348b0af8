// Building and splitting graphs: errors name module and shapes, what crosses a cut follows from the graph.
#include <ppengine/base/error.hpp>

#include "support.hpp"

using namespace ppengine;
using namespace ppengine::engine;
using namespace ppengine::engine::test;

namespace {

template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

bool mentions(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

BOOST_AUTO_TEST_SUITE(graphs)

BOOST_AUTO_TEST_CASE(a_wrong_shape_is_named_with_its_module) {
  Graph graph;
  const Value x = graph.input("x", 512);
  auto scope = graph.module("transformer.h.3.attn");
  const std::string text = error_of([&] { graph.attention(x, {12, 12, 64}); });
  BOOST_TEST(mentions(text, "transformer.h.3.attn"));
  BOOST_TEST(mentions(text, "2304"));
  BOOST_TEST(mentions(text, "512"));
}

BOOST_AUTO_TEST_CASE(a_batch_of_the_wrong_size_is_named_with_its_input) {
  const auto graph = make_model({});
  Batch batch = make_batch(2, 9, 17, 1);
  batch.inputs[1].tokens.pop_back();
  BOOST_TEST(mentions(error_of([&] { check_batch(*graph, batch); }), "targets: expected [2,9,1]"));
}

BOOST_AUTO_TEST_CASE(parameters_keep_their_hugging_face_names_in_every_stage) {
  const auto graph = make_model({.layers = 4});
  const auto cuts = split_at(*graph, {"transformer.h.1", "transformer.h.2.mlp"});
  BOOST_REQUIRE_EQUAL(cuts.size(), 3u);
  const auto name = [&](ParameterId id) { return graph->parameters()[id].name; };
  BOOST_TEST(name(cuts[0].parameters.front()) == "transformer.wte.weight");
  BOOST_TEST(name(cuts[1].parameters.front()) == "transformer.h.1.ln_1.weight");
  BOOST_TEST(name(cuts[2].parameters.back()) == "lm_head.weight");
}

BOOST_AUTO_TEST_CASE(a_cut_inside_a_block_carries_the_residual_too) {
  const auto graph = make_model({.layers = 2});
  BOOST_TEST(split_at(*graph, {"transformer.h.1"})[1].receives.size() == 1u);
  BOOST_TEST(split_at(*graph, {"transformer.h.1.mlp"})[1].receives.size() == 2u);  // the norm's output and what is added at the end
}

BOOST_AUTO_TEST_CASE(an_end_cut_is_the_begin_of_what_follows) {
  const auto graph = make_model({.layers = 4});
  BOOST_TEST(split_at(*graph, {"transformer.h.1:end"})[1].begin == split_at(*graph, {"transformer.h.2"})[1].begin);
}

BOOST_AUTO_TEST_CASE(impossible_splits_are_refused) {
  const auto graph = make_model({.layers = 2});
  BOOST_TEST(mentions(error_of([&] { split_at(*graph, {"transformer.h.9"}); }), "no module 'transformer.h.9'"));
  BOOST_TEST(mentions(error_of([&] { split_at(*graph, {"transformer.h.1", "transformer.h.0"}); }), "order"));
  BOOST_TEST(mentions(error_of([&] { split_at(*graph, {"transformer.wte"}); }), "nothing to do") == false);
  BOOST_TEST(mentions(error_of([&] { split_evenly(*graph, 1000, estimated_costs(*graph, 1, 9)); }), "at most"));
}

BOOST_AUTO_TEST_CASE(an_even_split_balances_cost_and_places_every_node) {
  const auto graph = make_model({.layers = 8});
  const auto costs = estimated_costs(*graph, 2, 9);
  const auto cuts = split_evenly(*graph, 4, costs);
  double total = 0, largest = 0;
  NodeId next(0);
  for (const StageCut& cut : cuts) {
    BOOST_TEST(cut.begin == next);
    next = cut.end;
    double mine = 0;
    for (NodeId i : cut.nodes()) mine += costs[i];
    total += mine;
    largest = std::max(largest, mine);
  }
  BOOST_TEST(next == graph->nodes().end_id());
  BOOST_TEST(largest < 1.25 * total / 4);
}

BOOST_AUTO_TEST_CASE(memory_of_values_that_do_not_live_together_is_shared) {
  Program program;
  Buffers buffers(4, {.bytes = 1000});
  for (BufferId i : ids_between(BufferId(0), BufferId(3))) program.push_back({"", "", {i}, {i + 1}, {}});
  const Layout layout = place_buffers(buffers, program, {}, {}, {});
  BOOST_TEST(layout.workspace == 2 * ops::align_up(1000));
  BOOST_TEST(layout.activations == 0u);
}

BOOST_AUTO_TEST_CASE(freezing_gives_no_gradient_to_what_had_none) {
  Graph graph;
  const Value x = graph.embedding(graph.tokens("input_ids"), "wte", {.vocabulary = 17, .width = 8});
  const auto op = graph.nodes()[graph.info(graph.scale(x, 2)).producer].op;
  const Value detached = graph.node("detached", op, {x}, {}, 8, 0, ValueKind::activation, /*differentiable=*/false);
  const Value y = graph.linear(detached, "head", {.out = 17});
  BOOST_TEST(!graph.info(detached).needs_gradient);
  graph.freeze([](const ParameterInfo& one) { return one.name == "head.bias"; });
  BOOST_TEST(!graph.info(detached).needs_gradient);
  BOOST_TEST(graph.info(x).needs_gradient);
  BOOST_TEST(graph.info(y).needs_gradient);
}

BOOST_AUTO_TEST_SUITE_END()
