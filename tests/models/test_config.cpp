// config.json: what transformers writes, both spellings, defaults, refusals, presets. Reference: reference/make_reference.py.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <ppengine/models/config.hpp>
#include <ppengine/models/files/parameters.hpp>

#include "helpers.hpp"

using namespace ppengine;
using namespace ppengine::models;
using namespace ppengine::test;

BOOST_AUTO_TEST_SUITE(config)

BOOST_AUTO_TEST_CASE(a_gpt2_saved_by_transformers_is_read) {
  const ModelConfig config = load_config(data_folder() / "gpt2_tied_f32");
  const Gpt2Config& gpt2 = *config.gpt2();
  BOOST_CHECK_EQUAL(gpt2.vocabulary, 37);
  BOOST_CHECK_EQUAL(gpt2.positions, 11);
  BOOST_CHECK_EQUAL(gpt2.width, 12);
  BOOST_CHECK_EQUAL(gpt2.inner, 20);
  BOOST_CHECK(gpt2.activation == Activation::gelu_erf);
  BOOST_CHECK(gpt2.scale_attention && gpt2.scale_attention_by_inverse_layer && gpt2.tied_head);
  BOOST_CHECK(gpt2.ids.bos == std::vector<std::int32_t>{1} && gpt2.ids.eos == std::vector<std::int32_t>{2});
  BOOST_CHECK(!load_config(data_folder() / "gpt2_untied_f16").tied_head());
}

BOOST_AUTO_TEST_CASE(a_llama_saved_by_transformers_is_read) {
  const ModelConfig config = load_config(data_folder() / "llama_bf16_sharded");
  const DecoderConfig& llama = *config.decoder();
  BOOST_CHECK_EQUAL(llama.heads, 3);
  BOOST_CHECK_EQUAL(llama.kv_heads, 1);
  BOOST_CHECK_EQUAL(llama.head_size, 6);
  BOOST_CHECK(llama.qkv_bias && llama.output_bias && llama.mlp_bias && !llama.tied_head);
  BOOST_CHECK(llama.rope.scaling == RopeScaling::llama3);
  BOOST_CHECK_EQUAL(llama.rope.theta, 500000.0);
  BOOST_CHECK_EQUAL(llama.rope.original_positions, 32);
  BOOST_CHECK_EQUAL(llama.norm_epsilon, 1e-5);
  BOOST_CHECK((llama.ids.eos == std::vector<std::int32_t>{2, 5}));
}

BOOST_AUTO_TEST_CASE(rotary_frequencies_equal_transformers_in_both_spellings) {
  const auto cases = nlohmann::json::parse(std::ifstream(data_folder() / "rope.json"));
  for (const auto& entry : cases)
    for (const char* spelling : {"new", "old"}) {
      const ModelConfig config = parse_config(entry[spelling].get<std::string>(), spelling);
      const auto got = rope_inverse_frequencies(*config.decoder(), config.decoder()->rope, entry["length"]);
      const auto expected = entry["frequencies"].get<std::vector<double>>();
      BOOST_REQUIRE_EQUAL(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) BOOST_CHECK_CLOSE(double{got[i]}, expected[i], 1e-4);  // percent: 1e-6 relative
    }
}

BOOST_AUTO_TEST_CASE(missing_fields_have_transformers_defaults) {
  const ModelConfig gpt2_config = parse_config(R"({"model_type":"gpt2"})", "c");
  const Gpt2Config& gpt2 = *gpt2_config.gpt2();
  BOOST_CHECK_EQUAL(gpt2.inner, 3072);
  BOOST_CHECK_EQUAL(gpt2.residual_dropout, 0.1);
  BOOST_CHECK(gpt2.tied_head && gpt2.activation == Activation::gelu_tanh);
  const ModelConfig llama_config = parse_config(R"({"model_type":"llama","num_attention_heads":16,"rope_theta":null})", "c");
  const DecoderConfig& llama = *llama_config.decoder();
  BOOST_CHECK_EQUAL(llama.kv_heads, 16);
  BOOST_CHECK_EQUAL(llama.head_size, 256);
  BOOST_CHECK_EQUAL(llama.rope.theta, 10000.0);
  BOOST_CHECK(!llama.tied_head);
  BOOST_CHECK_EQUAL(parse_config(R"({"model_type":"gpt2","hidden_size":24,"num_attention_heads":2})", "c").width(), 24);
}

