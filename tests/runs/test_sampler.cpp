// Sampling: the sets that top-k, top-p and min-p leave, penalties, frequencies, stop strings. Expected sets are worked out by hand.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <map>

#include <ppengine/base/error.hpp>
#include <ppengine/models/data/counter_random.hpp>
#include <ppengine/runs/sampler.hpp>

#include "../models/helpers.hpp"

using namespace ppengine;
using namespace ppengine::runs;

namespace {

// Probabilities 0.5, 0.25, 0.125, 0.0625, 0.0625 of the tokens 2, 0, 4, 1, 3.
std::vector<float> logits() { return {std::log(0.25f), std::log(0.0625f), std::log(0.5f), std::log(0.0625f), std::log(0.125f)}; }

std::map<std::int32_t, int> counts(SamplingOptions options, int draws = 4000) {
  std::map<std::int32_t, int> out;
  Sampler sampler(options);
  std::vector<std::int32_t> history;
  for (int i = 0; i < draws; ++i) {
    auto values = logits();
    ++out[sampler.choose(values, history)];
    history.push_back(1);
  }
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sampler)

BOOST_AUTO_TEST_CASE(greedy_takes_the_largest_and_the_first_of_equals) {
  Sampler greedy({});
  auto values = logits();
  BOOST_CHECK_EQUAL(greedy.choose(values, {}), 2);
  std::vector<float> equal{1, 3, 3, NAN};
  BOOST_CHECK_EQUAL(greedy.choose(equal, {}), 1);
  std::vector<float> nothing{NAN, -INFINITY};
  BOOST_CHECK_THROW(greedy.choose(nothing, {}), Error);  // damaged weights, not token 0
}

BOOST_AUTO_TEST_CASE(frequencies_follow_the_probabilities) {
  auto seen = counts({.temperature = 1});
  BOOST_CHECK_SMALL(seen[2] / 4000.0 - 0.5, 0.04);
  BOOST_CHECK_SMALL(seen[0] / 4000.0 - 0.25, 0.04);
  seen = counts({.temperature = 0.5});  // squared: 0.25 / 0.3359
  BOOST_CHECK_SMALL(seen[2] / 4000.0 - 0.727, 0.04);
}

BOOST_AUTO_TEST_CASE(top_k_top_p_and_min_p_leave_the_expected_tokens) {
  BOOST_CHECK_EQUAL(counts({.temperature = 1, .top_k = 2}).size(), 2u);
  BOOST_CHECK_EQUAL(counts({.temperature = 1, .top_k = 4}).size(), 5u);  // the fourth and fifth are equal
  BOOST_CHECK_EQUAL(counts({.temperature = 1, .top_p = 0.5}).size(), 1u);
  BOOST_CHECK_EQUAL(counts({.temperature = 1, .top_p = 0.6}).size(), 2u);
  BOOST_CHECK_EQUAL(counts({.temperature = 1, .top_p = 0.8}).size(), 3u);
  BOOST_CHECK_EQUAL(counts({.temperature = 1, .top_p = 1e-9}).size(), 1u);
  BOOST_CHECK_EQUAL(counts({.temperature = 1, .min_p = 0.2}).size(), 3u);
  BOOST_CHECK_EQUAL(counts({.temperature = 1, .top_k = 3, .top_p = 0.8}).size(), 2u);  // of 0.571, 0.286, 0.143
}

// Of many tokens only the likeliest are sorted, as far as a draw needs it. Reference: all of them sorted, and the sum walked along.
BOOST_AUTO_TEST_CASE(draws_from_a_large_vocabulary_are_those_of_a_full_sort) {
  std::vector<float> values(5000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 3 * std::sin(static_cast<float>(7 * i + 1)) + (i % 3 == 0 ? 0.0f : 1.0f);
  std::vector<std::int32_t> order(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  const auto logit = [&](std::int32_t id) { return values[static_cast<std::size_t>(id)]; };
  std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) { return logit(a) > logit(b); });
  for (const double top_p : {1.0, 0.9, 0.02})
    for (const double min_p : {0.0, 0.3}) {
      double all = 0, total = 0;
      for (const std::int32_t id : order) all += std::exp(double(logit(id)));
      std::size_t kept = 0;
      while (kept < order.size() && (total < top_p * all || top_p == 1)) total += std::exp(double(logit(order[kept++])));
      while (std::exp(double(logit(order[kept - 1]) - logit(order[0]))) < min_p) total -= std::exp(double(logit(order[--kept])));
      Sampler sampler({.temperature = 1, .top_p = top_p, .min_p = min_p, .seed = 5});
      std::vector<std::int32_t> history;
      int different = 0;
      for (int draw = 0; draw < 200; ++draw, history.push_back(0)) {
        double point = models::random_uniform(5, 0, history.size()) * total;
        std::size_t i = 0;
        while (i + 1 < kept && (point -= std::exp(double(logit(order[i])))) >= 0) ++i;
        auto copy = values;
        different += sampler.choose(copy, history) != order[i];
      }
      BOOST_TEST(different <= 1);  // where a sum in another order rounds to the other side
    }
}

BOOST_AUTO_TEST_CASE(the_repetition_penalty_makes_positive_smaller_and_negative_larger) {
  Sampler penalized({.repetition_penalty = 2});
  std::vector<float> values{4, 3, -1};
  const std::vector<std::int32_t> history{0, 0, 2, 99, -5};
  BOOST_CHECK_EQUAL(penalized.choose(values, history), 1);
  BOOST_CHECK((values == std::vector<float>{2, 3, -2}));
}

BOOST_AUTO_TEST_CASE(a_draw_depends_on_seed_request_and_position_only) {
  const SamplingOptions options{.temperature = 1, .seed = 9};
  const auto draw = [&](std::uint64_t request, std::size_t position) {
    auto values = logits();
    return Sampler(options, request).choose(values, std::vector<std::int32_t>(position, 1));
  };
  std::vector<std::int32_t> forward, backward;
  for (std::size_t i = 0; i < 64; ++i) forward.push_back(draw(i % 4, i));
  for (std::size_t i = 64; i-- > 0;) backward.push_back(draw(i % 4, i));
  std::reverse(backward.begin(), backward.end());
  BOOST_CHECK(forward == backward);
}

BOOST_AUTO_TEST_CASE(wrong_options_are_refused) {
  for (const SamplingOptions& bad :
       {SamplingOptions{.temperature = -1}, SamplingOptions{.temperature = NAN}, SamplingOptions{.top_k = -1}, SamplingOptions{.top_p = 0},
        SamplingOptions{.top_p = 1.1}, SamplingOptions{.min_p = 2}, SamplingOptions{.repetition_penalty = 0}})
    BOOST_CHECK_THROW(check(bad), ConfigError);
}

BOOST_AUTO_TEST_CASE(stop_strings_are_found_across_pieces_and_never_shown) {
  StopMatcher matcher({"</s>", "\n\n"});
  BOOST_CHECK_EQUAL(matcher.push("a<"), "a");
  BOOST_CHECK_EQUAL(matcher.push("/x\n"), "</x");
  BOOST_CHECK_EQUAL(matcher.push("b</"), "\nb");
  BOOST_CHECK_EQUAL(matcher.push("s>tail"), "");
  BOOST_CHECK(matcher.stopped());
  BOOST_CHECK_EQUAL(matcher.push("more"), "");
  BOOST_CHECK_EQUAL(matcher.finish(), "");
  StopMatcher open({"abc"});
  BOOST_CHECK_EQUAL(open.push("xab"), "x");
  BOOST_CHECK_EQUAL(open.finish(), "ab");
  BOOST_CHECK_THROW(StopMatcher({""}), ConfigError);
}

BOOST_AUTO_TEST_SUITE_END()
