// train, eval and inspect as a user calls them: exit codes, JSON fields, checkpoints, pictures. From docs/command_line.md.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "run.hpp"

using nlohmann::json;
using ppengine::test::Outcome;
using ppengine::test::run;

namespace {

// A folder that is gone at the end of the test.
class Folder {
 public:
  Folder() : path_((std::filesystem::temp_directory_path() / "ppengine-train-XXXXXX").string()) { BOOST_REQUIRE(mkdtemp(path_.data())); }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::vector<json> lines(const std::string& text) {
  std::vector<json> result;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) result.push_back(json::parse(line));
  return result;
}

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// `ppengine train` of the smallest preset, with flags of the test's own behind.
Outcome train(std::vector<std::string> more, const std::string& interrupt_at = {}) {
  std::vector<std::string> arguments{"train",     "--model", "demo",         "--data", "task:addition",
                                     "--seq-len", "10",      "--batch-size", "8",      "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run(arguments, {}, interrupt_at);
}

void check_refused(const Outcome& outcome, const std::string& part) {
  BOOST_TEST(outcome.code == 2);
  BOOST_TEST(outcome.out == "");
  BOOST_TEST(outcome.err.find(part) != std::string::npos, outcome.err << " should contain " << part);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(training)

BOOST_AUTO_TEST_CASE(a_step_is_a_line_of_json_with_all_its_figures) {
  const Outcome outcome = train({"--steps", "3", "--lr", "1e-3"});
  BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  const auto steps = lines(outcome.out);
  BOOST_REQUIRE(steps.size() == 3);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (const char* key : {"loss", "grad_norm", "lr", "tokens", "seconds"}) BOOST_TEST(steps[i].at(key).is_number());
    BOOST_TEST(steps[i].at("step").get<std::size_t>() == i + 1);
    BOOST_TEST(steps[i].at("tokens").get<int>() == 80);
  }
  BOOST_TEST(std::abs(steps[0]["loss"].get<double>() - std::log(256.0)) < 0.3);  // of 256 tokens, none is likelier yet
}

// The names go back into --split and give the same stages: here and in inspect, whose list of parameters comes from the cuts themselves.
BOOST_AUTO_TEST_CASE(a_run_tells_where_its_stages_begin) {
  const std::vector<std::string> split{"transformer.h.0.mlp", "transformer.h.1", "transformer.h.1.attn:end"};
  const std::string given = split[0] + "," + split[1] + "," + split[2];
  const Outcome trained = train({"--pp", "2", "--schedule", "interleaved1f1b", "--microbatches", "2", "--steps", "2", "--split", given});
  BOOST_REQUIRE_MESSAGE(trained.code == 0, trained.err);
  const auto steps = lines(trained.out);
  const json& stages = steps.at(0).at("stages");
  BOOST_TEST(!steps.at(1).contains("stages"));  // they do not change
  BOOST_REQUIRE(stages.size() == 4);
  BOOST_TEST(stages[0].at("first_module") == "transformer.wte");
  for (std::size_t s = 0; s < stages.size(); ++s) BOOST_TEST(stages[s].at("rank") == s % 2);
  for (std::size_t s = 1; s < 3; ++s) BOOST_TEST(stages[s].at("first_module") == split[s - 1]);
  const auto cut_there = [&](const std::string& where) { return run({"inspect", "demo", "--split", where, "--json"}).out; };
  const std::string told = stages[3].at("first_module");
  BOOST_TEST(cut_there(split[0] + "," + split[1] + "," + told) == cut_there(given));

  const Outcome measured = run({"bench", "train", "--model", "demo", "--pp", "2", "--seq-len", "10", "--balance", "measured", "--warmup",
                                "0", "--repeat", "1", "--json"});
  BOOST_REQUIRE_MESSAGE(measured.code == 0, measured.err);
  const json chosen = json::parse(measured.out).at("stages");
  BOOST_REQUIRE(chosen.size() == 2);
  BOOST_TEST(chosen[1].at("rank") == 1);
  const Outcome again = train({"--pp", "2", "--steps", "1", "--split", chosen[1].at("first_module")});
  BOOST_REQUIRE_MESSAGE(again.code == 0, again.err);
  BOOST_TEST(lines(again.out).at(0).at("stages") == chosen);
}

BOOST_AUTO_TEST_CASE(wrong_flags_end_with_one_message_and_code_2) {
  check_refused(train({"--steps", "0"}), "--steps");
  check_refused(train({"--schedule", "nonsense", "--pp", "2"}), "nonsense");
  for (const char* flag : {"--lr", "--weight-decay", "--eps", "--momentum", "--grad-clip", "--timeout"})
    check_refused(train({flag, "nan"}), flag);
  check_refused(train({"--betas", "0.9,nan"}), "--betas");
  check_refused(train({"--pp", "3000"}), "3000 ranks are too many");
  check_refused(train({"--pp", "4096", "--dp", "4096", "--tp", "4096"}), "68719476736 ranks");
  check_refused(train({"--pp", "2", "--microbatches", "16"}), "16");
  check_refused(train({"--stages", "100", "--pp", "2", "--schedule", "interleaved1f1b"}), "stages");
  check_refused(train({"--split", "transformer.h.9", "--pp", "2"}), "transformer.h.9");
  check_refused(train({"--tp", "3"}), "--tp 3 does not divide");
  check_refused(train({"--dp", "3"}), "--batch-size 8 cannot be divided over --dp 3");
  check_refused(train({"--trace", "/nowhere/at/all/trace.json"}), "/nowhere/at/all");
  check_refused(train({"--save", "/proc/nowhere"}), "/proc/nowhere");
  const Folder own;
  std::ofstream(own / "notes.txt") << "not a model";
  const Outcome beside = train({"--save", own / "", "--steps", "1"});  // a file that is not ours stays where it is
  BOOST_TEST(beside.code == 0, beside.err);
  BOOST_TEST(std::filesystem::exists(own / "notes.txt"));
  BOOST_TEST(std::filesystem::exists(own / "model.safetensors"));
  check_refused(run({"train", "--data", "synthetic"}), "--model");
  check_refused(run({"train", "--model", "/nowhere", "--data", "synthetic"}), "/nowhere");
  check_refused(run({"eval", "--model", "demo", "--data", "task:addition", "--ask", "two and two"}), "two and two");
}

BOOST_AUTO_TEST_CASE(a_run_goes_on_from_its_checkpoint_on_another_number_of_ranks) {
  const Folder folder;
  const Outcome whole = train({"--steps", "6"});
  BOOST_REQUIRE_MESSAGE(whole.code == 0, whole.err);
  const Outcome first = train({"--steps", "3", "--save", folder / "model"});
  BOOST_REQUIRE_MESSAGE(first.code == 0, first.err);
  const Outcome second =
      train({"--steps", "6", "--resume", folder / "model", "--pp", "2", "--stages", "4", "--schedule", "interleavedzerobubble"});
  BOOST_REQUIRE_MESSAGE(second.code == 0, second.err);
  const auto expected = lines(whole.out), found = lines(second.out);
  BOOST_REQUIRE(found.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    BOOST_TEST(found[i]["step"].get<int>() == expected[i + 3]["step"].get<int>());
    BOOST_TEST(found[i]["loss"].get<double>() == expected[i + 3]["loss"].get<double>(), boost::test_tools::tolerance(2e-4));
  }
}

BOOST_AUTO_TEST_CASE(an_interrupted_run_saves_and_ends_with_130) {
  const Folder folder;
  const Outcome outcome = train({"--steps", "1000000", "--save", folder / "model"}, "\"step\":3,");
  BOOST_TEST(outcome.code == 130, outcome.err);
  const auto steps = lines(outcome.out);
  BOOST_REQUIRE(!steps.empty());
  const auto last = steps.back()["step"].get<std::int64_t>();
  const Outcome more = train({"--steps", std::to_string(last + 1), "--resume", folder / "model"});
  BOOST_REQUIRE_MESSAGE(more.code == 0, more.err);
  BOOST_REQUIRE(lines(more.out).size() == 1);
  BOOST_TEST(lines(more.out)[0]["step"].get<std::int64_t>() == last + 1);
}

BOOST_AUTO_TEST_CASE(eval_counts_the_unseen_sums_that_are_answered_right) {
  const Outcome outcome =
      run({"eval", "--model", "demo", "--data", "task:addition", "--seq-len", "10", "--pp", "2", "--ask", "23+58", "--json"});
  BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  const json result = json::parse(outcome.out);
  BOOST_TEST(result.at("sums").get<int>() > 900);
  BOOST_TEST(result.at("accuracy").get<double>() < 0.05);  // random weights
  BOOST_TEST(result.at("answer").get<std::string>().starts_with("23+58="));
  for (const char* key : {"loss", "perplexity", "tokens"}) BOOST_TEST(result.at(key).is_number());
}

BOOST_AUTO_TEST_CASE(traces_have_a_process_per_rank_lanes_and_an_arrow_per_message) {
  const Folder folder;
  const Outcome outcome =
      train({"--steps", "2", "--pp", "2", "--microbatches", "4", "--trace", folder / "trace.json", "--timeline", folder / "page.html"});
  BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  std::set<int> ranks;
  std::set<std::string> lanes;
  std::map<int, std::vector<double>> arrows;
  std::map<std::string, int> slices;
  const json trace = json::parse(read(folder / "trace.json"));
  for (const json& event : trace.at("traceEvents")) {
    const std::string phase = event.at("ph");
    ranks.insert(event.at("pid").get<int>());
    if (event.at("name") == "thread_name") lanes.insert(event["args"]["name"].get<std::string>());
    if (phase == "X") ++slices[event.at("cat").get<std::string>()];
    if (phase == "s" || phase == "f") arrows[event.at("id").get<int>()].push_back(event.at("ts").get<double>());
  }
  BOOST_TEST((ranks == std::set<int>{0, 1}));
  BOOST_TEST((lanes == std::set<std::string>{"compute", "receive", "reduction", "send"}));
  BOOST_TEST(slices["F"] == 2 * 2 * 4);  // steps, stages, microbatches
  BOOST_TEST(slices["SEND_F"] == 2 * 4);
  BOOST_TEST(arrows.size() == 2u * 2 * 4);  // steps, both ways, microbatches
  for (const auto& [id, ends] : arrows) BOOST_TEST((ends.size() == 2 && ends[0] <= ends[1]));
  const std::string page = read(folder / "page.html");
  for (const char* part : {"<!doctype html>", "as measured", "simulated"}) BOOST_TEST(page.find(part) != std::string::npos);
  BOOST_TEST(page.find("http://www.w3.org/2000/svg") != std::string::npos);
  BOOST_TEST(page.find("<script src") == std::string::npos);  // nothing from elsewhere
}

// Buckets of rank r of a data-parallel run: on the reduction's lane, one after the other, the same on every rank and in every step.
BOOST_AUTO_TEST_CASE(a_dashboard_shows_the_run_while_it_goes_on_and_stays_as_its_report) {
  const Folder folder;
  const std::string page = folder / "run.html";
  std::string live;
  const Outcome outcome = run({"train",
                               "--model",
                               "demo",
                               "--data",
                               "task:addition",
                               "--seq-len",
                               "10",
                               "--batch-size",
                               "8",
                               "--json",
                               "--steps",
                               "4",
                               "--pp",
                               "2",
                               "--microbatches",
                               "4",
                               "--eval-every",
                               "2",
                               "--eval-data",
                               "task:addition",
                               "--dashboard",
                               page},
                              {}, "\"step\":2", [&](int) { live = read(page); });
  BOOST_TEST(outcome.code == 0, outcome.err);
  const auto holds = [](const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; };
  const std::string over = read(page);
  BOOST_TEST(holds(live, "http-equiv=\"refresh\""));
  BOOST_TEST(!holds(over, "http-equiv=\"refresh\""));
  BOOST_TEST(holds(over, "step 4 of 4"));
  for (const char* part : {"<h2>Loss<b>", "<h2>Norm of the gradients<b>", "<h2>Tokens per second<b>", "<h2>The last step<b>",
                           "<h2>Peak memory<b>", "The same step simulated", "class=\"second\"", "</html>"})
    BOOST_TEST(holds(over, part), part);
  const auto first = over.find("class=\"first\" points=\""), end = over.find("\"/>", first);
  BOOST_TEST(std::count(over.begin() + static_cast<long>(first), over.begin() + static_cast<long>(end), ',') == 4);  // losses of four steps
}

BOOST_AUTO_TEST_CASE(traces_show_every_bucket_of_a_reduction) {
  const Folder folder;
  const Outcome outcome = train({"--steps", "2", "--dp", "2", "--bucket-mb", "0.1", "--trace", folder / "trace.json"});
  BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  std::map<int, std::vector<std::string>> names;
  std::map<int, double> end;
  const json trace = json::parse(read(folder / "trace.json"));
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("cat") != "reduction") continue;
    const int rank = event.at("pid");
    BOOST_TEST(event.at("tid") == 3);
    BOOST_TEST(event.at("args").at("bytes").get<int>() > 0);
    BOOST_TEST(event.at("ts").get<double>() >= end[rank] - 0.01);  // microseconds, with three digits behind
    end[rank] = event["ts"].get<double>() + event.at("dur").get<double>();
    names[rank].push_back(event.at("name"));
  }
  BOOST_REQUIRE(names[0].size() >= 8u);
  BOOST_TEST((names[0] == names[1]));
  const std::size_t half = names[0].size() / 2;
  for (std::size_t i = 0; i < half; ++i) {
    BOOST_TEST(names[0][i] == "stage 0 bucket " + std::to_string(i));
    BOOST_TEST(names[0][half + i] == names[0][i]);
  }
}