BOOST_AUTO_TEST_CASE(what_is_not_supported_is_refused_by_name) {
  const auto with = [](const std::string& fields) {
    return error_of([&] { parse_config("{\"model_type\":\"llama\"," + fields + "}", "config.json"); });
  };
  BOOST_CHECK(contains(error_of([] { parse_config(R"({"model_type":"bert"})", "config.json"); }), "config.json: model_type is 'bert'"));
  BOOST_CHECK(contains(error_of([] { parse_config("{}", "config.json"); }), "config.json: has no 'model_type'"));
  BOOST_CHECK(contains(with(R"("rope_scaling":{"rope_type":"proportional","factor":2})"), "rope_scaling.rope_type is 'proportional'"));
  BOOST_CHECK(contains(with(R"("rope_parameters":{"rope_type":"linear"})"), "rope_parameters has no 'factor'"));
  BOOST_CHECK(contains(with(R"("rope_parameters":{"full_attention":{"rope_theta":1000}})"), "rope_parameters.full_attention"));
  BOOST_CHECK(contains(with(R"("hidden_act":"mish")"), "hidden_act 'mish'"));
  BOOST_CHECK(contains(with(R"("sliding_window":4096)"), "sliding_window"));
  BOOST_CHECK(contains(with(R"("quantization_config":{"bits":4})"), "quantization_config"));
  BOOST_CHECK(contains(with(R"("layer_types":["full_attention","sliding_attention"])"), "layer_types[1]"));
  BOOST_CHECK(contains(with(R"("partial_rotary_factor":0.5)"), "partial_rotary_factor"));
  BOOST_CHECK(contains(with(R"("num_key_value_heads":5)"), "num_key_value_heads"));
  BOOST_CHECK(contains(with(R"("head_dim":7)"), "must be even"));
  BOOST_CHECK(contains(with(R"("vocab_size":"many")"), "vocab_size must be an integer"));
  BOOST_CHECK(contains(with(R"("attention_bias":1)"), "attention_bias must be true or false"));
  BOOST_CHECK_EQUAL(with(R"("sliding_window":null,"pretraining_tp":2,"unknown_field":[1])"), "no error");
}

BOOST_AUTO_TEST_CASE(absurd_sizes_are_refused_before_anything_is_computed) {
  for (const char* field : {"vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size", "max_position_embeddings",
                            "num_attention_heads", "head_dim"})
    for (const char* value : {"0", "-1", "1000000000", "9223372036854775807", "18446744073709551616", "1e30"}) {
      const std::string text = std::string("{\"model_type\":\"llama\",\"") + field + "\":" + value + "}";
      BOOST_CHECK(contains(error_of([&] { parse_config(text, "c"); }), field));
    }
}

BOOST_AUTO_TEST_CASE(presets_are_those_of_the_command_line) {
  for (const auto& [name, layers, width, sequence, vocabulary] :
       {std::tuple{"tiny", 4, 256, 128, 256}, std::tuple{"mid", 8, 512, 256, 8192}, std::tuple{"gpt2", 12, 768, 256, 50257}}) {
    const ModelConfig config = preset_config(name);
    BOOST_CHECK_EQUAL(config.layers(), layers);
    BOOST_CHECK_EQUAL(config.width(), width);
    BOOST_CHECK_EQUAL(config.positions(), sequence);
    BOOST_CHECK_EQUAL(preset_sequence_length(name), sequence);
    BOOST_CHECK_EQUAL(config.vocabulary(), vocabulary);
    BOOST_CHECK(!config.tied_head());
  }
  BOOST_CHECK(!is_preset("big"));
  BOOST_CHECK_THROW(preset_config("big"), ConfigError);
  // 124,439,808 parameters of GPT-2, with 256 positions instead of 1024 and a head of its own.
  BOOST_CHECK_EQUAL(count_parameters(preset_config("gpt2")), 124439808 - (1024 - 256) * 768 + 50257 * 768);
}

BOOST_AUTO_TEST_CASE(writing_keeps_every_field_and_reading_it_again_gives_the_same) {
  const std::string text = R"({"model_type":"gpt2","n_embd":24,"n_head":2,"my_field":{"x":[1,2.5]},"torch_dtype":"float16"})";
  const auto written = nlohmann::json::parse(config_json(parse_config(text, "c"), "float32"));
  BOOST_CHECK_EQUAL(written["my_field"]["x"][1], 2.5);
  BOOST_CHECK_EQUAL(written["torch_dtype"], "float32");
  BOOST_CHECK(!written.contains("dtype"));
  BOOST_CHECK_EQUAL(config_json(parse_config(text, "c")), text);
  DecoderConfig llama;
  llama.rope.scaling = RopeScaling::llama3;
  llama.rope.theta = 5e5;
  llama.rope.factor = 8;
  llama.rope.original_positions = 8192;
  llama.ids.eos = {2, 3};
  const ModelConfig again = parse_config(make_config(llama).source, "made");
  BOOST_CHECK_EQUAL(again.decoder()->rope.original_positions, 8192);
  BOOST_CHECK(again.decoder()->ids.eos == llama.ids.eos);
  BOOST_CHECK_EQUAL(make_config(*again.decoder()).source, make_config(llama).source);
}

BOOST_AUTO_TEST_SUITE_END()
