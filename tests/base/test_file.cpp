// Files: maps, limits, and files that appear only when complete.
#include <boost/test/unit_test.hpp>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include <ppengine/base/error.hpp>
#include <ppengine/base/file.hpp>

using namespace ppengine;
namespace fs = std::filesystem;

namespace {

struct Folder {
  fs::path path = fs::temp_directory_path() / ("ppengine_test_file_" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

std::size_t files_in(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(files, Folder)

BOOST_AUTO_TEST_CASE(a_map_holds_the_bytes_and_can_be_moved) {
  write_file_atomically(path / "a", "hello");
  MappedFile map(path / "a");
  MappedFile moved(std::move(map));
  BOOST_CHECK_EQUAL(std::string(reinterpret_cast<const char*>(moved.data()), moved.size()), "hello");
  BOOST_CHECK_EQUAL(map.size(), 0u);  // NOLINT(bugprone-use-after-move,clang-analyzer-cplusplus.Move): what is left is tested
  write_file_atomically(path / "empty", "");
  BOOST_CHECK_EQUAL(MappedFile(path / "empty").size(), 0u);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_read_is_named) {
  for (const fs::path& bad : {path / "missing", path}) {
    BOOST_CHECK_EXCEPTION(MappedFile{bad}, FileError,
                          [&](const FileError& e) { return std::string(e.what()).starts_with(bad.string() + ": "); });
    BOOST_CHECK_THROW(read_file(bad, 100), FileError);
  }
}

BOOST_AUTO_TEST_CASE(a_file_above_the_limit_is_refused) {
  write_file_atomically(path / "a", "123456");
  BOOST_CHECK_EQUAL(read_file(path / "a", 6), "123456");
  BOOST_CHECK_THROW(read_file(path / "a", 5), FileError);
}

BOOST_AUTO_TEST_CASE(without_commit_the_previous_file_stays_and_nothing_is_left_behind) {
  write_file_atomically(path / "a", "before");
  {
    AtomicFile file(path / "a");
    file.write("after");
    BOOST_CHECK_EQUAL(files_in(path), 2u);
  }
  BOOST_CHECK_EQUAL(read_file(path / "a", 100), "before");
  BOOST_CHECK_EQUAL(files_in(path), 1u);
  write_file_atomically(path / "a", "after");
  BOOST_CHECK_EQUAL(read_file(path / "a", 100), "after");
  BOOST_CHECK_EQUAL(files_in(path), 1u);
}

BOOST_AUTO_TEST_CASE(
    a_full_disk_is_a_failure_of_the_run_and_not_of_its_input) {  // /dev/full answers every write with "no space left on device"
  RandomAccessFile full("/dev/full", RandomAccessFile::Mode::update);
  BOOST_CHECK_EXCEPTION(full.write_at(0, "x", 1), Error, [](const Error& e) { return e.exit_code() == ExitCode::failed; });
}

BOOST_AUTO_TEST_CASE(a_folder_that_is_not_there_is_a_file_error) {
  BOOST_CHECK_THROW(write_file_atomically(path / "no" / "a", "x"), FileError);
}

BOOST_AUTO_TEST_CASE(threads_write_their_parts_at_offsets) {
  RandomAccessFile file(path / "parts", RandomAccessFile::Mode::create);
  file.allocate(4000);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        const std::string part(1000, static_cast<char>('a' + t));
        file.write_at(static_cast<std::uint64_t>(t) * 1000, part.data(), part.size());
      });
  }
  file.sync();
  const std::string text = read_file(path / "parts", 5000);
  BOOST_CHECK_EQUAL(text.size(), 4000u);
  for (int t = 0; t < 4; ++t) BOOST_CHECK_EQUAL(text[static_cast<std::size_t>(t) * 1000 + 999], 'a' + t);
  char c = 0;
  BOOST_CHECK_THROW(file.read_at(4000, &c, 1), FileError);
}

BOOST_AUTO_TEST_SUITE_END()
