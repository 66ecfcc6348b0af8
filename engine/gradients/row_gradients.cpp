// Summing the touched rows of tables.
#include <ppengine/engine/gradients/row_gradients.hpp>

#include <algorithm>
#include <span>

#include <ppengine/comm/gather.hpp>
#include <ppengine/ops/elementwise.hpp>

namespace ppengine::engine {

RowGradients::RowGradients(ModelRank& model, bool used) : model_(model) {
  if (!used) return;
  for (StageId stage : model.stages())
    for (const RowTable& found : row_tables(model.graph(), model.cuts()[stage])) {
      const ParameterStore& store = model.parameters(stage);
      const auto bucket = static_cast<std::size_t>(store.find(found.parameter)->bucket);
      if (store.buckets()[bucket].parameters.size() > 1) continue;  // a small table, among others
      tables_.push_back({found, stage, bucket, std::vector<char>(static_cast<std::size_t>(found.rows)), {}});
    }
}

void RowGradients::clear() {
  for (Table& table : tables_) std::ranges::fill(table.touched, 0);
}

void RowGradients::add(const Batch& batch, std::int64_t begin, std::int64_t count) {
  for (Table& table : tables_) {
    const BatchInput& input = *batch.find(model_.graph().values()[table.tokens].name);
    const auto length = static_cast<std::size_t>(batch.length);
    const auto mine =
        input.shared ? std::span(input.tokens)
                     : std::span(input.tokens).subspan(static_cast<std::size_t>(begin) * length, static_cast<std::size_t>(count) * length);
    for (const std::int32_t token : mine) {
      const std::int64_t row = token - table.first_token;
      if (row >= 0 && row < table.rows) table.touched[static_cast<std::size_t>(row)] = 1;
    }
  }
}

void RowGradients::agree(comm::Communicator& data) {
  for (Table& table : tables_) {
    std::vector<std::int32_t> mine;
    for (std::size_t row = 0; row < table.touched.size(); ++row)
      if (table.touched[row]) mine.push_back(static_cast<std::int32_t>(row));
    table.anywhere.clear();
    for (const std::vector<std::int32_t>& rows : comm::gather(data, mine)) {
      std::vector<std::int32_t> merged;
      std::ranges::set_union(table.anywhere, rows, std::back_inserter(merged));
      table.anywhere = std::move(merged);
    }
  }
}

const RowGradients::Table* RowGradients::find(StageId stage, std::size_t bucket) const {
  const auto found = std::ranges::find_if(tables_, [&](const Table& one) { return one.stage == stage && one.bucket == bucket; });
  return found == tables_.end() ? nullptr : &*found;
}

bool RowGradients::few(StageId stage, std::size_t bucket) const {
  const Table* const table = find(stage, bucket);
  return table && 2 * static_cast<std::int64_t>(table->anywhere.size()) <= table->rows;
}

float* RowGradients::pack(StageId stage, std::size_t bucket, const float* gradients, std::size_t& count, ops::Stream& stream) {
  const Table& table = *find(stage, bucket);
  const std::size_t rows = table.anywhere.size();
  count = rows * static_cast<std::size_t>(table.width);
  if (packed_.bytes() < count * sizeof(float)) {  // half more than needed: later batches differ a little
    packed_ = ops::Buffer();
    rows_ = ops::Buffer();
    const std::size_t room = rows + rows / 2;
    packed_ = ops::Buffer(model_.device(), room * static_cast<std::size_t>(table.width) * sizeof(float), &model_.memory());
    rows_ = ops::Buffer(model_.device(), room * sizeof(std::int32_t), &model_.memory());
  }
  stream.copy(rows_.data(), table.anywhere.data(), rows * sizeof(std::int32_t));
  ops::gather_rows(stream, gradients, rows_.as<std::int32_t>(), packed_.as<float>(), static_cast<std::int64_t>(rows), table.width);
  stream.wait();
  return packed_.as<float>();
}

void RowGradients::unpack(StageId stage, std::size_t bucket, float* dst, std::size_t begin, std::size_t end, ops::Stream& stream) const {
  const Table& table = *find(stage, bucket);
  ops::scatter_rows(stream, packed_.as<float>(), rows_.as<std::int32_t>(), dst, static_cast<std::int64_t>(table.anywhere.size()),
                    table.width, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end));
  stream.wait();
}

}  // namespace ppengine::engine
