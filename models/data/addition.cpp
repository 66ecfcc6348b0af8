// The addition task. The answer's digits stand from the ones upwards and padded to three: each digit then depends only on
// its column and a carry that is already known, which a small model learns in minutes, also for sums it never saw.
#include <ppengine/models/data/addition.hpp>

#include <fmt/core.h>

#include <array>

#include <ppengine/base/error.hpp>
#include <ppengine/models/data/counter_random.hpp>

namespace ppengine::models::addition {
namespace {

constexpr std::uint64_t task_sequences = 1 << 14;
constexpr int sum_tokens = question_tokens + answer_tokens;

class AdditionSource : public TokenSource {
 public:
  explicit AdditionSource(const DataOptions& options) : length_(options.sequence_length), seed_(options.seed) {
    for (int left = 0; left < 100; ++left)
      for (int right = 0; right < 100; ++right)
        if (!is_held_out({left, right})) shown_.push_back({left, right});
  }
  std::uint64_t sequences() const override { return task_sequences; }
  std::int64_t length() const override { return length_; }
  std::string name() const override { return "task:addition"; }

  void read(std::uint64_t index, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) const override {
    std::string text;
    const std::size_t needed = static_cast<std::size_t>(length_) + 1;
    for (std::uint64_t i = 0; text.size() < needed; ++i) {
      const Sum& sum = shown_[random_below(seed_, index, i, shown_.size())];
      text += encode_question(sum) + encode_answer(sum);
    }
    for (std::size_t i = 0; i + 1 < needed; ++i) {
      const auto next = static_cast<unsigned char>(text[i + 1]);
      inputs[i] = static_cast<unsigned char>(text[i]);
      targets[i] = (i + 1) % sum_tokens >= question_tokens ? next : masked_target;
    }
  }

 private:
  std::int64_t length_;
  std::uint64_t seed_;
  std::vector<Sum> shown_;
};

std::optional<int> parse_number(std::string_view& text) {
  int value = 0, digits = 0;
  for (; !text.empty() && text.front() >= '0' && text.front() <= '9' && digits < 3; text.remove_prefix(1), ++digits)
    value = 10 * value + (text.front() - '0');
  return digits == 0 ? std::nullopt : std::optional(value);
}

}  // namespace

std::string encode_question(const Sum& sum) { return fmt::format("{:02}+{:02}=", sum.left, sum.right); }

std::string encode_answer(const Sum& sum) {
  const int answer = sum.answer();
  return fmt::format("{}{}{};", answer % 10, answer / 10 % 10, answer / 100);
}

std::optional<int> decode_answer(std::string_view text) {
  if (text.size() < 3) return std::nullopt;
  for (int i = 0; i < 3; ++i)
    if (text[i] < '0' || text[i] > '9') return std::nullopt;
  return (text[0] - '0') + 10 * (text[1] - '0') + 100 * (text[2] - '0');
}

std::string show(const Sum& sum, std::optional<int> answer) {
  return fmt::format("{}+{}={}", sum.left, sum.right, answer ? fmt::format("{}", *answer) : "?");
}

std::optional<Sum> parse_question(std::string_view text) {
  std::string compact;
  for (char c : text)
    if (c != ' ') compact += c;
  std::string_view rest = compact;
  const auto left = parse_number(rest);
  if (!left || !rest.starts_with('+')) return std::nullopt;
  rest.remove_prefix(1);
  const auto right = parse_number(rest);
  if (!right || !(rest.empty() || rest == "=" || rest == "=?") || *left > 99 || *right > 99) return std::nullopt;
  return Sum{*left, *right};
}

bool is_held_out(const Sum& sum) {
  return random_below(0x616464, static_cast<std::uint64_t>(sum.left), static_cast<std::uint64_t>(sum.right), 10) == 0;
}

std::vector<Sum> held_out_sums() {
  std::vector<Sum> sums;
  for (int left = 0; left < 100; ++left)
    for (int right = 0; right < 100; ++right)
      if (is_held_out({left, right})) sums.push_back({left, right});
  return sums;
}

std::unique_ptr<TokenSource> make_source(const DataOptions& options) {
  if (options.vocabulary < 128)
    throw ConfigError(fmt::format("task:addition needs a vocabulary of at least 128 (one token per byte), not {}", options.vocabulary));
  if (options.sequence_length < sum_tokens)
    throw ConfigError(fmt::format("task:addition needs --seq-len {} or more, not {}", sum_tokens, options.sequence_length));
  return std::make_unique<AdditionSource>(options);
}

}  // namespace ppengine::models::addition
