// The measured choice between our products and oneDNN's.
#include <ppengine/ops/cpu/product_choice.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <oneapi/tbb/task_arena.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <sstream>
#include <vector>

#include <ppengine/base/environment.hpp>
#include <ppengine/base/hash.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/ops/cpu/parallel.hpp>
#include <ppengine/ops/onednn/sgemm.hpp>

namespace ppengine::ops::cpu {
namespace {

constexpr std::int64_t least_measured = 1 << 23;  // multiplications
constexpr std::int64_t most_measured = 4096;      // of each size: more takes longer and says the same
constexpr int method = 2;                         // of measuring: answers of earlier ones do not count
constexpr int least_tries = 4, most_tries = 24;
constexpr double most_seconds = 1;     // that a shape's tries take, once there are enough
constexpr double clearly = 1.05;       // faster than ours, to be chosen
constexpr std::time_t busy_for = 600;  // seconds that an answer from a busy machine is good for: the ranks of a run start within them

std::string key_of(const Gemm& g) {
  return fmt::format("{}x{}x{}{}{}", g.m, g.n, g.k, g.transposed_a ? "-ta" : "", g.transposed_b ? "-tb" : "");
}

// What /proc/cpuinfo says of the first CPU; no line of it is interpreted.
std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  std::string model, line;
  while (std::getline(info, line) && !line.empty())
    for (const char* kept : {"vendor_id", "cpu family", "model", "stepping", "cache size", "CPU implementer", "CPU part"})
      if (line.starts_with(kept)) model += line + "\n";
  return model;
}

void by_onednn(Stream& stream, const Gemm& g) {
  const bool begun = g.bias || g.add;
  if (g.bias || (g.add && g.add != g.c)) {
    stream.wait();  // what is under way may still write what is added, or read what was in c's memory
    for_parts(g.m, divide_up(1 << 14, g.n), [&](std::int64_t row, std::int64_t end) {
      for (; row < end; ++row) {
        float* const c = g.c + row * g.n;
        for (std::int64_t i = 0; i < g.n; ++i) c[i] = (g.add ? g.add[row * g.n + i] : 0.0f) + (g.bias ? g.bias[i] : 0.0f);
      }
    });
  }
  onednn::sgemm(stream, {g.transposed_a, g.transposed_b, g.m, g.n, g.k, g.a, g.transposed_a ? g.m : g.k, g.b, g.transposed_b ? g.k : g.n,
                         g.c, g.n, begun});
}

// A product's operands as a step has them: they begin with a cache line, and what has the shape of a weight (the gradient that is added to,
// or b) is not in the caches, but another one each time.
class Operands {
 public:
  explicit Operands(const Gemm& product)
      : g_(product),
        a_(lines(g_.m, g_.k)),
        b_(lines(g_.k, g_.n)),
        c_(lines(g_.m, g_.n)),
        copies_(divide_up(not_cached, std::max(g_.transposed_a ? c_ : b_, std::int64_t{1}))),
        memory_(static_cast<std::size_t>(a_ + (g_.transposed_a ? b_ + copies_ * c_ : copies_ * b_ + c_)), filled()) {}

  Gemm next() {
    const std::int64_t copy = next_++ % copies_, b = a_ + (g_.transposed_a ? 0 : copy * b_);
    const std::int64_t c = a_ + (g_.transposed_a ? b_ + copy * c_ : copies_ * b_);
    g_.a = at(0), g_.b = at(b), g_.c = at(c);
    g_.bias = nullptr, g_.add = g_.transposed_a ? g_.c : nullptr;
    return g_;
  }

 private:
  struct alignas(64) Line {
    float values[16];
  };
  static constexpr std::int64_t not_cached = (32 << 20) / sizeof(Line);
  static Line filled() {
    Line line;
    std::ranges::fill(line.values, 0.5f);
    return line;
  }
  // One more than needed: matrices that all begin with a page would push each other out of the first cache.
  static std::int64_t lines(std::int64_t rows, std::int64_t columns) { return divide_up(rows * columns, 16) + 1; }
  float* at(std::int64_t line) { return memory_[static_cast<std::size_t>(line)].values; }

