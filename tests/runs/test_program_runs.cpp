// What surrounds the steps of a program's training run: checkpoints that are kept, a dry run, flags that are for other models. All of it is
// the loop that models of families have too (runs/training/loop.hpp). Expected values follow from the settings.
#include <boost/test/unit_test.hpp>

#include <ppengine/base/error.hpp>
#include <ppengine/models/files/safetensors.hpp>
#include <ppengine/runs/checkpoint.hpp>
#include <ppengine/runs/evaluation.hpp>
#include <ppengine/runs/training.hpp>

#include "../models/helpers.hpp"
#include "support.hpp"

using namespace ppengine;
using namespace ppengine::runs;
using namespace ppengine::test;

namespace {

TrainingOptions run_of(const std::string& save) {
  const auto folder = data_folder() / "programs" / "mlp";
  TrainingOptions options;
  options.model = (folder / "net.pt2").string();
  options.data.data = (folder / "data.safetensors").string();
  options.data.batch_size = 8;
  options.program.loss = "mse";
  options.trainer.parallel.microbatches = 2;
  options.lr.peak = 1e-3;
  options.steps = 6;
  options.save = save;
  return options;
}

struct Heard final : TrainingListener {
  std::vector<double> losses;
  std::vector<std::string> saved_to;
  std::vector<std::int64_t> evaluated_at;
  std::optional<DryRun> plan;
  void stepped(const engine::StepResult& result, std::size_t) override { losses.push_back(result.loss); }
  void saved(const std::string& folder, std::int64_t) override { saved_to.push_back(folder); }
  void evaluated(std::int64_t step, double) override { evaluated_at.push_back(step); }
  void planned(const DryRun& found) override { plan = found; }
};

Heard train(const TrainingOptions& options) {
  Heard heard;
  on_ranks(options.trainer.parallel, [&](comm::Communicator& world) { run_training(options, world, heard); });
  return heard;
}

std::string refusal(const TrainingOptions& options) {
  try {
    train(options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::int64_t step_in(const std::string& folder) {
  const auto found = find_checkpoint(folder);
  return found ? found->step : -1;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(program_runs)

BOOST_AUTO_TEST_CASE(earlier_checkpoints_and_the_best_one_are_kept) {
  const TemporaryFolder folder;
  const std::string save = (folder.path / "run").string();
  TrainingOptions options = run_of(save);
  options.save_every = 2;
  options.keep = 2;
  options.eval_data = options.data.data;
  options.eval_every = 3;
  const Heard heard = train(options);
  BOOST_TEST(heard.losses.size() == 6u);
  BOOST_TEST(step_in(save) == 6);
  BOOST_TEST(step_in(save + ".step-4") == 4);
  BOOST_TEST(step_in(save + ".step-2") == -1);
  BOOST_TEST(step_in(save + ".best") == 6);  // six small steps: the loss falls
  BOOST_TEST(heard.evaluated_at == (std::vector<std::int64_t>{3, 6}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_resumed_run_goes_on_in_its_data) {
  const TemporaryFolder folder;
  const std::string save = (folder.path / "run").string();
  TrainingOptions options = run_of(save);
  options.data.batch_size = 4;
  const std::vector<double> whole = train(options).losses;
  options.steps = 4;
  train(options);
  options.steps = 6;
  options.resume = save;
  const std::vector<double> rest = train(options).losses;
  BOOST_REQUIRE_EQUAL(rest.size(), 2u);
  BOOST_TEST(rest[0] == whole[4]);  // bit for bit
  BOOST_TEST(rest[1] == whole[5]);
}

BOOST_AUTO_TEST_CASE(a_dry_run_estimates_and_saves_nothing) {
  const TemporaryFolder folder;
  const std::string save = (folder.path / "run").string();
  TrainingOptions options = run_of(save);
  options.dry_run = true;
  const Heard heard = train(options);
  BOOST_REQUIRE(heard.plan.has_value());
  BOOST_TEST(heard.plan->steps == 6);
  BOOST_TEST(heard.plan->seconds > 0.0);
  BOOST_TEST(heard.plan->memory_bytes.size() == 1u);
  BOOST_TEST(heard.losses.empty());
  BOOST_TEST(!std::filesystem::exists(save));
}

BOOST_AUTO_TEST_CASE(weights_that_are_not_finite_are_not_saved) {
  const TemporaryFolder folder;
  const std::string save = (folder.path / "run").string();
  TrainingOptions options = run_of(save);
  options.steps = 1;
  train(options);
  const auto weight = [&] { return values(models::WeightFiles::open(save).tensors().front()); };
  const auto before = weight();
  options.lr.peak = 1e39;  // the loss before the only update is finite
  BOOST_CHECK_THROW(train(options), Error);
  BOOST_TEST(weight() == before, boost::test_tools::per_element());
  BOOST_TEST(step_in(save) == 1);
}

BOOST_AUTO_TEST_CASE(flags_of_other_models_are_refused_by_name) {
  const auto with = [](auto&& change) {
    TrainingOptions options = run_of("");
    change(options);
    return refusal(options);
  };
  const auto begins = [](const std::string& text, const char* flag) { return text.starts_with(flag); };
  BOOST_TEST(begins(with([](TrainingOptions& o) { o.lora.rank = 4; }), "--lora-rank"));
  BOOST_TEST(begins(with([](TrainingOptions& o) { o.adapter = "x"; }), "--adapter"));
  BOOST_TEST(begins(with([](TrainingOptions& o) { o.weights.format = ops::WeightFormat::int8; }), "--weights"));
  BOOST_TEST(begins(with([](TrainingOptions& o) { o.save_async = true; }), "--save-async"));
  BOOST_TEST(begins(with([](TrainingOptions& o) { o.data.pack = true; }), "--pack"));
  BOOST_TEST(begins(with([](TrainingOptions& o) { o.data.variable_lengths = true; }), "--lengths"));
  BOOST_TEST(begins(with([](TrainingOptions& o) { o.data.sequence_length = 8; }), "--seq-len"));
  BOOST_TEST(begins(with([](TrainingOptions& o) { o.check_every = 2; }), "--check-every"));
}

BOOST_AUTO_TEST_CASE(an_evaluation_refuses_them_too) {
  EvaluationOptions options;
  options.model = run_of("").model;
  options.data.data = run_of("").data.data;
  options.program.loss = "mse";
  const auto evaluates = [&](auto&& change) {
    EvaluationOptions one = options;
    change(one);
    on_ranks(one.parallel, [&](comm::Communicator& world) { run_evaluation(one, world); });
  };
  BOOST_CHECK_NO_THROW(evaluates([](EvaluationOptions&) {}));
  BOOST_CHECK_THROW(evaluates([](EvaluationOptions& o) { o.logits = "x.safetensors"; }), ConfigError);
  BOOST_CHECK_THROW(evaluates([](EvaluationOptions& o) { o.adapter = "x"; }), ConfigError);
  BOOST_CHECK_THROW(evaluates([](EvaluationOptions& o) { o.weights.format = ops::WeightFormat::int8; }), ConfigError);
}

BOOST_AUTO_TEST_CASE(models_of_families_refuse_flags_of_programs) {
  const auto with = [](auto&& change) {
    TrainingOptions options;
    options.model = "tiny";
    options.steps = 1;
    change(options.program);
    return refusal(options);
  };
  BOOST_TEST(with([](ProgramChoice& choice) { choice.loss = "mse"; }).starts_with("--loss"));
  BOOST_TEST(with([](ProgramChoice& choice) { choice.class_dim = 1; }).starts_with("--class-dim"));
  BOOST_TEST(with([](ProgramChoice& choice) { choice.sync_batchnorm = true; }).starts_with("--sync-batchnorm"));
}

BOOST_AUTO_TEST_SUITE_END()
