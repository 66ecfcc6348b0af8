// Generation from a folder: text in and out, stop strings, what is refused. The texts are compared with what the
// tokenizer, which has references of its own, makes of the ids.
#include <boost/test/unit_test.hpp>

#include <bit>
#include <map>

#include <ppengine/comm/threads.hpp>
#include <ppengine/engine/model_rank.hpp>
#include <ppengine/models/data/counter_random.hpp>
#include <ppengine/models/files/parameters.hpp>
#include <ppengine/models/files/safetensors_writer.hpp>
#include <ppengine/runs/generation.hpp>

#include "../models/helpers.hpp"
#include "../ranks.hpp"

using namespace ppengine;
using namespace ppengine::models;
using namespace ppengine::runs;

namespace {

// A model with random weights and the tokenizer of the tests (711 tokens).
struct Folder : test::TemporaryFolder {
  explicit Folder(StoredType type = StoredType::f32) {
    Gpt2Config config;
    config.vocabulary = 711, config.positions = 60, config.width = 20, config.layers = 2, config.heads = 2, config.inner = 40;
    config.ids = {{0}, {0}};
    const ModelConfig model = make_config(config);
    write("config.json", model.source);
    std::filesystem::copy_file(test::data_folder() / "tokenizers/gpt2.json", path / "tokenizer.json",
                               std::filesystem::copy_options::overwrite_existing);
    std::vector<TensorSpec> tensors;
    for (const Parameter& parameter : list_parameters(model)) tensors.push_back({parameter.name, type, parameter.shape});
    const SafetensorsLayout layout(tensors, UINT64_MAX, "model");
    SafetensorsWriter::create(path, layout);
    SafetensorsWriter writer = SafetensorsWriter::open(path, layout);
    std::uint64_t number = 0;
    for (const Parameter& parameter : list_parameters(model)) {
      std::vector<float> values(static_cast<std::size_t>(parameter.elements()));
      for (float& value : values) value = static_cast<float>(2 * random_uniform(5, 0, number++) - 1);
      if (type == StoredType::f32) {
        writer.write(parameter.name, 0, values.data(), values.size() * sizeof(float));
        continue;
      }
      std::vector<std::uint16_t> upper(values.size());  // halves of the bits: bf16
      for (std::size_t i = 0; i < values.size(); ++i) upper[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[i]) >> 16);
      writer.write(parameter.name, 0, upper.data(), upper.size() * sizeof(std::uint16_t));
    }
    writer.sync();
    writer.commit();
  }
};

GenerationOptions options_for(const Folder& folder, const std::vector<std::string>& texts) {
  GenerationOptions options;
  options.model = folder.path.string();
  options.texts = texts;
  options.max_new_tokens = 25;
  options.ignore_eos = true;
  options.parallel.device = ops::Device::open("cpu");
  return options;
}

struct Outcome {
  std::vector<GeneratedText> results;
  std::map<std::size_t, std::string> streamed;
};

