// Embedding: against PyTorch and a sum in double; repeated ids, ids outside of the table, cached positions.
#include <ppengine/base/error.hpp>
#include <ppengine/ops/embedding.hpp>

#include "layers.hpp"

using namespace ppengine;
using namespace ppengine::ops;
using namespace ppengine::ops::support;

BOOST_AUTO_TEST_SUITE(embedding)

BOOST_AUTO_TEST_CASE(equals_pytorch) {
  Stream stream(device());
  for (const auto& one : reference("embedding")) {
    const EmbeddingSpec spec{.batch = one["batch"],
                             .length = one["length"],
                             .width = one["width"],
                             .vocabulary = one["vocabulary"],
                             .positions = one["positions"]};
    const auto op = Embedding::make(*device(), spec);
    const Array ids(stream, one["ids"].get<std::vector<std::int32_t>>()), tokens(stream, floats(one["tokens"])),
        places(stream, floats(one["places"])), diff(stream, floats(one["diff"])), y(stream, diff.count());
    op->forward(stream, ids.i32(), tokens.data(), places.data(), nullptr, y.data());
    check_close("y", y.get(), floats(one["y"]), 1e-7);
    for (const bool accumulate : {false, true}) {
      const Array diff_tokens(stream, std::vector<float>(tokens.count(), 1.0f)),
          diff_places(stream, std::vector<float>(places.count(), 1.0f));
      op->backward_weight(stream, ids.i32(), diff.data(), diff_tokens.f32(), diff_places.f32(), accumulate);
      auto to_tokens = floats(one["diff_tokens"]), to_places = floats(one["diff_places"]);
      if (accumulate)
        for (auto* all : {&to_tokens, &to_places})
          for (float& value : *all) value += 1;
      check_close("diff_tokens", diff_tokens.get(), to_tokens, 1e-6);
      check_close("diff_places", diff_places.get(), to_places, 1e-6);
    }
  }
}

BOOST_AUTO_TEST_CASE(gradients_are_sums_over_equal_ids_and_the_same_bits_again) {
  Stream stream(device());
  for (const Type type : {Type::f32, Type::bf16})
    for (const auto& [rows, width, different] :
         {std::tuple<std::size_t, std::size_t, int>{1, 1, 1}, {37, 19, 5}, {300, 33, 1}, {257, 64, 1000}}) {
      const EmbeddingSpec spec{.batch = 1,
                               .length = static_cast<std::int64_t>(rows),
                               .width = static_cast<std::int64_t>(width),
                               .vocabulary = 1000,
                               .type = type};
      std::vector<std::int32_t> ids(rows);
      for (std::size_t i = 0; i < rows; ++i) ids[i] = static_cast<std::int32_t>(i * 7919 % static_cast<std::size_t>(different));
      const auto values = rounded(random_values(rows * width, 1), type), table = rounded(random_values(1000 * width, 2), type);
      std::vector<double> expected(1000 * width), looked_up(rows * width);
      for (std::size_t i = 0; i < rows * width; ++i) {
        const std::size_t at = static_cast<std::size_t>(ids[i / width]) * width + i % width;
        expected[at] += values[i];
        looked_up[i] = table[at];
      }
      const auto op = Embedding::make(*device(), spec);
      const Array on_ids(stream, ids), diff(stream, values, type), tokens(stream, table, type), y(stream, rows * width, type);
      const Array sums(stream, 1000 * width), again(stream, std::vector<float>(1000 * width, 7.0f));
      op->forward(stream, on_ids.i32(), tokens.data(), nullptr, nullptr, y.data());
      op->backward_weight(stream, on_ids.i32(), diff.data(), sums.f32(), nullptr, false);
      op->backward_weight(stream, on_ids.i32(), diff.data(), again.f32(), nullptr, false);
      check_close("forward", y.get(), looked_up, 0);
      check_close(label("sums", type, spec.length, spec.width), sums.get(), expected, 1e-5);
      BOOST_TEST((sums.get() == again.get()));
    }
}

BOOST_AUTO_TEST_CASE(ids_outside_of_a_split_table_give_zeros_and_no_gradient) {
  Stream stream(device());
  const EmbeddingSpec spec{.batch = 1, .length = 4, .width = 2, .vocabulary = 3, .positions = 9, .first_token = 10};
  const auto op = Embedding::make(*device(), spec);
  const Array ids(stream, std::vector<std::int32_t>{9, 10, 12, 13}), tokens(stream, std::vector<float>{1, 2, 3, 4, 5, 6}),
      y(stream, std::size_t{8});
  std::vector<float> table(18);
  for (std::size_t row = 0; row < 9; ++row) table[2 * row] = table[2 * row + 1] = 100.0f * static_cast<float>(row);
  const Array places(stream, table), first(stream, std::vector<std::int32_t>{5});  // positions 5, 6, 7, 8
  op->forward(stream, ids.i32(), tokens.data(), places.data(), first.i32(), y.data());
  BOOST_TEST(y.get() == (std::vector<float>{0, 0, 601, 602, 705, 706, 0, 0}));
  const Array diff(stream, std::vector<float>{1, 1, 2, 2, 4, 4, 8, 8}), diff_tokens(stream, std::size_t{6}),
      diff_places(stream, std::size_t{18});
  op->backward_weight(stream, ids.i32(), diff.data(), diff_tokens.f32(), diff_places.f32(), false);
  BOOST_TEST(diff_tokens.get() == (std::vector<float>{2, 2, 0, 0, 4, 4}));
}

BOOST_AUTO_TEST_CASE(no_tokens_are_fine_and_zero_the_gradient) {
  Stream stream(device());
  const auto op = Embedding::make(*device(), {.batch = 0, .length = 4, .width = 2, .vocabulary = 3});
  const Array sums(stream, std::vector<float>(6, 1.0f));
  op->forward(stream, nullptr, sums.data(), nullptr, nullptr, nullptr);
  op->backward_weight(stream, nullptr, nullptr, sums.f32(), nullptr, false);
  BOOST_TEST(sums.get() == std::vector<float>(6, 0.0f));
  BOOST_CHECK_THROW(Embedding::make(*device(), {.batch = 1, .length = 8, .width = 2, .vocabulary = 3, .positions = 4}), ConfigError);
}

BOOST_AUTO_TEST_SUITE_END()