  Gemm g_;
  std::int64_t a_, b_, c_, copies_, next_ = 0;
  std::vector<Line> memory_;
};

ProductChoice measure(Stream& stream, Gemm g) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  for (std::int64_t* size : {&g.m, &g.n, &g.k}) *size = std::min(*size, most_measured);
  Operands operands(g);
  BestRate ours, onednn;
  const auto steady = [&] { return ours.steady() && onednn.steady(); };
  const auto started = Clock::now();
  for (int i = 0; i < least_tries || (i < most_tries && !steady() && seconds_since(started) < most_seconds); ++i)
    for (BestRate* rate : {&ours, &onednn}) {
      const Gemm product = operands.next();
      const auto begin = Clock::now();
      multiply(stream, product, {.ours = rate == &ours});
      stream.wait();
      rate->add(2e-9 * static_cast<double>(g.m * g.n) * static_cast<double>(g.k) / seconds_since(begin));
    }
  const bool undisturbed = steady();
  return {.ours = !undisturbed || onednn.best() < clearly * ours.best(),
          .ours_gflops = ours.best(),
          .onednn_gflops = onednn.best(),
          .busy_at = undisturbed ? 0 : std::time(nullptr)};
}

std::string line_of(const std::string& key, const ProductChoice& choice) {
  const std::string busy = choice.busy_at ? fmt::format(" busy {}", choice.busy_at) : "";
  return fmt::format("{} {} {:.1f} {:.1f}{}\n", key, choice.ours ? "cpu" : "onednn", choice.ours_gflops, choice.onednn_gflops, busy);
}

// The file, held against other processes until this ends.
class Locked {
 public:
  explicit Locked(const std::filesystem::path& file) {
    std::error_code ignored;
    std::filesystem::create_directories(file.parent_path(), ignored);
    descriptor_ = open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (descriptor_ >= 0 && flock(descriptor_, LOCK_EX) != 0) close(std::exchange(descriptor_, -1));
  }
  ~Locked() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

  bool writable() const { return descriptor_ >= 0; }
  bool append(const std::string& line) const { return write(descriptor_, line.data(), line.size()) == static_cast<ssize_t>(line.size()); }

 private:
  int descriptor_ = -1;
};

}  // namespace

std::string ProductChoice::text() const {
  if (ours_gflops == 0) return "cpu (too small to measure, or no cache folder that can be written)";
  if (busy_at)
    return fmt::format("cpu: the machine was busy (about {:.0f} GFLOP/s, oneDNN's sgemm {:.0f}); measured again later", ours_gflops,
                       onednn_gflops);
  return ours ? fmt::format("cpu: {:.0f} GFLOP/s, oneDNN's sgemm {:.0f}", ours_gflops, onednn_gflops)
              : fmt::format("oneDNN's sgemm: {:.0f} GFLOP/s, cpu {:.0f}", onednn_gflops, ours_gflops);
}

void BestRate::add(double rate) {
  second_ = std::max(second_, std::min(rate, best_));
  best_ = std::max(best_, rate);
}

ProductTable& ProductTable::of_this_cpu() {
  static ProductTable table(
      std::filesystem::path(environment::cache_folder()) / "products" /
      fmt::format("{}-{}-{:016x}.{}", vector_target(), oneapi::tbb::this_task_arena::max_concurrency(), hash_text(cpu_model()), method));
  return table;
}

// The first line of a shape counts, but for those of busy machines, which later ones replace.
void ProductTable::read() {
  std::ifstream file(file_);
  std::string line, key, by, state;
  while (std::getline(file, line)) {
    ProductChoice choice;
    std::istringstream words(line);
    if (!(words >> key >> by >> choice.ours_gflops >> choice.onednn_gflops) || (by != "cpu" && by != "onednn")) continue;
    choice.ours = by == "cpu";
    if (words >> state && state == "busy" && !(words >> choice.busy_at)) continue;
    if (const auto [known, added] = known_.try_emplace(key, choice); !added && !counts(known->second)) known->second = choice;
  }
}

bool ProductTable::counts(const ProductChoice& choice) const { return choice.busy_at == 0 || choice.busy_at + busy_for > started_; }

const ProductChoice* ProductTable::find(const std::string& key) const {
  const auto found = known_.find(key);
  return found != known_.end() && counts(found->second) ? &found->second : nullptr;
}

ProductChoice ProductTable::choose(Stream& stream, const Gemm& product) {
  if (product.m * product.n < divide_up(least_measured, product.k)) return {};
  const std::lock_guard guard(mutex_);
  const std::string key = key_of(product);
  if (const ProductChoice* const found = find(key)) return *found;
  const Locked lock(file_);
  read();
  if (const ProductChoice* const found = find(key)) return *found;
  ProductChoice choice;
  if (lock.writable()) {
    choice = measure(stream, product);
    // An answer that cannot be kept would differ between ranks and runs.
    if (!lock.append(line_of(key, choice))) choice = {};
    log::debug(fmt::format("product {}: {}", key, choice.text()));
  }
  return known_[key] = choice;
}

void multiply(Stream& stream, const Gemm& product, const ProductChoice& by) {
  if (!by.ours) return by_onednn(stream, product);
  stream.wait();
  gemm(product);
}

}  // namespace ppengine::ops::cpu
