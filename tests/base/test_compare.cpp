// The comparisons that other tests rely on: what must not pass does not. And the file functions below them: checksums, links, locks.
#include <boost/test/unit_test.hpp>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include <ppengine/base/crc32.hpp>
#include <ppengine/base/error.hpp>
#include <ppengine/base/file.hpp>
#include <ppengine/base/file_lock.hpp>

#include "../compare.hpp"

using namespace ppengine;
using namespace ppengine::test;
namespace fs = std::filesystem;

namespace {

const float not_a_number = std::numeric_limits<float>::quiet_NaN(), infinite = std::numeric_limits<float>::infinity();
using Values = std::vector<float>;

class Folder {
 public:
  Folder() : path_((fs::temp_directory_path() / "ppengine-files-XXXXXX").string()) { BOOST_REQUIRE(mkdtemp(path_.data())); }
  ~Folder() { fs::remove_all(path_); }
  fs::path operator/(const std::string& name) const { return fs::path(path_) / name; }

 private:
  std::string path_;
};

std::string read(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(compare)

BOOST_AUTO_TEST_CASE(no_tolerance_lets_a_nan_an_infinity_or_another_size_pass) {
  const double tolerance = 1e30;
  const Values good{1, 2, 3};
  for (const Values& bad : {Values{1, not_a_number, 3}, Values{not_a_number, not_a_number, not_a_number}, Values{1, 2, infinite},
                            Values{1, 2}, Values{1, 2, 3, 4}, Values{}}) {
    BOOST_TEST(!(largest_share(bad, good) < tolerance));
    BOOST_TEST(!(largest_share(good, bad) < tolerance));
    BOOST_TEST(!(largest_distance(bad, good).distance < tolerance));
  }
  BOOST_TEST(!(largest_share(Values{not_a_number}, Values{not_a_number}) < tolerance));  // both wrong is not right
  BOOST_TEST(!(worse(0.1, not_a_number) < tolerance));
  BOOST_TEST(!(worse(not_a_number, 0.1) < tolerance));
  BOOST_TEST(!(relative(not_a_number, 1) < tolerance));
  BOOST_TEST(!(relative(0, 0) < tolerance));
  BOOST_TEST(!(relative(1, 0) < tolerance));
  BOOST_TEST(!(distance(infinite, infinite) < tolerance));
}

BOOST_AUTO_TEST_CASE(distances_are_those_of_the_worst_value) {
  BOOST_TEST(largest_share(Values{1, 2, 4}, Values{1, 2.5, 4}) == 0.125);
  BOOST_TEST(largest_distance(Values{1, 2, 4}, Values{1, 2.5, 4}).where == 1u);
  BOOST_TEST(largest_share(Values{9, 2}, Values{1, 2}, 1e-6, 1) == 0.0);
  BOOST_TEST(largest_share(Values{}, Values{}) == 0.0);
  BOOST_TEST(worse(1, 2) == 2.0);
  BOOST_TEST(relative(3, 2) == 0.5);
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(output_files)

BOOST_AUTO_TEST_CASE(crc32_is_that_of_zlib) {
  BOOST_TEST(crc32("123456789", 9) == 0xcbf43926u);  // the check value of CRC-32/ISO-HDLC
  BOOST_TEST(crc32("", 0) == 0u);
  BOOST_TEST(crc32("6789", 4, crc32("12345", 5)) == 0xcbf43926u);
  BOOST_TEST(crc32("The quick brown fox jumps over the lazy dog", 43) == 0x414fa339u);  // zlib.crc32 of Python 3.11
}

BOOST_AUTO_TEST_CASE(links_are_followed_and_stay) {
  const Folder folder;
  write_file_atomically(folder / "real", "before");
  fs::create_symlink("real", folder / "link");
  fs::create_symlink(folder / "link", folder / "second");
  write_file_atomically(folder / "second", "after");
  BOOST_TEST(read(folder / "real") == "after");
  BOOST_TEST(fs::is_symlink(folder / "second"));
  BOOST_TEST(fs::is_symlink(folder / "link"));
  fs::create_symlink("not-there-yet", folder / "dangling");
  write_file_atomically(folder / "dangling", "new");
  BOOST_TEST(read(folder / "not-there-yet") == "new");
  fs::create_symlink("b", folder / "a");
  fs::create_symlink("a", folder / "b");
  BOOST_CHECK_THROW(write_file_atomically(folder / "a", "x"), FileError);
  BOOST_CHECK_THROW(check_can_write(folder / "a"), FileError);
  BOOST_CHECK_THROW(follow_links(folder / "a"), FileError);
}

BOOST_AUTO_TEST_CASE(devices_and_pipes_are_written_to_and_not_replaced) {
  const Folder folder;
  write_file_atomically("/dev/null", "gone");
  BOOST_TEST(fs::is_character_file("/dev/null"));
  fs::create_symlink("/dev/full", folder / "full");
  BOOST_CHECK_THROW(write_file_atomically(folder / "full", "x"), Error);
  BOOST_TEST(fs::is_character_file("/dev/full"));
  BOOST_TEST(fs::is_symlink(folder / "full"));
  BOOST_REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  const int reader = ::open((folder / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  write_file_atomically(folder / "pipe", "through");
  char text[16] = {};
  BOOST_TEST(::read(reader, text, sizeof text) == 7);
  BOOST_TEST(std::string(text) == "through");
  ::close(reader);
  BOOST_TEST(fs::is_fifo(folder / "pipe"));
  BOOST_CHECK_THROW(write_file_atomically(folder / ".", "x"), FileError);
  BOOST_CHECK_THROW(check_can_write(folder / "no" / "file"), FileError);
  check_can_write(folder / "new");
}

BOOST_AUTO_TEST_CASE(a_replaced_file_keeps_who_may_read_it) {
  const Folder folder;
  write_file_atomically(folder / "a", "x");
  fs::permissions(folder / "a", fs::perms::owner_read | fs::perms::owner_write);
  write_file_atomically(folder / "a", "y");
  BOOST_TEST((fs::status(folder / "a").permissions() == (fs::perms::owner_read | fs::perms::owner_write)));
}

BOOST_AUTO_TEST_CASE(a_mapped_file_that_shrinks_is_noticed) {
  const Folder folder;
  write_file_atomically(folder / "data", std::string(10000, 'x'));
  const MappedFile map(folder / "data");
  map.expect_whole();
  fs::resize_file(folder / "data", 5000);
  BOOST_CHECK_EXCEPTION(map.expect_whole(), FileError,
                        [](const Error& error) { return std::string(error.what()).find("has become shorter") != std::string::npos; });
}

BOOST_AUTO_TEST_CASE(a_lock_names_its_holder_and_ends_with_it) {
  const Folder folder;
  {
    const FileLock lock(folder / "lock", "out");
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    BOOST_CHECK_EXCEPTION(FileLock(folder / "lock", "out"), Error, [&](const Error& error) {
      const std::string text = error.what();
      return text.find("process " + std::to_string(getpid())) != std::string::npos && text.find(host) != std::string::npos;
    });
  }
  BOOST_TEST(!fs::exists(folder / "lock"));
  std::ofstream(folder / "lock") << "host other, process 1\n";  // left behind by one that was killed
  const FileLock again(folder / "lock", "out");
}

BOOST_AUTO_TEST_SUITE_END()