// All parameters together are what the buckets hold, but for what alignment adds.
BOOST_AUTO_TEST_CASE(measured_training_tells_buckets_and_times_of_the_reduction) {
  for (const bool shard : {false, true}) {
    std::vector<std::string> words{"bench", "train", "--model", "demo", "--dp", "2", "--batch-size", "8", "--seq-len", "10"};
    words.insert(words.end(), {"--warmup", "1", "--repeat", "2", "--bucket-mb", "0.1", "--json"});
    if (shard) words.emplace_back("--shard");
    const Outcome outcome = run(words);
    BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    const json figures = json::parse(outcome.out);
    const double backward = figures.at("backward_milliseconds"), communication = figures.at("communication_milliseconds"),
                 overlap = figures.at("overlap_milliseconds"), share = figures.at("overlap_share");
    BOOST_TEST(backward > 0);
    BOOST_TEST(backward < figures.at("step_milliseconds_range")[1].get<double>());
    BOOST_TEST(communication > 0);
    BOOST_TEST(overlap <= communication);
    BOOST_TEST(share == overlap / communication, boost::test_tools::tolerance(1e-9));
    const json& buckets = figures.at("buckets");
    BOOST_REQUIRE(buckets.size() >= 4u);
    double bytes = 0;
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      BOOST_TEST(buckets[i].at("bucket") == i);
      BOOST_TEST(buckets[i].at("stage") == 0);
      BOOST_TEST(buckets[i].at("sent_bytes").get<double>() <= buckets[i].at("bytes").get<double>());
      BOOST_TEST(buckets[i].at("milliseconds").get<double>() > 0);
      bytes += buckets[i]["bytes"].get<double>();
      if (i + 1 < buckets.size()) BOOST_TEST(buckets[i]["bytes"].get<double>() >= 0.1 * (1 << 20));  // closed when the cap is reached
    }
    const Outcome listed = run({"inspect", "demo", "--json"});
    BOOST_REQUIRE_MESSAGE(listed.code == 0, listed.err);
    const double parameters = json::parse(listed.out).at("parameter_count");
    BOOST_TEST(bytes >= 4 * parameters);
    BOOST_TEST(bytes < 4 * parameters + 20000);
  }
}

