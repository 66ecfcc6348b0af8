// The rule that fills buckets, against PyTorch's compute_bucket_assignment_by_size (the examples of its own tests), and the layout of flat
// buffers that follows.
#include <boost/test/unit_test.hpp>

#include <string>

#include <ppengine/engine/weights/buckets.hpp>

using namespace ppengine::engine;

namespace {

using Buckets = std::vector<std::vector<std::size_t>>;

std::vector<BucketItem> f32(const std::vector<std::size_t>& elements) {
  std::vector<BucketItem> items;
  for (std::size_t count : elements) items.push_back({count * 4, 0});
  return items;
}

// f32 of 50 and f64 of 25 elements by turns: 200 bytes each.
std::vector<BucketItem> alternating() {
  std::vector<BucketItem> items;
  for (int i = 0; i < 6; ++i) items.push_back({200, i % 2});
  return items;
}

std::string text(const Buckets& buckets) {
  std::string text;
  for (const auto& bucket : buckets) {
    text += "[";
    for (std::size_t item : bucket) text += std::to_string(item) + " ";
    text += "]";
  }
  return text;
}

void check(const std::vector<BucketItem>& items, const std::vector<std::size_t>& caps, const Buckets& expected,
           BucketOrder order = BucketOrder::by_first) {
  BOOST_TEST(text(assign_buckets(items, caps, order)) == text(expected));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(buckets)

BOOST_AUTO_TEST_CASE(a_bucket_is_closed_when_its_size_has_reached_the_cap) {
  check(f32({100, 200, 100, 50}), {400}, {{0}, {1}, {2}, {3}});
  check(f32({10, 10, 10, 10}), {80}, {{0, 1}, {2, 3}});
  check(f32({10, 10, 10}), {81}, {{0, 1, 2}});  // it may exceed the cap by one tensor
}

BOOST_AUTO_TEST_CASE(caps_are_walked_and_the_last_one_stays) {
  check(f32({10, 10, 10, 10}), {40, 80}, {{0}, {1, 2}, {3}});
  check(f32({10, 10, 10, 10, 10, 10}), {40, 80}, {{0}, {1, 2}, {3, 4}, {5}});
}

BOOST_AUTO_TEST_CASE(types_do_not_share_buckets_and_walk_the_caps_for_themselves) {
  check(alternating(), {400}, {{0, 2}, {1, 3}, {4}, {5}});
  check(alternating(), {200, 400}, {{0}, {1}, {2, 4}, {3, 5}});
}

BOOST_AUTO_TEST_CASE(in_a_given_order_buckets_stand_as_they_are_filled) {
  const std::vector<BucketItem> items{{100, 0}, {400, 1}, {300, 0}, {8, 1}, {8, 0}};
  check(items, {400}, {{0, 2}, {1}, {3}, {4}});
  check(items, {400}, {{1}, {0, 2}, {3}, {4}}, BucketOrder::by_closing);
}

BOOST_AUTO_TEST_CASE(by_default_the_first_bucket_is_small) {
  BOOST_TEST(BucketOptions{}.effective() == (std::vector<std::size_t>{1048576, 26214400}), boost::test_tools::per_element());
  BOOST_TEST(BucketOptions{.caps = {7}}.effective() == std::vector<std::size_t>{7}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_layout_keeps_order_alignment_and_parts) {
  for (int shards : {1, 2, 3}) {
    const std::vector<FlatItem> items{{ParameterId(5), 100, 0}, {ParameterId(3), 7, 0},    {ParameterId(9), 40, -1},
                                      {ParameterId(2), 33, 10}, {ParameterId(4), 1000, 0}, {ParameterId(6), 5, 0}};
    const FlatLayout layout = make_layout(items, {.caps = {400, 4000}}, shards);
    BOOST_REQUIRE_EQUAL(layout.buckets.size(), 5u);  // [5], [3 4], [2], [6], and 9, which is not reduced, last
    std::size_t end = 0;
    std::vector<ParameterId> ids;
    for (const Bucket& bucket : layout.buckets) {
      BOOST_TEST(bucket.begin == end);
      BOOST_TEST(bucket.count() % static_cast<std::size_t>(32 * shards) == 0u);
      end = bucket.end;
      ids.insert(ids.end(), bucket.parameters.begin(), bucket.parameters.end());
    }
    BOOST_TEST(end == layout.count);
    BOOST_TEST(!layout.buckets.back().reduced());
    for (std::size_t i = 0; i < layout.places.size(); ++i) {
      BOOST_TEST(layout.places[i].id == ids[i]);
      BOOST_TEST(layout.places[i].offset % 32 == 0u);
      if (i > 0) BOOST_TEST(layout.places[i].offset >= layout.places[i - 1].offset + layout.places[i - 1].count);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
