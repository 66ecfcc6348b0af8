// The exit code belongs to the error's type, and a lost peer is named with operation and tag.
#include <boost/test/unit_test.hpp>

#include <ppengine/base/error.hpp>

using namespace ppengine;

BOOST_AUTO_TEST_SUITE(errors)

BOOST_AUTO_TEST_CASE(each_type_has_its_documented_exit_code) {
  BOOST_CHECK(Error("x").exit_code() == ExitCode::failed);
  BOOST_CHECK(ConfigError("x").exit_code() == ExitCode::usage);
  BOOST_CHECK(FileError("x").exit_code() == ExitCode::usage);
  BOOST_CHECK(DeviceError("x").exit_code() == ExitCode::no_device);
  BOOST_CHECK(CommError(1, "recv", 2, "x").exit_code() == ExitCode::peer_lost);
}

BOOST_AUTO_TEST_CASE(a_lost_peer_is_named) {
  BOOST_CHECK_EQUAL(CommError(3, "receive", 7, "no message within 30 s").what(),
                    std::string("receive with rank 3 (tag 7): no message within 30 s"));
  BOOST_CHECK_EQUAL(CommError(0, "allreduce", -1, "it is gone").what(), std::string("allreduce with rank 0: it is gone"));
  BOOST_CHECK_EQUAL(CommError(-1, "allreduce", -1, "they differ").what(), std::string("allreduce: they differ"));
}

BOOST_AUTO_TEST_CASE(a_broken_invariant_throws_with_its_place) { BOOST_CHECK_THROW(PPENGINE_ASSERT(1 == 2), Error); }

BOOST_AUTO_TEST_SUITE_END()