BOOST_AUTO_TEST_CASE(inspect_lists_every_parameter_with_its_stage_and_the_memory_of_ranks) {
  const Outcome outcome = run({"inspect", "demo", "--stages", "4", "--pp", "2", "--json"});
  BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  const json model = json::parse(outcome.out);
  std::int64_t total = 0, staged = 0;
  for (const json& one : model.at("parameters")) total += one.at("elements").get<std::int64_t>();
  for (const json& stage : model.at("stages")) staged += stage.at("parameters").get<std::int64_t>();
  BOOST_TEST(total == 864000);  // by hand: 2 x 256 x 128 + 40 x 128 + 4 x (12 x 128^2 + 13 x 128) + 2 x 128
  BOOST_TEST(staged == total);
  BOOST_TEST(model.at("stages").size() == 4u);
  BOOST_REQUIRE(model.at("ranks").size() == 2u);
  for (const json& rank : model["ranks"]) {
    const auto parameters = rank.at("parameters").get<std::int64_t>();
    BOOST_TEST(rank.at("training_bytes").get<std::int64_t>() > 16 * parameters);
    BOOST_TEST(rank.at("inference").at("weights").get<std::int64_t>() == 4 * parameters);
  }
  check_refused(run({"inspect", "/nowhere"}), "/nowhere");
  check_refused(run({"inspect", "demo", "--stages", "1000"}), "stages");
  const Folder folder;  // a config alone is no model: types and bytes of its weights are unknown
  std::ofstream(folder / "config.json") << R"({"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "vocab_size": 11})";
  check_refused(run({"inspect", folder / ""}), "model.safetensors");
}

BOOST_AUTO_TEST_SUITE_END()
