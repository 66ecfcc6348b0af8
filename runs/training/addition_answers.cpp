// A model answers sums. Each pass runs the questions with the tokens so far, padded to one length: what stands behind a position
// does not change its logits, so that the padding does not matter.
#include <ppengine/runs/training/addition_answers.hpp>

#include <algorithm>

#include <ppengine/engine/evaluator.hpp>

namespace ppengine::runs {
namespace {

constexpr std::int64_t length =
    models::addition::question_tokens + models::addition::answer_tokens - 1;  // the last token is only predicted
constexpr std::size_t sums_at_once = 256;

// The most likely next token behind `position`, for all sequences of the batch; known on every rank.
std::vector<std::int64_t> next_tokens(engine::Evaluator& evaluator, comm::Communicator& world, const engine::Batch& batch,
                                      std::int64_t position, std::int64_t vocabulary) {
  std::vector<std::int64_t> next(static_cast<std::size_t>(batch.sequences), -1);
  evaluator.on_output = [&](std::int64_t first, std::int64_t sequences, std::span<const float> logits) {
    for (std::int64_t i = 0; i < sequences; ++i) {
      const auto row = logits.subspan(static_cast<std::size_t>((i * length + position) * vocabulary), static_cast<std::size_t>(vocabulary));
      next[static_cast<std::size_t>(first + i)] = std::ranges::max_element(row) - row.begin();
    }
  };
  evaluator.run(batch);
  evaluator.on_output = nullptr;
  world.allreduce_values(std::span(next), comm::Reduce::max);
  return next;
}

}  // namespace

std::vector<std::optional<int>> answer_sums(engine::Evaluator& evaluator, comm::Communicator& world,
                                            std::span<const models::addition::Sum> sums, std::int64_t vocabulary) {
  std::vector<std::optional<int>> answers;
  for (std::size_t begin = 0; begin < sums.size(); begin += sums_at_once) {
    const auto part = sums.subspan(begin, std::min(sums_at_once, sums.size() - begin));
    const auto count = static_cast<std::int64_t>(part.size());
    engine::Batch batch{count, length, {{"input_ids", {}, {}}, {"targets", {}, {}}}};
    auto& ids = batch.inputs[0].tokens;
    ids.assign(static_cast<std::size_t>(count * length), ';');
    batch.inputs[1].tokens.assign(ids.size(), models::masked_target);
    std::vector<std::string> texts(part.size());
    for (std::size_t i = 0; i < part.size(); ++i)
      std::ranges::copy(models::addition::encode_question(part[i]), ids.begin() + static_cast<std::ptrdiff_t>(i) * length);
    for (int k = 0; k < models::addition::answer_tokens; ++k) {
      const std::int64_t position = models::addition::question_tokens - 1 + k;
      const auto next = next_tokens(evaluator, world, batch, position, vocabulary);
      for (std::size_t i = 0; i < part.size(); ++i) {
        texts[i] += static_cast<char>(next[i]);
        if (k + 1 < models::addition::answer_tokens)
          ids[i * static_cast<std::size_t>(length) + static_cast<std::size_t>(position) + 1] = static_cast<std::int32_t>(next[i]);
      }
    }
    for (const std::string& text : texts) answers.push_back(text.back() == ';' ? models::addition::decode_answer(text) : std::nullopt);
  }
  return answers;
}

}  // namespace ppengine::runs