Outcome generate(GenerationOptions options) {
  Outcome outcome;
  outcome.results.resize(options.texts.size() + options.ids.size());
  options.on_token = [&](std::size_t prompt, std::int32_t, std::string_view text) { outcome.streamed[prompt] += text; };
  options.on_finished = [&](std::size_t prompt, const GeneratedText& result) { outcome.results[prompt] = result; };
  const GenerationRun run(options);
  test::on_ranks(options.parallel.pipeline, options.parallel.device, [&](comm::Communicator& world) { run.run(world); });
  return outcome;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(generation)

BOOST_AUTO_TEST_CASE(the_text_is_that_of_the_ids_and_streams_in_pieces) {
  const Folder folder;
  const Tokenizer tokenizer = Tokenizer::load(folder.path / "tokenizer.json");
  auto options = options_for(folder, {"Hello there", "Grüße an", "a b c d"});
  options.parallel.pipeline = 2;
  const Outcome outcome = generate(options);
  for (std::size_t i = 0; i < 3; ++i) {
    const GeneratedText& result = outcome.results[i];
    BOOST_TEST(result.prompt_ids == tokenizer.encode(options.texts[i]), boost::test_tools::per_element());
    BOOST_TEST(result.generated.ids.size() == 25u);
    BOOST_TEST(result.text.value() == tokenizer.decode(result.generated.ids));
    BOOST_TEST(outcome.streamed.at(i) == result.text.value());
  }
}

BOOST_AUTO_TEST_CASE(a_stop_string_ends_the_text_before_it) {
  const Folder folder;
  const std::string text = generate(options_for(folder, {"Hello there"})).results[0].text.value();
  std::size_t at = 8;
  while (at < text.size() && static_cast<signed char>(text[at]) < 0) ++at;
  BOOST_REQUIRE(at < text.size());
  const std::string stop = text.substr(at, 1);
  auto options = options_for(folder, {"Hello there"});
  options.stops = {"never to be seen", stop};
  const Outcome outcome = generate(options);
  BOOST_TEST(outcome.results[0].text.value() == text.substr(0, text.find(stop)));
  BOOST_TEST(outcome.streamed.at(0) == outcome.results[0].text.value());
  BOOST_TEST(outcome.results[0].stopped);
  BOOST_TEST(outcome.results[0].generated.ids.size() < 25u);
}

BOOST_AUTO_TEST_CASE(the_models_end_token_ends_unless_it_is_ignored) {
  const Folder folder;
  const auto ids = generate(options_for(folder, {"Hello there"})).results[0].generated.ids;
  const std::int32_t end = ids[4];
  folder.write("generation_config.json", "{\"eos_token_id\": [710, " + std::to_string(end) + "]}");
  auto options = options_for(folder, {"Hello there"});
  BOOST_TEST(generate(options).results[0].generated.ids == ids, boost::test_tools::per_element());
  options.ignore_eos = false;
  const auto ended = generate(options).results[0].generated;
  BOOST_TEST(ended.ids.back() == end);
  BOOST_TEST(ended.ids.size() <= 5u);
  BOOST_TEST((ended.finish == Finish::end_token));
}

BOOST_AUTO_TEST_CASE(what_cannot_be_continued_is_refused_before_ranks_start) {
  const Folder folder;
  const auto refused = [&](const GenerationOptions& options) { return test::error_of([&] { GenerationRun run(options); }); };
  BOOST_TEST(test::contains(refused(options_for(folder, {})), "no prompt"));
  BOOST_TEST(test::contains(refused(options_for(folder, {"a", ""})), "prompt 2 is empty"));
  std::string text;
  for (int i = 0; i < 80; ++i) text += "x y ";
  BOOST_TEST(test::contains(refused(options_for(folder, {text})), "context holds 60"));
  auto with_ids = options_for(folder, {});
  with_ids.ids = {{1, 711}};
  BOOST_TEST(test::contains(refused(with_ids), "token 711"));
  std::filesystem::remove(folder.path / "tokenizer.json");
  BOOST_TEST(test::contains(refused(options_for(folder, {"a"})), "tokenizer.json"));
  with_ids.ids = {{1}};
  BOOST_TEST(!generate(with_ids).results[0].text.has_value());
}

BOOST_AUTO_TEST_CASE(a_short_cache_takes_turns_and_gives_the_same) {
  const Folder folder;
  const std::vector<std::string> texts{"Hello there", "a b c d", "one", "two words", "and more of them"};
  const Outcome all = generate(options_for(folder, texts));
  auto options = options_for(folder, texts);
  constexpr std::int64_t page = 64 * 2 * 40 * 4;  // tokens, layers, keys and values of width 20, bytes: a request needs one
  for (int ranks : {1, 2}) {
    options.parallel.pipeline = ranks;
    options.cache_memory = page * 3;  // one page belongs to nobody
    const Outcome few = generate(options);
    for (std::size_t i = 0; i < texts.size(); ++i)
      BOOST_TEST(few.results[i].generated.ids == all.results[i].generated.ids, boost::test_tools::per_element());
  }
  options.parallel.pipeline = 1;
  options.cache_memory = 2 * page - 1;
  BOOST_TEST(test::contains(test::error_of([&] { GenerationRun run(options); }), "--cache-memory"));
}

// What narrow weights are worth is tested in tests/ops; here: every path through the engine reads them the same way.
BOOST_AUTO_TEST_CASE(narrow_weights_give_the_same_tokens_in_every_split) {
  const Folder folder;
  for (const ops::WeightStorage& weights :
       {ops::WeightStorage{ops::WeightFormat::bf16, 0}, {ops::WeightFormat::int8, 0}, {ops::WeightFormat::int8, 8}}) {
    auto options = options_for(folder, {"Hello there", "a b c d"});
    options.weights = weights;
    const Outcome whole = generate(options);
    options.parallel.pipeline = 2;
    const Outcome split = generate(options);
    for (std::size_t i = 0; i < 2; ++i)
      BOOST_TEST(split.results[i].generated.ids == whole.results[i].generated.ids, boost::test_tools::per_element());
    options.parallel.type = ops::Type::bf16;
    BOOST_TEST(test::contains(test::error_of([&] { GenerationRun run(options); }), "--dtype"));
  }
}

BOOST_AUTO_TEST_CASE(weights_that_a_folder_has_in_bf16_stay_so_and_give_the_tokens_of_f32) {
  engine::ParallelOptions parallel;
  parallel.device = ops::Device::open("cpu");
  comm::LocalOptions local;
  local.devices = {parallel.device};
  for (const StoredType type : {StoredType::bf16, StoredType::f32}) {
    const Folder folder(type);
    const auto peak = [&](std::optional<ops::WeightStorage> weights) {
      std::size_t bytes = 0;
      comm::run_threads(1, local, [&](comm::Communicator& world) {
        bytes = load_for_inference(open_model(folder.path.string()), parallel, world, 0, weights)->memory().peak();
      });
      return bytes;
    };
    BOOST_TEST(peak({}) == peak(ops::WeightStorage{type == StoredType::bf16 ? ops::WeightFormat::bf16 : ops::WeightFormat::f32}));
    BOOST_TEST(peak(ops::WeightStorage{ops::WeightFormat::bf16}) < peak(ops::WeightStorage{}));
    auto options = options_for(folder, {"Hello there", "a b c d"});
    const Outcome unsaid = generate(options);
    options.weights = ops::WeightStorage{};
    const Outcome wide = generate(options);
    for (std::size_t i = 0; i < 2; ++i)
      BOOST_TEST(unsaid.results[i].generated.ids == wide.results[i].generated.ids, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_SUITE_END()
