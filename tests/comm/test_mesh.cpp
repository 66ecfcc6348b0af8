// The mesh: who is where, who talks to whom, how it is printed.
#include <boost/test/unit_test.hpp>

#include <thread>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/local.hpp>
#include <ppengine/comm/mesh.hpp>

using namespace ppengine;
using namespace ppengine::comm;

BOOST_AUTO_TEST_SUITE(mesh)

BOOST_AUTO_TEST_CASE(neighbours_differ_in_the_tensor_axis_first) {
  const MeshShape shape{2, 3, 4};
  BOOST_TEST(shape.size() == 24);
  BOOST_CHECK((shape.place(1) == MeshShape::Place{0, 0, 1}));
  BOOST_CHECK((shape.place(4) == MeshShape::Place{0, 1, 0}));
  BOOST_CHECK((shape.place(12) == MeshShape::Place{1, 0, 0}));
  for (int r = 0; r < 24; ++r) BOOST_TEST(shape.rank(shape.place(r)) == r);
}

BOOST_AUTO_TEST_CASE(it_is_read_from_text_or_refused) {
  const auto shape = MeshShape::parse("4,2,1");
  BOOST_TEST((shape.pipeline == 4 && shape.data == 2 && shape.tensor == 1));
  for (const char* wrong : {"", "4", "4,2", "4,2,0", "4,2,1,", "4,2,1,1", "a,b,c", "4, 2,1", "99999,99999,99999"})
    BOOST_CHECK_THROW(MeshShape::parse(wrong), ConfigError);
}

BOOST_AUTO_TEST_CASE(it_is_printed_as_a_table) {
  BOOST_TEST((MeshShape{2, 2, 2}.text()) ==
             "8 ranks: pipeline 2 x data 2 x tensor 2 (tensor ranks side by side: |)\n"
             "              data 0  data 1\n"
             "pipeline 0    0 | 1   2 | 3\n"
             "pipeline 1    4 | 5   6 | 7\n");
}

BOOST_AUTO_TEST_CASE(each_axis_has_its_own_communicator) {
  const MeshShape shape{2, 2, 2};
  auto comms = make_local(8);
  std::vector<std::string> wrong(8);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 8; ++r)
    threads.emplace_back([&, r] {
      const Mesh mesh(*comms[r], shape);
      const auto place = mesh.place();
      const auto check = [&](Communicator& axis, int size, int rank, std::int64_t sum, const char* name) {
        if (axis.size() != size || axis.rank() != rank || axis.allreduce_value(static_cast<std::int64_t>(r)) != sum) wrong[r] += name;
      };
      const auto sum_over = [&](auto with) {
        std::int64_t sum = 0;
        for (int i = 0; i < 2; ++i) sum += shape.rank(with(i));
        return sum;
      };
      check(mesh.pipeline(), 2, place.pipeline, sum_over([&](int i) { return MeshShape::Place{i, place.data, place.tensor}; }),
            "pipeline ");
      check(mesh.data(), 2, place.data, sum_over([&](int i) { return MeshShape::Place{place.pipeline, i, place.tensor}; }), "data ");
      check(mesh.tensor(), 2, place.tensor, sum_over([&](int i) { return MeshShape::Place{place.pipeline, place.data, i}; }), "tensor ");
      check(mesh.stage(), 4, place.data * 2 + place.tensor, place.pipeline == 0 ? 6 : 22, "stage ");
    });
  for (auto& thread : threads) thread.join();
  for (const std::string& one : wrong) BOOST_TEST(one.empty(), one);
}

BOOST_AUTO_TEST_CASE(a_shape_of_another_size_is_refused) {
  auto comms = make_local(1);
  BOOST_CHECK_THROW(Mesh(*comms[0], MeshShape{2, 1, 1}), ConfigError);
}

BOOST_AUTO_TEST_SUITE_END()
