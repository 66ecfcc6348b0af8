// safetensors: files that transformers saved, files that lie, and what we write. Reference: reference/make_reference.py.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <bit>
#include <cmath>
#include <thread>

#include <ppengine/models/files/parameters.hpp>
#include <ppengine/models/files/safetensors.hpp>
#include <ppengine/models/files/safetensors_writer.hpp>

#include "helpers.hpp"

using namespace ppengine;
using namespace ppengine::models;
using namespace ppengine::test;

namespace {

std::string file_of(const std::string& header, const std::string& data) {
  const std::uint64_t size = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &size, 8);
  return text + header + data;
}

nlohmann::json json_of(const std::filesystem::path& path) { return nlohmann::json::parse(std::ifstream(path)); }

}  // namespace

BOOST_FIXTURE_TEST_SUITE(safetensors, TemporaryFolder)

BOOST_AUTO_TEST_CASE(folders_saved_by_transformers_are_read_in_all_types_and_shards) {
  for (const char* name : {"gpt2_tied_f32", "gpt2_untied_f16", "llama_bf16_sharded"}) {
    const WeightFiles files = WeightFiles::open(data_folder() / name);
    const nlohmann::json expected = json_of(data_folder() / name / "values.json");
    BOOST_CHECK_EQUAL(files.tensors().size(), expected.size());
    for (const auto& [tensor, entry] : expected.items()) {
      const StoredTensor& stored = files.at(tensor);
      BOOST_CHECK(stored.shape == entry[0].get<std::vector<std::int64_t>>());
      std::vector<float> values(entry[1].size());
      read_f32(stored, 0, values.size(), values.data());
      for (std::size_t i = 0; i < values.size(); ++i) BOOST_CHECK_EQUAL(values[i], entry[1][i].get<float>());
    }
  }
}

BOOST_AUTO_TEST_CASE(their_tensors_are_exactly_what_config_json_asks_for) {
  for (const char* name : {"gpt2_tied_f32", "gpt2_untied_f16", "llama_bf16_sharded"}) {
    const ModelConfig config = load_config(data_folder() / name);
    const WeightFiles files = WeightFiles::open(data_folder() / name);
    BOOST_CHECK_EQUAL(match_parameters(config, files).size(), files.tensors().size());
  }
}

BOOST_AUTO_TEST_CASE(every_f16_and_the_rounding_to_bf16_equal_the_compilers) {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  StoredTensor tensor{"t", StoredType::f16, "F16", {65536}, 65536, reinterpret_cast<const std::byte*>(halves.data()), 131072, "f"};
  std::vector<float> got(65536);
  read_f32(tensor, 0, got.size(), got.data());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const float expected = static_cast<float>(std::bit_cast<_Float16>(halves[i]));
    BOOST_REQUIRE(std::isnan(expected) ? std::isnan(got[i])
                                       : std::bit_cast<std::uint32_t>(got[i]) == std::bit_cast<std::uint32_t>(expected));
  }
  const std::vector<std::pair<std::uint32_t, std::uint16_t>> rounding{{0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81},
                                                                      {0x3f818000, 0x3f82}, {0x7f7fffff, 0x7f80}, {0xff800000, 0xff80},
                                                                      {0x7f800001, 0x7fc0}, {0x00000001, 0x0000}};
  for (const auto& [bits, expected] : rounding) {
    StoredTensor one{"t", StoredType::f32, "F32", {1}, 1, reinterpret_cast<const std::byte*>(&bits), 4, "f"};
    std::uint16_t value = 0;
    read_bf16(one, 0, 1, &value);
    BOOST_CHECK_EQUAL(value, expected);
  }
}

