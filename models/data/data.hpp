// Token data: files, text, the addition task and random tokens behind one interface, read by sequence number.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ppengine/models/tokenizer/tokenizer.hpp>

namespace ppengine::models {

inline constexpr std::int32_t masked_target = -100;  // no loss at this position

// Sequences of tokens by number. Immutable: may be read from several threads.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual std::uint64_t sequences() const = 0;
  virtual std::int64_t length() const = 0;  // L: inputs and targets of one sequence
  // Sequence number index, which is below sequences(): L inputs and L targets. A masked target is masked_target.
  // FileError naming file, index and value for a token that is not below the vocabulary.
  virtual void read(std::uint64_t index, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) const = 0;
  virtual std::string name() const = 0;
  // Tokens of the sequence before padding (whose targets are masked); only sources of examples have any.
  virtual std::int64_t used(std::uint64_t /*index*/) const { return length(); }
  // Whether a sequence may hold several documents; and by token the position in its document, from 0.
  virtual bool packed() const { return false; }
  virtual void read_positions(std::uint64_t index, std::span<std::int32_t> positions) const;
  // Whether microbatches are to be as long as their longest sequence.
  virtual bool variable_lengths() const { return false; }
};

struct DataOptions {
  std::int64_t sequence_length = 0;             // required, except for 2-D files, which set it (0 or the same is fine there)
  std::int64_t vocabulary = 0;                  // required: ids at or above are refused
  std::uint64_t seed = 0;                       // of made-up data (synthetic, task:addition)
  std::optional<Tokenizer> tokenizer{};         // for text
  std::vector<std::int32_t> end_tokens{};       // for examples: the first one is put behind each
  std::filesystem::path folder{};               // of the model, for its chat template; empty: none
  std::int64_t positions = 0;                   // that the model has: no sequence is longer; 0: any
  bool pack = false, variable_lengths = false;  // FILE.jsonl: several documents in a sequence; microbatches as long as they need
};

// FILE.npy, FILE.bin, FILE.txt, FILE.jsonl, task:addition or synthetic. FileError for files, ConfigError for the rest.
std::unique_ptr<TokenSource> open_data(const std::string& data, const DataOptions& options);

// Where in the data a run is: saved in checkpoints.
struct DataPosition {
  std::uint64_t epoch = 0;
  std::uint64_t next = 0;  // in the order of the epoch
  bool operator==(const DataPosition&) const = default;
};

enum class DataOrder { sequential, shuffled };
DataOrder parse_data_order(std::string_view name);  // sequential | shuffled; ConfigError otherwise

// Hands out sequence numbers: epochs of every sequence once, in order or shuffled by (seed, epoch). The permutation is
// computed, not stored, so that a billion sequences cost nothing.
class DataSampler {
 public:
  DataSampler(std::uint64_t sequences, DataOrder order, std::uint64_t seed);

  // The numbers of the next batch. A batch may go over the end of an epoch into the next.
  std::vector<std::uint64_t> next(std::size_t count);
  std::uint64_t at(DataPosition position) const;

  DataPosition position() const { return position_; }
  void seek(DataPosition position);  // ConfigError where it does not fit the data

 private:
  std::uint64_t sequences_;
  DataOrder order_;
  std::uint64_t seed_;
  DataPosition position_;
};

}  // namespace ppengine::models
