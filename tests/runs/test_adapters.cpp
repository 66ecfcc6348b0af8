// Several LoRA adapters in one batch: each sequence gets the tokens that the model with its adapter alone in the weights gives. That model
// is compared with peft in test_fine_tuning.cpp.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <ppengine/runs/generation.hpp>
#include <ppengine/runs/generator/adapters.hpp>

#include "../models/helpers.hpp"
#include "support.hpp"

using namespace ppengine;
using namespace ppengine::runs;
using namespace ppengine::test;

namespace {

using Ids = std::vector<std::int32_t>;

std::filesystem::path folder_of(const std::string& name) { return data_folder() / "pytorch" / name; }

GenerationOptions options_for(const std::string& name, const std::vector<std::string>& adapters) {
  static const auto device = ops::Device::open("cpu");
  GenerationOptions options;
  options.model = folder_of(name).string();
  options.adapters = adapters;
  options.ids = {{3, 1, 4}, {1, 5, 9, 2, 6}, {5, 3, 5, 8, 9, 7, 9, 3, 2}};
  options.max_new_tokens = 8;
  options.ignore_eos = true;
  options.parallel.device = device;
  return options;
}

// By prompt, and by adapter in it.
std::vector<Ids> generate(GenerationOptions options) {
  std::vector<Ids> found;
  options.on_finished = [&](std::size_t i, const GeneratedText& result) { found[i] = result.generated.ids; };
  const GenerationRun run(options);
  found.resize(run.requests());
  on_ranks(options.parallel, [&](comm::Communicator& world) { run.run(world); });
  return found;
}

// The same adapter, with more weight and without some of its modules.
struct Other : TemporaryFolder {
  explicit Other(const std::filesystem::path& adapter) {
    auto json = nlohmann::json::parse(std::ifstream(adapter / "adapter_config.json"));
    json["lora_alpha"] = -3.0 * json["lora_alpha"].get<double>();
    write("adapter_config.json", json.dump());
    std::filesystem::copy_file(adapter / "adapter_model.safetensors", path / "adapter_model.safetensors");
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(adapters)

BOOST_AUTO_TEST_CASE(side_by_side_each_gives_what_it_gives_in_the_weights) {
  for (const std::string name : {"gpt2_even", "llama_even"}) {
    const auto folder = folder_of(name) / "lora";
    const Other other(folder);
    const auto a = generate(options_for(name, {folder.string()})), b = generate(options_for(name, {other.path.string()}));
    BOOST_TEST(a != b, "the adapters must differ for this test to show anything");
    for (const auto& [pipeline, tensor] : {std::pair(1, 1), std::pair(2, 1), std::pair(1, 2)}) {
      auto options = options_for(name, {"a=" + folder.string(), "b=" + other.path.string()});
      options.parallel.pipeline = pipeline;
      options.parallel.tensor = tensor;
      const auto both = generate(options);
      BOOST_REQUIRE_EQUAL(both.size(), 6u);
      for (std::size_t i = 0; i < 3; ++i) {
        BOOST_TEST(both[2 * i] == a[i], boost::test_tools::per_element());
        BOOST_TEST(both[2 * i + 1] == b[i], boost::test_tools::per_element());
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(what_does_not_go_together_is_refused) {
  const std::string model = folder_of("llama_even").string(), adapter = (folder_of("llama_even") / "lora").string();
  const auto refused = [&](const std::string& folder, const std::vector<std::string>& list, const char* why) {
    const std::string error = error_of([&] { static_cast<void>(open_model_with_adapters(folder, list)); });
    BOOST_TEST(contains(error, why), error);
  };
  refused(model, {adapter, adapter}, "give names to several");
  refused(model, {"a=" + adapter, adapter}, "give it one too");
  refused(model, {"a=" + adapter, "a=" + adapter}, "taken by another");
  refused(model, {"a:b=" + adapter}, "no name");
  refused(model, {"a=/nowhere"}, "not an adapter");
  refused("tiny", {"a=" + adapter}, "needs a model folder");
  refused(folder_of("gpt2_even").string(), {"a=" + adapter}, "the model has no linear");
}

BOOST_AUTO_TEST_SUITE_END()
