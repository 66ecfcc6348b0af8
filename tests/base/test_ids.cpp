// Ids of one kind are not those of another, and a vector that is indexed by them takes no others.
#include <boost/test/unit_test.hpp>

#include <string>
#include <type_traits>

#include <ppengine/base/ids.hpp>

using namespace ppengine;

using Stage = Id<struct StageOfThisTest>;
using Node = Id<struct NodeOfThisTest>;

template <class Vector, class Index>
constexpr bool indexes = requires(Vector vector, Index index) { vector[index]; };

// What would be a mistake does not compile.
static_assert(!std::is_convertible_v<int, Stage> && !std::is_convertible_v<Stage, int>);
static_assert(!std::is_constructible_v<Stage, Node> && !std::is_convertible_v<Stage, Node>);
static_assert(!std::equality_comparable_with<Stage, Node> && !std::equality_comparable_with<Stage, int>);
static_assert(indexes<IdVector<Stage, int>, Stage> && !indexes<IdVector<Stage, int>, Node> && !indexes<IdVector<Stage, int>, int>);
static_assert(sizeof(Stage) == sizeof(int));

BOOST_AUTO_TEST_SUITE(ids)

BOOST_AUTO_TEST_CASE(a_default_id_names_nothing) {
  BOOST_TEST(!Stage());
  BOOST_TEST(static_cast<bool>(Stage(0)));
  BOOST_TEST(Stage().number() == -1);
  BOOST_TEST(!(Stage(0) - 1));  // before the first one there is none
  const IdVector<Stage, int> three(3);
  BOOST_TEST((three.contains(Stage(0)) && three.contains(Stage(2)) && !three.contains(Stage(3)) && !three.contains(Stage())));
}

BOOST_AUTO_TEST_CASE(a_vector_gives_the_id_of_what_is_added_and_all_ids_in_order) {
  IdVector<Stage, std::string> names;
  BOOST_TEST(names.push_back("first") == Stage(0));
  BOOST_TEST(names.push_back("second") == Stage(1));
  std::string all;
  for (Stage stage : names.ids()) all += names[stage] + " ";
  for (Stage stage : names.ids() | std::views::reverse) all += names[stage] + " ";
  BOOST_TEST(all == "first second second first ");
  BOOST_TEST(names.end_id() == Stage(2));
  BOOST_TEST(names.id_of(names.begin() + 1) == Stage(1));
  IdVector<Stage, bool> flags(2);
  flags[Stage(1)] = true;
  BOOST_TEST((!flags[Stage(0)] && flags[Stage(1)]));
  const IdVector<int, int> by_rank{4, 5};
  BOOST_TEST(by_rank[1] == 5);
}

BOOST_AUTO_TEST_SUITE_END()
