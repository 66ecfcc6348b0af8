// AdamW and SGD: the same parameters as torch.optim after each of three steps; clipping; the bf16 copy.
#include <ppengine/ops/optimizer.hpp>

#include "layers.hpp"

using namespace ppengine::ops;
using namespace ppengine::ops::support;

namespace {

// One optimizer over one flat buffer, as a case of the reference describes it.
class Run {
 public:
  Run(Stream& stream, const nlohmann::json& one)
      : stream_(stream),
        one_(one),
        count_(static_cast<std::int64_t>(one["start"].size())),
        parameter_(stream, floats(one["start"])),
        first_(stream, parameter_.count()),
        second_(stream, parameter_.count()),
        copy_(stream, parameter_.count(), Type::bf16) {}

  void step(const std::vector<float>& gradient, float scale, bool with_copy) {
    const Array g(stream_, gradient);
    void* copy = with_copy ? copy_.data() : nullptr;
    ++steps_;
    const float decay = one_.value("weight_decay", 0.0f);
    if (one_["name"] == "adamw") {
      const AdamWStep step{one_["lr"], one_["betas"][0], one_["betas"][1], one_["eps"], decay, steps_, scale};
      adamw(stream_, step, parameter_.f32(), g.f32(), first_.f32(), second_.f32(), copy, count_);
    } else {
      const float momentum = one_.value("momentum", 0.0f);
      const SgdStep step{one_["lr"], momentum, decay, steps_ == 1, scale};
      sgd(stream_, step, parameter_.f32(), g.f32(), momentum == 0 ? nullptr : first_.f32(), copy, count_);
    }
    stream_.wait();
  }
  std::vector<float> parameter() const { return parameter_.get(); }
  std::vector<float> copy() const { return copy_.get(); }

 private:
  Stream& stream_;
  const nlohmann::json& one_;
  std::int64_t count_, steps_ = 0;
  Array parameter_, first_, second_, copy_;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(optimizer)

BOOST_AUTO_TEST_CASE(equals_torch_optim_step_by_step) {
  Stream stream(device());
  for (const auto& one : reference("optimizer")) {
    Run plain(stream, one), scaled(stream, one);
    for (std::size_t i = 0; i < 3; ++i) {
      auto gradient = floats(one["gradients"][i]);
      plain.step(gradient, 1.0f, false);
      check_close(one["name"].get<std::string>() + " step " + std::to_string(i + 1), plain.parameter(), floats(one["after"][i]), 3e-7);
      for (float& value : gradient) value *= 4;
      scaled.step(gradient, 0.25f, true);  // clipping multiplies the gradient as it is read
      BOOST_TEST(scaled.parameter() == plain.parameter());
      BOOST_TEST(scaled.copy() == rounded(plain.parameter(), Type::bf16));
    }
  }
}

BOOST_AUTO_TEST_CASE(what_lies_in_the_velocity_does_not_count_at_first) {
  Stream stream(device());
  const Array p(stream, std::vector<float>{1, 2}), g(stream, std::vector<float>{10, 20}), v(stream, std::vector<float>{NAN, NAN});
  sgd(stream, {.lr = 0.1f, .momentum = 0.9f, .first = true}, p.f32(), g.f32(), v.f32(), nullptr, 2);
  BOOST_TEST(v.get() == (std::vector<float>{10, 20}));
  check_close("p", p.get(), std::vector<float>{0, 0}, 1e-6);
}

BOOST_AUTO_TEST_CASE(nothing_is_fine) {
  Stream stream(device());
  const Array kept(stream, std::vector<float>{1, 2});  // no elements are none, also where there is memory
  adamw(stream, {}, kept.f32(), kept.f32(), kept.f32(), kept.f32(), nullptr, 0);
  sgd(stream, {}, kept.f32(), kept.f32(), kept.f32(), nullptr, 0);
  BOOST_CHECK_NO_THROW(adamw(stream, {}, nullptr, nullptr, nullptr, nullptr, nullptr, 0));
  BOOST_CHECK_NO_THROW(sgd(stream, {}, nullptr, nullptr, nullptr, nullptr, 0));
  BOOST_TEST(kept.get() == (std::vector<float>{1, 2}));
}

BOOST_AUTO_TEST_SUITE_END()
