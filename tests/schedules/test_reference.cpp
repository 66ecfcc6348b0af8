// Orders and lowered plans equal PyTorch's byte for byte. Reference: reference/orders.txt and the sample plans, made by
// running PyTorch 2.13 (reference/make_reference.py), with the last rank of its 1F1B put right.
#include <boost/test/unit_test.hpp>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include <ppengine/schedules/csv.hpp>
#include <ppengine/schedules/lower.hpp>
#include <ppengine/schedules/registry.hpp>

using namespace ppengine::schedules;

namespace {

constexpr const char* folder = PPENGINE_SOURCE_DIR "/tests/schedules/reference/";

std::string fnv1a(const std::string& text) {
  std::uint64_t value = 0xCBF29CE484222325;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return fmt::format("{:016x}", value);
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  BOOST_REQUIRE_MESSAGE(file, path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(reference)

BOOST_AUTO_TEST_CASE(every_order_and_lowered_plan_equals_pytorchs_file) {
  std::ifstream file(std::filesystem::path(folder) / "orders.txt");
  std::string line;
  int combinations = 0;
  while (std::getline(file, line)) {
    if (line.starts_with('#')) continue;
    std::istringstream fields(line);
    std::string name, compute_only, compute_comms, deferred;
    int ranks = 0, stages = 0, microbatches = 0;
    fields >> name >> ranks >> stages >> microbatches >> compute_only >> compute_comms >> deferred;
    const Plan plan = make_plan(name, ranks, stages, microbatches);
    const std::string what = fmt::format("make_reference.py show {} {} {} {}", name, ranks, stages, microbatches);
    BOOST_CHECK_MESSAGE(fnv1a(to_csv(plan)) == compute_only, what);
    BOOST_CHECK_MESSAGE(fnv1a(to_csv(lower(plan))) == compute_comms, what << " comms");
    BOOST_CHECK_MESSAGE(fnv1a(to_csv(defer_recv_as_pytorch(lower(plan)))) == deferred, what << " deferred");
    ++combinations;
  }
  BOOST_CHECK_GT(combinations, 1000);
}

BOOST_AUTO_TEST_CASE(the_sample_plans_equal_pytorchs_files_cell_by_cell) {
  for (const char* name : {"interleavedzerobubble", "dualpipev"}) {
    const Plan plan = make_plan(name, 3, 6, 8);
    const std::string path = std::string(folder) + name;
    BOOST_CHECK_EQUAL(to_csv(plan), contents(path + "_compute_only.csv"));
    BOOST_CHECK_EQUAL(to_csv(lower(plan)), contents(path + "_compute_comms.csv"));
    BOOST_CHECK_EQUAL(to_csv(defer_recv_as_pytorch(lower(plan))), contents(path + "_deferred.csv"));
  }
}

BOOST_AUTO_TEST_CASE(names_are_taken_in_any_case) {
  BOOST_CHECK(make_plan("InterLeaved1F1B", 2, 4, 4) == make_plan("interleaved1f1b", 2, 4, 4));
}

BOOST_AUTO_TEST_SUITE_END()
