// Graphs of a user's own: saved, loaded and resumed on other layouts; and an op with kernels of one's own source, its gradients against
// finite differences of the loss and against the built-in SiLU.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include <ppengine/comm/threads.hpp>
#include <ppengine/engine/pipeline.hpp>
#include <ppengine/models/files/safetensors.hpp>
#include <ppengine/runs/checkpoint.hpp>

#include "../../examples/custom_op/swish.hpp"
#include "../ranks.hpp"

using namespace ppengine;

namespace {

class Folder {
 public:
  Folder() : path_((std::filesystem::temp_directory_path() / "ppengine-graph-XXXXXX").string()) { BOOST_REQUIRE(mkdtemp(path_.data())); }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return std::filesystem::path(path_) / name; }

 private:
  std::string path_;
};

constexpr std::int64_t sequences = 4, length = 6, width = 8;

enum class Middle { silu, swish };
std::shared_ptr<const engine::Graph> make_graph(Middle middle = Middle::silu, std::int64_t hidden = width) {
  auto graph = std::make_shared<engine::Graph>();
  engine::Value x = graph->linear(graph->input("points", 2), "first", {.out = hidden, .init_scale = 0.8f});
  x = middle == Middle::swish ? example::swish(*graph, x, "swish", hidden) : graph->activation(x, ops::ActivationKind::silu);
  x = graph->linear(x, "second", {.out = hidden, .init_scale = 0.8f});
  graph->loss(graph->cross_entropy(graph->linear(x, "head", {.out = 3, .init_scale = 0.8f}), graph->tokens("targets")));
  return graph;
}

engine::Batch make_batch(std::int64_t step) {
  std::mt19937 random(static_cast<unsigned>(step) + 7);
  std::uniform_real_distribution<float> coordinate(-2.0f, 2.0f);
  engine::Batch batch{sequences, length, {{"points", {}, {}}, {"targets", {}, {}}}};
  for (std::int64_t i = 0; i < sequences * length; ++i) {
    const float x = coordinate(random), y = coordinate(random);
    batch.inputs[0].values.insert(batch.inputs[0].values.end(), {x, y});
    batch.inputs[1].tokens.push_back(x > 0 ? 2 : y > 0 ? 1 : 0);
  }
  return batch;
}

struct Layout {
  int pipeline = 1, data = 1;
  std::string schedule = "1f1b";
  bool shard = false;
};

// Every rank calls body; what rank 0 gets from it comes back.
std::vector<double> on_ranks(const Layout& layout, const std::shared_ptr<const engine::Graph>& graph,
                             const std::function<std::vector<double>(engine::Trainer&)>& body, engine::OptimizerOptions optimizer = {}) {
  static const auto device = ops::Device::open("cpu");
  engine::TrainerOptions options;
  options.parallel.pipeline = layout.pipeline;
  options.parallel.data = layout.data;
  options.parallel.schedule = layout.schedule;
  options.parallel.shard = layout.shard;
  options.parallel.microbatches = 2;
  options.parallel.balance = engine::Balance::estimated;
  options.parallel.device = device;
  options.optimizer = optimizer;
  std::vector<double> result;
  test::on_ranks(layout.pipeline * layout.data, device, [&](comm::Communicator& world) {
    engine::Trainer trainer(graph, options, world, sequences, length);
    const auto mine = body(trainer);
    if (world.rank() == 0) result = mine;
  });
  return result;
}

std::vector<double> steps(engine::Trainer& trainer, std::int64_t from, std::int64_t to) {
  std::vector<double> losses;
  for (std::int64_t step = from; step < to; ++step) losses.push_back(trainer.step(make_batch(step), 1e-2).loss);
  return losses;
}

