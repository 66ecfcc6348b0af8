// Frozen parameters, low-rank terms, packed documents and variable lengths: against the same model trained whole, on one rank, or one
// document at a time.
#include <ppengine/engine/graph/lora.hpp>
#include <ppengine/engine/graph/pack.hpp>
#include <ppengine/engine/stage/compiled_stage.hpp>
#include <ppengine/engine/weights/optimizer.hpp>

#include "support.hpp"

using namespace ppengine;
using namespace ppengine::engine;
using namespace ppengine::engine::test;

namespace {

constexpr SmallModel small{.vocabulary = 18, .heads = 2};

TrainerOptions layout(const std::string& schedule, int pipeline = 1, int data = 1, int tensor = 1, int stages = 0, int microbatches = 2,
                      bool shard = false) {
  TrainerOptions options;
  options.parallel.schedule = schedule;
  options.parallel.pipeline = pipeline;
  options.parallel.data = data;
  options.parallel.tensor = tensor;
  options.parallel.stages = stages;
  options.parallel.microbatches = microbatches;
  options.parallel.shard = shard;
  options.parallel.balance = Balance::estimated;
  options.optimizer.epsilon = 1e-4;
  options.seed = 3;
  return options;
}

std::vector<std::pair<std::string, TrainerOptions>> layouts() {
  return {{"gpipe, 2 ranks", layout("gpipe", 2)},
          {"zero bubble, 2 ranks", layout("interleavedzerobubble", 2, 1, 1, 4, 4)},
          {"V, 2 ranks", layout("zbvzerobubble", 2, 1, 1, 4, 4)},
          {"dual pipe, 2 ranks", layout("dualpipev", 2, 1, 1, 4, 4)},
          {"2 copies", layout("1f1b", 1, 2)},
          {"2 copies, sharded", layout("1f1b", 1, 2, 1, 0, 2, true)},
          {"2 x 2 ranks, sharded", layout("1f1b", 2, 2, 1, 0, 2, true)},
          {"2 tensor-parallel ranks", layout("1f1b", 1, 1, 2)},
          {"2 x 2 tensor-parallel ranks", layout("1f1b", 2, 1, 2)}};
}

// Updates that are the gradient itself: AdamW's divide its rounding by small numbers.
TrainerOptions plain(TrainerOptions options) {
  options.optimizer.kind = OptimizerKind::sgd;
  return options;
}

std::vector<Batch> batches() { return {make_batch(8, 9, small.vocabulary, 1, true), make_batch(8, 9, small.vocabulary, 2)}; }

std::shared_ptr<const Graph> frozen(const std::function<bool(const std::string&)>& which, const SmallModel& model = small) {
  auto graph = std::make_shared<Graph>(*make_model(model));
  graph->freeze([&](const ParameterInfo& info) { return which(info.name); });
  return graph;
}
bool is_trained(const std::string& name) { return name.find("h.2.mlp") != std::string::npos || name.ends_with("ln_f.bias"); }
std::shared_ptr<const Graph> mostly_frozen() {
  return frozen([](const std::string& name) { return !is_trained(name); });
}

Batch documents(std::int64_t sequences, std::int64_t length, const std::vector<std::vector<std::int64_t>>& lengths, bool packed) {
  Batch batch{sequences, length, {{"input_ids", {}, {}}, {"targets", {}, {}}}};
  std::vector<std::int32_t> positions;
  std::uint64_t number = 0;
  for (const auto& of_sequence : lengths) {
    std::int64_t used = 0;
    for (std::int64_t count : of_sequence) {
      for (std::int64_t i = 0; i < count; ++i) {  // the tokens depend on the document alone
        batch.inputs[0].tokens.push_back(static_cast<std::int32_t>(mix(100 * number + 2 * static_cast<std::uint64_t>(i)) % 18));
        batch.inputs[1].tokens.push_back(static_cast<std::int32_t>(mix(100 * number + 2 * static_cast<std::uint64_t>(i) + 1) % 18));
        positions.push_back(static_cast<std::int32_t>(i));
      }
      used += count;
      ++number;
    }
    for (std::int64_t i = used; i < length; ++i) {
      batch.inputs[0].tokens.push_back(0);
      batch.inputs[1].tokens.push_back(-100);
      positions.push_back(static_cast<std::int32_t>(i - used));
    }
  }
  if (packed) batch.inputs.push_back({positions_input, positions, {}});
  return batch;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(fine_tuning)

BOOST_AUTO_TEST_CASE(frozen_parameters_stay_and_the_others_get_the_same_gradients) {
  const std::vector<Batch> one{batches().front()};
  const Outcome whole = train(make_model(small), layout("1f1b"), one), part = train(mostly_frozen(), layout("1f1b"), one);
  BOOST_TEST(part.losses.front() == whole.losses.front(), boost::test_tools::tolerance(1e-6));
  Weights expected;
  for (const auto& [name, gradient] : whole.gradients)
    if (is_trained(name)) expected[name] = gradient;
  BOOST_TEST(difference(part.gradients, expected) < 1e-5);
  TrainerOptions untouched = layout("1f1b");
  const Outcome start = train(make_model(small), untouched, one, 0.0);
  for (const auto& [name, values] : part.weights) {
    const bool same = values == start.weights.at(name);
    BOOST_TEST(same != is_trained(name), name);
  }
}

BOOST_AUTO_TEST_CASE(frozen_parameters_in_every_layout) {
  const Outcome expected = train(mostly_frozen(), layout("1f1b"), batches());
  for (const auto& [name, options] : layouts()) BOOST_TEST_CONTEXT(name) {
      check_same(train(mostly_frozen(), options, batches()), expected);
    }
}

BOOST_AUTO_TEST_CASE(a_tied_embedding_can_be_frozen_in_every_layout) {
  SmallModel tied = small;
  tied.tied = true;
  const auto graph = frozen([](const std::string& name) { return name.ends_with("wte.weight"); }, tied);
  const Outcome expected = train(graph, plain(layout("1f1b")), batches());
  for (const auto& [name, options] : layouts()) BOOST_TEST_CONTEXT(name) {
      check_same(train(graph, plain(options), batches()), expected);
    }
}

BOOST_AUTO_TEST_CASE(stages_below_what_is_trained_have_no_backward) {
  const auto graph = mostly_frozen();
  const auto cuts = split_at(*graph, {"transformer.h.1", "transformer.h.2", "lm_head"});
  const auto device = shared_device();
  for (std::size_t s = 0; s < cuts.size(); ++s) {
    const ParameterStore store(device, *graph, plain_layout(*graph, cuts[s].parameters), ops::Type::f32, true);
    CompileOptions options;
    options.length = 4;
    options.split_backward = true;
    const CompiledStage stage(device, *graph, cuts[s], store, options);
    BOOST_TEST(stage.backward_program().empty() == (s < 2));
    BOOST_TEST((stage.gradient_bytes_out() == 0) == (s < 3));
    BOOST_TEST((stage.gradient_bytes_in() == 0) == (s < 2 || s == 3));
    if (s == 3) {  // the head is frozen: input gradients alone
      BOOST_TEST(stage.final_in_weight().empty());
      BOOST_TEST(!stage.backward_program().empty());
    }
  }
}

BOOST_AUTO_TEST_CASE(memory_is_that_of_the_values_and_of_what_is_trained) {
  const auto bytes = [](const std::shared_ptr<const Graph>& graph) {
    std::size_t all = 0, formula = 0;
    on_ranks(1, [&](comm::Communicator&) {
      ModelRank model(graph, split_at(*graph, {}), {0}, 0, shared_device(), {});
      const Optimizer optimizer(model, {});
      all = model.memory().bytes();
      const auto padded = [](const ParameterInfo& info) {
        return ops::align_up(static_cast<std::size_t>(info.shape.count()), flat_alignment);
      };
      for (const ParameterInfo& info : graph->parameters()) formula += padded(info) * sizeof(float) * (info.frozen ? 1 : 4);
    });
    BOOST_TEST(all == formula);
    return all;
  };
  const std::size_t whole = bytes(make_model(small)), part = bytes(mostly_frozen());
  BOOST_TEST(part < whole / 2);
}

BOOST_AUTO_TEST_CASE(low_rank_terms_begin_as_nothing_and_train_alike_in_every_layout) {
  const auto base = make_model(small);
  const auto graph = add_lora(*base, {.rank = 3, .alpha = 12, .targets = {"c_attn", "c_proj"}});
  BOOST_TEST(graph->trained_count() < base->parameter_count() / 2);
  const Outcome expected = train(graph, layout("1f1b"), batches());
  const Outcome without = train(base, layout("1f1b"), batches());
  BOOST_TEST(expected.losses.front() == without.losses.front(), boost::test_tools::tolerance(1e-6));
  BOOST_TEST(expected.gradients.size() == 24u);
  for (const auto& [name, options] : layouts()) BOOST_TEST_CONTEXT(name) {
      check_same(train(graph, options, batches()), expected);
    }
  TrainerOptions tokens = layout("1f1b", 1, 1, 2);
  tokens.parallel.sequence_parallel = true;
  check_same(train(graph, tokens, batches()), expected);
}

BOOST_AUTO_TEST_CASE(targets_that_fit_nothing_are_refused_with_the_names_there_are) {
  const auto base = make_model(small);
  BOOST_CHECK_EXCEPTION(add_lora(*base, {.rank = 2, .targets = {"q_proj"}}), ConfigError, [](const ConfigError& error) {
    return std::string(error.what()).find("c_attn, c_fc, c_proj") != std::string::npos;
  });
  BOOST_TEST(lora_modules(*base, {"all-linear"}).size() == 16u);
  BOOST_TEST(lora_modules(*base, {R"(.*\.h\.[01]\..*c_attn)"}).size() == 2u);  // a regular expression fits whole names, as in peft
  BOOST_CHECK_THROW(lora_modules(*base, {"h.[01].attn.c_attn"}), ConfigError);
  BOOST_CHECK_EXCEPTION(lora_modules(*base, {"c_(attn"}), ConfigError,
                        [](const ConfigError& error) { return std::string(error.what()).find("regular expression") != std::string::npos; });
  const LoraOptions own{.rank = 4, .alpha = 8, .targets = {}, .alphas = {{"a.b", 2.0}}};
  BOOST_TEST(own.scale("a.b") == 0.5);
  BOOST_TEST(own.scale("a.c") == 2.0);
  BOOST_TEST(default_lora_targets(*base) == std::vector<std::string>{"c_attn"}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(packed_documents_are_as_documents_alone) {
  for (const bool rms : {false, true}) {
    SmallModel model = small;
    model.rms = rms;
    model.layers = 2;
    const auto graph = make_model(model), packed = pack_documents(*graph);
    const Outcome alone = train(graph, plain(layout("1f1b")), {documents(8, 9, {{4}, {5}, {9}, {2}, {3}, {3}, {1}, {7}}, false)});
    const Batch together = documents(4, 9, {{4, 5}, {9}, {2, 3, 3}, {1, 7}}, true);
    check_same(train(packed, plain(layout("1f1b")), {together}), alone, 1e-5);
    auto ways = layouts();
    if (rms) ways.resize(2);
    for (const auto& [name, options] : ways) {
      if (options.parallel.data > 1 && options.parallel.pipeline > 1) continue;  // four sequences
      BOOST_TEST_CONTEXT(name) { check_same(train(packed, plain(options), {together}), alone, 1e-5); }
    }
  }
}

BOOST_AUTO_TEST_CASE(microbatches_of_their_own_lengths_give_the_same) {
  const std::vector<std::vector<std::int64_t>> lengths{{2}, {3}, {9}, {5}, {1}, {4}, {7}, {8}};
  const Batch padded = documents(8, 9, lengths, false);
  Batch variable = padded;
  for (const auto& one : lengths) variable.lengths.push_back(one.front());
  const Outcome expected = train(make_model(small), plain(layout("1f1b")), {padded, padded});
  for (const auto& [name, options] : layouts()) BOOST_TEST_CONTEXT(name) {
      check_same(train(make_model(small), plain(options), {variable, variable}), expected, 1e-5);
    }
  const auto ranges = split_batch(variable, 0, 8, 4);
  BOOST_TEST(ranges[0].length == 4);  // in steps of two
  BOOST_TEST(ranges[1].length == 9);
  BOOST_TEST(ranges[3].length == 8);
}

BOOST_AUTO_TEST_CASE(narrow_moments_follow_the_wide_ones) {
  TrainerOptions wide = layout("1f1b"), narrow = wide;
  narrow.optimizer.state_type = ops::Type::bf16;
  std::vector<Batch> many;
  for (std::uint64_t i = 0; i < 30; ++i) many.push_back(make_batch(8, 9, small.vocabulary, 1));
  const Outcome expected = train(make_model(small), wide, many), got = train(make_model(small), narrow, many);
  BOOST_TEST(std::abs(got.losses.back() - expected.losses.back()) < 0.02 * expected.losses.front());
  BOOST_TEST(got.losses.back() < 0.8 * got.losses.front());
}

// A gradient's orthogonal factor has singular values near one: a step changes a square matrix by about lr in every direction.
BOOST_AUTO_TEST_CASE(muon_steps_are_nearly_orthogonal) {
  TrainerOptions options = layout("1f1b");
  options.optimizer.kind = OptimizerKind::muon;
  options.optimizer.weight_decay = 0;
  const std::vector<Batch> one{batches().front()};
  const Outcome before = train(make_model(small), options, one, 0.0), after = train(make_model(small), options, one, 0.01);
  const std::string name = "transformer.h.1.attn.c_proj.weight";
  double squares = 0;
  for (std::size_t i = 0; i < after.weights.at(name).size(); ++i)
    squares += std::pow((after.weights.at(name)[i] - before.weights.at(name)[i]) / 0.01, 2);
  BOOST_TEST(std::sqrt(squares / double(small.width)) > 0.6);
  BOOST_TEST(std::sqrt(squares / double(small.width)) < 1.3);
}

// Rounding grows in Muon's iterations. Adafactor makes a step of the rounding that is the gradient of the keys' biases.
BOOST_AUTO_TEST_CASE(optimizers_of_whole_matrices_are_alike_in_every_layout) {
  for (const auto& [kind, tolerance] : {std::pair(OptimizerKind::muon, 2e-3), std::pair(OptimizerKind::adafactor, 2e-4)}) {
    const auto result = [&, kind = kind](TrainerOptions options) {
      options.optimizer.kind = kind;
      Outcome outcome = train(make_model(small), options, batches());
      std::erase_if(outcome.weights, [](const auto& one) { return one.first.ends_with("c_attn.bias"); });
      return outcome;
    };
    const Outcome expected = result(layout("1f1b"));
    for (const auto& [name, options] : layouts()) BOOST_TEST_CONTEXT(name_of(kind) << ", " << name) {
        check_same(result(options), expected, tolerance);
      }
  }
}

BOOST_AUTO_TEST_CASE(warm_up_stay_and_fall) {
  const LrSchedule schedule{.shape = LrShape::wsd, .peak = 1.0, .warmup = 2, .steps = 10, .decay = 4, .minimum = 0.2};
  const double expected[] = {0.5, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2};
  for (int step = 1; step <= 10; ++step) BOOST_TEST(schedule.at(step) == expected[step - 1], boost::test_tools::tolerance(1e-12));
}

// torch.optim.Adafactor's first step, written out in double from the gradients of the same step: beta2 is 0 then, and the rate that of
// --lr.
BOOST_AUTO_TEST_CASE(adafactor_s_first_step) {
  constexpr double lr = 1e-2, decay = 0.01, epsilon = 1.1920928955078125e-07;
  const auto graph = make_model(small);
  TrainerOptions options = layout("1f1b");
  options.optimizer.kind = OptimizerKind::adafactor;
  options.optimizer.weight_decay = decay;
  const std::vector<Batch> one{batches().front()};
  const Outcome before = train(graph, options, one, 0.0), after = train(graph, options, one, lr);
  for (const ParameterInfo& info : graph->parameters()) {
    const std::vector<float>&p = before.weights.at(info.name), &g = before.gradients.at(info.name);
    const std::size_t columns = info.shape.rank() == 2 ? static_cast<std::size_t>(info.shape[1]) : g.size(), rows = g.size() / columns;
    std::vector<double> row(rows), column(columns), update(g.size());
    double mean = 0, squares = 0, size = 0;
    for (std::size_t i = 0; i < g.size(); ++i) {
      const double square = double(g[i]) * g[i];
      row[i / columns] += square / double(columns), column[i % columns] += square / double(rows), mean += square / double(g.size());
      size += double(p[i]) * p[i] / double(p.size());
    }
    for (std::size_t i = 0; i < g.size(); ++i) {
      const double estimate =
          info.shape.rank() == 2 ? row[i / columns] * column[i % columns] / std::max(mean, epsilon) : double(g[i]) * g[i];
      update[i] = g[i] / std::sqrt(std::max(estimate, epsilon * epsilon));
      squares += update[i] * update[i] / double(g.size());
    }
    const double step = std::max(1e-3, std::sqrt(size)) * lr / std::max(1.0, std::sqrt(squares));
    Weights expected;
    for (std::size_t i = 0; i < g.size(); ++i)
      expected[info.name].push_back(static_cast<float>(p[i] * (1 - lr * decay) - step * update[i]));
    BOOST_TEST(difference({{info.name, after.weights.at(info.name)}}, expected) < 1e-4, info.name);
  }
}

BOOST_AUTO_TEST_SUITE_END()
