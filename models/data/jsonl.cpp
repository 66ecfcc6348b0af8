// FILE.jsonl as sequences.
#include <ppengine/models/data/jsonl.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/models/data/documents.hpp>
#include <ppengine/models/data/line_index.hpp>

namespace ppengine::models {
namespace {

constexpr std::uint64_t eager_bytes = LineIndex::kept_from;  // smaller files are read and checked whole at the start
constexpr std::int64_t lazy_length = 1024;                   // of sequences where the longest example is not known

class JsonlSource : public TokenSource {
 public:
  JsonlSource(const std::string& path, const DataOptions& options) : lines_(path), maker_(options), variable_(options.variable_lengths) {
    length_ = options.sequence_length;
    packed_ = options.pack;
    if (packed_ || lines_.bytes() < eager_bytes) read_all();
    const std::int64_t most = options.positions > 0 ? options.positions : INT32_MAX;
    if (length_ == 0) length_ = std::min(most, examples_.empty() ? lazy_length : packed_ ? std::max(longest(), lazy_length) : longest());
    if (!examples_.empty()) warn_of_cuts();
    if (packed_) {
      std::vector<std::int64_t> lengths;
      for (const Example& one : examples_) lengths.push_back(inputs_of(one));
      bins_ = pack_examples(lengths, length_);
    }
  }

  std::uint64_t sequences() const override { return packed_ ? bins_.size() : lines_.count(); }
  std::int64_t length() const override { return length_; }
  std::string name() const override { return lines_.path().string(); }
  bool packed() const override { return packed_; }
  bool variable_lengths() const override { return variable_; }

  std::int64_t used(std::uint64_t index) const override {
    std::int64_t count = 0;
    for_each(index, [&](const Example& one) { count += inputs_of(one); });
    return count;
  }

  void read(std::uint64_t index, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) const override {
    std::ranges::fill(inputs, 0);
    std::ranges::fill(targets, masked_target);
    std::size_t at = 0;
    for_each(index, [&](const Example& one) {
      const auto count = static_cast<std::size_t>(inputs_of(one));
      for (std::size_t i = 0; i < count; ++i, ++at) {
        inputs[at] = one.tokens[i];
        if (one.learned[i + 1]) targets[at] = one.tokens[i + 1];
      }
    });
  }

  void read_positions(std::uint64_t index, std::span<std::int32_t> positions) const override {
    std::size_t at = 0;
    for_each(index, [&](const Example& one) {
      const auto count = static_cast<std::size_t>(inputs_of(one));
      std::iota(positions.begin() + static_cast<long>(at), positions.begin() + static_cast<long>(at + count), 0);
      at += count;
    });
    std::iota(positions.begin() + static_cast<long>(at), positions.end(), 0);  // padding is a document of its own
  }

 private:
  Example make(std::uint64_t index) const {
    lines_.expect_whole();
    return maker_.make(lines_.text(index), fmt::format("{}: line {}", name(), lines_.number(index)));
  }
  // Of a sequence first the tokens are asked for, then their number.
  std::shared_ptr<const Example> make_once(std::uint64_t index) const {
    {
      const std::lock_guard lock(mutex_);
      if (last_.second && last_.first == index) return last_.second;
    }
    auto made = std::make_shared<const Example>(make(index));
    const std::lock_guard lock(mutex_);
    last_ = {index, made};
    return made;
  }
  std::int64_t inputs_of(const Example& one) const { return std::min(all_inputs_of(one), length_); }
  static std::int64_t all_inputs_of(const Example& one) { return std::max<std::int64_t>(0, std::ssize(one.tokens) - 1); }
  std::int64_t longest() const {
    std::int64_t most = 1;
    for (const Example& one : examples_) most = std::max(most, all_inputs_of(one));
    return most;
  }

  template <class Visit>
  void for_each(std::uint64_t index, const Visit& visit) const {
    PPENGINE_ASSERT(index < sequences());
    if (!packed_ && examples_.empty()) return visit(*make_once(index));
    if (!packed_) return visit(examples_[index]);
    for (const std::uint64_t one : bins_[index]) visit(examples_[one]);
  }

  // On all cores. Of several lines that are wrong, the first is named.
  void read_all() {
    examples_.resize(lines_.count());
    std::atomic<std::size_t> next{0};
    std::mutex mutex;
    std::size_t failed = SIZE_MAX;
    std::exception_ptr error;
    const auto work = [&] {
      constexpr std::size_t some = 64;
      for (std::size_t first = next.fetch_add(some); first < examples_.size(); first = next.fetch_add(some))
        for (std::size_t i = first; i < std::min(first + some, examples_.size()); ++i) try {
            examples_[i] = make(i);
          } catch (...) {
            const std::lock_guard lock(mutex);
            if (i < failed) failed = i, error = std::current_exception();
            break;
          }
    };
    {
      std::vector<std::jthread> workers;
      for (unsigned t = 1; t < std::max(1u, std::thread::hardware_concurrency()); ++t) workers.emplace_back(work);
      work();
    }
    if (error) std::rethrow_exception(error);
  }

  void warn_of_cuts() const {
    std::size_t cut = 0, empty = 0;
    for (const Example& one : examples_) {
      const auto count = inputs_of(one);
      cut += all_inputs_of(one) > count;
      const auto behind = one.learned.begin() + (count > 0 ? 1 + count : 0);  // of one token, or none, nothing is predicted
      empty += std::find(one.learned.begin() + (count > 0), behind, 1) == behind;
    }
    if (cut > 0)
      log::warning(
          fmt::format("{}: {} of {} examples are longer than --seq-len {} and cut off there", name(), cut, examples_.size(), length_));
    if (empty == examples_.size()) throw FileError(fmt::format("{}: no example has anything to learn within {} tokens", name(), length_));
    if (empty > 0)
      log::warning(fmt::format("{}: {} of {} examples have nothing to learn within {} tokens", name(), empty, examples_.size(), length_));
  }

  LineIndex lines_;
  ExampleMaker maker_;
  bool packed_ = false, variable_ = false;
  std::int64_t length_ = 0;
  std::vector<Example> examples_;  // empty: read line by line
  std::vector<std::vector<std::uint64_t>> bins_;
  mutable std::mutex mutex_;
  mutable std::pair<std::uint64_t, std::shared_ptr<const Example>> last_;  // line by line: the one that was read last
};

}  // namespace

std::unique_ptr<TokenSource> open_jsonl(const std::string& path, const DataOptions& options) {
  return std::make_unique<JsonlSource>(path, options);
}

}  // namespace ppengine::models
