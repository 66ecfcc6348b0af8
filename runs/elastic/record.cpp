// The record that the ranks of an elastic run share.
#include <ppengine/runs/elastic/record.hpp>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <ppengine/base/error.hpp>

namespace ppengine::runs {
namespace {

// step << 16 | rank << 2 | verdict
enum Verdict : std::uint64_t { committed = 1, given_up = 2 };
std::uint64_t pack(std::int64_t step, int rank, Verdict verdict) {
  return static_cast<std::uint64_t>(step) << 16 | static_cast<std::uint64_t>(rank) << 2 | verdict;
}

}  // namespace

ElasticRecord::ElasticRecord(const std::filesystem::path& file) {
  const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  void* memory = MAP_FAILED;
  if (fd >= 0 && ftruncate(fd, sizeof(Shared)) == 0) memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int reason = errno;
  if (fd >= 0) close(fd);
  if (memory == MAP_FAILED) throw Error(fmt::format("{}: {}: --elastic needs some shared memory", file.string(), std::strerror(reason)));
  shared_ = static_cast<Shared*>(memory);
}

ElasticRecord::~ElasticRecord() { munmap(shared_, sizeof(Shared)); }

bool ElasticRecord::commit(std::int64_t step, int rank, const Outcome& outcome) {
  shared_->outcomes[rank] = outcome;
  std::uint64_t seen = shared_->decision.load();
  while (static_cast<std::int64_t>(seen >> 16) < step)
    if (shared_->decision.compare_exchange_weak(seen, pack(step, rank, committed))) return true;
  return (seen & 3) == committed;
}

std::optional<ElasticRecord::Outcome> ElasticRecord::give_up(std::int64_t step) {
  std::uint64_t seen = shared_->decision.load();
  while (static_cast<std::int64_t>(seen >> 16) < step)
    if (shared_->decision.compare_exchange_weak(seen, pack(step, 0, given_up))) return std::nullopt;
  if ((seen & 3) != committed) return std::nullopt;
  return shared_->outcomes[seen >> 2 & 0x3fff];
}

}  // namespace ppengine::runs
