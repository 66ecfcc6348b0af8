// Folders with linears in 4 bits: GPTQ and AWQ, packed here from their definitions, word by word.
#include <boost/test/unit_test.hpp>

#include <array>
#include <bit>

#include <ppengine/models/files/parameters.hpp>
#include <ppengine/models/files/quantized.hpp>
#include <ppengine/models/files/safetensors.hpp>

#include "helpers.hpp"

using namespace ppengine;
using namespace ppengine::models;
using namespace ppengine::test;

namespace {

constexpr int in = 24, out = 16, group = 8, groups = 3;

// What a weight is worth: some numbers for q, zero and scale of every place.
int q_at(int i, int o) { return (7 * i + 3 * o + i * o) % 16; }
int zero_at(int g, int o) { return (5 * g + o) % 16; }
float scale_at(int g, int o) { return 0.25f + 0.125f * float(g) + 0.0625f * float(o); }  // exact in f16

std::string bytes_of(const std::vector<std::uint32_t>& words) { return {reinterpret_cast<const char*>(words.data()), words.size() * 4}; }

struct Packed {
  std::vector<std::uint32_t> weights, zeros, order;
  std::vector<_Float16> scales;
};

Packed gptq(bool first_version, bool reversed) {
  Packed p{std::vector<std::uint32_t>(in / 8 * out), std::vector<std::uint32_t>(groups * out / 8), std::vector<std::uint32_t>(in), {}};
  for (int i = 0; i < in; ++i) {
    p.order[i] = static_cast<std::uint32_t>((reversed ? in - 1 - i : i) / group);
    for (int o = 0; o < out; ++o) p.weights[i / 8 * out + o] |= static_cast<std::uint32_t>(q_at(i, o)) << 4 * (i % 8);
  }
  for (int g = 0; g < groups; ++g)
    for (int o = 0; o < out; ++o) {
      const int stored = first_version ? (zero_at(g, o) + 15) % 16 : zero_at(g, o);
      p.zeros[g * out / 8 + o / 8] |= static_cast<std::uint32_t>(stored) << 4 * (o % 8);
      p.scales.push_back(static_cast<_Float16>(scale_at(g, o)));
    }
  return p;
}

Packed awq() {
  constexpr std::array order{0, 2, 4, 6, 1, 3, 5, 7};  // AutoAWQ's: nibble n of a word holds output order[n]
  Packed p{std::vector<std::uint32_t>(in * out / 8), std::vector<std::uint32_t>(groups * out / 8), {}, {}};
  for (int word = 0; word < out / 8; ++word)
    for (int n = 0; n < 8; ++n) {
      const int o = 8 * word + order[static_cast<std::size_t>(n)];
      for (int i = 0; i < in; ++i) p.weights[i * out / 8 + word] |= static_cast<std::uint32_t>(q_at(i, o)) << 4 * n;
      for (int g = 0; g < groups; ++g) p.zeros[g * out / 8 + word] |= static_cast<std::uint32_t>(zero_at(g, o)) << 4 * n;
    }
  for (int g = 0; g < groups; ++g)
    for (int o = 0; o < out; ++o) p.scales.push_back(static_cast<_Float16>(scale_at(g, o)));
  return p;
}

void write_file(const std::filesystem::path& path, const Packed& p, const std::string& weight_shape, int scale_groups = groups) {
  std::string header = "{", data;
  const auto add = [&](const std::string& name, const std::string& type, const std::string& shape, const std::string& bytes) {
    header += (data.empty() ? "\"" : ",\"") + name + "\":{\"dtype\":\"" + type + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
              std::to_string(data.size()) + "," + std::to_string(data.size() + bytes.size()) + "]}";
    data += bytes;
  };
  add("l.qweight", "I32", weight_shape, bytes_of(p.weights));
  add("l.qzeros", "I32", "[" + std::to_string(groups) + "," + std::to_string(out / 8) + "]", bytes_of(p.zeros));
  const std::string scales(reinterpret_cast<const char*>(p.scales.data()), static_cast<std::size_t>(scale_groups * out) * 2);
  add("l.scales", "F16", "[" + std::to_string(scale_groups) + "," + std::to_string(out) + "]", scales);
  if (!p.order.empty()) add("l.g_idx", "I32", "[" + std::to_string(in) + "]", bytes_of(p.order));
  header += "}";
  const std::uint64_t size = header.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&size), 8);
  file << header << data;
}