std::vector<float> read(const std::filesystem::path& folder, const std::string& name) {
  const auto files = models::WeightFiles::open(folder);
  const models::StoredTensor& stored = files.at(name);
  std::vector<float> values(stored.elements);
  models::read_f32(stored, 0, stored.elements, values.data());
  return values;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(graphs_of_ones_own)

BOOST_AUTO_TEST_CASE(a_graph_is_resumed_on_other_ranks_and_schedules_as_if_it_had_never_stopped) {
  const Folder folder;
  const auto graph = make_graph();
  const auto whole = on_ranks({}, graph, [](engine::Trainer& trainer) { return steps(trainer, 0, 8); });
  on_ranks({.pipeline = 2}, graph, [&](engine::Trainer& trainer) {
    const auto losses = steps(trainer, 0, 5);
    runs::save_checkpoint(folder / "run", trainer);
    return losses;
  });
  const auto found = runs::find_checkpoint(folder / "run");
  BOOST_REQUIRE(found.has_value());
  BOOST_TEST(found->step == 5);
  for (const Layout& layout : {Layout{}, Layout{.pipeline = 2, .schedule = "interleavedzerobubble"}, Layout{.data = 2, .shard = true}}) {
    const auto rest = on_ranks(layout, graph, [&](engine::Trainer& trainer) {
      const runs::RunState state = runs::load_checkpoint(folder / "run", trainer);
      return steps(trainer, state.step, 8);
    });
    BOOST_REQUIRE(rest.size() == 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      BOOST_TEST(std::isfinite(rest[i]));
      BOOST_TEST(rest[i] == whole[5 + i], boost::test_tools::tolerance(1e-5));
    }
  }
  // Saved again over itself; weights alone begin a run anew.
  const auto again = on_ranks({}, graph, [&](engine::Trainer& trainer) {
    runs::load_checkpoint(folder / "run", trainer);
    auto losses = steps(trainer, 5, 6);
    runs::save_checkpoint(folder / "run", trainer);
    runs::load_weights(folder / "run", trainer);
    losses.push_back(trainer.step(make_batch(6), 0).loss);
    return losses;
  });
  BOOST_TEST(again[0] == whole[5], boost::test_tools::tolerance(1e-5));
  BOOST_TEST(again[1] == whole[6], boost::test_tools::tolerance(1e-5));
  BOOST_TEST(runs::find_checkpoint(folder / "run")->step == 6);
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_the_graph_is_named_and_foreign_folders_are_kept) {
  const Folder folder;
  on_ranks({}, make_graph(), [&](engine::Trainer& trainer) {
    runs::save_checkpoint(folder / "run", trainer);
    return std::vector<double>();
  });
  const auto refusal = [&](const std::shared_ptr<const engine::Graph>& graph, const std::filesystem::path& from) -> std::string {
    try {
      on_ranks({}, graph, [&](engine::Trainer& trainer) {
        runs::load_checkpoint(from, trainer);
        return std::vector<double>();
      });
    } catch (const FileError& e) {
      return e.what();
    }
    return "nothing was refused";
  };
  BOOST_TEST(refusal(make_graph(Middle::silu, 10), folder / "run").find("first.weight has 16 elements, the model needs 20") !=
             std::string::npos);
  BOOST_TEST(refusal(make_graph(Middle::swish), folder / "run").find("swish.beta") != std::string::npos);
  BOOST_TEST(refusal(make_graph(), folder / "nowhere").find("trainer_state.json is missing") != std::string::npos);
  std::filesystem::create_directories(folder / "own");
  std::ofstream(folder / "own/notes.txt") << "mine";
  on_ranks({}, make_graph(), [&](engine::Trainer& trainer) {
    runs::save_checkpoint(folder / "own", trainer);
    return std::vector<double>();
  });
  BOOST_TEST(std::filesystem::exists(folder / "own/notes.txt"));  // not ours, and stays
  BOOST_TEST(std::filesystem::exists(folder / "own/trainer_state.json"));
}

BOOST_AUTO_TEST_CASE(an_op_with_kernels_of_ones_own_source_has_the_right_gradients) {
  const Folder folder;
  const auto graph = make_graph(Middle::swish);
  // With every beta 1 it is SiLU, forward and backward: what is before it gets the same update, bit for bit or nearly.
  constexpr double lr = 0.1;
  const auto one_step = [&](Middle middle, const Layout& layout, const std::string& name) {
    return on_ranks(layout, make_graph(middle),
                    [&](engine::Trainer& trainer) {
                      const double loss = trainer.step(make_batch(0), lr).loss;
                      runs::save_checkpoint(folder / name, trainer);
                      return std::vector<double>{loss};
                    },
                    {.kind = engine::OptimizerKind::sgd, .weight_decay = 0});
  };
  const double silu = one_step(Middle::silu, {}, "silu")[0], own = one_step(Middle::swish, {}, "swish")[0];
  BOOST_TEST(own == silu, boost::test_tools::tolerance(1e-6));
  const auto expected = read(folder / "silu", "first.weight"), found = read(folder / "swish", "first.weight");
  for (std::size_t i = 0; i < expected.size(); ++i) BOOST_TEST(found[i] == expected[i], boost::test_tools::tolerance(1e-4f));
  // The gradient of each beta, (1 - beta) / lr after one step of SGD, against a difference of losses.
  const auto beta = read(folder / "swish", "swish.beta");
  const auto loss_with = [&](std::size_t channel, float value) {
    return on_ranks({}, graph, [&](engine::Trainer& trainer) {
      const auto& parameters = trainer.model().graph().parameters();
      for (const auto& range : trainer.model().parameters(engine::StageId(0)).ranges())
        if (parameters[range.id].name == "swish.beta") {
          std::vector<float> betas(width, 1.0f);
          betas[channel] = value;
          trainer.model().parameters(engine::StageId(0)).load(trainer.pipeline().stream(), range, betas);
          trainer.model().parameters(engine::StageId(0)).refresh(trainer.pipeline().stream());
        }
      return std::vector<double>{trainer.step(make_batch(0), 0).loss};
    })[0];
  };
  for (const std::size_t channel : {0u, 3u, 7u}) {
    const double difference = (loss_with(channel, 1.05f) - loss_with(channel, 0.95f)) / 0.1;
    const double gradient = (1.0 - double(beta[channel])) / lr;
    BOOST_TEST(std::abs(gradient - difference) < 2e-3 * std::max(0.05, std::abs(difference)),
               "channel " << channel << ": " << gradient << " and " << difference);
  }
  // The weight half apart, on another rank.
  BOOST_TEST(one_step(Middle::swish, {.pipeline = 2, .schedule = "interleavedzerobubble"}, "split")[0] == own,
             boost::test_tools::tolerance(1e-6));
  const auto apart = read(folder / "split", "swish.beta");
  for (std::size_t i = 0; i < beta.size(); ++i) BOOST_TEST(apart[i] == beta[i], boost::test_tools::tolerance(1e-5f));
}

BOOST_AUTO_TEST_CASE(a_source_that_does_not_compile_is_told_with_the_compilers_words) {
  const auto device = ops::Device::open("cpu");
  try {
    const ops::SourceKernels kernels(*device, "broken", "#include \"common.hpp\"\nKERNEL_1D broken(float* x) { x[0] = undeclared; }\n");
    BOOST_TEST(false, "it compiled");
  } catch (const DeviceError& e) {
    BOOST_TEST(std::string(e.what()).find("broken: its kernels do not compile") != std::string::npos, e.what());
    BOOST_TEST(std::string(e.what()).find("undeclared") != std::string::npos, e.what());
  }
}

BOOST_AUTO_TEST_CASE(an_add_of_two_widths_names_what_it_joins) {
  engine::Graph graph;
  const auto scope = graph.module("block");
  const engine::Value x = graph.input("x", 4), a = graph.linear(x, "a", {.out = 6}), b = graph.linear(x, "b", {.out = 8});
  try {
    graph.add(a, b);
    BOOST_TEST(false, "it was accepted");
  } catch (const ConfigError& e) {
    BOOST_TEST(e.what() == std::string("block: add to block.a: expected [batch,length,6], got [batch,length,8] from block.b"), e.what());
  }
}

BOOST_AUTO_TEST_SUITE_END()