BOOST_AUTO_TEST_CASE(hostile_files_are_refused_and_name_the_tensor) {
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";
  const auto open = [&](const std::string& bytes) {
    const auto file = write("x.safetensors", bytes);
    return error_of([&] { SafetensorsFile{file}; });
  };
  BOOST_CHECK_EQUAL(open(file_of(good, std::string(11, 'x'))), "no error");
  BOOST_CHECK(contains(open(""), "too few"));
  BOOST_CHECK(contains(open("1234567"), "too few"));
  BOOST_CHECK(contains(open(std::string(8, '\xff') + "{}"), "absurd"));
  BOOST_CHECK(contains(open(file_of(good, "").substr(0, 50)), "cut short"));
  BOOST_CHECK(contains(open(file_of(good, std::string(10, 'x'))), "tensor 'b' ends at byte 11"));
  BOOST_CHECK(contains(open(file_of(good, std::string(12, 'x'))), "belong to none"));
  BOOST_CHECK(contains(open(file_of(std::string(200000, '['), "")), "begin with"));
  BOOST_CHECK(contains(open(file_of("{\"a\":" + std::string(100000, '['), "")), "nested"));
  const auto one = [&](const std::string& entry, std::size_t bytes = 8) {
    return open(file_of("{\"a\":" + entry + "}", std::string(bytes, 'x')));
  };
  BOOST_CHECK(contains(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})"),
                       "stands twice"));
  BOOST_CHECK(
      contains(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]})"), "overlap"));
  BOOST_CHECK(contains(one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})"), "leave a gap"));
  BOOST_CHECK(contains(one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"), "need 12"));
  BOOST_CHECK(contains(one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})"), "more elements"));
  BOOST_CHECK(contains(one(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,8]})"), "shape[0]"));
  BOOST_CHECK(contains(one(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), "before it begins"));
  BOOST_CHECK(contains(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]})"), "data_offsets[1]"));
  BOOST_CHECK(contains(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})"), "two data_offsets"));
  BOOST_CHECK(contains(one(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})"), "must be a list"));
  BOOST_CHECK(contains(one(R"({"shape":[2],"data_offsets":[0,8]})"), "has no 'dtype'"));
  BOOST_CHECK(contains(one("7"), "must be an object"));
  BOOST_CHECK_EQUAL(one(R"({"dtype":"F4_X","shape":[3],"data_offsets":[0,8]})"), "no error");  // listed, not readable
}

BOOST_AUTO_TEST_CASE(a_type_that_is_no_weight_is_refused_on_use) {
  const auto file = write("x.safetensors", file_of(R"({"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", std::string(8, 'x')));
  const SafetensorsFile opened(file);
  float value = 0;
  BOOST_CHECK(contains(error_of([&] { read_f32(opened.tensors()[0], 0, 1, &value); }), "tensor 'a' has type I64"));
}

BOOST_AUTO_TEST_CASE(an_index_that_does_not_fit_its_shards_is_refused) {
  const auto source = data_folder() / "llama_bf16_sharded";
  const std::string index_name = "model.safetensors.index.json";
  const nlohmann::json index = json_of(source / index_name);
  const auto with = [&](const nlohmann::json& changed) {
    std::filesystem::copy(source, path, std::filesystem::copy_options::overwrite_existing | std::filesystem::copy_options::recursive);
    write(index_name, changed.dump());
    return error_of([&] { WeightFiles::open(path); });
  };
  BOOST_CHECK_EQUAL(with(index), "no error");
  nlohmann::json changed = index;
  changed["weight_map"]["extra"] = index["weight_map"].begin().value();
  BOOST_CHECK(contains(with(changed), "tensor 'extra' is missing"));
  changed = index;
  changed["weight_map"].erase(changed["weight_map"].begin());
  BOOST_CHECK(contains(with(changed), "is not listed"));
  changed = index;
  changed["weight_map"]["evil"] = "../../etc/passwd";
  BOOST_CHECK(contains(with(changed), "same folder"));
  changed = index;
  changed["weight_map"]["gone"] = "model-00009-of-00009.safetensors";
  BOOST_CHECK(contains(with(changed), "cannot open"));
  std::filesystem::remove(path / index_name);
  BOOST_CHECK(contains(error_of([&] { WeightFiles::open(path); }), "neither model.safetensors nor"));
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_config_json_is_named) {
  const ModelConfig tied = load_config(data_folder() / "gpt2_tied_f32");
  const ModelConfig untied = load_config(data_folder() / "gpt2_untied_f16");
  const WeightFiles tied_files = WeightFiles::open(data_folder() / "gpt2_tied_f32");
  BOOST_CHECK(contains(error_of([&] { match_parameters(untied, tied_files); }), "tensor 'lm_head.weight' is missing"));
  Gpt2Config other = *tied.gpt2();
  other.layers = 1;
  BOOST_CHECK(contains(error_of([&] { match_parameters(make_config(other), tied_files); }), "tensor 'transformer.h.1."));
  other = *tied.gpt2();
  other.inner = 24;
  BOOST_CHECK(contains(error_of([&] { match_parameters(make_config(other), tied_files); }),
                       "c_fc.weight' has shape [12, 20], but config.json asks for [12, 24]"));
  other = *untied.gpt2();
  other.tied_head = true;
  const WeightFiles untied_files = WeightFiles::open(data_folder() / "gpt2_untied_f16");
  BOOST_CHECK(contains(error_of([&] { match_parameters(make_config(other), untied_files); }),
                       "'lm_head.weight' differs from 'transformer.wte.weight'"));
}

BOOST_AUTO_TEST_CASE(threads_write_slices_and_the_file_appears_when_complete) {
  const std::vector<TensorSpec> specs{
      {"small", StoredType::bf16, {3}}, {"w", StoredType::f32, {100, 7}}, {"empty", StoredType::f32, {0, 4}}};
  std::vector<float> values(700);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.5f;
  auto writer = SafetensorsWriter::create(path, SafetensorsLayout(specs));
  {
    std::vector<std::jthread> ranks;
    for (std::uint64_t rank = 0; rank < 4; ++rank)
      ranks.emplace_back([&, rank] {
        auto own = SafetensorsWriter::open(path, SafetensorsLayout(specs));
        own.write("w", rank * 700, reinterpret_cast<const char*>(values.data()) + rank * 700, 700);
        own.sync();
      });
  }
  const std::uint16_t small[] = {0x3f80, 0x4000, 0x4040};
  writer.write("small", 0, small, 6);
  BOOST_CHECK_THROW(writer.write("small", 4, small, 4), ConfigError);
  BOOST_CHECK_THROW(writer.write("none", 0, small, 1), ConfigError);
  BOOST_CHECK(!std::filesystem::exists(path / "model.safetensors"));
  writer.commit();
  const WeightFiles files = WeightFiles::open(path);
  std::vector<float> back(700);
  read_f32(files.at("w"), 0, 700, back.data());
  BOOST_CHECK(back == values);
  read_f32(files.at("small"), 0, 3, back.data());
  BOOST_CHECK_EQUAL(back[2], 3.0f);
  BOOST_CHECK_EQUAL(files.at("empty").elements, 0u);
  BOOST_CHECK_EQUAL(reinterpret_cast<std::uintptr_t>(files.at("w").data) % 8, 0u);
}

BOOST_AUTO_TEST_CASE(above_a_size_there_are_shards_and_old_ones_disappear) {
  const std::vector<TensorSpec> specs{
      {"a", StoredType::f32, {10}}, {"b", StoredType::f32, {10}}, {"c", StoredType::f32, {30}}, {"d", StoredType::f32, {2}}};
  const std::vector<float> values(30, 1.5f);
  const auto save = [&](std::uint64_t limit) {
    auto writer = SafetensorsWriter::create(path, SafetensorsLayout(specs, limit));
    for (const TensorSpec& spec : specs) writer.write(spec.name, 0, values.data(), static_cast<std::size_t>(spec.shape[0]) * 4);
    writer.commit();
    BOOST_CHECK_EQUAL(WeightFiles::open(path).tensors().size(), 4u);
    return std::distance(std::filesystem::directory_iterator(path), std::filesystem::directory_iterator());
  };
  BOOST_CHECK_EQUAL(save(80), 4);  // ab, c, d, index
  BOOST_CHECK_EQUAL(json_of(path / "model.safetensors.index.json")["metadata"]["total_size"], 208);
  BOOST_CHECK_EQUAL(save(1000), 1);
  BOOST_CHECK_EQUAL(save(130), 3);
}

BOOST_AUTO_TEST_SUITE_END()