void check_values(const std::filesystem::path& path, const Quantization& how, bool reversed) {
  const WeightFiles files = WeightFiles::open(path);
  const auto weight = find_quantized(files, how, "l", in, out);
  BOOST_REQUIRE(weight);
  for (const bool inputs_first : {false, true}) {
    std::vector<float> values(in * out, -1);
    weight->read(inputs_first, values.data());
    for (int i = 0; i < in; ++i)
      for (int o = 0; o < out; ++o) {
        const int g = (reversed ? in - 1 - i : i) / group;
        const float expected = scale_at(g, o) * float(q_at(i, o) - zero_at(g, o));
        BOOST_REQUIRE_EQUAL(values[static_cast<std::size_t>(inputs_first ? i * out + o : o * in + i)], expected);
      }
  }
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(quantized, TemporaryFolder)

BOOST_AUTO_TEST_CASE(gptq_and_awq_give_the_numbers_that_were_packed) {
  const auto file = path / "w.safetensors";
  for (const bool reversed : {false, true}) {
    write_file(file, gptq(true, reversed), "[3,16]");
    check_values(file, {Quantization::Kind::gptq, group}, reversed);
    write_file(file, gptq(false, reversed), "[3,16]");
    check_values(file, {Quantization::Kind::gptq_v2, group}, reversed);
  }
  Packed without_order = gptq(true, false);
  without_order.order.clear();
  write_file(file, without_order, "[3,16]");
  check_values(file, {Quantization::Kind::gptq, group}, false);
  write_file(file, awq(), "[24,2]");
  check_values(file, {Quantization::Kind::awq, group}, false);
}

BOOST_AUTO_TEST_CASE(parts_that_do_not_fit_are_refused_by_name) {
  const auto file = path / "w.safetensors";
  const auto error = [&](Quantization how) {
    const WeightFiles files = WeightFiles::open(file);
    return error_of([&] { find_quantized(files, how, "l", in, out); });
  };
  write_file(file, gptq(true, false), "[3,16]");
  BOOST_CHECK(contains(error({Quantization::Kind::awq, group}), "'l.qweight' has shape [3, 16]"));
  BOOST_CHECK(contains(error({Quantization::Kind::gptq, 4}), "'l.qzeros' has shape"));
  write_file(file, gptq(true, false), "[3,16]", 2);
  BOOST_CHECK(contains(error({Quantization::Kind::gptq, group}), "'l.scales' has shape [2, 16]"));
  Packed wrong = gptq(true, false);
  wrong.order[5] = 77;
  write_file(file, wrong, "[3,16]");
  BOOST_CHECK(contains(error({Quantization::Kind::gptq, group}), "input 5 is of group 77"));
}

BOOST_AUTO_TEST_CASE(config_json_says_how_linears_are_stored) {
  const auto parse = [](const std::string& quantization) {
    return parse_config("{\"model_type\":\"llama\",\"quantization_config\":" + quantization + "}", "config.json");
  };
  const auto error = [&](const std::string& quantization) { return error_of([&] { parse(quantization); }); };
  const ModelConfig config = parse(R"({"quant_method":"gptq","bits":4,"group_size":-1})");
  BOOST_CHECK(config.quantization && config.quantization->kind == Quantization::Kind::gptq && config.quantization->group == 0);
  BOOST_CHECK(!contains(config_json(config), "quantization_config"));  // what is saved is f32
  BOOST_CHECK(!contains(config_json(config, "float32"), "quantization_config"));
  BOOST_CHECK(contains(error(R"({"quant_method":"bitsandbytes","bits":4})"), "quantization_config.quant_method is 'bitsandbytes'"));
  BOOST_CHECK(contains(error(R"({"quant_method":"gptq","bits":3})"), "quantization_config.bits is 3"));
  BOOST_CHECK(contains(error(R"({"quant_method":"awq","bits":4,"version":"gemv"})"), "quantization_config.version is 'gemv'"));
}

BOOST_AUTO_TEST_SUITE_END()
