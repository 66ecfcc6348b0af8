// The entry point of every test program: Boost.Test with its own main.
#define BOOST_TEST_MODULE ppengine
#include <boost/test/unit_test.hpp>
